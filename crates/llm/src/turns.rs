//! The turns of a conversation, and the tools that a model may call in it.

use serde_json::Value;
use std::sync::Arc;

/// Who speaks, and what comes with the words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Speaker {
    /// Standing orders.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant(Deeds),
    /// A tool, whose result the text is.
    Tool {
        /// The [`ToolCall::id`] that it answers.
        call_id: String,
    },
}

/// What a model did beside saying something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deeds {
    /// The tools that it called. Each wants its result before anything else is said.
    pub calls: Vec<ToolCall>,
    /// What it thought, as it was given; `None` if nothing of the sort came. Sent again only where a provider wants it.
    pub reasoning: Option<String>,
}

/// One call of a tool, as the model made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolCall {
    /// Its id, which its result and every repetition of the conversation must have.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// A JSON object, in the model's own words.
    pub arguments: String,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Letters, digits, `_` and `-`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Arc<Value>,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Who speaks.
    pub speaker: Speaker,
    /// The text; may be empty only where a model calls tools.
    pub text: String,
}

impl Message {
    /// Standing orders.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self { speaker: Speaker::System, text: text.into() }
    }

    /// A question.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { speaker: Speaker::User, text: text.into() }
    }

    /// Words of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { speaker: Speaker::Assistant(Deeds::default()), text: text.into() }
    }

    /// The result of a call.
    #[must_use]
    pub fn tool(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { speaker: Speaker::Tool { call_id: call_id.into() }, text: text.into() }
    }

    /// The calls of tools in it.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        match &self.speaker {
            Speaker::Assistant(deeds) => &deeds.calls,
            _ => &[],
        }
    }

    /// All text of it that a model reads: what is said, and the names and arguments of the tools that are called.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let calls = self.calls().iter().flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
        std::iter::once(self.text.as_str()).chain(calls)
    }

    /// Bytes of all text of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.texts().map(str::len).sum()
    }
}
