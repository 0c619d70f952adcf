//! `starling`

use clap::Parser as _;
use starling::{args::Cli, commands};
use starling_service::run_service;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A fifth of the processor time of a busy process went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Under the name of a service it is that service: the image has it once, with links, in place of four programs that
    // are much the same.
    let name = std::env::args_os().next().map(PathBuf::from);
    match name.as_deref().and_then(Path::file_name).and_then(OsStr::to_str) {
        Some("starling-planner") => return run_service("planner", starling_planner::serve),
        Some("starling-worker") => {
            return run_service("worker", starling_worker::serve);
        }
        Some("starling-critic") => return run_service("critic", starling_critic::serve),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // nothing is left to do if stderr is closed
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("starling: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(commands::run(cli)).unwrap_or_else(|error| {
        eprintln!("starling: {error}");
        error.code()
    });
    // Threads of clients whose broker is gone must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    code
}
