//! Models: the only door to them.
//!
//! One port, [`Model`], with any OpenAI-compatible HTTP endpoint ([`OpenAiModel`]) or the offline model
//! ([`OfflineModel`]) behind it, and [`CachedModel`] in front of it for who asks what was asked before. [`mock`] is an endpoint to test against.

mod allowance;
mod by_schema;
mod cache;
mod chain;
mod hedge;
pub mod json_text;
mod limiter;
pub mod mock;
mod offline;
mod openai;
mod port;
mod preflight;
mod prompt;

pub use cache::{
    CacheBounds, CacheCounts, CacheFigures, CacheFolderError, CacheOptions, CachedModel, DiskOptions, Source,
};
pub use chain::{Link, ModelChain};
pub use hedge::{Hedge, HedgedModel};
pub use limiter::{Answer, Ask, Hints, Leave, Limiter, NotSent, Quota};
pub use offline::{OfflineModel, OfflineOptions};
pub use openai::{Backoff, JsonForm, ModelNames, OpenAiModel, OpenAiOptions, OptionsError, Price};
pub use port::{
    ChatReply, ChatRequest, FailedAttempts, Format, JsonCheck, Message, Model, ModelChoice, ModelError,
    ModelErrorKind, ModelInfo, Purpose, Purposes, Reuse, Speaker, StreamEvent, TextStream,
};

pub use preflight::{Feature, Preflight, PreflightOptions, Trial, Verdict};

/// Tokens of so many characters, by rule of thumb: four a token, rounded up.
#[must_use]
pub fn estimated_tokens(chars: usize) -> i64 {
    i64::try_from(chars.div_ceil(4)).unwrap_or(i64::MAX)
}
