//! The bodies of an envelope, one file a conversation.

mod intent;
mod lease;
mod outcome;
mod plan;
mod task;
mod tool;
mod verdict;

pub use intent::{Cancel, Input, Intent, Limits, Rejection};
pub use lease::{LeaseGrant, LeaseRequest};
pub use outcome::{
    Latency, Outcome, OutcomeStatus, Progress, TaskCounts, TaskProgress, TaskReport, TaskState,
};
pub use plan::{PlanEnd, PlanFragment, PlanRequest, TaskSpec};
pub use task::{Allowance, CallReport, Dependency, Failure, Feedback, Task, TaskKind, TaskResult, Usage};
pub use tool::{TaskTurn, ToolCall, ToolOutput, ToolReply, ToolRequest};
pub use verdict::{Judgement, Scored, Unavailable, Unparseable, Verdict};
