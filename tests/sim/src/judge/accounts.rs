//! What each record of an inbox calls for, and what is there of it.

use super::{Verdict, Violation};
use crate::model::mark;
use starling_bus::{InRecord, PartitionId};
use starling_engine::offsets::{MAX_METADATA_BYTES, OffsetTracker, Taken};
use starling_protocol::{
    Body, Codec, Envelope, IntentId, TaskId, TaskKind, Topic,
    incoming::{IntentLimits, read_intent},
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// One turn of one attempt of a task.
type Step = (TaskId, i32, i32);
/// A place in a log.
type Place = (PartitionId, i64);

/// What a record calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// That the coordinator hears of an intent.
    Intake(IntentId),
    /// A plan, to its end.
    Plan(IntentId, i32),
    /// A result.
    Work(IntentId, Step),
    /// A verdict, or the result itself.
    Judge(IntentId, Step),
    /// A dead letter.
    Burial,
}

#[derive(Default)]
pub(super) struct Accounts {
    pub(super) records: u64,
    foreign: BTreeSet<Place>,
    duties: HashMap<Place, Duty>,
    dead: HashSet<(String, i32, i64)>,
    results: HashSet<Step>,
    verdicts: HashSet<Step>,
    passed_on: HashSet<Step>,
    plans: HashSet<(IntentId, i32)>,
    heard_of: HashSet<IntentId>,
    cancelled: HashSet<IntentId>,
    /// Records that ask for work, by the marks of goal and instruction.
    asked: BTreeMap<(String, String), u64>,
    /// How much more often than that a model may be asked.
    allowed: BTreeMap<(String, String), u64>,
    marks: HashMap<Place, (String, String)>,
}

impl Accounts {
    /// A record that no service wrote.
    pub(super) fn foreign(&mut self, at: &PartitionId, offset: i64) {
        self.foreign.insert((at.clone(), offset));
    }

    pub(super) fn is_foreign(&self, at: &PartitionId, offset: i64) -> bool {
        self.foreign.contains(&(at.clone(), offset))
    }

    pub(super) fn dead_letter(&mut self, record: &InRecord) {
        let text = |name: &str| record.header(name).map(str::to_owned);
        let number = |name: &str| text(name).and_then(|value| value.parse::<i64>().ok());
        if let (Some(topic), Some(partition), Some(offset)) =
            (text("starling-dlq-topic"), number("starling-dlq-partition"), number("starling-dlq-offset"))
        {
            self.dead.insert((topic, i32::try_from(partition).unwrap_or(-1), offset));
        }
    }

    pub(super) fn dead_letters(&self) -> u64 {
        self.dead.len() as u64
    }

    /// A record of any topic but the state log and the dead letters.
    pub(super) fn note(&mut self, topic: &Topic, record: &InRecord, envelope: Option<&Envelope>) {
        let place = (record.at.clone(), record.offset);
        if let Some(duty) = duty(topic, record, envelope) {
            self.duties.insert(place.clone(), duty);
        }
        let Some(envelope) = envelope else { return };
        let intent = &envelope.intent_id;
        match (&envelope.body, topic) {
            (Body::Task(task), Topic::Worker(_)) if task.kind == TaskKind::Work => {
                let marks = (mark(&task.goal, "<i"), mark(&task.instruction, "<t"));
                *self.asked.entry(marks.clone()).or_default() += 1;
                self.marks.insert(place, marks);
            }
            (Body::TaskResult(result), Topic::Coordinator | Topic::Critic) => {
                let step = (result.task_id.clone(), result.attempt, result.step);
                if *topic == Topic::Coordinator {
                    self.passed_on.insert(step.clone());
                }
                self.results.insert(step);
            }
            (Body::Verdict(verdict), Topic::Coordinator) => {
                self.verdicts.insert((verdict.task_id.clone(), verdict.attempt, verdict.step));
            }
            (Body::PlanFragment(fragment), Topic::Coordinator) if fragment.end.is_some() => {
                self.plans.insert((intent.clone(), fragment.plan_attempt));
            }
            (Body::Intent(_) | Body::Rejection(_), Topic::Coordinator) => {
                self.heard_of.insert(intent.clone());
            }
            (Body::Cancel(_), Topic::Control) => {
                self.cancelled.insert(intent.clone());
            }
            _ => {}
        }
    }

    /// What is missing though the record counts as done; `None` if nothing is. `open` says which other records of its
    /// partition are not done.
    pub(super) fn missing(&self, place: &Place, open: impl Fn(i64) -> bool) -> Option<String> {
        let duty = self.duties.get(place)?;
        let (at, offset) = place;
        let is_dead = self.dead.contains(&(at.topic.to_string(), at.partition, *offset));
        let is_met = match duty {
            Duty::Intake(id) => self.heard_of.contains(id),
            // A repetition is dropped while the first is in flight.
            Duty::Plan(id, attempt) => {
                self.plans.contains(&(id.clone(), *attempt))
                    || self.cancelled.contains(id)
                    || self.duties.iter().any(|((other, offset), other_duty)| {
                        other == at && other_duty == duty && open(*offset)
                    })
            }
            Duty::Work(id, step) => self.results.contains(step) || self.cancelled.contains(id),
            Duty::Judge(id, step) => {
                self.verdicts.contains(step) || self.passed_on.contains(step) || self.cancelled.contains(id)
            }
            Duty::Burial => false,
        };
        (!is_met && !is_dead).then(|| format!("{at}@{offset} calls for {duty:?}"))
    }

    /// Something happened to the reader of a partition that had committed that: the rest may be done again.
    pub(super) fn disturbed(&mut self, at: &PartitionId, offset: i64, metadata: &str) {
        let (mut tracker, _) = OffsetTracker::restore(offset, metadata, MAX_METADATA_BYTES);
        let mut later: Vec<&Place> =
            self.marks.keys().filter(|(other, place)| other == at && *place >= offset).collect();
        later.sort();
        for place in later {
            if tracker.taken(place.1) == Taken::New
                && let Some(marks) = self.marks.get(place)
            {
                *self.allowed.entry(marks.clone()).or_default() += 1;
            }
        }
    }

    /// Whether models were asked no more often than they had to be.
    pub(super) fn repeats(&self, calls: &BTreeMap<(String, String), u64>) -> Verdict {
        for (about, count) in calls {
            let asked = self.asked.get(about).copied().unwrap_or(0);
            let allowed = self.allowed.get(about).copied().unwrap_or(0);
            if *count > asked + allowed {
                let how = format!(
                    "task {about:?} was asked of a model {count} times; {asked} records ask for it, and {allowed} times one \
                     was not committed when something happened to its reader"
                );
                return Err(Violation::new("repeats", how));
            }
        }
        Ok(())
    }

    /// Whether what nobody can read is among the dead letters.
    pub(super) fn foreigners_accounted(&self) -> Verdict {
        for place in &self.foreign {
            if self.duties.get(place) == Some(&Duty::Burial)
                && let Some(missing) = self.missing(place, |_| false)
            {
                return Err(Violation::new("lost", missing));
            }
        }
        Ok(())
    }
}

fn duty(topic: &Topic, record: &InRecord, envelope: Option<&Envelope>) -> Option<Duty> {
    if *topic == Topic::Intents {
        return Some(intake(record));
    }
    let inboxes = [Topic::Coordinator, Topic::Planner, Topic::Worker(None), Topic::Critic];
    if !inboxes.contains(topic) {
        return None;
    }
    let Some(envelope) = envelope else { return Some(Duty::Burial) };
    let intent = envelope.intent_id.clone();
    match (&envelope.body, topic) {
        (_, Topic::Coordinator) => None, // decided by the coordinator, which the state log tells of
        (Body::PlanRequest(request), Topic::Planner) => Some(Duty::Plan(intent, request.plan_attempt)),
        (Body::Task(task), Topic::Worker(_)) => {
            Some(Duty::Work(intent, (task.task_id.clone(), task.attempt, task.step)))
        }
        (Body::TaskResult(result), Topic::Critic) => {
            Some(Duty::Judge(intent, (result.task_id.clone(), result.attempt, result.step)))
        }
        // Late ones and cancelled ones are superseded before anybody looks at what they are.
        _ => None,
    }
}

fn intake(record: &InRecord) -> Duty {
    let value = record.value();
    let of_record = || IntentId::of_record(&record.at.topic, record.at.partition, record.offset);
    let codec = Codec::default();
    match read_intent(&codec, &IntentLimits::default(), value, record.header("content-type")) {
        Ok(parsed) => Duty::Intake(parsed.id.unwrap_or_else(of_record)),
        Err(invalid) if invalid.id.is_none() && std::str::from_utf8(value).is_err() => Duty::Burial,
        Err(invalid) => Duty::Intake(invalid.id.unwrap_or_else(of_record)),
    }
}
