//! The services as the separate processes that users run, on a real broker, with a model that counts its
//! calls and can hold them open.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod audit;
mod batch;
mod cancel;
mod commands;
mod crash;
mod dead_letters;
mod decisions;
mod embedded;
mod fanout;
mod forms;
mod generations;
mod limits;
mod memory;
mod observability;
mod operator;
mod pools;
mod quality;
mod rates;
mod refused;
mod registry;
mod scan;
mod secure;
mod shutdown;
mod starts;
mod takeover;
mod traces;
mod upgrade;

use std::time::Duration;

/// How long what takes no time on an idle machine may take on a busy one.
const SOON: Duration = Duration::from_secs(40);

/// How often the tests that kill processes do so: `STARLING_E2E_REPEAT`, else twice.
fn repetitions() -> usize {
    std::env::var("STARLING_E2E_REPEAT").ok().and_then(|times| times.parse().ok()).unwrap_or(2)
}
