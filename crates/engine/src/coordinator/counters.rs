//! What a coordinator counts for its metrics. Soft: it starts at zero with each owner.

use starling_protocol::OutcomeStatus;
use std::collections::BTreeMap;

/// Counts since the coordinator was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Inputs that had been seen before.
    pub duplicates: u64,
    /// Inputs that came after what they belong to had ended or moved on.
    pub superseded_late: u64,
    /// Inputs of plan runs that were given up.
    pub superseded_abandoned: u64,
    /// Inputs that came after their intent was cancelled.
    pub superseded_cancelled: u64,
    /// Inputs that were given to people.
    pub dead_letters: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Effects that the broker refused.
    pub refused_effects: u64,
    /// Intents that ended, by [`OutcomeStatus::name`].
    pub outcomes: BTreeMap<&'static str, u64>,
}

/// Why an input changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Duplicate,
    Late,
    Abandoned,
    Cancelled,
}

impl Counters {
    pub(super) fn stale(&mut self, stale: Stale) {
        *match stale {
            Stale::Duplicate => &mut self.duplicates,
            Stale::Late => &mut self.superseded_late,
            Stale::Abandoned => &mut self.superseded_abandoned,
            Stale::Cancelled => &mut self.superseded_cancelled,
        } += 1;
    }

    pub(super) fn outcome(&mut self, status: OutcomeStatus) {
        *self.outcomes.entry(status.name()).or_default() += 1;
    }
}
