//! The world of a contract test, and helpers to watch a consumer.

use bytes::Bytes;
use starling_bus::{
    Bus, BusError, Deliver, GroupConfig, GroupConsumer, GroupEvent, GroupProtocol, InRecord, KafkaBus,
    KafkaOptions, LogReader, MemoryBus, MemoryOptions, OutRecord, PartitionId, ReaderEvent, TopicSpec,
};
use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::timeout;

/// Longer than anything here takes, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The largest record that the buses under test send.
pub(crate) const MAX_RECORD: usize = 3 << 20;

/// A bus under test, and the same again with hardly any room to send.
pub(crate) struct World {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) tight: Arc<dyn Bus>,
    name: String,
}

impl World {
    pub(crate) fn memory() -> Self {
        let options = MemoryOptions { max_record_bytes: MAX_RECORD, ..MemoryOptions::default() };
        let tight = MemoryOptions { max_bytes_per_partition: 4096, ..MemoryOptions::default() };
        Self { bus: MemoryBus::new(options), tight: MemoryBus::new(tight), name: unique() }
    }

    /// `None` if only the memory bus is to be tested.
    pub(crate) fn kafka() -> Option<Self> {
        Self::kafka_with(GroupProtocol::Classic)
    }

    pub(crate) fn kafka_with(group_protocol: GroupProtocol) -> Option<Self> {
        if env::var("STARLING_TEST_MEMORY_ONLY").is_ok_and(|value| value == "1") {
            return None;
        }
        let brokers = env::var("STARLING_TEST_BROKERS").expect(
            "STARLING_TEST_BROKERS is not set: run `make test`, which brings up a broker, \
             or set STARLING_TEST_MEMORY_ONLY=1 to leave Kafka out",
        );
        let options =
            KafkaOptions { max_message_bytes: MAX_RECORD, group_protocol, ..KafkaOptions::new(brokers) };
        let tight = KafkaOptions { send_queue_records: 2, ..options.clone() };
        Some(Self {
            bus: KafkaBus::new(options).unwrap(),
            tight: KafkaBus::new(tight).unwrap(),
            name: unique(),
        })
    }

    /// Makes a topic on both buses.
    pub(crate) async fn topic(&self, name: &str, partitions: i32) -> Arc<str> {
        self.topic_for(name, partitions, 2 * MAX_RECORD).await
    }

    /// Makes a topic that takes so many bytes at once.
    pub(crate) async fn topic_for(&self, name: &str, partitions: i32, bytes: usize) -> Arc<str> {
        let name = format!("test.{}.{name}", self.name);
        let settings = BTreeMap::from([("max.message.bytes".to_owned(), bytes.to_string())]);
        let spec = TopicSpec { name: name.clone(), partitions, replication: 1, settings };
        self.bus.create_topics(std::slice::from_ref(&spec)).await.unwrap();
        self.tight.create_topics(&[spec]).await.unwrap();
        name.into()
    }

    pub(crate) fn group(&self, topics: &[&Arc<str>]) -> GroupConfig {
        GroupConfig {
            group: format!("test.{}", self.name),
            topics: topics.iter().map(|topic| topic.to_string()).collect(),
            deliver: Deliver::Records,
            instance: None,
            session_timeout: Duration::from_secs(6),
            revoke_timeout: Duration::from_secs(5),
            queue_records: 1000,
        }
    }

    /// Sends numbered records to a partition, and waits until all are there.
    pub(crate) async fn fill(&self, at: &PartitionId, numbers: std::ops::Range<usize>) {
        let sends: Vec<_> = numbers.map(|n| self.bus.send(record(at, n.to_string()))).collect();
        for sent in sends {
            sent.await.unwrap();
        }
    }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("{now:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn record(at: &PartitionId, payload: impl Into<Bytes>) -> OutRecord {
    OutRecord { to: at.clone(), key: None, headers: Vec::new(), payload: Some(payload.into()) }
}

pub(crate) fn text(record: &InRecord) -> &str {
    std::str::from_utf8(record.value()).unwrap()
}

pub(crate) async fn next(member: &Arc<dyn GroupConsumer>) -> GroupEvent {
    timeout(PATIENCE, member.next()).await.expect("a member hears nothing more")
}

/// The first event that `pick` takes; the others pass.
pub(crate) async fn until<T>(
    member: &Arc<dyn GroupConsumer>,
    mut pick: impl FnMut(GroupEvent) -> Option<T>,
) -> T {
    loop {
        let event = next(member).await;
        if let GroupEvent::Fatal(error) = &event {
            panic!("the client failed: {error}");
        }
        if let Some(picked) = pick(event) {
            return picked;
        }
    }
}

/// The next records, as many as told.
pub(crate) async fn records(member: &Arc<dyn GroupConsumer>, count: usize) -> Vec<InRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        records.push(until(member, record_of).await);
    }
    records
}

pub(crate) fn record_of(event: GroupEvent) -> Option<InRecord> {
    match event {
        GroupEvent::Record(record) => Some(record),
        _ => None,
    }
}

/// Every record that comes until nothing has come for a while.
pub(crate) async fn drain(member: &Arc<dyn GroupConsumer>) -> Vec<InRecord> {
    let mut records = Vec::new();
    while let Ok(event) = timeout(Duration::from_millis(400), member.next()).await {
        records.extend(record_of(event));
    }
    records
}

pub(crate) async fn heard(reader: &Arc<dyn LogReader>) -> ReaderEvent {
    loop {
        match timeout(PATIENCE, reader.next()).await.expect("a reader hears nothing more") {
            ReaderEvent::Trouble(error) => eprintln!("trouble: {error}"),
            event => return event,
        }
    }
}

/// What a reader hears until the end: the records' texts, and the end's offset.
pub(crate) async fn read_to_end(reader: &Arc<dyn LogReader>) -> (Vec<String>, i64) {
    let mut texts = Vec::new();
    loop {
        match heard(reader).await {
            ReaderEvent::Record(record) => texts.push(text(&record).to_owned()),
            ReaderEvent::End { next_offset, .. } => return (texts, next_offset),
            other => panic!("unexpected: {other:?}"),
        }
    }
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

pub(crate) async fn unreachable() {
    let bus = KafkaBus::new(KafkaOptions::new("127.0.0.1:1")).unwrap();
    let asked =
        timeout(Duration::from_secs(8), bus.partitions("any")).await.expect("it should give up by itself");
    match asked {
        Err(BusError::Unreachable { brokers, .. }) => assert_eq!(brokers, "127.0.0.1:1"),
        other => panic!("unexpected: {other:?}"),
    }
}
