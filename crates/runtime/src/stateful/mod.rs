//! The stateful processor: one serial state machine for each partition of the coordinator's inbox. Every
//! decision is made exactly once, every effect is performed at least once with the same bytes.
//!
//! Each partition lives in a task of its own and goes round in this circle:
//!
//! ```text
//! assigned ─▶ append EpochStart ─▶ read the state log up to it ─▶ perform undone effects again ─┐
//!    ▲                                                                                          ▼
//!    └── back off ◀── anything uncertain, or fenced ◀── step inputs ─▶ append ─▶ confirmed ─▶ perform
//! ```
//!
//! Whether an append counts is judged by [`starling_engine::statelog`], never by what the group says.

mod collector;
mod committer;
mod encode;
mod failure;
mod feed;
mod live;
mod machine;
mod options;
mod partition;
mod performer;
mod processor;
mod report;
mod stepper;
mod takeover;

pub use machine::Machine;
pub use options::StatefulOptions;
pub use processor::{StatefulError, StatefulParts, StatefulProcessor};
pub use report::{PartitionPhase, PartitionStatus, StatefulCounters, StatefulReport};
