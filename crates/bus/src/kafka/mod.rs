//! The bus on Kafka. The only place that knows rdkafka.

mod access;
mod admin;
mod book;
mod consumers;
mod context;
mod convert;
mod errors;
mod handover;
mod inspect;
mod options;
mod producer;
mod pump;
mod rebalance;
mod security;
mod shared;
mod single;
mod transaction;
mod wait;

pub use options::{GroupProtocol, KafkaOptions};
pub use security::{KafkaIdentity, KafkaLogin, KafkaSecurity, KafkaTls, SaslMechanism};
pub use transaction::TransactionProbe;

use self::{
    admin::Admin,
    consumers::{KafkaMember, KafkaReader},
    inspect::KafkaInspector,
    producer::Sender,
    single::SingleReads,
};
use crate::{
    Bus, BusError, Committed, DeliveryFuture, GroupConfig, GroupConsumer, InRecord, Inspector, LogReader,
    OutRecord, PartitionId, ReadError, TopicSpec, Watermarks,
};
use async_trait::async_trait;
use std::{sync::Arc, time::Duration};

/// A Kafka cluster. Needs a tokio runtime when used; polling and blocking calls have threads of their own.
pub struct KafkaBus {
    sender: Sender,
    admin: Admin,
    single: Arc<SingleReads>,
    inspector: KafkaInspector,
}

impl KafkaBus {
    /// Makes the clients. Does not wait for a broker: the first operation finds out.
    ///
    /// # Errors
    /// [`BusError::Refused`] if librdkafka does not take a setting.
    pub fn new(options: KafkaOptions) -> Result<Arc<Self>, BusError> {
        Ok(Arc::new(Self {
            sender: Sender::new(&options)?,
            admin: Admin::new(options.clone())?,
            inspector: KafkaInspector::new(options.clone()),
            single: SingleReads::new(options),
        }))
    }
}

/// Deletes topics with all that is in them, for whoever made them only to measure something. The port has no such
/// operation: nothing of Starling ever deletes a topic.
///
/// # Errors
/// The broker is unreachable or refuses.
pub async fn delete_topics(options: KafkaOptions, topics: &[&str]) -> Result<(), BusError> {
    Admin::new(options)?.delete(topics).await
}

#[async_trait]
impl Bus for KafkaBus {
    fn send(&self, record: OutRecord) -> DeliveryFuture {
        self.sender.send(record)
    }

    async fn join(&self, config: GroupConfig) -> Result<Arc<dyn GroupConsumer>, BusError> {
        Ok(Arc::new(KafkaMember::join(&self.admin, config).await?))
    }

    async fn reader(&self) -> Result<Arc<dyn LogReader>, BusError> {
        Ok(Arc::new(KafkaReader::open(&self.admin).await?))
    }

    async fn read(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>> {
        self.single.read(at).await
    }

    async fn partitions(&self, topic: &str) -> Result<i32, BusError> {
        self.admin.partitions(topic).await
    }

    async fn watermarks(&self, partition: &PartitionId) -> Result<Watermarks, BusError> {
        self.admin.watermarks(partition).await
    }

    async fn committed(&self, group: &str, partition: &PartitionId) -> Result<Option<Committed>, BusError> {
        self.admin.committed(group, partition).await
    }

    async fn create_topics(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError> {
        self.admin.create(topics).await
    }

    async fn trim(&self, partition: &PartitionId, offset: i64) -> Result<(), BusError> {
        self.admin.trim(partition, offset).await
    }

    async fn flush(&self, within: Duration) {
        self.sender.flush(within).await;
    }

    fn inspector(&self) -> Arc<dyn Inspector> {
        Arc::new(self.inspector.clone())
    }
}
