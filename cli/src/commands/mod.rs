//! The commands, one file each.

mod agents;
mod audit;
mod batch;
mod cancel;
mod dev;
mod dlq;
mod doctor;
mod dry_run;
mod follow;
mod health;
mod mock_llm;
mod plan;
mod playbooks;
mod result;
mod run;
mod submit;
mod top;
mod topics;
mod watch;

use crate::{
    args::{Cli, Command, PlanFormat, TopicsCommand},
    bench,
    exit::CliError,
    session::{Log, Session},
};
use std::process::ExitCode;
pub(crate) use submit::submission;

/// Does what the command line says.
///
/// # Errors
/// See [`CliError`].
pub async fn run(cli: Cli) -> Result<ExitCode, CliError> {
    if let Command::MockLlm(args) = &cli.command {
        // It belongs to no swarm, and needs no settings of one.
        return mock_llm::mock_llm(args).await;
    }
    let log = match &cli.command {
        Command::Top(args) if top::draws(*args) => Log::Silent,
        _ => Log::AsSet,
    };
    let mut session = Session::open(&cli.settings, log)?;
    match &cli.command {
        // A running swarm has models of its own.
        Command::Run(args) if args.dry_run || !session.brokers_given() => {
            session.choose_models(args.json).await?;
        }
        Command::Plan(args) => session.choose_models(args.format == PlanFormat::Json).await?,
        Command::Batch(args) if !session.brokers_given() && !args.rehearsal.rehearse => {
            session.choose_models(args.json).await?;
        }
        Command::Dev(_) => session.choose_models(false).await?,
        _ => {}
    }
    match cli.command {
        Command::Run(args) if args.dry_run => dry_run::dry_run(&session, args).await,
        Command::Run(args) => run::run(&session, args).await,
        Command::Plan(args) => plan::plan(&session, args).await,
        Command::Playbooks(args) => playbooks::playbooks(&session, args).await,
        Command::Batch(args) => batch::batch(&session, args).await,
        Command::Submit(args) => submit::submit(&session, args).await,
        Command::Watch(args) => watch::watch(&session, args).await,
        Command::Result(args) => result::result(&session, args).await,
        Command::Cancel(args) => cancel::cancel(&session, args).await,
        Command::Topics { command: TopicsCommand::Create } => topics::create(&session).await,
        Command::Health(args) => health::health(&cli.settings, args).await,
        Command::Dlq { command } => dlq::dlq(&session, command).await,
        Command::Audit(args) => audit::audit(&session, args).await,
        Command::Doctor(args) => doctor::doctor(&session, args).await,
        Command::Top(args) => top::top(&session, args).await,
        Command::Agents(args) => agents::agents(&session, &args),
        Command::Dev(args) => dev::dev(&session, args).await,
        Command::MockLlm(args) => mock_llm::mock_llm(&args).await,
        Command::Bench { command } => bench::run(&session, command).await,
    }
}
