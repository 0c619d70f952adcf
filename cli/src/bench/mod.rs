//! Benches: figures of the swarm on this machine. Compare ratios within one run; machines are noisy.

mod bare;
mod decision;
mod depth;
mod dispatches;
mod fanout;
mod held;
mod hop;
mod measure;
mod mock_llm;
mod probe;
mod scene;
mod stage;
mod takeover;

use crate::{args::BenchCommand, exit::CliError, session::Session};
use std::process::ExitCode;

/// Runs a bench and prints its figures.
///
/// # Errors
/// It cannot run to its end.
pub async fn run(session: &Session, command: BenchCommand) -> Result<ExitCode, CliError> {
    let (figures, json) = match command {
        BenchCommand::Fanout(args) => (fanout::run(session, &args).await?, args.swarm.json),
        BenchCommand::Depth(args) => (depth::run(session, &args).await?, args.swarm.json),
        BenchCommand::Hop(args) => (hop::run(session, &args).await?, args.json),
        BenchCommand::Takeover(args) => (takeover::run(session, &args).await?, args.json),
        BenchCommand::MockLlm(args) => (mock_llm::run(&args).await?, args.json),
        BenchCommand::Decision(args) => (decision::run(session, &args).await?, args.json),
    };
    if json {
        println!("{}", figures.json());
    } else {
        println!("{}", figures.text());
    }
    Ok(ExitCode::SUCCESS)
}
