//! What became of what the plan loop, workers and critics were told.

use super::{Case, Ruling};
use crate::account::Status;
use crate::book::Fact;
use crate::said::{Said, StepName};
use starling_protocol::{RunId, Topic};
use std::collections::BTreeSet;

impl Case<'_> {
    /// A plan request is answered by a run that came to its end.
    pub(super) fn plan_request(&self, fact: &Fact, attempt: i32) -> Ruling {
        let mut runs: BTreeSet<&RunId> = BTreeSet::new();
        let mut ended = false;
        for input in self.book.of(&Topic::Coordinator) {
            if let Said::Fragment { attempt: of, run, ends, .. } = &input.said
                && *of == attempt
            {
                runs.insert(run);
                ended |= *ends;
            }
        }
        if self.is_letter(&fact.place) {
            return self.dead_letter_of(fact);
        }
        if ended {
            return Ruling::original();
        }
        if self.cancelled {
            return Ruling::new(Status::Superseded, "its intent was cancelled or ended");
        }
        if self.book.state.plan_attempts.iter().any(|(_, asked)| *asked > attempt) {
            return Ruling::new(Status::Superseded, "the plan was asked for anew");
        }
        // Of copies that come while one is in hand the plan loop lets go: as long as one is in hand, all are.
        let all_handled =
            self.facts(self.copies.get(&fact.print)).all(|copy| self.ledger.cut.is_handled(&copy.place));
        if all_handled {
            let why =
                format!("the plan loop is done with it, and none of {} runs came to its end", runs.len());
            return self.dropped(&Topic::Coordinator, Some(self.home), fact.at, &why);
        }
        Ruling::new(Status::Pending, "the plan has not come to its end")
    }

    /// A task is answered by a result or a turn.
    pub(super) fn task(&self, fact: &Fact, name: &StepName) -> Ruling {
        if self.is_letter(&fact.place) {
            return self.dead_letter_of(fact);
        }
        if self.results.contains_key(name) {
            return Ruling::original();
        }
        if self.cancelled {
            return Ruling::new(Status::Superseded, "its intent was cancelled or ended");
        }
        if !self.ledger.cut.is_handled(&fact.place) {
            return Ruling::new(Status::Pending, "no worker has answered yet");
        }
        let why = "a worker is done with it, and there is no result";
        if self.may_be_lost(&Topic::Coordinator, Some(self.home), fact.at) {
            return self.dropped(&Topic::Coordinator, Some(self.home), fact.at, why);
        }
        self.dropped(&Topic::Critic, None, fact.at, why)
    }

    /// A result with the critics: it answers a task, and is judged or passed on.
    pub(super) fn result_for_critic(&self, fact: &Fact, name: &StepName) -> Ruling {
        self.origin_of_result(fact, name)
            .and(self.sameness_of_result(fact, name))
            .and(self.judgement_of(fact))
    }

    fn sameness_of_result(&self, fact: &Fact, name: &StepName) -> Ruling {
        let with_critics =
            self.facts(self.results.get(name)).filter(|other| other.place.topic == Topic::Critic);
        let first = with_critics.min_by_key(|other| (other.at, other.place.clone()));
        match first {
            Some(first) if first.place != fact.place && first.digest == fact.digest => {
                Ruling::new(Status::Duplicate, format!("the same as {}", first.place))
            }
            Some(first) if first.place != fact.place => {
                Ruling::new(Status::RepeatedCall, format!("the model was asked again after {}", first.place))
            }
            _ => Ruling::original(),
        }
    }

    fn judgement_of(&self, fact: &Fact) -> Ruling {
        let judged = self.facts(self.verdicts.get(&fact.place.offset)).any(|verdict| match &verdict.said {
            Said::Verdict { result, .. } => self.referred(result).as_ref() == Some(&fact.place),
            _ => false,
        });
        let passed_on = || {
            self.facts(self.by_id.get(&fact.stamp.id)).any(|other| {
                other.place.topic == Topic::Coordinator && other.stamp.created_at == fact.stamp.created_at
            })
        };
        if self.is_letter(&fact.place) {
            return self.dead_letter_of(fact);
        }
        if judged || passed_on() {
            return Ruling::original();
        }
        if self.cancelled {
            return Ruling::new(Status::Superseded, "its intent was cancelled or ended");
        }
        if !self.ledger.cut.is_handled(&fact.place) {
            return Ruling::new(Status::Pending, "no critic has judged it yet");
        }
        let why = "a critic is done with it, and there is no verdict";
        self.dropped(&Topic::Coordinator, Some(self.home), fact.at, why)
    }
}
