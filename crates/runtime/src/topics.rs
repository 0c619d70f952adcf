//! The topics of an installation, as they are to be created.

use crate::settings::TopicSettings;
use starling_bus::TopicSpec;
use starling_protocol::{Topic, TopicNames};
use std::{collections::BTreeMap, time::Duration};

/// Every topic with its number of partitions and its settings.
#[must_use]
pub fn topic_specs(settings: &TopicSettings) -> Vec<TopicSpec> {
    let names = TopicNames::new(settings.prefix.as_str());
    Topic::all_with(&settings.pools).iter().map(|topic| spec(settings, &names, topic)).collect()
}

fn spec(settings: &TopicSettings, names: &TopicNames, topic: &Topic) -> TopicSpec {
    let (count, kept) = (&settings.partitions, &settings.retention);
    let (partitions, retention) = match topic {
        Topic::Intents => (count.intents, Some(kept.inboxes)),
        Topic::Coordinator => (count.coordinator, Some(kept.inboxes)),
        Topic::Planner => (count.planner, Some(kept.inboxes)),
        Topic::Worker(pool) => {
            let own = pool.as_ref().and_then(|pool| settings.pool_partitions.get(pool));
            (own.copied().unwrap_or(count.worker), Some(kept.inboxes))
        }
        Topic::Critic => (count.critic, Some(kept.inboxes)),
        Topic::Tool => (count.tool, Some(kept.inboxes)),
        Topic::Outcomes => (count.outcomes, Some(kept.outcomes)),
        Topic::Progress => (count.progress, Some(kept.progress)),
        Topic::Content => (count.content, Some(kept.content)),
        Topic::Control => (1, Some(kept.control)),
        Topic::Fleet => (1, Some(kept.fleet)),
        // One state partition for each partition of the inbox, kept for ever: its owner trims it.
        Topic::State => (count.coordinator, None),
        Topic::Dlq => (count.dlq, Some(kept.dlq)),
    };
    let mut entries = BTreeMap::from([
        ("cleanup.policy", "delete".to_owned()),
        ("max.message.bytes", settings.max_message.to_string()),
        ("min.insync.replicas", settings.min_insync_replicas.to_string()),
        ("retention.ms", retention.map_or("-1".to_owned(), millis)),
        ("retention.bytes", "-1".to_owned()),
        // A replica that lacks acknowledged records must never lead: promises rest on them.
        ("unclean.leader.election.enable", "false".to_owned()),
    ]);
    match topic {
        Topic::Control => {
            entries.insert("cleanup.policy", "compact,delete".to_owned());
        }
        Topic::Fleet | Topic::Progress => {
            // Retention works by whole segments, so short-lived records need short segments.
            let segment = retention.unwrap_or(Duration::from_secs(600)) / 2;
            entries.insert("segment.ms", millis(segment.max(Duration::from_secs(60))));
        }
        _ => {}
    }
    TopicSpec {
        name: names.name(topic),
        partitions,
        replication: settings.replication,
        settings: entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
