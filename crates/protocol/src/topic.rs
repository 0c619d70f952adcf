//! Topics and partitions: which role's inbox is which topic, and which partition a key belongs to.

use crate::{Role, Tag};

/// The topics of an installation, without its prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Input: intents from users.
    Intents,
    /// Inbox of the coordinator.
    Coordinator,
    /// Inbox of the plan loop.
    Planner,
    /// Inbox of a worker pool; `None` is the default pool.
    Worker(Option<String>),
    /// Inbox of the critics.
    Critic,
    /// Inbox of the tool gateway.
    Tool,
    /// Output: the ends of intents.
    Outcomes,
    /// Output: what happens on the way.
    Progress,
    /// Storage of large values.
    Content,
    /// Broadcast: cancellations.
    Control,
    /// Broadcast: slots and demand of every process.
    Fleet,
    /// The coordinator's state log.
    State,
    /// Dead letters.
    Dlq,
}

impl Topic {
    /// All topics that an installation without extra pools has.
    #[must_use]
    pub fn all() -> Vec<Topic> {
        vec![
            Topic::Intents,
            Topic::Coordinator,
            Topic::Planner,
            Topic::Worker(None),
            Topic::Critic,
            Topic::Tool,
            Topic::Outcomes,
            Topic::Progress,
            Topic::Content,
            Topic::Control,
            Topic::Fleet,
            Topic::State,
            Topic::Dlq,
        ]
    }

    /// All topics of an installation with these extra pools, theirs last.
    #[must_use]
    pub fn all_with(pools: &[String]) -> Vec<Topic> {
        Self::all().into_iter().chain(Self::pools(pools)).collect()
    }

    /// The topics of extra pools.
    pub fn pools(pools: &[String]) -> impl Iterator<Item = Topic> {
        pools.iter().map(|pool| Topic::Worker(Some(pool.clone())))
    }

    /// The name without prefix.
    #[must_use]
    pub fn suffix(&self) -> String {
        match self {
            Topic::Intents => "intents".into(),
            Topic::Coordinator => "coordinator".into(),
            Topic::Planner => "planner".into(),
            Topic::Worker(None) => "worker".into(),
            Topic::Worker(Some(pool)) => format!("worker.{pool}"),
            Topic::Critic => "critic".into(),
            Topic::Tool => "tool".into(),
            Topic::Outcomes => "outcomes".into(),
            Topic::Progress => "progress".into(),
            Topic::Content => "content".into(),
            Topic::Control => "control".into(),
            Topic::Fleet => "fleet".into(),
            Topic::State => "state".into(),
            Topic::Dlq => "dlq".into(),
        }
    }
}

impl From<&Tag> for Topic {
    fn from(tag: &Tag) -> Self {
        match tag.role {
            Role::Intake => Topic::Intents,
            Role::Coordinator => Topic::Coordinator,
            Role::Planner => Topic::Planner,
            Role::Worker => Topic::Worker(tag.pool.clone()),
            Role::Critic => Topic::Critic,
            Role::Tool => Topic::Tool,
        }
    }
}

/// The names of an installation's topics: `<prefix>.<suffix>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicNames {
    prefix: String,
}

impl TopicNames {
    /// Names under `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The full name of a topic.
    #[must_use]
    pub fn name(&self, topic: &Topic) -> String {
        format!("{}.{}", self.prefix, topic.suffix())
    }

    /// The name of a consumer group or transactional id for `role`.
    #[must_use]
    pub fn group(&self, role: &str) -> String {
        format!("{}.{role}", self.prefix)
    }
}

/// The partition that `key` belongs to among `partitions`. Starling computes it itself and never leaves
/// it to a client's partitioner, because the coordinator's state depends on it: FNV-1a (64 bit), folded
/// by multiplication (Lemire's reduction) so that it needs no modulo bias argument.
#[must_use]
pub fn partition_of(key: &str, partitions: i32) -> i32 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // FNV's low bits are its best; spread them before the high bits are used.
    let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let count = u64::from(u32::try_from(partitions.max(1)).unwrap_or(1));
    let index = ((u128::from(spread) * u128::from(count)) >> 64) as u64;
    i32::try_from(index).unwrap_or(0)
}
