//! A swarm of real processes for tests: services as users run them, a real broker, a model that counts.

mod audit;
mod logs;
mod model;
mod process;
mod secure;
mod spans;
mod swarm;
mod versions;

pub use logs::Logs;
pub use model::{Called, Calls, Plan, Scripted};
pub use process::Proc;
pub use secure::{Proof, SecureBroker};
pub use spans::{Span, SpanSink, faults_of_tree};
pub use swarm::{Swarm, SwarmOptions, brokers, eventually, http_address};
pub use versions::{Member, Version, Versions};
