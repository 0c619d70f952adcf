//! The shapes of the chat-completions protocol, as a mock endpoint writes them.

use super::MockCall;
use super::prompt_cache::Counted;
use super::rehearsal::pieces;
use crate::{Deeds, ToolCall};
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

    /// A whole reply that calls tools.
    pub(super) fn calls(&self, text: &str, deeds: &Deeds) -> Value {
        let calls: Vec<Value> = deeds.calls.iter().map(|call| whole_call(call, None)).collect();
        let mut message = json!({"role": "assistant", "content": text, "tool_calls": calls});
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        if let Some(reasoning) = &deeds.reasoning {
            message["reasoning_content"] = json!(reasoning);
        }
        self.completion(message, json!("tool_calls"), self.usage(None, length(text, deeds)))
    }

    /// The same as the events of a stream: ids and names come once, arguments in pieces, those of all calls in turn.
    pub(super) fn streamed_calls(&self, text: &str, deeds: &Deeds, counts: bool) -> Vec<String> {
        let mut deltas = Vec::new();
        for piece in deeds.reasoning.iter().flat_map(|thought| pieces(thought, CALL_PIECES)) {
            deltas.push(json!({"reasoning_content": piece, "content": Value::Null}));
        }
        deltas.extend(pieces(text, CALL_PIECES).into_iter().map(|piece| json!({"content": piece})));
        let begun = deeds.calls.iter().enumerate().map(|(index, call)| {
            let call = ToolCall { arguments: String::new(), ..call.clone() };
            json!({"tool_calls": [whole_call(&call, Some(index))]})
        });
        deltas.extend(begun);
        let arguments: Vec<_> = deeds.calls.iter().map(|call| pieces(&call.arguments, CALL_PIECES)).collect();
        for at in 0..CALL_PIECES {
            let at_once = arguments.iter().enumerate().filter_map(|(index, pieces)| {
                Some(json!({"index": index, "function": {"arguments": pieces.get(at)?}}))
            });
            let at_once: Vec<Value> = at_once.collect();
            if !at_once.is_empty() {
                deltas.push(json!({"tool_calls": at_once}));
            }
        }
        let mut events: Vec<String> =
            deltas.into_iter().map(|delta| event(&self.chunk(delta, Value::Null))).collect();
        events.push(event(&self.chunk(json!({}), json!("tool_calls"))));
        if counts {
            events.push(event(&self.counts(json!([]), self.usage(None, length(text, deeds)))));
        }
        events.push(DONE.to_owned());
        events
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

/// Pieces of the arguments of a call.
const CALL_PIECES: usize = 3;

fn whole_call(call: &ToolCall, index: Option<usize>) -> Value {
    let ToolCall { id, name, arguments } = call;
    let mut call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    call
}

fn length(text: &str, deeds: &Deeds) -> usize {
    text.len() + deeds.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
}

/// An event of a stream.
pub(super) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
