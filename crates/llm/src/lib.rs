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
mod spent;
mod tokens;
mod turns;

pub use cache::{
    CacheBounds, CacheCounts, CacheFigures, CacheFolderError, CacheOptions, CachedModel, DiskOptions, Source,
};
pub use chain::{Link, ModelChain};
pub use hedge::{Hedge, HedgedModel};
pub use limiter::{Answer, Ask, Hints, Leave, Limiter, NotSent, Quota};
pub use offline::{OfflineModel, OfflineOptions};
pub use openai::{
    Backoff, JsonForm, ModelNames, OpenAiModel, OpenAiOptions, OptionsError, Price, ReplayReasoning,
};
pub use port::{
    ChatReply, ChatRequest, FailedAttempts, Format, JsonCheck, Model, ModelChoice, ModelError,
    ModelErrorKind, ModelInfo, Purpose, Purposes, Reuse, StreamEvent, TextStream,
};
pub use preflight::{Feature, Preflight, PreflightOptions, Trial, Verdict};
pub use spent::stream_after;
pub use tokens::{Capacity, Encoding, estimated_tokens};
pub use turns::{Deeds, Message, Speaker, Tool, ToolCall};
