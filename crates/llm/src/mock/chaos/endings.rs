//! Replies without an answer, and answers that end in a strange way.

use super::{Bad, MockAction, pieces, wire};
use serde_json::{Value, json};

const SOME: usize = 4;

impl Bad<'_> {
    /// These parts, counts and `[DONE]` as a stream.
    fn stream_of(&self, parts: Vec<Value>) -> MockAction {
        let counts = self.frame.counts(json!([]), self.frame.usage(None, 0));
        let events = parts.into_iter().chain([counts]).map(|part| wire::event(&part));
        self.streams(events.chain([wire::DONE.to_owned()]).collect())
    }

    /// A whole reply with this message, or a stream with these deltas, both with this end.
    fn ends(&self, message: Value, deltas: Vec<Value>, finish: Value) -> MockAction {
        if !self.call.streams {
            let usage = self.frame.usage(None, self.answer.len());
            return self.sends(self.frame.completion(message, finish, usage).to_string());
        }
        let mut parts: Vec<Value> =
            deltas.into_iter().map(|delta| self.frame.chunk(delta, Value::Null)).collect();
        parts.push(self.frame.chunk(json!({}), finish));
        self.stream_of(parts)
    }

    fn says_and_ends(&self, text: &str, finish: Value) -> MockAction {
        let message = json!({"role": "assistant", "content": text});
        let deltas = pieces(text, SOME).into_iter().map(|piece| json!({"content": piece})).collect();
        self.ends(message, deltas, finish)
    }
}

pub(super) fn no_choices(bad: &Bad<'_>) -> MockAction {
    without(bad, |part| {
        part.remove("choices");
    })
}

pub(super) fn empty_choices(bad: &Bad<'_>) -> MockAction {
    without(bad, |part| {
        part.insert("choices".to_owned(), json!([]));
    })
}

/// A reply whose parts were all changed.
fn without(bad: &Bad<'_>, change: impl Fn(&mut serde_json::Map<String, Value>)) -> MockAction {
    let change = |mut part: Value| {
        if let Value::Object(fields) = &mut part {
            change(fields);
        }
        part
    };
    if !bad.call.streams {
        return bad.sends(change(bad.frame.says(bad.answer, None)).to_string());
    }
    bad.stream_of(bad.parts(bad.answer).into_iter().map(change).collect())
}

pub(super) fn null_content(bad: &Bad<'_>) -> MockAction {
    let message = json!({"role": "assistant", "content": null});
    bad.ends(message.clone(), vec![message], json!("stop"))
}

pub(super) fn finish_length(bad: &Bad<'_>) -> MockAction {
    let half = bad.answer.chars().count() / 2;
    let begin: String = bad.answer.chars().take(half).collect();
    bad.says_and_ends(&begin, json!("length"))
}

pub(super) fn finish_missing(bad: &Bad<'_>) -> MockAction {
    bad.says_and_ends(bad.answer, Value::Null)
}

pub(super) fn content_filter(bad: &Bad<'_>) -> MockAction {
    let begin: String = bad.answer.chars().take(10).collect();
    bad.says_and_ends(&begin, json!("content_filter"))
}

pub(super) fn refusal(bad: &Bad<'_>) -> MockAction {
    let words = "I cannot help with that.";
    let message = json!({"role": "assistant", "content": null, "refusal": words});
    let deltas = pieces(words, SOME).into_iter().map(|piece| json!({"refusal": piece})).collect();
    bad.ends(message, deltas, json!("stop"))
}
