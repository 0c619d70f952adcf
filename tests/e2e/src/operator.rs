//! What an operator does to topics and groups that the services' own bus cannot: a few requests of Kafka's protocol.

use crate::until;
use anyhow::{Context as _, Result, ensure};
use starling_bus::{Bus as _, KafkaBus, KafkaOptions, OutRecord, PartitionId, SendError, TopicSpec};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const DELETE_TOPICS: i16 = 20;
const DELETE_GROUPS: i16 = 42;
const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
const PATIENCE: Duration = Duration::from_secs(30);

/// Deletes a topic; returns when the broker says that it is gone.
///
/// # Errors
/// The broker does not answer, or refuses.
pub async fn delete_topic(broker: &str, topic: &str) -> Result<()> {
    let mut body = Vec::new();
    body.extend(1_i32.to_be_bytes()); // topics
    string(&mut body, topic);
    body.extend(20_000_i32.to_be_bytes()); // how long it may take, in ms
    let answer = ask(broker, DELETE_TOPICS, 1, &body).await?;
    // Throttle time, number of topics, name, error.
    accepted(&answer, 4 + 4 + 2 + topic.len()).with_context(|| format!("deleting {topic}"))
}

/// Changes a setting of a topic; returns when the broker goes by it.
///
/// # Errors
/// The broker does not answer, or refuses.
pub async fn configure_topic(broker: &str, topic: &str, setting: &str, value: &str) -> Result<()> {
    alter(broker, topic, setting, value).await?;
    in_force(broker).await
}

/// Waits until the broker goes by all settings that it has accepted. It does so in the order in which it accepted them, a
/// moment later: so by the one that is altered last, of a topic that nobody else knows.
async fn in_force(broker: &str) -> Result<()> {
    let bus = KafkaBus::new(KafkaOptions::new(broker))?;
    let name = format!("canary{:08x}", rand::random::<u32>());
    let spec = TopicSpec { name: name.clone(), partitions: 1, replication: 1, settings: BTreeMap::new() };
    bus.create_topics(&[spec]).await?;
    alter(broker, &name, "max.message.bytes", "100").await?;
    until("a setting of a topic is in force", Duration::from_secs(60), || async {
        // Nothing that can be compressed: the broker measures what arrives.
        let noise: Vec<u8> = (0..4096).map(|_| rand::random()).collect();
        let to = PartitionId::new(name.as_str(), 0);
        let record = OutRecord { to, key: None, headers: Vec::new(), payload: Some(noise.into()) };
        Ok(matches!(bus.send(record).await, Err(SendError::Refused { .. })))
    })
    .await?;
    delete_topic(broker, &name).await
}

async fn alter(broker: &str, topic: &str, setting: &str, value: &str) -> Result<()> {
    let mut body = Vec::new();
    body.extend(1_i32.to_be_bytes()); // resources
    body.push(2); // a topic
    string(&mut body, topic);
    body.extend(1_i32.to_be_bytes()); // settings
    string(&mut body, setting);
    body.push(0); // set it
    string(&mut body, value);
    body.push(0); // really
    let answer = ask(broker, INCREMENTAL_ALTER_CONFIGS, 0, &body).await?;
    // Throttle time, number of resources, error.
    accepted(&answer, 4 + 4).with_context(|| format!("{setting} of {topic}"))
}

/// Forgets what a group has committed, which must have no members.
///
/// # Errors
/// The broker does not answer, or refuses.
pub async fn forget_group(broker: &str, group: &str) -> Result<()> {
    let mut body = Vec::new();
    body.extend(1_i32.to_be_bytes()); // groups
    string(&mut body, group);
    let answer = ask(broker, DELETE_GROUPS, 0, &body).await?;
    // Throttle time, number of groups, name, error.
    accepted(&answer, 4 + 4 + 2 + group.len()).with_context(|| format!("forgetting {group}"))
}

/// Sends a request without flexible fields; gives the answer after its correlation.
async fn ask(broker: &str, api: i16, version: i16, body: &[u8]) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    request.extend(api.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1_i32.to_be_bytes()); // correlation
    string(&mut request, "starling-e2e");
    request.extend(body);
    let asked = async {
        let mut stream = TcpStream::connect(broker).await?;
        stream.write_all(&u32::try_from(request.len())?.to_be_bytes()).await?;
        stream.write_all(&request).await?;
        let length = usize::try_from(stream.read_u32().await?)?;
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        Ok::<_, anyhow::Error>(answer.split_off(4.min(length)))
    };
    timeout(PATIENCE, asked).await.with_context(|| format!("{broker} does not answer"))?
}

/// Kafka's error, which begins at that byte of an answer, is none.
fn accepted(answer: &[u8], at: usize) -> Result<()> {
    let error = answer.get(at..).and_then(|rest| rest.first_chunk::<2>());
    let error = i16::from_be_bytes(*error.context("an answer that is too short")?);
    ensure!(error == 0, "Kafka's error {error}");
    Ok(())
}

fn string(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as u16).to_be_bytes()); // names and values of settings are short
    body.extend(text.as_bytes());
}
