//! What is decided, once.

use crate::world::{MAX_RECORD, PARTITIONS, World, eventually};
use starling_protocol::Topic;
use starling_runtime::stateful::StatefulOptions;
use std::sync::atomic::Ordering;

#[tokio::test(start_paused = true)]
async fn every_input_is_decided_once_and_the_commit_follows() {
    let world = World::new().await;
    let running = world.start().await;
    let intents: Vec<_> = (0..PARTITIONS).map(|p| world.intent(p, 0)).collect();
    for _ in 0..300 {
        for intent in &intents {
            world.input(intent, "").await;
        }
    }
    for (partition, intent) in (0..).zip(&intents) {
        world.counted(intent, 300).await;
        let expected: Vec<String> = (1..=300).map(|n| n.to_string()).collect();
        assert_eq!(world.said(intent).await, expected, "in order, and none twice");
        eventually("the commit follows", async || {
            let inbox = world.at(&Topic::Coordinator, partition);
            let committed = world.bus.committed("t.coordinator", &inbox).await.unwrap();
            committed.is_some_and(|committed| committed.offset == 300)
        })
        .await;
    }
    assert_eq!(running.count("inputs"), 1200);
    assert!(running.count("decisions") < 1200, "inputs that wait are decided together");
    assert!(running.report.is_ready());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_or_lies_in_the_wrong_partition_is_a_dead_letter() {
    let world = World::new().await;
    let running = world.start().await;
    let stray = world.intent(1, 0);
    let stray = world.codec.encode(&crate::world::envelope(&stray, "")).unwrap();
    world.put(2, b"rubbish".to_vec()).await;
    world.put(2, stray.clone()).await;
    let intent = world.intent(2, 0);
    world.input(&intent, "").await;
    world.counted(&intent, 1).await;

    eventually("two dead letters", async || world.records(&Topic::Dlq, 2).await.len() == 2).await;
    let letters = world.records(&Topic::Dlq, 2).await;
    let payloads: Vec<_> = letters.iter().map(|letter| letter.value().to_vec()).collect();
    assert_eq!(payloads, [b"rubbish".to_vec(), stray]);
    for (offset, letter) in letters.iter().enumerate() {
        assert_eq!(letter.key.as_deref(), Some(b"the key".as_slice()));
        assert_eq!(letter.header("a-header"), Some("its value"));
        assert_eq!(letter.header("starling-dlq-topic"), Some("t.coordinator"));
        assert_eq!(letter.header("starling-dlq-partition"), Some("2"));
        assert_eq!(letter.header("starling-dlq-offset"), Some(offset.to_string().as_str()));
    }
    let header =
        |name: &str| letters.iter().map(|letter| letter.header(name).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(header("starling-dlq-code"), ["undecodable", "misplaced"]);
    assert_eq!(header("starling-dlq-count"), ["1", "1"]);
    assert_eq!(header("starling-dlq-group"), ["t.coordinator", "t.coordinator"]);
    assert_eq!(header("starling-dlq-process"), ["planner-test", "planner-test"]);
    let reason = letters[1].header("starling-dlq-reason").unwrap();
    assert!(reason.contains("belongs to partition 1"), "{reason}");
    assert_eq!(running.count("dead_letters"), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn batches_are_cut_by_size_and_queues_are_bounded() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    for _ in 0..400 {
        world.input(&intent, "").await;
    }
    // Far more waits than may be in hand: reading pauses and goes on.
    let options = StatefulOptions { queue_records: 90, queue_bytes: 9_000, ..world.options() };
    let running = world.start_with(options).await;
    world.counted(&intent, 400).await;
    for record in world.records(&Topic::State, 0).await {
        assert!(record.value().len() <= MAX_RECORD);
    }
    assert!(running.count("decisions") > 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn timers_fire_and_wait_for_the_backlog_after_a_takeover() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    let running = world.start().await;
    let due = world.now().0 + 5_000;
    world.input(&intent, &format!("timer {due}")).await;
    eventually("the timer fires", async || world.said(&intent).await == ["1", "time"]).await;
    assert!(world.now().0 >= due);

    let due = world.now().0 + 60_000;
    world.input(&intent, &format!("timer {due}")).await;
    eventually("it is counted", async || world.said(&intent).await.len() == 3).await;
    running.stop().await;
    world.ahead.fetch_add(120_000, Ordering::Relaxed);
    for _ in 0..500 {
        world.input(&intent, "").await;
    }
    let running = world.start_with(StatefulOptions { max_batch: 7, ..world.options() }).await;
    eventually("the timer fires", async || world.said(&intent).await.len() == 504).await;
    assert_eq!(world.said(&intent).await.last().unwrap(), "time", "after all that waited");
    running.stop().await;
}
