//! The simplest reply that a JSON schema allows, for schemas that no script knows.

use super::MockCall;
use crate::{Purpose, json_text};
use serde_json::{Map, Value, json};

/// Deepest nesting of a reply.
const MAX_DEPTH: usize = 32;

/// Most items of a list, and most characters of a text, that a schema is given.
const MOST: u64 = 1_000;

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
    Some(simplest(&schema, 0).to_string())
}

/// The schema that stands in a message, behind the words "JSON Schema".
fn told(call: &MockCall) -> Option<Value> {
    let messages = call.body.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().find_map(|message| {
        let (_, rest) = message.get("content")?.as_str()?.split_once("JSON Schema")?;
        serde_json::from_str(&json_text::extract(rest, '{').ok()?).ok()
    })
}

fn simplest(schema: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    let inner = |schema: &Value| simplest(schema, depth + 1);
    let first = |name: &str| schema.get(name)?.as_array()?.first();
    let number = |name: &str| schema.get(name).and_then(Value::as_u64).unwrap_or_default();
    if let Some(value) = schema.get("const").or_else(|| first("enum")) {
        return value.clone();
    }
    if let Some(schema) = ["anyOf", "oneOf", "allOf"].into_iter().find_map(first) {
        return inner(schema);
    }
    let kind = schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
    match kind {
        Some("array") => {
            let item = schema.get("items").map(inner).unwrap_or_default();
            (0..number("minItems").min(MOST)).map(|_| item.clone()).collect()
        }
        Some("string") => {
            let length = number("minLength").clamp(1, MOST);
            (0..length).map(|_| 'x').collect::<String>().into()
        }
        Some("number" | "integer") => schema.get("minimum").cloned().unwrap_or_else(|| json!(0)),
        Some("boolean") => json!(false),
        Some("null") => Value::Null,
        _ => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let mut fields: Map<String, Value> =
                required.filter_map(|name| Some((name.as_str()?.to_owned(), Value::Null))).collect();
            let known = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            fields.extend(known.map(|(name, schema)| (name.clone(), inner(schema))));
            Value::Object(fields)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simplest_value_keeps_to_its_schema() {
        for (schema, expected) in [
            (json!({"const": "a"}), json!("a")),
            (json!({"enum": [2, 3]}), json!(2)),
            (json!({"type": ["null", "string"]}), json!(null)),
            (json!({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), json!(false)),
            (
                json!({"type": "array", "minItems": 2, "items": {"type": "integer", "minimum": 7}}),
                json!([7, 7]),
            ),
            (json!({"type": "string", "minLength": 3}), json!("xxx")),
            (
                json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "array"}}}),
                json!({"a": 0, "b": []}),
            ),
            (json!({"required": ["a"]}), json!({"a": null})),
            (json!({}), json!({})),
        ] {
            assert_eq!(simplest(&schema, 0), expected, "{schema}");
        }
        let deep = (0..100).fold(json!({"type": "null"}), |inner, _| json!({"properties": {"a": inner}}));
        assert!(simplest(&deep, 0).is_object());
    }
}
