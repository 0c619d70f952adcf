//! What an endpoint does of the protocol, found out by asking it.

use crate::{JsonForm, Purpose};
use starling_protocol::CallReport;
use std::time::Duration;
use tokio::time::Instant;

/// How an endpoint is tried out.
#[derive(Clone, Copy, Debug)]
pub struct PreflightOptions {
    /// The model for this is asked.
    pub purpose: Purpose,
    /// Whether a model is asked for that nobody has. Once is enough for an endpoint, whatever models it has.
    pub unknown_name: bool,
    /// Longest time of one trial.
    pub trial_timeout: Duration,
    /// When all trials are over. What was not tried until then could not be told.
    pub deadline: Instant,
    /// Most tokens of one reply. A model that thinks aloud needs some hundreds before it says anything.
    pub max_tokens: u32,
}

/// Something of the protocol that is tried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A model that nobody has is refused, so that a mistake in a name would be noticed.
    UnknownName,
    /// JSON that is asked for in this form keeps to its schema.
    Json(JsonForm),
    /// A reply comes in pieces.
    Stream,
    /// A streamed reply ends with the number of its tokens.
    StreamCounts,
    /// Functions may be offered, and the model calls one.
    Tools,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The endpoint does it.
    Works,
    /// It takes the request, and does not do it.
    Ignored,
    /// It does not take the request.
    Refused,
    /// Nothing that came back says it: no reply, too late a one, one that was cut off.
    Unknown,
}

/// A trial, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// What was tried.
    pub feature: Feature,
    /// What came of it.
    pub verdict: Verdict,
    /// What was seen, in words, without secrets.
    pub seen: String,
}

/// All trials with one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Preflight {
    /// In the order in which they were made. JSON is tried in the form that the settings name, then in simpler ones for as
    /// long as none works.
    pub trials: Vec<Trial>,
    /// What they took together.
    pub report: CallReport,
}
