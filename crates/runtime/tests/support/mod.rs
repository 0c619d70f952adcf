//! A node on the memory bus, and what tests do with it.
#![allow(dead_code, unreachable_pub)] // each test program uses a part of it

pub mod scripted;

use bytes::Bytes;
use starling_bus::{Bus, InRecord, MemoryBus, MemoryOptions, OutRecord, PartitionId, ReaderEvent, StartAt};
use starling_protocol::{
    Body, CallReport, Cancel, Codec, Envelope, EnvelopeId, IntentId, Role, RunId, Tag, Task, TaskId,
    TaskKind, TaskResult, TaskTerms, Timestamp, Topic,
};
use starling_runtime::{
    Clock, Node, NodeParts, Random, Settings, settings::Sources, telemetry::Spans, topics::topic_specs,
};
use std::{future::Future, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The longest that anything in a test may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A bus with all topics.
pub async fn bus(settings: &Settings) -> Arc<MemoryBus> {
    let bus = MemoryBus::new(MemoryOptions::default());
    bus.create_topics(&topic_specs(&settings.topics)).await.unwrap();
    bus
}

/// The defaults with a few changes.
pub fn settings(changes: &[(&str, &str)]) -> Settings {
    let overrides = changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::load(&Sources { overrides, ..Sources::default() }).unwrap()
}

/// A process on that bus.
pub async fn node(settings: &Settings, bus: Arc<MemoryBus>, spans: Spans) -> Node {
    let parts = NodeParts {
        spans,
        clock: Clock::system(),
        random: Random::system(),
        process: "test".into(),
        shutdown: CancellationToken::new(),
        codec: Codec::default(),
    };
    Node::connect(Arc::new(settings.clone()), bus, parts).await.unwrap()
}

/// A task for a worker. Its title names it.
pub fn task(intent: &str, title: &str) -> Envelope {
    let run = RunId::from_random(1);
    let task_id = TaskId::from_string(title);
    envelope(
        intent,
        title,
        Tag::role(Role::Worker),
        Body::Task(Task {
            task_id,
            run,
            kind: TaskKind::Work,
            attempt: 1,
            step: 0,
            title: title.into(),
            agent: "worker".into(),
            goal: "g".into(),
            instruction: "i".into(),
            intent_ref: None,
            dependencies: Vec::new(),
            feedback: None,
            next_tag: Tag::role(Role::Critic),
            min_score: 0.6,
            allowance: None,
            critic_allowance: None,
            terms: TaskTerms::default(),
            last_attempt: false,
        }),
    )
}

/// What a worker might say of that task.
pub fn result(of: &Envelope, output: &str) -> Envelope {
    let Body::Task(task) = &of.body else { panic!("{of:?} is no task") };
    let body = Body::TaskResult(TaskResult {
        task_id: task.task_id.clone(),
        run: task.run.clone(),
        kind: task.kind,
        attempt: task.attempt,
        step: task.step,
        title: task.title.clone(),
        agent: task.agent.clone(),
        goal: task.goal.clone(),
        instruction: task.instruction.clone(),
        min_score: task.min_score,
        output: output.into(),
        failure: None,
        report: CallReport::default(),
        worker: "w".into(),
        critic_allowance: None,
        rule_based: false,
        sources: 0,
    });
    Envelope {
        hop: of.hop + 1,
        ..envelope(of.intent_id.as_str(), &task.title, Tag::role(Role::Coordinator), body)
    }
}

/// The cancellation of an intent.
pub fn cancel(intent: &str) -> Envelope {
    let body = Body::Cancel(Cancel { reason: "enough".into() });
    envelope(intent, "cancel", Tag::role(Role::Coordinator), body)
}

fn envelope(intent: &str, cause: &str, tag: Tag, body: Body) -> Envelope {
    let now = Clock::system().now();
    Envelope {
        id: EnvelopeId::derive(body.kind(), &[intent, cause]),
        intent_id: IntentId::from_string(intent),
        tag,
        hop: 1,
        created_at: now,
        deadline: now.plus(Duration::from_secs(600)),
        tenant: "default".into(),
        body,
    }
}

/// The name that [`task`] gave.
pub fn title(envelope: &Envelope) -> String {
    match &envelope.body {
        Body::Task(task) => task.title.clone(),
        Body::TaskResult(result) => result.title.clone(),
        other => other.kind().to_owned(),
    }
}

/// Writes a value as it is.
pub async fn write(
    bus: &MemoryBus,
    to: PartitionId,
    key: Option<&str>,
    headers: &[(&str, &str)],
    value: &[u8],
) -> i64 {
    let headers =
        headers.iter().map(|(n, v)| ((*n).to_owned(), Bytes::copy_from_slice(v.as_bytes()))).collect();
    let key = key.map(|key| Bytes::copy_from_slice(key.as_bytes()));
    let payload = Some(Bytes::copy_from_slice(value));
    bus.send(OutRecord { to, key, headers, payload }).await.unwrap().offset.unwrap()
}

/// Writes an envelope to a partition.
pub async fn put(node: &Node, bus: &MemoryBus, topic: &Topic, partition: i32, envelope: &Envelope) -> i64 {
    let to = PartitionId::new(node.router.name(topic).unwrap(), partition);
    write(bus, to, None, &[], &node.codec.encode(envelope).unwrap()).await
}

/// Everything that a topic holds now.
pub async fn contents(node: &Node, bus: &MemoryBus, topic: &Topic) -> Vec<InRecord> {
    let reader = bus.reader().await.unwrap();
    let name = node.router.name(topic).unwrap();
    let count = node.router.partitions(topic).unwrap();
    for partition in 0..count {
        reader.add(PartitionId::new(name.clone(), partition), StartAt::Beginning).await.unwrap();
    }
    let mut records = Vec::new();
    let mut ends = std::collections::HashSet::new();
    while ends.len() < usize::try_from(count).unwrap() {
        match reader.next().await {
            ReaderEvent::Record(record) => records.push(record),
            ReaderEvent::End { at, .. } => _ = ends.insert(at),
            other => panic!("{other:?}"),
        }
    }
    records
}

/// Waits until `probe` gives something.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let waiting = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// The lowest offset that the group will read next, `None` before the first commit.
pub async fn committed(bus: &MemoryBus, group: &str, at: &PartitionId) -> Option<i64> {
    bus.committed(group, at).await.unwrap().map(|committed| committed.offset)
}

/// An instant in the past.
pub fn long_ago() -> Timestamp {
    Timestamp(1)
}
