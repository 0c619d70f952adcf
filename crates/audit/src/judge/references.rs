//! References lead to the records that they name.

use super::{Case, Ruling};
use crate::account::Promise;
use starling_protocol::{RecordRef, Topic};

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

    /// Parts of long inputs that it refers to and that are there, as they were.
    pub(super) fn parts(&self) -> usize {
        let references = self.book.facts.iter().flat_map(|fact| &fact.references);
        let contents = references.filter(|to| self.referred(to).is_some_and(|at| at.topic == Topic::Content));
        contents.filter(|reference| matches!(self.follow(reference), Found::It)).count()
    }

    fn follow(&self, reference: &RecordRef) -> Found {
        let shown = || format!("{}[{}]@{}", reference.topic, reference.partition, reference.offset);
        let Some(place) = self.referred(reference) else {
            return Found::Wrong(format!("it refers to {}, which is no topic of this installation", shown()));
        };
        if place.topic == Topic::Content
            && let Some(is_it) = self.ledger.contents.is_it(&place, reference)
        {
            return if is_it {
                Found::It
            } else {
                Found::Wrong(format!("it refers to {place}, where another record lies"))
            };
        }
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
        let what = if place.topic == Topic::Content { "nothing" } else { "nothing of this intent" };
        Found::Wrong(format!("it refers to {place}, where {what} lies"))
    }
}
