//! Effects that the broker refuses for good, a record that is too large above all. They end what they
//! belong to and are never tried again.

use super::admission::Header;
use super::outcome::{OUTCOME, empty_outcome};
use super::{AttemptReport, Coordinator, Destination, Milestone};
use starling_protocol::state::EndedEntity;
use starling_protocol::{Body, EnvelopeId, Failure, IntentId, OutcomeStatus, TaskId};

impl Coordinator {
    pub(super) fn on_effect_refused(
        &mut self,
        envelope_id: &EnvelopeId,
        id: &IntentId,
        task_id: Option<&TaskId>,
        reason: &str,
    ) {
        self.counters.refused_effects += 1;
        let Some(live) = self.store.live(id) else {
            return self.on_outcome_refused(envelope_id, id, reason);
        };
        let trace = live.intent.trace.clone();
        let Some(task_id) = task_id else {
            let current =
                EnvelopeId::derive("plan_request", &[id.as_str(), &live.run.plan_attempt.to_string()]);
            if *envelope_id == current {
                let reason = format!("the plan could not be asked for: {reason}");
                self.end(id, OutcomeStatus::Failed, String::new(), reason, &trace);
            }
            return;
        };
        let Some(ordinal) = live.ordinal(task_id) else { return };
        let current = live.task(ordinal).is_some_and(|task| {
            task.state == starling_protocol::TaskState::Running
                && EnvelopeId::of_step("task", task_id, task.attempt, task.step) == *envelope_id
        });
        if current {
            let failure = Failure {
                code: "undeliverable".into(),
                message: format!("the task could not be sent to a worker: {reason}"),
                retryable: false,
            };
            self.attempt_ended(id, ordinal, &AttemptReport::Failed(failure), None, None, &trace);
        }
    }

    /// An outcome that never got out, because its answer is too large, is replaced by one without answer.
    /// The replacement has another id, so its own refusal ends the matter.
    fn on_outcome_refused(&mut self, envelope_id: &EnvelopeId, id: &IntentId, reason: &str) {
        let Some(ended) = self.store.ended(id) else { return };
        if *envelope_id != EnvelopeId::derive(OUTCOME, &[id.as_str()]) {
            return;
        }
        let (status, ended) = (OutcomeStatus::Failed, ended.clone());
        let header = Header {
            intent_id: id.clone(),
            hop: 0,
            created_at: self.now,
            deadline: self.now,
            tenant: ended.tenant.clone(),
        };
        self.counters.outcome(status);
        self.milestones.push(Milestone::Ended { status, took: None });
        self.store.insert_ended(EndedEntity { status, ..ended });
        let outcome = empty_outcome(status, format!("the outcome could not be published: {reason}"), "");
        let body = Body::Outcome(outcome);
        self.publish(Destination::Outcomes, "outcome_replacement", &header, body, "");
    }
}
