//! What is committed, and what is written beside it.

use super::*;

#[tokio::test]
async fn what_is_done_above_a_slow_record_never_outgrows_the_commit() {
    let stage = stage().await;
    stage.put(0, &["hold:first"]).await;
    let titles = stage.put_third_held(120).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 100;
        config.max_metadata = 16;
        config.grace = Duration::ZERO;
    });
    // The metadata has room for a few records only, so the rest waits outside.
    let handled = until("it waits", || async {
        let before = stage.handler.calls().len();
        tokio::time::sleep(Duration::from_millis(30)).await;
        let after = stage.handler.calls().len();
        (before == after && after > 1).then_some(after)
    })
    .await;
    assert!(handled < 100, "{handled}");
    worker.stop().await;
    for title in ["hold:first"].into_iter().chain(titles.iter().map(String::as_str)) {
        stage.handler.release(title);
    }
    let second = Worker::start(&stage.node, &stage.handler, |config| config.max_metadata = 16);
    commits(&stage.node, &stage.bus, 0, 121).await;
    second.stop().await;
    for title in titles.iter().filter(|title| title.starts_with("reply")) {
        assert_eq!(stage.handler.count(title), 1, "{title}");
    }
}

#[tokio::test]
async fn a_broker_that_keeps_less_metadata_is_found_out() {
    let stage = stage().await;
    stage.bus.faults().set_max_offset_metadata(16);
    let titles = stage.put_third_held(60).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 60;
        config.grace = Duration::ZERO;
    });
    // Larger maps are refused until the process has learned what fits.
    let committed = until("a map is committed", || async {
        let at = stage.inbox(0);
        let committed = starling_bus::Bus::committed(&*stage.bus, "starling.worker", &at).await.unwrap();
        committed.filter(|committed| !committed.metadata.is_empty())
    })
    .await;
    assert!(committed.metadata.len() <= 16, "{committed:?}");
    worker.stop().await;
    for title in &titles {
        stage.handler.release(title);
    }
    let second = Worker::start(&stage.node, &stage.handler, |_| {});
    commits(&stage.node, &stage.bus, 0, 60).await;
    second.stop().await;
    assert_eq!(stage.handler.count("reply:1"), 1, "what fitted into the map does not run again");
}

#[tokio::test]
async fn the_last_commit_of_a_partition_that_moves_finds_out_what_the_broker_keeps() {
    let stage = stage().await;
    stage.bus.faults().set_max_offset_metadata(16);
    let titles = stage.put_third_held(60).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 60;
        // Only the commit at the revocation says what is done.
        config.commit_interval = Duration::from_secs(60);
        config.commit_idle = Duration::from_secs(60);
        config.revoke_timeout = Duration::from_millis(200);
    });
    until("all replies are there", || async { (stage.results().await.len() == 40).then_some(()) }).await;
    stage.bus.faults().rebalance("starling.worker");
    stage.handler.handled("hold:0", 2).await;
    for title in &titles {
        stage.handler.release(title);
    }
    until("all is done", || async { (stage.results().await.len() >= 60).then_some(()) }).await;
    worker.stop().await;
    assert_eq!(stage.handler.count("reply:1"), 1, "what fitted into the map does not run again");
}

#[tokio::test]
async fn a_failed_commit_is_made_again() {
    let stage = stage().await;
    let refused = CommitFault::Refused(CommitError::Retry("later".into()));
    // As happens to a partition that a member keeps through a rebalance.
    let of_the_generation_before = CommitFault::Refused(CommitError::Fenced("illegal generation".into()));
    stage.bus.faults().on_commit("starling.worker", of_the_generation_before);
    stage.bus.faults().on_commit("starling.worker", refused);
    stage.bus.faults().on_commit("starling.worker", CommitFault::AnswerLost);
    stage.put(0, &["reply:a"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    commits(&stage.node, &stage.bus, 0, 1).await;
    worker.stop().await;
}
