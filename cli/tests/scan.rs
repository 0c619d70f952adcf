//! What a scan reads, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use starling::scan::{Period, Scan, ScanError, Span, spans};
use starling_bus::{
    Bus, BusError, Committed, DeliveryFuture, GroupConfig, GroupConsumer, InRecord, Inspector, LogReader,
    MemoryBus, MemoryOptions, OutRecord, PartitionId, ReadError, ReaderEvent, StartAt, TopicSpec, Watermarks,
};
use starling_protocol::Timestamp;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

const SHORT: Duration = Duration::from_millis(50);

/// A bus on which every record is a millisecond younger than the one before.
async fn bus(topics: &[(&str, i32)]) -> Arc<MemoryBus> {
    let clock = AtomicI64::new(1_000);
    let clock = Arc::new(move || Timestamp(clock.fetch_add(1, Ordering::Relaxed)));
    let bus = MemoryBus::new(MemoryOptions { clock, ..MemoryOptions::default() });
    let specs: Vec<TopicSpec> = topics
        .iter()
        .map(|(name, partitions)| TopicSpec {
            name: (*name).to_owned(),
            partitions: *partitions,
            replication: 1,
            settings: BTreeMap::new(),
        })
        .collect();
    bus.create_topics(&specs).await.unwrap();
    bus
}

async fn fill(bus: &dyn Bus, at: &PartitionId, count: usize) {
    for _ in 0..count {
        let payload = Some(Bytes::from_static(b"x"));
        let record = OutRecord { to: at.clone(), key: None, headers: Vec::new(), payload };
        bus.send(record).await.unwrap();
    }
}

async fn read(scan: &mut Scan) -> Vec<(String, i64)> {
    let mut read = Vec::new();
    while let Some(record) = scan.next().await.unwrap() {
        read.push((record.at.to_string(), record.offset));
    }
    read.sort();
    read
}

fn names(topics: &[&str]) -> Vec<String> {
    topics.iter().map(|topic| (*topic).to_owned()).collect()
}

#[tokio::test]
async fn what_lies_there_is_read_once_and_what_comes_later_is_not() {
    let bus = bus(&[("a", 3), ("b", 1), ("empty", 2)]).await;
    let (a0, a2, b) = (PartitionId::new("a", 0), PartitionId::new("a", 2), PartitionId::new("b", 0));
    fill(bus.as_ref(), &a0, 3).await;
    fill(bus.as_ref(), &a2, 4).await;
    fill(bus.as_ref(), &b, 1).await;
    bus.trim(&a2, 2).await.unwrap();
    let topics = names(&["a", "empty", "b"]);
    let expected = [(&a2, 2, 4), (&a0, 0, 3), (&b, 0, 1)];
    let found = spans(bus.as_ref(), &topics, None).await.unwrap();
    assert_eq!(found.len(), expected.len());
    for (at, from, to) in expected {
        assert!(found.contains(&Span { at: at.clone(), from, to }), "{found:?}");
    }
    let mut scan = Scan::open(bus.clone(), &topics, Period::default()).await.unwrap();
    for at in [&a0, &a2, &b] {
        fill(bus.as_ref(), at, 2).await;
    }
    let expected = [("a[0]", 0), ("a[0]", 1), ("a[0]", 2), ("a[2]", 2), ("a[2]", 3), ("b[0]", 0)];
    assert_eq!(read(&mut scan).await, expected.map(|(at, offset)| (at.to_owned(), offset)));
    assert_eq!(scan.next().await, Ok(None), "it stays at its end");
    assert!(scan.shortened().is_empty());

    let missing = Scan::open(bus, &names(&["missing"]), Period::default()).await.err();
    assert!(matches!(missing, Some(ScanError::Bus(BusError::NoSuchTopic { .. }))), "{missing:?}");
}

#[tokio::test]
async fn a_period_takes_its_records_only() {
    let bus = bus(&[("a", 2)]).await;
    let at = PartitionId::new("a", 0);
    fill(bus.as_ref(), &at, 6).await;
    let times: Vec<_> = (0..6).map(|offset| (at.clone(), offset)).collect();
    let times: Vec<Timestamp> =
        bus.read(&times).await.into_iter().map(|record| record.unwrap().timestamp).collect();
    let (since, until) = (Some(times[2]), Some(times[4]));
    for (period, expected) in [
        (Period { since, until: None }, vec![2, 3, 4, 5]),
        (Period { since: None, until }, vec![0, 1, 2, 3]),
        (Period { since, until }, vec![2, 3]),
        (Period { since: Some(times[5].plus(SHORT)), until: None }, vec![]),
    ] {
        let scan = Scan::open(bus.clone(), &names(&["a"]), period).await.unwrap();
        let records: Vec<InRecord> = scan.records().try_collect().await.unwrap();
        assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), expected, "{period:?}");
    }
}

#[tokio::test]
async fn what_is_deleted_meanwhile_is_passed_over_and_told() {
    let bus = bus(&[("a", 1)]).await;
    let at = PartitionId::new("a", 0);
    fill(bus.as_ref(), &at, 6).await;
    let mut scan = Scan::open(bus.clone(), &names(&["a"]), Period::default()).await.unwrap();
    assert_eq!(scan.next().await.unwrap().unwrap().offset, 0);
    bus.trim(&at, 4).await.unwrap();
    assert_eq!(read(&mut scan).await, [("a[0]".to_owned(), 4), ("a[0]".to_owned(), 5)]);
    assert!(scan.shortened().contains(&at));

    let mut scan = Scan::open(bus.clone(), &names(&["a"]), Period::default()).await.unwrap();
    bus.trim(&at, 6).await.unwrap();
    fill(bus.as_ref(), &at, 1).await;
    assert_eq!(scan.next().await, Ok(None), "nothing of what was there is left");
}

#[tokio::test]
async fn gaps_are_no_records_and_no_reason_to_wait() {
    let inner = bus(&[("a", 1)]).await;
    let at = PartitionId::new("a", 0);
    fill(inner.as_ref(), &at, 6).await;
    // Compacted away in the middle, and the end of a transaction at the end.
    let gappy = Arc::new(Odd { inner, oddity: Oddity::Without(&[1, 2, 5]) });
    let mut scan = Scan::open(gappy, &names(&["a"]), Period::default()).await.unwrap();
    let offsets = [0, 3, 4].map(|offset| ("a[0]".to_owned(), offset));
    assert_eq!(read(&mut scan).await, offsets);
}

#[tokio::test]
async fn a_silent_broker_is_an_error_that_names_what_is_missing() {
    let inner = bus(&[("a", 1)]).await;
    let at = PartitionId::new("a", 0);
    fill(inner.as_ref(), &at, 3).await;
    let silent = Arc::new(Odd { inner, oddity: Oddity::SilentFrom(2) });
    let scan = Scan::open(silent, &names(&["a"]), Period::default()).await.unwrap();
    let mut scan = scan.patience(SHORT);
    assert_eq!(scan.next().await.unwrap().unwrap().offset, 0);
    assert_eq!(scan.next().await.unwrap().unwrap().offset, 1);
    let error = scan.next().await.unwrap_err();
    let trouble = Some(BusError::Retry("the wire is cut".to_owned()));
    assert_eq!(error, ScanError::Silent { at, to: 3, patience: SHORT, trouble });
    for part in ["a[0]", "offset 3", "the wire is cut"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// A bus whose readers are told less than there is.
struct Odd {
    inner: Arc<MemoryBus>,
    oddity: Oddity,
}

#[derive(Clone, Copy)]
enum Oddity {
    /// There is nothing at these offsets.
    Without(&'static [i64]),
    /// From that offset on nothing comes but trouble.
    SilentFrom(i64),
}

struct OddReader(Arc<dyn LogReader>, Oddity);

#[async_trait]
impl LogReader for OddReader {
    async fn add(&self, partition: PartitionId, start: StartAt) -> Result<(), BusError> {
        self.0.add(partition, start).await
    }
    async fn remove(&self, partition: &PartitionId) {
        self.0.remove(partition).await;
    }
    fn pause(&self, partition: &PartitionId) {
        self.0.pause(partition);
    }
    fn resume(&self, partition: &PartitionId) {
        self.0.resume(partition);
    }
    async fn next(&self) -> ReaderEvent {
        loop {
            match (self.0.next().await, self.1) {
                (ReaderEvent::Record(record), Oddity::Without(gaps)) if gaps.contains(&record.offset) => {}
                (ReaderEvent::Record(record), Oddity::SilentFrom(from)) if record.offset >= from => {
                    return ReaderEvent::Trouble(BusError::Retry("the wire is cut".to_owned()));
                }
                (ReaderEvent::End { .. }, Oddity::SilentFrom(_)) => {}
                (event, _) => return event,
            }
        }
    }
}

#[async_trait]
impl Bus for Odd {
    fn send(&self, record: OutRecord) -> DeliveryFuture {
        self.inner.send(record)
    }
    async fn join(&self, config: GroupConfig) -> Result<Arc<dyn GroupConsumer>, BusError> {
        self.inner.join(config).await
    }
    async fn reader(&self) -> Result<Arc<dyn LogReader>, BusError> {
        Ok(Arc::new(OddReader(self.inner.reader().await?, self.oddity)))
    }
    async fn read(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>> {
        self.inner.read(at).await
    }
    async fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        self.inner.partitions(topic).await
    }
    async fn watermarks(&self, partition: &PartitionId) -> Result<Watermarks, BusError> {
        self.inner.watermarks(partition).await
    }
    async fn committed(&self, group: &str, partition: &PartitionId) -> Result<Option<Committed>, BusError> {
        self.inner.committed(group, partition).await
    }
    async fn create_topics(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError> {
        self.inner.create_topics(topics).await
    }
    async fn trim(&self, partition: &PartitionId, offset: i64) -> Result<(), BusError> {
        self.inner.trim(partition, offset).await
    }
    async fn flush(&self, within: Duration) {
        self.inner.flush(within).await;
    }
    fn inspector(&self) -> Arc<dyn Inspector> {
        self.inner.inspector()
    }
}
