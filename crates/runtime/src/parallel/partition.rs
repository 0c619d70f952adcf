//! One assigned partition: what of it is in hand, and what is done.

use super::run::{Job, Rank};
use starling_bus::{Assignment, InRecord};
use starling_engine::offsets::{OffsetTracker, Restored, Taken};
use std::collections::{BTreeMap, VecDeque};
use tokio::task::AbortHandle;

/// State of a partition for one assignment.
pub(super) struct Partition {
    /// Distinguishes this assignment from earlier ones of the same partition.
    pub(super) epoch: u64,
    pub(super) tracker: OffsetTracker,
    /// Records that are to run, by their ranks.
    queue: BTreeMap<(Rank, i64), Job>,
    /// Delivered, but the map of done offsets might not fit if they were taken. Bounded by what the
    /// client had ready when the partition was paused.
    room: VecDeque<InRecord>,
    /// The end of the partition, reached behind what waits in the room.
    end: Option<i64>,
    /// Handlers that run.
    running: BTreeMap<i64, AbortHandle>,
    pub(super) paused: bool,
    /// The group wants it back.
    departing: bool,
    /// Records that the processor was given before the last one of this partition.
    delivered: u64,
}

/// What became of a delivered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It is to run, or waits.
    Kept,
    /// It was done before.
    AlreadyDone,
}

impl Partition {
    pub(super) fn new(epoch: u64, assignment: &Assignment, max_metadata: usize) -> Self {
        let tracker = match &assignment.committed {
            None => OffsetTracker::new(max_metadata),
            Some(committed) => {
                let (tracker, restored) =
                    OffsetTracker::restore(committed.offset, &committed.metadata, max_metadata);
                if restored == Restored::Ignored {
                    tracing::warn!(
                        at = %assignment.at,
                        "the commit's metadata is not readable: records that were done may run again"
                    );
                }
                tracker
            }
        };
        Self {
            epoch,
            tracker,
            queue: BTreeMap::new(),
            room: VecDeque::new(),
            end: None,
            running: BTreeMap::new(),
            paused: false,
            departing: false,
            delivered: 0,
        }
    }

    /// A record was delivered, after so many `before` it.
    pub(super) fn deliver(&mut self, record: InRecord, before: u64) -> Admitted {
        self.delivered = before;
        if !self.room.is_empty() || !self.tracker.would_fit(record.offset) {
            self.room.push_back(record);
            return Admitted::Kept;
        }
        self.admit(record)
    }

    /// Everything before `next_offset` was delivered.
    pub(super) fn reach_end(&mut self, next_offset: i64) {
        if self.room.is_empty() {
            self.tracker.end(next_offset);
        } else {
            self.end = Some(next_offset);
        }
    }

    /// A record is done; others may fit now. Says how many of those had been done before.
    pub(super) fn done(&mut self, offset: i64) -> usize {
        self.running.remove(&offset);
        self.tracker.done(offset);
        let mut already_done = 0;
        while self.room.front().is_some_and(|next| self.tracker.would_fit(next.offset)) {
            if let Some(record) = self.room.pop_front() {
                already_done += usize::from(self.admit(record) == Admitted::AlreadyDone);
            }
        }
        if self.room.is_empty()
            && let Some(next_offset) = self.end.take()
        {
            self.tracker.end(next_offset);
        }
        already_done
    }

    fn admit(&mut self, record: InRecord) -> Admitted {
        match self.tracker.taken(record.offset) {
            Taken::New => {
                self.put_back(Job::new(record, self.delivered));
                Admitted::Kept
            }
            Taken::AlreadyDone | Taken::Repeated => Admitted::AlreadyDone,
        }
    }

    /// The next record to run.
    pub(super) fn next(&mut self) -> Option<Job> {
        self.queue.pop_first().map(|(_, job)| job)
    }

    /// The rank of that record.
    pub(super) fn first_rank(&self) -> Option<Rank> {
        self.queue.first_key_value().map(|((rank, _), _)| *rank)
    }

    /// A record is to run, or to run again: in its place.
    pub(super) fn put_back(&mut self, job: Job) {
        self.queue.insert((job.rank, job.record.offset), job);
    }

    pub(super) fn is_running(&mut self, offset: i64, handle: AbortHandle) {
        self.running.insert(offset, handle);
    }

    pub(super) fn stopped_running(&mut self, offset: i64) {
        self.running.remove(&offset);
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Records that do not run yet.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.room.len()
    }

    /// Whether something waits that cannot even be taken.
    pub(super) fn is_full(&self) -> bool {
        !self.room.is_empty()
    }

    /// Records that are not done.
    pub(super) fn in_hand(&self) -> usize {
        self.tracker.in_flight() + self.room.len()
    }

    /// Gives up what does not run yet: another process, or this one after a restart, will do it.
    pub(super) fn drop_waiting(&mut self) {
        self.queue.clear();
        self.room.clear();
        self.end = None;
    }

    /// The group wants it back: nothing more begins.
    pub(super) fn depart(&mut self) {
        self.departing = true;
        self.drop_waiting();
    }

    pub(super) fn is_departing(&self) -> bool {
        self.departing
    }

    /// Lets go of everything that runs.
    pub(super) fn abort(&mut self) {
        for handle in std::mem::take(&mut self.running).into_values() {
            handle.abort();
        }
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }
}
