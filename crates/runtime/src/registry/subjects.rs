//! What this version writes, under its subjects: one for each topic.

use super::{
    RegistryError,
    client::{Client, Trouble},
};
use crate::settings::RegistryMode;
use starling_protocol::{
    Topic, TopicNames,
    codec::{RecordKind, schema_json},
};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::{Instant, sleep};

/// Time between two looks for a registry at the start.
const KNOCK: Duration = Duration::from_millis(500);

/// The topics whose values are envelopes, so that others may read and write them by a registry. The state
/// log and the fleet's beats are nobody else's business, and dead letters are what they were.
#[must_use]
pub fn enveloped_topics(names: &TopicNames, pools: &[String]) -> Vec<String> {
    let private = |topic: &Topic| matches!(topic, Topic::State | Topic::Fleet | Topic::Dlq);
    let topics = Topic::all_with(pools).into_iter().filter(|topic| !private(topic));
    topics.map(|topic| names.name(&topic)).collect()
}

/// The subject of a topic's values.
#[must_use]
pub fn subject_of(topic: &str) -> String {
    format!("{topic}-value")
}

/// Why there are no ids yet.
enum Setback {
    Passing(String),
    Final(RegistryError),
}

/// The ids of the envelope's schema under the subjects of these topics. A registry that does not answer is
/// asked again for as long as `within`.
pub(super) async fn ids(
    client: &Client,
    mode: RegistryMode,
    topics: &[String],
    within: Duration,
) -> Result<BTreeSet<i32>, RegistryError> {
    let schema = schema_json(RecordKind::Envelope).to_string();
    let subjects: Vec<String> = topics.iter().map(|topic| subject_of(topic)).collect();
    let give_up = Instant::now() + within;
    loop {
        match attempt(client, mode, &subjects, &schema).await {
            Ok(ids) => return Ok(ids),
            Err(Setback::Passing(reason)) if Instant::now() + KNOCK < give_up => {
                tracing::debug!(reason, "the schema registry does not answer yet");
                sleep(KNOCK).await;
            }
            Err(Setback::Passing(reason)) => {
                return Err(RegistryError::Unreachable { url: client.shown(), reason });
            }
            Err(Setback::Final(error)) => return Err(error),
        }
    }
}

/// Looks all up, and registers what is missing once it is clear that nothing speaks against any of it.
async fn attempt(
    client: &Client,
    mode: RegistryMode,
    subjects: &[String],
    schema: &str,
) -> Result<BTreeSet<i32>, Setback> {
    let url = client.shown();
    let setback = |subject: &str, trouble| match trouble {
        Trouble::Passing(reason) => Setback::Passing(reason),
        Trouble::Conflict(said) => Setback::Final(RegistryError::Incompatible {
            url: url.clone(),
            refused: vec![(subject.to_owned(), said)],
        }),
        Trouble::Refused(said) => {
            Setback::Final(RegistryError::Refused { url: url.clone(), subject: subject.to_owned(), said })
        }
        Trouble::Missing => Setback::Final(RegistryError::Refused {
            url: url.clone(),
            subject: subject.to_owned(),
            said: "it does not take new subjects".to_owned(),
        }),
    };
    let mut ids = BTreeSet::new();
    let mut missing = Vec::new();
    for subject in subjects {
        match client.lookup(subject, schema).await {
            Ok(id) => _ = ids.insert(id),
            Err(Trouble::Missing) => missing.push(subject.clone()),
            Err(trouble) => return Err(setback(subject, trouble)),
        }
    }
    if missing.is_empty() {
        return Ok(ids);
    }
    if mode == RegistryMode::Lookup {
        return Err(Setback::Final(RegistryError::Missing { url, subjects: missing }));
    }
    let mut refused = Vec::new();
    for subject in &missing {
        let objections = client.objections(subject, schema).await;
        let objections = objections.map_err(|trouble| setback(subject, trouble))?;
        refused.extend(objections.map(|said| (subject.clone(), said)));
    }
    if !refused.is_empty() {
        return Err(Setback::Final(RegistryError::Incompatible { url, refused }));
    }
    for subject in &missing {
        let id = client.register(subject, schema).await.map_err(|trouble| setback(subject, trouble))?;
        tracing::info!(subject, id, "the schema of the envelope is registered");
        ids.insert(id);
    }
    Ok(ids)
}
