//! Records as the bus takes and gives them.

use bytes::Bytes;
use starling_protocol::Timestamp;
use std::{fmt, sync::Arc};

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// Full topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
}

impl PartitionId {
    /// Names a partition.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// A record to be written. The partition is always named: Starling computes it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutRecord {
    /// Where to.
    pub to: PartitionId,
    /// Kafka key.
    pub key: Option<Bytes>,
    /// Headers, in order.
    pub headers: Vec<(String, Bytes)>,
    /// Value; `None` is a tombstone.
    pub payload: Option<Bytes>,
}

impl OutRecord {
    /// Bytes of key, headers and value.
    #[must_use]
    pub fn size(&self) -> usize {
        size(self.key.as_ref(), &self.headers, self.payload.as_ref())
    }
}

fn size(key: Option<&Bytes>, headers: &[(String, Bytes)], payload: Option<&Bytes>) -> usize {
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    key.map_or(0, Bytes::len) + headers + payload.map_or(0, Bytes::len)
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InRecord {
    /// Where from.
    pub at: PartitionId,
    /// Its offset.
    pub offset: i64,
    /// When the broker or the producer says it was written.
    pub timestamp: Timestamp,
    /// Kafka key.
    pub key: Option<Bytes>,
    /// Headers, in order.
    pub headers: Vec<(String, Bytes)>,
    /// Value; `None` is a tombstone.
    pub payload: Option<Bytes>,
}

impl InRecord {
    /// The value of the first header of that name, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Bytes of key, headers and value.
    #[must_use]
    pub fn size(&self) -> usize {
        size(self.key.as_ref(), &self.headers, self.payload.as_ref())
    }

    /// The value's bytes; empty for a tombstone.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }
}

/// A record was acknowledged by all in-sync replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Where it lies. `None` if the broker acknowledged it without saying where, as it does for a
    /// duplicate of an idempotent producer's batch.
    pub offset: Option<i64>,
}
