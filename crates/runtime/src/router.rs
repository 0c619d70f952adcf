//! Which partition an envelope goes to.

use crate::{gather::Gather, random::Random};
use futures::future::join_all;
use starling_bus::{Bus, BusError, PartitionId};
use starling_protocol::{Body, Envelope, Topic, TopicNames, topic::partition_of};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::time::Instant;

/// Knows every topic and its number of partitions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Router {
    names: TopicNames,
    inboxes: Arc<HashMap<Topic, Inbox>>,
}

#[derive(Debug)]
struct Inbox {
    name: Arc<str>,
    partitions: i32,
    /// Where the next record without a key goes.
    turn: AtomicU32,
    /// Where the next record goes whose key is for people only.
    gather: Gather,
}

/// An address that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No such topic in this installation, such as a worker pool that the settings do not name.
    #[error("topic {0} is not part of this installation; worker pools are named in the setting topics.pools")]
    UnknownTopic(String),
    /// The topic has fewer partitions.
    #[error("topic {topic} has {partitions} partitions, and so no partition {partition}")]
    NoSuchPartition {
        /// Its name.
        topic: String,
        /// The one asked for.
        partition: i32,
        /// How many there are.
        partitions: i32,
    },
}

impl Router {
    /// Looks up the partition counts of all topics of an installation without extra pools.
    ///
    /// # Errors
    /// See [`Router::with_pools`].
    pub async fn connect(bus: &dyn Bus, names: TopicNames) -> Result<Self, BusError> {
        Self::with_pools(bus, names, &[], &Random::system()).await
    }

    /// Looks up the partition counts of all topics, those of extra worker pools included.
    ///
    /// # Errors
    /// The broker is unreachable, or topics are missing: [`BusError::NoSuchTopic`] then names all of them.
    pub async fn with_pools(
        bus: &dyn Bus,
        names: TopicNames,
        pools: &[String],
        random: &Random,
    ) -> Result<Self, BusError> {
        let topics = Topic::all_with(pools);
        let counts = join_all(topics.iter().map(|topic| {
            let name = names.name(topic);
            async move { (bus.partitions(&name).await, name) }
        }))
        .await;

        let mut inboxes = HashMap::new();
        let mut missing = Vec::new();
        for (topic, (count, name)) in topics.into_iter().zip(counts) {
            match count {
                Ok(partitions) => {
                    let gather = Gather::starting_at((random.bits() >> 32) as u32);
                    let inbox = Inbox { name: name.into(), partitions, turn: AtomicU32::new(0), gather };
                    inboxes.insert(topic, inbox);
                }
                Err(BusError::NoSuchTopic { topic }) => missing.push(topic),
                Err(other) => return Err(other),
            }
        }
        if missing.is_empty() {
            Ok(Self { names, inboxes: Arc::new(inboxes) })
        } else {
            Err(BusError::NoSuchTopic { topic: missing.join(", ") })
        }
    }

    /// The names that it was made with.
    #[must_use]
    pub fn names(&self) -> &TopicNames {
        &self.names
    }

    /// The full name of a topic.
    ///
    /// # Errors
    /// The topic is unknown.
    pub fn name(&self, topic: &Topic) -> Result<Arc<str>, RouteError> {
        Ok(self.inbox(topic)?.name.clone())
    }

    /// The number of partitions of a topic.
    ///
    /// # Errors
    /// The topic is unknown.
    pub fn partitions(&self, topic: &Topic) -> Result<i32, RouteError> {
        Ok(self.inbox(topic)?.partitions)
    }

    /// The partition for a record: the one named, else the one that the key belongs to, else the next in
    /// turn. Results for critics have the task's key, but no order that matters: those that come together go
    /// together.
    ///
    /// # Errors
    /// The topic is unknown, or has no such partition.
    pub fn route(
        &self,
        to: &Topic,
        key: Option<&str>,
        partition: Option<i32>,
    ) -> Result<PartitionId, RouteError> {
        let inbox = self.inbox(to)?;
        let partition = match (partition, key) {
            (Some(partition), _) if (0..inbox.partitions).contains(&partition) => partition,
            (Some(partition), _) => {
                return Err(RouteError::NoSuchPartition {
                    topic: inbox.name.to_string(),
                    partition,
                    partitions: inbox.partitions,
                });
            }
            (None, _) if *to == Topic::Critic => inbox.gather.next(Instant::now(), inbox.partitions),
            (None, Some(key)) => partition_of(key, inbox.partitions),
            (None, None) => {
                let turn = inbox.turn.fetch_add(1, Ordering::Relaxed);
                let count = u32::try_from(inbox.partitions).unwrap_or(1).max(1);
                i32::try_from(turn % count).unwrap_or(0)
            }
        };
        Ok(PartitionId { topic: inbox.name.clone(), partition })
    }

    fn inbox(&self, topic: &Topic) -> Result<&Inbox, RouteError> {
        self.inboxes.get(topic).ok_or_else(|| RouteError::UnknownTopic(self.names.name(topic)))
    }
}

/// The Kafka key of an envelope on a topic; `None` where any partition will do. On the coordinator's and
/// the planner's inbox and on the outputs it is the intent, so that one intent's records stay in order;
/// elsewhere it is the lane, or the task where the topic is keyed by tasks.
#[must_use]
pub fn key_of<'e>(to: &Topic, envelope: &'e Envelope) -> Option<&'e str> {
    let lane = envelope.tag.lane.as_deref();
    match to {
        Topic::Coordinator | Topic::Planner | Topic::Outcomes | Topic::Progress | Topic::Control => {
            Some(envelope.intent_id.as_str())
        }
        Topic::Critic | Topic::Tool => lane.or_else(|| task_of(&envelope.body)),
        Topic::Content => Some(envelope.id.as_str()),
        Topic::Intents | Topic::Worker(_) | Topic::Fleet | Topic::State | Topic::Dlq => lane,
    }
}

/// The task that a body speaks of.
#[must_use]
pub fn task_of(body: &Body) -> Option<&str> {
    let task = match body {
        Body::Task(task) => &task.task_id,
        Body::TaskTurn(turn) => &turn.task_id,
        Body::TaskResult(result) => &result.task_id,
        Body::Verdict(verdict) => &verdict.task_id,
        Body::ToolRequest(request) => &request.task_id,
        Body::ToolReply(reply) => &reply.task_id,
        Body::Intent(_)
        | Body::Rejection(_)
        | Body::PlanRequest(_)
        | Body::PlanFragment(_)
        | Body::Progress(_)
        | Body::Outcome(_)
        | Body::Cancel(_)
        | Body::LeaseRequest(_)
        | Body::LeaseGrant(_)
        | Body::Content(_) => return None,
    };
    Some(task.as_str())
}

/// The attempt that a body speaks of.
#[must_use]
pub fn attempt_of(body: &Body) -> Option<i32> {
    match body {
        Body::Task(task) => Some(task.attempt),
        Body::TaskTurn(turn) => Some(turn.attempt),
        Body::TaskResult(result) => Some(result.attempt),
        Body::Verdict(verdict) => Some(verdict.attempt),
        Body::ToolRequest(request) => Some(request.attempt),
        Body::ToolReply(reply) => Some(reply.attempt),
        Body::PlanRequest(request) => Some(request.plan_attempt),
        Body::PlanFragment(fragment) => Some(fragment.plan_attempt),
        Body::Intent(_)
        | Body::Rejection(_)
        | Body::Progress(_)
        | Body::Outcome(_)
        | Body::Cancel(_)
        | Body::LeaseRequest(_)
        | Body::LeaseGrant(_)
        | Body::Content(_) => None,
    }
}
