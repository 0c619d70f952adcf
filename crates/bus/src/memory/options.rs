//! Settings of the memory bus.

use starling_protocol::Timestamp;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// Says what time it is, for the timestamps of records.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Settings of a [`MemoryBus`](crate::MemoryBus).
#[derive(Clone)]
pub struct MemoryOptions {
    /// Bytes that one partition may hold (default 64 MiB). Beyond it the oldest records are removed, as
    /// retention does, but never one that a group of the topic has not committed, and none at all of a
    /// topic created with `retention.ms=-1`: then sending is refused until there is room.
    pub max_bytes_per_partition: usize,
    /// Largest record taken, key and headers included (default 8 MiB).
    pub max_record_bytes: usize,
    /// What is removed before partitions are full; by default nothing.
    pub retention: Option<MemoryRetention>,
    /// Where timestamps come from. The default starts at the system's time and goes on with tokio's
    /// clock, so that a paused test clock is obeyed.
    pub clock: Clock,
}

/// Keeps a bus small that works for long: when all partitions together hold more than `max_bytes`, those records are removed
/// that every group has committed and every reader has read, and that are about a subject (header `ce_subject`) that has
/// ended; or that are about none and are as old as their topic's `retention.ms`. Topics with `retention.ms=-1` are left to
/// their owners. What is about a live subject stays, however much that is.
#[derive(Clone, Debug)]
pub struct MemoryRetention {
    /// Bytes of all partitions.
    pub max_bytes: usize,
    /// A subject is live from its first record in this topic,
    pub begins_in: String,
    /// until there is one in this topic,
    pub ends_in: String,
    /// or for so long.
    pub longest: Duration,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            max_bytes_per_partition: 64 << 20,
            max_record_bytes: 8 << 20,
            retention: None,
            clock: tokio_clock(),
        }
    }
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("max_bytes_per_partition", &self.max_bytes_per_partition)
            .field("max_record_bytes", &self.max_record_bytes)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

fn tokio_clock() -> Clock {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started = Instant::now();
    Arc::new(move || Timestamp(0).plus(since_epoch + started.elapsed()))
}
