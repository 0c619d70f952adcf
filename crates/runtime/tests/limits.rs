//! Limits of topics: what breaks a promise, what only weakens it, and that a start is refused for the first.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use starling_bus::{Bus, MemoryBus, MemoryOptions, PartitionDescription, TopicDescription, TopicSpec};
use starling_runtime::{
    Settings,
    limits::{Limit, Needs, Weight, check, judge},
    topics::topic_specs,
};

/// Topics as the settings want them, each partition on so many brokers.
fn topics(settings: &Settings, replicas: i32) -> Vec<TopicDescription> {
    let brokers: Vec<i32> = (0..replicas).collect();
    let partition =
        PartitionDescription { leader: Some(0), replicas: brokers.clone(), in_sync: brokers.clone() };
    let topic = |spec: TopicSpec| TopicDescription {
        name: spec.name,
        partitions: vec![partition.clone(); usize::try_from(spec.partitions).unwrap()],
        settings: Ok(spec.settings),
    };
    topic_specs(&settings.topics).into_iter().map(topic).collect()
}

/// What is said when that setting of that topic is so.
fn with(replicas: i32, topic: &str, name: &str, value: &str) -> Vec<Limit> {
    let min = if replicas > 1 { "2" } else { "1" };
    let settings = support::settings(&[("topics.min_insync_replicas", min)]);
    let mut topics = topics(&settings, replicas);
    let one = topics.iter_mut().find(|found| found.name == format!("starling.{topic}")).unwrap();
    one.settings.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
    judge(&Needs::of(&settings), &topics.into_iter().map(Ok).collect::<Vec<_>>())
}

#[test]
fn each_limit_has_its_weight() {
    use Weight::{Breaks, Weakens};
    let (hour, two_days) = ("3600000", "172800000"); // an intent may take a day
    for (replicas, topic, name, value, weight, needed) in [
        (1, "state", "cleanup.policy", "compact", Breaks, "cleanup.policy=delete"),
        (1, "state", "cleanup.policy", "compact,delete", Breaks, "cleanup.policy=delete"),
        (1, "state", "retention.ms", "604800000", Breaks, "retention.ms=-1"),
        (1, "state", "retention.bytes", "1000000000", Breaks, "retention.bytes=-1"),
        (1, "state", "unclean.leader.election.enable", "true", Breaks, "enable=false"),
        (1, "worker", "unclean.leader.election.enable", "true", Weakens, "enable=false"),
        (3, "worker", "unclean.leader.election.enable", "true", Breaks, "enable=false"),
        (3, "progress", "unclean.leader.election.enable", "true", Weakens, "enable=false"),
        (1, "worker", "cleanup.policy", "compact", Breaks, "cleanup.policy=delete"),
        (1, "dlq", "cleanup.policy", "compact", Breaks, "cleanup.policy=delete"),
        (1, "progress", "cleanup.policy", "compact", Weakens, "cleanup.policy=delete"),
        (1, "control", "cleanup.policy", "delete", Weakens, "[compact,delete]"),
        (1, "worker", "retention.ms", hour, Breaks, "retention.ms=604800000"),
        (1, "intents", "retention.ms", hour, Breaks, "retention.ms=604800000"),
        (1, "content", "retention.ms", hour, Breaks, "retention.ms=604800000"),
        (1, "control", "retention.ms", hour, Breaks, "retention.ms=604800000"),
        (1, "worker", "retention.ms", two_days, Weakens, "retention.ms=604800000"),
        (1, "outcomes", "retention.ms", hour, Weakens, "retention.ms=2592000000"),
        (1, "worker", "retention.bytes", "1000", Weakens, "retention.bytes=-1"),
        (1, "worker", "max.message.bytes", "1048588", Breaks, "max.message.bytes=8388608"),
        (1, "worker", "min.insync.replicas", "2", Breaks, "topics.min_insync_replicas"),
        (3, "worker", "min.insync.replicas", "1", Breaks, "min.insync.replicas=2"),
        (3, "state", "min.insync.replicas", "1", Breaks, "min.insync.replicas=2"),
        (3, "fleet", "min.insync.replicas", "1", Weakens, "min.insync.replicas=2"),
    ] {
        let limits = with(replicas, topic, name, value);
        let [limit] = limits.as_slice() else { panic!("{topic} {name}={value}: {limits:?}") };
        assert_eq!(limit.weight, weight, "{topic} {name}={value}: {limit:?}");
        assert!(limit.found.starts_with(&format!("starling.{topic} has {name}={value}")), "{limit:?}");
        assert!(limit.advice.contains(needed), "{needed}: {limit:?}");
    }
    for (replicas, topic, name, value) in [
        (1, "control", "cleanup.policy", "delete,compact"),
        (1, "outcomes", "retention.ms", "-1"),
        (1, "worker", "max.message.bytes", "99999999"),
        (1, "worker", "segment.ms", "1"),
        (1, "worker", "min.insync.replicas", "1"),
        (3, "worker", "min.insync.replicas", "3"),
    ] {
        assert_eq!(with(replicas, topic, name, value), [], "{topic} {name}={value}");
    }
}

#[tokio::test]
async fn a_start_on_such_topics_is_refused_with_all_reasons_at_once() {
    let settings = support::settings(&[("topics.partitions.coordinator", "3")]);
    let bus = MemoryBus::new(MemoryOptions::default());
    let mut specs = topic_specs(&settings.topics);
    for spec in &mut specs {
        let mut set = |name: &str, value: &str| spec.settings.insert(name.to_owned(), value.to_owned());
        match spec.name.as_str() {
            "starling.state" => {
                set("cleanup.policy", "compact");
                spec.partitions = 2;
            }
            "starling.critic" => drop(set("retention.ms", "1000")),
            "starling.outcomes" => drop(set("retention.ms", "1000")),
            _ => {}
        }
    }
    bus.create_topics(&specs).await.unwrap();
    let refused = check(&settings, bus.inspector().as_ref()).await.unwrap_err();
    assert_eq!(refused.broken.len(), 3, "what only weakens is no reason: {refused}");
    for part in [
        "for 3 reason(s)",
        "starling.state has cleanup.policy=compact",
        "starling.critic has retention.ms=1000, and an intent may take 86400000 (coordinator.max_deadline)",
        "starling.state has 2 partitions and starling.coordinator has 3",
        "-> kafka-configs.sh",
    ] {
        assert!(refused.to_string().contains(part), "{part}: {refused}");
    }

    let bus = MemoryBus::new(MemoryOptions::default());
    bus.create_topics(&topic_specs(&settings.topics)).await.unwrap();
    check(&settings, bus.inspector().as_ref()).await.unwrap();
}

#[tokio::test]
async fn settings_that_may_not_be_seen_prevent_no_start() {
    struct Closed;
    #[async_trait::async_trait]
    impl starling_bus::Inspector for Closed {
        async fn cluster(&self) -> Result<starling_bus::ClusterDescription, starling_bus::BusError> {
            unreachable!("nobody asks for it")
        }
        async fn topics(
            &self,
            names: &[String],
        ) -> Result<Vec<Result<TopicDescription, starling_bus::BusError>>, starling_bus::BusError> {
            let hidden = |name: &String| TopicDescription {
                name: name.clone(),
                partitions: vec![PartitionDescription::default(); 12],
                settings: Err("not authorised".to_owned()),
            };
            Ok(names.iter().map(|name| Ok(hidden(name))).collect())
        }
        async fn group(
            &self,
            _: &str,
        ) -> Result<Option<starling_bus::GroupDescription>, starling_bus::BusError> {
            unreachable!("nobody asks for it")
        }
        async fn watermarks(
            &self,
            _: &[starling_bus::PartitionId],
        ) -> Result<Vec<Option<starling_bus::Watermarks>>, starling_bus::BusError> {
            unreachable!("nobody asks for it")
        }
        async fn offsets_since(
            &self,
            _: &[starling_bus::PartitionId],
            _: starling_protocol::Timestamp,
        ) -> Result<Vec<Option<i64>>, starling_bus::BusError> {
            unreachable!("nobody asks for it")
        }
        async fn committed(
            &self,
            _: &str,
            _: &[starling_bus::PartitionId],
        ) -> Result<Vec<Option<starling_bus::Committed>>, starling_bus::BusError> {
            unreachable!("nobody asks for it")
        }
        fn rest(&self) {}
    }
    check(&support::settings(&[]), &Closed).await.unwrap();
}
