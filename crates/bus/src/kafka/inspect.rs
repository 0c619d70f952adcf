//! Questions of an operator. The clients for them are made when the first one is asked.

use super::{
    KafkaOptions,
    access::Access,
    context::Attentive,
    convert::{committed_in, list_of},
    errors::code_of,
};
use crate::{
    BrokerDescription, BusError, ClusterDescription, Committed, GroupDescription, Inspector,
    MemberDescription, PartitionDescription, PartitionId, TopicDescription, Watermarks,
};
use async_trait::async_trait;
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier},
    config::FromClientConfigAndContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
};
use starling_protocol::Timestamp;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::task::spawn_blocking;

/// How long leaders are waited for before they are looked for anew: the client does not look again while it waits, and
/// one that has died does not answer.
const OFFSETS_TRY: Duration = Duration::from_secs(1);
/// Groups whose consumers are kept for the next question; an installation has about five.
const KEPT_GROUPS: usize = 64;

#[derive(Clone)]
pub(super) struct KafkaInspector(Arc<Inner>);

struct Inner {
    options: KafkaOptions,
    access: Access,
    /// Why no connection comes about.
    trouble: Attentive,
    clients: Mutex<Option<Arc<Clients>>>,
    /// One for each group that was asked about: the client tells offsets only of the group that it is made for.
    offsets: Mutex<BTreeMap<String, Arc<Offsets>>>,
}

struct Clients {
    metadata: BaseConsumer<Attentive>,
    admin: AdminClient<Attentive>,
}

/// Asks what one group has committed, without becoming its member.
struct Offsets {
    consumer: Option<BaseConsumer<Attentive>>,
    /// Whether the group's coordinator answered the last time.
    answered: AtomicBool,
}

impl Offsets {
    fn new(consumer: BaseConsumer<Attentive>) -> Self {
        Self { consumer: Some(consumer), answered: AtomicBool::new(false) }
    }

    fn committed(&self, of: &[PartitionId], within: Duration) -> KafkaResult<TopicPartitionList> {
        let Some(consumer) = &self.consumer else { return Err(KafkaError::Canceled) };
        while consumer.poll(Duration::ZERO).is_some() {} // serves its log, which would pile up else
        self.answered.store(false, Ordering::Relaxed);
        let told = consumer.committed_offsets(list_of(of), within);
        self.answered.store(told.is_ok(), Ordering::Relaxed);
        told
    }
}

impl Drop for Offsets {
    fn drop(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        if self.answered.load(Ordering::Relaxed) {
            thread::spawn(move || drop(consumer)); // it waits for its own threads
        } else {
            std::mem::forget(consumer); // closing it while its coordinator is away can crash
        }
    }
}

impl KafkaInspector {
    pub(super) fn new(options: KafkaOptions) -> Self {
        Self(Arc::new(Inner {
            access: Access::of(&options),
            options,
            trouble: Attentive::default(),
            clients: Mutex::default(),
            offsets: Mutex::default(),
        }))
    }

    /// librdkafka answers these on the calling thread.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Inner) -> Result<T, BusError> + Send + 'static,
    ) -> Result<T, BusError> {
        let inner = self.0.clone();
        let asked = spawn_blocking(move || ask(&inner));
        asked.await.unwrap_or_else(|error| Err(BusError::Retry(error.to_string())))
    }

    /// The settings of topics or brokers; those that must not be seen are missing.
    async fn settings(
        &self,
        of: &[ResourceSpecifier<'_>],
    ) -> Result<Vec<Result<ConfigResource, Code>>, BusError> {
        let clients = self.0.clients()?;
        let within = Some(self.0.options.request_timeout);
        let options = AdminOptions::new().request_timeout(within).operation_timeout(within);
        let told = clients.admin.describe_configs(of, &options).await;
        told.map_err(|error| self.0.failed(&error, "the right DescribeConfigs"))
    }
}

#[async_trait]
impl Inspector for KafkaInspector {
    async fn cluster(&self) -> Result<ClusterDescription, BusError> {
        let mut cluster = self.blocking(Inner::cluster).await?;
        if let Some(broker) = cluster.brokers.first() {
            // Not every user may see it, and brokers since 4.0 do not have it.
            let told = self.settings(&[ResourceSpecifier::Broker(broker.id)]).await.unwrap_or_default();
            cluster.protocol = told.into_iter().flatten().next().and_then(|resource| {
                resource.get("inter.broker.protocol.version").and_then(|entry| entry.value.clone())
            });
        }
        Ok(cluster)
    }

    async fn topics(&self, names: &[String]) -> Result<Vec<Result<TopicDescription, BusError>>, BusError> {
        let asked = names.to_vec();
        let mut topics = self.blocking(move |inner| inner.topics(&asked)).await?;
        let there: Vec<ResourceSpecifier<'_>> = names
            .iter()
            .zip(&topics)
            .filter(|(_, topic)| topic.is_ok())
            .map(|(name, _)| ResourceSpecifier::Topic(name))
            .collect();
        if there.is_empty() {
            return Ok(topics);
        }
        let mut told = BTreeMap::new();
        // The client drops the reason why a topic has none.
        let denied =
            |code| self.0.access.denied(&KafkaError::AdminOp(code), "the right DescribeConfigs on it");
        let mut refused = denied(Code::TopicAuthorizationFailed);
        for resource in self.settings(&there).await? {
            match resource {
                Ok(resource) => {
                    // Every topic has settings; whoever may not see them is told of none.
                    if let OwnedResourceSpecifier::Topic(name) = &resource.specifier
                        && !resource.entries.is_empty()
                    {
                        told.insert(name.clone(), values(&resource));
                    }
                }
                // The client does not say of which topic it speaks.
                Err(code) => refused = denied(code),
            }
        }
        for topic in topics.iter_mut().flatten() {
            topic.settings = told.remove(&topic.name).ok_or_else(|| refused.clone());
        }
        Ok(topics)
    }

    async fn group(&self, name: &str) -> Result<Option<GroupDescription>, BusError> {
        let name = name.to_owned();
        self.blocking(move |inner| inner.group(&name)).await
    }

    async fn watermarks(&self, partitions: &[PartitionId]) -> Result<Vec<Option<Watermarks>>, BusError> {
        let partitions = partitions.to_vec();
        self.blocking(move |inner| inner.watermarks(&partitions)).await
    }

    async fn offsets_since(
        &self,
        partitions: &[PartitionId],
        time: Timestamp,
    ) -> Result<Vec<Option<i64>>, BusError> {
        let partitions = partitions.to_vec();
        self.blocking(move |inner| inner.offsets_since(&partitions, time)).await
    }

    async fn committed(
        &self,
        group: &str,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Committed>>, BusError> {
        let (group, partitions) = (group.to_owned(), partitions.to_vec());
        self.blocking(move |inner| inner.committed(&group, &partitions)).await
    }

    fn rest(&self) {
        let clients = lock(&self.0.clients).take();
        let offsets = std::mem::take(&mut *lock(&self.0.offsets));
        thread::spawn(move || drop((clients, offsets))); // they wait for their own threads
    }
}

impl Inner {
    fn clients(&self) -> Result<Arc<Clients>, BusError> {
        let mut clients = lock(&self.clients);
        if let Some(clients) = &*clients {
            while clients.metadata.poll(Duration::ZERO).is_some() {} // serves its log, which would pile up else
            return Ok(clients.clone());
        }
        let config = self.options.admin();
        let failed = |error: KafkaError| self.access.error(&error, "more rights");
        let metadata = config.create_with_context(self.trouble.clone()).map_err(failed)?;
        let admin = AdminClient::from_config_and_context(&config, self.trouble.clone()).map_err(failed)?;
        Ok(clients.insert(Arc::new(Clients { metadata, admin })).clone())
    }

    fn cluster(&self) -> Result<ClusterDescription, BusError> {
        let clients = self.clients()?;
        let patience = self.options.request_timeout;
        let metadata = clients.metadata.fetch_metadata(None, patience);
        let metadata = metadata.map_err(|error| self.failed(&error, "the right Describe on the cluster"))?;
        let mut brokers: Vec<BrokerDescription> = metadata
            .brokers()
            .iter()
            .map(|broker| BrokerDescription {
                id: broker.id(),
                address: format!("{}:{}", broker.host(), broker.port()),
            })
            .collect();
        brokers.sort_unstable_by_key(|broker| broker.id);
        Ok(ClusterDescription {
            id: clients.metadata.client().fetch_cluster_id(patience),
            brokers,
            protocol: None,
        })
    }

    fn topics(&self, names: &[String]) -> Result<Vec<Result<TopicDescription, BusError>>, BusError> {
        let clients = self.clients()?;
        names.iter().map(|name| self.topic(&clients, name)).collect()
    }

    fn topic(&self, clients: &Clients, name: &str) -> Result<Result<TopicDescription, BusError>, BusError> {
        let metadata = clients.metadata.fetch_metadata(Some(name), self.options.request_timeout);
        let metadata = metadata.map_err(|error| self.failed(&error, &describe(&[name])))?;
        let found = metadata.topics().iter().find(|found| found.name() == name);
        let missing = || Err(BusError::NoSuchTopic { topic: name.to_owned() });
        let Some(found) = found else { return Ok(missing()) };
        match found.error().map(Code::from) {
            None | Some(Code::LeaderNotAvailable) => {}
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => return Ok(missing()),
            Some(code) => return Ok(Err(self.failed(&KafkaError::MetadataFetch(code), &describe(&[name])))),
        }
        let mut partitions: Vec<(i32, PartitionDescription)> = found
            .partitions()
            .iter()
            .map(|partition| {
                let description = PartitionDescription {
                    leader: Some(partition.leader()).filter(|leader| *leader >= 0),
                    replicas: partition.replicas().to_vec(),
                    in_sync: partition.isr().to_vec(),
                };
                (partition.id(), description)
            })
            .collect();
        partitions.sort_unstable_by_key(|(number, _)| *number);
        let partitions = partitions.into_iter().map(|(_, partition)| partition).collect();
        let settings = Err("not asked".to_owned());
        Ok(Ok(TopicDescription { name: name.to_owned(), partitions, settings }))
    }

    fn group(&self, name: &str) -> Result<Option<GroupDescription>, BusError> {
        let clients = self.clients()?;
        let groups = clients.metadata.fetch_group_list(Some(name), self.options.request_timeout);
        let groups =
            groups.map_err(|error| self.failed(&error, &format!("the right Describe on group {name}")))?;
        let Some(group) = groups.groups().iter().find(|group| group.name() == name) else { return Ok(None) };
        if group.members().is_empty() && matches!(group.state(), "" | "Dead") {
            return Ok(None);
        }
        let members = group.members().iter().map(|member| MemberDescription {
            id: member.id().to_owned(),
            host: member.client_host().trim_start_matches('/').to_owned(),
            partitions: member.assignment().map(assigned).unwrap_or_default(),
        });
        Ok(Some(GroupDescription { state: group.state().to_owned(), members: members.collect() }))
    }

    fn watermarks(&self, partitions: &[PartitionId]) -> Result<Vec<Option<Watermarks>>, BusError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let low = numbers(self.offsets_at(partitions, Offset::Beginning)?);
        let high = numbers(self.offsets_at(partitions, Offset::End)?);
        Ok(low.zip(high).map(|(low, high)| Some(Watermarks { low: low?, high: high? })).collect())
    }

    fn offsets_since(
        &self,
        partitions: &[PartitionId],
        time: Timestamp,
    ) -> Result<Vec<Option<i64>>, BusError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        // Negative times are names for the beginning and the end.
        let found = self.offsets_at(partitions, Offset::Offset(time.0.max(0)))?;
        // Where nothing is so young, the client says "the end" and not where that is.
        let ends = numbers(self.offsets_at(partitions, Offset::End)?);
        let offset = |(found, end)| match found {
            Some(Offset::End) => end,
            Some(Offset::Offset(offset)) => Some(offset),
            _ => None,
        };
        Ok(found.into_iter().zip(ends).map(offset).collect())
    }

    /// Where the beginning or the end of each partition is, or its first record since a time in milliseconds, once
    /// all have leaders: for a moment after a topic was made, or leaders have changed, they do not. It is asked of
    /// all leaders at once.
    fn offsets_at(&self, partitions: &[PartitionId], which: Offset) -> Result<Vec<Option<Offset>>, BusError> {
        let clients = self.clients()?;
        let mut asked = TopicPartitionList::with_capacity(partitions.len());
        for at in partitions {
            let added = asked.add_partition_offset(&at.topic, at.partition, which);
            added.map_err(|error| self.failed(&error, "more rights"))?;
        }
        let topics = topics_of(partitions);
        let deadline = Instant::now() + self.options.request_timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let told = clients.metadata.offsets_for_times(asked.clone(), left.min(OFFSETS_TRY));
            let error = match &told {
                Ok(told) => told.elements().iter().find_map(|element| element.error().err()),
                Err(error) => Some(error.clone()),
            };
            let Some(error) = error else { return Ok(offsets_in(&told.unwrap_or_default(), partitions)) };
            match (code_of(&error), told) {
                (
                    Some(
                        Code::LeaderNotAvailable
                        | Code::NotLeaderForPartition
                        | Code::UnknownLeaderEpoch
                        | Code::FencedLeaderEpoch
                        | Code::OperationTimedOut,
                    ),
                    _,
                ) if !left.is_zero() => {
                    // The client must be told to look for the leaders anew.
                    for topic in &topics {
                        let _ = clients.metadata.fetch_metadata(Some(topic), left);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                // Those of the other partitions are known all the same.
                (
                    Some(Code::LeaderNotAvailable | Code::NotLeaderForPartition | Code::OperationTimedOut),
                    Ok(told),
                ) => return Ok(offsets_in(&told, partitions)),
                (Some(Code::UnknownPartition | Code::UnknownTopic | Code::UnknownTopicOrPartition), _) => {
                    return Err(BusError::NoSuchTopic { topic: topics.join(" or ") });
                }
                _ => return Err(self.failed(&error, &describe(&topics))),
            }
        }
    }

    fn committed(&self, group: &str, partitions: &[PartitionId]) -> Result<Vec<Option<Committed>>, BusError> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.offsets_of(group).map_err(|error| self.failed(&error, "more rights"))?;
        let told = client.committed(partitions, self.options.request_timeout);
        let rights = format!("the right Describe on group {group}, and {}", describe(&topics_of(partitions)));
        let told = told.map_err(|error| self.failed(&error, &rights))?;
        Ok(partitions.iter().map(|at| committed_in(&told, at)).collect())
    }

    fn offsets_of(&self, group: &str) -> KafkaResult<Arc<Offsets>> {
        let mut kept = lock(&self.offsets);
        if let Some(client) = kept.get(group) {
            return Ok(client.clone());
        }
        let client =
            Arc::new(Offsets::new(self.options.offsets(group).create_with_context(self.trouble.clone())?));
        if kept.len() >= KEPT_GROUPS {
            kept.pop_first();
        }
        kept.insert(group.to_owned(), client.clone());
        Ok(client)
    }

    /// A failure that may be the consequence of something that the client tells elsewhere: to a client whose
    /// password is wrong it only looks as if no broker answered.
    fn failed(&self, error: &KafkaError, rights: &str) -> BusError {
        if let Some(clients) = &*lock(&self.clients) {
            while clients.metadata.poll(Duration::ZERO).is_some() {} // serves what it has to tell
        }
        match (self.access.error(error, rights), self.trouble.take()) {
            (BusError::Unreachable { brokers, .. }, Some(reason)) => {
                BusError::Refused(format!("no connection to {brokers}: {reason}"))
            }
            (error, _) => error,
        }
    }
}

fn describe(topics: &[&str]) -> String {
    format!("the right Describe on topic {}", topics.join(" and "))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn values(resource: &ConfigResource) -> BTreeMap<String, String> {
    let told = resource.entries.iter();
    told.filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?))).collect()
}

fn offsets_in(list: &TopicPartitionList, partitions: &[PartitionId]) -> Vec<Option<Offset>> {
    let found = |at: &PartitionId| {
        // One that could not be asked has still what it was to be asked for, which may look like an offset.
        let told = list.find_partition(&at.topic, at.partition).filter(|told| told.error().is_ok())?;
        Some(told.offset()).filter(|offset| matches!(offset, Offset::Offset(_) | Offset::End))
    };
    partitions.iter().map(found).collect()
}

fn numbers(offsets: Vec<Option<Offset>>) -> impl Iterator<Item = Option<i64>> {
    offsets.into_iter().map(|offset| match offset {
        Some(Offset::Offset(offset)) => Some(offset),
        _ => None,
    })
}

fn topics_of(partitions: &[PartitionId]) -> Vec<&str> {
    let mut names: Vec<&str> = partitions.iter().map(|at| &*at.topic).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The partitions in an assignment as members of classic groups write it: a version, then for each topic its
/// name and its partitions, all in network order. What is no assignment has none.
fn assigned(bytes: &[u8]) -> Vec<PartitionId> {
    let mut rest = bytes;
    let mut partitions = Vec::new();
    let mut read = || -> Option<()> {
        take(&mut rest, 2)?;
        for _ in 0..number(&mut rest)? {
            let length = i16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
            let topic: Arc<str> =
                std::str::from_utf8(take(&mut rest, usize::try_from(length).ok()?)?).ok()?.into();
            for _ in 0..number(&mut rest)? {
                partitions.push(PartitionId::new(topic.clone(), number(&mut rest)?));
            }
        }
        Some(())
    };
    let _ = read(); // what could be read counts
    partitions.sort_unstable();
    partitions
}

fn number(rest: &mut &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_and_nonsense_is_none() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2];
        for (topic, partitions) in [("b", vec![7]), ("a.b", vec![3, 1])] {
            bytes.extend_from_slice(&u16::try_from(topic.len()).unwrap_or(0).to_be_bytes());
            bytes.extend_from_slice(topic.as_bytes());
            bytes.extend_from_slice(&i32::try_from(partitions.len()).unwrap_or(0).to_be_bytes());
            bytes.extend(partitions.iter().flat_map(|partition: &i32| partition.to_be_bytes()));
        }
        bytes.extend_from_slice(&[0, 0, 0, 0]); // user data
        let named: Vec<String> = assigned(&bytes).iter().map(ToString::to_string).collect();
        assert_eq!(named, ["a.b[1]", "a.b[3]", "b[7]"]);
        assert!(assigned(&[]).is_empty());
        assert!(assigned(&[0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 9, 1]).is_empty());
        assert!(assigned(&[0, 1, 0xff, 0xff, 0xff, 0xff]).is_empty());
    }
}
