//! Dead letters: each must be what it says that it was.

use super::{Case, Ruling};
use crate::account::{Cause, Promise, Status};
use crate::book::Fact;
use crate::place::Place;
use starling_protocol::Topic;

impl Case<'_> {
    /// Whether people have the record, or will.
    pub(super) fn is_letter(&self, place: &Place) -> bool {
        self.letters.contains_key(place) || self.buried.contains(place)
    }

    /// A record that people have.
    pub(super) fn dead_letter_of(&self, fact: &Fact) -> Ruling {
        match self.facts(self.letters.get(&fact.place)).next() {
            Some(letter) => {
                Ruling::new(Status::DeadLetter, format!("{}: {}", letter.place, letter.said.about()))
            }
            None => Ruling::new(Status::DeadLetter, "decided to be one"),
        }
    }

    /// A record of the dead letters.
    pub(super) fn letter(&self, letter: &Fact) -> Ruling {
        let Some(origin) = &letter.origin else {
            return Ruling::new(Status::Unaccounted, "it does not say where it comes from");
        };
        let of_coordinator = origin.topic == Topic::Coordinator;
        let ruling = match self.at.get(origin).and_then(|n| self.book.facts.get(*n)) {
            Some(was) if was.digest != letter.digest && !letter.digest.is_empty() => {
                Ruling::breaks(Promise::NothingDropped, format!("its value is not that of {origin}"))
            }
            Some(_) => Ruling::new(Status::DeadLetter, ""),
            None if self.ledger.cut.is_before(origin) || self.ledger.cut.is_beyond(origin) => {
                Ruling::new(Status::DeadLetter, "").caused_by([Cause::Gone])
            }
            None => {
                Ruling::breaks(Promise::NothingDropped, format!("nothing of this intent lies at {origin}"))
            }
        };
        let ruling = ruling.caused_by([Cause::Record(origin.clone())]);
        if of_coordinator && origin.partition == self.home {
            return ruling.and(self.decided_effect(letter));
        }
        let first = self.facts(self.letters.get(origin)).next();
        match first {
            // Whoever buried it died before it could say so.
            Some(first) if first.place != letter.place && ruling.status == Status::DeadLetter => {
                Ruling { why: format!("the same as {}", first.place), ..ruling }
            }
            _ => ruling,
        }
    }
}
