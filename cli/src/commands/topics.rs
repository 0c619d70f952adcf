//! `starling topics`: the topics of an installation.

use crate::{exit::CliError, session::Session};
use starling_runtime::{process::Traffic, topics::topic_specs};
use std::process::ExitCode;

pub(super) async fn create(session: &Session) -> Result<ExitCode, CliError> {
    let bus = session.kafka(Traffic::OneByOne)?;
    let specs = topic_specs(&session.settings.topics);
    let created = bus.create_topics(&specs).await?;
    for spec in &specs {
        let what = if created.contains(&spec.name) { "created" } else { "exists" };
        println!("{what:8} {} ({} partitions)", spec.name, spec.partitions);
    }
    Ok(ExitCode::SUCCESS)
}
