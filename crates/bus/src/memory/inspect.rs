//! The memory bus about itself: a cluster of one broker, which is this process.

use super::{
    core::{Core, Shared},
    log::Log,
};
use crate::{
    BrokerDescription, BusError, ClusterDescription, Committed, GroupDescription, Inspector,
    MemberDescription, PartitionDescription, PartitionId, TopicDescription, Watermarks,
};
use async_trait::async_trait;
use starling_protocol::Timestamp;
use std::sync::Arc;

/// The id of the only broker.
const BROKER: i32 = 0;
const PLACE: &str = "in process";

pub(super) struct MemoryInspector(pub(super) Arc<Shared>);

#[async_trait]
impl Inspector for MemoryInspector {
    async fn cluster(&self) -> Result<ClusterDescription, BusError> {
        let brokers = vec![BrokerDescription { id: BROKER, address: PLACE.to_owned() }];
        Ok(ClusterDescription { id: Some("memory".to_owned()), brokers, protocol: None })
    }

    async fn topics(&self, names: &[String]) -> Result<Vec<Result<TopicDescription, BusError>>, BusError> {
        let core = self.0.lock();
        Ok(names.iter().map(|name| core.describe_topic(name)).collect())
    }

    async fn group(&self, name: &str) -> Result<Option<GroupDescription>, BusError> {
        let core = self.0.lock();
        Ok(core.groups.get(name).map(|group| {
            let state = if group.members.is_empty() { "Empty" } else { "Stable" };
            let members = group.members.iter().map(|(id, member)| MemberDescription {
                id: id.to_string(),
                host: PLACE.to_owned(),
                partitions: member.owned().cloned().collect(),
            });
            GroupDescription { state: state.to_owned(), members: members.collect() }
        }))
    }

    async fn watermarks(&self, partitions: &[PartitionId]) -> Result<Vec<Option<Watermarks>>, BusError> {
        let core = self.0.lock();
        let marks = |log: &Log| Some(Watermarks { low: log.first(), high: log.next() });
        partitions.iter().map(|at| core.known_log(at).map(marks)).collect()
    }

    async fn offsets_since(
        &self,
        partitions: &[PartitionId],
        time: Timestamp,
    ) -> Result<Vec<Option<i64>>, BusError> {
        let core = self.0.lock();
        partitions.iter().map(|at| core.known_log(at).map(|log| Some(log.first_since(time)))).collect()
    }

    async fn committed(
        &self,
        group: &str,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Committed>>, BusError> {
        let core = self.0.lock();
        let group = core.groups.get(group);
        Ok(partitions.iter().map(|at| group?.committed.get(at).cloned()).collect())
    }

    fn rest(&self) {} // nothing is held
}

impl Core {
    /// As a cluster speaks of a partition that there is not.
    fn known_log(&self, at: &PartitionId) -> Result<&Log, BusError> {
        self.log(at).map_err(|error| match error {
            BusError::Refused(_) => BusError::NoSuchTopic { topic: at.topic.to_string() },
            error => error,
        })
    }

    fn describe_topic(&self, name: &str) -> Result<TopicDescription, BusError> {
        let missing = || BusError::NoSuchTopic { topic: name.to_owned() };
        let topic = self.topics.get(name).ok_or_else(missing)?;
        let one =
            PartitionDescription { leader: Some(BROKER), replicas: vec![BROKER], in_sync: vec![BROKER] };
        let partitions = vec![one; topic.logs.len()];
        Ok(TopicDescription { name: name.to_owned(), partitions, settings: Ok(topic.settings.clone()) })
    }
}
