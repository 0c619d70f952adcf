//! Plans: asking for them, taking them in part by part, and deciding which run of the planner counts.
//!
//! A run that was not seen before supersedes the one in force, for good, as long as the plan is not
//! complete: the process that ran it is gone. A complete plan ignores new runs.

use super::attempt::is_judged;
use super::plan::{describe, fragment_faults};
use super::{
    Coordinator, CoordinatorSettings, Milestone, PlanLimits, counters::Stale, live::Live, validate,
    validate_answer,
};
use starling_protocol::state::{Phase, RunEntity, TaskEntity};
use starling_protocol::{
    IntentId, OutcomeStatus, PlanEnd, PlanFragment, RunId, TaskId, TaskKind, TaskSpec, TaskState, TaskTerms,
    Timestamp, ids,
};
use std::collections::HashSet;

/// Why a plan is asked for again.
pub(super) enum PlanLoss {
    /// It came, and is of no use, because of this.
    Refused(String),
    /// It stopped coming.
    Silent,
}

/// What a fragment is to the plan that is being taken in.
#[derive(Debug, PartialEq, Eq)]
enum FragmentPlace {
    Next,
    FirstOfNewRun,
    Gap,
    Stale(Stale),
}

impl Coordinator {
    pub(super) fn on_fragment(&mut self, id: &IntentId, fragment: PlanFragment, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        match place(&live.run, &fragment) {
            FragmentPlace::Stale(stale) => {
                self.counters.stale(stale);
                if let Some(end) = &fragment.end {
                    self.plan_settled_late(id, &fragment, &end.report);
                }
                return;
            }
            FragmentPlace::Gap => {
                self.note_uncounted(id);
                return self.plan_again(id, Some(&fragment.run), PlanLoss::Silent, trace);
            }
            FragmentPlace::Next => {}
            FragmentPlace::FirstOfNewRun => {
                if !self.supersede(id, &fragment.run, trace) {
                    return;
                }
            }
        }
        let now = self.now;
        self.store.edit_run(id, |run| {
            run.next_fragment += 1;
            run.plan_moved_at = now;
        });
        if let Err(reasons) = self.add_tasks(id, &fragment.run, fragment.tasks, trace) {
            // The end of the run may be here and says what it cost.
            match &fragment.end {
                Some(end) => self.settle_plan(id, end),
                None => self.note_uncounted(id),
            }
            return self.plan_again(id, None, PlanLoss::Refused(reasons), trace);
        }
        if let Some(end) = fragment.end {
            self.end_plan(id, &end, trace);
        }
    }

    /// Gives the run in force up, if there is one, and asks again, unless that was done too often.
    /// `culprit` is a run that never came to be in force.
    pub(super) fn plan_again(&mut self, id: &IntentId, culprit: Option<&RunId>, loss: PlanLoss, trace: &str) {
        self.write_off_plan(id);
        self.abandon(id, culprit);
        let Some(live) = self.store.live(id) else { return };
        // Each attempt before this one was refused or fell silent.
        let refused = refusals(&live.run);
        let silent = live.run.plan_attempt - 1 - refused;
        let reason = match &loss {
            PlanLoss::Refused(reasons) if refused + 1 >= self.settings.max_plan_attempts => {
                Some(format!("no usable plan in {} attempts: {reasons}", refused + 1))
            }
            PlanLoss::Silent if silent >= self.settings.max_plan_silences => {
                Some(format!("the plan stopped coming, {} times", silent + 1))
            }
            _ if live.run.abandoned.len() >= self.settings.max_runs => {
                Some(format!("the planner began {} times and never finished", live.run.abandoned.len()))
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return self.end(id, OutcomeStatus::Failed, String::new(), reason, trace);
        }
        let now = self.now;
        self.store.edit_run(id, |run| {
            run.plan_attempt += 1;
            run.plan_moved_at = now;
            if let PlanLoss::Refused(reasons) = loss {
                note_refusal(run, &reasons);
            }
        });
        self.request_plan(id, trace);
        self.touch(id, None);
    }

    /// Makes the plan of an intent that is to be one task.
    pub(super) fn plan_single(&mut self, id: &IntentId, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        let run = RunId::from_string(ids::digest(&["single", id.as_str()]));
        let goal = live.intent.goal.clone();
        let title_end = goal.char_indices().nth(60).map_or(goal.len(), |(at, _)| at);
        let spec = TaskSpec {
            ordinal: 0,
            key: "answer".into(),
            title: goal.get(..title_end).unwrap_or_default().to_owned(),
            instruction: goal,
            agent: self.settings.worker_agent.clone(),
            depends_on: Vec::new(),
            critic: false, // its output is the answer, which only its own result carries
            terms: TaskTerms::default(),
        };
        let now = self.now;
        self.store.edit_run(id, |entity| {
            entity.phase = Phase::Running;
            entity.run = Some(run.clone());
            entity.plan_moved_at = now;
        });
        self.add_task(id, &run, spec, trace);
        self.release(id, 0, trace);
    }

    /// Makes an unseen run the one in force. Returns whether the intent is still live.
    fn supersede(&mut self, id: &IntentId, run: &RunId, trace: &str) -> bool {
        if self.store.live(id).is_some_and(|live| live.run.run.is_some()) {
            self.note_uncounted(id);
            self.reserve_plan_anew(id);
        }
        self.abandon(id, None);
        let abandoned = self.store.live(id).map_or(0, |live| live.run.abandoned.len());
        if abandoned >= self.settings.max_runs {
            let reason = format!("the planner began {abandoned} times and never finished");
            self.end(id, OutcomeStatus::Failed, String::new(), reason, trace);
            return false;
        }
        self.store.edit_run(id, |entity| {
            entity.run = Some(run.clone());
            entity.next_fragment = 0;
        });
        true
    }

    /// A run is given up before it said what it cost.
    pub(super) fn note_uncounted(&mut self, id: &IntentId) {
        self.add_note(id, "uncounted_plan_calls".to_owned());
    }

    /// Gives the run in force, and `culprit`, up for good: their tasks are gone, what still comes of them
    /// is superseded.
    fn abandon(&mut self, id: &IntentId, culprit: Option<&RunId>) {
        self.write_off_tasks(id);
        self.store.remove_tasks(id);
        self.store.edit_run(id, |run| {
            let in_force = run.run.take();
            for gone in in_force.into_iter().chain(culprit.cloned()) {
                if !run.abandoned.contains(&gone) {
                    run.abandoned.push(gone);
                }
            }
            run.next_fragment = 0;
        });
        // Nothing of the tasks that are gone can be reported any more.
        self.touched.remove(id);
        self.untold.forget(id);
        self.touch(id, None);
    }

    fn add_tasks(
        &mut self,
        id: &IntentId,
        run: &RunId,
        specs: Vec<TaskSpec>,
        trace: &str,
    ) -> Result<(), String> {
        let Some(live) = self.store.live(id) else { return Ok(()) };
        let limits = PlanLimits::new(&self.settings, live.intent.max_tasks);
        let faults = fragment_faults(live.planned(), |key| live.has_key(key), &specs, &limits);
        if !faults.is_empty() {
            return Err(describe(&faults));
        }
        let ordinals: Vec<i32> = specs.iter().map(|spec| spec.ordinal).collect();
        for spec in specs {
            self.add_task(id, run, spec, trace);
        }
        for ordinal in ordinals {
            if self.store.live(id).is_some_and(|live| live.is_unblocked(ordinal)) {
                self.release(id, ordinal, trace);
            }
        }
        Ok(())
    }

    fn add_task(&mut self, id: &IntentId, run: &RunId, spec: TaskSpec, trace: &str) {
        let agent = if self.settings.agents.contains_key(&spec.agent) {
            spec.agent
        } else {
            let unknown: String = spec.agent.chars().take(60).collect();
            if !unknown.is_empty() {
                self.add_note(id, format!("unknown_agent:{unknown}"));
            }
            self.settings.worker_agent.clone()
        };
        let mut seen = HashSet::new();
        let mut depends_on = spec.depends_on;
        depends_on.retain(|key| seen.insert(key.clone()));
        let ordinal = spec.ordinal;
        let task = TaskEntity {
            intent_id: id.clone(),
            task_id: TaskId::planned(id, run, ordinal),
            kind: TaskKind::Work,
            ordinal,
            key: spec.key,
            title: spec.title,
            instruction: spec.instruction,
            agent,
            depends_on,
            critic: spec.critic,
            terms: spec.terms,
            ..new_task(id, trace)
        };
        self.store.insert_task(by_rules(&self.settings, task));
        self.touch(id, Some(ordinal));
    }

    fn end_plan(&mut self, id: &IntentId, end: &PlanEnd, trace: &str) {
        self.settle_plan(id, end);
        if let Some(failure) = &end.failure {
            let reason = format!("{}: {}", failure.code, failure.message);
            return if failure.retryable {
                self.plan_again(id, None, PlanLoss::Refused(reason), trace);
            } else {
                let reason = format!("there is no plan: {reason}");
                self.end(id, OutcomeStatus::Failed, String::new(), reason, trace);
            };
        }
        let Some(live) = self.store.live(id) else { return };
        let limits = PlanLimits::new(&self.settings, live.intent.max_tasks);
        let of_answer = end.answer.as_ref().map_or(Ok(()), |answer| validate_answer(answer, &limits));
        match validate(&specs(live), &limits).and(of_answer) {
            Err(faults) => self.plan_again(id, None, PlanLoss::Refused(describe(&faults)), trace),
            Ok(()) => {
                let took = self.now.since(live.intent.accepted_at);
                self.milestones.push(Milestone::Planned { took });
                self.store.edit_run(id, |run| {
                    run.phase = Phase::Running;
                    run.answer.clone_from(&end.answer);
                });
                self.touch(id, None);
                self.close_if_done(id, trace);
            }
        }
    }
}

fn place(run: &RunEntity, fragment: &PlanFragment) -> FragmentPlace {
    let in_force = run.run.as_ref() == Some(&fragment.run);
    if run.abandoned.contains(&fragment.run) {
        FragmentPlace::Stale(Stale::Abandoned)
    } else if in_force && fragment.seq < run.next_fragment {
        FragmentPlace::Stale(Stale::Duplicate)
    } else if run.phase != Phase::Planning {
        FragmentPlace::Stale(Stale::Abandoned)
    } else if fragment.plan_attempt != run.plan_attempt {
        FragmentPlace::Stale(Stale::Late)
    } else if fragment.seq != if in_force { run.next_fragment } else { 0 } {
        FragmentPlace::Gap
    } else if in_force {
        FragmentPlace::Next
    } else {
        FragmentPlace::FirstOfNewRun
    }
}

/// Plans of this intent that were refused: one line of the feedback each.
fn refusals(run: &RunEntity) -> i32 {
    i32::try_from(run.plan_feedback.lines().count()).unwrap_or(i32::MAX)
}

fn note_refusal(run: &mut RunEntity, reasons: &str) {
    let line = reasons.split_whitespace().collect::<Vec<_>>().join(" ");
    if !run.plan_feedback.is_empty() {
        run.plan_feedback.push('\n');
    }
    run.plan_feedback.extend(line.chars().take(2_000));
    if line.is_empty() {
        run.plan_feedback.push_str("no reason given");
    }
}

/// A task of which nothing is known yet but its intent.
pub(super) fn new_task(id: &IntentId, trace: &str) -> TaskEntity {
    TaskEntity {
        intent_id: id.clone(),
        task_id: TaskId::from_string(""),
        kind: TaskKind::Work,
        ordinal: 0,
        key: String::new(),
        title: String::new(),
        instruction: String::new(),
        agent: String::new(),
        depends_on: Vec::new(),
        critic: false,
        state: TaskState::Waiting,
        attempt: 0,
        step: 0,
        partition: 0,
        started_at: Timestamp(0),
        attempt_deadline: Timestamp(0),
        not_before: Timestamp(0),
        best: None,
        last_score: None,
        feedback: String::new(),
        failure: None,
        latency_ms: 0,
        trace: trace.to_owned(),
        reserved: None,
        charged: None,
        terms: TaskTerms::default(),
        pool: String::new(),
        unjudged: false,
    }
}

/// A new task with what its agent's rules say of it.
pub(super) fn by_rules(settings: &CoordinatorSettings, mut task: TaskEntity) -> TaskEntity {
    let rules = settings.agents.get(&task.agent);
    task.pool = rules.and_then(|rules| rules.pool.clone()).unwrap_or_default();
    let rate = rules.and_then(|rules| rules.critic_rate).unwrap_or(settings.critic_rate);
    task.unjudged = task.critic && !is_judged(&task.task_id, rate);
    task.critic &= !task.unjudged;
    task
}

fn specs(live: &Live) -> Vec<TaskSpec> {
    live.plan_tasks()
        .map(|task| TaskSpec {
            ordinal: task.ordinal,
            key: task.key.clone(),
            title: task.title.clone(),
            instruction: task.instruction.clone(),
            agent: task.agent.clone(),
            depends_on: task.depends_on.clone(),
            critic: task.critic,
            terms: task.terms.clone(),
        })
        .collect()
}
