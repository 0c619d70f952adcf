//! The calls of tools in a reply, whole or in pieces. No I/O.

use crate::json_text;
use crate::{Tool, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// A call, or a piece of one.
#[derive(Debug, Deserialize)]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Debug, Default, Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<Value>,
}

/// The calls of a reply, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    calls: Vec<(Option<u64>, ToolCall)>,
    /// Bytes of their arguments.
    bytes: usize,
}

impl Gathered {
    /// The calls of a whole reply.
    pub(super) fn whole(calls: Option<&Value>) -> Gathered {
        let mut gathered = Gathered::default();
        for piece in pieces(calls) {
            // Each is one, however some servers number them.
            gathered.begin(None);
            gathered.add_to_last(piece);
        }
        gathered
    }

    /// Takes what a part of a stream has of them.
    pub(super) fn take(&mut self, calls: Option<&Value>) {
        for piece in pieces(calls) {
            self.take_piece(piece);
        }
    }

    /// Only the first piece of a call has its id and its name; further ones tell by their index
    /// whose they are, or belong to the last one.
    fn take_piece(&mut self, piece: CallPiece) {
        let id = piece.id.as_deref().unwrap_or_default();
        let names = piece.function.as_ref().and_then(|function| function.name.as_deref()).unwrap_or_default();
        let same = |call: &ToolCall| id.is_empty() || call.id.is_empty() || call.id == id;
        let place = match piece.index {
            // From behind: some servers give all of them the index 0.
            Some(index) => self.calls.iter().rposition(|(at, call)| *at == Some(index) && same(call)),
            None if id.is_empty() && names.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().position(|(_, call)| !id.is_empty() && call.id == id),
        };
        match place {
            Some(place) => {
                // To the end for a moment, so that there is one way to add.
                let last = self.calls.len() - 1;
                self.calls.swap(place, last);
                self.add_to_last(piece);
                self.calls.swap(place, last);
            }
            None => {
                self.begin(piece.index);
                self.add_to_last(piece);
            }
        }
    }

    fn begin(&mut self, index: Option<u64>) {
        let call = ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        self.calls.push((index, call));
    }

    fn add_to_last(&mut self, piece: CallPiece) {
        let Some((_, call)) = self.calls.last_mut() else { return };
        if let Some(id) = piece.id.filter(|id| !id.is_empty()) {
            call.id = id;
        }
        let FunctionPiece { name, arguments } = piece.function.unwrap_or_default();
        if let Some(name) = name.filter(|_| call.name.is_empty()) {
            call.name = name;
        }
        let before = call.arguments.len();
        match arguments {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => call.arguments.push_str(&text),
            // Some servers write the object itself.
            Some(object) => call.arguments.push_str(&object.to_string()),
        }
        self.bytes += call.arguments.len() - before;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Bytes of all arguments.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The names of the tools that are called.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().map(|(_, call)| call.name.as_str())
    }

    /// The calls, complete: each of one of `tools`, with a JSON object, and with an id that no other has. `turn` tells the
    /// ids that are made up in this reply from those of others. The error is a sentence for the model.
    pub(super) fn complete(self, tools: &[Tool], turn: usize) -> Result<Vec<ToolCall>, String> {
        let mut ids = HashSet::new();
        let complete = |(number, (_, mut call)): (usize, (_, ToolCall))| {
            if !tools.iter().any(|tool| tool.name == call.name) {
                let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                return Err(format!("There is no tool {:?}; there are: {}.", call.name, known.join(", ")));
            }
            if call.arguments.trim().is_empty() {
                call.arguments = "{}".to_owned();
            } else if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
                let mended = json_text::extract(&call.arguments, '{').map_err(|wrong| {
                    format!("The arguments of the call of {} are no JSON object: {wrong}.", call.name)
                })?;
                call.arguments = mended.into_owned();
            }
            if call.id.is_empty() || !ids.insert(call.id.clone()) {
                call.id = format!("call-{turn}-{number}");
                ids.insert(call.id.clone());
            }
            Ok(call)
        };
        self.calls.into_iter().enumerate().map(complete).collect()
    }
}

/// What can be read of the calls in a message; the rest is none.
fn pieces(calls: Option<&Value>) -> impl Iterator<Item = CallPiece> {
    let calls = calls.and_then(Value::as_array).into_iter().flatten();
    calls.filter_map(|call| CallPiece::deserialize(call).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn tools() -> Vec<Tool> {
        ["find", "read"]
            .map(|name| Tool { name: name.into(), description: "d".into(), parameters: Arc::new(json!({})) })
            .into()
    }

    fn streamed(pieces: &[Value]) -> Result<Vec<(String, String, String)>, String> {
        let mut gathered = Gathered::default();
        for piece in pieces {
            gathered.take(Some(&json!([piece])));
        }
        let calls = gathered.complete(&tools(), 3)?;
        Ok(calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect())
    }

    fn piece(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Value {
        json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn pieces_find_their_calls_however_a_server_numbers_them() {
        let two = [("a", "find", r#"{"q":1}"#), ("b", "read", r#"{"p":"x"}"#)]
            .map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.to_owned()));
        let rest = |index: u64, text: &str| json!({"index": index, "function": {"arguments": text}});
        let numbered = [piece(Some(0), "a", "find", ""), rest(0, r#"{"q"#), rest(0, r#"":1}"#)]
            .into_iter()
            .chain([piece(Some(1), "b", "read", r#"{"p":"#), rest(1, r#""x"}"#)])
            .collect::<Vec<_>>();
        let mut mixed = numbered.clone();
        mixed.swap(2, 3);
        let same_number =
            [piece(Some(0), "a", "find", r#"{"q":1}"#), piece(Some(0), "b", "read", r#"{"p":"x"}"#)];
        let no_number = [
            piece(None, "a", "find", r#"{"q":1}"#),
            piece(None, "b", "read", r#"{"p":"#),
            json!({"function": {"arguments": "\"x\"}"}}),
        ];
        let told_again = [
            piece(Some(0), "a", "find", r#"{"q""#),
            piece(Some(0), "a", "find", ":1}"),
            piece(Some(1), "b", "read", r#"{"p":"x"}"#),
        ];
        for pieces in [&numbered[..], &mixed, &same_number, &no_number, &told_again] {
            assert_eq!(streamed(pieces).unwrap(), two, "{pieces:?}");
        }
    }

    #[test]
    fn what_is_missing_is_made_up_and_what_cannot_be_used_is_named() {
        let calls =
            streamed(&[piece(Some(0), "", "find", ""), piece(Some(1), "", "read", "{'p': 1,}")]).unwrap();
        assert_eq!(calls[0], ("call-3-0".into(), "find".into(), "{}".into()));
        assert_eq!((calls[1].0.as_str(), calls[1].2.as_str()), ("call-3-1", "{\"p\": 1}"));
        let whole = json!([
            {"id": "x", "function": {"name": "find", "arguments": {"q": 1}}},
            {"id": "x", "function": {"name": "find"}},
        ]);
        let whole = Gathered::whole(Some(&whole)).complete(&tools(), 3).unwrap();
        assert_eq!((whole[0].arguments.as_str(), whole[1].id.as_str()), ("{\"q\":1}", "call-3-1"));
        for (pieces, wrong) in [
            (piece(Some(0), "a", "delete", "{}"), "no tool \"delete\"; there are: find, read"),
            (piece(Some(0), "a", "find", "{\"q\":"), "call of find are no JSON object"),
            (piece(Some(0), "a", "find", "[1]"), "call of find are no JSON object"),
        ] {
            let said = streamed(&[pieces]).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
