//! Records that belong to no intent, because nobody can read them: they must be dead letters.

use crate::Place;
use crate::account::{Promise, Status};
use crate::book::Fact;
use crate::ledger::{Ledger, Terms};
use crate::said::Said;
use serde::Serialize;
use starling_protocol::Topic;
use std::collections::BTreeSet;

/// A record that belongs to no intent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stray {
    /// Where it lies.
    pub record: Place,
    /// Why nobody can read it.
    pub reason: String,
    /// What became of it.
    pub status: Status,
    /// The promise that is broken.
    pub promise: Option<Promise>,
}

pub(crate) fn judge(ledger: &Ledger, strays: &[Fact], terms: Terms) -> Vec<Stray> {
    let letters: BTreeSet<&Place> =
        ledger.origins().chain(strays.iter().filter_map(|s| s.origin.as_ref())).collect();
    let judged = strays.iter().map(|fact| {
        let (reason, status) = match &fact.said {
            Said::Unreadable { why, newer: true } if !letters.contains(&fact.place) => {
                (format!("a newer version must account for it: {why}"), Status::Unaccounted)
            }
            Said::Unreadable { why, .. } => (why.clone(), status(ledger, fact, &letters, terms)),
            other => (other.about(), Status::DeadLetter),
        };
        let promise = (status == Status::Violation).then_some(Promise::NothingDropped);
        Stray { record: fact.place.clone(), reason, status, promise }
    });
    judged.collect()
}

fn status(ledger: &Ledger, fact: &Fact, letters: &BTreeSet<&Place>, terms: Terms) -> Status {
    let place = &fact.place;
    if letters.contains(place) {
        return Status::DeadLetter;
    }
    let handled = match place.topic {
        Topic::Coordinator => {
            ledger.states.get(&place.partition).is_some_and(|log| log.decision_of(place.offset).is_some())
        }
        Topic::Planner | Topic::Worker(_) | Topic::Critic => ledger.cut.is_handled(place),
        // Nobody reads these who would give it to people.
        _ => return Status::Unaccounted,
    };
    match handled {
        false if terms.ended => Status::Unaccounted,
        false => Status::Pending,
        true if ledger.beginnings.may_have_lost(&ledger.cut, &Topic::Dlq, None, fact.at) => Status::Unknown,
        true => Status::Violation,
    }
}
