//! What calls are for, as the numbers that `starling_engine::rate` goes by.

use starling_engine::rate::Bulkheads;
use starling_llm::Purpose;
use starling_runtime::settings::BulkheadSettings;

/// In the order of their numbers, with their names in metrics.
pub(super) const PURPOSES: [(Purpose, &str); 4] = [
    (Purpose::Plan, "plan"),
    (Purpose::Work, "work"),
    (Purpose::Judge, "judge"),
    (Purpose::Synthesize, "synthesize"),
];

pub(super) fn number(purpose: Purpose) -> usize {
    match purpose {
        Purpose::Plan => 0,
        Purpose::Work => 1,
        Purpose::Judge => 2,
        Purpose::Synthesize => 3,
    }
}

/// Nobody waits and nothing is open.
pub(super) fn bulkheads(shares: BulkheadSettings) -> Bulkheads {
    let BulkheadSettings { plan, work, judge, synthesize } = shares;
    let share = |(purpose, _)| match purpose {
        Purpose::Plan => plan,
        Purpose::Work => work,
        Purpose::Judge => judge,
        Purpose::Synthesize => synthesize,
    };
    Bulkheads::new(&PURPOSES.map(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_table() {
        for (at, (purpose, _)) in PURPOSES.into_iter().enumerate() {
            assert_eq!(number(purpose), at);
        }
    }
}
