//! A reply that is kept.

use crate::{ChatReply, Deeds};
use starling_protocol::CallReport;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// What it takes to keep a reply, beside its texts: bytes, by rule of thumb.
const OVERHEAD: u64 = 256;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) text: Arc<str>,
    /// The model that gave it.
    pub(super) model: String,
    /// What its question had.
    pub(super) prompt_tokens: i64,
    /// In milliseconds since 1970.
    pub(super) stored_at: u64,
}

impl Entry {
    pub(super) fn new(text: &str, report: &CallReport, now: u64) -> Self {
        Self {
            text: text.into(),
            model: report.model.clone(),
            prompt_tokens: report.usage.prompt_tokens,
            stored_at: now,
        }
    }

    /// Whether it may still be given.
    pub(super) fn is_fresh(&self, now: u64, ttl: Duration) -> bool {
        // One from the future was written by a clock that is wrong by more than it may live, or ours is.
        u128::from(now.abs_diff(self.stored_at)) < ttl.as_millis()
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.text.len() + self.model.len()) as u64 + OVERHEAD
    }

    /// What it takes to give it to somebody who asked at `asked`: time, and nothing else.
    pub(super) fn report(&self, asked: Instant) -> CallReport {
        CallReport {
            model: self.model.clone(),
            latency_ms: i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX),
            cached_calls: 1,
            cached_prompt_tokens: self.prompt_tokens,
            ..CallReport::default()
        }
    }

    pub(super) fn reply(&self, asked: Instant) -> ChatReply {
        ChatReply { text: self.text.to_string(), deeds: Deeds::default(), report: self.report(asked) }
    }
}

/// Wall-clock time that follows the runtime's clock from its start on, so that setting a machine's clock makes nothing
/// older or younger, and a test can let time pass.
pub(super) struct Calendar {
    began: Instant,
    began_at: Duration,
}

impl Calendar {
    pub(super) fn new() -> Self {
        // A clock that stands before 1970 makes all that is kept on disk too old or too new.
        let began_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_at }
    }

    /// Milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        u64::try_from((self.began_at + self.began.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }
}
