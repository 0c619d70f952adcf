//! Are the topics there, and are they as they must be?

use super::finding::{Finding, Remark, Status};
use crate::installation::ranges;
use starling_bus::{BusError, TopicDescription, TopicSpec};
use starling_protocol::{Topic, TopicNames};
use starling_runtime::limits::{self, Needs, Weight};

pub(super) const NAME: &str = "topics";

/// What topics are judged by.
pub(super) struct Needed<'s> {
    pub(super) specs: &'s [TopicSpec],
    pub(super) names: &'s TopicNames,
    /// What the promises rest on.
    pub(super) limits: Needs<'s>,
    /// How many brokers the cluster has.
    pub(super) cluster_size: usize,
}

pub(super) fn judge(needed: &Needed<'_>, told: &[Result<TopicDescription, BusError>]) -> Finding {
    let mut remarks = Vec::new();
    let missing: Vec<&str> = needed
        .specs
        .iter()
        .zip(told)
        .filter(|(_, told)| matches!(told, Err(BusError::NoSuchTopic { .. })))
        .map(|(spec, _)| spec.name.as_str())
        .collect();
    if !missing.is_empty() {
        let found = format!("missing: {}", missing.join(", "));
        remarks.push(Remark::fault(found, "starling topics create"));
    }
    let (mut partitions, mut hidden) = (0, Vec::new());
    for (spec, told) in needed.specs.iter().zip(told) {
        match told {
            Ok(topic) => {
                partitions += topic.partitions.len();
                remarks.extend(of_topic(needed, spec, topic));
            }
            Err(BusError::NoSuchTopic { .. }) => {}
            Err(BusError::Refused(_)) => hidden.push(spec.name.as_str()),
            Err(error) => remarks.push(Remark::fault(format!("{}: {error}", spec.name), "")),
        }
    }
    // Whether that is a fault is another check's business.
    if !hidden.is_empty() {
        remarks.push(Remark::warning(format!("may not be seen: {}", hidden.join(", ")), ""));
    }
    let closed: Vec<&str> = told
        .iter()
        .flatten()
        .filter(|topic| topic.settings.is_err())
        .map(|topic| topic.name.as_str())
        .collect();
    if !closed.is_empty() {
        remarks.push(Remark::warning(format!("settings may not be seen: {}", closed.join(", ")), ""));
    }
    remarks.extend(limits::judge(&needed.limits, told).into_iter().map(|limit| Remark {
        status: match limit.weight {
            Weight::Breaks => Status::Fault,
            Weight::Weakens => Status::Warning,
        },
        found: limit.found,
        advice: limit.advice,
    }));
    let well = format!("{} topics with {partitions} partitions are as the settings need them", told.len());
    Finding::from_remarks(NAME, well, remarks)
}

fn of_topic(needed: &Needed<'_>, spec: &TopicSpec, topic: &TopicDescription) -> Vec<Remark> {
    let mut remarks = Vec::new();
    remarks.extend(count(needed, spec, topic));
    remarks.extend(replicas(needed, spec, topic));
    remarks
}

/// Whether the number of partitions of this topic can never change.
fn is_bound(needed: &Needed<'_>, name: &str) -> bool {
    [Topic::State, Topic::Coordinator].iter().any(|topic| needed.names.name(topic) == name)
}

fn count(needed: &Needed<'_>, spec: &TopicSpec, topic: &TopicDescription) -> Option<Remark> {
    let found = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let text = format!("{} has {found} partitions, {} are needed", spec.name, spec.partitions);
    if is_bound(needed, &spec.name) {
        // Adding partitions would take intents away from the state that knows them.
        let advice = format!("set topics.partitions.coordinator={found}");
        return (found != spec.partitions).then(|| Remark::fault(text, advice));
    }
    (found < spec.partitions).then(|| {
        let advice = format!(
            "kafka-topics.sh --bootstrap-server {} --alter --topic {} --partitions {}",
            needed.limits.brokers, spec.name, spec.partitions
        );
        Remark::fault(text, advice)
    })
}

fn smallest_replication(topic: &TopicDescription) -> usize {
    topic.partitions.iter().map(|partition| partition.replicas.len()).min().unwrap_or(0)
}

fn replicas(needed: &Needed<'_>, spec: &TopicSpec, topic: &TopicDescription) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let which = |bad: &dyn Fn(&starling_bus::PartitionDescription) -> bool| -> Vec<i32> {
        (0..)
            .zip(&topic.partitions)
            .filter(|(_, partition)| bad(partition))
            .map(|(number, _)| number)
            .collect()
    };
    let headless = which(&|partition| partition.leader.is_none());
    if !headless.is_empty() {
        let found = format!("partitions {} of {} have no leader", ranges(&headless), spec.name);
        remarks.push(Remark::fault(found, "bring the brokers back that have them"));
    }
    let behind = which(&|partition| partition.in_sync.len() < partition.replicas.len());
    if !behind.is_empty() {
        let found =
            format!("partitions {} of {} have replicas that are not in sync", ranges(&behind), spec.name);
        remarks.push(Remark::warning(found, "bring the brokers back that have them"));
    }
    if smallest_replication(topic) == 1 && needed.cluster_size > 1 {
        let found = format!("{} has replication factor 1 in a cluster of {}", spec.name, needed.cluster_size);
        let advice = "create topics with topics.replication=3 and topics.min_insync_replicas=2, or add replicas \
                      with kafka-reassign-partitions.sh";
        remarks.push(Remark::warning(found, advice));
    }
    remarks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use starling_bus::PartitionDescription;
    use starling_runtime::{Settings, topics::topic_specs};

    fn settings() -> Settings {
        Settings::defaults().expect("the defaults are valid")
    }

    fn as_needed(spec: &TopicSpec) -> TopicDescription {
        let partition = PartitionDescription { leader: Some(1), replicas: vec![1], in_sync: vec![1] };
        TopicDescription {
            name: spec.name.clone(),
            partitions: vec![partition; usize::try_from(spec.partitions).unwrap()],
            settings: Ok(spec.settings.clone()),
        }
    }

    fn judged(cluster_size: usize, change: impl Fn(&mut Result<TopicDescription, BusError>)) -> Finding {
        let settings = settings();
        let specs = topic_specs(&settings.topics);
        let names = TopicNames::new("starling");
        let mut told: Vec<_> = specs.iter().map(|spec| Ok(as_needed(spec))).collect();
        told.iter_mut().for_each(change);
        judge(&Needed { specs: &specs, names: &names, limits: Needs::of(&settings), cluster_size }, &told)
    }

    fn topic(name: &'static str, change: impl Fn(&mut TopicDescription)) -> Finding {
        judged(1, move |told| {
            if let Ok(topic) = told
                && topic.name == name
            {
                change(topic);
            }
        })
    }

    fn setting(of: &'static str, name: &'static str, value: &'static str) -> Finding {
        topic(of, move |topic| {
            topic.settings.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
        })
    }

    #[test]
    fn topics_as_they_were_created_are_fine() {
        let finding = judged(1, |_| {});
        assert_eq!((finding.status, finding.advice.as_str()), (Status::Ok, ""), "{finding:?}");
        assert!(finding.found.starts_with("13 topics with "), "{finding:?}");
    }

    #[test]
    fn what_differs_is_named_with_the_command_that_mends_it() {
        let cut = |count| move |topic: &mut TopicDescription| topic.partitions.truncate(count);
        let cases = [
            (
                topic("starling.worker", cut(4)),
                Status::Fault,
                "starling.worker has 4 partitions, 128 are needed",
                "--alter --topic starling.worker --partitions 128",
            ),
            (
                topic("starling.state", cut(4)),
                Status::Fault,
                "starling.state has 4 partitions and starling.coordinator has 12",
                "delete both",
            ),
            (
                topic("starling.coordinator", cut(4)),
                Status::Fault,
                "starling.coordinator has 4 partitions, 12",
                "topics.partitions.coordinator=4",
            ),
            (
                setting("starling.worker", "max.message.bytes", "1048588"),
                Status::Fault,
                "max.message.bytes=1048588, 8388608 is needed",
                "--entity-name starling.worker --add-config max.message.bytes=8388608",
            ),
            (
                setting("starling.state", "retention.ms", "604800000"),
                Status::Fault,
                "starling.state has retention.ms=604800000, -1",
                "retention.ms=-1",
            ),
            (
                setting("starling.state", "cleanup.policy", "compact"),
                Status::Fault,
                "cleanup.policy=compact",
                "cleanup.policy=delete",
            ),
            (
                setting("starling.state", "unclean.leader.election.enable", "true"),
                Status::Fault,
                "unclean",
                "=false",
            ),
            (
                setting("starling.worker", "unclean.leader.election.enable", "true"),
                Status::Warning,
                "unclean",
                "=false",
            ),
            (
                setting("starling.outcomes", "retention.ms", "1000"),
                Status::Warning,
                "retention.ms=1000",
                "retention.ms=",
            ),
            (
                setting("starling.control", "cleanup.policy", "delete"),
                Status::Warning,
                "cleanup.policy=delete",
                "cleanup.policy=[compact,delete]",
            ),
            (
                setting("starling.worker", "min.insync.replicas", "2"),
                Status::Fault,
                "nothing can be written",
                "topics.min_insync_replicas",
            ),
            (
                topic("starling.dlq", |topic| topic.partitions[3].leader = None),
                Status::Fault,
                "partitions 3 of starling.dlq have no leader",
                "bring",
            ),
            (
                topic("starling.dlq", |topic| topic.partitions[3].in_sync.clear()),
                Status::Warning,
                "partitions 3 of starling.dlq have replicas",
                "bring",
            ),
            (
                topic("starling.dlq", |topic| topic.settings = Err("denied".into())),
                Status::Warning,
                "settings may not be seen: starling.dlq",
                "",
            ),
        ];
        for (finding, status, found, advice) in cases {
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(found), "{found}: {finding:?}");
            assert!(finding.advice.contains(advice), "{advice}: {finding:?}");
        }
    }

    #[test]
    fn what_is_as_good_or_better_is_not_complained_about() {
        for finding in [
            setting("starling.control", "cleanup.policy", "delete,compact"),
            setting("starling.outcomes", "retention.ms", "-1"),
            setting("starling.worker", "max.message.bytes", "99999999"),
            setting("starling.worker", "segment.ms", "1"),
            topic("starling.worker", |topic| topic.partitions.push(topic.partitions[0].clone())),
        ] {
            assert_eq!(finding.status, Status::Ok, "{finding:?}");
        }
    }

    #[test]
    fn missing_topics_are_named_together_and_one_copy_among_many_brokers_is_a_warning() {
        let finding = judged(1, |told| {
            let name = told.as_ref().unwrap().name.clone();
            if ["starling.worker", "starling.dlq"].contains(&name.as_str()) {
                *told = Err(BusError::NoSuchTopic { topic: name });
            }
        });
        assert_eq!(finding.status, Status::Fault);
        assert_eq!(finding.found, "missing: starling.worker, starling.dlq");
        assert_eq!(finding.advice, "starling topics create");
        let finding = judged(3, |_| {});
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.found.contains("starling.state has replication factor 1 in a cluster of 3"));
        let finding = judged(1, |told| *told = Err(BusError::Refused("not allowed".into())));
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.found.starts_with("may not be seen: starling.intents, "), "{finding:?}");
    }
}
