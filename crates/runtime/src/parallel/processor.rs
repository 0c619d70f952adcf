//! The processor as a service starts it.

use super::{
    config::ParallelConfig,
    run::{Runner, Work},
    state::{Loop, Phase},
};
use crate::{
    handler::{EnvelopeHandler, RecordHandler},
    metrics::TopicMetrics,
    node::Node,
    router::RouteError,
};
use starling_bus::{BusError, Deliver, GroupConfig, PartitionId};
use starling_engine::dead_letters::{Burials, Excess};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};
use tokio::{sync::mpsc::unbounded_channel, time::Instant};
use tokio_util::sync::CancellationToken;

/// Runs the handlers of one inbox.
pub struct ParallelProcessor {
    config: ParallelConfig,
    node: Node,
    work: Work,
}

/// Why a processor ended, other than by being told to.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProcessorError {
    /// The topic is not part of this installation.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The bus does not work, for good.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A handler says that this process cannot go on.
    #[error("a handler gave up: {0}")]
    Handler(String),
    /// So much becomes dead letters that something is broken.
    #[error("{}", too_many(topic, role, excess))]
    TooManyDeadLetters {
        /// The topic.
        topic: Arc<str>,
        /// Who reads it.
        role: String,
        /// How many, and why.
        excess: Excess,
    },
    /// What is to be read next is not there any more.
    #[error(
        "offset {offset} of {at} is not there any more: records were deleted before they were read. \
         Nothing is skipped in silence; reset the group's offset by hand to go on"
    )]
    OutOfRange {
        /// Which partition.
        at: PartitionId,
        /// The offset.
        offset: i64,
    },
}

fn too_many(topic: &str, role: &str, excess: &Excess) -> String {
    let Excess { dead, of, share, reasons } = excess;
    format!(
        "{dead} of the last {of} records of {topic} are dead letters, a larger share than the {share} of \
         processor.dead_letters.share.{role}. The last reasons: {}. The others are left in the topic: none of them is \
         buried, and what is not done is not committed. `starling dlq list --topic {topic}` shows the dead letters. Mend \
         the cause and start again; or, if they may all go, start with a share of 1.0",
        reasons.join("; ")
    )
}

impl ParallelProcessor {
    /// A processor for an inbox of envelopes.
    pub fn envelopes(config: ParallelConfig, node: Node, handler: Arc<dyn EnvelopeHandler>) -> Self {
        Self { config, node, work: Work::Envelopes(handler) }
    }

    /// A processor for an inbox that takes more than envelopes.
    pub fn records(config: ParallelConfig, node: Node, handler: Arc<dyn RecordHandler>) -> Self {
        Self { config, node, work: Work::Records(handler) }
    }

    /// Joins the group and handles records until `shutdown`; then finishes what runs, within the grace,
    /// commits and leaves.
    ///
    /// # Errors
    /// See [`ProcessorError`].
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ProcessorError> {
        let Self { config, node, work } = self;
        let topic = node.router.name(&config.topic)?;
        let name = format!("{} of {topic}", config.role);
        let pulse = node.health.pulse(&name);
        let assigned = node.health.gate(&format!("partitions of {topic}"));
        let announcer = node.fleet.announce(
            &format!("{}/{}", node.process, config.group),
            &config.role,
            config.pool.as_deref(),
            config.slots,
        );
        // What was cancelled before this process began must not be run by it.
        tokio::select! {
            biased;
            () = node.control.replayed() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        let consumer = node
            .bus
            .join(GroupConfig {
                group: config.group.clone(),
                topics: vec![topic.to_string()],
                deliver: Deliver::Records,
                instance: config.instance.clone(),
                session_timeout: config.session_timeout,
                revoke_timeout: config.revoke_timeout,
                queue_records: config.queue_records,
            })
            .await?;
        let metrics = TopicMetrics::of(&node.metrics, &topic);
        let health = node.health.clone();
        let (reports, reported) = unbounded_channel();
        let state = Loop {
            runner: Arc::new(Runner {
                node,
                burials: Mutex::new(Burials::new(config.burials)),
                config: config.clone(),
                work,
                metrics: metrics.clone(),
            }),
            config,
            topic,
            consumer: consumer.clone(),
            metrics,
            announcer,
            pulse,
            assigned,
            partitions: BTreeMap::new(),
            ready: BTreeSet::new(),
            delivered: 0,
            delayed: BTreeMap::new(),
            serial: 0,
            busy: 0,
            in_hand: 0,
            reports,
            touched: BTreeSet::new(),
            committing: None,
            next_commit: Instant::now(),
            departures: Vec::new(),
            phase: Phase::Running,
            failure: None,
        };
        let ended = state.run(consumer.as_ref(), reported, shutdown).await;
        health.ended(&name);
        ended
    }
}
