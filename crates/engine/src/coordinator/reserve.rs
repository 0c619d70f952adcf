//! Reservations of live intents: what is set aside for a step before it is sent, and what becomes of it.
//!
//! A step that reports is settled by what it says. One that is given up, because its time ran out or its run was, counts
//! in full until it says something after all. What a process spent that died is known to nobody and not counted: its step
//! is done again by another one, once, within the same reservation.

use super::budget::{Budget, Said, plus, spent, times, tries, tries_of_ends, unsaid};
use super::live::{Live, has_ended};
use super::{Coordinator, CoordinatorSettings, StepCost, estimate, progression::first_failures};
use starling_protocol::state::{Amount, Phase, TaskEntity, Unsettled};
use starling_protocol::{
    Allowance, CallReport, Failure, Intent, IntentId, Judgement, OutcomeStatus, PlanEnd, PlanFragment,
    RecordRef, TaskId, TaskState, Usage,
};

/// The failure of a task that was left out, and the name of the note about it.
pub(super) const OVER_BUDGET: &str = "over_budget";

/// What an attempt gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Grant {
    /// For the worker.
    pub(super) work: Option<Allowance>,
    /// For the critic, if there is one.
    pub(super) critic: Option<Allowance>,
    /// Both together; nothing if the intent has no budget.
    pub(super) reserved: Option<Amount>,
}

/// What the next attempt of a task gets, or nothing if what is left does not cover it.
pub(super) fn grant(settings: &CoordinatorSettings, live: &Live, ordinal: i32) -> Option<Grant> {
    let Some(budget) = Budget::of(&live.intent) else { return Some(Grant::default()) };
    let task = live.task(ordinal)?;
    let left = left(settings, live, &budget);
    let costs = &settings.costs;
    let (once, count) = if estimate::is_synthesis(task) {
        let once = [
            estimate::of_whole_answer(costs, live),
            estimate::of_answer(costs, live, &budget),
            estimate::of_least_answer(costs, live),
        ]
        .into_iter()
        .find(|once| left.fits(*once) > 0)?;
        (StepCost { work: once, critic: Amount::default() }, left.fits(once).min(costs.tries))
    } else {
        let once = estimate::of_task(costs, live, task);
        (once, tries(&left, plus(once.work, once.critic), steps_to_come(live), costs.tries)?)
    };
    let (work, critic) = (times(once.work, count), times(once.critic, count));
    Some(Grant {
        work: Some(budget.allowance(work)),
        critic: task.critic.then(|| budget.allowance(critic)),
        reserved: Some(plus(work, critic)),
    })
}

/// What may still be reserved: the budget without what is spent, reserved, and set aside for the answer.
fn left(settings: &CoordinatorSettings, live: &Live, budget: &Budget) -> Budget {
    let open = live.tasks().filter_map(|task| task.reserved).fold(Amount::default(), plus);
    let open = plus(open, live.run.plan_reserved.unwrap_or_default());
    let taken = plus(spent(&live.run), open);
    if live.is_single() || live.run.phase == Phase::Synthesizing {
        return budget.less(taken);
    }
    let once = estimate::of_answer(&settings.costs, live, budget);
    let aside = times(once, tries_of_ends(budget, once, settings.costs.tries));
    budget.less(plus(taken, aside))
}

/// Attempts that are certain to come, this one included. As long as a plan comes in, it may become as large as it may.
fn steps_to_come(live: &Live) -> usize {
    let known = live.plan_tasks().filter(|task| !has_ended(task.state) && task.state != TaskState::Running);
    let unknown = match live.run.phase {
        Phase::Waiting | Phase::Planning => {
            usize::try_from(live.intent.max_tasks).unwrap_or(0).saturating_sub(live.planned())
        }
        Phase::Running | Phase::Synthesizing => 0,
    };
    known.count() + unknown
}

/// Whether nothing is under way that could bring something back, and the next step is not covered.
fn is_stuck(settings: &CoordinatorSettings, live: &Live) -> bool {
    Budget::of(&live.intent).is_some()
        && live.running() == 0
        && live.run.plan_reserved.is_none()
        && live.first_ready().is_some_and(|next| grant(settings, live, next).is_none())
}

impl Coordinator {
    /// Why an intent's budget does not cover the least that it takes.
    pub(super) fn uncovered(&self, intent: &Intent, budget: &Budget, at: &RecordRef) -> Option<String> {
        let single = intent.strategy == super::admission::SINGLE;
        let inputs =
            if intent.inputs.is_empty() && intent.items.is_empty() { 0 } else { estimate::inputs_of(at) };
        self.settings.costs.shortfall(budget, intent.goal.len(), inputs, single, &self.settings.worker_agent)
    }

    /// Reserves what a plan may take. `Some(None)` if the intent has no budget; `None` if what is left does not cover it,
    /// and the intent has ended.
    pub(super) fn reserve_plan(&mut self, id: &IntentId, trace: &str) -> Option<Option<Allowance>> {
        let live = self.store.live(id)?;
        let Some(budget) = Budget::of(&live.intent) else { return Some(None) };
        let costs = &self.settings.costs;
        let once = estimate::of_plan(costs, live);
        let fits = left(&self.settings, live, &budget).fits(once);
        if fits < 1 {
            let reason =
                format!("the budget of {budget} does not cover another plan: {}", live.run.plan_feedback);
            self.end(id, OutcomeStatus::OverBudget, String::new(), reason, trace);
            return None;
        }
        let amount = times(once, tries_of_ends(&budget, once, costs.tries).min(fits));
        self.store.edit_run(id, |run| run.plan_reserved = Some(amount));
        Some(Some(budget.allowance(amount)))
    }

    /// Another run of the planner answers the same request: what the one before took counts as well.
    pub(super) fn reserve_plan_anew(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let (Some(reserved), step) = (live.run.plan_reserved, plan_step(live)) else { return };
        self.write_off(id, step, reserved);
    }

    /// A plan is given up; if it has not said what it took, it counts in full.
    pub(super) fn write_off_plan(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let (Some(reserved), step) = (live.run.plan_reserved, plan_step(live)) else { return };
        self.store.edit_run(id, |run| run.plan_reserved = None);
        self.write_off(id, step, reserved);
    }

    /// The end of a plan says what it took.
    pub(super) fn settle_plan(&mut self, id: &IntentId, end: &PlanEnd) {
        let reserved = self.store.live(id).and_then(|live| live.run.plan_reserved);
        if let Some(reserved) = reserved {
            self.store.edit_run(id, |run| run.plan_reserved = None);
            // A reply that was left unread is one call of which nobody says how long it was.
            let refused = end.failure.as_ref().is_some_and(|failure| failure.code == "invalid_plan");
            let unread = refused && end.report.calls > 0 && end.report.usage == Usage::default();
            let said = if unread { Said::Calls } else { said_of(end.failure.as_ref()) };
            self.lose(id, unsaid(reserved, &[&end.report], said));
        }
        self.add_report(id, &end.report);
    }

    /// A plan that was given up says what it took.
    pub(super) fn plan_settled_late(&mut self, id: &IntentId, fragment: &PlanFragment, report: &CallReport) {
        let named = format!("plan/{}/{}", fragment.plan_attempt, fragment.run);
        let unnamed = format!("plan/{}/", fragment.plan_attempt);
        if !self.known_better(id, &named, &[report]) {
            self.known_better(id, &unnamed, &[report]);
        }
    }

    /// A step says what it took.
    pub(super) fn settle(&mut self, id: &IntentId, ordinal: i32, reports: &[&CallReport], said: Said) {
        let reserved = self.store.live(id).and_then(|live| live.task(ordinal)?.reserved);
        if let Some(reserved) = reserved {
            self.lose(id, unsaid(reserved, reports, said));
        }
        for report in reports {
            self.add_report(id, report);
        }
    }

    /// A step that was given up says what it took.
    pub(super) fn settled_late(
        &mut self,
        id: &IntentId,
        task: &TaskId,
        attempt: i32,
        reports: &[&CallReport],
    ) {
        self.known_better(id, &task_step(task, attempt), reports);
    }

    /// A critic that was asked could not say what it took.
    pub(super) fn write_off_critic(&mut self, id: &IntentId, ordinal: i32, allowance: Option<Allowance>) {
        let asked = self.store.live(id).and_then(|live| live.task(ordinal)).is_some_and(|task| task.critic);
        let Some(allowance) = allowance.filter(|_| asked) else { return };
        let (tokens, cost_usd) = (allowance.tokens.unwrap_or(0), allowance.cost_usd.unwrap_or(0.0));
        self.lose(id, Amount { calls: allowance.calls, tokens, cost_usd });
    }

    /// An attempt is given up: it counts in full until it says what it took.
    pub(super) fn write_off_task(&mut self, id: &IntentId, ordinal: i32) {
        let task = self.store.live(id).and_then(|live| live.task(ordinal));
        let Some((step, reserved)) = task.and_then(|task| Some((step_of(task), task.reserved?))) else {
            return;
        };
        self.store.edit_task(id, ordinal, |task| task.reserved = None);
        self.write_off(id, step, reserved);
    }

    /// The same for all attempts that are under way.
    pub(super) fn write_off_tasks(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let open: Vec<i32> =
            live.tasks().filter(|task| task.reserved.is_some()).map(|task| task.ordinal).collect();
        for ordinal in open {
            self.write_off_task(id, ordinal);
        }
    }

    fn write_off(&mut self, id: &IntentId, step: String, amount: Amount) {
        let room = self.settings.max_unsettled;
        let Some(live) = self.store.live(id) else { return };
        if live.run.unsettled.len() < room {
            self.store.edit_run(id, |run| run.unsettled.push(Unsettled { step, amount }));
        } else {
            self.lose(id, amount);
        }
    }

    /// Counts something as spent for good.
    fn lose(&mut self, id: &IntentId, amount: Amount) {
        if amount != Amount::default() {
            self.store.edit_run(id, |run| {
                run.written_off = Some(plus(run.written_off.unwrap_or_default(), amount));
            });
        }
    }

    /// Replaces what counts in full by what a step says. Returns whether it was among those that count so.
    fn known_better(&mut self, id: &IntentId, step: &str, reports: &[&CallReport]) -> bool {
        let Some(live) = self.store.live(id) else { return false };
        let Some(at) = live.run.unsettled.iter().position(|unsettled| unsettled.step == step) else {
            return false;
        };
        self.store.edit_run(id, |run| drop(run.unsettled.remove(at)));
        for report in reports {
            self.add_report(id, report);
        }
        self.touch(id, None);
        true
    }

    /// Leaves out what the budgets of intents do not cover, where nothing is under way that could bring something back.
    /// Returns whether there was such an intent. `cold`: all of them are looked at, not only those that changed.
    pub(super) fn stop_over_budget(&mut self, cold: bool) -> bool {
        let settings = &self.settings;
        let stuck = |id: &IntentId| self.store.live(id).is_some_and(|live| is_stuck(settings, live));
        let stuck: Vec<IntentId> = if cold {
            self.store.all_live().map(|(id, _)| id).filter(|id| stuck(id)).cloned().collect()
        } else {
            self.touched.keys().filter(|id| stuck(id)).cloned().collect()
        };
        for id in &stuck {
            self.leave_out(id);
        }
        !stuck.is_empty()
    }

    /// Gives up all tasks that have not ended; those with a result that was to become better keep it.
    fn leave_out(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let trace =
            live.first_ready().and_then(|next| live.task(next)).map_or("", |task| &task.trace).to_owned();
        let answers = live.is_single() || live.run.phase == Phase::Synthesizing;
        self.store.edit_run(id, |run| run.over_budget = true);
        let Some(live) = self.store.live(id) else { return };
        if answers {
            let last = live.tasks().last().and_then(|task| task.failure.as_ref());
            let why = last.map_or(String::new(), |failure| format!(": {}", failure.message));
            let reason = format!("{} before there was an answer{why}", used_up(live));
            return self.end(id, OutcomeStatus::OverBudget, String::new(), reason, &trace);
        }
        let open: Vec<(i32, String)> = live
            .plan_tasks()
            .filter(|task| !has_ended(task.state))
            .map(|task| (task.ordinal, task.title.clone()))
            .collect();
        let now = self.now;
        for (ordinal, title) in open {
            self.edit_task(id, ordinal, |task| {
                task.not_before = starling_protocol::Timestamp(0);
                if task.started_at > starling_protocol::Timestamp(0) {
                    task.latency_ms = now.0.saturating_sub(task.started_at.0);
                }
                if task.best.is_some() {
                    task.state = TaskState::Succeeded;
                } else {
                    task.state = TaskState::Skipped;
                    task.failure = Some(left_out(task.failure.take()));
                }
            });
            self.add_note(id, format!("{OVER_BUDGET}:{title}"));
        }
        if self.store.live(id).is_some_and(|live| live.succeeded() == 0) {
            let reason = self.store.live(id).map(over_budget_reason).unwrap_or_default();
            return self.end(id, OutcomeStatus::OverBudget, String::new(), reason, &trace);
        }
        self.close_if_done(id, &trace);
    }

    /// Ends an intent for which there is no answer: as failed, or as over budget if it is for that.
    pub(super) fn end_without_answer(&mut self, id: &IntentId, reason: String, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        if live.run.over_budget {
            let reason = format!("{}; {reason}", over_budget_reason(live));
            self.end(id, OutcomeStatus::OverBudget, String::new(), reason, trace);
        } else {
            self.end(id, OutcomeStatus::Failed, String::new(), reason, trace);
        }
    }
}

/// The failure of a task that is left out.
fn left_out(before: Option<Failure>) -> Failure {
    let before = before.map_or(String::new(), |failure| format!("; before that: {}", failure.message));
    Failure {
        code: OVER_BUDGET.to_owned(),
        message: format!("the budget was used up{before}"),
        retryable: false,
    }
}

fn used_up(live: &Live) -> String {
    let budget = Budget::of(&live.intent).unwrap_or_default();
    format!("the budget of {budget} was used up")
}

/// What an intent's outcome says of a budget that did not suffice.
pub(super) fn over_budget_reason(live: &Live) -> String {
    let skipped =
        |task: &&TaskEntity| task.failure.as_ref().is_some_and(|failure| failure.code == OVER_BUDGET);
    let left_out = live.plan_tasks().filter(skipped).count();
    if left_out == 0 {
        return format!("{}: results that were to become better were kept as they were", used_up(live));
    }
    let failures = first_failures(live);
    let failures = if failures.is_empty() { failures } else { format!("; {failures}") };
    format!("{}: {left_out} of {} tasks were left out{failures}", used_up(live), live.planned())
}

/// How much a result says of what it took: a process that died says nothing, and a call that was cut off not how long
/// it was.
pub(super) fn said_of(failure: Option<&Failure>) -> Said {
    match failure.map(|failure| failure.code.as_str()) {
        Some("dead_letter") => Said::Nothing,
        Some("deadline") => Said::Calls,
        _ => Said::All,
    }
}

/// The same of a verdict.
pub(super) fn said_in(judgement: &Judgement) -> Said {
    match judgement {
        Judgement::Unavailable(why) if why.reason.starts_with("deadline:") => Said::Calls,
        _ => Said::All,
    }
}

fn step_of(task: &TaskEntity) -> String {
    task_step(&task.task_id, task.attempt)
}

fn task_step(task: &TaskId, attempt: i32) -> String {
    format!("task/{task}/{attempt}")
}

fn plan_step(live: &Live) -> String {
    let run = live.run.run.as_ref().map_or("", |run| run.as_str());
    format!("plan/{}/{run}", live.run.plan_attempt)
}
