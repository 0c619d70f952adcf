//! What an operator wants to know of a cluster. Nothing of it is needed to work, nothing of it has an effect.

use crate::{BusError, Committed, PartitionId, Watermarks};
use async_trait::async_trait;
use starling_protocol::Timestamp;
use std::collections::BTreeMap;

/// Asks a cluster about itself. Every answer is bounded in time.
#[async_trait]
pub trait Inspector: Send + Sync {
    /// The brokers.
    ///
    /// # Errors
    /// No broker answers.
    async fn cluster(&self) -> Result<ClusterDescription, BusError>;

    /// Topics as they are, in the order asked for. A topic that is missing or must not be seen is an error
    /// of its own.
    ///
    /// # Errors
    /// No broker answers.
    async fn topics(&self, names: &[String]) -> Result<Vec<Result<TopicDescription, BusError>>, BusError>;

    /// The members of a consumer group; `None` if the cluster does not know it or does not tell of its members,
    /// as it does not with groups that the broker balances (KIP-848).
    ///
    /// # Errors
    /// No broker answers, or it must not be seen.
    async fn group(&self, name: &str) -> Result<Option<GroupDescription>, BusError>;

    /// The first and the next offset of these partitions, in the order asked for; `None` for one that does not
    /// tell now.
    ///
    /// # Errors
    /// A topic is missing, no broker answers, or they must not be seen.
    async fn watermarks(&self, partitions: &[PartitionId]) -> Result<Vec<Option<Watermarks>>, BusError>;

    /// The offset of the first record of each of these partitions that was written at that time or later, in the
    /// order asked for; where there is none, the offset that the next record will have. `None` for a partition
    /// that does not tell now.
    ///
    /// # Errors
    /// A topic is missing, no broker answers, or they must not be seen.
    async fn offsets_since(
        &self,
        partitions: &[PartitionId],
        time: Timestamp,
    ) -> Result<Vec<Option<i64>>, BusError>;

    /// What a group has committed for these partitions, in the order asked for.
    ///
    /// # Errors
    /// No broker answers, or they must not be seen.
    async fn committed(
        &self,
        group: &str,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Committed>>, BusError>;

    /// Lets go of connections and what else is held to answer; the next question takes them up again. For who asks
    /// once in a long life.
    fn rest(&self);
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// Its id; `None` if it does not tell.
    pub id: Option<String>,
    /// Its brokers, by their ids.
    pub brokers: Vec<BrokerDescription>,
    /// The version of the protocol between its brokers, where they tell it: at least that is their own.
    pub protocol: Option<String>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerDescription {
    /// Its id.
    pub id: i32,
    /// Where it says that clients find it: host and port.
    pub address: String,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Full name.
    pub name: String,
    /// Its partitions, by their numbers.
    pub partitions: Vec<PartitionDescription>,
    /// Its settings, defaults of the broker included; or why they must not be seen.
    pub settings: Result<BTreeMap<String, String>, String>,
}

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionDescription {
    /// The broker that leads it; `None` if none does.
    pub leader: Option<i32>,
    /// The brokers that have it.
    pub replicas: Vec<i32>,
    /// Those of them that have all of it.
    pub in_sync: Vec<i32>,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// In the cluster's words, such as `Stable`.
    pub state: String,
    /// Its members.
    pub members: Vec<MemberDescription>,
}

/// A member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// The cluster's name for it.
    pub id: String,
    /// Where it runs.
    pub host: String,
    /// What is assigned to it, sorted.
    pub partitions: Vec<PartitionId>,
}
