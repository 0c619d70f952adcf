//! `starling dev`: all services in one process, against a real broker.

use crate::{args::DevArgs, exit::CliError, report, session::Session, swarm::Swarm};
use starling_runtime::{process::Traffic, topics::topic_specs};
use std::process::ExitCode;

pub(super) async fn dev(session: &Session, args: DevArgs) -> Result<ExitCode, CliError> {
    let bus = session.kafka(Traffic::FanOut)?;
    if !args.no_topics {
        bus.create_topics(&topic_specs(&session.settings.topics)).await?;
    }
    let swarm = Swarm::on(session, bus).await?;
    if swarm.is_offline() {
        eprintln!("{}\n", report::offline_notice(&session.settings.model).await);
    }
    eprintln!(
        "planner, worker and critic run against {}; from another terminal: starling run --brokers {} \"...\"",
        session.settings.kafka.brokers, session.settings.kafka.brokers
    );
    swarm.run_until_interrupted().await?;
    session.flush_telemetry().await;
    Ok(ExitCode::SUCCESS)
}
