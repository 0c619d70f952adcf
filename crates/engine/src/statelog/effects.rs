//! Which effects are done.

use std::collections::BTreeMap;

/// Counts the effects of confirmed decisions that are not done yet, so that a decision can say up to
/// where all of them are. Effects end in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectsLedger {
    /// Last confirmed decision.
    confirmed: i64,
    /// By seq; no zeros.
    outstanding: BTreeMap<i64, usize>,
    total: usize,
}

impl EffectsLedger {
    /// A ledger after decision `confirmed`, without anything outstanding.
    #[must_use]
    pub fn new(confirmed: i64) -> Self {
        Self { confirmed, outstanding: BTreeMap::new(), total: 0 }
    }

    /// Decision `seq` is confirmed and has that many effects, none of which is done.
    pub fn confirmed(&mut self, seq: i64, effects: usize) {
        self.confirmed = self.confirmed.max(seq);
        if effects > 0 {
            *self.outstanding.entry(seq).or_default() += effects;
            self.total += effects;
        }
    }

    /// One effect of decision `seq` is done.
    pub fn done(&mut self, seq: i64) {
        let Some(left) = self.outstanding.get_mut(&seq) else { return };
        *left -= 1; // no zeros are kept
        self.total -= 1;
        if *left == 0 {
            self.outstanding.remove(&seq);
        }
    }

    /// The effects of all decisions up to this one are done.
    #[must_use]
    pub fn done_up_to(&self) -> i64 {
        self.outstanding.first_key_value().map_or(self.confirmed, |(seq, _)| seq - 1)
    }

    /// Effects that are not done.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.total
    }
}
