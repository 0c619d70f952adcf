//! How a stateful processor works.

use crate::settings::Settings;
use starling_protocol::TopicNames;
use std::time::Duration;

/// Every bound and choice of a [`super::StatefulProcessor`].
#[derive(Clone, Debug)]
pub struct StatefulOptions {
    /// Consumer group, full name.
    pub group: String,
    /// Name for static membership.
    pub instance: Option<String>,
    /// After how long a silent member is dead. Default 10 s.
    pub session_timeout: Duration,
    /// How long letting go of partitions may take. Default 5 s.
    pub revoke_timeout: Duration,
    /// How long leaving the group at shutdown may take. Default 10 s.
    pub leave_timeout: Duration,
    /// Inputs decided together at most. Default 256.
    pub max_batch: usize,
    /// Size of the inputs decided together, in bytes; one larger input is decided alone. Default 1 MiB.
    pub max_batch_bytes: usize,
    /// Largest record that is appended or sent, in bytes. The state topic must take records of this size.
    /// Default 900 KiB.
    pub max_record: usize,
    /// Inputs of one partition that wait to be decided; above it reading pauses. Default 1,024.
    pub queue_records: usize,
    /// Size of those inputs in bytes; above it reading pauses. Default 4 MiB.
    pub queue_bytes: usize,
    /// Effects of one partition on their way at once; above it nothing new is decided. Default 4,096.
    pub max_effects: usize,
    /// How long an append, or reading on in the state log, may take before the epoch is given up.
    /// Default 10 s.
    pub append_timeout: Duration,
    /// First wait before an effect is sent again; doubles each time. Default 50 ms.
    pub resend_min: Duration,
    /// Longest wait before an effect is sent again. Default 2 s.
    pub resend_max: Duration,
    /// First wait before a new epoch after one was given up; doubles each time. Default 100 ms.
    pub epoch_backoff_min: Duration,
    /// Longest wait before a new epoch. Default 5 s.
    pub epoch_backoff_max: Duration,
    /// Wait before a partition is tried again whose log or inbox is damaged. Default 30 s.
    pub fault_backoff: Duration,
    /// After so long without a decision, the log is told that the last effects are done. Default 500 ms.
    pub idle_mark: Duration,
    /// Time between two commits for lag monitors. Default 1 s.
    pub commit_interval: Duration,
    /// Decisions between two snapshots. Default 2,000.
    pub snapshot_decisions: u64,
    /// Size of the decisions between two snapshots, in bytes, where the last one was not larger. Default 64 MiB.
    pub snapshot_bytes: usize,
}

impl StatefulOptions {
    /// The defaults, for a group.
    #[must_use]
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            instance: None,
            session_timeout: Duration::from_secs(10),
            revoke_timeout: Duration::from_secs(5),
            leave_timeout: Duration::from_secs(10),
            max_batch: 256,
            max_batch_bytes: 1 << 20,
            max_record: 900 << 10,
            queue_records: 1024,
            queue_bytes: 4 << 20,
            max_effects: 4096,
            append_timeout: Duration::from_secs(10),
            resend_min: Duration::from_millis(50),
            resend_max: Duration::from_secs(2),
            epoch_backoff_min: Duration::from_millis(100),
            epoch_backoff_max: Duration::from_secs(5),
            fault_backoff: Duration::from_secs(30),
            idle_mark: Duration::from_millis(500),
            commit_interval: Duration::from_secs(1),
            snapshot_decisions: 2_000,
            snapshot_bytes: 64 << 20,
        }
    }

    /// By the settings of an installation.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let (kafka, processor, log) = (&settings.kafka, &settings.processor, &settings.statelog);
        Self {
            instance: kafka.instance.clone(),
            session_timeout: kafka.session_timeout,
            revoke_timeout: kafka.revoke_timeout,
            leave_timeout: processor.grace,
            max_batch: log.max_batch,
            max_record: log.max_record,
            snapshot_decisions: log.snapshot_every,
            snapshot_bytes: log.snapshot_bytes,
            ..Self::new(TopicNames::new(settings.topics.prefix.as_str()).group("coordinator"))
        }
    }
}
