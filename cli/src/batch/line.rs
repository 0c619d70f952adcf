//! A line of the output: what became of a row.

use super::identity::{BatchTag, Instance};
use serde::{Deserialize, Serialize};
use starling_protocol::Outcome;

/// How a row ended that succeeded.
pub(super) const SUCCEEDED: &str = "succeeded";
/// How a row ended that could not be submitted, or of which nothing was heard.
const FAILED: &str = "failed";

/// One JSON object, the contract with whoever reads the output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// The row's intent.
    pub(super) id: String,
    /// The row's number in the input, from 1.
    pub(super) row: u64,
    /// Its column `id`, or a digest of what is in it.
    pub(super) key: String,
    /// An outcome's status.
    pub(super) status: String,
    /// The answer; empty if there is none.
    pub(super) answer: String,
    /// Why it did not succeed; empty if it did.
    pub(super) reason: String,
    /// Cost in US dollars, without calls that have no price.
    pub(super) cost_usd: f64,
    /// Those calls.
    pub(super) unpriced_calls: i64,
    /// Model calls.
    pub(super) calls: i64,
    /// Tokens, sent and received.
    pub(super) tokens: i64,
    /// What was left out or done more cheaply.
    pub(super) degraded: Vec<String>,
}

/// What a later run needs to know of a line.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) cost_usd: f64,
    #[serde(default)]
    pub(super) unpriced_calls: i64,
}

/// A row, as its line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowName {
    pub(super) instance: Instance,
    pub(super) number: u64,
    pub(super) key: String,
}

impl Line {
    /// The line of a row whose intent has ended.
    pub(super) fn of_outcome(tag: &BatchTag, row: &RowName, outcome: Outcome) -> Self {
        let tokens = outcome.usage.prompt_tokens.saturating_add(outcome.usage.completion_tokens);
        Self {
            status: outcome.status.name().to_owned(),
            answer: outcome.answer,
            reason: outcome.reason,
            cost_usd: outcome.cost_usd,
            unpriced_calls: outcome.unpriced_calls,
            calls: outcome.calls,
            tokens,
            degraded: outcome.degraded,
            ..Self::failed(tag, row, String::new())
        }
    }

    /// The line of a row that came to nothing.
    pub(super) fn failed(tag: &BatchTag, row: &RowName, reason: String) -> Self {
        Self {
            id: tag.intent_id(row.instance).as_str().to_owned(),
            row: row.number,
            key: row.key.clone(),
            status: FAILED.to_owned(),
            answer: String::new(),
            reason,
            cost_usd: 0.0,
            unpriced_calls: 0,
            calls: 0,
            tokens: 0,
            degraded: Vec::new(),
        }
    }

    /// Whether there is an answer, though work was left out.
    pub(super) fn has_answer(&self) -> bool {
        !self.answer.is_empty()
    }

    pub(super) fn succeeded(&self) -> bool {
        self.status == SUCCEEDED
    }
}
