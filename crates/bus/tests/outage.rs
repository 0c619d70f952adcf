//! A broker that goes away and comes back, of this test's own: `scripts/kafka` starts and stops it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use starling_bus::{
    Bus, Deliver, GroupConfig, GroupConsumer, GroupEvent, KafkaBus, KafkaOptions, OutRecord, PartitionId,
    ReadError, SendError, TopicSpec,
};
use std::{
    collections::BTreeMap,
    env,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

struct Broker {
    folder: std::path::PathBuf,
}

impl Broker {
    fn new(name: &str) -> Self {
        Self { folder: env::temp_dir().join(format!("starling-{name}-{}", std::process::id())) }
    }

    fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.folder.join("service.pid")).unwrap();
        let pid = pid.split_whitespace().next().unwrap().to_owned();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    fn kafka(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka");
        let folder = self.folder.to_str().unwrap();
        let output = Command::new(script).args(arguments).args(["--dir", folder]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kafka(&["stop"]);
        let _ = std::fs::remove_dir_all(&self.folder); // a temporary folder
    }
}

fn record(at: &PartitionId) -> OutRecord {
    OutRecord { to: at.clone(), key: None, headers: Vec::new(), payload: Some("x".into()) }
}

fn config(group: &str) -> GroupConfig {
    GroupConfig {
        group: group.into(),
        topics: vec!["t".into()],
        deliver: Deliver::Records,
        instance: None,
        session_timeout: Duration::from_secs(10),
        revoke_timeout: Duration::from_secs(1),
        queue_records: 100,
    }
}

async fn next_record(member: &Arc<dyn GroupConsumer>) {
    let record = async { while !matches!(member.next().await, GroupEvent::Record(_)) {} };
    timeout(Duration::from_secs(60), record).await.expect("a record should come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_bounded_everywhere_and_passes() {
    if env::var("STARLING_TEST_MEMORY_ONLY").is_ok_and(|value| value == "1") {
        return;
    }
    assert!(env::var("STARLING_TEST_BROKERS").is_ok(), "STARLING_TEST_BROKERS is not set: run `make test`");
    let broker = Broker::new("outage");
    let address = broker.kafka(&["start", "--port", "0"]);
    let port = address.rsplit(':').next().unwrap();
    let options = KafkaOptions {
        send_timeout: Duration::from_secs(2),
        read_timeout: Duration::from_secs(2),
        ..KafkaOptions::new(&address)
    };
    let bus = KafkaBus::new(options).unwrap();
    let spec = TopicSpec { name: "t".into(), partitions: 1, replication: 1, settings: BTreeMap::new() };
    bus.create_topics(&[spec]).await.unwrap();
    let (stays, leaves) =
        (bus.join(config("stays")).await.unwrap(), bus.join(config("leaves")).await.unwrap());
    let at = PartitionId::new("t", 0);
    bus.send(record(&at)).await.unwrap();
    next_record(&stays).await;
    next_record(&leaves).await;

    broker.kafka(&["stop"]);
    let lost = bus.send(record(&at)).await;
    assert!(matches!(lost, Err(SendError::Unknown { .. })), "{lost:?}");
    let read = timeout(Duration::from_secs(6), bus.read(&[(at.clone(), 0)])).await.unwrap();
    assert!(matches!(read[0], Err(ReadError::Retry(_))), "{read:?}");
    let started = Instant::now();
    let leaving = leaves.clone();
    let left = tokio::spawn(async move { leaving.leave(Duration::from_secs(3)).await });
    let closed = async { while !matches!(leaves.next().await, GroupEvent::Closed) {} };
    timeout(Duration::from_secs(5), closed).await.expect("leaving should close");
    left.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(leaves);

    broker.kafka(&["start", "--port", port]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = bus.send(record(&at)).await {
        assert!(Instant::now() < deadline, "{error}");
    }
    next_record(&stays).await;
    assert!(bus.read(&[(at, 0)]).await[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_could_not_leave_in_time_leaves_once_it_can() {
    if env::var("STARLING_TEST_MEMORY_ONLY").is_ok_and(|value| value == "1") {
        return;
    }
    let broker = Broker::new("pause");
    let address = broker.kafka(&["start", "--port", "0"]);
    let bus = KafkaBus::new(KafkaOptions::new(&address)).unwrap();
    let spec = TopicSpec { name: "t".into(), partitions: 1, replication: 1, settings: BTreeMap::new() };
    bus.create_topics(&[spec]).await.unwrap();
    bus.send(record(&PartitionId::new("t", 0))).await.unwrap();
    let leaves = bus.join(config("group")).await.unwrap();
    next_record(&leaves).await;

    broker.signal("STOP");
    leaves.leave(Duration::from_secs(2)).await;
    drop(leaves);
    broker.signal("CONT");
    // The group would wait for it as long as it takes a handler to be thought hung, which is minutes.
    let follows = bus.join(config("group")).await.unwrap();
    next_record(&follows).await;
}
