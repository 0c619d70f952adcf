//! Which records of a partition are done, when many of them are in flight and end out of order.
//!
//! The commit of a partition is the lowest record that is not done. What is done above it rides in the
//! commit's metadata, so that one slow record neither holds the others back nor makes them run twice.

mod map;

use map::DoneMap;
use std::collections::BTreeSet;

/// The most bytes that a broker keeps beside a committed offset (its `offset.metadata.max.bytes`).
pub const MAX_METADATA_BYTES: usize = 4096;

/// Follows the records of one partition from delivery to the end of their handling.
///
/// Records are delivered in ascending order of offsets, but not without gaps: compaction and
/// transactions leave holes. An offset that was passed over in delivery never comes, so it counts as
/// done. Memory is proportional to the records that are *not* done.
#[derive(Clone, Debug)]
pub struct OffsetTracker {
    /// Delivered, not done.
    running: BTreeSet<i64>,
    /// Not done according to the restored map, and not delivered yet. All lie at or after `delivered`.
    awaited: BTreeSet<i64>,
    /// The offset after everything that was delivered; `None` before the first delivery.
    delivered: Option<i64>,
    /// What is known lies before this offset: the end of the restored map, or of what was delivered.
    known: i64,
    /// What was handed out to be committed last.
    handed_out: Option<Commit>,
    /// Something is done since then.
    moved: bool,
    max_metadata: usize,
}

/// An offset to be committed with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The lowest offset that is not done.
    pub offset: i64,
    /// Which offsets above it are done; empty if none is.
    pub metadata: String,
}

/// What a delivered record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is to be handled, and [`OffsetTracker::done`] called afterwards.
    New,
    /// It was done before the partition came to this process: pass over it.
    AlreadyDone,
    /// It was delivered to this tracker before: pass over it.
    Repeated,
}

/// What became of the metadata of a committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It was read, or there was none.
    Intact,
    /// It is not ours or is damaged, and was ignored: records after the committed offset that were done
    /// will run again.
    Ignored,
}

impl Default for OffsetTracker {
    fn default() -> Self {
        Self::new(MAX_METADATA_BYTES)
    }
}

impl OffsetTracker {
    /// A tracker for a partition of which nothing was ever committed. `max_metadata` is what the broker
    /// keeps beside an offset, in bytes.
    #[must_use]
    pub fn new(max_metadata: usize) -> Self {
        Self {
            running: BTreeSet::new(),
            awaited: BTreeSet::new(),
            delivered: None,
            known: i64::MIN,
            handed_out: None,
            moved: false,
            max_metadata: max_metadata.min(MAX_METADATA_BYTES),
        }
    }

    /// A tracker that goes on from what was committed.
    #[must_use]
    pub fn restore(offset: i64, metadata: &str, max_metadata: usize) -> (Self, Restored) {
        let mut tracker = Self::new(max_metadata);
        tracker.delivered = Some(offset);
        tracker.known = offset;
        tracker.handed_out = Some(Commit { offset, metadata: metadata.to_owned() });
        if metadata.is_empty() {
            return (tracker, Restored::Intact);
        }
        let Some(map) = DoneMap::decode(offset, metadata) else {
            return (tracker, Restored::Ignored);
        };
        tracker.known = map.end;
        tracker.awaited.extend(map.incomplete);
        tracker.awaited.insert(offset);
        (tracker, Restored::Intact)
    }

    /// A record was delivered. Offsets that were passed over count as done from now on.
    pub fn taken(&mut self, offset: i64) -> Taken {
        if self.delivered.is_some_and(|next| offset < next) {
            return Taken::Repeated;
        }
        let done = offset < self.known && !self.awaited.contains(&offset);
        self.pass(offset.saturating_add(1));
        if done {
            return Taken::AlreadyDone;
        }
        self.running.insert(offset);
        Taken::New
    }

    /// A record that was [`Taken::New`] is done. Says whether it was in flight.
    pub fn done(&mut self, offset: i64) -> bool {
        let was_running = self.running.remove(&offset);
        self.moved |= was_running;
        was_running
    }

    /// Everything before `next_offset` was delivered and nothing follows now.
    pub fn end(&mut self, next_offset: i64) {
        if self.delivered.is_none_or(|next| next < next_offset) {
            self.pass(next_offset);
            self.moved = true;
        }
    }

    /// What is to be committed now, if it differs from what was handed out last.
    pub fn commit(&mut self) -> Option<Commit> {
        if !std::mem::take(&mut self.moved) {
            return None;
        }
        let commit = self.position()?;
        if self.handed_out.as_ref() == Some(&commit) {
            return None;
        }
        self.handed_out = Some(commit.clone());
        Some(commit)
    }

    /// What was handed out last could not be committed: [`OffsetTracker::commit`] hands it out again.
    pub fn commit_failed(&mut self) {
        self.handed_out = None;
        self.moved = true;
    }

    /// Bytes of metadata that were handed out last.
    #[must_use]
    pub fn handed_out_metadata(&self) -> usize {
        self.handed_out.as_ref().map_or(0, |commit| commit.metadata.len())
    }

    /// The broker keeps no more than so many bytes of metadata, which was not known when the tracker was made. A map
    /// that is larger already loses its upper end.
    pub fn limit_metadata(&mut self, max_metadata: usize) {
        self.max_metadata = self.max_metadata.min(max_metadata);
    }

    /// Whether the map would fit into the metadata if the record at `offset` were taken, in whatever
    /// order the records end. If not, delivery is to be paused until something is done.
    #[must_use]
    pub fn would_fit(&self, offset: i64) -> bool {
        let Some(lowest) = self.lowest() else { return true };
        // What is done now leaves fewer holes in a shorter map later, so this is the worst there is.
        let holes = self.running.len().saturating_add(self.awaited.len()).saturating_add(1);
        let end = self.known.max(offset.saturating_add(1));
        map::fits(holes, end.saturating_sub(lowest), self.max_metadata)
    }

    /// Records that were delivered and are not done.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// What the partition's commit ought to be now. `None` before anything is known.
    #[must_use]
    pub fn position(&self) -> Option<Commit> {
        let Some(lowest) = self.lowest() else {
            let offset = self.delivered?.max(self.known);
            return Some(Commit { offset, metadata: String::new() });
        };
        let above = self.running.iter().chain(&self.awaited).copied().filter(|o| *o > lowest);
        let map = DoneMap { incomplete: above.collect(), end: self.known };
        Some(Commit { offset: lowest, metadata: map.encode(lowest, self.max_metadata) })
    }

    /// Running records lie before all that are awaited: those were not delivered yet.
    fn lowest(&self) -> Option<i64> {
        self.running.first().or_else(|| self.awaited.first()).copied()
    }

    /// Delivery has reached `next`.
    fn pass(&mut self, next: i64) {
        self.delivered = Some(next);
        self.known = self.known.max(next);
        // Delivery is in order: what was awaited before `next` is this record, or never comes.
        self.awaited = self.awaited.split_off(&next);
    }
}
