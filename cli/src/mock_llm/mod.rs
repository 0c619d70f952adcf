//! `starling mock-llm`: an endpoint that misbehaves as it is told, to rehearse with.

mod args;
mod summary;

pub use args::MockLlmArgs;
pub(crate) use args::{latency, positive};
pub use summary::summary;
