//! A swarm of real processes for tests: services as users run them, a real broker, a model that counts.

mod audit;
mod broker;
mod logs;
mod model;
mod operator;
mod owners;
mod process;
mod proxy;
mod secure;
mod spans;
mod swarm;
mod unfinished;
mod versions;
mod watchdog;

pub use broker::OwnBroker;
pub use logs::Logs;
pub use model::{Called, Calls, Plan, Scripted};
pub use operator::{configure_topic, delete_topic, forget_group};
pub use owners::Owners;
pub use process::Proc;
pub use proxy::{Api, Frames, Hold, Proxy, Way};
pub use secure::{Proof, SecureBroker};
pub use spans::{Span, SpanSink, faults_of_tree};
pub use swarm::{Swarm, SwarmOptions, brokers, eventually, http_address, until};
pub use versions::{Member, Version, Versions};
