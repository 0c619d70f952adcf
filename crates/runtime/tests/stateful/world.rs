//! A bus, processors on it, and a machine that counts.

use bytes::Bytes;
use starling_bus::{
    Bus, InRecord, MemoryBus, MemoryFaults, MemoryOptions, OutRecord, PartitionId, TopicSpec,
};
use starling_engine::coordinator::{Changes, Counters, Destination, Effect, Event, FleetView, Load};
use starling_engine::statelog::{LogFold, Observed, Position};
use starling_protocol::state::{CancelledEntity, Entity, EntityKey, StateRecord};
use starling_protocol::topic::partition_of;
use starling_protocol::{
    Body, Cancel, Codec, DeadReason, Envelope, EnvelopeId, IntentId, Priority, Role, Tag, Timestamp, Topic,
    TopicNames,
};
use starling_runtime::stateful::{
    Machine, StatefulError, StatefulOptions, StatefulParts, StatefulProcessor, StatefulReport,
};
use starling_runtime::telemetry::Spans;
use starling_runtime::{Clock, Metrics, Random, Router, Schemas};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, atomic::AtomicI64, atomic::Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) const PARTITIONS: i32 = 4;
/// The machine makes too large an entity of this intent, whatever it is told.
pub(crate) const STUBBORN: &str = "stubborn";
pub(crate) const MAX_RECORD: usize = 20_000;

/// Counts the inputs of each intent and says each count to the outcomes. It does not recognise
/// duplicates: an input that is decided twice shows.
#[derive(Default)]
pub(crate) struct Counter {
    entities: BTreeMap<EntityKey, Entity>,
    changes: Changes,
}

impl Counter {
    fn set(&mut self, intent: &IntentId, count: usize, timer: Timestamp, padding: usize) {
        let entity = Entity::Cancelled(CancelledEntity {
            intent_id: intent.clone(),
            tenant: "x".repeat(padding),
            reason: count.to_string(),
            forget_at: timer,
        });
        self.changes.changed.retain(|other| other.key() != entity.key());
        self.changes.changed.push(entity.clone());
        self.entities.insert(entity.key(), entity);
    }

    fn get(&self, intent: &IntentId) -> (usize, Timestamp) {
        let found = self.entities.values().find_map(|entity| match entity {
            Entity::Cancelled(e) if e.intent_id == *intent => Some((e.reason.parse().unwrap(), e.forget_at)),
            _ => None,
        });
        found.unwrap_or((0, Timestamp::MAX))
    }
}

pub(crate) fn envelope(intent: &IntentId, words: &str) -> Envelope {
    Envelope {
        id: EnvelopeId::derive("test", &[intent.as_str(), words]),
        intent_id: intent.clone(),
        tag: Tag::role(Role::Coordinator),
        hop: 0,
        created_at: Timestamp(0),
        deadline: Timestamp::MAX,
        tenant: String::new(),
        body: Body::Cancel(Cancel { reason: words.to_owned() }),
    }
}

fn say(intent: &IntentId, words: &str, trace: &str) -> Effect {
    Effect::Send {
        to: Destination::Outcomes,
        envelope: envelope(intent, words),
        trace: trace.to_owned(),
        links: Vec::new(),
        priority: Priority::default(),
    }
}

impl Machine for Counter {
    fn step(&mut self, now: Timestamp, event: Event) -> Vec<Effect> {
        match event {
            Event::Received { envelope, trace, .. } => {
                let Body::Cancel(Cancel { reason }) = envelope.body else { return Vec::new() };
                let intent = envelope.intent_id;
                let (count, mut timer) = self.get(&intent);
                if let Some(due) = reason.strip_prefix("timer ") {
                    timer = Timestamp(due.parse().unwrap());
                }
                let padding = if reason == "fat entity" { MAX_RECORD } else { 0 };
                self.set(&intent, count + 1, timer, padding);
                let mut effects = vec![say(&intent, &(count + 1).to_string(), &trace)];
                match reason.as_str() {
                    "fat effect" => effects.push(say(&intent, &"x".repeat(MAX_RECORD), &trace)),
                    "many fat effects" => {
                        let fat = |i| say(&intent, &format!("{i}{}", "x".repeat(MAX_RECORD / 3)), &trace);
                        effects.extend((0..9).map(fat));
                    }
                    _ => {}
                }
                effects
            }
            Event::EffectRefused { intent_id, .. } => {
                let (count, timer) = self.get(&intent_id);
                if intent_id.as_str() == STUBBORN {
                    self.set(&intent_id, count, timer, MAX_RECORD);
                } else {
                    self.set(&intent_id, count, timer, 0);
                }
                vec![say(&intent_id, "refused", "")]
            }
            Event::Undecodable { at_partition, at_offset, reason } => {
                let code = DeadReason::Undecodable;
                vec![Effect::DeadLetter { at_partition, at_offset, code, reason }]
            }
            Event::Tick => {
                let due = |e: &Entity| matches!(e, Entity::Cancelled(e) if e.forget_at <= now);
                let due: Vec<IntentId> =
                    self.entities.values().filter(|e| due(e)).map(|e| e.key().intent_id).collect();
                due.iter()
                    .map(|intent| {
                        let (count, _) = self.get(intent);
                        self.set(intent, count, Timestamp::MAX, 0);
                        say(intent, "time", "")
                    })
                    .collect()
            }
            Event::Fleet(_) => Vec::new(),
        }
    }

    fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    fn apply(&mut self, changed: &[Entity], deleted: &[EntityKey]) {
        deleted.iter().for_each(|key| drop(self.entities.remove(key)));
        self.entities.extend(changed.iter().map(|entity| (entity.key(), entity.clone())));
    }

    fn entities(&self) -> Vec<Entity> {
        self.entities.values().cloned().collect()
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let timer = |entity: &Entity| match entity {
            Entity::Cancelled(e) if e.forget_at < Timestamp::MAX => Some(e.forget_at),
            _ => None,
        };
        self.entities.values().filter_map(timer).min()
    }

    fn load(&self) -> Load {
        Load { live: self.entities.len(), ..Load::default() }
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

pub(crate) struct World {
    pub(crate) bus: Arc<dyn Bus>,
    memory: Option<MemoryFaults>,
    pub(crate) codec: Codec,
    schemas: Schemas,
    names: TopicNames,
    /// Milliseconds that the clock is ahead.
    pub(crate) ahead: Arc<AtomicI64>,
    began: Instant,
}

pub(crate) struct Running {
    task: JoinHandle<Result<(), StatefulError>>,
    shutdown: CancellationToken,
    pub(crate) report: StatefulReport,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// As a crash: nothing is finished.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub(crate) async fn failure(self) -> StatefulError {
        self.task.await.unwrap().unwrap_err()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.report.counters().all().into_iter().find(|(other, _)| *other == name).unwrap().1
    }
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(300), "never: {what}");
        sleep(Duration::from_millis(3)).await;
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let bus = MemoryBus::new(MemoryOptions::default());
        let faults = bus.faults();
        Self { memory: Some(faults), ..Self::on(bus, "t").await }
    }

    /// On any bus, with topics of its own.
    pub(crate) async fn on(bus: Arc<dyn Bus>, prefix: &str) -> Self {
        let names = TopicNames::new(prefix);
        let spec = |topic: &Topic| TopicSpec {
            name: names.name(topic),
            partitions: PARTITIONS,
            replication: -1,
            settings: BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]),
        };
        let topics: Vec<TopicSpec> = Topic::all().iter().map(spec).collect();
        bus.create_topics(&topics).await.unwrap();
        let (ahead, began) = (Arc::default(), Instant::now());
        let codec = Codec::default();
        Self { bus, memory: None, schemas: codec.clone().into(), codec, names, ahead, began }
    }

    /// The same with processes that read like this.
    pub(crate) fn reading_with(self, schemas: Schemas) -> Self {
        Self { schemas, ..self }
    }

    pub(crate) fn faults(&self) -> &MemoryFaults {
        self.memory.as_ref().expect("only the memory bus has faults on demand")
    }

    pub(crate) fn at(&self, topic: &Topic, partition: i32) -> PartitionId {
        PartitionId::new(self.names.name(topic), partition)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn clock(&self) -> Clock {
        let (ahead, began) = (self.ahead.clone(), self.began);
        Clock::of(move || Timestamp(1_000_000 + ahead.load(Ordering::Relaxed)).plus(began.elapsed()))
    }

    pub(crate) fn options(&self) -> StatefulOptions {
        StatefulOptions {
            max_record: MAX_RECORD,
            epoch_backoff_min: Duration::from_millis(20),
            append_timeout: Duration::from_secs(2),
            ..StatefulOptions::new(self.names.group("coordinator"))
        }
    }

    pub(crate) async fn start(&self) -> Running {
        self.start_with(self.options()).await
    }

    pub(crate) async fn start_with(&self, options: StatefulOptions) -> Running {
        let processor = self.join(options).await.unwrap();
        let shutdown = CancellationToken::new();
        let report = processor.report();
        let task = tokio::spawn(processor.run(shutdown.clone()));
        Running { task, shutdown, report }
    }

    pub(crate) async fn join(
        &self,
        options: StatefulOptions,
    ) -> Result<StatefulProcessor<Counter>, StatefulError> {
        StatefulProcessor::join(StatefulParts {
            bus: self.bus.clone(),
            schemas: self.schemas.clone(),
            router: Router::connect(self.bus.as_ref(), self.names.clone()).await.unwrap(),
            spans: Spans::off(),
            metrics: Arc::new(Metrics::new()),
            clock: self.clock(),
            process: "planner-test".into(),
            random: Random::system(),
            fleet: watch::channel(FleetView::default()).1,
            make: Arc::new(|_| Counter::default()),
            options,
        })
        .await
    }

    /// An intent of that partition.
    pub(crate) fn intent(&self, partition: i32, number: usize) -> IntentId {
        let name = |n: usize| format!("intent-{n}");
        let mut fitting = (0..).map(name).filter(|name| partition_of(name, PARTITIONS) == partition);
        IntentId::from_string(fitting.nth(number).unwrap())
    }

    pub(crate) async fn input(&self, intent: &IntentId, words: &str) {
        let partition = partition_of(intent.as_str(), PARTITIONS);
        let payload = self.codec.encode(&envelope(intent, words)).unwrap();
        self.put(partition, payload).await;
    }

    pub(crate) async fn put(&self, partition: i32, payload: Vec<u8>) {
        let record = OutRecord {
            to: self.at(&Topic::Coordinator, partition),
            key: Some(Bytes::from_static(b"the key")),
            headers: vec![("a-header".into(), Bytes::from_static(b"its value"))],
            payload: Some(payload.into()),
        };
        self.bus.send(record).await.unwrap();
    }

    pub(crate) async fn records(&self, topic: &Topic, partition: i32) -> Vec<InRecord> {
        let at = self.at(topic, partition);
        let marks = self.bus.watermarks(&at).await.unwrap();
        let all: Vec<_> = (marks.low..marks.high).map(|offset| (at.clone(), offset)).collect();
        self.bus.read(&all).await.into_iter().map(Result::unwrap).collect()
    }

    /// What was said about an intent, in order, repetitions included.
    pub(crate) async fn said(&self, intent: &IntentId) -> Vec<String> {
        let partition = partition_of(intent.as_str(), PARTITIONS);
        let records = self.records(&Topic::Outcomes, partition).await;
        let envelopes = records.iter().map(|r| self.codec.decode::<Envelope>(r.value()).unwrap());
        envelopes
            .filter(|envelope| envelope.intent_id == *intent)
            .map(|envelope| match envelope.body {
                Body::Cancel(Cancel { reason }) => reason,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// Waits until exactly the counts up to `count` were said, each at least once.
    pub(crate) async fn counted(&self, intent: &IntentId, count: usize) {
        let expected: BTreeSet<String> = (1..=count).map(|n| n.to_string()).collect();
        eventually(&format!("{intent} counted to {count}"), async || {
            let said: BTreeSet<String> = self.said(intent).await.into_iter().collect();
            said.is_superset(&expected)
        })
        .await;
        let said: BTreeSet<String> = self.said(intent).await.into_iter().collect();
        assert_eq!(said, expected);
    }

    /// Where a state partition stands, judged from its beginning, and how many decisions are accepted.
    pub(crate) async fn log(&self, partition: i32) -> (Position, usize) {
        let mut fold = LogFold::new(PARTITIONS);
        let mut accepted = 0;
        for record in self.records(&Topic::State, partition).await {
            let state: StateRecord = self.codec.decode(record.value()).unwrap();
            let observed = fold.observe(record.offset, state).unwrap();
            accepted += usize::from(matches!(observed, Observed::Decision { .. }));
        }
        (fold.position().unwrap().clone(), accepted)
    }
}
