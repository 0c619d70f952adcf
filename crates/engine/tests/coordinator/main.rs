//! The coordinator through its public door.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod agents;
mod attempts;
mod budgets;
mod builders;
mod golden_log;
mod intake;
mod invariants;
mod plans;
mod random;
mod runs;
mod tasks;
mod tenants;
mod tenants_random;
mod tenants_world;
mod world;
