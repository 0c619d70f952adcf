//! How much `starling audit` holds, and how patient it is.

use super::reader::Reader;
use std::time::Duration;

/// `[audit]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// Intents of which everything is held at once.
    pub at_once: usize,
    /// Most intents of one audit.
    pub max_intents: usize,
    /// Most records of one intent.
    pub max_records: usize,
    /// Most records that belong to no intent.
    pub max_strays: usize,
    /// How long after its deadline an intent may take to end.
    pub overdue: Duration,
}

pub(super) fn read(r: &mut Reader) -> AuditSettings {
    AuditSettings {
        at_once: r.integer("audit.at_once", 1..=1_000_000),
        max_intents: r.integer("audit.max_intents", 0..=100_000_000),
        max_records: r.integer("audit.max_records", 100..=10_000_000),
        max_strays: r.integer("audit.max_strays", 0..=10_000_000),
        overdue: r.duration("audit.overdue", Duration::ZERO..=Duration::from_secs(7 * 24 * 3600)),
    }
}
