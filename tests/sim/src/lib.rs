//! A deterministic simulation of the whole swarm.
//!
//! The services as they are, each on a runtime of its own whose clock is moved by the simulation, on the memory bus, seen
//! through a network that delays, loses and repeats. One seed is one run, the same each time. A judge reads the topics
//! and knows what is promised.
//!
//! `starling-sim --help` tells how to run many seeds, one seed, or a shortened history.

// All of this is a test: what cannot be ends it.
#![allow(clippy::expect_used)]

mod bus;
mod dice;
mod history;
mod judge;
mod model;
mod network;
mod process;
pub mod scenario;
mod shrink;
mod world;

pub use judge::{Tally, Violation};
pub use scenario::Scenario;
pub use shrink::shrink;
pub use world::{Report, run, watch_panics};
