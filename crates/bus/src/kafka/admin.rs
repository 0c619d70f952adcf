//! Metadata, offsets and administration: requests that are answered once.

use super::{KafkaOptions, access::Access, context::Attentive, convert::committed_in, errors::code_of};
use crate::{BusError, Committed, PartitionId, TopicSpec, Watermarks};
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    config::FromClientConfigAndContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::task::spawn_blocking;

/// How long the client may look for a partition's leader by itself. It does not look again as long as it
/// waits, so a leader that was elected a moment later would not be found.
const WATERMARKS_TRY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Admin(Arc<Inner>);

struct Inner {
    options: KafkaOptions,
    access: Access,
    /// Why no connection comes about.
    trouble: Attentive,
    metadata: BaseConsumer<Attentive>,
    admin: AdminClient<Attentive>,
}

impl Admin {
    pub(super) fn new(options: KafkaOptions) -> Result<Self, BusError> {
        let config = options.admin();
        let (access, trouble) = (Access::of(&options), Attentive::default());
        let failed = |error: KafkaError| access.error(&error, "more rights");
        let metadata = config.create_with_context(trouble.clone()).map_err(failed)?;
        let admin = AdminClient::from_config_and_context(&config, trouble.clone()).map_err(failed)?;
        Ok(Self(Arc::new(Inner { options, access, trouble, metadata, admin })))
    }

    pub(super) fn options(&self) -> &KafkaOptions {
        &self.0.options
    }

    pub(super) async fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        let topic = topic.to_owned();
        self.blocking(move |inner| inner.partitions(&topic)).await
    }

    pub(super) async fn watermarks(&self, at: &PartitionId) -> Result<Watermarks, BusError> {
        let at = at.clone();
        self.blocking(move |inner| inner.watermarks(&at)).await
    }

    pub(super) async fn committed(
        &self,
        group: &str,
        at: &PartitionId,
    ) -> Result<Option<Committed>, BusError> {
        let (group, at) = (group.to_owned(), at.clone());
        self.blocking(move |inner| {
            let rights = format!("the rights Describe on group {group} and on topic {}", at.topic);
            let failed = |error: KafkaError| inner.error(&at.topic, &error, &rights);
            let consumer: BaseConsumer<Attentive> =
                inner.options.offsets(&group).create_with_context(inner.trouble.clone()).map_err(failed)?;
            let mut list = TopicPartitionList::with_capacity(1);
            list.add_partition(&at.topic, at.partition);
            match consumer.committed_offsets(list, inner.options.request_timeout) {
                Ok(list) => Ok(committed_in(&list, &at)),
                Err(error) => {
                    std::mem::forget(consumer); // closing it while its coordinator is away can crash
                    Err(failed(error))
                }
            }
        })
        .await
    }

    pub(super) async fn create(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError> {
        let specs: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|topic| NewTopic {
                name: &topic.name,
                num_partitions: topic.partitions,
                replication: TopicReplication::Fixed(topic.replication),
                config: topic.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            })
            .collect();
        if specs.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.0.admin.create_topics(&specs, &self.patience()).await;
        let create = "the right Create on the cluster or on the topic";
        let answers = answers.map_err(|error| self.0.failure(&error, create))?;
        let mut created = Vec::new();
        for answer in answers {
            match answer {
                Ok(topic) => created.push(topic),
                Err((_, Code::TopicAlreadyExists)) => {}
                Err((topic, code)) => {
                    let error = self.0.failure(&KafkaError::AdminOp(code), create);
                    return Err(match error {
                        BusError::Refused(reason) => BusError::Refused(format!("topic {topic}: {reason}")),
                        other => other,
                    });
                }
            }
        }
        let fresh = created.clone();
        self.blocking(move |inner| fresh.iter().try_for_each(|topic| inner.appear(topic))).await?;
        Ok(created)
    }

    pub(super) async fn delete(&self, topics: &[&str]) -> Result<(), BusError> {
        let failed = |error: &KafkaError| self.0.failure(error, "the right Delete on the topics");
        let answers = self.0.admin.delete_topics(topics, &self.patience()).await.map_err(|e| failed(&e))?;
        answers.into_iter().try_for_each(|answer| match answer {
            Ok(_) | Err((_, Code::UnknownTopicOrPartition)) => Ok(()),
            Err((_, code)) => Err(failed(&KafkaError::AdminOp(code))),
        })
    }

    pub(super) async fn trim(&self, at: &PartitionId, offset: i64) -> Result<(), BusError> {
        let rights = format!("the right Delete on topic {}", at.topic);
        let failed = |error: KafkaError| self.0.error(&at.topic, &error, &rights);
        let deletion = {
            let mut list = TopicPartitionList::with_capacity(1);
            list.add_partition_offset(&at.topic, at.partition, Offset::Offset(offset)).map_err(failed)?;
            self.0.admin.delete_records(&list, &self.patience())
        };
        let answer = deletion.await.map_err(failed)?;
        answer.elements().iter().try_for_each(|element| element.error()).map_err(failed)
    }

    fn patience(&self) -> AdminOptions {
        let within = Some(self.0.options.request_timeout);
        AdminOptions::new().request_timeout(within).operation_timeout(within)
    }

    /// librdkafka answers these on the calling thread.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Inner) -> Result<T, BusError> + Send + 'static,
    ) -> Result<T, BusError> {
        let inner = self.0.clone();
        let asked = spawn_blocking(move || {
            while inner.metadata.poll(Duration::ZERO).is_some() {} // serves its log, which would pile up else
            ask(&inner)
        });
        asked.await.unwrap_or_else(|error| Err(BusError::Retry(error.to_string())))
    }
}

impl Inner {
    /// Waits until the brokers know a topic that they have just created.
    fn appear(&self, topic: &str) -> Result<(), BusError> {
        let deadline = Instant::now() + self.options.request_timeout;
        loop {
            match self.partitions(topic) {
                Err(BusError::NoSuchTopic { .. }) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                other => return other.map(|_| ()),
            }
        }
    }

    /// First and next offset, once the partition's leader knows that it leads: for a moment after the topic
    /// was made, or leaders have changed, it does not.
    fn watermarks(&self, at: &PartitionId) -> Result<Watermarks, BusError> {
        // A broker answers for itself at once, but for hundreds of new partitions only when it has made them.
        let deadline = Instant::now() + self.options.request_timeout * 3;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = left.min(WATERMARKS_TRY);
            let error = match self.metadata.fetch_watermarks(&at.topic, at.partition, patience) {
                Ok((low, high)) => return Ok(Watermarks { low, high }),
                Err(error) => error,
            };
            match code_of(&error) {
                // A broker that has just come back may be behind what the client knows of its leaders.
                Some(
                    Code::NotLeaderForPartition
                    | Code::LeaderNotAvailable
                    | Code::UnknownLeaderEpoch
                    | Code::FencedLeaderEpoch
                    | Code::OperationTimedOut,
                ) if !left.is_zero() => {
                    while self.metadata.poll(Duration::ZERO).is_some() {} // serves its log
                    // The client must be told to look for the leader anew.
                    let _ = self.metadata.fetch_metadata(Some(&at.topic), left);
                    thread::sleep(Duration::from_millis(20));
                }
                _ => return Err(self.error(&at.topic, &error, &describe(&at.topic))),
            }
        }
    }

    /// The number of partitions, once the topic has leaders.
    fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        let deadline = Instant::now() + self.options.request_timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let failed = |error: &KafkaError| self.error(topic, error, &describe(topic));
            let metadata = self.metadata.fetch_metadata(Some(topic), left).map_err(|error| failed(&error))?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let code = found.and_then(|found| found.error()).map(Code::from);
            match (found, code) {
                (None, _) | (_, Some(Code::UnknownTopicOrPartition | Code::UnknownTopic)) => {
                    return Err(BusError::NoSuchTopic { topic: topic.to_owned() });
                }
                (Some(found), None) if found.partitions().iter().all(|partition| partition.leader() >= 0) => {
                    return Ok(i32::try_from(found.partitions().len()).unwrap_or(i32::MAX));
                }
                (_, code) if left.is_zero() || code == Some(Code::TopicAuthorizationFailed) => {
                    return Err(match code {
                        Some(code) => failed(&KafkaError::MetadataFetch(code)),
                        None => BusError::Retry(format!("a partition of {topic} has no leader")),
                    });
                }
                _ => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn error(&self, topic: &str, error: &KafkaError, rights: &str) -> BusError {
        match code_of(error) {
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
                BusError::NoSuchTopic { topic: topic.to_owned() }
            }
            _ => self.failure(error, rights),
        }
    }

    /// A failure that may be the consequence of something that the client tells elsewhere: to a client whose
    /// password is wrong it only looks as if no broker answered.
    fn failure(&self, error: &KafkaError, rights: &str) -> BusError {
        while self.metadata.poll(Duration::ZERO).is_some() {} // serves what it has to tell
        match (self.access.error(error, rights), self.trouble.take()) {
            (BusError::Unreachable { brokers, .. }, Some(reason)) => {
                BusError::Refused(format!("no connection to {brokers}: {reason}"))
            }
            (error, _) => error,
        }
    }
}

fn describe(topic: &str) -> String {
    format!("the right Describe on topic {topic}")
}
