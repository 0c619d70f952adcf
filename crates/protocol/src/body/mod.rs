//! The bodies of an envelope, one file a conversation.

mod content;
mod intent;
mod lease;
mod outcome;
mod plan;
mod strategy;
mod task;
mod tool;
mod verdict;

pub use content::Content;
pub use intent::{Cancel, Input, Intent, Limits, Rejection};
pub use lease::{LeaseGrant, LeaseRequest};
pub use outcome::{
    Latency, Outcome, OutcomeStatus, Progress, TaskCounts, TaskProgress, TaskReport, TaskState,
};
pub use plan::{AnswerSpec, PlanEnd, PlanFragment, PlanRequest, TaskSpec};
pub use strategy::{MAX_PLAYBOOK_NAME_BYTES, PlanStrategy, UnknownStrategy, is_slug};
pub use task::{
    Allowance, CallReport, Dependency, Failure, Fallback, Feedback, IndexRange, PartRange, Task, TaskKind,
    TaskResult, TaskTerms, Usage,
};
pub use tool::{TaskTurn, ToolCall, ToolOutput, ToolReply, ToolRequest};
pub use verdict::{Judgement, Scored, Unavailable, Unparseable, Verdict};
