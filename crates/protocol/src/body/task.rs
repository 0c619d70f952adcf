//! A task for a worker, and what comes back.

use crate::{RecordRef, RunId, Tag, TaskId};
use serde::{Deserialize, Serialize};

/// What sort of node a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaskKind {
    /// A node of the plan.
    Work,
    /// Makes the answer out of the results.
    Synthesis,
    /// Condenses results that are too many for one prompt.
    Reduce,
}

/// Do this. Carries references to what it needs, never the outputs themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Which task.
    pub task_id: TaskId,
    /// The run that planned it.
    pub run: RunId,
    /// Sort of node.
    pub kind: TaskKind,
    /// Counts from 1.
    pub attempt: i32,
    /// Turn of the tool loop, from 0.
    pub step: i32,
    /// A few words for people.
    pub title: String,
    /// Name of the agent.
    pub agent: String,
    /// The user's wish.
    pub goal: String,
    /// What to do.
    pub instruction: String,
    /// The intent's own record, where inputs and items are read; absent where it has neither.
    pub intent_ref: Option<RecordRef>,
    /// Results to build on.
    pub dependencies: Vec<Dependency>,
    /// What was wrong with the attempt before.
    pub feedback: Option<Feedback>,
    /// Where a good result goes. A failed one always goes to the coordinator.
    pub next_tag: Tag,
    /// Score below which the coordinator will try again; the critic is told.
    pub min_score: f64,
    /// What the worker's model calls may take; absent where that is not bounded.
    pub allowance: Option<Allowance>,
    /// The same for the critic, to whom it is passed on.
    pub critic_allowance: Option<Allowance>,
    /// What it reads, how long it may take, and what stands in for its output.
    pub terms: TaskTerms,
    /// Whether no attempt comes after this one, so that a failure of any kind is for good.
    pub last_attempt: bool,
}

/// What a task reads of its intent, how long it may take, and what stands in for its output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTerms {
    /// Which of the items of the intent it reads; absent for all.
    pub items: Option<IndexRange>,
    /// Which of the inputs of the intent it reads; absent for all.
    pub inputs: Option<IndexRange>,
    /// How long its model call may take, in milliseconds; absent where only the deadline bounds it.
    pub timeout_ms: Option<i64>,
    /// Its output where the model is too slow or fails for good; absent where it fails then.
    pub fallback: Option<Fallback>,
    /// Which parts of the inputs it reads, and then whole or not at all; absent where `inputs` says it.
    pub parts: Option<PartRange>,
}

/// Some of the parts of the inputs of an intent, counted through all of them in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRange {
    /// The first, from 0.
    pub from: i32,
    /// The first that is not in it any more.
    pub to: i32,
    /// Estimated tokens of all of them.
    pub tokens: i64,
}

/// Positions in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRange {
    /// The first, from 0.
    pub from: i32,
    /// The first that is not in it any more.
    pub to: i32,
}

impl IndexRange {
    /// None of a list.
    pub const NONE: Self = Self { from: 0, to: 0 };

    /// Those of `list` that are meant; positions that it does not have are none.
    #[must_use]
    pub fn of<'l, T>(range: Option<&Self>, list: &'l [T]) -> &'l [T] {
        let Some(Self { from, to }) = range else { return list };
        let place = |at: &i32| usize::try_from(*at).unwrap_or(0).min(list.len());
        list.get(place(from)..place(to)).unwrap_or_default()
    }
}

/// The output of a task, by rule, where the model gives none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// The output.
    pub text: String,
    /// Whether the results that the task builds on follow it, one after the other.
    pub with_results: bool,
}

/// What the model calls of one step may take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allowance {
    /// Calls, retries included.
    pub calls: i64,
    /// Tokens, sent and received; absent where they are not bounded.
    pub tokens: Option<i64>,
    /// Cost in US dollars; absent where it is not bounded.
    pub cost_usd: Option<f64>,
}

impl Allowance {
    /// What is left of it after `report`.
    #[must_use]
    pub fn after(&self, report: &CallReport) -> Self {
        let taken = report.usage.total();
        Self {
            calls: self.calls.saturating_sub(report.calls).max(0),
            tokens: self.tokens.map(|most| most.saturating_sub(taken).max(0)),
            cost_usd: self.cost_usd.map(|most| (most - report.cost_usd).max(0.0)),
        }
    }
}

impl CallReport {
    /// What both took, where this one came after `earlier` and gave the answer.
    #[must_use]
    pub fn after(mut self, earlier: &CallReport) -> Self {
        let sum = i64::saturating_add;
        self.usage.add(earlier.usage);
        Self {
            offline: earlier.offline || self.offline,
            calls: sum(self.calls, earlier.calls),
            cost_usd: self.cost_usd + earlier.cost_usd,
            latency_ms: sum(self.latency_ms, earlier.latency_ms),
            unpriced_calls: sum(self.unpriced_calls, earlier.unpriced_calls),
            cached_calls: sum(self.cached_calls, earlier.cached_calls),
            cached_prompt_tokens: sum(self.cached_prompt_tokens, earlier.cached_prompt_tokens),
            ..self
        }
    }
}

/// A task that another builds on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dependency {
    /// Which task.
    pub task_id: TaskId,
    /// Its title.
    pub title: String,
    /// Where its result lies; absent if it failed.
    pub result: Option<RecordRef>,
    /// Why there is no result.
    pub failure: Option<Failure>,
    /// By which the answer cites it, from 1; 0 where it has none.
    pub number: i32,
}

/// What a critic said of an earlier attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Feedback {
    /// Its score, 0 to 1.
    pub score: f64,
    /// What to do better.
    pub text: String,
    /// The attempt it speaks of.
    pub result: Option<RecordRef>,
}

/// The result of one attempt. Sent to the critic, or straight to the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Echo of the task.
    pub task_id: TaskId,
    /// Echo of the task.
    pub run: RunId,
    /// Echo of the task.
    pub kind: TaskKind,
    /// Echo of the task.
    pub attempt: i32,
    /// Echo of the task.
    pub step: i32,
    /// Echo of the task, for the critic.
    pub title: String,
    /// Echo of the task, for the critic.
    pub agent: String,
    /// Echo of the task, for the critic.
    pub goal: String,
    /// Echo of the task, for the critic.
    pub instruction: String,
    /// Echo of the task, for the critic.
    pub min_score: f64,
    /// The text; empty if failed.
    pub output: String,
    /// Why there is no output.
    pub failure: Option<Failure>,
    /// What the model calls took.
    pub report: CallReport,
    /// Which process did it.
    pub worker: String,
    /// Echo of the task, for the critic.
    pub critic_allowance: Option<Allowance>,
    /// Whether the output is the fallback of the task, because the model was too slow or failed for good.
    pub rule_based: bool,
}

/// A failure that is data: somebody else decides what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Machine-readable kind, such as `rate_limited`, `context_too_long`, `record_gone`.
    pub code: String,
    /// For people: what happened and what to do.
    pub message: String,
    /// Whether another attempt can help.
    pub retryable: bool,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent.
    pub prompt_tokens: i64,
    /// Tokens received.
    pub completion_tokens: i64,
    /// Those of the prompt tokens that the provider had in its prompt cache.
    pub cached_tokens: i64,
}

impl Usage {
    /// Adds what another call took.
    pub fn add(&mut self, other: Usage) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }

    /// Tokens sent and received.
    #[must_use]
    pub fn total(self) -> i64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// The share of prompt tokens, 0 to 1, that did not have to be read anew: what the provider had in its prompt cache,
    /// and the prompts of replies that were there already, which have `cached_prompt_tokens`. 0 where there were none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // far below 2^52 tokens
    pub fn context_reuse(self, cached_prompt_tokens: i64) -> f64 {
        let all = self.prompt_tokens.saturating_add(cached_prompt_tokens);
        let reused = self.cached_tokens.saturating_add(cached_prompt_tokens);
        if all <= 0 { 0.0 } else { (reused as f64 / all as f64).clamp(0.0, 1.0) }
    }
}

/// What the model calls of one step took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallReport {
    /// The model that answered last.
    pub model: String,
    /// Whether that was the offline model, which is no LLM.
    pub offline: bool,
    /// Calls made, retries included.
    pub calls: i64,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Cost in US dollars by the configured prices, without unpriced calls.
    pub cost_usd: f64,
    /// From start to end of the step, in milliseconds.
    pub latency_ms: i64,
    /// Those of the calls of which nobody knows what they cost, mostly because their model has no price.
    pub unpriced_calls: i64,
    /// Questions answered without a call: by the response cache, or by the reply to an equal question. Not among the
    /// calls.
    pub cached_calls: i64,
    /// Prompt tokens of those replies, which are not in `usage`.
    pub cached_prompt_tokens: i64,
}
