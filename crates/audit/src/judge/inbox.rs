//! What users publish, and what the coordinator is told.

use super::{Case, Ruling};
use crate::account::{Cause, Promise, Status};
use crate::book::Fact;
use crate::place::Place;
use crate::record::topic_named;
use crate::said::{Said, StepName};
use starling_protocol::{EnvelopeId, RecordRef, RunId, Timestamp, Topic};

impl Case<'_> {
    /// A record of the input topic: it must have come to the coordinator, or be a dead letter.
    pub(super) fn published(&self, fact: &Fact) -> Ruling {
        let ruling = if self.is_letter(&fact.place) {
            self.dead_letter_of(fact)
        } else if self.arrivals_of(fact).next().is_some() {
            match self.book.of(&Topic::Intents).min_by_key(|other| (other.at, &other.place)) {
                Some(first) if first.place != fact.place => {
                    Ruling::new(Status::Duplicate, "published again; the first one counts")
                }
                _ => Ruling::original(),
            }
        } else if self.ledger.cut.is_handled(&fact.place) {
            let why = "the intake is done with it, and the coordinator was not told";
            self.dropped(&Topic::Coordinator, Some(self.home), fact.at, why)
        } else {
            Ruling::new(Status::Pending, "the intake has not passed it on yet")
        };
        ruling.caused_by([Cause::User])
    }

    /// What the intake made of a published record: it has the record's time.
    fn arrivals_of<'c>(&'c self, published: &'c Fact) -> impl Iterator<Item = &'c Fact> {
        self.book.of(&Topic::Coordinator).filter(move |fact| {
            matches!(fact.said, Said::Intent | Said::Rejection)
                && (fact.stamp.created_at == published.at || published.at <= Timestamp(0))
        })
    }

    /// A record of the coordinator's inbox.
    pub(super) fn input(&self, fact: &Fact) -> Ruling {
        let origin = self.origin_of_input(fact);
        origin.and(self.fate_of_input(fact))
    }

    fn origin_of_input(&self, fact: &Fact) -> Ruling {
        let nobody = |topic: &Topic, partition: Option<i32>, why: &str| {
            if self.may_be_lost(topic, partition, fact.stamp.created_at) || self.book.left_out > 0 {
                Ruling::original().caused_by([Cause::Gone])
            } else {
                Ruling::new(Status::Unaccounted, why)
            }
        };
        match &fact.said {
            Said::Intent | Said::Rejection => {
                let published = self.book.of(&Topic::Intents).filter(|published| {
                    published.at == fact.stamp.created_at || published.at <= Timestamp(0)
                });
                match published.min_by_key(|published| &published.place) {
                    Some(published) => Ruling::original().caused_by([Cause::Record(published.place.clone())]),
                    None => nobody(&Topic::Intents, None, "nothing in the input topic has caused it"),
                }
            }
            Said::Cancel => Ruling::original().caused_by([Cause::User]),
            Said::Fragment { attempt, .. } => match self.plan_asked(*attempt) {
                Some(cause) => Ruling::original().caused_by([cause]),
                None => self.unasked(fact, "nobody has asked for that plan"),
            },
            Said::Result { name, .. } | Said::Turn { name, .. } => {
                if let Some(passed) = self.passed_on(fact) {
                    return Ruling::original().caused_by([Cause::Record(passed.place.clone())]);
                }
                self.origin_of_result(fact, name)
            }
            Said::Verdict { result, .. } => match self.referred(result) {
                Some(place) if self.at.contains_key(&place) => {
                    Ruling::original().caused_by([Cause::Record(place)])
                }
                Some(place) if self.ledger.cut.is_beyond(&place) => {
                    Ruling::original().caused_by([Cause::Record(place)])
                }
                Some(place) => {
                    let (topic, partition) = (place.topic, Some(place.partition));
                    nobody(&topic, partition, "the result that it judges is not there")
                }
                None => {
                    Ruling::new(Status::Unaccounted, "it judges a record of no topic of this installation")
                }
            },
            _ => Ruling::original(),
        }
    }

    /// A result must answer a task that was sent.
    pub(super) fn origin_of_result(&self, fact: &Fact, name: &StepName) -> Ruling {
        if let Some(sent) = self.sent.get(name).and_then(|n| self.book.facts.get(*n)) {
            return Ruling::original().caused_by([Cause::Record(sent.place.clone())]);
        }
        let id = EnvelopeId::of_step("task", &name.task, name.attempt, name.step);
        match self.decisions(self.decided_by_id.get(&id)).next() {
            Some(decided) => Ruling::original().caused_by([self.cause_of(decided)]),
            None => self.unasked(fact, "no such task was sent to a worker"),
        }
    }

    fn plan_asked(&self, attempt: i32) -> Option<Cause> {
        let asks = |said: &Said| matches!(said, Said::PlanRequest { attempt: other } if *other == attempt);
        let id = EnvelopeId::derive("plan_request", &[self.id.as_str(), &attempt.to_string()]);
        let mut records = self.facts(self.by_id.get(&id));
        if let Some(record) = records.find(|fact| fact.place.topic == Topic::Planner && asks(&fact.said)) {
            return Some(Cause::Record(record.place.clone()));
        }
        let decided = self.decisions(self.decided_by_id.get(&id)).next();
        decided.map(|decided| self.cause_of(decided))
    }

    fn unasked(&self, fact: &Fact, why: &str) -> Ruling {
        let known = self.log.filter(|_| self.book.left_out == 0);
        match known {
            Some(log) if log.base().is_none_or(|base| fact.stamp.created_at.0 > base.now) => {
                Ruling::new(Status::Unaccounted, why)
            }
            _ => Ruling::original().caused_by([Cause::Gone]),
        }
    }

    /// The result that a critic passed on because it could not judge: all but the way that it has gone is the same.
    fn passed_on(&self, fact: &Fact) -> Option<&Fact> {
        let same = |other: &&Fact| {
            other.place.topic == Topic::Critic && other.stamp.created_at == fact.stamp.created_at
        };
        self.facts(self.by_id.get(&fact.stamp.id)).find(same)
    }

    pub(super) fn referred(&self, to: &RecordRef) -> Option<Place> {
        let topic = topic_named(&self.ledger.installation.names, &to.topic)?;
        Some(Place::new(topic, to.partition, to.offset))
    }

    fn fate_of_input(&self, fact: &Fact) -> Ruling {
        if self.is_letter(&fact.place) {
            return self.dead_letter_of(fact);
        }
        if fact.place.partition != self.home {
            let why = format!("it lies in the wrong partition, {} would be right", self.home);
            return match self.ledger.states.get(&fact.place.partition) {
                Some(log) if log.decision_of(fact.place.offset).is_none() => {
                    Ruling::new(Status::Pending, why)
                }
                Some(_) => self.dropped(&Topic::Dlq, None, fact.at, &why),
                None => Ruling::new(Status::Unaccounted, why),
            };
        }
        let Some(log) = self.log else {
            return Ruling::new(Status::Unknown, format!("state[{}] is not readable", self.home));
        };
        let Some(seq) = log.decision_of(fact.place.offset) else {
            return Ruling::new(Status::Pending, "the coordinator has not read it yet");
        };
        let mut same_id = self.facts(self.by_id.get(&fact.stamp.id));
        if let Some(before) = same_id.find(|before| {
            before.place.topic == Topic::Coordinator
                && before.place < fact.place
                && before.digest == fact.digest
                && !self.is_letter(&before.place)
        }) {
            return Ruling::new(Status::Duplicate, format!("the same as {}", before.place));
        }
        match &fact.said {
            Said::Intent | Said::Rejection => self.arrival(fact, seq),
            Said::Cancel => self.cancellation(fact, seq),
            Said::Fragment { run, seq: part, .. } => {
                self.of_run(seq, run).unwrap_or_else(|| self.fragment(fact, run, *part))
            }
            Said::Result { name, run, .. }
            | Said::Turn { name, run, .. }
            | Said::Verdict { name, run, .. } => {
                self.of_run(seq, run).unwrap_or_else(|| self.answer(fact, seq, name))
            }
            other => self.dropped(
                &Topic::Dlq,
                None,
                fact.at,
                &format!("the coordinator takes no {}, and it is not in the dead letters", other.kind()),
            ),
        }
    }

    fn arrival(&self, fact: &Fact, seq: i64) -> Ruling {
        let first = self.book.of(&Topic::Coordinator).find(|other| {
            matches!(other.said, Said::Intent | Said::Rejection)
                && other.place.partition == self.home
                && !self.is_letter(&other.place)
        });
        let state = &self.book.state;
        if let Some(first) = first.filter(|first| first.place != fact.place) {
            return Ruling::new(Status::Duplicate, format!("the intent came with {}", first.place));
        }
        if state.accepted.is_some() || !state.ended.is_empty() {
            return Ruling::original();
        }
        match self.log.and_then(crate::state_log::StateLog::base) {
            Some(base) if seq <= base.seq => {
                Ruling::new(Status::Unknown, "decided before the state log begins, and forgotten since")
            }
            _ => Ruling::breaks(
                Promise::NothingDropped,
                "decided, and neither accepted nor ended nor given to people",
            ),
        }
    }

    fn cancellation(&self, fact: &Fact, seq: i64) -> Ruling {
        let state = &self.book.state;
        let earlier = self
            .book
            .of(&Topic::Coordinator)
            .any(|other| matches!(other.said, Said::Cancel) && other.place < fact.place);
        match state.ended.first() {
            Some((end, _)) if *end < seq => Ruling::new(Status::Superseded, "its intent had ended"),
            _ if earlier => Ruling::new(Status::Duplicate, "cancelled before"),
            Some(_) => Ruling::original(),
            None if state.cancelled_ahead => Ruling::original(),
            None if self
                .log
                .and_then(crate::state_log::StateLog::base)
                .is_some_and(|base| seq <= base.seq) =>
            {
                Ruling::new(Status::Unknown, "decided before the state log begins, and forgotten since")
            }
            None => Ruling::breaks(
                Promise::NothingDropped,
                "decided, and neither obeyed nor remembered nor given to people",
            ),
        }
    }

    /// What is not needed any more, because its intent has ended or its run was given up.
    fn of_run(&self, seq: i64, run: &RunId) -> Option<Ruling> {
        let state = &self.book.state;
        let superseded = |why: &str| Some(Ruling::new(Status::Superseded, why));
        match state.end() {
            Some(end) if end < seq => return superseded("its intent had ended"),
            _ if state.abandoned.contains_key(run) => return superseded("its run was given up"),
            _ => {}
        }
        if state.in_force.contains(run) || state.from_base {
            return None;
        }
        match state.end() {
            // A run that began and ended within one decision leaves no trace of its own.
            Some(end) if end == seq => None,
            // Or it is all in the air, and the intent with it.
            _ if state.accepted.is_none() && state.ended.is_empty() => None,
            _ => superseded("of a run that did not come to be in force"),
        }
    }

    fn fragment(&self, fact: &Fact, run: &RunId, part: i32) -> Ruling {
        if self.parts.get(&(run, part)).and_then(|n| self.book.facts.get(*n)).map(|first| &first.place)
            != Some(&fact.place)
        {
            return Ruling::new(Status::Duplicate, "that part of the plan was there");
        }
        let before = self.parts.get(&(run, part - 1)).and_then(|n| self.book.facts.get(*n));
        if part == 0 || before.is_some_and(|before| before.place < fact.place) {
            return Ruling::original();
        }
        let why = format!("part {} of its run is missing, and the run is in force", part - 1);
        self.dropped(&Topic::Coordinator, Some(self.home), fact.at, &why)
    }

    /// Of everything that answers one step the first counts.
    fn answer(&self, fact: &Fact, seq: i64, name: &StepName) -> Ruling {
        if self.book.state.attempt_before(&name.task, seq).is_some_and(|attempt| attempt > name.attempt) {
            return Ruling::new(Status::Superseded, "a later attempt was under way");
        }
        let first = self
            .facts(self.answers.get(name))
            .find(|other| other.said.run() == fact.said.run() && !self.is_letter(&other.place));
        match first {
            Some(first) if first.place != fact.place => match &fact.said {
                Said::Result { failure: Some(_), worker, .. } if worker.is_empty() => {
                    Ruling::new(Status::Duplicate, format!("the step was answered with {}", first.place))
                }
                _ => Ruling::new(
                    Status::RepeatedCall,
                    format!("the model was asked again; the step was answered with {}", first.place),
                ),
            },
            _ => Ruling::original(),
        }
    }
}
