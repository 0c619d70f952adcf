//! What watchers see on the way.

use super::live::Live;
use super::message::public_tag;
use super::{Coordinator, Effect};
use starling_protocol::state::{Phase, TaskEntity};
use starling_protocol::{Body, EnvelopeId, Progress, TaskProgress, TaskState, Timestamp};

impl Coordinator {
    /// One progress report for each live intent that this step changed. An end was reported by its outcome.
    pub(super) fn report_progress(&mut self) {
        for (id, ordinals) in std::mem::take(&mut self.touched) {
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
