//! The port.

use crate::{
    BusError, CommitError, Delivered, InRecord, Inspector, OutRecord, PartitionId, ReadError, SendError,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Resolves when the record is acknowledged by all in-sync replicas, or will not be.
pub type DeliveryFuture = BoxFuture<'static, Result<Delivered, SendError>>;

/// A cluster, or the memory that stands for one.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Enqueues a record in the order of the calls, with an idempotent producer and acks=all. Never
    /// blocks; a full queue resolves to [`SendError::NotSent`]. The record is under way even if the
    /// future is dropped.
    fn send(&self, record: OutRecord) -> DeliveryFuture;

    /// Joins a consumer group.
    ///
    /// # Errors
    /// A topic is missing, the broker is unreachable or refuses.
    async fn join(&self, config: GroupConfig) -> Result<Arc<dyn GroupConsumer>, BusError>;

    /// Opens a reader that belongs to no group.
    ///
    /// # Errors
    /// The client cannot be made.
    async fn reader(&self) -> Result<Arc<dyn LogReader>, BusError>;

    /// Reads single records, in the order asked for. Made for low latency, not for throughput.
    async fn read(&self, at: &[(PartitionId, i64)]) -> Vec<Result<InRecord, ReadError>>;

    /// Number of partitions of a topic.
    ///
    /// # Errors
    /// The topic is missing, or the broker is unreachable.
    async fn partitions(&self, topic: &str) -> Result<i32, BusError>;

    /// The first offset that is still there and the one that comes next.
    ///
    /// # Errors
    /// The topic is missing, or the broker is unreachable.
    async fn watermarks(&self, partition: &PartitionId) -> Result<Watermarks, BusError>;

    /// What a group has committed, for one partition.
    ///
    /// # Errors
    /// The broker is unreachable.
    async fn committed(&self, group: &str, partition: &PartitionId) -> Result<Option<Committed>, BusError>;

    /// Creates topics that do not exist; says which it created.
    ///
    /// # Errors
    /// The broker is unreachable or refuses.
    async fn create_topics(&self, topics: &[TopicSpec]) -> Result<Vec<String>, BusError>;

    /// Removes records before `offset`.
    ///
    /// # Errors
    /// The broker is unreachable or refuses.
    async fn trim(&self, partition: &PartitionId, offset: i64) -> Result<(), BusError>;

    /// Waits until what was sent is acknowledged or `within` has passed.
    async fn flush(&self, within: Duration);

    /// Answers the questions of an operator.
    fn inspector(&self) -> Arc<dyn Inspector>;
}

/// First and next offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// The first offset that is still there.
    pub low: i64,
    /// The offset that the next record will have.
    pub high: i64,
}

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Full name.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
    /// Replication factor; -1 for the broker's default.
    pub replication: i32,
    /// Settings, such as `cleanup.policy`.
    pub settings: BTreeMap<String, String>,
}

/// How to take part in a group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Group id.
    pub group: String,
    /// Topics, full names.
    pub topics: Vec<String>,
    /// Records, or only the assignment.
    pub deliver: Deliver,
    /// Instance name for static membership; must be unique in the group.
    pub instance: Option<String>,
    /// How long the group waits for a silent member (default 10 s).
    pub session_timeout: Duration,
    /// How long a [`GroupEvent::Revoked`] waits for its acknowledgement before the partitions go anyway.
    pub revoke_timeout: Duration,
    /// Records that may wait between the client and [`GroupConsumer::next`].
    pub queue_records: usize,
}

/// What a member wants of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// Records of the assigned partitions, from the committed offset, else from the beginning.
    Records,
    /// Only to know which partitions are assigned.
    AssignmentOnly,
}

/// One member of a consumer group. It is polled always, by the bus itself: heartbeats and rebalances
/// never depend on how fast [`GroupConsumer::next`] is called.
#[async_trait]
pub trait GroupConsumer: Send + Sync {
    /// The next event. One caller at a time. After [`GroupEvent::Closed`] there are no more.
    async fn next(&self) -> GroupEvent;

    /// Stops delivery of partitions that are assigned. Records that already wait may still come.
    fn pause(&self, partitions: &[PartitionId]);

    /// Goes on after [`GroupConsumer::pause`], without gap or repetition.
    fn resume(&self, partitions: &[PartitionId]);

    /// Commits offsets with metadata. Waits for the broker's answer, and while the group is between two generations
    /// until it takes commits again, for as long as this member has the partitions.
    ///
    /// # Errors
    /// See [`CommitError`].
    async fn commit(&self, offsets: Vec<CommitOffset>) -> Result<(), CommitError>;

    /// Leaves the group in an orderly way: a [`GroupEvent::Revoked`] for all partitions, then
    /// [`GroupEvent::Closed`]. `within` bounds it even if the broker is down. Somebody must go on
    /// calling [`GroupConsumer::next`] meanwhile.
    async fn leave(&self, within: Duration);
}

/// What happens to a member.
#[derive(Debug)]
pub enum GroupEvent {
    /// Partitions were assigned, in addition to those it has. Records of them come after this event.
    Assigned(Vec<Assignment>),
    /// Partitions will be taken. They go once the acknowledgement is given (or dropped); until then
    /// offsets can be committed. No record of them comes after this event.
    Revoked(Vec<PartitionId>, RevokeAck),
    /// Partitions are gone already, as after an expired session; commits are impossible.
    Lost(Vec<PartitionId>),
    /// A record.
    Record(InRecord),
    /// Everything up to `next_offset` was delivered and nothing follows now.
    End {
        /// Which partition.
        at: PartitionId,
        /// The offset that the next record will have.
        next_offset: i64,
    },
    /// The committed offset is not there any more (trimmed or topic recreated). Delivery of the
    /// partition stops; never a silent reset.
    OutOfRange {
        /// Which partition.
        at: PartitionId,
        /// The offset that was asked for.
        offset: i64,
    },
    /// Something is wrong that may pass; the client goes on trying by itself.
    Trouble(BusError),
    /// The client is broken for good.
    Fatal(BusError),
    /// The member has left.
    Closed,
}

/// Lets revoked partitions go, when it is acknowledged or dropped.
#[derive(Debug)]
pub struct RevokeAck(pub(crate) Option<oneshot::Sender<()>>);

impl RevokeAck {
    /// The partitions may go.
    pub fn acknowledge(mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(()); // the group may have stopped waiting: then they are gone already
        }
    }
}

/// A partition that was assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Which one.
    pub at: PartitionId,
    /// What the group had committed for it.
    pub committed: Option<Committed>,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The offset to read next.
    pub offset: i64,
    /// What was stored beside it.
    pub metadata: String,
}

/// An offset to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOffset {
    /// Which partition.
    pub at: PartitionId,
    /// The offset to read next.
    pub offset: i64,
    /// To be stored beside it, at most 4,096 bytes.
    pub metadata: String,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// The first record that is still there.
    Beginning,
    /// After the last record that is there now.
    End,
    /// That offset; if it is not there any more, [`ReaderEvent::OutOfRange`].
    Offset(i64),
}

/// Reads partitions without a group, each from where it is told. Any number of partitions.
#[async_trait]
pub trait LogReader: Send + Sync {
    /// Begins to read a partition.
    ///
    /// # Errors
    /// The topic is missing, or the client refuses.
    async fn add(&self, partition: PartitionId, start: StartAt) -> Result<(), BusError>;

    /// Ceases to read a partition. No event of it comes after this.
    async fn remove(&self, partition: &PartitionId);

    /// Stops delivery for a while. Records that already wait may still come.
    fn pause(&self, partition: &PartitionId);

    /// Goes on after [`LogReader::pause`], without gap or repetition.
    fn resume(&self, partition: &PartitionId);

    /// The next event. One caller at a time.
    async fn next(&self) -> ReaderEvent;
}

/// What a reader meets.
#[derive(Debug)]
pub enum ReaderEvent {
    /// A record.
    Record(InRecord),
    /// Everything up to `next_offset` was delivered and nothing follows now. Comes whenever the end is
    /// reached, first of all for a partition that is empty.
    End {
        /// Which partition.
        at: PartitionId,
        /// The offset that the next record will have.
        next_offset: i64,
    },
    /// The offset asked for is not there. Delivery of the partition stops.
    OutOfRange {
        /// Which partition.
        at: PartitionId,
        /// The offset that was asked for.
        offset: i64,
    },
    /// Something is wrong that may pass.
    Trouble(BusError),
}
