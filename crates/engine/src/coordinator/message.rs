//! Envelopes of an intent that is live, and asking for plans. Ids are derived: the same cause gives the
//! same id, also by another owner.

use super::{Coordinator, Destination, Effect, live::Live};
use starling_protocol::{Body, Envelope, EnvelopeId, IntentId, PlanRequest, Role, Tag, Timestamp};

impl Coordinator {
    pub(super) fn envelope(
        &self,
        live: &Live,
        id: EnvelopeId,
        tag: Tag,
        deadline: Timestamp,
        body: Body,
    ) -> Envelope {
        Envelope {
            id,
            intent_id: live.intent.intent_id.clone(),
            tag,
            hop: live.run.hop.saturating_add(1),
            created_at: self.now,
            deadline,
            tenant: live.intent.tenant.clone(),
            body,
        }
    }

    /// Asks for the plan attempt that the run entity names, or ends the intent if its budget does not cover it.
    pub(super) fn request_plan(&mut self, id: &IntentId, trace: &str) {
        let Some(allowance) = self.reserve_plan(id, trace) else { return };
        let Some(live) = self.store.live(id) else { return };
        let feedback = &live.run.plan_feedback;
        let body = Body::PlanRequest(PlanRequest {
            plan_attempt: live.run.plan_attempt,
            goal: live.intent.goal.clone(),
            strategy: live.intent.strategy.clone(),
            max_tasks: live.intent.max_tasks,
            intent_ref: live.intent.intent_ref.clone(),
            feedback: (!feedback.is_empty()).then(|| feedback.clone()),
            allowance,
        });
        let cause = [id.as_str(), &live.run.plan_attempt.to_string()];
        let envelope_id = EnvelopeId::derive("plan_request", &cause);
        let tag = Tag::role(Role::Planner).with_lane(id.as_str());
        let envelope = self.envelope(live, envelope_id, tag, live.intent.deadline, body);
        self.send(Destination::Planner, envelope, trace.to_owned());
    }

    pub(super) fn send(&mut self, to: Destination, envelope: Envelope, trace: String) {
        let priority = self.store.live(&envelope.intent_id).map(Live::priority).unwrap_or_default();
        self.effects.push(Effect::Send { to, envelope, trace, links: Vec::new(), priority });
    }
}

/// The tag of what is for everybody who follows an intent: outcomes, progress, cancellations. It names the
/// sender's lane, which is the intent.
pub(super) fn public_tag(id: &IntentId) -> Tag {
    Tag::role(Role::Coordinator).with_lane(id.as_str())
}
