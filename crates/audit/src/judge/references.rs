//! References lead to the records that they name.

use super::{Case, Ruling};
use crate::account::Promise;
use starling_protocol::RecordRef;

/// What a reader finds.
enum Found {
    It,
    /// It is deleted.
    Gone,
    /// It lies behind what was read.
    Beyond,
    Wrong(String),
}

impl Case<'_> {
    pub(super) fn references_of(&self, references: &[RecordRef]) -> Ruling {
        for reference in references {
            if let Found::Wrong(why) = self.follow(reference) {
                return Ruling::breaks(Promise::NothingDropped, why);
            }
        }
        Ruling::original()
    }

    pub(super) fn gone_references(&self) -> usize {
        let of_facts = self.book.facts.iter().flat_map(|fact| &fact.references);
        of_facts.filter(|reference| matches!(self.follow(reference), Found::Gone)).count()
    }

    fn follow(&self, reference: &RecordRef) -> Found {
        let shown = || format!("{}[{}]@{}", reference.topic, reference.partition, reference.offset);
        let Some(place) = self.referred(reference) else {
            return Found::Wrong(format!("it refers to {}, which is no topic of this installation", shown()));
        };
        if let Some(found) = self.at.get(&place).and_then(|n| self.book.facts.get(*n)) {
            let same = found.stamp.id == reference.envelope_id
                && (reference.digest.is_empty() || reference.digest == found.digest);
            return if same {
                Found::It
            } else {
                Found::Wrong(format!("it refers to {place}, where another record lies"))
            };
        }
        let cut = &self.ledger.cut;
        if cut.is_beyond(&place) || self.book.left_out > 0 {
            return Found::Beyond;
        }
        if cut.is_before(&place) {
            return Found::Gone;
        }
        Found::Wrong(format!("it refers to {place}, where nothing of this intent lies"))
    }
}
