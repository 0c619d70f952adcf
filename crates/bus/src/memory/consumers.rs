//! The handles of a memory bus: a group's member and a reader.

use super::{
    core::Shared,
    feed::{Feed, FeedId},
};
use crate::{
    BusError, CommitError, CommitOffset, GroupConsumer, GroupEvent, LogReader, PartitionId, ReaderEvent,
    StartAt,
};
use async_trait::async_trait;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::timeout};

pub(super) struct MemoryMember {
    pub(super) shared: Arc<Shared>,
    pub(super) group: String,
    pub(super) id: FeedId,
    pub(super) wake: Arc<Notify>,
    /// Told when the member has heard [`GroupEvent::Closed`].
    pub(super) closed: Notify,
    pub(super) has_closed: AtomicBool,
}

#[async_trait]
impl GroupConsumer for MemoryMember {
    async fn next(&self) -> GroupEvent {
        let event = next(&self.shared, self.id, &self.wake).await;
        if matches!(event, GroupEvent::Closed) {
            self.has_closed.store(true, Ordering::Release);
            self.closed.notify_waiters();
        }
        event
    }

    fn pause(&self, partitions: &[PartitionId]) {
        if let Some(feed) = self.shared.lock().feeds.get_mut(&self.id) {
            partitions.iter().for_each(|at| feed.pause(at));
        }
    }

    fn resume(&self, partitions: &[PartitionId]) {
        if let Some(feed) = self.shared.lock().feeds.get_mut(&self.id) {
            partitions.iter().for_each(|at| feed.resume(at));
        }
    }

    async fn commit(&self, offsets: Vec<CommitOffset>) -> Result<(), CommitError> {
        self.shared.lock().commit(&self.group, self.id, offsets)
    }

    async fn leave(&self, within: Duration) {
        let closed = self.closed.notified();
        tokio::pin!(closed);
        closed.as_mut().enable();
        if self.has_closed.load(Ordering::Acquire) {
            return;
        }
        self.shared.lock().leave(&self.group, self.id);
        if timeout(within, closed).await.is_err() {
            self.shared.lock().remove_member(&self.group, self.id);
        }
    }
}

impl Drop for MemoryMember {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.remove_member(&self.group, self.id);
        core.drop_feed(self.id);
    }
}

pub(super) struct MemoryReader {
    pub(super) shared: Arc<Shared>,
    pub(super) id: FeedId,
    pub(super) wake: Arc<Notify>,
}

impl MemoryReader {
    pub(super) fn open(shared: Arc<Shared>) -> Self {
        let wake = Arc::new(Notify::new());
        let id = shared.lock().new_feed(Feed::new(wake.clone()));
        Self { shared, id, wake }
    }
}

#[async_trait]
impl LogReader for MemoryReader {
    async fn add(&self, partition: PartitionId, start: StartAt) -> Result<(), BusError> {
        let mut core = self.shared.lock();
        let log = core.log(&partition)?;
        let position = match start {
            StartAt::Beginning => log.first(),
            StartAt::End => log.next(),
            StartAt::Offset(offset) => offset,
        };
        core.follow(self.id, partition, Some(position));
        Ok(())
    }

    async fn remove(&self, partition: &PartitionId) {
        self.shared.lock().unfollow(self.id, partition);
    }

    fn pause(&self, partition: &PartitionId) {
        if let Some(feed) = self.shared.lock().feeds.get_mut(&self.id) {
            feed.pause(partition);
        }
    }

    fn resume(&self, partition: &PartitionId) {
        if let Some(feed) = self.shared.lock().feeds.get_mut(&self.id) {
            feed.resume(partition);
        }
    }

    async fn next(&self) -> ReaderEvent {
        loop {
            match next(&self.shared, self.id, &self.wake).await {
                GroupEvent::Record(record) => return ReaderEvent::Record(record),
                GroupEvent::End { at, next_offset } => return ReaderEvent::End { at, next_offset },
                GroupEvent::OutOfRange { at, offset } => return ReaderEvent::OutOfRange { at, offset },
                _ => {} // a feed without a group hears nothing else
            }
        }
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        self.shared.lock().drop_feed(self.id);
    }
}

async fn next(shared: &Shared, id: FeedId, wake: &Notify) -> GroupEvent {
    loop {
        if let Some(event) = shared.lock().take(id) {
            return event;
        }
        wake.notified().await;
    }
}
