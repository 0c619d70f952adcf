//! Asking for a plan, and its parts as they come.

use super::task::{Allowance, CallReport, Failure, TaskTerms};
use crate::{RecordRef, RunId};
use serde::{Deserialize, Serialize};

/// Ask the plan loop for a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRequest {
    /// Counts from 1; a plan that was refused is asked for again with feedback.
    pub plan_attempt: i32,
    /// The wish.
    pub goal: String,
    /// How to plan, see [`crate::Intent::strategy`].
    pub strategy: String,
    /// Most tasks in the plan.
    pub max_tasks: i32,
    /// The intent's own record, where inputs and items are read; absent where it has neither.
    pub intent_ref: Option<RecordRef>,
    /// Why the plan before was refused.
    pub feedback: Option<String>,
    /// What the planner's model calls may take; absent where that is not bounded.
    pub allowance: Option<Allowance>,
}

/// A part of a plan, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFragment {
    /// Echo of [`PlanRequest::plan_attempt`].
    pub plan_attempt: i32,
    /// Which execution of the planner speaks.
    pub run: RunId,
    /// Position within the run, from 0, without gaps.
    pub seq: i32,
    /// Tasks of this part.
    pub tasks: Vec<TaskSpec>,
    /// Present in the last fragment of a run.
    pub end: Option<PlanEnd>,
}

/// One node of a plan, as the planner writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Position in the plan, from 0.
    pub ordinal: i32,
    /// The planner's own name for it, unique within the plan; dependencies use it.
    pub key: String,
    /// A few words for people.
    pub title: String,
    /// What the agent is to do.
    pub instruction: String,
    /// Name of the agent.
    pub agent: String,
    /// Keys of tasks whose results this one needs. They may come in a later fragment.
    pub depends_on: Vec<String>,
    /// Whether a critic scores the result.
    pub critic: bool,
    /// What it reads, how long it may take, and what stands in for its output.
    pub terms: TaskTerms,
}

/// The end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanEnd {
    /// What the planner's model calls took.
    pub report: CallReport,
    /// Why there is no plan; absent if the plan is complete.
    pub failure: Option<Failure>,
    /// How the answer is to be made; absent where nothing but the goal says it.
    pub answer: Option<AnswerSpec>,
}

/// How a plan wants the answer to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerSpec {
    /// What to make of the results; empty where the goal says it.
    pub instruction: String,
    /// What it reads, how long it may take, and what stands in for it.
    pub terms: TaskTerms,
}
