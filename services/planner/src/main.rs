//! `starling-planner`: takes intents, makes plans, coordinates.

use std::process::ExitCode;

fn main() -> ExitCode {
    starling_service::run_service("planner", starling_planner::serve)
}
