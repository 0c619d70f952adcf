//! Everything behind the one lock of a memory bus.

use super::{
    MemoryOptions,
    faults::{Faults, SendFault},
    feed::{Feed, FeedId, Topics},
    group::Group,
    log::{Topic, footprint},
    retention::Retention,
};
use crate::{
    BusError, GroupConfig, GroupEvent, InRecord, OutRecord, PartitionId, ReadError, SendError, TopicSpec,
};
use starling_protocol::Timestamp;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::runtime::Handle;

/// The lock and what it guards. Nothing is awaited while it is held.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Core>);

impl Shared {
    pub(super) fn new(options: MemoryOptions) -> Arc<Self> {
        Arc::new_cyclic(|home| Self(Mutex::new(Core::new(options, home.clone()))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) home: Weak<Shared>,
    pub(super) options: MemoryOptions,
    pub(super) topics: Topics,
    pub(super) groups: HashMap<String, Group>,
    pub(super) feeds: HashMap<FeedId, Feed>,
    /// Members whose session expired and who have not heard of it yet.
    pub(super) exiles: HashMap<FeedId, (Arc<GroupConfig>, Handle)>,
    pub(super) faults: Faults,
    retention: Option<Retention>,
    /// Of all partitions.
    bytes: usize,
    last_feed: FeedId,
}

impl Core {
    fn new(options: MemoryOptions, home: Weak<Shared>) -> Self {
        let retention = options.retention.clone().map(Retention::new);
        Self {
            home,
            options,
            retention,
            bytes: 0,
            topics: HashMap::new(),
            groups: HashMap::new(),
            feeds: HashMap::new(),
            exiles: HashMap::new(),
            faults: Faults::default(),
            last_feed: 0,
        }
    }

    /// Makes a topic; false if there is one of that name.
    pub(super) fn create(&mut self, spec: &TopicSpec) -> Result<bool, BusError> {
        if self.topics.contains_key(spec.name.as_str()) {
            return Ok(false);
        }
        if spec.partitions < 1 {
            return Err(BusError::Refused(format!("topic {} needs at least one partition", spec.name)));
        }
        let kept = spec.settings.get("retention.ms").and_then(|value| value.parse().ok()).unwrap_or(-1);
        let kept = u64::try_from(kept).ok().map(Duration::from_millis);
        let logs = (0..spec.partitions).map(|_| super::log::Log::default()).collect();
        let settings = spec.settings.clone();
        self.topics.insert(spec.name.as_str().into(), Topic { logs, kept, settings });
        Ok(true)
    }

    pub(super) fn log(&self, at: &PartitionId) -> Result<&super::log::Log, BusError> {
        let topic = self
            .topics
            .get(&at.topic)
            .ok_or_else(|| BusError::NoSuchTopic { topic: at.topic.to_string() })?;
        topic.log(at).ok_or_else(|| BusError::Refused(format!("there is no partition {at}")))
    }

    /// Checks a record and appends it.
    pub(super) fn append(&mut self, record: OutRecord) -> Result<i64, SendError> {
        let size = self.admit(&record)?;
        let now = (self.options.clock)();
        let bound = self.options.max_bytes_per_partition;
        let at = record.to.clone();
        let Self { topics, groups, feeds, retention, .. } = self;
        let Some(topic) = topics.get_mut(&at.topic) else { return Err(refused(&at, "no such topic")) };
        let keep_all = topic.keeps_all();
        let Some(log) = topic.log_mut(&at) else { return Err(refused(&at, "no such partition")) };
        let before = log.bytes();
        if !log.has_room(size, bound) {
            let (first, next) = (log.first(), log.next());
            let floor = if keep_all {
                first
            } else {
                groups.values().filter_map(|group| group.needs_from(&at, first)).min().unwrap_or(next)
            };
            if !log.make_room(size, bound, floor) {
                let reason =
                    format!("the partition is full ({bound} bytes) and its oldest record is still needed");
                return Err(SendError::NotSent { to: at.to_string(), reason });
            }
        }
        if let Some(retention) = retention {
            retention.sees(&record, now);
        }
        let offset = log.append(record, now);
        for follower in &log.followers {
            if let Some(feed) = feeds.get_mut(follower) {
                feed.news(&at);
            }
        }
        self.bytes = (self.bytes + log.bytes()).saturating_sub(before);
        if self.retention.as_ref().is_some_and(|retention| retention.is_due(self.bytes)) {
            self.sweep(now);
        }
        Ok(offset)
    }

    /// What the broker would refuse for good, before anything else; the record's size.
    pub(super) fn admit(&self, record: &OutRecord) -> Result<usize, SendError> {
        self.log(&record.to).map_err(|error| refused(&record.to, &error.to_string()))?;
        let size = footprint(record);
        let limit = self.options.max_record_bytes.min(self.options.max_bytes_per_partition);
        if size > limit {
            let reason = format!("{size} bytes are more than the {limit} that a record may have");
            return Err(refused(&record.to, &reason));
        }
        Ok(size)
    }

    pub(super) fn send_fault(&mut self, at: &PartitionId) -> Option<SendFault> {
        self.faults.next_send(at)
    }

    pub(super) fn read(&self, at: &PartitionId, offset: i64) -> Result<InRecord, ReadError> {
        let log = self.log(at).map_err(|error| ReadError::Gone(error.to_string()))?;
        log.get(offset).cloned().ok_or_else(|| ReadError::Gone(format!("{at}@{offset}")))
    }

    pub(super) fn trim(&mut self, at: &PartitionId, offset: i64) -> Result<(), BusError> {
        let next = self.log(at)?.next();
        if offset > next || offset < 0 {
            return Err(BusError::Refused(format!("{at} ends at {next}; it cannot be trimmed to {offset}")));
        }
        if let Some(log) = self.topics.get_mut(&at.topic).and_then(|topic| topic.log_mut(at)) {
            let before = log.bytes();
            log.trim(offset);
            let freed = before - log.bytes();
            self.bytes = self.bytes.saturating_sub(freed);
        }
        Ok(())
    }

    /// Removes what nobody needs any more.
    fn sweep(&mut self, now: Timestamp) {
        let Self { topics, groups, feeds, retention, .. } = self;
        let Some(retention) = retention else { return };
        retention.begin(now);
        let mut bytes = 0;
        for (name, topic) in topics {
            let (kept, keeps_all) = (topic.kept, topic.keeps_all());
            for (log, partition) in topic.logs.iter_mut().zip(0..) {
                if !keeps_all {
                    let at = PartitionId::new(name.clone(), partition);
                    let (first, next) = (log.first(), log.next());
                    let groups = groups.values().filter_map(|group| group.needs_from(&at, first));
                    let readers = log.followers.iter().filter_map(|id| feeds.get(id)?.position(&at));
                    let floor = groups.chain(readers).min().unwrap_or(next);
                    log.compact(floor, |record| retention.needs(record, kept, now));
                }
                bytes += log.bytes();
            }
        }
        retention.end(bytes);
        self.bytes = bytes;
    }

    pub(super) fn new_feed(&mut self, feed: Feed) -> FeedId {
        self.last_feed += 1;
        self.feeds.insert(self.last_feed, feed);
        self.last_feed
    }

    pub(super) fn tell(&mut self, id: FeedId, event: GroupEvent) {
        if let Some(feed) = self.feeds.get_mut(&id) {
            feed.notify(event);
        }
    }

    /// Delivers a partition to a feed, from `start` or from the first record that is there.
    pub(super) fn follow(&mut self, id: FeedId, at: PartitionId, start: Option<i64>) {
        let log = self.topics.get_mut(&at.topic).and_then(|topic| topic.log_mut(&at));
        let (Some(log), Some(feed)) = (log, self.feeds.get_mut(&id)) else { return };
        if !log.followers.contains(&id) {
            log.followers.push(id);
        }
        feed.open(at, start.unwrap_or_else(|| log.first()));
    }

    pub(super) fn unfollow(&mut self, id: FeedId, at: &PartitionId) {
        if let Some(log) = self.topics.get_mut(&at.topic).and_then(|topic| topic.log_mut(at)) {
            log.followers.retain(|follower| *follower != id);
        }
        if let Some(feed) = self.feeds.get_mut(&id) {
            feed.forget(at);
        }
    }

    /// Forgets a feed whose consumer is gone.
    pub(super) fn drop_feed(&mut self, id: FeedId) {
        self.exiles.remove(&id);
        if let Some(feed) = self.feeds.remove(&id) {
            for at in feed.partitions() {
                if let Some(log) = self.topics.get_mut(&at.topic).and_then(|topic| topic.log_mut(at)) {
                    log.followers.retain(|follower| *follower != id);
                }
            }
        }
    }
}

fn refused(at: &PartitionId, reason: &str) -> SendError {
    SendError::Refused { to: at.to_string(), reason: reason.to_owned() }
}
