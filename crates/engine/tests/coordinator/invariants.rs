//! What must hold whatever happens. The numbers are used by the documentation too.

use crate::builders::job;
use starling_engine::coordinator::budget::{Budget, plus, spent};
use starling_engine::coordinator::{Coordinator, CoordinatorSettings, Destination, Effect};
use starling_protocol::state::{Amount, Entity};
use starling_protocol::{
    Body, Envelope, EnvelopeId, IntentId, Limits, Outcome, OutcomeStatus, Priority, TaskId, TaskKind,
    TaskReport, TaskState,
};
use std::collections::{HashMap, HashSet};

/// Everything that was decided, over all owners.
#[derive(Default)]
pub(crate) struct Decided {
    dispatched: HashSet<EnvelopeId>,
    attempts: HashMap<TaskId, i32>,
    outcomes: HashMap<IntentId, Outcome>,
}

impl Decided {
    pub(crate) fn note(
        &mut self,
        effects: &[Effect],
        settings: &CoordinatorSettings,
        limits: impl Fn(&IntentId) -> Limits,
    ) {
        for effect in effects {
            let Effect::Send { to, envelope, .. } = effect else { continue };
            match (&envelope.body, to) {
                (Body::Task(_), Destination::Worker { .. }) => {
                    i2_dependencies_first(envelope);
                    self.i3_attempts_are_counted_and_bounded(envelope, settings);
                }
                (Body::Outcome(outcome), Destination::Outcomes) => {
                    i8_the_report_adds_up(outcome);
                    i55_every_result_is_in_the_answer_once(outcome);
                    i49_reports_are_within_the_budget(outcome, &limits(&envelope.intent_id));
                    self.i1_at_most_one_outcome(&envelope.intent_id, outcome);
                }
                (Body::PlanRequest(_), Destination::Planner) | (Body::Cancel(_), Destination::Control) => {}
                (body, to) => panic!("{} to {to:?}", body.kind()),
            }
        }
    }

    /// I1: an intent has at most one outcome; see I6 for "at least one".
    fn i1_at_most_one_outcome(&mut self, intent: &IntentId, outcome: &Outcome) {
        let before = self.outcomes.insert(intent.clone(), outcome.clone());
        assert!(before.is_none(), "I1: {intent} ended as {before:?} and as {outcome:?}");
    }

    /// I3: attempts of a task count from 1 without gaps, each is dispatched by one decision only, and there
    /// are no more than allowed.
    fn i3_attempts_are_counted_and_bounded(&mut self, envelope: &Envelope, settings: &CoordinatorSettings) {
        let job = job(envelope);
        assert!(self.dispatched.insert(envelope.id.clone()), "I3: {} decided twice", envelope.id);
        let attempts = self.attempts.entry(job.task_id.clone()).or_default();
        *attempts += 1;
        assert_eq!(job.attempt, *attempts, "I3: {}", job.title);
        assert!(*attempts <= settings.max_attempts, "I3: {} has {attempts} attempts", job.title);
    }

    /// I6: nothing is lost. A drained system has an outcome for every intent, and remembers nothing but ends.
    pub(crate) fn i6_everything_ended(&self, intents: &[IntentId], coordinator: &Coordinator) {
        for intent in intents {
            assert!(self.outcomes.contains_key(intent), "I6: {intent} has no outcome");
        }
        let load = coordinator.load();
        assert_eq!((load.live, load.waiting, load.outstanding, load.ready), (0, 0, 0, 0), "I6");
        let only_ends = coordinator.entities().iter().all(|entity| matches!(entity, Entity::Ended(_)));
        assert!(only_ends, "I6: {:?}", coordinator.entities());
    }

    pub(crate) fn statuses(&self) -> impl Iterator<Item = OutcomeStatus> {
        self.outcomes.values().map(|outcome| outcome.status)
    }
}

/// I2: when a task is dispatched, everything that it builds on has ended, and something of it succeeded.
/// (A dependency that has not ended has neither result nor failure.)
fn i2_dependencies_first(envelope: &Envelope) {
    let job = job(envelope);
    for on in &job.dependencies {
        let ended = on.result.is_some() != on.failure.is_some();
        assert!(ended, "I2: {} was dispatched before {} ended", job.title, on.title);
    }
    let some = job.dependencies.is_empty() || job.dependencies.iter().any(|on| on.result.is_some());
    assert!(some, "I2: nothing that {} builds on succeeded", job.title);
}

/// Tasks with workers that are of batches, or that are not.
fn outstanding_of(coordinator: &Coordinator, batch: bool) -> usize {
    let entities = coordinator.entities();
    let of_class: HashSet<&IntentId> = entities
        .iter()
        .filter_map(|entity| match entity {
            Entity::Intent(intent) if Priority::of_level(intent.priority).is_batch() == batch => {
                Some(&intent.intent_id)
            }
            _ => None,
        })
        .collect();
    let is_running = |entity: &&Entity| matches!(entity, Entity::Task(task) if task.state == TaskState::Running && of_class.contains(&task.intent_id));
    entities.iter().filter(is_running).count()
}

/// I4: windows are never exceeded, neither an intent's nor the partition's, and the counts are those of the
/// entities.
pub(crate) fn i4_windows_are_kept(coordinator: &Coordinator, settings: &CoordinatorSettings, window: usize) {
    let mut running: HashMap<IntentId, usize> = HashMap::new();
    for entity in coordinator.entities() {
        match entity {
            Entity::Task(task) if task.state == TaskState::Running => {
                *running.entry(task.intent_id).or_default() += 1;
            }
            _ => {}
        }
    }
    let total: usize = running.values().sum();
    assert_eq!(coordinator.load().outstanding, total, "I4: the count is wrong");
    for batch in [true, false] {
        let outstanding = outstanding_of(coordinator, batch);
        assert!(outstanding <= window, "I4: {outstanding} tasks outstanding, of batches: {batch}");
    }
    assert!(running.values().all(|&n| n <= settings.intent_window), "I4: {running:?}");
    assert!(coordinator.load().live <= settings.max_live, "I4: {:?}", coordinator.load());
}

/// I5: what was written down, read back, is the state that was lived through, with all that is derived.
pub(crate) fn i5_replay_is_life(lived: &Coordinator, replayed: &Coordinator) {
    assert_eq!(lived.entities(), replayed.entities(), "I5");
    assert_eq!(lived.load(), replayed.load(), "I5");
    assert_eq!(lived.next_timer(), replayed.next_timer(), "I5");
}

/// I7: a successor decides the same; only order and place of dispatches may differ.
pub(crate) fn i7_successor_decides_the_same(lived: &[Effect], successor: &[Effect]) {
    let decisions = |effects: &[Effect]| -> Vec<Effect> {
        let soft = |effect: &&Effect| {
            !matches!(effect, Effect::Notify { .. } | Effect::Send { to: Destination::Worker { .. }, .. })
        };
        effects.iter().filter(soft).cloned().collect()
    };
    assert_eq!(decisions(lived), decisions(successor), "I7");
}

/// I55: an answer is made of every task of its plan, each in exactly one way: as it is, or as part of one that condenses.
fn i55_every_result_is_in_the_answer_once(outcome: &Outcome) {
    let Some(answer) = outcome.task_reports.iter().find(|report| report.agent == "synthesizer") else {
        return;
    };
    let reports: HashMap<&TaskId, &TaskReport> =
        outcome.task_reports.iter().map(|report| (&report.task_id, report)).collect();
    let mut open: Vec<&TaskId> = answer.depends_on.iter().collect();
    let mut seen = HashSet::new();
    while let Some(id) = open.pop() {
        let report = reports[id];
        if report.agent == "reducer" {
            assert_eq!(report.status, TaskState::Succeeded, "I55: {report:?}");
            open.extend(&report.depends_on);
        } else {
            assert!(seen.insert(id), "I55: {} is in the answer twice", report.title);
        }
    }
    let planned = outcome.task_reports.iter().filter(|report| report.agent == "worker").count();
    assert_eq!((seen.len(), planned), (planned, outcome.tasks.total as usize), "I55: {outcome:#?}");
}

/// I8: an outcome's counts, reports and status fit together.
fn i8_the_report_adds_up(outcome: &Outcome) {
    let counts = outcome.tasks;
    assert_eq!(counts.total, counts.succeeded + counts.failed, "I8: {counts:?}");
    let counted = outcome.task_reports.iter().filter(|report| report.agent != "reducer");
    let reports = i32::try_from(counted.count()).unwrap();
    assert!((counts.total..=counts.total + 1).contains(&reports), "I8: {reports} of {counts:?}");
    match outcome.status {
        OutcomeStatus::Succeeded => assert_eq!(counts.failed, 0, "I8"),
        OutcomeStatus::Partial => assert!(counts.failed > 0 && counts.succeeded > 0, "I8: {counts:?}"),
        OutcomeStatus::OverBudget if !outcome.answer.is_empty() => {
            assert!(counts.succeeded > 0 && !outcome.reason.is_empty(), "I8: {outcome:?}");
        }
        _ => assert!(outcome.answer.is_empty() && !outcome.reason.is_empty(), "I8: {outcome:?}"),
    }
}

/// I9: after a step nothing waits without a reason: while the partition's window has room, an intent with
/// ready tasks has filled its own window, passed its deadline, or waits for what is reserved of its budget.
pub(crate) fn i9_nothing_idles(coordinator: &Coordinator, settings: &CoordinatorSettings, window: usize) {
    let load = coordinator.load();
    if load.ready == 0 {
        return;
    }
    let full = [false, true].map(|batch| outstanding_of(coordinator, batch) >= window);
    let mut held = HashSet::new();
    for entity in coordinator.entities() {
        if let Entity::Intent(intent) = entity
            && full[usize::from(Priority::of_level(intent.priority).is_batch())]
        {
            held.insert(intent.intent_id);
        }
    }
    let (mut running, mut ready, mut expired) = (HashMap::new(), HashSet::new(), HashSet::new());
    let (mut bounded, mut planning) = (HashSet::new(), HashSet::new());
    for entity in coordinator.entities() {
        match entity {
            Entity::Intent(intent) if intent.deadline <= coordinator.now() => {
                expired.insert(intent.intent_id);
            }
            Entity::Intent(intent) if Budget::of(&intent).is_some() => {
                bounded.insert(intent.intent_id);
            }
            Entity::Run(run) if run.plan_reserved.is_some() => {
                planning.insert(run.intent_id);
            }
            Entity::Task(task) if task.state == TaskState::Running => {
                *running.entry(task.intent_id).or_insert(0) += 1;
            }
            Entity::Task(task) if task.state == TaskState::Ready && task.not_before.0 == 0 => {
                ready.insert(task.intent_id);
            }
            _ => {}
        }
    }
    for intent in ready.difference(&expired).filter(|intent| !held.contains(*intent)) {
        let running = running.get(intent).copied().unwrap_or(0);
        // What is open of a budget may come back; if nothing is, it ends.
        if bounded.contains(intent) && (running > 0 || planning.contains(intent)) {
            continue;
        }
        assert!(running >= settings.intent_window, "I9: {intent} idles with {running} running: {load:?}");
    }
}

/// I49: what was reported, what counts as spent and what is reserved never exceed the budget together. Only a run of the
/// planner that took another one's place, because that one had died, may have made its calls beyond it.
pub(crate) fn i49_budgets_are_kept(coordinator: &Coordinator) {
    let (mut budgets, mut taken, mut repeated) = (HashMap::new(), HashMap::new(), HashSet::new());
    for entity in coordinator.entities() {
        match entity {
            Entity::Intent(intent) => {
                if let Some(budget) = Budget::of(&intent) {
                    budgets.insert(intent.intent_id, budget);
                }
            }
            Entity::Run(run) => {
                if !run.abandoned.is_empty() {
                    repeated.insert(run.intent_id.clone());
                }
                let all = plus(spent(&run), run.plan_reserved.unwrap_or_default());
                taken.insert(run.intent_id, all);
            }
            Entity::Task(task) => {
                let reserved = task.reserved.unwrap_or_default();
                let running = task.state == TaskState::Running && budgets.contains_key(&task.intent_id);
                assert_eq!(task.reserved.is_some(), running, "I49: {task:?}");
                if let Some(taken) = taken.get_mut(&task.intent_id) {
                    *taken = plus(*taken, reserved);
                }
            }
            Entity::Ended(_) | Entity::Cancelled(_) | Entity::Purse(_) | Entity::Bank(_) => {}
        }
    }
    for (intent, budget) in budgets.iter().filter(|(intent, _)| !repeated.contains(*intent)) {
        let all = taken.get(intent).copied().unwrap_or_default();
        assert!(
            budget.fits(all) > 0 || all == Amount::default(),
            "I49: {intent} has taken {all:?} of {budget}"
        );
    }
}

fn i49_reports_are_within_the_budget(outcome: &Outcome, limits: &Limits) {
    if outcome.degraded.iter().any(|note| note == "uncounted_plan_calls") {
        return; // a run of the planner was repeated
    }
    let tokens = outcome.usage.prompt_tokens + outcome.usage.completion_tokens;
    let within = limits.max_calls.is_none_or(|most| outcome.calls <= most)
        && limits.max_tokens.is_none_or(|most| tokens <= most)
        && limits.max_cost_usd.is_none_or(|most| outcome.cost_usd <= most + 1e-9);
    assert!(within, "I49: {outcome:?} of {limits:?}");
}

/// Whether the task makes the answer.
pub(crate) fn is_synthesis(task: &Envelope) -> bool {
    job(task).kind == TaskKind::Synthesis
}
