//! What calls are for, as the numbers that `starling_engine::rate` goes by: the places in [`Purpose::ALL`].

use starling_engine::rate::Bulkheads;
use starling_llm::Purpose;
use starling_runtime::settings::BulkheadSettings;

/// How many there are.
pub(super) const PURPOSES: usize = Purpose::ALL.len();

pub(super) fn number(purpose: Purpose) -> usize {
    purpose as usize
}

/// Nobody waits and nothing is open.
pub(super) fn bulkheads(shares: BulkheadSettings) -> Bulkheads {
    let BulkheadSettings { plan, work, judge, synthesize } = shares;
    let share = |purpose| match purpose {
        Purpose::Plan => plan,
        Purpose::Work => work,
        Purpose::Judge => judge,
        Purpose::Synthesize => synthesize,
    };
    Bulkheads::new(&Purpose::ALL.map(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_table() {
        for (at, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(number(purpose), at);
        }
    }
}
