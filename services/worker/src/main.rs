//! `starling-worker`: does tasks.

use std::process::ExitCode;

/// A fifth of the processor time of a busy process went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    starling_service::run_service("worker", starling_worker::serve)
}
