//! Snapshots, trimming, and beginning again from them.

use crate::world::{World, eventually};
use starling_bus::SendFault;
use starling_protocol::Topic;
use starling_runtime::stateful::StatefulOptions;

/// One input after the other, so that each is a decision of its own.
async fn count_one_by_one(world: &World, from: usize, to: usize) {
    let intent = world.intent(0, 0);
    for count in from..=to {
        world.input(&intent, "").await;
        world.counted(&intent, count).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_is_trimmed_below_the_last_snapshot_but_one() {
    let world = World::new().await;
    // Small records make snapshots of many chunks.
    let options = StatefulOptions { snapshot_decisions: 10, max_record: 1_500, ..world.options() };
    let running = world.start_with(options.clone()).await;
    for number in 1..40 {
        world.input(&world.intent(0, number), "").await;
    }
    count_one_by_one(&world, 1, 60).await;
    let state = world.at(&Topic::State, 0);
    eventually("it is trimmed", async || world.bus.watermarks(&state).await.unwrap().low > 0).await;
    assert!(running.count("snapshots") >= 2);
    eventually("the hint is committed", async || {
        world.bus.committed("t.coordinator", &state).await.unwrap().is_some()
    })
    .await;
    running.stop().await;

    let marks = world.bus.watermarks(&state).await.unwrap();
    let hint = world.bus.committed("t.coordinator", &state).await.unwrap().unwrap().offset;
    assert!(marks.low < hint && hint < marks.high, "{marks:?} {hint}");

    // From the hint; and, in a group that knows of no hint, from the beginning of what is left.
    let next = world.start_with(options.clone()).await;
    count_one_by_one(&world, 61, 62).await;
    let from_hint = next.count("replayed");
    next.stop().await;
    let group = "t.other".to_owned();
    let last = world.start_with(StatefulOptions { group, ..options }).await;
    count_one_by_one(&world, 63, 64).await;
    assert!(last.count("replayed") > from_hint);
    last.stop().await;
    world.counted(&world.intent(0, 39), 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_torn_snapshot_does_not_count() {
    let world = World::new().await;
    let options = StatefulOptions { snapshot_decisions: 5, ..world.options() };
    let running = world.start_with(options.clone()).await;
    let state = world.at(&Topic::State, 0);
    count_one_by_one(&world, 1, 4).await;
    // The next decision is written twice, which harms nobody; of the snapshot after it nothing is written.
    world.faults().on_send(&state, SendFault::Twice);
    world.faults().on_send(&state, SendFault::UnknownNotWritten);
    count_one_by_one(&world, 5, 5).await;
    eventually("the epoch is given up", async || running.count("given_up") > 0).await;
    assert_eq!(running.count("snapshots"), 0);
    count_one_by_one(&world, 6, 7).await;
    eventually("the next one is whole", async || running.count("snapshots") > 0).await;
    running.kill().await;

    let running = world.start_with(options).await;
    count_one_by_one(&world, 8, 12).await;
    running.stop().await;
    assert!(world.log(0).await.0.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_no_good_is_not_followed() {
    let world = World::new().await;
    let running = world.start().await;
    count_one_by_one(&world, 1, 3).await;
    running.stop().await;
    let state = world.at(&Topic::State, 0);
    let member = world.bus.join(starling_bus::GroupConfig {
        group: "t.coordinator".into(),
        topics: vec!["t.fleet".into()],
        deliver: starling_bus::Deliver::AssignmentOnly,
        instance: None,
        session_timeout: std::time::Duration::from_secs(10),
        revoke_timeout: std::time::Duration::from_secs(1),
        queue_records: 1,
    });
    let member = member.await.unwrap();
    let bad = starling_bus::CommitOffset { at: state, offset: 2, metadata: String::new() };
    member.commit(vec![bad]).await.unwrap();
    drop(member);
    let running = world.start().await;
    count_one_by_one(&world, 4, 5).await;
    running.stop().await;
}
