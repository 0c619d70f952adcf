//! Where records lie, and how far they were read.

use serde::{Serialize, Serializer};
use starling_protocol::{Timestamp, Topic};
use std::collections::BTreeMap;
use std::fmt;

/// Clocks of producers differ: so much later may something bear an earlier time.
const CLOCK_SKEW_MS: i64 = 60_000;

/// Where a record lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its topic.
    pub topic: Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
}

impl Place {
    /// Names a place.
    #[must_use]
    pub fn new(topic: Topic, partition: i32, offset: i64) -> Self {
        Self { topic, partition, offset }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{}", self.topic.suffix(), self.partition, self.offset)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What of a partition is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first offset. What lay before it is not known any more, or was not asked for.
    pub low: i64,
    /// The offset behind the last one.
    pub high: i64,
}

/// How far everything is read, taken before the reading begins.
///
/// An installation goes on working while it is looked at, so the order in which this is taken matters: first the
/// commits and the ends of the state log (`done_by`), then the ends of the other topics, causes after their
/// consequences, and the ends of the state log again at last. Then whatever is said to be done has its
/// consequences within what is read, and whatever is read has its decision within what is read.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// What of each partition is read.
    pub extents: BTreeMap<(Topic, i32), Extent>,
    /// Of the inboxes that groups read: everything before that offset is committed.
    pub handled: BTreeMap<(Topic, i32), i64>,
    /// For each partition of the state log, its end before anything else was looked at: what a record before it
    /// says to be done is within what is read of the other topics.
    pub done_by: BTreeMap<i32, i64>,
}

impl Cut {
    /// Whether the record's consumer said that it is done, before anything was read.
    #[must_use]
    pub fn is_handled(&self, at: &Place) -> bool {
        self.handled.get(&(at.topic.clone(), at.partition)).is_some_and(|next| at.offset < *next)
    }

    /// Whether a place lies behind what is read.
    #[must_use]
    pub fn is_beyond(&self, at: &Place) -> bool {
        self.extents.get(&(at.topic.clone(), at.partition)).is_none_or(|extent| at.offset >= extent.high)
    }

    /// Whether a place lies before what is read.
    #[must_use]
    pub fn is_before(&self, at: &Place) -> bool {
        self.extents.get(&(at.topic.clone(), at.partition)).is_some_and(|extent| at.offset < extent.low)
    }
}

/// The times at which what was read begins, for partitions of which the beginning is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beginnings(BTreeMap<(Topic, i32), Timestamp>);

impl Beginnings {
    /// Notes a record; only the first of its partition tells anything.
    pub(crate) fn note(&mut self, at: &Place, time: Timestamp) {
        let key = (at.topic.clone(), at.partition);
        self.0.entry(key).or_insert(time);
    }

    /// Whether a record of that topic (and partition, if it is known), written at `time` or later, may be missing
    /// because the beginning of its partition is.
    pub(crate) fn may_have_lost(
        &self,
        cut: &Cut,
        topic: &Topic,
        partition: Option<i32>,
        time: Timestamp,
    ) -> bool {
        let of_topic = cut.extents.iter().filter(|((other, number), _)| {
            other == topic && partition.is_none_or(|partition| partition == *number)
        });
        let mut known = false;
        for (key, extent) in of_topic {
            known = true;
            let first = self.0.get(key).copied();
            if extent.low > 0 && first.is_none_or(|first| time.0 <= first.0.saturating_add(CLOCK_SKEW_MS)) {
                return true;
            }
        }
        !known // nothing is known of a topic that was not read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_first_record_left_may_be_deleted() {
        let topic = Topic::Critic;
        let mut cut = Cut::default();
        cut.extents.insert((topic.clone(), 0), Extent { low: 0, high: 10 });
        cut.extents.insert((topic.clone(), 1), Extent { low: 5, high: 10 });
        cut.extents.insert((topic.clone(), 2), Extent { low: 7, high: 7 });
        let mut beginnings = Beginnings::default();
        for (partition, offset, time) in [(0, 0, 1_000), (1, 5, 500_000), (1, 6, 900_000)] {
            beginnings.note(&Place::new(topic.clone(), partition, offset), Timestamp(time));
        }
        let lost = |partition, time| beginnings.may_have_lost(&cut, &topic, partition, Timestamp(time));
        assert!(!lost(Some(0), 0), "its beginning is there");
        assert!(lost(Some(1), 400_000) && lost(Some(1), 500_000 + CLOCK_SKEW_MS));
        assert!(!lost(Some(1), 500_001 + CLOCK_SKEW_MS), "written when what is left was written");
        assert!(lost(Some(2), i64::MAX), "nothing is left that could tell");
        assert!(lost(None, i64::MAX), "of all partitions the worst counts");
        assert!(beginnings.may_have_lost(&cut, &Topic::Planner, None, Timestamp(0)), "it was not read");
    }

    #[test]
    fn places_lie_before_within_or_beyond_what_is_read() {
        let mut cut = Cut::default();
        cut.extents.insert((Topic::Critic, 0), Extent { low: 3, high: 5 });
        cut.handled.insert((Topic::Critic, 0), 4);
        let at = |offset| Place::new(Topic::Critic, 0, offset);
        assert_eq!([2, 3, 4, 5].map(|o| cut.is_before(&at(o))), [true, false, false, false]);
        assert_eq!([2, 3, 4, 5].map(|o| cut.is_beyond(&at(o))), [false, false, false, true]);
        assert_eq!([2, 3, 4, 5].map(|o| cut.is_handled(&at(o))), [true, true, false, false]);
        let elsewhere = Place::new(Topic::Critic, 1, 0);
        assert!(cut.is_beyond(&elsewhere) && !cut.is_before(&elsewhere) && !cut.is_handled(&elsewhere));
    }
}
