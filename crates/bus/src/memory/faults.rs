//! Misfortune on demand, for tests and simulation.

use super::{core::Shared, feed::FeedId};
use crate::{CommitError, Delivered, OutRecord, PartitionId, SendError};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::oneshot;

/// What becomes of the next record that is sent to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// Written, but the sender hears [`SendError::Unknown`].
    UnknownWritten,
    /// Not written, and the sender hears [`SendError::Unknown`].
    UnknownNotWritten,
    /// The sender hears [`SendError::Unknown`] at once; the record lands when it is released.
    UnknownLandsLater,
    /// The record lands, and the sender hears of it, when it is released. Later ones overtake it.
    Delayed,
    /// Written and acknowledged, but without an offset.
    WithoutOffset,
    /// Written twice in a row; the first one is acknowledged.
    Twice,
    /// Not written: [`SendError::NotSent`].
    NotSent,
    /// Refused for good: [`SendError::Refused`].
    Refused,
}

/// What becomes of the next commit of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// Not stored; the member hears this.
    Refused(CommitError),
    /// Stored, but the member hears [`CommitError::Retry`].
    AnswerLost,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    sends: HashMap<PartitionId, VecDeque<SendFault>>,
    commits: HashMap<String, VecDeque<CommitFault>>,
    held: VecDeque<Held>,
    /// Bytes that are kept beside a committed offset, if not as many as brokers keep by default.
    pub(super) max_offset_metadata: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) record: OutRecord,
    pub(super) reply: Option<oneshot::Sender<Result<Delivered, SendError>>>,
}

impl Faults {
    pub(super) fn next_send(&mut self, at: &PartitionId) -> Option<SendFault> {
        if self.sends.is_empty() {
            return None;
        }
        self.sends.get_mut(at)?.pop_front()
    }

    pub(super) fn next_commit(&mut self, group: &str) -> Option<CommitFault> {
        self.commits.get_mut(group)?.pop_front()
    }

    pub(super) fn hold(&mut self, held: Held) {
        self.held.push_back(held);
    }

    pub(super) fn holds_any(&self) -> bool {
        self.held.iter().any(|held| held.reply.is_some())
    }

    fn take_held(&mut self, at: &PartitionId) -> Vec<Held> {
        let (out, rest) = std::mem::take(&mut self.held).into_iter().partition(|held| held.record.to == *at);
        self.held = rest;
        Vec::from_iter::<VecDeque<Held>>(out)
    }
}

/// Names a member of a group towards [`MemoryFaults`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(FeedId);

/// Injects faults into a [`MemoryBus`](crate::MemoryBus).
#[derive(Clone, Debug)]
pub struct MemoryFaults {
    pub(super) shared: Arc<Shared>,
}

impl MemoryFaults {
    /// Queues a fault for one record that will be sent to `at`. Several are met in this order.
    pub fn on_send(&self, at: &PartitionId, fault: SendFault) {
        self.shared.lock().faults.sends.entry(at.clone()).or_default().push_back(fault);
    }

    /// Lets the records to `at` land that are held back, in the order they were sent; says how many.
    pub fn release(&self, at: &PartitionId) -> usize {
        let mut core = self.shared.lock();
        let held = core.faults.take_held(at);
        let count = held.len();
        for Held { record, reply } in held {
            let result = core.append(record).map(|offset| Delivered { offset: Some(offset) });
            if let Some(reply) = reply {
                let _ = reply.send(result); // nobody may be waiting any more
            }
        }
        count
    }

    /// Loses the records to `at` that are held back. Senders that wait hear [`SendError::Unknown`].
    pub fn lose(&self, at: &PartitionId) -> usize {
        self.shared.lock().faults.take_held(at).len()
    }

    /// Queues a fault for one commit of `group`.
    pub fn on_commit(&self, group: &str, fault: CommitFault) {
        self.shared.lock().faults.commits.entry(group.to_owned()).or_default().push_back(fault);
    }

    /// The members of a group, in the order they joined.
    #[must_use]
    pub fn members(&self, group: &str) -> Vec<MemberId> {
        let core = self.shared.lock();
        core.groups
            .get(group)
            .map_or_else(Vec::new, |group| group.members.keys().copied().map(MemberId).collect())
    }

    /// The group stops believing in a member: its partitions go to others at once, its commits are
    /// fenced, and the next it hears is [`GroupEvent::Lost`](crate::GroupEvent::Lost); after that it is
    /// a member again.
    pub fn expire(&self, group: &str, member: MemberId) {
        self.shared.lock().expire(group, member.0);
    }

    /// Revokes all partitions of the group and assigns them anew, to other members where there are any.
    pub fn rebalance(&self, group: &str) {
        self.shared.lock().shuffle(group);
    }

    /// Delivers the records of `at` from `offset` again, to every group and reader that follows it.
    pub fn redeliver(&self, at: &PartitionId, offset: i64) {
        let mut guard = self.shared.lock();
        let core = &mut *guard;
        let Ok(log) = core.log(at) else { return };
        for follower in log.followers.clone() {
            if let Some(feed) = core.feeds.get_mut(&follower) {
                feed.rewind(at, offset);
            }
        }
    }

    /// Changes the largest size of a record.
    pub fn set_max_record_bytes(&self, bytes: usize) {
        self.shared.lock().options.max_record_bytes = bytes;
    }

    /// Changes the largest metadata beside a committed offset.
    pub fn set_max_offset_metadata(&self, bytes: usize) {
        self.shared.lock().faults.max_offset_metadata = Some(bytes);
    }
}
