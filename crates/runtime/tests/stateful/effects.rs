//! What is performed, at least once.

use crate::world::{PARTITIONS, STUBBORN, World, eventually};
use starling_bus::SendFault;
use starling_protocol::state::StateRecord;
use starling_protocol::topic::partition_of;
use starling_protocol::{IntentId, Topic};
use starling_runtime::stateful::StatefulOptions;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn undone_effects_are_performed_again_with_the_same_bytes() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    let outcomes = world.at(&Topic::Outcomes, 0);
    let running = world.start().await;
    // The first is written but its owner never hears of it; the second is not even written.
    world.faults().on_send(&outcomes, SendFault::UnknownWritten);
    world.faults().on_send(&outcomes, SendFault::Delayed);
    world.input(&intent, "").await;
    world.input(&intent, "").await;
    eventually("both are decided", async || running.count("inputs") == 2).await;
    running.kill().await;
    world.faults().lose(&outcomes);

    let running = world.start().await;
    world.counted(&intent, 2).await;
    assert!(running.count("effects_repeated") > 0);
    running.stop().await;

    let records = world.records(&Topic::Outcomes, 0).await;
    let logged = world.records(&Topic::State, 0).await.into_iter().flat_map(|record| {
        match world.codec.decode(record.value()).unwrap() {
            StateRecord::Decision(decision) => decision.effects,
            _ => Vec::new(),
        }
    });
    let logged: Vec<_> = logged.collect();
    assert_eq!(logged.len(), 2);
    for record in &records {
        let same = logged.iter().any(|effect| {
            let headers = effect.headers.iter().map(|h| (h.name.clone(), h.value.clone().into()));
            effect.payload == record.value() && record.headers == headers.collect::<Vec<_>>()
        });
        assert!(same, "{record:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_owner_marks_its_effects_and_a_clean_hand_over_leaves_none() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    let running = world.start().await;
    world.input(&intent, "").await;
    world.counted(&intent, 1).await;
    eventually("the effect is marked", async || world.log(0).await.0.pending.is_empty()).await;
    assert_eq!(world.log(0).await.1, 2, "one for the input and an empty one");

    world.input(&intent, "").await;
    world.counted(&intent, 2).await;
    assert!(!world.log(0).await.0.pending.is_empty(), "not idle for long enough");
    running.stop().await;
    assert!(world.log(0).await.0.pending.is_empty());
    assert_eq!(world.said(&intent).await, ["1", "2"]);
    let committed = world.bus.committed("t.coordinator", &world.at(&Topic::Coordinator, 0)).await.unwrap();
    assert_eq!(committed.unwrap().offset, 2, "committed on leaving");

    let next = world.start().await;
    world.input(&intent, "").await;
    world.counted(&intent, 3).await;
    assert_eq!(next.count("effects_repeated"), 0);
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_effect_comes_back_as_an_input() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    let running = world.start().await;
    world.faults().on_send(&world.at(&Topic::Outcomes, 0), SendFault::Refused);
    world.input(&intent, "").await;
    eventually("it is told", async || world.said(&intent).await == ["refused"]).await;
    eventually("all are marked", async || world.log(0).await.0.pending.is_empty()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_refused_stops_the_process_and_is_not_lost() {
    let world = World::new().await;
    let running = world.start().await;
    world.faults().on_send(&world.at(&Topic::Dlq, 0), SendFault::Refused);
    world.put(0, b"rubbish".to_vec()).await;
    let reason = running.failure().await.to_string();
    assert!(reason.contains("the dead letters take no record"), "{reason}");
    assert!(world.records(&Topic::Dlq, 0).await.is_empty());

    let running = world.start().await; // somebody has mended them
    eventually("it is there", async || world.records(&Topic::Dlq, 0).await.len() == 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_fails_for_a_while_is_sent_again() {
    let world = World::new().await;
    let intent = world.intent(0, 0);
    let running = world.start().await;
    let outcomes = world.at(&Topic::Outcomes, 0);
    for fault in [SendFault::NotSent, SendFault::UnknownNotWritten, SendFault::NotSent] {
        world.faults().on_send(&outcomes, fault);
    }
    world.input(&intent, "").await;
    world.counted(&intent, 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_fails_its_intent_and_nothing_else() {
    let world = World::new().await;
    let running = world.start().await;
    for (number, words) in ["fat effect", "many fat effects", "fat entity"].into_iter().enumerate() {
        let (fat, other) = (world.intent(0, number), world.intent(0, 10 + number));
        world.input(&fat, words).await;
        world.input(&other, "").await;
        world.counted(&other, 1).await;
        let said = world.said(&fat).await;
        assert!(said.iter().any(|s| s == "refused") && said.iter().any(|s| s == "1"), "{words}: {said:?}");
    }
    assert_eq!(running.count("given_up"), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_input_of_which_nothing_ever_fits_is_a_dead_letter_and_the_next_one_is_served() {
    let world = World::new().await;
    let running = world.start().await;
    let stubborn = IntentId::from_string(STUBBORN);
    let partition = partition_of(STUBBORN, PARTITIONS);
    let other = world.intent(partition, 0);
    world.input(&other, "").await;
    world.input(&stubborn, "fat entity").await;
    world.input(&other, "").await;
    world.counted(&other, 2).await;
    eventually("it is a dead letter", async || world.records(&Topic::Dlq, partition).await.len() == 1).await;
    assert!(world.said(&stubborn).await.is_empty());
    assert_eq!(running.count("given_up"), 1, "one new epoch, not one after the other");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_new_is_decided_while_too_many_effects_are_under_way() {
    let world = World::new().await;
    let (intent, outcomes) = (world.intent(0, 0), world.at(&Topic::Outcomes, 0));
    let options = StatefulOptions { max_effects: 3, max_batch: 2, ..world.options() };
    let running = world.start_with(options).await;
    (0..50).for_each(|_| world.faults().on_send(&outcomes, SendFault::Delayed));
    for _ in 0..50 {
        world.input(&intent, "").await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(running.count("inputs") <= 5, "{}", running.count("inputs"));
    eventually("all are released", async || {
        world.faults().release(&outcomes);
        running.count("inputs") == 50
    })
    .await;
    world.faults().release(&outcomes);
    world.counted(&intent, 50).await;
    running.stop().await;
}
