//! The one record that services exchange.

use crate::body::{
    Cancel, Content, Intent, LeaseGrant, LeaseRequest, Outcome, PlanFragment, PlanRequest, Progress,
    Rejection, Task, TaskResult, TaskTurn, ToolReply, ToolRequest, Verdict,
};
use crate::{EnvelopeId, IntentId, Tag, Timestamp};
use serde::{Deserialize, Serialize};

/// What every value between services is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Derived from the cause: the same cause gives the same id.
    pub id: EnvelopeId,
    /// The intent that this belongs to; between coordinators, the address of a bank or a purse; of content, an address
    /// of its own.
    pub intent_id: IntentId,
    /// Who it is for.
    pub tag: Tag,
    /// How many envelopes lie between the intent and this one.
    pub hop: i32,
    /// When the cause was decided.
    pub created_at: Timestamp,
    /// When nobody needs it any more.
    pub deadline: Timestamp,
    /// Who pays.
    pub tenant: String,
    /// What is said.
    pub body: Body,
}

/// What an envelope says. The order of the variants is the order of the Avro union: append only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // one envelope at a time; boxing would show in every match
pub enum Body {
    /// A user's wish, validated.
    Intent(Intent),
    /// Input that cannot become an intent.
    Rejection(Rejection),
    /// Ask for a plan.
    PlanRequest(PlanRequest),
    /// A part of a plan.
    PlanFragment(PlanFragment),
    /// Do this.
    Task(Task),
    /// The model wants tools before it goes on.
    TaskTurn(TaskTurn),
    /// It is done, or failed.
    TaskResult(TaskResult),
    /// How good it is.
    Verdict(Verdict),
    /// Call these tools.
    ToolRequest(ToolRequest),
    /// What the tools said.
    ToolReply(ToolReply),
    /// What happened, for watchers.
    Progress(Progress),
    /// How the intent ended.
    Outcome(Outcome),
    /// Stop.
    Cancel(Cancel),
    /// What a partition holds and needs of a tenant's budget.
    LeaseRequest(LeaseRequest),
    /// What it gets.
    LeaseGrant(LeaseGrant),
    /// A part of a long text.
    Content(Content),
}

impl Body {
    /// The name of the body's kind, as in the schema.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Intent(_) => "Intent",
            Body::Rejection(_) => "Rejection",
            Body::PlanRequest(_) => "PlanRequest",
            Body::PlanFragment(_) => "PlanFragment",
            Body::Task(_) => "Task",
            Body::TaskTurn(_) => "TaskTurn",
            Body::TaskResult(_) => "TaskResult",
            Body::Verdict(_) => "Verdict",
            Body::ToolRequest(_) => "ToolRequest",
            Body::ToolReply(_) => "ToolReply",
            Body::Progress(_) => "Progress",
            Body::Outcome(_) => "Outcome",
            Body::Cancel(_) => "Cancel",
            Body::LeaseRequest(_) => "LeaseRequest",
            Body::LeaseGrant(_) => "LeaseGrant",
            Body::Content(_) => "Content",
        }
    }
}
