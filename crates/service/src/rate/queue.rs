//! Those who wait, by what their calls are for, by their deadlines, and by how urgent they are.

use super::purposes::PURPOSES;
use starling_protocol::Priority;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::Notify, time::Instant};

/// A place in the queue: whose deadline comes first stands first, where that of a less urgent call counts as later. A batch
/// that waits for long comes to its turn in the end: its deadline stays where it is, while those of newcomers move on.
pub(super) type Rank = (Instant, u64);

/// By how much later, for each level of priority.
const LATER: Duration = Duration::from_secs(600);

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) called: Arc<Notify>,
    /// How often the call has failed.
    pub(super) failed: u32,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    by_purpose: [BTreeMap<Rank, Waiting>; PURPOSES],
    serial: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.by_purpose.iter().map(BTreeMap::len).sum()
    }

    pub(super) fn join(
        &mut self,
        purpose: usize,
        deadline: Instant,
        priority: Priority,
        waiting: Waiting,
    ) -> Rank {
        self.serial += 1;
        let below = u32::from(Priority::MAX.level() - priority.level());
        let counts_as = deadline.checked_add(LATER * below).unwrap_or(deadline);
        let rank = (counts_as, self.serial);
        if let Some(queue) = self.by_purpose.get_mut(purpose) {
            queue.insert(rank, waiting);
        }
        rank
    }

    pub(super) fn leave(&mut self, purpose: usize, rank: Rank) {
        if let Some(queue) = self.by_purpose.get_mut(purpose) {
            queue.remove(&rank);
        }
    }

    /// Whose deadline comes first among those that are `admitted` by purpose.
    pub(super) fn first(&self, admitted: impl Fn(usize) -> bool) -> Option<(Rank, &Waiting)> {
        let firsts = self.admitted(admitted).filter_map(BTreeMap::first_key_value);
        firsts.map(|(rank, waiting)| (*rank, waiting)).min_by_key(|(rank, _)| *rank)
    }

    /// Who has failed least of those, and whose deadline comes first then.
    pub(super) fn least_failed(&self, admitted: impl Fn(usize) -> bool) -> Option<(Rank, &Waiting)> {
        let all = self.admitted(admitted).flatten();
        all.map(|(rank, waiting)| (*rank, waiting)).min_by_key(|(rank, waiting)| (waiting.failed, *rank))
    }

    fn admitted(&self, admitted: impl Fn(usize) -> bool) -> impl Iterator<Item = &BTreeMap<Rank, Waiting>> {
        let all = self.by_purpose.iter().enumerate();
        all.filter(move |(purpose, queue)| !queue.is_empty() && admitted(*purpose)).map(|(_, queue)| queue)
    }
}
