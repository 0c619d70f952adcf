//! Exactly one outcome.

use super::{Case, Ruling, entry};
use crate::account::{Entry, Promise, Status};
use crate::book::Fact;
use crate::said::Said;
use starling_protocol::{EnvelopeId, OutcomeStatus, RunId, Timestamp, Topic};
use std::collections::BTreeMap;

impl Case<'_> {
    pub(super) fn outcome_id(&self) -> EnvelopeId {
        EnvelopeId::derive("outcome", &[self.id.as_str()])
    }

    /// Whether it was decided to replace an outcome that the broker refused.
    pub(super) fn has_replacement(&self) -> bool {
        let id = EnvelopeId::derive("outcome_replacement", &[self.id.as_str()]);
        self.decided_by_id.contains_key(&id) || self.by_id.contains_key(&id)
    }

    /// What users see: the first record of the outcomes, else what was decided.
    pub(super) fn outcome(&self) -> Option<OutcomeStatus> {
        let said = |said: &Said| match said {
            Said::Outcome { status, .. } => Some(*status),
            _ => None,
        };
        let read = self.book.of(&Topic::Outcomes).find_map(|fact| said(&fact.said));
        read.or_else(|| self.book.state.ended.first().map(|(_, status)| *status))
    }

    /// All outcomes of an intent are the same, byte for byte.
    pub(super) fn one_of_outcomes(&self, fact: &Fact) -> Ruling {
        match self.book.of(&Topic::Outcomes).find(|other| matches!(other.said, Said::Outcome { .. })) {
            Some(first) if first.place != fact.place && first.digest != fact.digest => {
                let why = format!("a second outcome, other than that at {}", first.place);
                Ruling::breaks(Promise::OneOutcome, why)
            }
            _ => self.counted_once(fact),
        }
    }

    /// No call is counted that no record tells of, and none twice.
    fn counted_once(&self, fact: &Fact) -> Ruling {
        let Said::Outcome { calls, .. } = &fact.said else { return Ruling::original() };
        if self.book.left_out > 0 || self.may_be_lost(&Topic::Coordinator, Some(self.home), Timestamp(0)) {
            return Ruling::original();
        }
        let mut plans: BTreeMap<(&RunId, i32), i64> = BTreeMap::new();
        let mut steps = BTreeMap::new();
        for input in self.book.of(&Topic::Coordinator) {
            match &input.said {
                Said::Fragment { run, seq, calls, .. } => {
                    let most = plans.entry((run, *seq)).or_default();
                    *most = (*most).max(*calls);
                }
                Said::Result { name, calls, .. } | Said::Turn { name, calls, .. } => {
                    let most: &mut i64 = steps.entry(name).or_default();
                    *most = (*most).max(*calls);
                }
                Said::Verdict { name, work_calls, calls, .. } => {
                    let most: &mut i64 = steps.entry(name).or_default();
                    *most = (*most).max(work_calls.saturating_add(*calls));
                }
                _ => {}
            }
        }
        let told: i64 = plans.values().chain(steps.values()).sum();
        if *calls > told {
            let why =
                format!("it counts {calls} calls, what the coordinator was told comes to {told} at most");
            return Ruling::breaks(Promise::AppliedOnce, why);
        }
        Ruling::original()
    }

    /// An outcome that ought to be there.
    pub(super) fn missing_outcomes(&self) -> Vec<Entry> {
        let state = &self.book.state;
        let is_outcome = |said: &Said| matches!(said, Said::Outcome { .. });
        let decided = self.book.decided.iter().any(|decided| is_outcome(&decided.said));
        let read = self.book.of(&Topic::Outcomes).any(|fact| is_outcome(&fact.said));
        let ruling = if let (Some((_, deadline)), true) = (state.accepted, state.is_live()) {
            let due = deadline.0.saturating_add(self.terms.overdue_ms);
            if self.terms.now.0 > due {
                let late = (self.terms.now.0 - deadline.0) / 1000;
                Ruling::breaks(Promise::OneOutcome, format!("no outcome {late} s after the deadline"))
            } else if self.terms.ended {
                Ruling::new(Status::Unaccounted, "it was to have ended, and has no outcome")
            } else {
                return Vec::new();
            }
        } else if decided || read || state.ended.is_empty() {
            return Vec::new();
        } else if state.from_base && self.may_be_lost(&Topic::Outcomes, None, Timestamp(i64::MIN)) {
            Ruling::new(Status::Unknown, "it ended before its state log begins; the outcome may be deleted")
        } else {
            Ruling::breaks(Promise::OneOutcome, "the state log says that it ended, and there is no outcome")
        };
        let status = state.ended.first().map_or(OutcomeStatus::Expired, |(_, status)| *status);
        let said = Said::Outcome { status, calls: 0, refused: Vec::new(), plan_refused: false };
        let mut missing = entry(None, self.terms.now, &said, self.outcome_id().as_str(), ruling);
        if state.ended.is_empty() {
            missing.about = "none".to_owned();
        }
        vec![missing]
    }
}
