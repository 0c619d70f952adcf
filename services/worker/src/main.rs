//! `starling-worker`: does tasks.

use std::process::ExitCode;

fn main() -> ExitCode {
    starling_service::run_service("worker", |node, parts| starling_worker::serve(node, parts, None))
}
