//! Which parts of the protocol a mock endpoint takes, which it passes over, and which it refuses.

use super::rehearsal::pieces;
use super::wire::Frame;
use super::{MockAction, MockCall, Script};
use crate::{Deeds, ToolCall};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Pieces of a streamed reply.
const PIECES: usize = 8;

/// What an endpoint does with each part of the protocol. Default: as a good endpoint without tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// `response_format`.
    pub formats: Formats,
    /// `stream`.
    pub streams: Streams,
    /// `tools`.
    pub tools: Tools,
}

/// What becomes of a `response_format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Formats {
    /// The script sees it.
    #[default]
    Taken,
    /// As if it were not there: a schema in the prompt is kept to, one beside it is not.
    Ignored,
    /// A schema is refused; any JSON may be asked for.
    NoSchema,
    /// All of them are refused.
    Refused,
}

/// What becomes of a `stream`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// A reply comes in some pieces.
    #[default]
    Pieces,
    /// A reply comes in one piece.
    OnePiece,
    /// A reply comes as if no stream were asked for.
    Ignored,
    /// It is refused.
    Refused,
}

/// What becomes of `tools`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tools {
    /// The first of them is called, without arguments, until a conversation ends with results.
    Called,
    /// As if they were not there.
    #[default]
    Ignored,
    /// They are refused.
    Refused,
}

impl Formats {
    /// All of them, by name.
    pub const NAMED: &[(&str, Self)] = &[
        ("taken", Self::Taken),
        ("ignored", Self::Ignored),
        ("no-schema", Self::NoSchema),
        ("refused", Self::Refused),
    ];
}

impl Streams {
    /// All of them, by name.
    pub const NAMED: &[(&str, Self)] = &[
        ("pieces", Self::Pieces),
        ("one-piece", Self::OnePiece),
        ("ignored", Self::Ignored),
        ("refused", Self::Refused),
    ];
}

impl Tools {
    /// All of them, by name.
    pub const NAMED: &[(&str, Self)] =
        &[("called", Self::Called), ("ignored", Self::Ignored), ("refused", Self::Refused)];
}

impl Abilities {
    /// The same script, for an endpoint with these abilities. A streamed reply takes the time that the script says, or none.
    #[must_use]
    pub fn play(self, script: Script) -> Script {
        Arc::new(move |call| self.act(call, &script))
    }

    fn act(self, call: &MockCall, script: &Script) -> MockAction {
        if let Some(part) = self.refused(call) {
            return MockAction::error(400, &format!("{part} is not supported by this model"));
        }
        if let (Tools::Called, Some(name), false) = (self.tools, offered(call), has_results(call)) {
            return calls(name);
        }
        let mut seen = call.clone();
        if let (Formats::Ignored, Value::Object(body)) = (self.formats, &mut seen.body) {
            body.remove("response_format");
        }
        match script(&seen) {
            MockAction::Reply { text, delay, usage: None } if call.streams => {
                self.streamed(call, text, delay.unwrap_or_default())
            }
            other => other,
        }
    }

    /// The part of a call that is refused.
    fn refused(self, call: &MockCall) -> Option<&'static str> {
        let format = call.body.pointer("/response_format/type").and_then(Value::as_str);
        match (self.formats, format) {
            (Formats::NoSchema | Formats::Refused, Some("json_schema")) => {
                return Some("response_format json_schema");
            }
            (Formats::Refused, Some("json_object")) => return Some("response_format json_object"),
            _ => {}
        }
        if self.streams == Streams::Refused && call.streams {
            return Some("stream");
        }
        (self.tools == Tools::Refused && call.body.get("tools").is_some()).then_some("tools")
    }

    fn streamed(self, call: &MockCall, text: String, delay: Duration) -> MockAction {
        match self.streams {
            Streams::Pieces if !text.is_empty() => {
                let mut delay = delay;
                let chunks = pieces(&text, PIECES).into_iter();
                MockAction::Stream {
                    chunks: chunks.map(|piece| (std::mem::take(&mut delay), piece)).collect(),
                }
            }
            Streams::Ignored => MockAction::Bytes {
                content_type: "application/json",
                chunks: vec![(delay, Frame::of(call).says(&text, None).to_string().into())],
                complete: true,
            },
            _ => MockAction::reply_after(delay, text),
        }
    }
}

/// The name of the first function that a call offers.
fn offered(call: &MockCall) -> Option<&str> {
    call.body.pointer("/tools/0/function/name")?.as_str()
}

/// Whether the call brings the results of functions that were called.
fn has_results(call: &MockCall) -> bool {
    let last = call.body.get("messages").and_then(|messages| messages.as_array()?.last()?.get("role"));
    last.and_then(Value::as_str) == Some("tool")
}

/// A reply that calls this function.
fn calls(name: &str) -> MockAction {
    let call = ToolCall { id: "call-1".to_owned(), name: name.to_owned(), arguments: "{}".to_owned() };
    MockAction::Calls { text: String::new(), deeds: Deeds { calls: vec![call], reasoning: None } }
}
