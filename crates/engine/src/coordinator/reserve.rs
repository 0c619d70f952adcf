//! Reservations of live intents: what is set aside for a step before it is sent, and what becomes of it.
//!
//! A step that reports is settled by what it says. One that is given up, because its time ran out or its run was, counts
//! in full until it says something after all. What a process spent that died is known to nobody and not counted: its step
//! is done again by another one, once, within the same reservation.

use super::admission::{has_texts, strategy_of};
use super::budget::{Budget, Said, minus, plus, reported, spent, times, tries, tries_of_ends, unsaid};
use super::live::{Live, has_ended};
use super::purse::{Draw, means};
use super::store::Store;
use super::{Coordinator, CoordinatorSettings, StepCost, estimate, progression::first_failures};
use starling_protocol::state::{Amount, Phase, TaskEntity, Unsettled};
use starling_protocol::{
    Allowance, CallReport, Failure, Intent, IntentId, Judgement, OutcomeStatus, PlanEnd, PlanFragment,
    RecordRef, TaskId, TaskState, Timestamp, Usage,
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
    /// Both together; nothing if neither the intent nor its tenant has a budget.
    pub(super) reserved: Option<Amount>,
    /// What that takes out of the tenant's purse; nothing if the tenant has no budget.
    pub(super) draw: Option<Draw>,
}

/// Whether the next attempt of a task is covered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cover {
    /// It is, and gets this.
    Granted(Grant),
    /// What is left of the intent's own budget does not cover it.
    OverOwn,
    /// What its tenant's purse has does not: it takes that much.
    Lacking(Amount),
}

/// What the next attempt of a task gets, if what is left covers it.
pub(super) fn cover(
    settings: &CoordinatorSettings,
    store: &Store,
    now: Timestamp,
    live: &Live,
    ordinal: i32,
) -> Cover {
    let (own, means) = (Budget::of(&live.intent), means(settings, store, now, live));
    if own.is_none() && means.is_none() {
        return Cover::Granted(Grant::default());
    }
    let Some(task) = live.task(ordinal) else { return Cover::OverOwn };
    let costs = &settings.costs;
    let left = own.map(|own| left(settings, live, &own)).unwrap_or_default();
    let room = means.map(|means| means.for_answer()).unwrap_or_default();
    let answers = estimate::is_synthesis(task);
    let (once, count) = if answers {
        let whole = estimate::of_whole_answer(costs, live);
        let least = estimate::of_least_answer(costs, live);
        let of_own = own.map(|own| estimate::of_answer(costs, live, &own));
        let of_tenant = means.map(|_| estimate::of_answer_within(costs, live, &room));
        let mut sizes = [Some(whole), of_own, of_tenant, Some(least)].into_iter().flatten();
        match sizes.find(|once| left.fits(*once) > 0 && room.fits(*once) > 0) {
            Some(once) => {
                let count = left.fits(once).min(room.fits(once)).min(costs.tries);
                (StepCost { work: once, critic: Amount::default() }, count)
            }
            None if left.fits(least) < 1 => return Cover::OverOwn,
            None => return Cover::Lacking(minus(least, means.map_or(Amount::default(), |means| means.kept))),
        }
    } else {
        let once = estimate::of_task(costs, live, task);
        let (both, steps) = (plus(once.work, once.critic), steps_to_come(live));
        let Some(of_own) = tries(&left, both, steps, costs.tries) else { return Cover::OverOwn };
        let free = means.map(|means| means.left.less(means.to_keep)).unwrap_or_default();
        match tries(&free, both, steps, of_own) {
            Some(count) => (once, count),
            None => {
                let to_keep = means.map_or(Amount::default(), |means| means.to_keep);
                return Cover::Lacking(plus(to_keep, both));
            }
        }
    };
    let (work, critic) = (times(once.work, count), times(once.critic, count));
    let bounds = own.unwrap_or_default().or(&means.map(|means| means.budget).unwrap_or_default());
    Cover::Granted(Grant {
        work: Some(bounds.allowance(work)),
        critic: task.critic.then(|| bounds.allowance(critic)),
        reserved: Some(plus(work, critic)),
        draw: means.map(|means| Draw { window: means.window, keep: means.to_keep, answers }),
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
    let known = live.steps().filter(|task| !has_ended(task.state) && task.state != TaskState::Running);
    let unknown = match live.run.phase {
        Phase::Waiting | Phase::Planning => {
            usize::try_from(live.intent.max_tasks).unwrap_or(0).saturating_sub(live.planned())
        }
        Phase::Running | Phase::Reducing | Phase::Synthesizing => 0,
    };
    known.count() + unknown
}

/// Whether nothing is under way that could bring something back, and the next step is not covered.
fn is_stuck(settings: &CoordinatorSettings, store: &Store, now: Timestamp, live: &Live) -> bool {
    Budget::of(&live.intent).is_some()
        && live.running() == 0
        && live.run.plan_reserved.is_none()
        && live.has_ready()
        && store
            .next_of(live)
            .into_iter()
            .all(|next| cover(settings, store, now, live, next) == Cover::OverOwn)
}

impl Coordinator {
    /// Why an intent's budget does not cover the least that it takes.
    pub(super) fn uncovered(&self, intent: &Intent, budget: &Budget, at: &RecordRef) -> Option<String> {
        let strategy = strategy_of(&intent.strategy);
        let inputs = if has_texts(intent) { estimate::inputs_of(at) } else { 0 };
        self.settings.costs.shortfall(
            budget,
            intent.goal.len(),
            inputs,
            &strategy,
            &self.settings.worker_agent,
        )
    }

    /// Reserves what a plan may take. `Some(None)` if nothing bounds it; `None` if it cannot be asked for now: either the
    /// intent's own budget does not cover it, and the intent has ended, or it waits for its tenant's.
    pub(super) fn reserve_plan(&mut self, id: &IntentId, trace: &str) -> Option<Option<Allowance>> {
        let live = self.store.live(id)?;
        if !live.asks_planner() {
            return Some(None); // it takes no call
        }
        let means = means(&self.settings, &self.store, self.now, live);
        let own = Budget::of(&live.intent);
        let costs = &self.settings.costs;
        let once = estimate::of_plan(costs, live);
        let mut count = costs.tries;
        if let Some(budget) = own {
            let fits = left(&self.settings, live, &budget).fits(once);
            if fits < 1 {
                let reason =
                    format!("the budget of {budget} does not cover another plan: {}", live.run.plan_feedback);
                self.end(id, OutcomeStatus::OverBudget, String::new(), reason, trace);
                return None;
            }
            count = tries_of_ends(&budget, once, costs.tries).min(fits);
        }
        if let Some(means) = means {
            let fits = means.left.less(means.to_keep).fits(once);
            if fits < 1 {
                let (tenant, need) = (live.intent.tenant.clone(), plus(means.to_keep, once));
                self.store.edit_run(id, |run| run.plan_wanted = true);
                self.leases.lacks(&tenant, id, need);
                return None;
            }
            count = tries_of_ends(&means.budget, once, count).min(fits);
        }
        let amount = times(once, count);
        let bounds = own.unwrap_or_default().or(&means.map(|means| means.budget).unwrap_or_default());
        let (now, charged) = (self.now, means.map(|means| means.window));
        let bounded = own.is_some() || means.is_some();
        self.store.edit_run(id, |run| {
            run.plan_reserved = bounded.then_some(amount);
            run.plan_charged = charged;
            if run.plan_wanted {
                run.plan_wanted = false;
                run.plan_moved_at = now;
            }
        });
        if let Some(means) = means {
            self.draw(id, Draw { window: means.window, keep: means.to_keep, answers: false }, amount);
        }
        Some(bounded.then(|| bounds.allowance(amount)))
    }

    /// Another run of the planner answers the same request: what the one before took counts as well.
    pub(super) fn reserve_plan_anew(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let (Some(reserved), step) = (live.run.plan_reserved, plan_step(live)) else { return };
        let charged = live.run.plan_charged;
        self.overdraw(id, charged, reserved);
        self.write_off(id, step, reserved, charged);
    }

    /// A plan is given up; if it has not said what it took, it counts in full.
    pub(super) fn write_off_plan(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let (Some(reserved), step) = (live.run.plan_reserved, plan_step(live)) else { return };
        let charged = live.run.plan_charged;
        self.store.edit_run(id, |run| {
            run.plan_reserved = None;
            run.plan_charged = None;
        });
        self.write_off(id, step, reserved, charged);
    }

    /// The end of a plan says what it took.
    pub(super) fn settle_plan(&mut self, id: &IntentId, end: &PlanEnd) {
        let Some(live) = self.store.live(id) else { return };
        let charged = live.run.plan_charged;
        if let Some(reserved) = live.run.plan_reserved {
            self.store.edit_run(id, |run| {
                run.plan_reserved = None;
                run.plan_charged = None;
            });
            // A reply that was left unread is one call of which nobody says how long it was.
            let refused = end.failure.as_ref().is_some_and(|failure| failure.code == "invalid_plan");
            let unread = refused && end.report.calls > 0 && end.report.usage == Usage::default();
            let said = if unread { Said::Calls } else { said_of(end.failure.as_ref()) };
            let unsaid = unsaid(reserved, &[&end.report], said);
            self.lose(id, unsaid);
            self.settle_charge(id, charged, reserved, plus(reported(&[&end.report]), unsaid));
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

    /// A step says what it took. `unheard` counts as spent beside that.
    pub(super) fn settle(
        &mut self,
        id: &IntentId,
        ordinal: i32,
        reports: &[&CallReport],
        said: Said,
        unheard: Amount,
    ) {
        let task = self.store.live(id).and_then(|live| live.task(ordinal));
        if let Some((reserved, charged)) = task.and_then(|task| Some((task.reserved?, task.charged))) {
            let unsaid = plus(unsaid(reserved, reports, said), unheard);
            self.lose(id, unsaid);
            self.settle_charge(id, charged, reserved, plus(reported(reports), unsaid));
            self.store.edit_task(id, ordinal, |task| {
                task.reserved = None;
                task.charged = None;
            });
        }
        for report in reports {
            self.add_report(id, report);
        }
    }

    /// An attempt was never made.
    pub(super) fn give_back(&mut self, id: &IntentId, ordinal: i32) {
        self.settle(id, ordinal, &[], Said::All, Amount::default());
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

    /// What a critic may have taken that was asked and could not say so.
    pub(super) fn unheard_critic(&self, id: &IntentId, ordinal: i32, allowance: Option<Allowance>) -> Amount {
        let asked = self.store.live(id).and_then(|live| live.task(ordinal)).is_some_and(|task| task.critic);
        let Some(allowance) = allowance.filter(|_| asked) else { return Amount::default() };
        let (tokens, cost_usd) = (allowance.tokens.unwrap_or(0), allowance.cost_usd.unwrap_or(0.0));
        Amount { calls: allowance.calls, tokens, cost_usd }
    }

    /// An attempt is given up: it counts in full until it says what it took.
    pub(super) fn write_off_task(&mut self, id: &IntentId, ordinal: i32) {
        let task = self.store.live(id).and_then(|live| live.task(ordinal));
        let open = task.and_then(|task| Some((step_of(task), task.reserved?, task.charged)));
        let Some((step, reserved, charged)) = open else { return };
        self.store.edit_task(id, ordinal, |task| {
            task.reserved = None;
            task.charged = None;
        });
        self.write_off(id, step, reserved, charged);
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

    fn write_off(&mut self, id: &IntentId, step: String, amount: Amount, charged: Option<Timestamp>) {
        self.settle_charge(id, charged, amount, amount);
        let room = self.settings.max_unsettled;
        let Some(live) = self.store.live(id) else { return };
        if live.run.unsettled.len() < room {
            self.store.edit_run(id, |run| run.unsettled.push(Unsettled { step, amount, charged }));
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
        let Some(Unsettled { amount, charged, .. }) = live.run.unsettled.get(at).cloned() else {
            return false;
        };
        self.store.edit_run(id, |run| drop(run.unsettled.remove(at)));
        self.correct_charge(id, charged, amount, reported(reports));
        for report in reports {
            self.add_report(id, report);
        }
        self.touch(id, None);
        true
    }

    /// Leaves out what the budgets of intents do not cover, where nothing is under way that could bring something back.
    /// Returns whether there was such an intent. `cold`: all of them are looked at, not only those that changed.
    pub(super) fn stop_over_budget(&mut self, cold: bool) -> bool {
        let (settings, store, now) = (&self.settings, &self.store, self.now);
        let stuck = |id: &IntentId| store.live(id).is_some_and(|live| is_stuck(settings, store, now, live));
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
    pub(super) fn leave_out(&mut self, id: &IntentId) {
        let Some(live) = self.store.live(id) else { return };
        let trace =
            live.first_ready().and_then(|next| live.task(next)).map_or("", |task| &task.trace).to_owned();
        if live.run.phase == Phase::Reducing {
            // The answer can be made without them, out of shortened results.
            return self.leave_out_digests(id, &trace);
        }
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
                task.not_before = Timestamp(0);
                if task.started_at > Timestamp(0) {
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
    if !live.run.refused.is_empty() {
        return live.run.refused.clone();
    }
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
