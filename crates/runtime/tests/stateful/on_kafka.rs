//! The same on a real broker: what the memory bus cannot show.

use crate::world::{World, eventually};
use starling_bus::{KafkaBus, KafkaOptions, LogReader, OutRecord, ReaderEvent, StartAt};
use starling_protocol::Topic;
use starling_runtime::stateful::StatefulOptions;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `None` if only the memory bus is to be tested.
async fn world(name: &str) -> Option<World> {
    if std::env::var("STARLING_TEST_MEMORY_ONLY").is_ok_and(|value| value == "1") {
        return None;
    }
    let brokers = std::env::var("STARLING_TEST_BROKERS").expect(
        "STARLING_TEST_BROKERS is not set: run `make test`, which brings up a broker, \
         or set STARLING_TEST_MEMORY_ONLY=1 to leave Kafka out",
    );
    let bus = KafkaBus::new(KafkaOptions::new(brokers)).unwrap();
    Some(World::on(bus, &format!("test-{name}-{:016x}", rand::random::<u64>())).await)
}

async fn follow(world: &World, topic: &Topic) -> Arc<dyn LogReader> {
    let reader = world.bus.reader().await.unwrap();
    for partition in 0..4 {
        reader.add(world.at(topic, partition), StartAt::End).await.unwrap();
    }
    reader
}

async fn next(reader: &Arc<dyn LogReader>) {
    while !matches!(reader.next().await, ReaderEvent::Record(_)) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_owner_is_replaced_and_nothing_is_decided_twice() {
    let Some(world) = world("killed").await else { return };
    let session_timeout = Duration::from_secs(6);
    let options = StatefulOptions { session_timeout, snapshot_decisions: 40, ..world.options() };
    let intents: Vec<_> = (0..4).map(|partition| world.intent(partition, 0)).collect();
    let first = world.start_with(options.clone()).await;
    for count in 1..=100 {
        for intent in &intents {
            world.input(intent, "").await;
        }
        if count == 50 {
            eventually("some are decided", async || first.count("inputs") > 20).await;
        }
    }
    first.kill().await;
    let second = world.start_with(options.clone()).await;
    for intent in &intents {
        world.counted(intent, 100).await;
    }

    // An orderly change of owner repeats nothing.
    let third = world.start_with(options).await;
    eventually("the partitions are shared", async || third.report.partitions().borrow().len() == 2).await;
    second.stop().await;
    for intent in &intents {
        world.input(intent, "").await;
    }
    for intent in &intents {
        world.counted(intent, 101).await;
    }
    assert_eq!(third.count("effects_repeated"), 0);

    // What one input takes while nothing else happens, the acknowledged decision included, beside a plain hop.
    let plain_hops = follow(&world, &Topic::Progress).await;
    let outcomes = follow(&world, &Topic::Outcomes).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (mut plain, mut decided) = (Vec::new(), Vec::new());
    for (partition, intent) in (0..4).zip(&intents).cycle().take(200) {
        let began = Instant::now();
        let to = world.at(&Topic::Progress, partition);
        drop(world.bus.send(OutRecord { to, key: None, headers: Vec::new(), payload: Some("plain".into()) }));
        next(&plain_hops).await;
        plain.push(began.elapsed());
        let began = Instant::now();
        world.input(intent, "").await;
        next(&outcomes).await;
        decided.push(began.elapsed());
    }
    for (name, mut took) in [("a plain hop", plain), ("input to outcome", decided)] {
        took.sort();
        println!("{name}: p50 {:?}, p90 {:?}", took[took.len() / 2], took[took.len() * 9 / 10]);
    }
    third.stop().await;
    for partition in 0..4 {
        assert!(world.log(partition).await.0.pending.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_both_believe_never_both_decide() {
    let Some(world) = world("believers").await else { return };
    let intents: Vec<_> = (0..4).map(|partition| world.intent(partition, 0)).collect();
    let one = world.start().await;
    let group = format!("{}-other", world.options().group);
    let other = world.start_with(StatefulOptions { group, ..world.options() }).await;
    for _ in 0..100 {
        for intent in &intents {
            world.input(intent, "").await;
        }
    }
    for intent in &intents {
        world.counted(intent, 100).await;
    }
    one.stop().await;
    other.stop().await;
    for (partition, intent) in (0..).zip(&intents) {
        world.counted(intent, 100).await;
        let (position, accepted) = world.log(partition).await;
        assert_eq!(position.seq, accepted as i64);
    }
}
