//! Benches: figures of the swarm on this machine. Compare ratios within one run; machines are noisy.

mod bare;
mod batch;
mod decision;
mod depth;
mod dispatches;
mod fanout;
mod held;
mod hop;
mod interactive;
mod measure;
mod mock_llm;
mod model_call;
mod probe;
mod provider;
mod scaling;
mod scene;
mod stage;
mod takeover;

pub(crate) use measure::cpu_time;

use crate::{args::BenchCommand, exit::CliError, session::Session};
use std::process::ExitCode;

/// Runs a bench and prints its figures.
///
/// # Errors
/// It cannot run to its end.
pub async fn run(session: &Session, command: BenchCommand) -> Result<ExitCode, CliError> {
    let (figures, json) = match command {
        BenchCommand::Scaling(args) => {
            let rows = scaling::run(session, &args).await?;
            let shown = if args.json { scaling::json(&rows).to_string() } else { scaling::text(&rows) };
            println!("{shown}");
            return Ok(ExitCode::SUCCESS);
        }
        BenchCommand::Fanout(args) => (fanout::run(session, &args).await?, args.swarm.json),
        BenchCommand::Batch(args) => (batch::run(session, &args).await?, args.swarm.json),
        BenchCommand::Depth(args) => (depth::run(session, &args).await?, args.swarm.json),
        BenchCommand::Hop(args) => (hop::run(session, &args).await?, args.json),
        BenchCommand::Interactive(args) => (interactive::run(session, &args).await?, args.swarm.json),
        BenchCommand::Takeover(args) => (takeover::run(session, &args).await?, args.json),
        BenchCommand::MockLlm(args) => (mock_llm::run(&args).await?, args.json),
        BenchCommand::Provider(args) => (provider::run(session, &args).await?, args.swarm.json),
        BenchCommand::ModelCall(args) => (model_call::run(session, &args).await?, args.json),
        BenchCommand::Decision(args) => (decision::run(session, &args).await?, args.json),
    };
    if json {
        println!("{}", figures.json());
    } else {
        println!("{}", figures.text());
    }
    Ok(ExitCode::SUCCESS)
}
