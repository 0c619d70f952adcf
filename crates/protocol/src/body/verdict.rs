//! A critic's judgement.

use super::task::CallReport;
use crate::{RecordRef, RunId, TaskId};
use serde::{Deserialize, Serialize};

/// How good a result is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Echo of the result.
    pub task_id: TaskId,
    /// Echo of the result.
    pub run: RunId,
    /// Echo of the result.
    pub attempt: i32,
    /// Echo of the result.
    pub step: i32,
    /// The judgement.
    pub judgement: Judgement,
    /// Where the result lies.
    pub result: RecordRef,
    /// What the worker's model calls took, echoed.
    pub work: CallReport,
    /// Which process did the work, echoed.
    pub worker: String,
    /// What the critic's model calls took.
    pub report: CallReport,
}

/// Only a real score can reject a result: a judge that is down or unreadable is never a bad score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Judgement {
    /// The critic scored the result.
    Scored(Scored),
    /// The critic's reply could not be read.
    Unparseable(Unparseable),
    /// The critic could not be asked.
    Unavailable(Unavailable),
}

/// A score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// 0 (useless) to 1 (perfect).
    pub score: f64,
    /// What to do better.
    pub feedback: String,
}

/// A reply that is no judgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unparseable {
    /// The beginning of the reply.
    pub excerpt: String,
}

/// No reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unavailable {
    /// Why.
    pub reason: String,
}
