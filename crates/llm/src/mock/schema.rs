//! The simplest reply that a JSON schema allows, for schemas that no script knows.

use super::MockCall;
use crate::{Purpose, by_schema::simplest, json_text};
use serde_json::Value;

/// The JSON of a reply that keeps to the schema that a call shows, in a field of its own or in its prompt. `None` if it shows
/// none, or if it wants a plan or a verdict, which are more than their form.
#[must_use]
pub fn reply_by_schema(call: &MockCall) -> Option<String> {
    if matches!(call.purpose, Purpose::Plan | Purpose::Judge) {
        return None;
    }
    let schema = match call.body.pointer("/response_format/json_schema/schema") {
        Some(schema) => schema.clone(),
        None => told(call)?,
    };
    Some(simplest(&schema, "x").to_string())
}

/// The schema that stands in a message, behind the words "JSON Schema".
fn told(call: &MockCall) -> Option<Value> {
    let messages = call.body.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().find_map(|message| {
        let (_, rest) = message.get("content")?.as_str()?.split_once("JSON Schema")?;
        serde_json::from_str(&json_text::extract(rest, '{').ok()?).ok()
    })
}
