//! The command line of Starling, as a library: the tests use its client.

pub mod args;
pub mod audit;
pub mod batch;
pub mod bench;
pub mod client;
pub mod commands;
pub mod dlq;
pub mod doctor;
pub mod exit;
pub mod inputs;
pub mod installation;
pub mod instant;
pub mod mock_llm;
mod planned;
pub mod report;
pub mod scan;
pub mod session;
pub mod store;
pub mod swarm;
pub mod top;
pub mod view;
