//! Which model calls were repeated, as far as their answers were written. What a process had asked and never said
//! before it died leaves no record: that it may have asked is told by who had the task before.

use super::Case;
use crate::account::{Answer, Moved, Purpose, RepeatedCall};
use crate::book::Fact;
use crate::place::Place;
use crate::said::{Said, StepName};
use starling_protocol::{EnvelopeId, RunId, Topic, ids};
use std::collections::{BTreeMap, HashSet};

impl Case<'_> {
    pub(super) fn repeated_calls(&self, taken: &HashSet<&Place>) -> Vec<RepeatedCall> {
        let plans = self.plans(taken).into_iter().map(|(attempt, answers)| RepeatedCall {
            purpose: Purpose::Plan,
            about: format!("plan {attempt}"),
            answers,
        });
        let work = self.results.iter().map(|(name, numbers)| RepeatedCall {
            purpose: Purpose::Work,
            about: self.title_of(name),
            answers: self.work_answers(numbers, taken),
        });
        let mut judged: BTreeMap<&StepName, Vec<Answer>> = BTreeMap::new();
        let mut digests: HashSet<&str> = HashSet::new();
        for fact in self.book.of(&Topic::Coordinator) {
            // What was sent twice was asked once; an empty result is judged without asking.
            if let Said::Verdict { name, calls, .. } = &fact.said
                && digests.insert(&fact.digest)
                && *calls > 0
            {
                judged.entry(name).or_default().push(answer(fact, "", taken.contains(&fact.place)));
            }
        }
        let judged = judged.into_iter().map(|(name, answers)| RepeatedCall {
            purpose: Purpose::Judge,
            about: self.title_of(name),
            answers,
        });
        plans.chain(work).chain(judged).filter(|call| call.repetitions() > 0).collect()
    }

    /// Runs of the planner, by the plan that was asked for.
    fn plans(&self, taken: &HashSet<&Place>) -> BTreeMap<i32, Vec<Answer>> {
        let mut runs: HashSet<&RunId> = HashSet::new();
        let mut plans: BTreeMap<i32, Vec<Answer>> = BTreeMap::new();
        for fact in self.book.of(&Topic::Coordinator) {
            let Said::Fragment { attempt, run, .. } = &fact.said else { continue };
            if !runs.insert(run) || *run == self.run_of_letters(*attempt) {
                continue;
            }
            plans.entry(*attempt).or_default().push(answer(fact, "", taken.contains(&fact.place)));
        }
        plans
    }

    /// The run under which it is told that a plan request is a dead letter. Nobody was asked for anything.
    fn run_of_letters(&self, attempt: i32) -> RunId {
        let request = EnvelopeId::derive("plan_request", &[self.id.as_str(), &attempt.to_string()]);
        RunId::from_string(ids::digest(&["dead-letter", request.as_str()]))
    }

    fn work_answers(&self, numbers: &[usize], taken: &HashSet<&Place>) -> Vec<Answer> {
        let mut answers: Vec<Answer> = Vec::new();
        let mut seen = HashSet::new();
        for fact in numbers.iter().filter_map(|n| self.book.facts.get(*n)) {
            let worker = match &fact.said {
                Said::Result { worker, .. } => worker.as_str(),
                _ => "",
            };
            let is_letter =
                matches!(&fact.said, Said::Result { worker, failure: Some(_), .. } if worker.is_empty());
            // A result that a critic passed on has the time and the worker of the one that it got.
            if is_letter || !seen.insert((fact.stamp.created_at, worker)) {
                continue;
            }
            answers.push(answer(fact, worker, self.counts(fact, taken)));
        }
        answers.sort_by_key(|answer| answer.at);
        answers
    }

    /// Whether a result is the one that the coordinator took: itself, or by its verdict.
    fn counts(&self, fact: &Fact, taken: &HashSet<&Place>) -> bool {
        if fact.place.topic == Topic::Coordinator {
            return taken.contains(&fact.place);
        }
        let judged = self.facts(self.verdicts.get(&fact.place.offset)).any(|verdict| match &verdict.said {
            Said::Verdict { result, .. } => {
                taken.contains(&verdict.place) && self.referred(result).as_ref() == Some(&fact.place)
            }
            _ => false,
        });
        judged
            || self.facts(self.by_id.get(&fact.stamp.id)).any(|other| {
                other.place.topic == Topic::Coordinator
                    && other.stamp.created_at == fact.stamp.created_at
                    && taken.contains(&other.place)
            })
    }

    /// Tasks that others answered than those who had them when they were sent.
    pub(super) fn moved_tasks(&self) -> Vec<Moved> {
        let mut moved = Vec::new();
        for (name, n) in &self.sent {
            let Some(sent) = self.book.facts.get(*n) else { continue };
            let owner = self.ledger.owners.at(&sent.place.topic, sent.place.partition, sent.at);
            let Some(owner) = owner else { continue };
            let workers: Vec<&str> = self
                .facts(self.results.get(name))
                .filter_map(|fact| match &fact.said {
                    Said::Result { worker, .. } if !worker.is_empty() => Some(worker.as_str()),
                    _ => None,
                })
                .collect();
            if let Some(worker) = workers.first()
                && !workers.contains(&owner)
            {
                moved.push(Moved {
                    record: sent.place.clone(),
                    about: sent.said.about(),
                    from: owner.to_owned(),
                    to: (*worker).to_owned(),
                });
            }
        }
        moved.sort_by(|a, b| a.record.cmp(&b.record));
        moved
    }

    fn title_of(&self, name: &StepName) -> String {
        match self.sent.get(name).and_then(|n| self.book.facts.get(*n)) {
            Some(sent) => sent.said.about(),
            None => format!("task {}, attempt {}", name.task, name.attempt),
        }
    }
}

fn answer(fact: &Fact, process: &str, taken: bool) -> Answer {
    Answer { record: fact.place.clone(), at: fact.at.0, process: process.to_owned(), taken }
}
