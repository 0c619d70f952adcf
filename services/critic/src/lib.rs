//! The critic service: scores results.

mod handler;
mod service;
mod verdict;

pub use handler::{CriticHandler, CriticOptions};
pub use service::serve;
pub use verdict::{Reply, check_verdict, read_verdict, together};
