//! The order in which an account is told: causes before what they caused.

use super::Case;
use crate::account::{Cause, Entry};
use crate::place::Place;
use starling_protocol::Topic;
use std::collections::HashMap;

/// Puts each entry behind its cause, as deep as the chain of causes is long.
pub(super) fn in_causal_order(case: &Case<'_>, mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| (a.at, &a.record).cmp(&(b.at, &b.record)));
    let at: HashMap<Place, usize> =
        entries.iter().enumerate().filter_map(|(n, entry)| Some((entry.record.clone()?, n))).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); entries.len()];
    let mut roots = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        match parent(case, entry).and_then(|place| at.get(&place)).filter(|parent| **parent != n) {
            Some(parent) => children[*parent].push(n),
            None => roots.push(n),
        }
    }
    let mut order = Vec::with_capacity(entries.len());
    let mut told = vec![false; entries.len()];
    // What is caused in a circle has no root; a forged record can be so.
    for root in roots.into_iter().chain(0..entries.len()) {
        let mut open = vec![(root, 0)];
        while let Some((n, depth)) = open.pop() {
            if std::mem::replace(&mut told[n], true) {
                continue;
            }
            order.push((n, depth));
            open.extend(children[n].iter().rev().map(|child| (*child, depth + 1)));
        }
    }
    let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(n, depth)| Some(Entry { depth, ..entries[n].take()? })).collect()
}

/// What an entry stands under: the record that caused it, or the last of its intent's inputs that went into the
/// decision that did.
fn parent(case: &Case<'_>, entry: &Entry) -> Option<Place> {
    entry.causes.iter().find_map(|cause| match cause {
        Cause::Record(place) => Some(place.clone()),
        Cause::Decision(_, seq) => {
            let inputs = case.log?.inputs_of(*seq)?;
            let mut of_intent: Vec<i64> = case
                .book
                .of(&Topic::Coordinator)
                .filter(|fact| fact.place.partition == case.home && inputs.contains(&fact.place.offset))
                .map(|fact| fact.place.offset)
                .collect();
            of_intent.sort_unstable();
            Some(Place::new(Topic::Coordinator, case.home, *of_intent.last()?))
        }
        Cause::User | Cause::Gone => None,
    })
}
