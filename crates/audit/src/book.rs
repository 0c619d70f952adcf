//! Everything that was read of one intent.

use crate::Place;
use crate::record::Print;
use crate::said::{Said, Stamp};
use starling_protocol::state::Entity;
use starling_protocol::{OutcomeStatus, RecordRef, RunId, TaskId, Timestamp, Topic};
use std::collections::BTreeMap;

/// A record of an intent.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) place: Place,
    /// When it was written.
    pub(crate) at: Timestamp,
    pub(crate) stamp: Stamp,
    pub(crate) said: Said,
    pub(crate) print: Print,
    /// Of its value, as a [`RecordRef`] has it; empty where it has none and does not say what it was.
    pub(crate) digest: String,
    pub(crate) references: Vec<RecordRef>,
    /// Of a dead letter: the record that it was.
    pub(crate) origin: Option<Place>,
    /// Somebody has sent it again from the dead letters.
    pub(crate) replayed: bool,
}

/// An effect of a decision that counts.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// Partition of the state log.
    pub(crate) number: i32,
    /// Offset of the decision there.
    pub(crate) state: i64,
    pub(crate) seq: i64,
    pub(crate) now: i64,
    pub(crate) topic: Topic,
    pub(crate) partition: i32,
    pub(crate) stamp: Stamp,
    pub(crate) said: Said,
    pub(crate) print: Print,
    pub(crate) digest: String,
    pub(crate) origin: Option<Place>,
}

/// An effect of a decision that does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undecided {
    pub(crate) print: Print,
    /// Offset of the decision.
    pub(crate) state: i64,
}

/// What the state log says of an intent.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateOf {
    /// When it was taken on: seq and deadline.
    pub(crate) accepted: Option<(i64, Timestamp)>,
    /// The decision that removed it.
    pub(crate) removed: Option<i64>,
    /// How it ended, with the decision; a refused outcome ends it again.
    pub(crate) ended: Vec<(i64, OutcomeStatus)>,
    /// When it ended, by the coordinator's time.
    pub(crate) ended_at: Option<i64>,
    /// It was cancelled before it came.
    pub(crate) cancelled_ahead: bool,
    /// The plan attempt from this decision on.
    pub(crate) plan_attempts: Vec<(i64, i32)>,
    pub(crate) in_force: Vec<RunId>,
    pub(crate) abandoned: BTreeMap<RunId, i64>,
    pub(crate) tasks: BTreeMap<TaskId, Vec<TaskAt>>,
    /// Some of it comes from a snapshot with which the log begins.
    pub(crate) from_base: bool,
}

/// A task from one decision on.
#[derive(Clone, Debug)]
pub(crate) struct TaskAt {
    pub(crate) seq: i64,
    pub(crate) attempt: i32,
    pub(crate) failure: Option<String>,
}

impl StateOf {
    pub(crate) fn changed(&mut self, seq: i64, now: i64, entity: &Entity) {
        match entity {
            Entity::Intent(intent) => {
                self.accepted.get_or_insert((seq, intent.deadline));
            }
            Entity::Run(run) => {
                if self.plan_attempts.last().is_none_or(|(_, attempt)| *attempt != run.plan_attempt) {
                    self.plan_attempts.push((seq, run.plan_attempt));
                }
                if let Some(run) = &run.run
                    && !self.in_force.contains(run)
                {
                    self.in_force.push(run.clone());
                }
                for run in &run.abandoned {
                    self.abandoned.entry(run.clone()).or_insert(seq);
                }
            }
            Entity::Task(task) => self.tasks.entry(task.task_id.clone()).or_default().push(TaskAt {
                seq,
                attempt: task.attempt,
                failure: task.failure.as_ref().map(|failure| failure.code.clone()),
            }),
            Entity::Ended(ended) => {
                self.ended.push((seq, ended.status));
                self.ended_at = Some(now);
            }
            Entity::Cancelled(_) => self.cancelled_ahead = true,
            // They have addresses of their own, which are no intents.
            Entity::Purse(_) | Entity::Bank(_) => {}
        }
    }

    pub(crate) fn gone(&mut self, seq: i64) {
        self.removed.get_or_insert(seq);
    }

    /// Whether it is being worked on, as far as the log says.
    pub(crate) fn is_live(&self) -> bool {
        self.accepted.is_some() && self.removed.is_none() && self.ended.is_empty()
    }

    /// The decision that ended it.
    pub(crate) fn end(&self) -> Option<i64> {
        self.ended.first().map(|(seq, _)| *seq)
    }

    /// The attempt of a task before the decision of `seq`.
    pub(crate) fn attempt_before(&self, task: &TaskId, seq: i64) -> Option<i32> {
        self.tasks.get(task)?.iter().rev().find(|at| at.seq < seq).map(|at| at.attempt)
    }
}

/// Everything that was read of one intent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    /// In the order in which they were read: that of their offsets within a partition.
    pub(crate) facts: Vec<Fact>,
    pub(crate) decided: Vec<Decided>,
    pub(crate) undecided: Vec<Undecided>,
    pub(crate) state: StateOf,
    pub(crate) progress: usize,
    /// Records beyond the limit, which are not in here.
    pub(crate) left_out: usize,
}

impl Book {
    /// Notes an effect that was decided, if there is room.
    pub(crate) fn decide(&mut self, decided: Decided, room: usize) {
        if self.facts.len() + self.decided.len() < room {
            self.decided.push(decided);
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn of<'b>(&'b self, topic: &'b Topic) -> impl Iterator<Item = &'b Fact> {
        self.facts.iter().filter(move |fact| fact.place.topic == *topic)
    }
}
