//! What the tests of services stand on: a bus in memory, a model that follows a script, and an ear on a
//! topic.

#![allow(clippy::expect_used, clippy::panic)] // a test that cannot be set up has failed

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use starling_bus::{Bus, LogReader, MemoryBus, MemoryOptions, OutRecord, PartitionId, ReaderEvent, StartAt};
use starling_llm::{
    CacheBounds, CacheOptions, CachedModel, Capacity, ChatReply, ChatRequest, Deeds, FailedAttempts, Model,
    ModelChoice, ModelError, ModelErrorKind, ModelInfo, Purpose, Purposes, StreamEvent, TextStream,
};
use starling_protocol::{
    Body, CallReport, Codec, Envelope, EnvelopeId, IntentId, RecordRef, Tag, Timestamp, Topic, Usage,
};
use starling_runtime::{
    Clock, EnvelopeHandler, Node, NodeParts, Outbox, Random, RecordHandler, Settings,
    parallel::{ParallelConfig, ParallelProcessor},
    settings::Sources,
    telemetry::Spans,
    topics::topic_specs,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node on a bus of its own. `overrides` are settings, such as `("topics.partitions.worker", "2")`.
pub async fn memory_node(overrides: &[(&str, &str)]) -> Node {
    memory_node_and_bus(overrides).await.0
}

/// The same with its bus, for tests in which that misbehaves.
pub async fn memory_node_and_bus(overrides: &[(&str, &str)]) -> (Node, Arc<MemoryBus>) {
    let overrides = overrides.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
    let sources = Sources { overrides: overrides.collect(), ..Sources::default() };
    let settings = Settings::load(&sources).expect("good settings");
    let bus = MemoryBus::new(MemoryOptions::default());
    bus.create_topics(&topic_specs(&settings.topics)).await.expect("new topics");
    let parts = NodeParts {
        spans: Spans::off(),
        clock: Clock::system(),
        random: Random::system(),
        process: "test".into(),
        shutdown: CancellationToken::new(),
        codec: Codec::default(),
    };
    let node = Node::connect(Arc::new(settings), bus.clone(), parts).await.expect("a node");
    (node, bus)
}

/// Runs `handler` on the inbox `topic` until the node is shut down.
pub fn serve(node: &Node, topic: Topic, handler: Arc<dyn EnvelopeHandler>) {
    let config = ParallelConfig::new(&node.settings, topic, "test", 8);
    let processor = ParallelProcessor::envelopes(config, node.clone(), handler);
    tokio::spawn(processor.run(node.shutdown.clone()));
}

/// Runs `handler` on the raw records of `topic` until the node is shut down.
pub fn serve_records(node: &Node, topic: Topic, handler: Arc<dyn RecordHandler>) {
    let config = ParallelConfig::new(&node.settings, topic, "test", 8);
    let processor = ParallelProcessor::records(config, node.clone(), handler);
    tokio::spawn(processor.run(node.shutdown.clone()));
}

/// What a scripted model does with one question.
pub enum Answer {
    /// Replies.
    Say(String),
    /// Fails.
    Fail(ModelErrorKind),
    /// Streams what comes out of the channel, then ends as if it had finished.
    Stream(mpsc::UnboundedReceiver<String>),
    /// Never answers.
    Hang,
}

type Script = Box<dyn FnMut(&ChatRequest) -> Answer + Send>;

/// A model that follows a script and remembers what it was asked.
pub struct ScriptedModel {
    script: Mutex<Script>,
    asked: Mutex<Vec<ChatRequest>>,
    capacity: Mutex<Capacity>,
}

impl ScriptedModel {
    /// A model that answers as `script` says.
    pub fn new(script: impl FnMut(&ChatRequest) -> Answer + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Box::new(script)),
            asked: Mutex::default(),
            capacity: Mutex::default(),
        })
    }

    /// A model that always says the same.
    pub fn saying(text: &str) -> Arc<Self> {
        let text = text.to_owned();
        Self::new(move |_| Answer::Say(text.clone()))
    }

    /// From now on it has this window, as far as those who ask it know.
    pub fn has(&self, capacity: Capacity) {
        *self.capacity.lock().unwrap_or_else(PoisonError::into_inner) = capacity;
    }

    /// What it was asked, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<ChatRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answer(&self, request: ChatRequest) -> Answer {
        let answer = (self.script.lock().unwrap_or_else(PoisonError::into_inner))(&request);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        answer
    }
}

/// A model whose replies are kept, whatever they are for.
#[must_use]
pub fn keeping(model: Arc<dyn Model>) -> Arc<CachedModel> {
    let memory = CacheBounds { bytes: 1 << 20, entries: 100 };
    let options =
        CacheOptions { purposes: Purposes::ALL, ttl: Duration::from_secs(3600), memory, disk: None };
    Arc::new(CachedModel::new(model, options).expect("no folder is needed"))
}

/// A model that says one after the other, and the last of them from then on.
#[must_use]
pub fn saying_in_turn(texts: &[&str]) -> Arc<ScriptedModel> {
    let mut texts: Vec<String> = texts.iter().rev().map(|text| (*text).to_owned()).collect();
    ScriptedModel::new(move |_| {
        let text = if texts.len() > 1 { texts.pop() } else { texts.first().cloned() };
        Answer::Say(text.expect("something to say"))
    })
}

fn report() -> CallReport {
    CallReport {
        model: "scripted".to_owned(),
        calls: 1,
        usage: Usage { prompt_tokens: 10, completion_tokens: 5, cached_tokens: 0 },
        ..CallReport::default()
    }
}

fn failure(kind: ModelErrorKind) -> ModelError {
    let report = report();
    ModelError { kind, message: "as the script says".to_owned(), endpoint: "script".to_owned(), report }
}

#[async_trait]
impl Model for ScriptedModel {
    fn info(&self) -> ModelInfo {
        ModelInfo { model: "scripted".to_owned(), offline: false, endpoint: "script".to_owned() }
    }

    fn capacity(&self, _: Purpose, _: Option<&ModelChoice>) -> Capacity {
        *self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As if it had answered "too many requests" twice.
    fn failed_attempts(&self) -> Vec<FailedAttempts> {
        vec![FailedAttempts { model: "scripted".to_owned(), kind: ModelErrorKind::RateLimited, count: 2 }]
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        match self.answer(request) {
            Answer::Say(text) => Ok(ChatReply { text, deeds: Deeds::default(), report: report() }),
            Answer::Fail(kind) => Err(failure(kind)),
            Answer::Stream(mut pieces) => {
                let mut text = String::new();
                while let Some(piece) = pieces.recv().await {
                    text.push_str(&piece);
                }
                Ok(ChatReply { text, deeds: Deeds::default(), report: report() })
            }
            Answer::Hang => std::future::pending().await,
        }
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        match self.answer(request) {
            Answer::Say(text) => {
                let events = [Ok(StreamEvent::Text(text)), Ok(StreamEvent::Done(report()))];
                Ok(futures::stream::iter(events).boxed())
            }
            Answer::Fail(kind) => Err(failure(kind)),
            Answer::Stream(pieces) => {
                let pieces = futures::stream::unfold(pieces, |mut pieces| async {
                    pieces.recv().await.map(|piece| (Ok(StreamEvent::Text(piece)), pieces))
                });
                let end = futures::stream::once(async { Ok(StreamEvent::Done(report())) });
                Ok(pieces.chain(end).boxed())
            }
            Answer::Hang => Ok(futures::stream::pending().boxed()),
        }
    }
}

/// Hears everything that is written to one topic, from its beginning.
pub struct Ear {
    node: Node,
    reader: Arc<dyn LogReader>,
}

/// Something that an [`Ear`] heard.
#[derive(Debug)]
pub struct Heard {
    /// What.
    pub envelope: Envelope,
    /// Where it lies.
    pub at: RecordRef,
}

impl Ear {
    /// Listens to `topic`.
    pub async fn on(node: &Node, topic: &Topic) -> Self {
        let reader = node.bus.reader().await.expect("a reader");
        let name = node.router.name(topic).expect("a topic");
        for partition in 0..node.router.partitions(topic).expect("a topic") {
            let partition = PartitionId { topic: name.clone(), partition };
            reader.add(partition, StartAt::Beginning).await.expect("a partition");
        }
        Self { node: node.clone(), reader }
    }

    /// The next envelope.
    pub async fn next(&self) -> Heard {
        let record = self.next_record().await;
        let envelope: Envelope = self.node.codec.decode(record.value()).expect("an envelope");
        let at = starling_runtime::wire::reference(&record, &envelope);
        Heard { envelope, at }
    }

    /// The next record.
    pub async fn next_record(&self) -> starling_bus::InRecord {
        let heard = timeout(PATIENCE, async {
            loop {
                if let ReaderEvent::Record(record) = self.reader.next().await {
                    return record;
                }
            }
        });
        heard.await.expect("something should have been written by now")
    }

    /// Whether nothing is written for `wait`.
    pub async fn hears_nothing_for(&self, wait: Duration) -> bool {
        let heard =
            timeout(wait, async { while !matches!(self.reader.next().await, ReaderEvent::Record(_)) {} });
        heard.await.is_err()
    }
}

/// Writes an envelope to the inbox of its tag.
pub async fn publish(node: &Node, envelope: Envelope) {
    let outbox = Outbox::new(node.courier.clone(), "".into());
    outbox.emit(envelope).await.expect("a written record");
}

/// Writes a raw record to the first partition of `topic`.
pub async fn publish_raw(node: &Node, topic: &Topic, payload: impl Into<Bytes>) {
    let record = OutRecord {
        to: node.router.route(topic, None, Some(0)).expect("a topic"),
        key: None,
        headers: Vec::new(),
        payload: Some(payload.into()),
    };
    node.bus.send(record).await.expect("a written record");
}

/// An envelope of the intent `intent` for `tag`, with a deadline in a minute.
#[must_use]
pub fn envelope(intent: &str, tag: Tag, body: Body) -> Envelope {
    let now = Clock::system().now();
    Envelope {
        id: EnvelopeId::derive("test", &[intent, body.kind()]),
        intent_id: IntentId::from_string(intent),
        tag,
        hop: 3,
        created_at: now,
        deadline: Timestamp(now.0 + 60_000),
        tenant: "default".to_owned(),
        body,
    }
}
