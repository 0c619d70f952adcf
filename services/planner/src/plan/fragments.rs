//! Puts a run's tasks into fragments and sends them.

use starling_protocol::{
    Body, Envelope, EnvelopeId, PlanEnd, PlanFragment, Role, RunId, Tag, TaskSpec, Timestamp,
};
use starling_runtime::{Emission, Outbox};

/// One run of the planner, on its way out.
pub(super) struct Fragments<'a> {
    request: &'a Envelope,
    plan_attempt: i32,
    run: RunId,
    outbox: &'a Outbox,
    max_bytes: usize,
    seq: i32,
    /// Tasks given so far, waiting ones included.
    tasks: i32,
    waiting: Vec<TaskSpec>,
    waiting_bytes: usize,
    /// The fragment that was sent last.
    last: Option<Emission>,
}

impl<'a> Fragments<'a> {
    /// A run that has said nothing. A fragment holds about `max_bytes` of text at most.
    pub(super) fn new(
        request: &'a Envelope,
        plan_attempt: i32,
        run: RunId,
        outbox: &'a Outbox,
        max_bytes: usize,
    ) -> Self {
        Self {
            request,
            plan_attempt,
            run,
            outbox,
            max_bytes,
            seq: 0,
            tasks: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            last: None,
        }
    }

    /// The ordinal of the next task, which is also the number of tasks given.
    pub(super) fn ordinal(&self) -> i32 {
        self.tasks
    }

    /// Adds a task to the fragment that is being gathered.
    pub(super) async fn add(&mut self, task: TaskSpec, now: Timestamp) {
        let fallback = task.terms.fallback.as_ref().map_or(0, |fallback| fallback.text.len());
        let bytes = task.instruction.len() + task.title.len() + task.key.len() + fallback;
        if !self.waiting.is_empty() && self.waiting_bytes + bytes > self.max_bytes {
            self.flush(now).await;
        }
        self.waiting_bytes += bytes;
        self.waiting.push(task);
        self.tasks = self.tasks.saturating_add(1);
    }

    /// Sends what was gathered.
    pub(super) async fn flush(&mut self, now: Timestamp) {
        if !self.waiting.is_empty() {
            self.send(None, now).await;
        }
    }

    /// Sends what was gathered with the end of the run.
    pub(super) async fn end(mut self, end: PlanEnd, now: Timestamp) {
        self.send(Some(end), now).await;
    }

    async fn send(&mut self, end: Option<PlanEnd>, now: Timestamp) {
        let fragment = PlanFragment {
            plan_attempt: self.plan_attempt,
            run: self.run.clone(),
            seq: self.seq,
            tasks: std::mem::take(&mut self.waiting),
            end,
        };
        self.seq = self.seq.saturating_add(1);
        self.waiting_bytes = 0;
        // One after the other: those behind one that has to be sent again would overtake it, and to the coordinator a
        // gap is a plan of which something is lost. If one cannot be sent at all, the request is handled again.
        if let Some(last) = self.last.take() {
            let _ = last.await;
        }
        // The record counts as done only when this is acknowledged, too.
        self.last = Some(self.outbox.emit(fragment_envelope(self.request, fragment, now)));
    }
}

/// The envelope of a fragment.
pub(super) fn fragment_envelope(request: &Envelope, fragment: PlanFragment, now: Timestamp) -> Envelope {
    let intent = &request.intent_id;
    Envelope {
        id: EnvelopeId::derive(
            "fragment",
            &[intent.as_str(), fragment.run.as_str(), &fragment.seq.to_string()],
        ),
        intent_id: intent.clone(),
        tag: Tag::role(Role::Coordinator).with_lane(intent.as_str()),
        hop: request.hop.saturating_add(1),
        created_at: now,
        deadline: request.deadline,
        tenant: request.tenant.clone(),
        body: Body::PlanFragment(fragment),
    }
}
