//! The stateful processor on the memory bus, with a toy machine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod decisions;
mod effects;
mod faults;
mod on_kafka;
mod takeovers;
mod world;
