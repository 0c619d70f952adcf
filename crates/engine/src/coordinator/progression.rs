//! When a task may start, and when an intent is done. There are no barriers: a task starts as soon as what
//! it builds on has ended, also while the plan still comes in.

use super::Coordinator;
use super::live::{Live, has_ended};
use starling_protocol::state::{Phase, TaskEntity};
use starling_protocol::{Failure, IntentId, TaskState};

impl Coordinator {
    /// Lets a task that waits for nothing any more run, or skips it if nothing that it builds on succeeded.
    pub(super) fn release(&mut self, id: &IntentId, ordinal: i32, trace: &str) {
        if self.release_one(id, ordinal, trace) == TaskState::Skipped {
            self.task_ended(id, ordinal, trace);
        }
    }

    /// Does what the end of a task makes possible: releases others, or finishes the intent.
    pub(super) fn task_ended(&mut self, id: &IntentId, ordinal: i32, trace: &str) {
        let mut ended = vec![ordinal];
        while let Some(ordinal) = ended.pop() {
            let unblocked = self.store.live(id).map(|live| live.unblocked_by(ordinal)).unwrap_or_default();
            for dependant in unblocked {
                if self.release_one(id, dependant, trace) == TaskState::Skipped {
                    ended.push(dependant);
                }
            }
        }
        self.close_if_done(id, trace);
    }

    /// Makes the answer out of the results if all that they come from has ended, or fails the intent if there is none.
    pub(super) fn close_if_done(&mut self, id: &IntentId, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        let done = match live.run.phase {
            Phase::Running => live.plan_done(),
            Phase::Reducing => live.digests().all(|digest| has_ended(digest.state)),
            Phase::Waiting | Phase::Planning | Phase::Synthesizing => false,
        };
        if !done {
            return;
        }
        if live.succeeded() == 0 {
            let reason = format!("no task succeeded: {}", first_failures(live));
            return self.end_without_answer(id, reason, trace);
        }
        self.reduce(id, trace);
    }

    fn release_one(&mut self, id: &IntentId, ordinal: i32, trace: &str) -> TaskState {
        let can_run = self.store.live(id).is_some_and(|live| {
            live.task(ordinal).is_some_and(|task| {
                task.depends_on.is_empty()
                    || live.dependencies(task).any(|on| on.state == TaskState::Succeeded)
            })
        });
        let state = if can_run { TaskState::Ready } else { TaskState::Skipped };
        self.edit_task(id, ordinal, |task| {
            task.state = state;
            trace.clone_into(&mut task.trace);
            if !can_run {
                task.failure = Some(Failure {
                    code: "dependencies_failed".into(),
                    message: "nothing that it builds on succeeded".into(),
                    retryable: false,
                });
            }
        });
        state
    }
}

/// Names the first tasks without a result, with why.
pub(super) fn first_failures(live: &Live) -> String {
    const SHOWN: usize = 3;
    let failed = |task: &&TaskEntity| task.state == TaskState::Failed;
    let mut text = String::new();
    for task in live.tasks().filter(failed).take(SHOWN) {
        let why = task.failure.as_ref().map_or("no reason given", |failure| failure.message.as_str());
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&task.title);
        text.push_str(": ");
        text.extend(why.chars().take(500));
    }
    let more = live.tasks().filter(failed).count().saturating_sub(SHOWN);
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}
