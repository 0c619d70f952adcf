//! The schema registry: a real one, behind a gate that can be shut, and a false one for what no real one says.
//!
//! The real one is named by `STARLING_TEST_REGISTRY`; `make test` brings it up. With
//! `STARLING_TEST_MEMORY_ONLY=1` what needs it is left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/false_registry.rs"]
mod false_registry;
#[path = "../support/mod.rs"]
mod support;

mod contract;
mod processors;
mod refusals;
mod tls;
mod world;
