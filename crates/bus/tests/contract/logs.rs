//! Partitions as logs: sending, single reads, readers.

use crate::world::{MAX_RECORD, PATIENCE, World, heard, numbers, read_to_end, record, text};
use bytes::Bytes;
use futures::future::join_all;
use starling_bus::{
    BusError, OutRecord, PartitionId, ReadError, ReaderEvent, SendError, StartAt, Watermarks,
};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};
use tokio::time::timeout;

pub(crate) async fn order_and_content_are_kept(world: World) {
    let topic = world.topic("order", 2).await;
    let at = PartitionId::new(topic.clone(), 1);
    let sent: Vec<OutRecord> = (0..500)
        .map(|n| OutRecord {
            to: at.clone(),
            key: (n % 2 == 0).then(|| Bytes::from(format!("key {n}"))),
            headers: vec![("a".into(), Bytes::from(n.to_string())), ("a".into(), Bytes::new())],
            payload: (n % 10 != 0).then(|| Bytes::from(n.to_string())),
        })
        .collect();
    let results = join_all(sent.iter().map(|record| world.bus.send(record.clone()))).await;
    let offsets: Vec<_> = results.into_iter().map(|result| result.unwrap().offset.unwrap()).collect();
    assert_eq!(offsets, (0..500).collect::<Vec<i64>>());
    assert_eq!(world.bus.watermarks(&at).await.unwrap(), Watermarks { low: 0, high: 500 });

    let reader = world.bus.reader().await.unwrap();
    reader.add(at.clone(), StartAt::Beginning).await.unwrap();
    for (offset, sent) in sent.iter().enumerate() {
        let ReaderEvent::Record(record) = heard(&reader).await else { panic!("no record at {offset}") };
        assert_eq!((&record.at, record.offset), (&at, offset as i64));
        assert_eq!(
            (&record.key, &record.headers, &record.payload),
            (&sent.key, &sent.headers, &sent.payload)
        );
        assert!(record.timestamp.0 > 1_600_000_000_000, "a time in milliseconds");
    }
    assert!(matches!(heard(&reader).await, ReaderEvent::End { next_offset: 500, .. }));
}

pub(crate) async fn a_record_too_large_is_refused_and_the_next_is_taken(world: World) {
    let topic = world.topic("large", 1).await;
    let at = PartitionId::new(topic, 0);
    let large = world.bus.send(record(&at, vec![0; MAX_RECORD + 1])).await;
    assert!(matches!(large, Err(SendError::Refused { .. })), "{large:?}");
    let fits = world.bus.send(record(&at, vec![0; MAX_RECORD - 4096])).await;
    assert_eq!(fits.unwrap().offset, Some(0));
    assert_eq!(world.bus.send(record(&at, "next")).await.unwrap().offset, Some(1));
}

/// A broker takes or refuses all that comes in one batch: what fits is taken though one of them does not, and though all
/// of them together do not.
pub(crate) async fn no_record_is_refused_for_the_sake_of_another(world: World) {
    let topic = world.topic_for("batch", 1, 20_000).await;
    let at = PartitionId::new(topic, 0);
    // Nothing that can be compressed: the broker measures what arrives.
    let noise = |seed: u64, bytes: usize| -> Vec<u8> {
        let words = (0..bytes as u64 / 8).map(|word| {
            let mut hasher = DefaultHasher::new();
            (seed, word).hash(&mut hasher);
            hasher.finish()
        });
        words.flat_map(u64::to_le_bytes).collect()
    };
    let sizes = [1_000; 30].into_iter().chain([50_000]).chain([1_000; 30]);
    let sends = sizes.enumerate().map(|(n, bytes)| world.bus.send(record(&at, noise(n as u64, bytes))));
    let results = join_all(sends).await;
    let refused: Vec<usize> = (0..results.len()).filter(|n| results[*n].is_err()).collect();
    assert_eq!(refused, [30], "{:?}", results[refused[0]]);
    assert!(matches!(results[30], Err(SendError::Refused { .. })), "{:?}", results[30]);
    assert_eq!(world.bus.watermarks(&at).await.unwrap(), Watermarks { low: 0, high: 60 });
}

pub(crate) async fn a_full_queue_does_not_take_more(world: World) {
    let topic = world.topic("full", 1).await;
    let at = PartitionId::new(topic.clone(), 0);
    // A group that has read nothing yet: what it needs may not be removed to make room.
    let member = world.tight.join(world.group(&[&topic])).await.unwrap();
    let results = join_all((0..2000).map(|n| world.tight.send(record(&at, n.to_string())))).await;
    let refused = results.iter().filter(|result| matches!(result, Err(SendError::NotSent { .. }))).count();
    let taken = results.iter().filter(|result| result.is_ok()).count();
    assert!(refused > 0 && taken > 0, "{refused} refused, {taken} taken");
    assert_eq!(refused + taken, 2000);
    drop(member);
}

pub(crate) async fn single_records_are_read_in_the_order_asked_for(world: World) {
    let topic = world.topic("single", 3).await;
    let parts: Vec<_> = (0..3).map(|partition| PartitionId::new(topic.clone(), partition)).collect();
    for at in &parts {
        world.fill(at, 0..20).await;
    }
    let large = vec![7; 2 << 20];
    world.bus.send(record(&parts[2], large.clone())).await.unwrap();

    let wanted = [
        (parts[1].clone(), 19),
        (parts[0].clone(), 3),
        (parts[2].clone(), 20),
        (parts[0].clone(), 0),
        (parts[0].clone(), 3),
        (parts[1].clone(), 20),
        (parts[1].clone(), -1),
        (PartitionId::new(topic.clone(), 9), 0),
    ];
    let read = timeout(PATIENCE, world.bus.read(&wanted)).await.unwrap();
    assert_eq!(read.len(), wanted.len());
    for (result, (at, offset)) in read.iter().zip(&wanted).take(5) {
        let record = result.as_ref().unwrap();
        assert_eq!((&record.at, record.offset), (at, *offset));
    }
    assert_eq!(text(read[1].as_ref().unwrap()), "3");
    assert_eq!(read[2].as_ref().unwrap().value(), large);
    for result in &read[5..] {
        assert!(matches!(result, Err(ReadError::Gone(_))), "{result:?}");
    }
    assert!(world.bus.read(&[]).await.is_empty());
}

pub(crate) async fn trimmed_records_are_gone(world: World) {
    let topic = world.topic("trim", 1).await;
    let at = PartitionId::new(topic, 0);
    world.fill(&at, 0..10).await;
    world.bus.trim(&at, 4).await.unwrap();
    assert_eq!(world.bus.watermarks(&at).await.unwrap(), Watermarks { low: 4, high: 10 });
    let read = world.bus.read(&[(at.clone(), 3), (at.clone(), 4)]).await;
    assert!(matches!(read[0], Err(ReadError::Gone(_))), "{:?}", read[0]);
    assert_eq!(text(read[1].as_ref().unwrap()), "4");
    assert!(world.bus.trim(&at, 11).await.is_err(), "beyond the end");
}

pub(crate) async fn a_reader_starts_where_it_is_told(world: World) {
    let topic = world.topic("start", 3).await;
    let parts: Vec<_> = (0..3).map(|partition| PartitionId::new(topic.clone(), partition)).collect();
    for at in &parts {
        world.fill(at, 0..6).await;
    }
    let reader = world.bus.reader().await.unwrap();
    reader.add(parts[0].clone(), StartAt::Beginning).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (numbers(0..6), 6));
    reader.add(parts[1].clone(), StartAt::Offset(4)).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (numbers(4..6), 6));
    reader.add(parts[2].clone(), StartAt::End).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (vec![], 6));
    world.fill(&parts[2], 6..7).await;
    assert_eq!(read_to_end(&reader).await, (numbers(6..7), 7));
}

pub(crate) async fn a_removed_partition_is_silent_and_can_be_added_again(world: World) {
    let topic = world.topic("remove", 2).await;
    let (at, other) = (PartitionId::new(topic.clone(), 0), PartitionId::new(topic, 1));
    world.fill(&at, 0..3000).await;
    let reader = world.bus.reader().await.unwrap();
    reader.add(at.clone(), StartAt::Beginning).await.unwrap();
    for _ in 0..10 {
        assert!(matches!(heard(&reader).await, ReaderEvent::Record(_)));
    }
    reader.remove(&at).await;
    reader.add(other.clone(), StartAt::Beginning).await.unwrap();
    assert!(matches!(heard(&reader).await, ReaderEvent::End { at, .. } if at == other));
    let more = timeout(Duration::from_millis(300), reader.next()).await;
    assert!(more.is_err(), "of a removed partition: {more:?}");
    reader.remove(&other).await;

    reader.add(at.clone(), StartAt::Offset(2990)).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (numbers(2990..3000), 3000));
    reader.add(at.clone(), StartAt::Offset(2998)).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (numbers(2998..3000), 3000));
}

pub(crate) async fn a_reader_pauses_without_gap_or_repetition(world: World) {
    let topic = world.topic("readpause", 1).await;
    let at = PartitionId::new(topic, 0);
    let reader = world.bus.reader().await.unwrap();
    reader.add(at.clone(), StartAt::Beginning).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (vec![], 0));
    reader.pause(&at);
    // A record may still come that was under way; with the log at its end none is.
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.fill(&at, 0..50).await;
    let early = timeout(Duration::from_millis(300), reader.next()).await;
    assert!(early.is_err(), "while paused: {early:?}");
    reader.resume(&at);
    assert_eq!(read_to_end(&reader).await.0, numbers(0..50));
}

pub(crate) async fn an_offset_out_of_range_is_loud(world: World) {
    let topic = world.topic("range", 2).await;
    let at = PartitionId::new(topic.clone(), 0);
    let other = PartitionId::new(topic, 1);
    world.fill(&at, 0..10).await;
    world.fill(&other, 0..3).await;
    world.bus.trim(&at, 5).await.unwrap();
    let reader = world.bus.reader().await.unwrap();
    for offset in [2, 99] {
        reader.add(at.clone(), StartAt::Offset(offset)).await.unwrap();
        let event = heard(&reader).await;
        assert!(
            matches!(&event, ReaderEvent::OutOfRange { at: lost, offset: asked } if *lost == at && *asked == offset),
            "{event:?}"
        );
    }
    reader.add(other, StartAt::Beginning).await.unwrap();
    assert_eq!(read_to_end(&reader).await, (numbers(0..3), 3), "the others go on");
}

pub(crate) async fn topics_are_created_once_and_missing_ones_are_named(world: World) {
    let topic = world.topic("made", 5).await;
    assert_eq!(world.bus.partitions(&topic).await.unwrap(), 5);
    let spec = starling_bus::TopicSpec {
        name: topic.to_string(),
        partitions: 5,
        replication: 1,
        settings: std::collections::BTreeMap::new(),
    };
    assert!(world.bus.create_topics(&[spec]).await.unwrap().is_empty(), "it is there already");

    let missing = format!("{topic}.missing");
    let no_such = |error: BusError| assert_eq!(error, BusError::NoSuchTopic { topic: missing.clone() });
    no_such(world.bus.partitions(&missing).await.unwrap_err());
    let missing_topic = std::sync::Arc::from(missing.as_str());
    no_such(world.bus.join(world.group(&[&missing_topic])).await.err().unwrap());
    let reader = world.bus.reader().await.unwrap();
    no_such(reader.add(PartitionId::new(missing.as_str(), 0), StartAt::Beginning).await.unwrap_err());
}
