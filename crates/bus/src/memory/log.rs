//! One partition: records in order, each with its offset.

use super::feed::FeedId;
use crate::{InRecord, OutRecord, PartitionId};
use starling_protocol::Timestamp;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// What a record and each of its headers cost beside their bytes: the structures that hold them.
const OVERHEAD: usize = 192;
const HEADER_OVERHEAD: usize = 96;

#[derive(Debug, Default)]
pub(super) struct Log {
    /// The offset of the next record.
    next: i64,
    bytes: usize,
    /// By their offsets, of which some may be missing: what retention has removed in between.
    records: VecDeque<(usize, InRecord)>,
    /// Who wants to hear of new records.
    pub(super) followers: Vec<FeedId>,
}

impl Log {
    pub(super) fn first(&self) -> i64 {
        self.records.front().map_or(self.next, |(_, record)| record.offset)
    }

    pub(super) fn next(&self) -> i64 {
        self.next
    }

    pub(super) fn contains_position(&self, offset: i64) -> bool {
        (self.first()..=self.next).contains(&offset)
    }

    pub(super) fn get(&self, offset: i64) -> Option<&InRecord> {
        self.first_from(offset).filter(|record| record.offset == offset)
    }

    /// The first record with that offset or a later one.
    pub(super) fn first_from(&self, offset: i64) -> Option<&InRecord> {
        self.records.get(self.index_of(offset)).map(|(_, record)| record)
    }

    fn index_of(&self, offset: i64) -> usize {
        // Where nothing is missing it stands where its offset says.
        let guess = usize::try_from(offset.saturating_sub(self.first())).unwrap_or(0);
        match self.records.get(guess) {
            Some((_, record)) if record.offset == offset => guess,
            _ => self.records.partition_point(|(_, record)| record.offset < offset),
        }
    }

    /// The offset of the first record that was written then or later; the next one if there is none.
    pub(super) fn first_since(&self, time: Timestamp) -> i64 {
        let found = self.records.iter().find(|(_, record)| record.timestamp >= time);
        found.map_or(self.next, |(_, record)| record.offset)
    }

    pub(super) fn append(&mut self, record: OutRecord, timestamp: Timestamp) -> i64 {
        let offset = self.next;
        self.next = offset.saturating_add(1);
        let size = footprint(&record);
        let OutRecord { to, key, headers, payload } = record;
        self.bytes += size;
        self.records.push_back((size, InRecord { at: to, offset, timestamp, key, headers, payload }));
        offset
    }

    /// Makes room for `size` bytes by removing records below `floor`; false if that is not enough.
    pub(super) fn make_room(&mut self, size: usize, bound: usize, floor: i64) -> bool {
        while self.bytes.saturating_add(size) > bound {
            if self.first() >= floor || !self.remove_first() {
                return false;
            }
        }
        true
    }

    pub(super) fn has_room(&self, size: usize, bound: usize) -> bool {
        self.bytes.saturating_add(size) <= bound
    }

    pub(super) fn trim(&mut self, offset: i64) {
        while self.first() < offset && self.remove_first() {}
    }

    /// Removes those below `floor` that are of no more use.
    pub(super) fn compact(&mut self, floor: i64, is_needed: impl Fn(&InRecord) -> bool) {
        let bytes = &mut self.bytes;
        self.records.retain(|(size, record)| {
            let stays = record.offset >= floor || is_needed(record);
            if !stays {
                *bytes -= size;
            }
            stays
        });
        // What was taken for records that are gone is given back.
        self.records.shrink_to(self.records.len() * 2);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove_first(&mut self) -> bool {
        let Some((size, _)) = self.records.pop_front() else { return false };
        self.bytes -= size;
        true
    }
}

/// What a record costs in memory.
pub(super) fn footprint(record: &OutRecord) -> usize {
    OVERHEAD + HEADER_OVERHEAD * record.headers.len() + record.size()
}

/// A topic: its partitions, how long retention keeps what is in them, and the settings that it was made with.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) logs: Vec<Log>,
    /// `None` is for ever.
    pub(super) kept: Option<Duration>,
    pub(super) settings: BTreeMap<String, String>,
}

impl Topic {
    /// Whether only its owner may shorten it.
    pub(super) fn keeps_all(&self) -> bool {
        self.settings.get("retention.ms").is_some_and(|value| value == "-1")
    }

    pub(super) fn log(&self, at: &PartitionId) -> Option<&Log> {
        self.logs.get(usize::try_from(at.partition).ok()?)
    }

    pub(super) fn log_mut(&mut self, at: &PartitionId) -> Option<&mut Log> {
        self.logs.get_mut(usize::try_from(at.partition).ok()?)
    }

    pub(super) fn count(&self) -> i32 {
        i32::try_from(self.logs.len()).unwrap_or(i32::MAX)
    }
}
