//! Tool turns. A tool loop is a chain of envelopes, each one model call long.

use super::task::CallReport;
use crate::{RecordRef, RunId, TaskId};
use serde::{Deserialize, Serialize};

/// The model wants tools before it goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskTurn {
    /// Echo of the task.
    pub task_id: TaskId,
    /// Echo of the task.
    pub run: RunId,
    /// Echo of the task.
    pub attempt: i32,
    /// Echo of the task.
    pub step: i32,
    /// What the model said beside its calls.
    pub text: String,
    /// The calls it wants.
    pub calls: Vec<ToolCall>,
    /// What the model calls took.
    pub report: CallReport,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's id of the call, replayed exactly.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
}

/// Call these tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    /// For which task.
    pub task_id: TaskId,
    /// Its run.
    pub run: RunId,
    /// Its attempt.
    pub attempt: i32,
    /// Its step.
    pub step: i32,
    /// The calls.
    pub calls: Vec<ToolCall>,
    /// The turn that asked.
    pub turn: RecordRef,
}

/// What the tools said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolReply {
    /// Echo of the request.
    pub task_id: TaskId,
    /// Echo of the request.
    pub run: RunId,
    /// Echo of the request.
    pub attempt: i32,
    /// Echo of the request.
    pub step: i32,
    /// One for each call, in order.
    pub outputs: Vec<ToolOutput>,
}

/// The result of one tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Which call.
    pub call_id: String,
    /// What the tool returned, or the error as text.
    pub content: String,
    /// Whether `content` is an error.
    pub is_error: bool,
}
