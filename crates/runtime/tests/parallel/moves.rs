//! Partitions that go: to another member, or lost.

use super::*;

#[tokio::test]
async fn revoked_partitions_are_let_go_with_what_is_done_committed() {
    let stage = stage().await;
    stage.put(0, &["hold:a", "reply:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        // Only the commit at the revocation can save `b` from being handled again.
        config.commit_interval = Duration::from_secs(60);
        config.commit_idle = Duration::from_secs(60);
        config.revoke_timeout = Duration::from_millis(200); // `a` does not end within that
    });
    stage.handler.handled("hold:a", 1).await;
    until("b is done", || async { (stage.results().await.len() == 1).then_some(()) }).await;
    stage.bus.faults().rebalance("starling.worker");
    stage.handler.handled("hold:a", 2).await;
    stage.handler.release("hold:a");
    until("a is done", || async { (stage.results().await.len() >= 2).then_some(()) }).await;
    worker.stop().await;
    // The first handler of `a` was dropped: it says nothing, although what it waited for came.
    assert_eq!(stage.results().await, done(&["hold:a", "reply:b"]));
    assert_eq!((stage.handler.count("hold:a"), stage.handler.count("reply:b")), (2, 1));
}

#[tokio::test]
async fn what_runs_when_its_partition_moves_comes_to_its_end() {
    let stage = stage().await;
    stage.put(0, &["hold:a", "hold:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| config.slots = 1);
    stage.handler.handled("hold:a", 1).await;
    stage.bus.faults().rebalance("starling.worker");
    stage.handler.release("hold:a");
    stage.handler.release("hold:b");
    commits(&stage.node, &stage.bus, 0, 2).await;
    worker.stop().await;
    assert_eq!(stage.results().await, done(&["hold:a", "hold:b"]));
    // `b` had not begun: it was left to the next owner, which is the same member here.
    assert_eq!((stage.handler.count("hold:a"), stage.handler.count("hold:b")), (1, 1));
}

#[tokio::test]
async fn a_lost_partition_is_begun_anew_and_its_old_reports_count_for_nothing() {
    let stage = stage().await;
    // The acknowledgement of `a` comes after the partition was lost and taken again.
    stage.bus.faults().on_send(&stage.coordinator(), SendFault::Delayed);
    stage.put(0, &["reply:a", "hold:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    stage.handler.handled("hold:b", 1).await;
    let member = stage.bus.faults().members("starling.worker")[0];
    stage.bus.faults().expire("starling.worker", member);
    stage.handler.handled("hold:b", 2).await;
    stage.handler.handled("reply:a", 2).await;
    stage.bus.faults().release(&stage.coordinator());
    commits(&stage.node, &stage.bus, 0, 1).await;
    stage.handler.release("hold:b");
    commits(&stage.node, &stage.bus, 0, 2).await;
    worker.stop().await;
    // `a` twice: at least once is what is promised for a lost partition.
    assert_eq!(stage.results().await, done(&["hold:b", "reply:a", "reply:a"]));
}

#[tokio::test]
async fn what_is_acknowledged_after_a_loss_does_not_end_what_runs_now() {
    let stage = stage().await;
    stage.bus.faults().on_send(&stage.coordinator(), SendFault::Delayed);
    stage.put(0, &["once:a"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    stage.handler.handled("once:a", 1).await;
    // Whatever `a` has to say is on its way when this is answered.
    stage.put(1, &["reply:z"]).await;
    until("z is done", || async { (stage.results().await.len() == 1).then_some(()) }).await;
    let member = stage.bus.faults().members("starling.worker")[0];
    stage.bus.faults().expire("starling.worker", member);
    stage.handler.handled("once:a", 2).await;
    stage.bus.faults().release(&stage.coordinator());
    stage.put(0, &["reply:b"]).await;
    let at = stage.inbox(0);
    until("b is committed above a, which still runs", || async {
        let committed = starling_bus::Bus::committed(&*stage.bus, "starling.worker", &at).await.unwrap()?;
        (committed.offset == 0 && !committed.metadata.is_empty()).then_some(())
    })
    .await;
    stage.handler.release("once:a");
    commits(&stage.node, &stage.bus, 0, 2).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_departing_partition_that_is_lost_and_comes_back_stays() {
    let stage = stage().await;
    stage.put(0, &["hold:a"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.revoke_timeout = Duration::from_secs(1);
    });
    stage.handler.handled("hold:a", 1).await;
    let member = stage.bus.faults().members("starling.worker")[0];
    stage.bus.faults().rebalance("starling.worker");
    // The group waits for `a`, until it takes the member for dead.
    tokio::time::sleep(Duration::from_millis(100)).await;
    stage.bus.faults().expire("starling.worker", member);
    stage.handler.handled("hold:a", 2).await;
    // When the time of the first revocation is up, nothing is to happen.
    tokio::time::sleep(Duration::from_secs(2)).await; // virtual time
    stage.handler.release("hold:a");
    commits(&stage.node, &stage.bus, 0, 1).await;
    worker.stop().await;
    assert_eq!(stage.handler.count("hold:a"), 2, "nobody stopped what began after the loss");
}
