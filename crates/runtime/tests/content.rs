//! Reading referenced records: what is checked, cached, and read together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use async_trait::async_trait;
use starling_bus::{
    Bus, BusError, Committed, DeliveryFuture, GroupConfig, GroupConsumer, InRecord, Inspector, LogReader,
    MemoryBus, OutRecord, PartitionId, ReadError, TopicSpec, Watermarks,
};
use starling_protocol::{Codec, EnvelopeId, RecordRef, Topic};
use starling_runtime::{
    ContentError, ContentReader, Outbox, content::ContentOptions, telemetry::Spans, wire::reference,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Counts the reads of single records.
struct Counting {
    bus: Arc<MemoryBus>,
    reads: AtomicUsize,
    records: AtomicUsize,
}

#[async_trait]
impl Bus for Counting {
    fn send(&self, record: OutRecord) -> DeliveryFuture {
        self.bus.send(record)
    }
    async fn join(&self, config: GroupConfig) -> Result<Arc<dyn GroupConsumer>, BusError> {
        self.bus.join(config).await
    }
    async fn reader(&self) -> Result<Arc<dyn LogReader>, BusError> {
        self.bus.reader().await
    }
    async fn read(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.records.fetch_add(at.len(), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.bus.read(at).await
    }
    async fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        self.bus.partitions(topic).await
    }
    async fn watermarks(&self, partition: &PartitionId) -> Result<Watermarks, BusError> {
        self.bus.watermarks(partition).await
    }
    async fn committed(&self, group: &str, at: &PartitionId) -> Result<Option<Committed>, BusError> {
        self.bus.committed(group, at).await
    }
    async fn create_topics(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError> {
        self.bus.create_topics(topics).await
    }
    async fn trim(&self, partition: &PartitionId, offset: i64) -> Result<(), BusError> {
        self.bus.trim(partition, offset).await
    }
    async fn flush(&self, within: Duration) {
        self.bus.flush(within).await;
    }
    fn inspector(&self) -> Arc<dyn Inspector> {
        self.bus.inspector()
    }
}

struct Stage {
    bus: Arc<MemoryBus>,
    counting: Arc<Counting>,
    reader: ContentReader,
    refs: Vec<RecordRef>,
}

/// Five results in the log, and a reader.
async fn stage() -> Stage {
    let settings = support::settings(&[]);
    let bus = support::bus(&settings).await;
    let node = support::node(&settings, bus.clone(), Spans::off()).await;
    for name in ["a", "b", "c", "d", "e"] {
        let envelope = support::result(&support::task("i", name), &format!("output of {name}"));
        support::put(&node, &bus, &Topic::Coordinator, 3, &envelope).await;
    }
    let records = support::contents(&node, &bus, &Topic::Coordinator).await;
    let codec = Codec::default();
    let refs =
        records.iter().map(|record| reference(record, &codec.decode(record.value()).unwrap())).collect();
    let counting =
        Arc::new(Counting { bus: bus.clone(), reads: AtomicUsize::new(0), records: AtomicUsize::new(0) });
    let reader = ContentReader::new(counting.clone(), codec, ContentOptions::default());
    Stage { bus, counting, reader, refs }
}

#[tokio::test]
async fn many_come_in_one_read_and_are_read_once() {
    let stage = stage().await;
    let both =
        futures::future::join(stage.reader.get_many(&stage.refs), stage.reader.get_many(&stage.refs[1..3]));
    let (all, some) = both.await;
    let titles: Vec<String> = all.iter().map(|found| support::title(found.as_ref().unwrap())).collect();
    assert_eq!(titles, ["a", "b", "c", "d", "e"]);
    assert_eq!(support::title(some[0].as_ref().unwrap()), "b");
    assert!(stage.reader.get(&stage.refs[4]).await.is_ok());
    assert_eq!(stage.counting.reads.load(Ordering::SeqCst), 1);
    assert_eq!(stage.counting.records.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn another_record_than_the_one_meant_is_a_mismatch() {
    let stage = stage().await;
    let good = &stage.refs[0];
    let other_id = RecordRef { envelope_id: EnvelopeId::from_string("another"), ..good.clone() };
    let other_digest = RecordRef { digest: "00".repeat(32), ..good.clone() };
    let no_digest = RecordRef { digest: String::new(), ..good.clone() };
    for bad in [other_id, other_digest] {
        assert!(matches!(stage.reader.get(&bad).await, Err(ContentError::Mismatch(_))));
    }
    assert!(stage.reader.get(&no_digest).await.is_ok());
    let unreadable = PartitionId::new(good.topic.as_str(), good.partition);
    let offset = support::write(&stage.bus, unreadable, None, &[], b"no avro").await;
    let garbage = RecordRef { offset, ..good.clone() };
    assert!(matches!(stage.reader.get(&garbage).await, Err(ContentError::Mismatch(_))));
}

#[tokio::test]
async fn a_trimmed_record_is_gone_unless_it_is_cached() {
    let stage = stage().await;
    stage.reader.get(&stage.refs[0]).await.unwrap();
    let at = PartitionId::new(stage.refs[0].topic.as_str(), 3);
    stage.bus.trim(&at, stage.refs[2].offset).await.unwrap();
    assert!(stage.reader.get(&stage.refs[0]).await.is_ok());
    assert!(matches!(stage.reader.get(&stage.refs[1]).await, Err(ContentError::Gone(_))));
    let never = RecordRef { offset: 1_000_000, ..stage.refs[0].clone() };
    assert!(matches!(stage.reader.get(&never).await, Err(ContentError::Gone(_))));
    assert!(stage.reader.get(&stage.refs[2]).await.is_ok());
}

#[tokio::test]
async fn what_this_process_wrote_need_not_be_read() {
    let settings = support::settings(&[]);
    let bus = support::bus(&settings).await;
    let node = support::node(&settings, bus.clone(), Spans::off()).await;
    let outbox = Outbox::new(node.courier.clone(), "".into());
    let at = outbox.emit(support::result(&support::task("i", "mine"), "text")).await.unwrap();
    assert_eq!(at.tokens, 1);
    bus.trim(&PartitionId::new(at.topic.as_str(), at.partition), at.offset + 1).await.unwrap();
    assert_eq!(support::title(&node.content.get(&at).await.unwrap()), "mine");
}
