//! Which letters were settled: what the marks among the dead letters say, taken together.

use crate::exit::CliError;
use starling_protocol::dead_letter::{Mark, Settled};
use std::collections::{BTreeMap, HashMap};

/// All marks that were read.
#[derive(Clone, Debug, Default)]
pub struct Settlements {
    replayed: HashMap<i32, Ranges>,
    dropped: HashMap<i32, Ranges>,
    most: usize,
}

impl Settlements {
    /// None yet; at most so many ranges of offsets.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// A mark in that partition.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, partition: i32, mark: &Mark) -> Result<(), CliError> {
        let of = match mark.settled {
            Settled::Replayed => &mut self.replayed,
            Settled::Dropped => &mut self.dropped,
        };
        let ranges = of.entry(partition).or_default();
        mark.offsets.iter().for_each(|(first, last)| ranges.insert(*first, *last));
        let count: usize =
            self.replayed.values().chain(self.dropped.values()).map(|ranges| ranges.0.len()).sum();
        if count > self.most {
            return Err(CliError::Failed(format!(
                "more than {} ranges of dead letters are settled: raise dlq.settled, or choose with --since",
                self.most
            )));
        }
        Ok(())
    }

    /// What became of a letter, if anything did.
    #[must_use]
    pub fn of(&self, partition: i32, offset: i64) -> Option<Settled> {
        let has =
            |of: &HashMap<i32, Ranges>| of.get(&partition).is_some_and(|ranges| ranges.contains(offset));
        // Who was replayed and then dropped was sent, which is what matters.
        if has(&self.replayed) {
            Some(Settled::Replayed)
        } else {
            has(&self.dropped).then_some(Settled::Dropped)
        }
    }
}

/// Ranges of offsets, by their first; none touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<i64, i64>);

impl Ranges {
    pub(super) fn insert(&mut self, first: i64, last: i64) {
        let (mut first, mut last) = (first, last);
        if let Some((before, end)) = self.0.range(..=first).next_back().map(|(before, end)| (*before, *end))
            && end >= first.saturating_sub(1)
        {
            self.0.remove(&before);
            (first, last) = (before, last.max(end));
        }
        while let Some((next, end)) =
            self.0.range(first..=last.saturating_add(1)).next().map(|(next, end)| (*next, *end))
        {
            self.0.remove(&next);
            last = last.max(end);
        }
        self.0.insert(first, last);
    }

    pub(super) fn contains(&self, offset: i64) -> bool {
        self.0.range(..=offset).next_back().is_some_and(|(_, last)| *last >= offset)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn all(&self) -> Vec<(i64, i64)> {
        self.0.iter().map(|(first, last)| (*first, *last)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Ranges::default();
        for (first, last) in [(5, 5), (9, 12), (6, 7), (1, 2), (0, 0), (20, 30), (22, 25)] {
            ranges.insert(first, last);
        }
        assert_eq!(ranges.all(), [(0, 2), (5, 7), (9, 12), (20, 30)]);
        ranges.insert(3, 25);
        assert_eq!(ranges.all(), [(0, 30)]);
        assert!(ranges.contains(0) && ranges.contains(30) && !ranges.contains(31));
    }

    #[test]
    fn marks_are_of_their_partition_and_bounded() {
        let mark = |settled, offset| Mark { settled, offsets: vec![(offset, offset)] };
        let mut settled = Settlements::new(3);
        settled.add(0, &mark(Settled::Dropped, 4)).unwrap_or_else(|error| unreachable!("{error}"));
        settled.add(0, &mark(Settled::Replayed, 6)).unwrap_or_else(|error| unreachable!("{error}"));
        assert_eq!(settled.of(0, 4), Some(Settled::Dropped));
        assert_eq!(settled.of(0, 6), Some(Settled::Replayed));
        assert_eq!((settled.of(0, 5), settled.of(1, 4)), (None, None));
        assert!(settled.add(0, &mark(Settled::Dropped, 5)).is_ok(), "it touches another");
        assert!(settled.add(1, &mark(Settled::Dropped, 5)).is_ok());
        assert!(settled.add(1, &mark(Settled::Dropped, 9)).is_err());
    }
}
