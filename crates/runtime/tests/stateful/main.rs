//! The stateful processor on the memory bus, with a toy machine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/false_registry.rs"]
mod false_registry;

mod decisions;
mod effects;
mod faults;
mod on_kafka;
mod registry;
mod takeovers;
mod world;
