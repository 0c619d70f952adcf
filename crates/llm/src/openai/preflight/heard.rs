//! What came back in a trial, as far as it is looked at. No I/O.

use crate::openai::fault::{self, Fault};
use crate::openai::reply::read_usage;
use crate::openai::sse::SseEvent;
use crate::openai::tool_calls::Gathered;
use serde_json::Value;
use starling_protocol::Usage;
use std::time::Duration;

/// A whole reply.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    /// What the model says; may be empty.
    pub(super) text: String,
    /// Whether it was cut off at the most tokens that it might have.
    pub(super) cut: bool,
    /// The names of the functions that it calls.
    pub(super) calls: Vec<String>,
    /// As the endpoint names it.
    pub(super) model: Option<String>,
    /// As the endpoint counts.
    pub(super) usage: Option<Usage>,
}

impl Said {
    pub(super) fn read(body: &[u8]) -> Result<Said, Fault> {
        // The first value: some proxies say all of it twice.
        let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
        let Some(Ok(reply)) = values.next() else {
            let start = String::from_utf8_lossy(body.get(..200).unwrap_or(body));
            return Err(Fault::bad_reply(format!(
                "the reply is no chat completion: {}",
                fault::quote(&start)
            )));
        };
        refuse_error(&reply)?;
        let Some(choice) = reply.pointer("/choices/0") else {
            return Err(Fault::bad_reply("the reply has no choices"));
        };
        let calls = Gathered::whole(choice.pointer("/message/tool_calls"));
        Ok(Said {
            text: choice.pointer("/message/content").map(text).unwrap_or_default(),
            cut: choice.get("finish_reason").and_then(Value::as_str) == Some("length"),
            calls: calls.names().map(str::to_owned).collect(),
            model: reply.get("model").and_then(Value::as_str).map(str::to_owned),
            usage: reply.get("usage").and_then(read_usage),
        })
    }
}

/// Some endpoints put an error into a 200.
fn refuse_error(reply: &Value) -> Result<(), Fault> {
    match reply.get("error").filter(|error| !error.is_null()) {
        Some(error) => Err(fault::of_error_object(error)),
        None => Ok(()),
    }
}

/// A text, or the texts of its parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

/// A streamed reply so far.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Streamed {
    /// Parts with some text in them, thoughts included.
    pub(super) pieces: usize,
    /// Characters of all of them.
    pub(super) chars: usize,
    /// When the first and the last of them came, after the question was sent.
    pub(super) span: Option<(Duration, Duration)>,
    /// It came as one whole reply that is no stream.
    pub(super) whole: bool,
    /// The model has said why it ended.
    pub(super) finished: bool,
    /// `[DONE]` was there.
    pub(super) done: bool,
    /// Whether it was cut off at the most tokens that it might have.
    pub(super) cut: bool,
    /// As the endpoint counts.
    pub(super) usage: Option<Usage>,
}

impl Streamed {
    /// A whole reply in place of a stream.
    pub(super) fn of_whole(said: &Said) -> Streamed {
        let chars = said.text.chars().count();
        Streamed {
            pieces: 1,
            chars,
            span: None,
            whole: true,
            finished: true,
            done: true,
            cut: said.cut,
            usage: said.usage,
        }
    }

    /// Takes an event that came so long `after` the question.
    pub(super) fn event(&mut self, event: &SseEvent, after: Duration) -> Result<(), Fault> {
        let data = event.data.trim();
        if event.name == "error" {
            return Err(fault::of_error_event(data));
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let Ok(part) = serde_json::from_str::<Value>(data) else { return Ok(()) };
        refuse_error(&part)?;
        if let Some(usage) = part.get("usage").and_then(read_usage) {
            self.usage = Some(usage);
        }
        let Some(choice) = part.pointer("/choices/0") else { return Ok(()) };
        let said = ["content", "reasoning_content", "reasoning"]
            .into_iter()
            .filter_map(|field| choice.get("delta")?.get(field))
            .map(|said| text(said).chars().count())
            .sum::<usize>();
        if said > 0 {
            self.pieces += 1;
            self.chars += said;
            self.span = Some((self.span.map_or(after, |(first, _)| first), after));
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|f| !f.is_empty()) {
            self.finished = true;
            self.cut = finish == "length";
        }
        Ok(())
    }
}
