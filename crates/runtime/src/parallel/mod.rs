//! The parallel processor: many records of a partition in flight, each done when everything that follows
//! from it is acknowledged; at least once.
//!
//! One loop owns all state; handlers run on tasks of their own and report back. The loop never waits for
//! a handler, so the group's events are served whatever handlers do.

mod admission;
mod burial;
mod commits;
mod config;
mod departures;
mod group;
mod partition;
mod processor;
mod reports;
mod run;
mod state;

pub use admission::Admission;
pub use config::ParallelConfig;
pub use processor::{ParallelProcessor, ProcessorError};
