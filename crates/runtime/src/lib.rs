//! The runtime: the two processors, and what every process needs.
//!
//! A service gives handlers to a [`parallel::ParallelProcessor`]; the coordinator runs in a stateful
//! processor. A [`Node`] is what all services of a process share: the bus and what is built on it.

pub mod clock;
pub mod content;
pub mod control;
pub mod courier;
mod dead_letter;
pub mod fleet;
mod gather;
pub mod handler;
pub mod health;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod node;
pub mod outbox;
pub mod parallel;
pub mod process;
mod process_metrics;
pub mod registry;
pub mod router;
pub mod settings;
pub mod stateful;
pub mod telemetry;
pub mod topics;
pub mod wire;

pub use clock::Clock;
pub use content::{ContentError, ContentReader};
pub use handler::{EnvelopeHandler, HandleError, HandlerContext, RecordHandler};
pub use metrics::Metrics;
pub use node::{Node, NodeParts};
pub use outbox::{Emission, Outbox};
pub use registry::Schemas;
pub use router::Router;
pub use settings::Settings;
