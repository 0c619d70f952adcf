//! Misfortunes that only the memory bus can have on demand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use futures::FutureExt;
use starling_bus::{
    Bus, CommitError, CommitFault, CommitOffset, Deliver, GroupConfig, GroupConsumer, GroupEvent, MemoryBus,
    MemoryOptions, MemoryRetention, OutRecord, PartitionId, ReaderEvent, SendError, SendFault, StartAt,
    TopicSpec, Watermarks,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

async fn bus_with(options: MemoryOptions, settings: &[(&str, &str)]) -> (Arc<MemoryBus>, PartitionId) {
    let bus = MemoryBus::new(options);
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let spec = TopicSpec { name: "t".into(), partitions: 2, replication: -1, settings };
    bus.create_topics(&[spec]).await.unwrap();
    (bus, PartitionId::new("t", 0))
}

async fn bus() -> (Arc<MemoryBus>, PartitionId) {
    bus_with(MemoryOptions::default(), &[]).await
}

fn record(at: &PartitionId, text: &'static str) -> OutRecord {
    let payload = Some(Bytes::from_static(text.as_bytes()));
    OutRecord { to: at.clone(), key: None, headers: Vec::new(), payload }
}

fn group(name: &str) -> GroupConfig {
    GroupConfig {
        group: name.into(),
        topics: vec!["t".into()],
        deliver: Deliver::Records,
        instance: None,
        session_timeout: Duration::from_secs(10),
        revoke_timeout: Duration::from_secs(5),
        queue_records: 100,
    }
}

async fn texts(bus: &Arc<MemoryBus>, at: &PartitionId) -> Vec<String> {
    let Watermarks { low, high } = bus.watermarks(at).await.unwrap();
    let wanted: Vec<_> = (low..high).map(|offset| (at.clone(), offset)).collect();
    let read = bus.read(&wanted).await;
    read.iter().map(|record| String::from_utf8_lossy(record.as_ref().unwrap().value()).into_owned()).collect()
}

async fn next_text(member: &Arc<dyn GroupConsumer>) -> String {
    loop {
        if let GroupEvent::Record(record) = member.next().await {
            return String::from_utf8_lossy(record.value()).into_owned();
        }
    }
}

fn commit_of(at: &PartitionId, offset: i64) -> Vec<CommitOffset> {
    vec![CommitOffset { at: at.clone(), offset, metadata: String::new() }]
}

#[tokio::test]
async fn an_unknown_append_may_land_later_and_out_of_order() {
    let (bus, at) = bus().await;
    bus.faults().on_send(&at, SendFault::UnknownLandsLater);
    assert!(matches!(bus.send(record(&at, "a")).await, Err(SendError::Unknown { .. })));
    assert_eq!(bus.send(record(&at, "b")).await.unwrap().offset, Some(0));
    assert_eq!(bus.faults().release(&at), 1);
    assert_eq!(texts(&bus, &at).await, ["b", "a"]);
}

#[tokio::test]
async fn an_unknown_append_is_there_or_is_not() {
    let (bus, at) = bus().await;
    bus.faults().on_send(&at, SendFault::UnknownWritten);
    bus.faults().on_send(&at, SendFault::UnknownNotWritten);
    for text in ["a", "b"] {
        assert!(matches!(bus.send(record(&at, text)).await, Err(SendError::Unknown { .. })));
    }
    assert_eq!(texts(&bus, &at).await, ["a"]);
}

#[tokio::test]
async fn acknowledged_without_an_offset_and_written_twice() {
    let (bus, at) = bus().await;
    bus.faults().on_send(&at, SendFault::WithoutOffset);
    bus.faults().on_send(&at, SendFault::Twice);
    assert_eq!(bus.send(record(&at, "a")).await.unwrap().offset, None);
    assert_eq!(bus.send(record(&at, "b")).await.unwrap().offset, Some(1));
    assert_eq!(texts(&bus, &at).await, ["a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_append_waits_and_is_overtaken() {
    let (bus, at) = bus().await;
    bus.faults().on_send(&at, SendFault::Delayed);
    let mut delayed = bus.send(record(&at, "a"));
    assert!((&mut delayed).now_or_never().is_none());
    bus.send(record(&at, "b")).await.unwrap();
    let started = Instant::now();
    bus.flush(Duration::from_secs(3)).await;
    assert!(started.elapsed() >= Duration::from_secs(3), "something is still under way");
    bus.faults().release(&at);
    assert_eq!(delayed.await.unwrap().offset, Some(1));

    bus.faults().on_send(&at, SendFault::Delayed);
    let lost = bus.send(record(&at, "c"));
    bus.faults().lose(&at);
    assert!(matches!(lost.await, Err(SendError::Unknown { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_fenced_then_lost_then_a_member_again() {
    let (bus, at) = bus().await;
    let zombie = bus.join(group("g")).await.unwrap();
    assert!(matches!(zombie.next().await, GroupEvent::Assigned(all) if all.len() == 2));
    let id = bus.faults().members("g")[0];
    bus.faults().expire("g", id);
    let heir = bus.join(group("g")).await.unwrap();
    assert!(
        matches!(heir.next().await, GroupEvent::Assigned(all) if all.len() == 2),
        "nobody waits for the zombie"
    );
    heir.commit(commit_of(&at, 0)).await.unwrap();
    assert!(matches!(zombie.commit(commit_of(&at, 0)).await, Err(CommitError::Fenced(_))));
    assert!(matches!(zombie.next().await, GroupEvent::Lost(all) if all.len() == 2));
    loop {
        match heir.next().await {
            GroupEvent::Revoked(all, acknowledge) => {
                assert_eq!(all.len(), 1);
                break acknowledge.acknowledge();
            }
            GroupEvent::End { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(zombie.next().await, GroupEvent::Assigned(all) if all.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn partitions_go_without_acknowledgement_once_the_time_is_up() {
    let (bus, _) = bus().await;
    let silent = bus.join(group("g")).await.unwrap();
    let started = Instant::now();
    let newcomer = bus.join(group("g")).await.unwrap();
    assert!(matches!(newcomer.next().await, GroupEvent::Assigned(all) if all.len() == 1));
    assert_eq!(started.elapsed().as_secs(), 5);
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_forced_rebalance_takes_and_gives() {
    let (bus, _) = bus().await;
    let member = bus.join(group("g")).await.unwrap();
    member.next().await;
    bus.faults().rebalance("g");
    let GroupEvent::Revoked(all, acknowledge) = member.next().await else { panic!("nothing was revoked") };
    assert_eq!(all.len(), 2);
    drop(acknowledge);
    assert!(matches!(member.next().await, GroupEvent::Assigned(all) if all.len() == 2));
}

#[tokio::test]
async fn commits_are_refused_or_their_answer_is_lost() {
    let (bus, at) = bus().await;
    let member = bus.join(group("g")).await.unwrap();
    let refusal = CommitError::Retry("coordinator moved".into());
    bus.faults().on_commit("g", CommitFault::Refused(refusal.clone()));
    bus.faults().on_commit("g", CommitFault::AnswerLost);
    assert_eq!(member.commit(commit_of(&at, 1)).await, Err(refusal));
    assert_eq!(bus.committed("g", &at).await.unwrap(), None);
    assert!(matches!(member.commit(commit_of(&at, 2)).await, Err(CommitError::Retry(_))));
    assert_eq!(bus.committed("g", &at).await.unwrap().unwrap().offset, 2);
}

#[tokio::test]
async fn records_can_come_twice() {
    let (bus, at) = bus().await;
    for text in ["a", "b"] {
        bus.send(record(&at, text)).await.unwrap();
    }
    let member = bus.join(group("g")).await.unwrap();
    assert_eq!((next_text(&member).await, next_text(&member).await), ("a".into(), "b".into()));
    bus.faults().redeliver(&at, 1);
    assert_eq!(next_text(&member).await, "b");
}

#[tokio::test]
async fn a_log_trimmed_under_its_reader_is_loud() {
    let (bus, at) = bus().await;
    for text in ["a", "b", "c"] {
        bus.send(record(&at, text)).await.unwrap();
    }
    let reader = bus.reader().await.unwrap();
    reader.add(at.clone(), StartAt::Beginning).await.unwrap();
    bus.trim(&at, 2).await.unwrap();
    let event = reader.next().await;
    assert!(matches!(event, starling_bus::ReaderEvent::OutOfRange { offset: 0, .. }), "{event:?}");
}

#[tokio::test]
async fn a_full_partition_forgets_only_what_every_group_has_done() {
    let options = MemoryOptions { max_bytes_per_partition: 600, ..MemoryOptions::default() };
    let (bus, at) = bus_with(options.clone(), &[]).await;
    let member = bus.join(group("g")).await.unwrap();
    let mut taken = 0;
    let full = loop {
        match bus.send(record(&at, "x")).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, SendError::NotSent { .. }));
    member.commit(commit_of(&at, 1)).await.unwrap();
    bus.send(record(&at, "y")).await.unwrap();
    assert!(bus.send(record(&at, "z")).await.is_err());
    assert_eq!(bus.watermarks(&at).await.unwrap(), Watermarks { low: 1, high: taken + 1 });

    let (unread, at) = bus_with(options.clone(), &[]).await;
    for _ in 0..50 {
        unread.send(record(&at, "x")).await.unwrap();
    }
    assert_eq!(unread.watermarks(&at).await.unwrap(), Watermarks { low: 50 - taken, high: 50 });

    let (kept, at) = bus_with(options, &[("retention.ms", "-1")]).await;
    let results: Vec<_> = futures::future::join_all((0..50).map(|_| kept.send(record(&at, "x")))).await;
    assert_eq!(i64::try_from(results.iter().filter(|result| result.is_ok()).count()).unwrap(), taken);
    assert_eq!(kept.watermarks(&at).await.unwrap().low, 0);
}

#[tokio::test]
async fn the_record_limit_can_shrink() {
    let (bus, at) = bus().await;
    bus.faults().set_max_record_bytes(10);
    assert!(matches!(bus.send(record(&at, "a")).await, Err(SendError::Refused { .. })));
    let settings = BTreeMap::new();
    assert!(
        bus.create_topics(&[TopicSpec { name: "none".into(), partitions: 0, replication: 1, settings }])
            .await
            .is_err()
    );
}

/// A bus that forgets what has ended once it holds more than 20 kB.
async fn forgetful() -> Arc<MemoryBus> {
    let retention = MemoryRetention {
        max_bytes: 20_000,
        begins_in: "in".into(),
        ends_in: "out".into(),
        longest: Duration::from_secs(3600),
    };
    let bus = MemoryBus::new(MemoryOptions { retention: Some(retention), ..MemoryOptions::default() });
    let spec = |name: &str, kept: &str| TopicSpec {
        name: name.into(),
        partitions: 1,
        replication: -1,
        settings: BTreeMap::from([("retention.ms".to_owned(), kept.to_owned())]),
    };
    let topics = [spec("in", "60000"), spec("out", "60000"), spec("t", "60000"), spec("log", "-1")];
    bus.create_topics(&topics).await.unwrap();
    bus
}

/// A kilobyte about something.
async fn about(bus: &Arc<MemoryBus>, topic: &str, subject: &str) -> i64 {
    let headers = match subject {
        "" => Vec::new(),
        subject => vec![("ce_subject".to_owned(), Bytes::from(subject.to_owned()))],
    };
    let payload = Some(Bytes::from(vec![b'x'; 1_000]));
    bus.send(OutRecord { to: PartitionId::new(topic, 0), key: None, headers, payload })
        .await
        .unwrap()
        .offset
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn where_memory_is_short_what_has_ended_goes_and_what_is_live_stays_readable() {
    let bus = forgetful().await;
    let (work, log) = (PartitionId::new("t", 0), PartitionId::new("log", 0));
    let member = bus.join(group("g")).await.unwrap();
    about(&bus, "in", "live").await;
    about(&bus, "log", "").await;
    let live = about(&bus, "t", "live").await;
    let of_nothing = about(&bus, "t", "").await;
    for n in 0..100 {
        let subject = format!("s{n}");
        about(&bus, "in", &subject).await;
        let offset = about(&bus, "t", &subject).await;
        while let Some(event) = member.next().now_or_never() {
            drop(event);
        }
        member.commit(commit_of(&work, offset + 1)).await.unwrap();
        about(&bus, "out", &subject).await;
    }
    let marks = bus.watermarks(&work).await.unwrap();
    let wanted: Vec<_> = (0..marks.high).map(|offset| (work.clone(), offset)).collect();
    let left: Vec<i64> =
        bus.read(&wanted).await.into_iter().filter_map(|read| Some(read.ok()?.offset)).collect();
    assert!(left.starts_with(&[live, of_nothing]) && left.len() < 25, "{left:?}");
    assert_eq!(bus.watermarks(&log).await.unwrap(), Watermarks { low: 0, high: 1 }, "its owner trims it");

    // Readers pass over what is missing.
    let reader = bus.reader().await.unwrap();
    reader.add(work.clone(), StartAt::Beginning).await.unwrap();
    let mut seen = Vec::new();
    loop {
        match reader.next().await {
            ReaderEvent::Record(record) => seen.push(record.offset),
            ReaderEvent::End { next_offset, .. } => {
                assert_eq!(next_offset, marks.high);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, left);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_committed_or_not_read_is_kept_however_little_memory_there_is() {
    let bus = forgetful().await;
    let work = PartitionId::new("t", 0);
    let member = bus.join(group("g")).await.unwrap();
    let reader = bus.reader().await.unwrap();
    reader.add(PartitionId::new("out", 0), StartAt::Beginning).await.unwrap();
    for _ in 0..50 {
        about(&bus, "t", "ended").await;
        about(&bus, "out", "ended").await;
    }
    assert_eq!(bus.watermarks(&work).await.unwrap(), Watermarks { low: 0, high: 50 });
    assert_eq!(bus.watermarks(&PartitionId::new("out", 0)).await.unwrap(), Watermarks { low: 0, high: 50 });
    while let Some(event) = member.next().now_or_never() {
        drop(event);
    }
    member.commit(commit_of(&work, 40)).await.unwrap();
    for _ in 0..40 {
        assert!(matches!(reader.next().await, ReaderEvent::Record(_)));
    }
    tokio::time::advance(Duration::from_secs(120)).await;
    for _ in 0..40 {
        about(&bus, "t", "ended").await;
    }
    assert_eq!(bus.watermarks(&work).await.unwrap().low, 40);
    assert_eq!(bus.watermarks(&PartitionId::new("out", 0)).await.unwrap().low, 40);
}
