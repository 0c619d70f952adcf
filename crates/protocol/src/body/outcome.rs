//! What users read: progress on the way, and the outcome.

use super::task::Usage;
use crate::TaskId;
use serde::{Deserialize, Serialize};

/// How an intent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    /// All tasks succeeded and there is an answer.
    Succeeded,
    /// There is an answer, but tasks failed.
    Partial,
    /// There is no answer.
    Failed,
    /// Stopped by the user.
    Cancelled,
    /// The deadline passed.
    Expired,
    /// The budget did not cover all of the work. There is an answer if there were results.
    OverBudget,
    /// The input was no valid intent.
    Rejected,
}

impl OutcomeStatus {
    /// Every way in which an intent can end.
    pub const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Partial,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
        Self::OverBudget,
        Self::Rejected,
    ];

    /// The status as it stands in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OutcomeStatus::Succeeded => "succeeded",
            OutcomeStatus::Partial => "partial",
            OutcomeStatus::Failed => "failed",
            OutcomeStatus::Cancelled => "cancelled",
            OutcomeStatus::Expired => "expired",
            OutcomeStatus::OverBudget => "over_budget",
            OutcomeStatus::Rejected => "rejected",
        }
    }
}

/// The end of an intent, with everything that a report needs. With `intent_id` in front, its JSON is the
/// contract of `starling run --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: OutcomeStatus,
    /// The answer; empty if there is none.
    pub answer: String,
    /// Why it did not succeed, for people; empty if it did.
    pub reason: String,
    /// The model that made the answer, or the last one that was called.
    pub model: String,
    /// Whether the offline model, which is no LLM, answered any of it.
    pub offline: bool,
    /// How many tasks.
    pub tasks: TaskCounts,
    /// Model calls, retries, planner, critics and synthesis included.
    pub calls: i64,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Cost in US dollars, without unpriced calls.
    pub cost_usd: f64,
    /// Times in milliseconds.
    pub latency_ms: Latency,
    /// The trace of the intent, 32 hex digits.
    pub trace_id: String,
    /// What was left out or done more cheaply, such as `critic_unavailable:<task>`.
    pub degraded: Vec<String>,
    /// One for each task of the plan, in its order, then the synthesis.
    pub task_reports: Vec<TaskReport>,
    /// Those of the calls of which nobody knows what they cost, mostly because their model has no price.
    pub unpriced_calls: i64,
    /// Questions answered without a call: by the response cache, or by the reply to an equal question. Not among the
    /// calls.
    pub cached_calls: i64,
    /// Prompt tokens of those replies, which are not in `usage`.
    pub cached_prompt_tokens: i64,
    /// How it was planned: `llm`, `single`, `map` or `playbook:<name>`, also where the intent left that open; empty if it
    /// never came to that.
    pub strategy: String,
}

impl Outcome {
    /// What all calls cost in US dollars, if that is known.
    #[must_use]
    pub fn known_cost(&self) -> Option<f64> {
        (self.unpriced_calls == 0).then_some(self.cost_usd)
    }

    /// The share of prompt tokens, 0 to 1, that was reused: see [`Usage::context_reuse`].
    #[must_use]
    pub fn context_reuse(&self) -> f64 {
        self.usage.context_reuse(self.cached_prompt_tokens)
    }
}

/// Counts of the plan's tasks, without the synthesis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// All.
    pub total: i32,
    /// Those with an accepted result.
    pub succeeded: i32,
    /// Those without one.
    pub failed: i32,
}

/// Times of an intent, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// From acceptance to the end.
    pub wall: i64,
    /// Median over the tasks' times.
    pub p50: i64,
    /// 99th percentile over the tasks' times.
    pub p99: i64,
    /// Sum of all model steps' times: what one agent alone would have taken.
    pub serial_sum: i64,
}

/// What became of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Which task.
    pub task_id: TaskId,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// Where it ended.
    pub status: TaskState,
    /// Attempts made.
    pub attempts: i32,
    /// Score of the result that was kept; absent if nobody scored it.
    pub score: Option<f64>,
    /// From first dispatch to the end, in milliseconds.
    pub latency_ms: i64,
    /// Ids of the tasks that it was built on.
    pub depends_on: Vec<TaskId>,
    /// Why it failed; empty if it did not.
    pub error: String,
    /// Whether the answer cites it.
    pub cited: bool,
}

/// The states of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for others.
    Waiting,
    /// Could run, waits for a place.
    Ready,
    /// Sent to a worker.
    Running,
    /// Has an accepted result.
    Succeeded,
    /// Has none and gets none.
    Failed,
    /// Was not run, because the intent ended or what it needs failed.
    Skipped,
}

/// What happened since the last one; best effort, never needed for the outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// `waiting`, `planning`, `running`, `synthesizing` or an outcome status.
    pub phase: String,
    /// Counts so far.
    pub tasks: TaskCounts,
    /// Tasks that changed.
    pub changed: Vec<TaskProgress>,
}

/// The present state of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Which task.
    pub task_id: TaskId,
    /// Position in the plan.
    pub ordinal: i32,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// Its state.
    pub state: TaskState,
    /// Its present attempt, from 1; 0 before the first.
    pub attempt: i32,
    /// Score of the best attempt so far.
    pub score: Option<f64>,
    /// Ids of the tasks that it builds on, as far as they are known.
    pub depends_on: Vec<TaskId>,
    /// Why it failed; empty if it did not.
    pub error: String,
}
