//! The parallel processor: what becomes of every record, whatever happens meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod commits;
mod moves;
#[path = "../support/mod.rs"]
mod support;

use starling_bus::{CommitError, CommitFault, InRecord, MemoryBus, PartitionId, SendFault};
use starling_engine::dead_letters::BurialLimit;
use starling_protocol::{Body, Envelope, Topic};
use starling_runtime::{Node, parallel::ProcessorError, telemetry::Spans};
use std::{sync::Arc, time::Duration};
use support::{
    contents, put, result,
    scripted::{Scripted, Worker, commits},
    task, title, until, write,
};

const INBOX: Topic = Topic::Worker(None);

struct Stage {
    bus: Arc<MemoryBus>,
    node: Node,
    handler: Arc<Scripted>,
}

/// Two worker partitions, one coordinator partition.
async fn stage() -> Stage {
    stage_with(&[]).await
}

async fn stage_with(more: &[(&str, &str)]) -> Stage {
    let few = [
        ("topics.partitions.worker", "2"),
        ("topics.partitions.coordinator", "1"),
        ("topics.partitions.dlq", "3"),
    ];
    let settings = support::settings(&[&few, more].concat());
    let bus = support::bus(&settings).await;
    let node = support::node(&settings, bus.clone(), Spans::off()).await;
    Stage { bus, node, handler: Scripted::new() }
}

impl Stage {
    async fn put(&self, partition: i32, titles: &[&str]) {
        for title in titles {
            put(&self.node, &self.bus, &INBOX, partition, &task("i", title)).await;
        }
    }

    /// Puts so many, every third of which runs until it is released; gives their titles.
    async fn put_third_held(&self, count: usize) -> Vec<String> {
        let titles: Vec<String> =
            (0..count).map(|n| format!("{}:{n}", if n % 3 == 0 { "hold" } else { "reply" })).collect();
        self.put(0, &titles.iter().map(String::as_str).collect::<Vec<_>>()).await;
        titles
    }

    async fn records(&self, topic: &Topic) -> Vec<InRecord> {
        contents(&self.node, &self.bus, topic).await
    }

    /// What the coordinator was told: title and output, sorted.
    async fn results(&self) -> Vec<(String, String)> {
        let records = self.records(&Topic::Coordinator).await;
        let mut results: Vec<(String, String)> = records
            .iter()
            .map(|record| {
                let envelope: Envelope = self.node.codec.decode(record.value()).unwrap();
                match &envelope.body {
                    Body::TaskResult(result) => (result.title.clone(), result.output.clone()),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        results.sort();
        results
    }

    fn inbox(&self, partition: i32) -> PartitionId {
        PartitionId::new(self.node.router.name(&INBOX).unwrap(), partition)
    }

    fn coordinator(&self) -> PartitionId {
        PartitionId::new(self.node.router.name(&Topic::Coordinator).unwrap(), 0)
    }
}

fn done(titles: &[&str]) -> Vec<(String, String)> {
    titles.iter().map(|title| ((*title).to_owned(), "done".to_owned())).collect()
}

#[tokio::test]
async fn records_end_out_of_order_and_a_restart_runs_nothing_twice() {
    let stage = stage().await;
    stage.put(0, &["reply:a", "hold:b", "reply:c", "hold:d", "reply:e"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| config.grace = Duration::ZERO);
    let at = stage.inbox(0);
    // `b` holds the offset back; what is done above it rides in the metadata.
    until("c and e are in the metadata", || async {
        let results = stage.results().await.len();
        let committed = starling_bus::Bus::committed(&*stage.bus, "starling.worker", &at).await.unwrap()?;
        (results == 3 && committed.offset == 1 && !committed.metadata.is_empty()).then_some(())
    })
    .await;
    worker.stop().await;

    let second = Worker::start(&stage.node, &stage.handler, |_| ());
    stage.handler.handled("hold:b", 2).await;
    stage.handler.handled("hold:d", 2).await;
    stage.handler.release("hold:b");
    stage.handler.release("hold:d");
    commits(&stage.node, &stage.bus, 0, 5).await;
    second.stop().await;
    for title in ["reply:a", "reply:c", "reply:e"] {
        assert_eq!(stage.handler.count(title), 1, "{title}");
    }
    assert_eq!(stage.results().await, done(&["hold:b", "hold:d", "reply:a", "reply:c", "reply:e"]));
}

#[tokio::test]
async fn an_unreadable_record_goes_to_the_dead_letters_unchanged() {
    let stage = stage().await;
    let poison = b"\xc4\x01 no envelope at all";
    let headers = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("mine", "1")];
    let offset = support::write(&stage.bus, stage.inbox(1), Some("k"), &headers, poison).await;
    stage.put(1, &["reply:next"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    commits(&stage.node, &stage.bus, 1, 2).await;
    worker.stop().await;

    let dead = stage.records(&Topic::Dlq).await;
    assert_eq!(dead.len(), 1);
    let dead = &dead[0];
    assert_eq!(dead.value(), poison);
    assert_eq!(dead.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(dead.headers[0].0, "traceparent");
    assert_eq!(dead.header("mine"), Some("1"));
    assert_eq!(dead.header("starling-dlq-topic"), Some("starling.worker"));
    assert_eq!(dead.header("starling-dlq-partition"), Some("1"));
    assert_eq!(dead.header("starling-dlq-offset"), Some(offset.to_string().as_str()));
    assert!(dead.header("starling-dlq-time").unwrap().parse::<i64>().unwrap() > 0);
    assert!(!dead.header("starling-dlq-reason").unwrap().is_empty());
    assert_eq!(dead.header("starling-dlq-code"), Some("undecodable"));
    assert_eq!(dead.header("starling-dlq-count"), Some("1"));
    assert_eq!(dead.header("starling-dlq-group"), Some("starling.worker"));
    assert_eq!(dead.header("starling-dlq-process"), Some("test"));
    assert_eq!(stage.results().await, done(&["reply:next"]));
}

/// What follows the two bytes may be the fingerprint of a schema that the next version has.
#[tokio::test]
async fn what_a_newer_version_wrote_waits_beside_the_others_and_is_a_dead_letter_in_the_end() {
    let stage = stage_with(&[("registry.patience", "4s"), ("processor.backoff_max", "500ms")]).await;
    let newer = b"\xc3\x01 who knows what it says";
    support::write(&stage.bus, stage.inbox(0), Some("k"), &[], newer).await;
    stage.put(0, &["reply:a", "reply:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    let handled = async || (stage.results().await.len() == 2).then_some(());
    support::until("the others are handled", handled).await;
    assert!(stage.records(&Topic::Dlq).await.is_empty(), "it waits");
    commits(&stage.node, &stage.bus, 0, 3).await;
    worker.stop().await;
    let dead = stage.records(&Topic::Dlq).await;
    assert_eq!(dead.iter().map(InRecord::value).collect::<Vec<_>>(), [newer]);
    assert!(dead[0].header("starling-dlq-reason").unwrap().contains("a newer version"));
}

#[tokio::test]
async fn what_others_have_to_bring_is_waited_for_however_often() {
    let stage = stage().await;
    stage.put(0, &["wait:a", "reply:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| config.tries = 2);
    stage.handler.handled("wait:a", 5).await;
    assert_eq!(stage.results().await, done(&["reply:b"]));
    stage.handler.release("wait:a");
    commits(&stage.node, &stage.bus, 0, 2).await;
    worker.stop().await;
    assert!(stage.records(&Topic::Dlq).await.is_empty());
    assert_eq!(stage.results().await, done(&["reply:b", "wait:a"]));
}

#[tokio::test]
async fn what_cannot_be_handled_is_a_dead_letter_and_the_coordinator_is_told() {
    let stage = stage().await;
    stage.put(0, &["refuse:a", "panic:b", "retry:c"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    commits(&stage.node, &stage.bus, 0, 3).await;
    worker.stop().await;
    assert_eq!(stage.handler.count("retry:c"), 3);
    let expected = [
        ("panic:b", "failed: the handler panicked: at the disco"),
        ("refuse:a", "failed: not this"),
        ("retry:c", "failed: handled 3 times without success, at last: not now"),
    ];
    assert_eq!(stage.results().await, expected.map(|(t, o)| (t.to_owned(), o.to_owned())));
    assert_eq!(stage.records(&Topic::Dlq).await.len(), 3);
    let metrics = stage.node.metrics.encode();
    assert!(metrics.contains("starling_dead_letters_total{reason=\"panic\"} 1"), "{metrics}");
}

#[tokio::test]
async fn too_many_dead_letters_stop_it_and_nothing_more_is_buried() {
    let stage = stage().await;
    stage.put(0, &["reply:a"]).await;
    let poison: Vec<String> = (0..20).map(|n| format!("refuse:{n:02}")).collect();
    stage.put(0, &poison.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 1;
        config.burials = BurialLimit { window: 10, least: 3, share: 0.5 };
    });
    let ended = tokio::time::timeout(support::PATIENCE, worker.ended).await.unwrap().unwrap();
    let error = ended.unwrap_err();
    let ProcessorError::TooManyDeadLetters { topic, role, excess } = &error else { panic!("{error}") };
    assert_eq!((&**topic, role.as_str()), ("starling.worker", "worker"));
    assert_eq!((excess.dead, excess.of, excess.reasons.len()), (4, 5, 3));
    for part in [
        "4 of the last 5",
        "starling.worker",
        "0.5",
        "processor.dead_letters.share.worker",
        "handler: not this",
        "dlq list",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(stage.records(&Topic::Dlq).await.len(), 3);
    assert_eq!(
        stage.results().await.len(),
        4,
        "the coordinator is told of those that are buried, and of no other"
    );
    commits(&stage.node, &stage.bus, 0, 4).await;

    // Who wants them buried all the same can have that; none of them was lost.
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.burials = BurialLimit { window: 10, least: 3, share: 1.0 };
    });
    commits(&stage.node, &stage.bus, 0, 21).await;
    worker.stop().await;
    assert_eq!(stage.records(&Topic::Dlq).await.len(), 20);
}

#[tokio::test]
async fn what_runs_beside_too_many_dead_letters_comes_to_its_end() {
    let stage = stage().await;
    stage.put(1, &["hold:long"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.burials = BurialLimit { window: 10, least: 0, share: 0.5 };
    });
    stage.handler.handled("hold:long", 1).await;
    stage.put(0, &["refuse:a"]).await;
    stage.handler.handled("refuse:a", 1).await;
    stage.handler.release("hold:long");
    let ended = tokio::time::timeout(support::PATIENCE, worker.ended).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ProcessorError::TooManyDeadLetters { .. })), "{ended:?}");
    assert_eq!(stage.results().await, done(&["hold:long"]));
    commits(&stage.node, &stage.bus, 1, 1).await;
    assert!(stage.records(&Topic::Dlq).await.is_empty());
}

#[tokio::test]
async fn a_record_is_done_only_when_everything_it_said_is_acknowledged() {
    let stage = stage().await;
    let faults = stage.bus.faults();
    for fault in [SendFault::NotSent, SendFault::UnknownNotWritten, SendFault::Delayed] {
        faults.on_send(&stage.coordinator(), fault);
    }
    stage.put(0, &["reply:a"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    until("it is sent again until it is held back", || async {
        (faults.release(&stage.coordinator()) == 1).then_some(())
    })
    .await;
    commits(&stage.node, &stage.bus, 0, 1).await;
    assert_eq!(stage.handler.count("reply:a"), 1);
    assert_eq!(stage.results().await, done(&["reply:a"]));

    faults.on_send(&stage.coordinator(), SendFault::Refused);
    stage.put(0, &["reply:b"]).await;
    commits(&stage.node, &stage.bus, 0, 2).await;
    worker.stop().await;
    assert!(stage.results().await[1].1.starts_with("failed: the broker refuses"));
    assert_eq!(stage.records(&Topic::Dlq).await.len(), 1);
}

#[tokio::test]
async fn who_is_more_urgent_goes_first_and_passes_that_on() {
    let stage = stage().await;
    let put = async |title: &str, priority: &str| {
        let to = stage.inbox(0);
        let headers = [("starling-priority", priority)];
        write(&stage.bus, to, None, &headers, &stage.node.codec.encode(&task("i", title)).unwrap()).await
    };
    put("hold:first", "0").await;
    for n in 0..20 {
        put(&format!("reply:{n:02}"), "0").await;
    }
    put("reply:urgent", "5").await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 1;
        config.queue_per_partition = 21; // then it is paused, and all are in hand
    });
    until("the partition is paused", || async {
        let paused = "starling_paused_partitions{topic=\"starling.worker\"} 1";
        stage.node.metrics.encode().contains(paused).then_some(())
    })
    .await;
    stage.handler.release("hold:first");
    commits(&stage.node, &stage.bus, 0, 22).await;
    worker.stop().await;
    assert_eq!(stage.handler.calls()[..3], ["hold:first", "reply:urgent", "reply:00"]);
    let told = stage.records(&Topic::Coordinator).await;
    let priorities: Vec<_> = told.iter().map(|record| record.header("starling-priority").unwrap()).collect();
    assert_eq!(priorities[..3], ["0", "5", "0"]);
}

#[tokio::test]
async fn back_pressure_pauses_partitions_and_loses_nothing() {
    let stage = stage().await;
    stage.put(0, &["hold:first"]).await;
    let titles: Vec<String> = (0..200).map(|n| format!("reply:{n:03}")).collect();
    stage.put(0, &titles.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 1;
        config.queue_per_partition = 4;
        config.queue_records = 4;
    });
    until("the partition is paused", || async {
        let paused = "starling_paused_partitions{topic=\"starling.worker\"} 1";
        stage.node.metrics.encode().contains(paused).then_some(())
    })
    .await;
    assert_eq!(stage.handler.calls(), ["hold:first"]);
    stage.handler.release("hold:first");
    commits(&stage.node, &stage.bus, 0, 201).await;
    worker.stop().await;
    assert_eq!(stage.handler.calls()[1..], titles[..], "one slot keeps the order");
    assert_eq!(stage.results().await.len(), 201);
}

#[tokio::test]
async fn shutdown_finishes_what_runs_begins_nothing_and_leaves() {
    let stage = stage().await;
    stage.put(0, &["hold:a", "reply:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| config.slots = 1);
    stage.handler.handled("hold:a", 1).await;
    worker.stop.cancel();
    tokio::time::sleep(Duration::from_millis(20)).await; // it has nothing to do but to wait
    assert!(!worker.ended.is_finished());
    stage.handler.release("hold:a");
    worker.stop().await;
    assert_eq!(stage.results().await, done(&["hold:a"]));
    assert_eq!(support::committed(&stage.bus, "starling.worker", &stage.inbox(0)).await, Some(1));
    assert!(stage.bus.faults().members("starling.worker").is_empty());
}

#[tokio::test]
async fn cancelling_an_intent_stops_its_work_and_what_comes_later() {
    let stage = stage().await;
    stage.put(0, &["sleep:a", "stubborn:b"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.cancel_grace = Duration::from_millis(10);
    });
    stage.handler.handled("sleep:a", 1).await;
    stage.handler.handled("stubborn:b", 1).await;
    put(&stage.node, &stage.bus, &Topic::Control, 0, &support::cancel("i")).await;
    commits(&stage.node, &stage.bus, 0, 2).await;
    stage.put(0, &["reply:late"]).await;
    put(&stage.node, &stage.bus, &INBOX, 0, &task("other", "reply:other")).await;
    commits(&stage.node, &stage.bus, 0, 4).await;
    worker.stop().await;
    assert_eq!(stage.handler.count("reply:late"), 0);
    assert_eq!(stage.results().await, done(&["reply:other"]));
    assert!(stage.node.metrics.encode().contains("starling_superseded_total{kind=\"cancelled\"} 3"));
    // Whoever starts later learns of it before it is ready.
    let settings = (*stage.node.settings).clone();
    let second = support::node(&settings, stage.bus.clone(), Spans::off()).await;
    second.control.replayed().await;
    assert!(second.control.is_cancelled(&task("i", "x").intent_id));
}

#[tokio::test]
async fn nothing_runs_past_its_deadline() {
    let stage = stage().await;
    let late = Envelope { deadline: support::long_ago(), ..task("i", "reply:late") };
    put(&stage.node, &stage.bus, &INBOX, 0, &late).await;
    let now = stage.node.clock.now();
    let soon = Envelope { deadline: now.plus(Duration::from_millis(50)), ..task("i", "stubborn:soon") };
    put(&stage.node, &stage.bus, &INBOX, 0, &soon).await;
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.deadline_slack = Duration::from_millis(10);
        config.slots = 1;
    });
    commits(&stage.node, &stage.bus, 0, 2).await;
    worker.stop().await;
    assert_eq!(stage.handler.calls(), ["stubborn:soon"]);
    let told: Vec<String> = stage.results().await.into_iter().map(|(_, output)| output).collect();
    assert_eq!(told[0], "failed: deadline passed before the work began");
    assert_eq!(told[1], "failed: the handler was stopped because its time was up");
    assert_eq!(stage.records(&Topic::Dlq).await.len(), 1);
}

#[tokio::test]
async fn records_that_were_deleted_before_they_were_read_are_a_loud_error() {
    let stage = stage().await;
    stage.put(0, &["reply:a", "reply:b", "reply:c"]).await;
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    commits(&stage.node, &stage.bus, 0, 3).await;
    worker.stop().await;
    stage.put(0, &["reply:d", "reply:e"]).await;
    starling_bus::Bus::trim(&*stage.bus, &stage.inbox(0), 5).await.unwrap();
    let worker = Worker::start(&stage.node, &stage.handler, |_| ());
    let ended = tokio::time::timeout(support::PATIENCE, worker.ended).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ProcessorError::OutOfRange { offset: 3, .. })), "{ended:?}");
}

#[tokio::test]
async fn the_fleet_knows_who_reads_what_and_who_leaves() {
    let stage = stage().await;
    let mut view = stage.node.fleet.view();
    let worker = Worker::start(&stage.node, &stage.handler, |config| config.slots = 7);
    let known = view.wait_for(|view| view.workers.iter().any(|worker| worker.partitions == [0, 1]));
    let known = tokio::time::timeout(support::PATIENCE, known).await.unwrap().unwrap().clone();
    assert_eq!(known.workers[0].slots, 7);
    worker.stop().await;
    stage.node.leave().await;
    let records = stage.records(&Topic::Fleet).await;
    let last: starling_protocol::fleet::FleetBeat =
        stage.node.codec.decode(records.last().unwrap().value()).unwrap();
    assert!(last.leaving);
}

/// How much the processor itself costs: `cargo test --release -p starling-runtime -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn ten_thousand_records_a_second() {
    let stage = stage().await;
    let count = 20_000_i64;
    for n in 0..count {
        put(
            &stage.node,
            &stage.bus,
            &INBOX,
            i32::try_from(n % 2).unwrap(),
            &task("i", &format!("reply:{n}")),
        )
        .await;
    }
    let began = std::time::Instant::now();
    let worker = Worker::start(&stage.node, &stage.handler, |config| {
        config.slots = 64;
        config.commit_interval = Duration::from_millis(100);
    });
    commits(&stage.node, &stage.bus, 0, count / 2).await;
    commits(&stage.node, &stage.bus, 1, count / 2).await;
    println!("{:.0} records/s", count as f64 / began.elapsed().as_secs_f64());
    worker.stop().await;
    let _ = (result(&task("i", "x"), ""), title(&task("i", "x")));
}
