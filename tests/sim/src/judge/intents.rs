//! What is known of each intent: from its records alone.

use super::{Verdict, Violation, budgets::Budgets, statelog::Decided};
use bytes::Bytes;
use starling_bus::InRecord;
use starling_engine::coordinator::CoordinatorSettings;
use starling_protocol::{
    Body, Codec, Envelope, IntentId, OutcomeStatus, PlanFragment, RunId, Task, TaskId, TaskKind, Timestamp,
    Topic, ids::digest, state::RunEntity,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

#[derive(Default)]
struct Intent {
    published: bool,
    /// A record of it, or one that names it, is in the coordinator's inbox.
    met: bool,
    /// The most attempts that it allows for a task.
    attempts: i32,
    /// The offset of its first cancellation in the coordinator's inbox.
    cancelled_at: Option<i64>,
    /// What its outcomes say.
    outcome: Option<OutcomeStatus>,
    /// The value of the outcome that was decided, and when.
    decided: Option<(Bytes, Timestamp)>,
    /// When the envelopes were made with which it began. Once it is forgotten its id may be used again, but by another
    /// envelope.
    begun: BTreeSet<Timestamp>,
    /// Runs that were in force, the present one last.
    in_force: Vec<RunId>,
    /// How its plan stood after the latest decision.
    plan: Option<RunEntity>,
    /// Where fragments of its plans lie in the coordinator's inbox, and of which run they are.
    fragments: BTreeMap<i64, RunId>,
    /// Whether it is being worked on.
    live: bool,
    /// When the envelopes were made that ask for it.
    asked: BTreeSet<Timestamp>,
    /// Values of its outcomes: no more than there were envelopes that asked for it.
    outcomes: HashSet<Bytes>,
    /// The tasks of each run, by key.
    runs: HashMap<RunId, HashMap<String, (TaskId, Vec<String>)>>,
}

/// All intents of a run.
pub(super) struct Intents {
    /// How long an intent is remembered that has ended.
    horizon: Duration,
    /// How long a plan may be silent.
    plan_timeout: Duration,
    known: BTreeMap<IntentId, Intent>,
    pub(super) budgets: Budgets,
    /// The latest attempt of each task that was decided.
    dispatched: HashMap<TaskId, i32>,
    /// Where results were seen, and of which attempt they are.
    results: HashMap<TaskId, BTreeMap<(String, i32, i64), i32>>,
}

impl Intents {
    pub(super) fn new(settings: &CoordinatorSettings) -> Self {
        Self {
            horizon: settings.dedup_horizon,
            plan_timeout: settings.plan_timeout,
            known: BTreeMap::new(),
            budgets: Budgets::new(settings),
            dispatched: HashMap::new(),
            results: HashMap::new(),
        }
    }

    /// A user has published it.
    pub(super) fn published(&mut self, id: &str) {
        self.known.entry(IntentId::from_string(id)).or_default().published = true;
    }

    /// A record of a service, or of a user in the place of one.
    pub(super) fn envelope(&mut self, topic: &Topic, record: &InRecord, envelope: &Envelope) -> Verdict {
        let id = &envelope.intent_id;
        if *topic == Topic::Coordinator {
            self.known.entry(id.clone()).or_default().met = true;
            self.budgets.heard(envelope);
        }
        if let (Body::Intent(_) | Body::Rejection(_), Topic::Coordinator) = (&envelope.body, topic) {
            self.known.entry(id.clone()).or_default().asked.insert(envelope.created_at);
        }
        match (&envelope.body, topic) {
            (Body::Intent(intent), Topic::Coordinator) => {
                let known = self.known.entry(id.clone()).or_default();
                known.attempts = known.attempts.max(intent.limits.max_attempts.unwrap_or(3));
            }
            (Body::Cancel(_), Topic::Coordinator) => {
                let known = self.known.entry(id.clone()).or_default();
                known.cancelled_at.get_or_insert(record.offset);
            }
            (Body::PlanFragment(fragment), Topic::Coordinator) => {
                self.fragment(id, record.offset, fragment);
            }
            (Body::TaskResult(result), Topic::Coordinator | Topic::Critic) => {
                let at = (record.at.topic.to_string(), record.at.partition, record.offset);
                self.results.entry(result.task_id.clone()).or_default().insert(at, result.attempt);
            }
            (Body::Task(task), Topic::Worker(_)) => return self.dispatched(id, task),
            (Body::Outcome(outcome), Topic::Outcomes) => {
                return self.outcome(id, record, outcome.status);
            }
            _ => {}
        }
        Ok(())
    }

    fn fragment(&mut self, id: &IntentId, offset: i64, fragment: &PlanFragment) {
        let known = self.known.entry(id.clone()).or_default();
        known.fragments.insert(offset, fragment.run.clone());
        let run = known.runs.entry(fragment.run.clone()).or_default();
        for task in &fragment.tasks {
            let task_id = TaskId::planned(id, &fragment.run, task.ordinal);
            // A key that is there twice makes the plan invalid, but not what was begun before.
            run.entry(task.key.clone()).or_insert((task_id, task.depends_on.clone()));
        }
    }

    fn dispatched(&mut self, id: &IntentId, task: &Task) -> Verdict {
        let Some(known) = self.known.get(id) else { return Ok(()) };
        let broken =
            |promise, how: String| Err(Violation::new(promise, format!("{id}, {}: {how}", task.title)));
        if known.attempts > 0 && task.attempt > known.attempts {
            return broken("attempts", format!("attempt {} of {}", task.attempt, known.attempts));
        }
        for dependency in &task.dependencies {
            match (&dependency.result, &dependency.failure) {
                (Some(at), _) => {
                    let place = (at.topic.clone(), at.partition, at.offset);
                    let seen =
                        self.results.get(&dependency.task_id).is_some_and(|seen| seen.contains_key(&place));
                    if !seen {
                        return broken("order", format!("builds on {place:?}, which is no result of it"));
                    }
                }
                (None, Some(_)) => {}
                (None, None) => return broken("order", format!("nothing of {}", dependency.title)),
            }
        }
        if task.kind == TaskKind::Synthesis {
            return Ok(());
        }
        // One task for the whole intent is the coordinator's own plan.
        if task.run == RunId::from_string(digest(&["single", id.as_str()])) {
            return Ok(());
        }
        let Some(run) = known.runs.get(&task.run) else {
            return broken("order", "is of a run that nobody planned".into());
        };
        let Some((_, needs)) = run.values().find(|(task_id, _)| *task_id == task.task_id) else {
            return broken("order", "is in no plan".into());
        };
        for need in needs {
            let Some((needed, _)) = run.get(need) else {
                return broken("order", format!("needs {need}, which is not there yet"));
            };
            if !task.dependencies.iter().any(|dependency| dependency.task_id == *needed) {
                return broken("order", format!("does not wait for {need}"));
            }
        }
        Ok(())
    }

    fn outcome(&mut self, id: &IntentId, record: &InRecord, status: OutcomeStatus) -> Verdict {
        let known = self.known.entry(id.clone()).or_default();
        if !known.met && !known.published {
            return Err(Violation::new("invented", format!("an outcome of {id}, which nobody asked for")));
        }
        known.outcomes.insert(Bytes::copy_from_slice(record.value()));
        if known.outcomes.len() > known.asked.len() {
            let how = format!("{id} has another outcome, {status:?}, and nobody asked again");
            return Err(Violation::new("outcome", how));
        }
        known.outcome = Some(status);
        Ok(())
    }

    /// A decision was accepted.
    pub(super) fn decided(&mut self, codec: &Codec, decided: &Decided) -> Verdict {
        for intent in &decided.intents {
            let horizon = self.horizon;
            let known = self.known.entry(intent.intent_id.clone()).or_default();
            if std::mem::replace(&mut known.live, true) {
                continue;
            }
            if !known.begun.insert(intent.created_at) {
                return Err(Violation::new("outcome", format!("{} begins a second time", intent.intent_id)));
            }
            self.budgets.begins(intent);
            known.in_force.clear(); // a single task is the same run each time
            known.plan = None;
            if let Some((_, ended)) = known.decided.take()
                && decided.now < ended.plus(horizon)
            {
                let how = format!("{} begins again before it may be forgotten", intent.intent_id);
                return Err(Violation::new("outcome", how));
            }
        }
        for run in &decided.runs {
            let known = self.known.entry(run.intent_id.clone()).or_default();
            if let Some(before) = known.plan.replace(run.clone())
                && run.plan_attempt > before.plan_attempt
                && run.plan_feedback == before.plan_feedback
                && decided.now < before.plan_moved_at.plus(self.plan_timeout)
            {
                // Nothing was refused and nothing was silent: a fragment was missing before one that came, and that
                // one was not of a run that had been given up.
                let mut came = known.fragments.range(decided.inputs.clone());
                if came.all(|(_, run)| before.abandoned.contains(run)) {
                    let how =
                        format!("{}: a plan is asked for again, and nothing was missing", run.intent_id);
                    return Err(Violation::new("runs", how));
                }
            }
            let Some(now) = &run.run else { continue };
            if known.in_force.last() != Some(now) {
                if known.in_force.contains(now) {
                    let how = format!("{}: run {} comes back", run.intent_id, now.as_str());
                    return Err(Violation::new("runs", how));
                }
                known.in_force.push(now.clone());
            }
        }
        for task in &decided.tasks {
            let Some(best) = &task.best else { continue };
            let place = (best.result.topic.clone(), best.result.partition, best.result.offset);
            let of = self.results.get(&task.task_id).and_then(|seen| seen.get(&place));
            if of.is_some_and(|attempt| *attempt != best.attempt) {
                let how = format!("{}: the result of attempt {of:?} counts for {}", task.title, best.attempt);
                return Err(Violation::new("attempts", how));
            }
        }
        for effect in &decided.effects {
            // A dead letter is a record of another time, and may say anything.
            if effect.topic.ends_with(".dlq") {
                continue;
            }
            let Ok(envelope) = codec.decode::<Envelope>(&effect.payload) else { continue };
            self.decided_effect(&envelope, &effect.payload, decided)?;
        }
        Ok(())
    }

    fn decided_effect(&mut self, envelope: &Envelope, value: &[u8], decided: &Decided) -> Verdict {
        let id = &envelope.intent_id;
        self.budgets.decided(envelope)?;
        if let Body::Outcome(outcome) = &envelope.body {
            self.budgets.ended(id, outcome)?;
        }
        let horizon = self.horizon;
        let known = self.known.entry(id.clone()).or_default();
        match &envelope.body {
            // It may begin and end within one decision, and then it was never written down.
            Body::Task(_) | Body::PlanRequest(_) if !known.live && known.decided.is_some() => {
                Err(Violation::new("after", format!("a {} of {id}, which has ended", envelope.body.kind())))
            }
            Body::Task(task) => {
                let before = self.dispatched.insert(task.task_id.clone(), task.attempt).unwrap_or(0);
                if task.attempt == before + 1 {
                    return Ok(());
                }
                let how = format!("{id}, {}: attempt {} after attempt {before}", task.title, task.attempt);
                Err(Violation::new("attempts", how))
            }
            Body::Outcome(outcome) => {
                let value = Bytes::copy_from_slice(value);
                if !known.live
                    && let Some((before, ended)) = &known.decided
                    && *before != value
                    && decided.now < ended.plus(horizon)
                {
                    let how = format!("{id} is decided twice, now {:?}", outcome.status);
                    return Err(Violation::new("outcome", how));
                }
                known.decided = Some((value, decided.now));
                let was_live = std::mem::take(&mut known.live);
                if was_live && decided.in_backlog && outcome.status == OutcomeStatus::Expired {
                    let how = format!("{id} expires while its results may wait");
                    return Err(Violation::new("backlog", how));
                }
                let first = known.begun.len() == 1;
                let by_itself = !matches!(outcome.status, OutcomeStatus::Cancelled | OutcomeStatus::Rejected);
                let cancelled = known.cancelled_at.is_some_and(|at| at < decided.inputs.start);
                if was_live && first && by_itself && cancelled {
                    let how = format!("{id} was cancelled and ended {:?}", outcome.status);
                    return Err(Violation::new("cancelled", how));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn settled(&self) -> Result<(), String> {
        match self.known.iter().find(|(_, known)| known.published && known.outcome.is_none()) {
            Some((id, known)) => {
                let decided = if known.decided.is_some() { ", though it was decided" } else { "" };
                Err(format!("{id} has no outcome{decided}"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn statuses(&self) -> BTreeMap<String, u64> {
        let mut statuses = BTreeMap::new();
        for known in self.known.values() {
            if let Some(status) = &known.outcome {
                *statuses.entry(format!("{status:?}").to_lowercase()).or_default() += 1;
            }
        }
        statuses
    }
}
