//! Which partition of an inbox takes a record that any of them may take: what comes together goes together.
//!
//! A request of the Kafka client carries one partition, and costs the broker much the same with one record as with
//! ten. A worker whose tasks end at the same time would make a request of each result, if each went to a partition of
//! its own. But what comes one by one is spread, so that no reader waits behind another's work.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Records that go to one partition at most before the next has its turn. Readers have more slots, as a rule.
const TOGETHER: u32 = 8;
/// How long they are together.
const MOMENT: Duration = Duration::from_millis(2);

/// The turn of the partitions. Starts anywhere, so that processes do not all begin with the same one.
#[derive(Debug)]
pub(crate) struct Gather(Mutex<Turn>);

#[derive(Debug)]
struct Turn {
    partition: u32,
    records: u32,
    since: Instant,
}

impl Gather {
    pub(crate) fn starting_at(partition: u32) -> Self {
        Self(Mutex::new(Turn { partition, records: 0, since: Instant::now() }))
    }

    /// The partition, of `partitions`, for a record that comes at `now`.
    pub(crate) fn next(&self, now: Instant, partitions: i32) -> i32 {
        let count = u32::try_from(partitions).unwrap_or(1).max(1);
        let mut turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.records >= TOGETHER || now.saturating_duration_since(turn.since) > MOMENT {
            *turn = Turn { partition: turn.partition.wrapping_add(1), records: 0, since: now };
        }
        turn.records += 1;
        i32::try_from(turn.partition % count).unwrap_or(0) // smaller than `partitions`
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_goes_together_and_the_rest_is_spread() {
        let gather = Gather::starting_at(3);
        let start = Instant::now();
        let burst: Vec<i32> = (0..20).map(|_| gather.next(start, 4)).collect();
        assert_eq!(burst, [[3; 8].as_slice(), &[0; 8], &[1; 4]].concat());
        let later = |ms| start + Duration::from_millis(ms);
        let singly: Vec<i32> = [10, 20, 30, 31].map(|ms| gather.next(later(ms), 4)).to_vec();
        assert_eq!(singly, [2, 3, 0, 0]);
    }
}
