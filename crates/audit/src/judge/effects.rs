//! What the coordinator's decisions caused: nothing that was not decided, and everything that was.

use super::{Case, Ruling, entry};
use crate::account::{Entry, Promise, Status};
use crate::book::{Decided, Fact};
use crate::said::Said;
use starling_protocol::{Timestamp, Topic};
use std::collections::HashSet;

impl Case<'_> {
    /// Whether a record is the effect of a decision that counts, and which copy of it.
    pub(super) fn decided_effect(&self, fact: &Fact) -> Ruling {
        let promise = promise_of(&fact.place.topic);
        if let Some(decided) = self.decisions(self.decided.get(&fact.print)).next() {
            return self.copy(fact, decided).caused_by([self.cause_of(decided)]);
        }
        if let Some(undecided) = self.book.undecided.iter().find(|undecided| undecided.print == fact.print) {
            let at = undecided.state;
            return Ruling::breaks(
                promise,
                format!("performed, though its decision at state[{}]@{at} does not count", self.home),
            );
        }
        let mut same_id = self.decisions(self.decided_by_id.get(&fact.stamp.id));
        let same = |decided: &&Decided| decided.topic == fact.place.topic && decided.origin == fact.origin;
        if let Some(decided) = same_id.find(same) {
            if fact.replayed && decided.digest == fact.digest {
                return Ruling::new(Status::Duplicate, "sent again from the dead letters")
                    .caused_by([crate::Cause::User]);
            }
            let what = if decided.digest != fact.digest {
                "its value is not the one that was decided"
            } else if decided.partition != fact.place.partition {
                "it lies in another partition than was decided"
            } else {
                "its key or its headers are not those that were decided"
            };
            return Ruling::breaks(promise, what).caused_by([self.cause_of(decided)]);
        }
        match self.log {
            None => Ruling::new(Status::Unknown, format!("state[{}] is not readable", self.home)),
            Some(log) if log.base().is_some_and(|base| fact.stamp.created_at.0 <= base.now) => {
                let why = format!("decided before state[{}] begins, or never", self.home);
                Ruling::new(Status::Unknown, why).caused_by([crate::Cause::Gone])
            }
            Some(_) if self.book.left_out > 0 => {
                Ruling::new(Status::Unknown, "its decision may be among what is beyond the limit")
            }
            Some(_) => Ruling::breaks(promise, "nobody has decided it"),
        }
    }

    pub(super) fn decisions<'c>(
        &'c self,
        numbers: Option<&'c Vec<usize>>,
    ) -> impl Iterator<Item = &'c Decided> {
        numbers.into_iter().flatten().filter_map(|n| self.book.decided.get(*n))
    }

    fn copy(&self, fact: &Fact, decided: &Decided) -> Ruling {
        let copies = self.facts(self.copies.get(&fact.print));
        let number = copies.filter(|copy| copy.place < fact.place).count();
        let takeovers = self.log.map_or(0, |log| log.takeovers(decided));
        match number {
            0 => Ruling::original(),
            number if number <= takeovers => Ruling::new(
                Status::Duplicate,
                "performed again: a later owner could not know that it was done",
            ),
            _ => Ruling::new(Status::Duplicate, "sent again: that it was written was not known"),
        }
    }

    /// Effects that were decided and are not there, or were decided twice.
    pub(super) fn missing_effects(&self) -> Vec<Entry> {
        let mut missing = Vec::new();
        let mut seen: HashSet<(&Topic, &str)> = HashSet::new();
        for decided in &self.book.decided {
            let again =
                decided.topic != Topic::Dlq && !seen.insert((&decided.topic, decided.stamp.id.as_str()));
            let ruling = if again {
                let why = format!("decided once more, with decision {}", decided.seq);
                Ruling::breaks(promise_of(&decided.topic), why)
            } else if self.copies.contains_key(&decided.print) {
                continue;
            } else {
                self.absent(decided)
            };
            let ruling = ruling.caused_by([self.cause_of(decided)]);
            let id = decided.stamp.id.as_str();
            missing.push(entry(None, Timestamp(decided.now), &decided.said, id, ruling));
        }
        missing
    }

    fn absent(&self, decided: &Decided) -> Ruling {
        let (topic, partition) = (&decided.topic, decided.partition);
        if self.was_refused(decided) {
            return Ruling::new(
                Status::Superseded,
                "the broker refused it for good, and its intent was told",
            );
        }
        // A record with its name and other bytes is a finding of its own.
        let mut others = self.facts(self.by_id.get(&decided.stamp.id));
        let but = if others.any(|fact| fact.place.topic == *topic) { "; another with its id is" } else { "" };
        if !self.log.is_some_and(|log| log.is_done(decided.seq)) {
            return Ruling::new(
                Status::Pending,
                format!("decided for {}[{partition}] and not performed yet{but}", topic.suffix()),
            );
        }
        let since = Timestamp(decided.now);
        if self.may_be_lost(topic, Some(partition), since) {
            return Ruling::new(
                Status::Unknown,
                format!("it may be deleted from {}[{partition}]", topic.suffix()),
            );
        }
        let promise = if *topic == Topic::Outcomes { Promise::OneOutcome } else { Promise::NothingDropped };
        let why = format!("decided, said to be done, and not in {}[{partition}]{but}", topic.suffix());
        Ruling::breaks(promise, why)
    }

    /// Whether what followed shows that the broker refused it.
    fn was_refused(&self, decided: &Decided) -> bool {
        let outcomes = || {
            let found = self.book.facts.iter().map(|fact| &fact.said);
            found.chain(self.book.decided.iter().map(|decided| &decided.said))
        };
        match &decided.said {
            Said::Task { name, .. } => {
                let tasks = self.book.state.tasks.get(&name.task).map_or(&[][..], Vec::as_slice);
                let refused = |at: &crate::book::TaskAt| at.failure.as_deref() == Some("undeliverable");
                tasks.iter().any(refused)
                    || outcomes().any(
                        |said| matches!(said, Said::Outcome { refused, .. } if refused.contains(&name.task)),
                    )
            }
            Said::PlanRequest { .. } => {
                outcomes().any(|said| matches!(said, Said::Outcome { plan_refused: true, .. }))
            }
            Said::Outcome { .. } => decided.stamp.id == self.outcome_id() && self.has_replacement(),
            _ => false,
        }
    }
}

/// The promise that is broken where such a record is there and was not decided.
fn promise_of(topic: &Topic) -> Promise {
    match topic {
        Topic::Outcomes => Promise::OneOutcome,
        Topic::Dlq => Promise::NothingDropped,
        _ => Promise::AppliedOnce,
    }
}
