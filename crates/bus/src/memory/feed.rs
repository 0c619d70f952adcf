//! What one consumer is to hear next: notices first, then records of the partitions that have some.
//!
//! A feed is pulled. Nothing is copied to it in advance, so its only queue is the list of partitions
//! that have news, each at most once: an idle partition costs nothing, and back-pressure is not pulling.

use super::log::Topic;
use crate::{GroupEvent, PartitionId};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::Notify;

pub(super) type FeedId = u64;
pub(super) type Topics = HashMap<Arc<str>, Topic>;

#[derive(Debug)]
pub(super) struct Feed {
    notices: VecDeque<GroupEvent>,
    cursors: HashMap<PartitionId, Cursor>,
    ready: VecDeque<PartitionId>,
    wake: Arc<Notify>,
    closed: bool,
}

#[derive(Debug)]
struct Cursor {
    position: i64,
    paused: bool,
    queued: bool,
    end_is_due: bool,
}

impl Feed {
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self {
            notices: VecDeque::new(),
            cursors: HashMap::new(),
            ready: VecDeque::new(),
            wake,
            closed: false,
        }
    }

    pub(super) fn notify(&mut self, event: GroupEvent) {
        self.closed |= matches!(event, GroupEvent::Closed);
        self.notices.push_back(event);
        self.wake.notify_one();
    }

    /// Begins to follow a partition. The caller has made the feed a follower of its log.
    pub(super) fn open(&mut self, at: PartitionId, position: i64) {
        let cursor = Cursor { position, paused: false, queued: true, end_is_due: true };
        self.forget(&at);
        self.cursors.insert(at.clone(), cursor);
        self.ready.push_back(at);
        self.wake.notify_one();
    }

    pub(super) fn partitions(&self) -> impl Iterator<Item = &PartitionId> {
        self.cursors.keys()
    }

    /// The offset that it is to be given next.
    pub(super) fn position(&self, at: &PartitionId) -> Option<i64> {
        self.cursors.get(at).map(|cursor| cursor.position)
    }

    pub(super) fn forget(&mut self, at: &PartitionId) {
        if self.cursors.remove(at).is_some() {
            self.ready.retain(|ready| ready != at);
        }
    }

    /// Something was appended.
    pub(super) fn news(&mut self, at: &PartitionId) {
        if let Some(cursor) = self.cursors.get_mut(at)
            && !cursor.queued
            && !cursor.paused
        {
            cursor.queued = true;
            self.ready.push_back(at.clone());
            self.wake.notify_one();
        }
    }

    pub(super) fn pause(&mut self, at: &PartitionId) {
        if let Some(cursor) = self.cursors.get_mut(at) {
            cursor.paused = true;
        }
    }

    pub(super) fn resume(&mut self, at: &PartitionId) {
        if let Some(cursor) = self.cursors.get_mut(at) {
            cursor.paused = false;
        }
        self.news(at);
    }

    /// Delivers again from `offset`, if the partition is followed and is already beyond it.
    pub(super) fn rewind(&mut self, at: &PartitionId, offset: i64) {
        if let Some(cursor) = self.cursors.get_mut(at) {
            cursor.position = cursor.position.min(offset);
        }
        self.news(at);
    }

    pub(super) fn take(&mut self, topics: &mut Topics, id: FeedId) -> Option<GroupEvent> {
        if let Some(notice) = self.notices.pop_front() {
            return Some(notice);
        }
        if self.closed {
            return Some(GroupEvent::Closed);
        }
        while let Some(at) = self.ready.pop_front() {
            let Some(cursor) = self.cursors.get_mut(&at) else { continue };
            cursor.queued = false;
            if cursor.paused {
                continue;
            }
            let Some(log) = topics.get_mut(&at.topic).and_then(|topic| topic.log_mut(&at)) else { continue };
            let offset = cursor.position;
            if !log.contains_position(offset) {
                log.followers.retain(|follower| *follower != id);
                self.cursors.remove(&at);
                return Some(GroupEvent::OutOfRange { at, offset });
            }
            if let Some(record) = log.first_from(offset) {
                cursor.position = record.offset + 1;
                cursor.end_is_due = true;
                cursor.queued = true;
                self.ready.push_back(at);
                return Some(GroupEvent::Record(record.clone()));
            }
            cursor.position = log.next(); // what is missing at the end is passed as well
            if cursor.end_is_due {
                cursor.end_is_due = false;
                return Some(GroupEvent::End { at, next_offset: log.next() });
            }
        }
        None
    }
}
