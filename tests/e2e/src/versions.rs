//! Services of different versions side by side: what a version writes is its own, and so is what it can read.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use starling_bus::{Bus, KafkaBus, MemoryBus, MemoryOptions};
use starling_protocol::{
    Codec,
    codec::{RecordKind, schema_json},
};
use starling_runtime::{
    Clock, Node, NodeParts, Random, Settings, process::Traffic, process::kafka_options, settings::Sources,
    telemetry::Spans, topics::topic_specs,
};
use starling_service::Parts;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a service may take until it is ready.
const READY: Duration = Duration::from_secs(60);

/// What a version can read and writes. The version after the present one is the present one with a codec that was
/// made from changed schemas: fields were added with defaults, to the envelope, to bodies, to the state log, to beats.
/// What it writes holds them, which the present version does not know; what the present one wrote it reads by filling
/// the defaults in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// As it is.
    Present,
    /// The one after it, told to write as the present one does.
    NextAsPresent,
    /// The one after it.
    Next,
}

impl Version {
    /// Its codec.
    ///
    /// # Errors
    /// The changed schemas cannot be read as the present ones.
    pub fn codec(self) -> Result<Codec> {
        let next: Vec<String> = RecordKind::ALL.into_iter().map(next_schema).collect();
        let all = || next.iter().map(String::as_str);
        Ok(match self {
            Version::Present => Codec::default(),
            Version::NextAsPresent => Codec::default().knowing(all())?,
            Version::Next => Codec::default().knowing(all())?.writing_as(all())?,
        })
    }
}

/// The schema of the next version: every kind of change that is allowed but a new variant.
fn next_schema(kind: RecordKind) -> String {
    let mut schema = schema_json(kind);
    for (record, field) in [
        ("Envelope", json!({"name": "region", "type": "string", "default": "everywhere"})),
        ("Task", json!({"name": "temperature", "type": ["null", "double"], "default": null})),
        ("Task", json!({"name": "style", "type": "string", "default": "plain"})),
        ("TaskResult", json!({"name": "cache_hits", "type": "int", "default": 3})),
        (
            "Outcome",
            json!({"name": "footnotes", "type": {"type": "array", "items": "string"}, "default": []}),
        ),
        ("Decision", json!({"name": "because", "type": "string", "default": "it had to be"})),
        ("TaskEntity", json!({"name": "colour", "type": "long", "default": 7})),
        ("FleetBeat", json!({"name": "zone", "type": "string", "default": "a"})),
    ] {
        add(&mut schema, record, &field);
    }
    schema.to_string()
}

fn add(schema: &mut Value, record: &str, field: &Value) {
    match schema {
        Value::Object(object) => {
            let is_it = object.get("name").is_some_and(|name| name == record);
            for (name, part) in object.iter_mut() {
                if let (true, "fields", Value::Array(fields)) = (is_it, name.as_str(), &mut *part) {
                    fields.push(field.clone());
                }
                add(part, record, field);
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| add(part, record, field)),
        _ => {}
    }
}

/// An installation whose services come and go in this process, each with a bus client of its own.
pub struct Versions {
    settings: Arc<Settings>,
    memory: Option<Arc<MemoryBus>>,
    started: usize,
}

/// A running service.
pub struct Member {
    /// What it shares with the others of its process.
    pub node: Node,
    serving: JoinHandle<Result<(), String>>,
}

impl Versions {
    /// An installation without services, in memory or on the Kafka at `brokers`, with that model.
    ///
    /// # Errors
    /// Its topics cannot be made.
    pub async fn new(brokers: Option<&str>, model: &str, settings: &[&str]) -> Result<Self> {
        let prefix = format!("topics.prefix=t{:08x}", rand::random::<u32>());
        let model = format!("model.base_url={model}");
        let few =
            ["intents", "coordinator", "planner", "critic", "tool", "outcomes", "progress", "content", "dlq"];
        let few = few.map(|name| format!("topics.partitions.{name}=1"));
        let own = [
            prefix,
            model,
            format!("kafka.brokers={}", brokers.unwrap_or("localhost:9092")),
            "topics.partitions.worker=4".to_owned(),
            "kafka.session_timeout=6s".to_owned(),
            "kafka.connect_timeout=30s".to_owned(),
            "fleet.interval=100ms".to_owned(),
            "processor.grace=300ms".to_owned(),
            "processor.backoff_min=100ms".to_owned(),
            "processor.backoff_max=500ms".to_owned(),
        ];
        let all = few.into_iter().chain(own).chain(settings.iter().map(|setting| (*setting).to_owned()));
        let overrides = all.filter_map(|setting| {
            let (name, value) = setting.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        let sources = Sources { overrides: overrides.collect(), ..Sources::default() };
        let settings = Arc::new(Settings::load(&sources)?);
        let memory = brokers.is_none().then(|| MemoryBus::new(MemoryOptions::default()));
        let versions = Self { settings, memory, started: 0 };
        versions.bus()?.create_topics(&topic_specs(&versions.settings.topics)).await?;
        Ok(versions)
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A client of its bus.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn bus(&self) -> Result<Arc<dyn Bus>> {
        Ok(match &self.memory {
            Some(bus) => bus.clone(),
            None => KafkaBus::new(kafka_options(&self.settings, Traffic::OneByOne))?,
        })
    }

    /// Starts a service (`planner`, `worker` or `critic`) of that version.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(&mut self, service: &str, version: Version) -> Result<Member> {
        self.started += 1;
        let parts = NodeParts {
            spans: Spans::off(),
            clock: Clock::system(),
            random: Random::system(),
            process: format!("{service}-{version:?}-{}", self.started).into(),
            shutdown: CancellationToken::new(),
            codec: version.codec()?,
        };
        let node = Node::connect(self.settings.clone(), self.bus()?, parts).await?;
        let parts = Parts::of(&node)?;
        let (own, service) = (node.clone(), service.to_owned());
        let serving = tokio::spawn(async move {
            match service.as_str() {
                "planner" => starling_planner::serve(own, parts).await.map_err(|error| error.to_string()),
                "worker" => starling_worker::serve(own, parts).await.map_err(|error| error.to_string()),
                _ => starling_critic::serve(own, parts).await.map_err(|error| error.to_string()),
            }
        });
        Ok(Member { node, serving })
    }
}

impl Member {
    /// Waits until it is ready.
    ///
    /// # Errors
    /// It takes too long, or it has ended.
    pub async fn ready(self) -> Result<Self> {
        let until = Instant::now() + READY;
        loop {
            let waiting = self.node.health.waiting_for();
            if waiting.is_empty() {
                return Ok(self);
            }
            ensure!(!self.serving.is_finished(), "{} has ended", self.node.process);
            ensure!(Instant::now() < until, "{} waits for {waiting:?}", self.node.process);
            tokio::time::sleep(Duration::from_millis(20)).await; // polls what an orchestrator would poll
        }
    }

    /// What its `/metrics` would say.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.node.metrics.encode()
    }

    /// Stops it as SIGTERM does.
    ///
    /// # Errors
    /// It ended with an error.
    pub async fn stop(self) -> Result<()> {
        self.node.shutdown.cancel();
        let ended = self.serving.await.context("a service broke")?;
        self.node.leave().await;
        self.node.bus.flush(Duration::from_secs(5)).await;
        ended.map_err(anyhow::Error::msg)
    }
}
