//! What the coordinator is told, and what it wants done.

use starling_protocol::fleet::FleetBeat;
use starling_protocol::state::{Entity, EntityKey};
use starling_protocol::{
    DeadReason, Envelope, EnvelopeId, IntentId, OutcomeStatus, Priority, RecordRef, TaskId,
};
use std::time::Duration;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // one at a time
pub enum Event {
    /// An envelope was read from the coordinator's inbox.
    Received {
        /// What was read.
        envelope: Envelope,
        /// Where it lies.
        at: RecordRef,
        /// W3C traceparent of the span that processes it: the parent of what follows from it.
        trace: String,
    },
    /// A record of the inbox is no envelope.
    Undecodable {
        /// Its partition.
        at_partition: i32,
        /// Its offset.
        at_offset: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// What is known of the fleet now.
    Fleet(FleetView),
    /// The broker refused an effect for good.
    EffectRefused {
        /// The envelope that cannot be sent.
        envelope_id: EnvelopeId,
        /// Its intent.
        intent_id: IntentId,
        /// Its task, if it is about one.
        task_id: Option<TaskId>,
        /// What the broker said.
        reason: String,
    },
    /// Time went by: timers may be due.
    Tick,
}

/// Something to do, in order.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // almost all are the large one
pub enum Effect {
    /// Publish, at least once.
    Send {
        /// Where to.
        to: Destination,
        /// What.
        envelope: Envelope,
        /// W3C traceparent of its cause.
        trace: String,
        /// Traceparents of its other causes, where several things had to come together.
        links: Vec<String>,
        /// How urgent its intent is.
        priority: Priority,
    },
    /// Give a record of the inbox, as it was read, to people.
    DeadLetter {
        /// Its partition.
        at_partition: i32,
        /// Its offset.
        at_offset: i64,
        /// Why, in a word.
        code: DeadReason,
        /// Why, in a sentence.
        reason: String,
    },
    /// Tell watchers. Best effort and not logged; at most one for an intent and step.
    Notify {
        /// A [`starling_protocol::Progress`].
        envelope: Envelope,
    },
}

/// Something that a step brought to its end, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// The plan of an intent is complete.
    Planned {
        /// Since the intent was accepted.
        took: Duration,
    },
    /// An intent has its outcome.
    Ended {
        /// How.
        status: OutcomeStatus,
        /// Since it was accepted; `None` if it never was.
        took: Option<Duration>,
    },
    /// A task is tried again.
    Retried,
}

/// Where an envelope goes. All but worker records are keyed by their intent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// The plan loop's inbox.
    Planner,
    /// The inbox of a worker pool.
    Worker {
        /// The pool; none is the default pool.
        pool: Option<String>,
        /// The partition that was chosen.
        partition: i32,
    },
    /// The outcomes.
    Outcomes,
    /// The broadcast of cancellations.
    Control,
    /// The inbox of coordinators: the partition that the envelope's id belongs to.
    Coordinator,
}

/// What the last beats of all processes say, as far as dispatch needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// Worker processes that are not leaving.
    pub workers: Vec<WorkerMember>,
    /// Coordinator partitions, of all processes, that have tasks waiting or outstanding.
    pub active_coordinators: i32,
}

/// One worker process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerMember {
    /// Unique to the process and its life.
    pub process: String,
    /// Its pool; none is the default pool.
    pub pool: Option<String>,
    /// Tasks that it can run at once.
    pub slots: i32,
    /// Partitions of its pool's inbox that it owns.
    pub partitions: Vec<i32>,
}

impl FleetView {
    /// The view that the latest beat of each living process gives.
    pub fn of_beats<'a>(beats: impl IntoIterator<Item = &'a FleetBeat>) -> Self {
        let mut view = Self::default();
        for beat in beats {
            match beat.role.as_str() {
                "worker" if !beat.leaving => view.workers.push(WorkerMember {
                    process: beat.process.clone(),
                    pool: (!beat.pool.is_empty()).then(|| beat.pool.clone()),
                    slots: beat.slots.max(0),
                    partitions: beat.partitions.clone(),
                }),
                "planner" => view.active_coordinators += beat.active.max(0),
                _ => {}
            }
        }
        view.workers.sort();
        view
    }
}

/// Entities that differ from those at the last call of [`super::Coordinator::take_changes`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New or changed, whole.
    pub changed: Vec<Entity>,
    /// Gone.
    pub deleted: Vec<EntityKey>,
}

/// How much a coordinator has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Intents that are worked on.
    pub live: usize,
    /// Intents that wait to be admitted.
    pub waiting: usize,
    /// Tasks with workers.
    pub outstanding: usize,
    /// Tasks that could be with workers.
    pub ready: usize,
    /// Intents that are only remembered: ended, or cancelled before they came.
    pub remembered: usize,
    /// Intents that may still come. An eighth of the memory is not counted: it is for those on their way.
    pub room: usize,
}
