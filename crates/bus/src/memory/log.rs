//! One partition: records in order, each with its offset.

use super::feed::FeedId;
use crate::{InRecord, OutRecord, PartitionId};
use starling_protocol::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// What a record costs beside its bytes: the structures that hold it.
const OVERHEAD: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Log {
    first: i64,
    bytes: usize,
    records: VecDeque<(usize, InRecord)>,
    /// Who wants to hear of new records.
    pub(super) followers: Vec<FeedId>,
}

impl Log {
    pub(super) fn first(&self) -> i64 {
        self.first
    }

    pub(super) fn next(&self) -> i64 {
        self.first.saturating_add(i64::try_from(self.records.len()).unwrap_or(i64::MAX))
    }

    pub(super) fn contains_position(&self, offset: i64) -> bool {
        (self.first..=self.next()).contains(&offset)
    }

    pub(super) fn get(&self, offset: i64) -> Option<&InRecord> {
        let index = usize::try_from(offset.checked_sub(self.first)?).ok()?;
        self.records.get(index).map(|(_, record)| record)
    }

    /// The offset of the first record that was written then or later; the next one if there is none.
    pub(super) fn first_since(&self, time: Timestamp) -> i64 {
        let found = self.records.iter().find(|(_, record)| record.timestamp >= time);
        found.map_or(self.next(), |(_, record)| record.offset)
    }

    pub(super) fn append(&mut self, record: OutRecord, timestamp: Timestamp) -> i64 {
        let offset = self.next();
        let size = size_of_record(&record);
        let OutRecord { to, key, headers, payload } = record;
        self.bytes += size;
        self.records.push_back((size, InRecord { at: to, offset, timestamp, key, headers, payload }));
        offset
    }

    /// Makes room for `size` bytes by removing records below `floor`; false if that is not enough.
    pub(super) fn make_room(&mut self, size: usize, bound: usize, floor: i64) -> bool {
        while self.bytes.saturating_add(size) > bound {
            if self.first >= floor || !self.remove_first() {
                return false;
            }
        }
        true
    }

    pub(super) fn has_room(&self, size: usize, bound: usize) -> bool {
        self.bytes.saturating_add(size) <= bound
    }

    pub(super) fn trim(&mut self, offset: i64) {
        while self.first < offset && self.remove_first() {}
    }

    fn remove_first(&mut self) -> bool {
        let Some((size, _)) = self.records.pop_front() else { return false };
        self.bytes -= size;
        self.first += 1;
        true
    }
}

pub(super) fn size_of_record(record: &OutRecord) -> usize {
    OVERHEAD + record.size()
}

/// A topic: its partitions, whether retention may shorten them, and the settings that it was made with.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) logs: Vec<Log>,
    pub(super) keep_all: bool,
    pub(super) settings: BTreeMap<String, String>,
}

impl Topic {
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
