//! `starling topics`: the topics of an installation.

use crate::{exit::CliError, session::Session};
use starling_protocol::TopicNames;
use starling_runtime::{
    Schemas, Settings, limits,
    process::Traffic,
    registry::{enveloped_topics, subject_of},
    settings::RegistryMode,
    topics::topic_specs,
};
use std::process::ExitCode;

pub(super) async fn create(session: &Session) -> Result<ExitCode, CliError> {
    let bus = session.kafka(Traffic::OneByOne)?;
    let specs = topic_specs(&session.settings.topics);
    let created = bus.create_topics(&specs).await?;
    for spec in &specs {
        let what = if created.contains(&spec.name) { "created" } else { "exists" };
        println!("{what:8} {} ({} partitions)", spec.name, spec.partitions);
    }
    let Settings { registry, topics, .. } = &*session.settings;
    if registry.mode == RegistryMode::Register {
        // So that services may run in mode "lookup", without the right to register.
        let topics = enveloped_topics(&TopicNames::new(topics.prefix.as_str()), &topics.pools);
        if Schemas::prepare(registry, &topics).await? {
            topics.iter().for_each(|topic| println!("schema   {}", subject_of(topic)));
        }
    }
    // Those that were there before may be so that no service starts on them, or the broker's defaults for what is new.
    let checked = limits::check(&session.settings, bus.inspector().as_ref()).await;
    checked.map_err(|refused| CliError::Failed(refused.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
