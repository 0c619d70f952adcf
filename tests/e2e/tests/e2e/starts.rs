//! Services that refuse to start, because a promise would be broken.

use crate::SOON;
use anyhow::{Result, ensure};
use bytes::Bytes;
use starling_bus::{Bus, KafkaBus, KafkaOptions, OutRecord, PartitionId, TopicSpec};
use starling_e2e::{Proc, brokers};
use starling_protocol::{
    Codec, Timestamp,
    state::{EpochStart, StateRecord},
};
use starling_runtime::{Settings, settings::Sources, topics::topic_specs};
use std::sync::Arc;
use tempfile::TempDir;

/// An installation with topics of its own, and nothing that runs.
struct Place {
    bus: Arc<KafkaBus>,
    brokers: String,
    prefix: String,
    dir: TempDir,
}

impl Place {
    /// With topics as they should be, but for what `change` makes of them.
    async fn new(change: impl Fn(&str, &mut TopicSpec)) -> Result<Self> {
        let brokers = brokers()?;
        let prefix = format!("t{:08x}", rand::random::<u32>());
        let bus = KafkaBus::new(KafkaOptions::new(brokers.clone()))?;
        let place = Self { bus, brokers, prefix, dir: tempfile::tempdir()? };
        let mut specs = topic_specs(&Settings::load(&place.sources())?.topics);
        for spec in &mut specs {
            let name = spec.name.clone();
            change(name.split_once('.').unwrap_or_default().1, spec);
        }
        place.bus.create_topics(&specs).await?;
        Ok(place)
    }

    fn sources(&self) -> Sources {
        let counts = ["intents", "coordinator", "planner", "worker", "critic", "tool", "outcomes"];
        let counts = counts.into_iter().chain(["progress", "content", "dlq"]);
        let counts = counts.map(|name| (format!("topics.partitions.{name}"), "2".to_owned()));
        let prefix = ("topics.prefix".to_owned(), self.prefix.clone());
        Sources { overrides: counts.chain([prefix]).collect(), ..Sources::default() }
    }

    fn spawn(&self, binary: &str, settings: &[&str]) -> Result<Proc> {
        let set = self.sources().overrides.into_iter().map(|(name, value)| format!("{name}={value}"));
        let brokers = format!("kafka.brokers={}", self.brokers);
        let more = settings.iter().map(|setting| (*setting).to_owned());
        let set = set.chain([brokers, "model.offline=true".to_owned()]).chain(more);
        let args: Vec<String> = set.flat_map(|setting| ["--set".to_owned(), setting]).collect();
        Proc::start(binary, &format!("{binary}-{:08x}", rand::random::<u32>()), &args, &[], self.dir.path())
    }

    /// Its exit code, and what it said.
    async fn refused(&self, binary: &str, settings: &[&str]) -> Result<(Option<i32>, String)> {
        let mut process = self.spawn(binary, settings)?;
        let status = process.wait(SOON).await?;
        Ok((status.code(), process.stderr()))
    }
}

fn set(spec: &mut TopicSpec, name: &str, value: &str) {
    spec.settings.insert(name.to_owned(), value.to_owned());
}

/// A topic, what is wrong with it, and what is said of that.
type Case = (&'static str, fn(&mut TopicSpec), &'static str);

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_would_break_a_promise_are_refused_at_the_start() -> Result<()> {
    let cases: [Case; 7] = [
        ("state", |topic| set(topic, "cleanup.policy", "compact"), "state has cleanup.policy=compact"),
        ("state", |topic| set(topic, "retention.ms", "604800000"), "state has retention.ms=604800000"),
        ("state", |topic| set(topic, "unclean.leader.election.enable", "true"), "state has unclean.leader"),
        ("state", |topic| topic.partitions = 3, "state has 3 partitions"),
        ("worker", |topic| set(topic, "retention.ms", "3600000"), "(coordinator.max_deadline)"),
        (
            "critic",
            |topic| set(topic, "max.message.bytes", "1048588"),
            "critic has max.message.bytes=1048588",
        ),
        ("outcomes", |topic| set(topic, "min.insync.replicas", "2"), "nothing can be written"),
    ];
    for (topic, change, reason) in cases {
        let place = Place::new(|name, spec| {
            if name == topic {
                change(spec);
            }
        })
        .await?;
        let (code, said) = place.refused("starling-worker", &[]).await?;
        assert_eq!(code, Some(1), "{reason}: {said}");
        assert!(said.contains(reason) && said.contains("for 1 reason(s)"), "{reason}: {said}");
    }
    // All of them at once, whatever service it is; `doctor` and `topics create` say the same.
    let place = Place::new(|name, spec| {
        for (topic, change, _) in cases {
            if name == topic {
                change(spec);
            }
        }
    })
    .await?;
    for binary in ["starling-planner", "starling-worker", "starling-critic"] {
        let (code, said) = place.refused(binary, &[]).await?;
        assert_eq!(code, Some(1), "{said}");
        for (_, _, reason) in cases {
            assert!(said.contains(reason), "{binary}, {reason}: {said}");
        }
    }
    let set = place.sources().overrides.into_iter().map(|(name, value)| format!("{name}={value}"));
    let set: Vec<String> = set.flat_map(|setting| ["--set".to_owned(), setting]).collect();
    for command in [&["doctor"][..], &["topics", "create"]] {
        let brokers = ["--brokers".to_owned(), place.brokers.clone()];
        let args = command.iter().map(|word| (*word).to_owned()).chain(brokers).chain(set.clone());
        let mut cli = Proc::start("starling", command[0], &args.collect::<Vec<_>>(), &[], place.dir.path())?;
        assert_eq!(cli.wait(SOON).await?.code(), Some(1), "{}", cli.last_lines());
        let said = cli.stdout() + &cli.stderr();
        for (_, _, reason) in cases {
            assert!(said.contains(reason), "{command:?}, {reason}: {said}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_would_break_a_promise_are_refused_with_64_and_all_at_once() -> Result<()> {
    let place = Place::new(|_, _| {}).await?;
    let wrong = [
        "topics.retention.inboxes=1h",
        "worker.max_output=8MiB",
        "topics.replication=3",
        "kafka.properties.acks=1",
    ];
    let (code, said) = place.refused("starling-planner", &wrong).await?;
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("4 fault(s)"), "{said}");
    for path in ["topics.retention.inboxes", "worker.max_output", "topics.min_insync_replicas", "acks"] {
        assert!(said.contains(path), "{path}: {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_whose_partitions_were_changed_under_its_log_stops() -> Result<()> {
    let place = Place::new(|_, _| {}).await?;
    // As the log says that was begun when there was one.
    let start = StateRecord::EpochStart(EpochStart {
        nonce: "n".repeat(32),
        partitions: 1,
        version: "0.1.0".to_owned(),
        at: Timestamp(1),
    });
    let payload = Some(Bytes::from(Codec::default().encode(&start)?));
    let to = PartitionId::new(format!("{}.state", place.prefix), 0);
    place.bus.send(OutRecord { to, key: None, headers: Vec::new(), payload }).await?;
    let (code, said) = place.refused("starling-planner", &[]).await?;
    ensure!(code == Some(1), "{code:?}: {said}");
    assert!(said.contains("was made for 1 coordinator partitions"), "{said}");
    Ok(())
}
