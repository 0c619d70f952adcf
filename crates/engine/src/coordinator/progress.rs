//! What watchers see on the way: the first change at once, what follows it together after a while. A report
//! for each step would be a third of all records that a swarm writes.

use super::live::Live;
use super::message::public_tag;
use super::{Coordinator, Effect};
use starling_protocol::state::{Phase, TaskEntity};
use starling_protocol::{Body, EnvelopeId, IntentId, Progress, TaskProgress, TaskState, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What watchers have not been told. Soft state: a successor begins by telling what changes then.
#[derive(Clone, Debug, Default)]
pub(super) struct Untold {
    intents: BTreeMap<IntentId, Pending>,
    /// Intents with something to tell, by when it may be told.
    due: BTreeSet<(Timestamp, IntentId)>,
}

#[derive(Clone, Debug)]
struct Pending {
    phase: Phase,
    ordinals: BTreeSet<i32>,
    /// When the next report may follow.
    next: Timestamp,
}

impl Untold {
    /// When the next report is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn forget(&mut self, id: &IntentId) {
        if let Some(pending) = self.intents.remove(id) {
            self.due.remove(&(pending.next, id.clone()));
        }
    }

    fn note(&mut self, id: IntentId, phase: Phase, ordinals: BTreeSet<i32>, now: Timestamp) {
        let pending = self.intents.entry(id.clone()).or_insert_with(|| Pending {
            phase,
            ordinals: BTreeSet::new(),
            next: now,
        });
        pending.ordinals.extend(ordinals);
        if pending.phase != phase {
            // A new phase is what watchers wait for.
            self.due.remove(&(pending.next, id.clone()));
            pending.phase = phase;
            pending.next = now.min(pending.next);
        }
        self.due.insert((pending.next, id));
    }

    /// An intent whose report is due, with the tasks that it is about.
    fn take(&mut self, now: Timestamp, until_next: Duration) -> Option<(IntentId, BTreeSet<i32>)> {
        let (at, id) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.due.remove(&(at, id.clone()));
        let pending = self.intents.get_mut(&id)?;
        pending.next = now.plus(until_next);
        Some((id, std::mem::take(&mut pending.ordinals)))
    }
}

impl Coordinator {
    /// When a step is needed to tell watchers what they have not been told; may lie in the past.
    #[must_use]
    pub fn next_report(&self) -> Option<Timestamp> {
        self.untold.next()
    }

    /// Progress reports of live intents, as far as they are due. An end is reported by its outcome.
    pub(super) fn report_progress(&mut self) {
        for (id, ordinals) in std::mem::take(&mut self.touched) {
            if let Some(live) = self.store.live(&id) {
                self.untold.note(id, live.run.phase, ordinals, self.now);
            }
        }
        while let Some((id, ordinals)) = self.untold.take(self.now, self.settings.progress_interval) {
            let Some(live) = self.store.live(&id) else { continue };
            let changed = ordinals.iter().filter_map(|&ordinal| live.task(ordinal));
            let body = Body::Progress(Progress {
                phase: phase_name(live.run.phase).into(),
                tasks: live.counts(),
                changed: changed.map(|task| task_progress(live, task)).collect(),
            });
            let cause = [id.as_str(), &self.now.0.to_string(), &live.run.hop.to_string()];
            let envelope_id = EnvelopeId::derive("progress", &cause);
            let envelope = self.envelope(live, envelope_id, public_tag(&id), Timestamp::MAX, body);
            self.effects.push(Effect::Notify { envelope });
        }
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "waiting",
        Phase::Planning => "planning",
        Phase::Running => "running",
        Phase::Reducing => "reducing",
        Phase::Synthesizing => "synthesizing",
    }
}

fn task_progress(live: &Live, task: &TaskEntity) -> TaskProgress {
    let failed = matches!(task.state, TaskState::Failed | TaskState::Skipped);
    TaskProgress {
        task_id: task.task_id.clone(),
        ordinal: task.ordinal,
        title: task.title.clone(),
        agent: task.agent.clone(),
        state: task.state,
        attempt: task.attempt,
        score: task.best.as_ref().and_then(|best| best.score),
        depends_on: live.dependencies(task).map(|on| on.task_id.clone()).collect(),
        error: match &task.failure {
            Some(failure) if failed => format!("{}: {}", failure.code, failure.message),
            _ => String::new(),
        },
    }
}
