//! The shapes of the chat-completions protocol, as a mock endpoint writes them.

use super::MockCall;
use super::prompt_cache::Counted;
use serde_json::{Value, json};
use starling_protocol::Usage;

/// The last event of a stream.
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// What all parts of one reply have in common.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    id: String,
    model: String,
    prompt: Counted,
}

impl Frame {
    pub(super) fn of(call: &MockCall) -> Frame {
        Frame { id: format!("mock-{}", call.number), model: call.model.clone(), prompt: call.prompt_tokens }
    }

    /// A whole reply with one choice.
    pub(super) fn completion(&self, message: Value, finish: Value, usage: Value) -> Value {
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        json!({
            "id": self.id, "object": "chat.completion", "model": self.model,
            "choices": [choice], "usage": usage,
        })
    }

    /// A whole reply that says this.
    pub(super) fn says(&self, text: &str, usage: Option<Usage>) -> Value {
        let message = json!({"role": "assistant", "content": text});
        self.completion(message, json!("stop"), self.usage(usage, text.len()))
    }

    /// A part of a stream with one choice.
    pub(super) fn chunk(&self, delta: Value, finish: Value) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        json!({
            "id": self.id, "object": "chat.completion.chunk", "model": self.model,
            "choices": [choice],
        })
    }

    /// A part of a stream that says this.
    pub(super) fn piece(&self, text: &str) -> Value {
        self.chunk(json!({"content": text}), Value::Null)
    }

    /// The part of a stream with which the model ends.
    pub(super) fn stop(&self) -> Value {
        self.chunk(json!({}), json!("stop"))
    }

    /// The part of a stream that counts, with these choices.
    pub(super) fn counts(&self, choices: Value, usage: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "model": self.model,
            "choices": choices, "usage": usage,
        })
    }

    /// Tokens as given, or by four characters a token.
    pub(super) fn usage(&self, usage: Option<Usage>, reply_chars: usize) -> Value {
        let usage = usage.unwrap_or_else(|| Usage {
            prompt_tokens: self.prompt.tokens,
            completion_tokens: crate::estimated_tokens(reply_chars),
            cached_tokens: self.prompt.cached,
        });
        json!({
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total(),
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        })
    }
}

/// An event of a stream.
pub(super) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
