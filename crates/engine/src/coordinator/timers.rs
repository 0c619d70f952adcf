//! What happens when time goes by. Which timer an entity has follows from the entity: see `store.rs`.

use super::planning::PlanLoss;
use super::{AttemptReport, Coordinator};
use starling_protocol::state::{EntityKey, EntityKind};
use starling_protocol::{Failure, IntentId, OutcomeStatus, TaskId, TaskState, Timestamp};

impl Coordinator {
    /// Fires what is due, earliest first, a bounded number at a time.
    pub(super) fn on_tick(&mut self) {
        for _ in 0..self.settings.max_timers_per_tick {
            let Some(EntityKey { intent_id: id, kind, task_id }) = self.store.due(self.now) else { return };
            let trace = self.store.live(&id).map(|live| live.intent.trace.clone()).unwrap_or_default();
            match (kind, task_id) {
                (EntityKind::Intent, _) => {
                    let reason = "the deadline passed".to_owned();
                    self.end(&id, OutcomeStatus::Expired, String::new(), reason, &trace);
                }
                (EntityKind::Run, _) => {
                    self.note_uncounted(&id);
                    self.plan_again(&id, None, PlanLoss::Silent, &trace);
                }
                (EntityKind::Task, Some(task_id)) => self.on_task_timer(&id, &task_id, &trace),
                (EntityKind::Task, None) => {}
                (EntityKind::Ended, _) => self.store.remove_ended(&id),
                (EntityKind::Cancelled, _) => self.store.remove_cancelled(&id),
                (EntityKind::Purse, _) => self.on_purse_timer(&id),
                (EntityKind::Bank, _) => self.store.remove_bank(&id),
            }
        }
    }

    fn on_task_timer(&mut self, id: &IntentId, task_id: &TaskId, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        let Some(ordinal) = live.ordinal(task_id) else { return };
        match live.task(ordinal).map(|task| task.state) {
            Some(TaskState::Running) => {
                self.write_off_task(id, ordinal);
                let failure = Failure {
                    code: "attempt_timeout".into(),
                    message: "no worker answered in time".into(),
                    retryable: true,
                };
                self.attempt_ended(id, ordinal, &AttemptReport::Failed(failure), None, None, trace);
            }
            Some(TaskState::Ready) => self.edit_task(id, ordinal, |task| task.not_before = Timestamp(0)),
            _ => {}
        }
    }
}
