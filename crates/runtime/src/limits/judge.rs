//! What is wrong with topics: a plain function from what the broker tells of them.

use crate::{
    settings::{Settings, TopicSettings},
    topics::topic_specs,
};
use starling_bus::{BusError, TopicDescription};
use starling_protocol::{Topic, TopicNames};
use std::{collections::BTreeMap, time::Duration};

/// What topics are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'s> {
    /// Names, counts and settings as they are wanted.
    pub topics: &'s TopicSettings,
    /// The most time that an intent may ask for.
    pub longest_deadline: Duration,
    /// Addresses, for commands in advice.
    pub brokers: &'s str,
}

impl<'s> Needs<'s> {
    /// Those of these settings.
    #[must_use]
    pub fn of(settings: &'s Settings) -> Self {
        Self {
            topics: &settings.topics,
            longest_deadline: settings.coordinator.max_deadline,
            brokers: &settings.kafka.brokers,
        }
    }
}

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Everything that is promised is kept, but not as it is set.
    Weakens,
    /// Something that is promised would be broken.
    Breaks,
}

/// One thing that is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How much it matters.
    pub weight: Weight,
    /// What was found, and what is needed.
    pub found: String,
    /// The command or setting that helps.
    pub advice: String,
}

/// What a topic is there for, as far as its limits are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// The state log: everything, until its owner trims it.
    Everything,
    /// What intents under way need: as long as one may take.
    Work,
    /// What has happened: for people, but nothing of it may get lost before its time.
    Record,
    /// What is of interest for a moment.
    Moment,
}

impl Keeps {
    fn of(topic: &Topic) -> Self {
        match topic {
            Topic::State => Keeps::Everything,
            Topic::Intents
            | Topic::Coordinator
            | Topic::Planner
            | Topic::Worker(_)
            | Topic::Critic
            | Topic::Tool
            | Topic::Content
            | Topic::Control => Keeps::Work,
            Topic::Outcomes | Topic::Dlq => Keeps::Record,
            Topic::Progress | Topic::Fleet => Keeps::Moment,
        }
    }
}

/// Everything that is not as the promises need it, the worst first. Topics that are missing or must not be seen are
/// passed over, and so are settings that must not be seen: whoever asked tells of them.
#[must_use]
pub fn judge(needs: &Needs<'_>, told: &[Result<TopicDescription, BusError>]) -> Vec<Limit> {
    let names = TopicNames::new(needs.topics.prefix.as_str());
    let topics: BTreeMap<String, Topic> =
        Topic::all_with(&needs.topics.pools).into_iter().map(|topic| (names.name(&topic), topic)).collect();
    let specs: BTreeMap<String, BTreeMap<String, String>> =
        topic_specs(needs.topics).into_iter().map(|spec| (spec.name, spec.settings)).collect();
    let mut limits: Vec<Limit> = told
        .iter()
        .flatten()
        .filter_map(|found| Some((found, topics.get(&found.name)?, specs.get(&found.name)?)))
        .flat_map(|(found, topic, wanted)| {
            Judged { needs, found, topic, keeps: Keeps::of(topic) }.settings(wanted)
        })
        .collect();
    limits.extend(one_state_for_each_inbox(needs, &names, told));
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.weight));
    limits
}

/// The partition of an intent follows from their number, and each has a log of its own.
fn one_state_for_each_inbox(
    needs: &Needs<'_>,
    names: &TopicNames,
    told: &[Result<TopicDescription, BusError>],
) -> Option<Limit> {
    let count =
        |name: &str| told.iter().flatten().find(|told| told.name == name).map(|told| told.partitions.len());
    let (state, inbox) = (names.name(&Topic::State), names.name(&Topic::Coordinator));
    let (of_state, of_inbox) = (count(&state)?, count(&inbox)?);
    (of_state != of_inbox).then(|| Limit {
        weight: Weight::Breaks,
        found: format!(
            "{state} has {of_state} partitions and {inbox} has {of_inbox}: each partition of the inbox needs its own \
             state partition, so the counts must be the same"
        ),
        advice: format!(
            "while no intent runs, delete both and create them anew: kafka-topics.sh --bootstrap-server {} --delete \
             --topic {state},{inbox}, then starling topics create; or start with new topics under another \
             topics.prefix",
            needs.brokers
        ),
    })
}

/// One topic while it is judged.
struct Judged<'j> {
    needs: &'j Needs<'j>,
    found: &'j TopicDescription,
    topic: &'j Topic,
    keeps: Keeps,
}

impl Judged<'_> {
    fn settings(&self, wanted: &BTreeMap<String, String>) -> Vec<Limit> {
        let Ok(found) = &self.found.settings else { return Vec::new() };
        // A setting that is not told has the broker's default, which is what was wanted or nothing to judge.
        let pairs = wanted.iter().filter_map(|(name, wanted)| Some((name, wanted, found.get(name)?)));
        pairs.filter_map(|(name, wanted, found)| self.setting(name, wanted, found)).collect()
    }

    fn setting(&self, name: &str, wanted: &str, found: &str) -> Option<Limit> {
        match name {
            "max.message.bytes" => {
                // The producers and the codec take what the setting says: a record in between would be lost.
                self.less(found, wanted).then(|| self.limit(Weight::Breaks, name, wanted, found))
            }
            "min.insync.replicas" => self.in_sync(name, wanted, found),
            "retention.ms" => self.retention(name, wanted, found),
            "retention.bytes" => {
                self.less(found, wanted).then(|| self.limit(self.severe(), name, wanted, found))
            }
            "unclean.leader.election.enable" => {
                // A replica that can become leader without all records is one that there is.
                let breaks =
                    self.keeps == Keeps::Everything || (self.keeps != Keeps::Moment && self.replicas() > 1);
                let weight = if breaks { Weight::Breaks } else { Weight::Weakens };
                (found != wanted).then(|| self.limit(weight, name, wanted, found))
            }
            "cleanup.policy" => self.cleanup(name, wanted, found),
            _ => None,
        }
    }

    /// Compaction removes records that nobody has read; where it is wanted, without it there are only more of them.
    fn cleanup(&self, name: &str, wanted: &str, found: &str) -> Option<Limit> {
        let parts = |text: &str| {
            let mut parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
            parts.sort_unstable();
            parts
        };
        let (has, needs) = (parts(found), parts(wanted));
        let compacts = |parts: &[String]| parts.iter().any(|part| part == "compact");
        let loses = compacts(&has) && !compacts(&needs) && self.keeps != Keeps::Moment;
        let weight = if loses { Weight::Breaks } else { Weight::Weakens };
        (has != needs).then(|| self.limit(weight, name, wanted, found))
    }

    fn retention(&self, name: &str, wanted: &str, found: &str) -> Option<Limit> {
        let longest = self.needs.longest_deadline.as_millis().to_string();
        if self.keeps == Keeps::Work && self.less(found, &longest) {
            let mut limit = self.limit(Weight::Breaks, name, wanted, found);
            limit.found = format!(
                "{} has {name}={found}, and an intent may take {longest} (coordinator.max_deadline): {}",
                self.found.name,
                if *self.topic == Topic::Control {
                    "who starts late would work for cancelled ones"
                } else {
                    "what it needs would be deleted under way"
                }
            );
            return Some(limit);
        }
        self.less(found, wanted).then(|| self.limit(self.severe(), name, wanted, found))
    }

    /// With one replica in sync, a record is acknowledged that one broker has: it is lost with that broker, although
    /// others are there to have it.
    fn in_sync(&self, name: &str, wanted: &str, found: &str) -> Option<Limit> {
        let (copies, replicas) = (found.parse::<usize>().ok()?, self.replicas());
        if replicas > 0 && copies > replicas {
            let found = format!(
                "{} has {name}={copies} and {replicas} replicas: nothing can be written",
                self.found.name
            );
            let advice = "set topics.min_insync_replicas and topics.replication so that the first is not above the second";
            return Some(Limit { weight: Weight::Breaks, found, advice: advice.to_owned() });
        }
        if replicas > 1 && copies < 2 {
            let weight = if self.keeps == Keeps::Moment { Weight::Weakens } else { Weight::Breaks };
            let mut limit = self.limit(weight, name, "2", found);
            limit.found = format!(
                "{} has {name}={copies} and {replicas} replicas: what one broker alone has acknowledged is lost with it",
                self.found.name
            );
            return Some(limit);
        }
        self.less(found, wanted).then(|| self.limit(Weight::Weakens, name, wanted, found))
    }

    /// How bad it is that records go before their time, not before it is needed that they stay.
    fn severe(&self) -> Weight {
        if self.keeps == Keeps::Everything { Weight::Breaks } else { Weight::Weakens }
    }

    fn replicas(&self) -> usize {
        self.found.partitions.iter().map(|partition| partition.replicas.len()).min().unwrap_or(0)
    }

    fn less(&self, found: &str, than: &str) -> bool {
        // -1 stands for no limit.
        let limit =
            |text: &str| text.parse::<i64>().ok().map(|value| if value < 0 { i64::MAX } else { value });
        limit(found) < limit(than)
    }

    fn limit(&self, weight: Weight, name: &str, wanted: &str, found: &str) -> Limit {
        let value = if wanted.contains(',') { format!("[{wanted}]") } else { wanted.to_owned() };
        Limit {
            weight,
            found: format!("{} has {name}={found}, {wanted} is needed", self.found.name),
            advice: format!(
                "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {} \
                 --add-config {name}={value}",
                self.needs.brokers, self.found.name
            ),
        }
    }
}
