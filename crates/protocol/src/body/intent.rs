//! What users send.

use crate::RecordRef;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a user wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The wish, in words.
    pub goal: String,
    /// How to plan, in the words of [`crate::PlanStrategy`].
    pub strategy: String,
    /// 0 (batch) to 9 (somebody waits); 5 where the user says nothing.
    pub priority: i32,
    /// Bounds set by the user.
    pub limits: Limits,
    /// Files and other texts that come with the wish.
    pub inputs: Vec<Input>,
    /// Things to treat one by one.
    pub items: Vec<String>,
    /// Named values that come with the wish, above all for a playbook. Each is a text; a list is a JSON array as text.
    pub parameters: BTreeMap<String, String>,
}

/// Bounds of an intent; what is absent is taken from the settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Most tasks in the plan, 1 to 100.
    pub max_tasks: Option<i32>,
    /// Most attempts for one task, 1 to 10.
    pub max_attempts: Option<i32>,
    /// Score from 0 to 1 below which a result is tried again.
    pub min_score: Option<f64>,
    /// Most model calls, retries included.
    pub max_calls: Option<i64>,
    /// Most tokens, sent and received.
    pub max_tokens: Option<i64>,
    /// Most that the model calls may cost, in US dollars.
    pub max_cost_usd: Option<f64>,
    /// Milliseconds after its acceptance from which on results are taken as they come: no critic, no further attempt for
    /// a better score.
    pub degrade_after_ms: Option<i64>,
}

/// A named text that comes with an intent: in its record, or in parts of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// File name or other label, unique within the intent.
    pub name: String,
    /// Media type, such as `text/csv`.
    pub media_type: String,
    /// The text; empty where it lies in parts.
    pub content: String,
    /// Where its parts lie, in their order, each a [`crate::Content`]; none where the text is in `content`.
    pub chunks: Vec<RecordRef>,
}

impl Input {
    /// How many parts it has: a text that is in the record itself is one.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.chunks.len().max(1)
    }

    /// Whether its text lies elsewhere.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Estimated tokens of its text.
    #[must_use]
    pub fn tokens(&self) -> i64 {
        let stored: i64 = self.chunks.iter().map(|chunk| chunk.tokens).fold(0, i64::saturating_add);
        stored.saturating_add(i64::try_from(self.content.len().div_ceil(4)).unwrap_or(i64::MAX))
    }
}

/// Input that cannot become an intent; the coordinator answers it with a rejected outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    /// Machine-readable reason, such as `invalid_intent`.
    pub code: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Stop an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cancel {
    /// Why, in words.
    pub reason: String,
}
