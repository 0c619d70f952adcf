//! `starling-critic`: scores results.

use std::process::ExitCode;

fn main() -> ExitCode {
    starling_service::run_service("critic", starling_critic::serve)
}
