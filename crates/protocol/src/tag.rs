//! Tags: the addresses of Starling. `role:<role>[.<pool>][#<lane>]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// What a service does; together with the pool it names the topic that the service reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Accepts intents from the input topic.
    Intake,
    /// Decides.
    Coordinator,
    /// Turns an intent into a plan.
    Planner,
    /// Executes a task.
    Worker,
    /// Scores a result.
    Critic,
    /// Calls tools.
    Tool,
}

impl Role {
    /// The role's name as it stands in a tag.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Intake => "intake",
            Role::Coordinator => "coordinator",
            Role::Planner => "planner",
            Role::Worker => "worker",
            Role::Critic => "critic",
            Role::Tool => "tool",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Role::Intake, Role::Coordinator, Role::Planner, Role::Worker, Role::Critic, Role::Tool]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// An address. Role and pool name the topic, the lane is the Kafka key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// Who is meant.
    pub role: Role,
    /// Which pool of that role, for workers; none is the default pool.
    pub pool: Option<String>,
    /// Envelopes of one lane stay in order in one partition.
    pub lane: Option<String>,
}

impl Tag {
    /// The tag of a role's default pool, without a lane.
    #[must_use]
    pub const fn role(role: Role) -> Self {
        Self { role, pool: None, lane: None }
    }

    /// The same address with a lane.
    #[must_use]
    pub fn with_lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "role:{}", self.role.name())?;
        if let Some(pool) = &self.pool {
            write!(f, ".{pool}")?;
        }
        if let Some(lane) = &self.lane {
            write!(f, "#{lane}")?;
        }
        Ok(())
    }
}

/// A text that is no tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a tag: expected role:<intake|coordinator|planner|worker|critic|tool>[.<pool>][#<lane>], \
         a pool being 1 to 64 characters of a-z, 0-9 and -"
)]
pub struct InvalidTag(String);

impl FromStr for Tag {
    type Err = InvalidTag;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTag(text.chars().take(200).collect());
        let rest = text.strip_prefix("role:").ok_or_else(invalid)?;
        let (address, lane) = match rest.split_once('#') {
            Some((address, lane)) if !lane.is_empty() => (address, Some(lane.to_owned())),
            Some(_) => return Err(invalid()),
            None => (rest, None),
        };
        let (role, pool) = match address.split_once('.') {
            Some((role, pool)) if is_pool_name(pool) => (role, Some(pool.to_owned())),
            Some(_) => return Err(invalid()),
            None => (address, None),
        };
        let role = Role::from_name(role).ok_or_else(invalid)?;
        Ok(Self { role, pool, lane })
    }
}

/// What the pool without a name is called where a list names pools.
pub const DEFAULT_POOL: &str = "default";

/// Whether `pool` can name a worker pool: it becomes part of a topic's name.
#[must_use]
pub fn is_pool_name(pool: &str) -> bool {
    (1..=64).contains(&pool.len())
        && pool.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
