//! How a parallel processor works.

use super::Admission;
use crate::settings::Settings;
use starling_engine::{dead_letters::BurialLimit, offsets::MAX_METADATA_BYTES};
use starling_protocol::{Topic, TopicNames};
use std::time::Duration;

/// Every bound and choice of a [`super::ParallelProcessor`].
#[derive(Clone, Debug)]
pub struct ParallelConfig {
    /// The inbox that it reads.
    pub topic: Topic,
    /// Consumer group, full name.
    pub group: String,
    /// Role, as the fleet is told.
    pub role: String,
    /// Pool, as the fleet is told.
    pub pool: Option<String>,
    /// Handlers that run at once.
    pub slots: usize,
    /// How many records may be taken in; any number at first. Each time that a record is handled counts.
    pub admission: Admission,
    /// Records in hand that do not run yet, for each partition; above it the partition is paused.
    pub queue_per_partition: usize,
    /// Records in hand beyond the slots, for the processor; above it partitions are paused.
    pub queue_total: usize,
    /// Records that may wait in the client.
    pub queue_records: usize,
    /// Name for static membership.
    pub instance: Option<String>,
    /// After how long a silent member is dead.
    pub session_timeout: Duration,
    /// How long letting go of partitions may take.
    pub revoke_timeout: Duration,
    /// Shortest time between two commits under load.
    pub commit_interval: Duration,
    /// Shortest time between two commits when nothing is in hand.
    pub commit_idle: Duration,
    /// Largest metadata of a commit, in bytes.
    pub max_metadata: usize,
    /// How long finishing may take at shutdown.
    pub grace: Duration,
    /// Most times that a record is handled before it is a dead letter.
    pub tries: u32,
    /// First wait before a record is handled again; doubles each time.
    pub backoff_min: Duration,
    /// Longest wait before a record is handled again.
    pub backoff_max: Duration,
    /// How much may become dead letters before it stops.
    pub burials: BurialLimit,
    /// How long after its envelope's deadline a handler is stopped.
    pub deadline_slack: Duration,
    /// Longest time of a handler of raw records.
    pub handler_timeout: Duration,
    /// How long a handler may go on once its intent is cancelled.
    pub cancel_grace: Duration,
}

impl ParallelConfig {
    /// By the settings, for the inbox `topic` that a service reads as `role` with `slots` handlers.
    #[must_use]
    pub fn new(settings: &Settings, topic: Topic, role: &str, slots: usize) -> Self {
        let (kafka, processor) = (&settings.kafka, &settings.processor);
        let pool = match &topic {
            Topic::Worker(pool) => pool.clone(),
            _ => None,
        };
        let member = match &pool {
            Some(pool) => format!("{role}.{pool}"),
            None => role.to_owned(),
        };
        Self {
            group: TopicNames::new(settings.topics.prefix.as_str()).group(&member),
            topic,
            role: role.to_owned(),
            pool,
            slots,
            admission: Admission::default(),
            queue_per_partition: processor.queue_per_partition,
            queue_total: processor.queue_total,
            queue_records: kafka.queue_records,
            instance: kafka.instance.clone(),
            session_timeout: kafka.session_timeout,
            revoke_timeout: kafka.revoke_timeout,
            commit_interval: processor.commit_interval,
            commit_idle: processor.commit_idle,
            max_metadata: MAX_METADATA_BYTES,
            grace: processor.grace,
            tries: processor.tries,
            backoff_min: processor.backoff_min,
            backoff_max: processor.backoff_max,
            burials: processor.dead_letters.limit(role),
            deadline_slack: processor.deadline_slack,
            handler_timeout: processor.handler_timeout,
            cancel_grace: Duration::from_millis(500),
        }
    }

    /// How long to wait before a record is handled again that was handled `tries` times.
    pub(super) fn backoff(&self, tries: u32) -> Duration {
        let doubled = self.backoff_min.saturating_mul(1 << tries.saturating_sub(1).min(20));
        doubled.min(self.backoff_max)
    }
}
