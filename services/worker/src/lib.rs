//! The worker service: does tasks.

mod failures;
mod handler;
mod reading;
mod service;

pub use handler::{OUTPUT_MISFIT, OUTPUT_TOO_LARGE, PARTS_TOO_LONG, UNKNOWN_AGENT, WorkHandler, WorkOptions};
pub use service::serve;
