//! Every decision of Starling, as plain functions and state machines: no async, no clock, no randomness,
//! no I/O. Time and random numbers are parameters.

pub mod breaker;
pub mod conversation;
pub mod coordinator;
pub mod dead_letters;
pub mod intake;
pub mod offsets;
pub mod rate;
pub mod retries;
pub mod statelog;
