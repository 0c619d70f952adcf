//! What workers and critics say. Only the first word about the present step of the present attempt in the
//! run in force counts; what follows from it is decided in `attempt.rs`.

use super::attempt::{RULE_BASED, readable_score};
use super::budget::Said;
use super::live::{Live, has_ended};
use super::reserve::{over_budget_reason, said_in, said_of};
use super::{
    AttemptDecision, AttemptReport, AttemptRules, Coordinator, Milestone, counters::Stale, judge_attempt,
    progression::first_failures,
};
use starling_protocol::state::{Amount, BestAttempt, TaskEntity};
use starling_protocol::{
    Failure, IntentId, OutcomeStatus, RecordRef, RunId, TaskId, TaskKind, TaskResult, TaskState, TaskTurn,
    Timestamp, Verdict,
};

/// Names one step of one attempt, as a reply echoes it.
struct StepName<'a> {
    run: &'a RunId,
    task_id: &'a TaskId,
    attempt: i32,
    step: i32,
}

impl Coordinator {
    pub(super) fn on_task_result(&mut self, id: &IntentId, result: TaskResult, at: RecordRef, trace: &str) {
        let name = StepName {
            run: &result.run,
            task_id: &result.task_id,
            attempt: result.attempt,
            step: result.step,
        };
        let Some(ordinal) = self.current(id, &name) else {
            return self.settled_late(id, &result.task_id, result.attempt, &[&result.report]);
        };
        // If it has not failed, its critic could not work, and does not say what it took. Nobody judges what is made by rule.
        let critic = result.critic_allowance.filter(|_| result.failure.is_none() && !result.rule_based);
        let unheard = self.unheard_critic(id, ordinal, critic);
        self.settle(id, ordinal, &[&result.report], said_of(result.failure.as_ref()), unheard);
        match result.failure {
            Some(failure) => {
                self.attempt_ended(id, ordinal, &AttemptReport::Failed(failure), None, None, trace);
            }
            None => {
                let output = Some(result.output);
                let report = if result.rule_based { AttemptReport::RuleBased } else { AttemptReport::Done };
                self.attempt_ended(id, ordinal, &report, Some(at), output, trace);
            }
        }
    }

    pub(super) fn on_verdict(&mut self, id: &IntentId, verdict: Verdict, trace: &str) {
        let name = StepName {
            run: &verdict.run,
            task_id: &verdict.task_id,
            attempt: verdict.attempt,
            step: verdict.step,
        };
        let reports = [&verdict.work, &verdict.report];
        let Some(ordinal) = self.current(id, &name) else {
            return self.settled_late(id, &verdict.task_id, verdict.attempt, &reports);
        };
        if self.store.live(id).and_then(|live| live.task(ordinal)).is_some_and(|task| !task.critic) {
            // Nobody was asked: the result itself is on its way.
            return self.counters.stale(Stale::Late);
        }
        self.settle(id, ordinal, &reports, said_in(&verdict.judgement), Amount::default());
        let report = AttemptReport::Judged(verdict.judgement);
        self.attempt_ended(id, ordinal, &report, Some(verdict.result), None, trace);
    }

    /// A task's message has no place for a conversation, so a turn cannot be carried on: the attempt fails
    /// in a way that no further attempt can mend.
    pub(super) fn on_task_turn(&mut self, id: &IntentId, turn: &TaskTurn, trace: &str) {
        let name =
            StepName { run: &turn.run, task_id: &turn.task_id, attempt: turn.attempt, step: turn.step };
        let Some(ordinal) = self.current(id, &name) else {
            return self.settled_late(id, &turn.task_id, turn.attempt, &[&turn.report]);
        };
        self.settle(id, ordinal, &[&turn.report], Said::All, Amount::default());
        let failure = Failure {
            code: "tools_unavailable".into(),
            message: "the agent asked for tools, and this installation runs none".into(),
            retryable: false,
        };
        self.attempt_ended(id, ordinal, &AttemptReport::Failed(failure), None, None, trace);
    }

    /// Applies what follows from the end of the present attempt.
    pub(super) fn attempt_ended(
        &mut self,
        id: &IntentId,
        ordinal: i32,
        report: &AttemptReport,
        result: Option<RecordRef>,
        output: Option<String>,
        trace: &str,
    ) {
        self.give_back(id, ordinal);
        let now = self.now;
        let Some(live) = self.store.live(id) else { return };
        let Some(task) = live.task(ordinal) else { return };
        let of_agent = self.settings.agents.get(&task.agent).and_then(|rules| rules.max_attempts);
        let max_attempts =
            of_agent.map_or(live.intent.max_attempts, |most| most.min(live.intent.max_attempts));
        let rules = AttemptRules {
            hurried: live.is_hurried(now),
            ..AttemptRules::new(&self.settings, max_attempts, live.intent.min_score)
        };
        let decision = judge_attempt(task, report, &rules, now);
        let answers = is_answer(live, task);
        let note = match decision {
            AttemptDecision::Accept { note: Some(RULE_BASED), .. } => {
                Some(format!("{RULE_BASED}:{}", task.key))
            }
            AttemptDecision::Accept { note: Some(note), .. } => Some(format!("{note}:{}", task.title)),
            AttemptDecision::KeepBest => Some(format!("low_score:{}", task.title)),
            _ => None,
        };
        self.edit_task(id, ordinal, |task| {
            note_report(task, report, result.as_ref());
            apply(task, &decision, result, now, trace);
        });
        if let Some(note) = note {
            self.add_note(id, note);
        }
        match decision {
            AttemptDecision::Retry { .. } => {
                self.counters.retries += 1;
                self.milestones.push(Milestone::Retried);
            }
            AttemptDecision::Accept { .. } if answers => self.answered(id, output.unwrap_or_default(), trace),
            AttemptDecision::Fail if answers => {
                let Some(live) = self.store.live(id) else { return };
                let reason = format!("no answer could be made: {}", first_failures(live));
                self.end_without_answer(id, reason, trace);
            }
            _ => self.task_ended(id, ordinal, trace),
        }
    }

    fn answered(&mut self, id: &IntentId, answer: String, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        let counts = live.counts();
        if live.run.over_budget {
            let reason = over_budget_reason(live);
            self.end(id, OutcomeStatus::OverBudget, answer, reason, trace);
        } else if counts.failed == 0 {
            self.end(id, OutcomeStatus::Succeeded, answer, String::new(), trace);
        } else {
            let first = first_failures(live);
            let reason = format!("{} of {} tasks have no result: {first}", counts.failed, counts.total);
            self.end(id, OutcomeStatus::Partial, answer, reason, trace);
        }
    }

    /// The task whose present step is meant; counts the input if there is none.
    fn current(&mut self, id: &IntentId, name: &StepName<'_>) -> Option<i32> {
        let found = find_current(self.store.live(id)?, name);
        found.map_err(|stale| self.counters.stale(stale)).ok()
    }
}

fn find_current(live: &Live, name: &StepName<'_>) -> Result<i32, Stale> {
    if live.run.run.as_ref() != Some(name.run) {
        let abandoned = live.run.abandoned.contains(name.run);
        return Err(if abandoned { Stale::Abandoned } else { Stale::Late });
    }
    let ordinal = live.ordinal(name.task_id).ok_or(Stale::Late)?;
    let task = live.task(ordinal).ok_or(Stale::Late)?;
    if (task.attempt, task.step) != (name.attempt, name.step) {
        Err(Stale::Late)
    } else if task.state != TaskState::Running {
        Err(Stale::Duplicate)
    } else {
        Ok(ordinal)
    }
}

/// Whether the task's result is the answer to its intent.
fn is_answer(live: &Live, task: &TaskEntity) -> bool {
    task.kind == TaskKind::Synthesis || live.is_single()
}

/// Keeps what an attempt brought, whatever is decided.
fn note_report(task: &mut TaskEntity, report: &AttemptReport, result: Option<&RecordRef>) {
    match report {
        AttemptReport::Done | AttemptReport::RuleBased => {}
        AttemptReport::Failed(failure) => task.failure = Some(failure.clone()),
        AttemptReport::Judged(judgement) => {
            let Ok((score, feedback)) = readable_score(judgement) else { return };
            task.last_score = Some(score);
            feedback.clone_into(&mut task.feedback);
            // As good as the best before is better: it knew the advice. So the feedback speaks of the best
            // attempt exactly if their scores are the same.
            let best = task.best.as_ref().and_then(|best| best.score);
            if let Some(result) = result
                && best.is_none_or(|best| score >= best)
            {
                task.best =
                    Some(BestAttempt { attempt: task.attempt, score: Some(score), result: result.clone() });
            }
        }
    }
}

fn apply(
    task: &mut TaskEntity,
    decision: &AttemptDecision,
    result: Option<RecordRef>,
    now: Timestamp,
    trace: &str,
) {
    task.state = match decision {
        AttemptDecision::Retry { .. } => TaskState::Ready,
        AttemptDecision::Accept { .. } | AttemptDecision::KeepBest => TaskState::Succeeded,
        AttemptDecision::Fail => TaskState::Failed,
    };
    match decision {
        AttemptDecision::Retry { not_before, .. } => task.not_before = *not_before,
        AttemptDecision::Accept { score, .. } => {
            if let Some(result) = result {
                task.best = Some(BestAttempt { attempt: task.attempt, score: *score, result });
            }
        }
        AttemptDecision::KeepBest | AttemptDecision::Fail => {}
    }
    if has_ended(task.state) {
        task.latency_ms = now.0.saturating_sub(task.started_at.0);
    }
    trace.clone_into(&mut task.trace);
}
