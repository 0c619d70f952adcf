//! What becomes of appends that do not go as they should.

use crate::world::{World, eventually};
use starling_bus::{OutRecord, SendFault};
use starling_protocol::state::{EpochStart, StateRecord};
use starling_protocol::{Timestamp, Topic};
use starling_runtime::stateful::{PartitionPhase, StatefulError, StatefulOptions};

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_an_append_every_input_is_decided_once() {
    use SendFault::{
        Delayed, NotSent, Refused, Twice, UnknownLandsLater, UnknownNotWritten, UnknownWritten, WithoutOffset,
    };
    for fault in [
        UnknownWritten,
        UnknownNotWritten,
        UnknownLandsLater,
        WithoutOffset,
        Twice,
        NotSent,
        Refused,
        Delayed,
    ] {
        let world = World::new().await;
        let (intent, state) = (world.intent(0, 0), world.at(&Topic::State, 0));
        let running = world.start().await;
        world.input(&intent, "").await;
        world.counted(&intent, 1).await;

        world.faults().on_send(&state, fault);
        world.input(&intent, "").await;
        world.input(&intent, "").await;
        if fault != Delayed {
            world.counted(&intent, 3).await;
        }
        // What was held back lands long after the epoch has ended, and must not count then.
        eventually("the append is given up", async || {
            matches!(fault, Twice | NotSent) || running.count("given_up") > 0
        })
        .await;
        world.faults().release(&state);
        world.input(&intent, "").await;
        world.counted(&intent, 4).await;
        running.stop().await;

        let (position, accepted) = world.log(0).await;
        assert_eq!(position.seq, accepted as i64, "{fault:?}");
        assert!(position.pending.is_empty(), "{fault:?}");
        assert_eq!(position.next_input, Some(4), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_that_both_believe_never_both_decide() {
    let world = World::new().await;
    let intents: Vec<_> = (0..4).map(|p| world.intent(p, 0)).collect();
    // Two groups: each believes that all partitions are its own.
    let one = world.start().await;
    let other = world.start_with(StatefulOptions { group: "t.other".into(), ..world.options() }).await;
    for _ in 0..60 {
        for intent in &intents {
            world.input(intent, "").await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(7)).await;
    }
    for intent in &intents {
        world.counted(intent, 60).await;
    }
    assert!(one.count("fenced") + other.count("fenced") > 0);
    one.stop().await;
    other.stop().await;
    for (partition, intent) in (0..).zip(&intents) {
        world.counted(intent, 60).await;
        let (position, accepted) = world.log(partition).await;
        assert_eq!(position.seq, accepted as i64);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_partitions_are_dropped_at_once_and_come_back() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    let running = world.start().await;
    world.input(&intent, "").await;
    world.counted(&intent, 1).await;
    let member = world.faults().members("t.coordinator")[0];
    world.faults().expire("t.coordinator", member);
    world.input(&intent, "").await;
    world.counted(&intent, 2).await;
    let second = world.start().await;
    world.input(&intent, "").await;
    world.counted(&intent, 3).await;
    world.faults().rebalance("t.coordinator");
    world.input(&intent, "").await;
    world.counted(&intent, 4).await;
    running.stop().await;
    world.input(&intent, "").await;
    world.counted(&intent, 5).await;
    second.stop().await;
    assert!(world.log(0).await.0.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn inputs_that_are_gone_stop_the_partition_loudly() {
    let world = World::new().await;
    let (intent, other) = (world.intent(0, 0), world.intent(1, 0));
    let running = world.start().await;
    world.input(&intent, "").await;
    world.counted(&intent, 1).await;
    running.stop().await;
    world.input(&intent, "").await;
    world.input(&intent, "").await;
    world.bus.trim(&world.at(&Topic::Coordinator, 0), 2).await.unwrap();

    let running = world.start().await;
    world.input(&other, "").await;
    world.counted(&other, 1).await; // the others go on
    eventually("it is noticed", async || running.count("out_of_range") > 0).await;
    let status = running.report.partitions().borrow()[&0].clone();
    assert!(matches!(status.phase, PartitionPhase::BackingOff { .. }), "{status:?}");
    assert!(!running.report.is_ready());
    assert_eq!(world.said(&intent).await, ["1"], "nothing is decided");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_log_of_another_number_of_partitions_stops_the_process() {
    let world = World::new().await;
    let start = StateRecord::EpochStart(EpochStart {
        nonce: "other".into(),
        partitions: 12,
        version: "0".into(),
        at: Timestamp(0),
    });
    let payload = world.codec.encode(&start).unwrap();
    let to = world.at(&Topic::State, 3);
    let record = OutRecord { to, key: None, headers: Vec::new(), payload: Some(payload.into()) };
    world.bus.send(record).await.unwrap();
    let failure = world.start().await.failure().await;
    assert!(matches!(failure, StatefulError::Partition { partition: 3, .. }), "{failure}");
    assert!(failure.to_string().contains("12 coordinator partitions"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_stops_its_partition_loudly() {
    let world = World::new().await;
    let to = world.at(&Topic::State, 0);
    let rubbish = OutRecord { to, key: None, headers: Vec::new(), payload: Some("rubbish".into()) };
    world.bus.send(rubbish).await.unwrap();
    let running = world.start().await;
    let other = world.intent(1, 0);
    world.input(&world.intent(0, 0), "").await;
    world.input(&other, "").await;
    world.counted(&other, 1).await;
    eventually("it is noticed", async || running.count("refused_logs") > 0).await;
    assert!(world.said(&world.intent(0, 0)).await.is_empty());
    running.stop().await;
}
