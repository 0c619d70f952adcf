//! The JSON that an agent's replies must be.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::{fmt, sync::Arc};

/// The largest schema, in bytes of its JSON: it goes along with every prompt.
const MAX_BYTES: usize = 64 * 1024;
/// The deepest nesting of a schema.
const MAX_DEPTH: usize = 32;
/// Most places of a schema, each counted as often as references lead to it.
const MAX_FOLLOWED: usize = 50_000;
/// So many things that do not fit are told at once.
const MAX_TOLD: usize = 5;
/// The longest word about one of them, in characters.
const MAX_TOLD_CHARS: usize = 300;

/// A JSON schema, ready to check replies with. Cheap to clone.
#[derive(Clone)]
pub struct OutputSchema {
    schema: Arc<Value>,
    validator: Arc<Validator>,
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.schema).finish()
    }
}

impl PartialEq for OutputSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl OutputSchema {
    /// Takes a schema whose values are objects or lists. Nothing is fetched: a reference leads to another place of the
    /// same schema, and never in a circle.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn new(schema: Value) -> Result<Self, String> {
        let bytes = schema.to_string().len();
        if bytes > MAX_BYTES {
            return Err(format!("the schema has {bytes} bytes, at most {MAX_BYTES} are possible"));
        }
        if depth(&schema) > MAX_DEPTH {
            return Err(format!("the schema is nested more than {MAX_DEPTH} deep"));
        }
        if !matches!(schema.get("type").and_then(Value::as_str), Some("object" | "array")) {
            return Err("the schema needs type = \"object\" or \"array\" at its top".to_owned());
        }
        follow(&schema, &schema, &mut Vec::new(), &mut { MAX_FOLLOWED })?;
        let validator = jsonschema::options()
            // Which takes time in proportion to the text, whatever the pattern.
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|error| format!("this is no JSON schema: {}", short(&error.to_string())))?;
        Ok(Self { schema: Arc::new(schema), validator: Arc::new(validator) })
    }

    /// The schema itself.
    #[must_use]
    pub fn schema(&self) -> &Arc<Value> {
        &self.schema
    }

    /// Whether a text is JSON that fits.
    ///
    /// # Errors
    /// What does not fit, in sentences for whoever wrote the text. They name places and never repeat what stands there.
    pub fn check(&self, json: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(json).map_err(|error| format!("It is no JSON: {error}."))?;
        let mut told = Vec::new();
        let mut more = false;
        for error in self.validator.iter_errors(&value) {
            if told.len() == MAX_TOLD {
                more = true;
                break;
            }
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the whole".to_owned() } else { place };
            told.push(format!("At {place}: {}.", short(&error.masked().to_string())));
        }
        if told.is_empty() {
            return Ok(());
        }
        if more {
            told.push("And more.".to_owned());
        }
        Err(told.join(" "))
    }
}

fn short(text: &str) -> String {
    let start: String = text.chars().take(MAX_TOLD_CHARS).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}

/// Known not to be deep itself: it was parsed by a parser that bounds that.
fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    inner.unwrap_or(0) + 1
}

/// Follows each reference of a schema: none may lead out of it or in a circle, and all together must stay within bounds,
/// because checking follows them as well.
fn follow<'s>(
    root: &'s Value,
    schema: &'s Value,
    on_the_way: &mut Vec<&'s str>,
    left: &mut usize,
) -> Result<(), String> {
    *left = left.checked_sub(1).ok_or("the references of the schema lead to too many places")?;
    match schema {
        Value::Array(values) => values.iter().try_for_each(|value| follow(root, value, on_the_way, left)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("$ref", Value::String(to)) => {
                        let there = to.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                        let there = there.ok_or_else(|| {
                            format!("$ref {to:?} leads nowhere within the schema, like \"#/$defs/name\" does")
                        })?;
                        if on_the_way.contains(&to.as_str()) || to == "#" {
                            return Err(format!("$ref {to:?} leads in a circle"));
                        }
                        on_the_way.push(to);
                        follow(root, there, on_the_way, left)?;
                        on_the_way.pop();
                    }
                    ("$dynamicRef" | "$recursiveRef" | "$id" | "$anchor" | "$dynamicAnchor", _) => {
                        return Err(format!("{name} is not possible here; use $ref to \"#/$defs/name\""));
                    }
                    _ => follow(root, value, on_the_way, left)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn laptop() -> OutputSchema {
        OutputSchema::new(json!({
            "type": "object",
            "required": ["name", "price"],
            "additionalProperties": false,
            "properties": {
                "name": { "type": "string", "minLength": 2 },
                "price": { "type": "number", "minimum": 0 },
            }
        }))
        .unwrap()
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place_and_not_repeated() {
        let schema = laptop();
        assert_eq!(schema.check("{\"name\": \"X1\", \"price\": 3}"), Ok(()));
        for (json, part) in [
            ("nothing", "no JSON"),
            ("{\"name\": \"X1\"}", "\"price\" is a required property"),
            ("{\"name\": \"X1\", \"price\": -1}", "At /price: "),
            ("{\"name\": \"X1\", \"price\": 1, \"secret\": 2}", "secret"),
            ("[]", "At the whole: "),
        ] {
            let told = schema.check(json).unwrap_err();
            assert!(told.contains(part), "{json}: {told}");
        }
        let told = schema.check("{\"name\": \"X1\", \"price\": \"hunter2\"}").unwrap_err();
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn a_reply_that_is_wrong_everywhere_is_told_a_few_things() {
        let schema = OutputSchema::new(json!({"type": "array", "items": {"type": "string"}})).unwrap();
        let told = schema.check(&json!(vec![1; 1_000]).to_string()).unwrap_err();
        assert_eq!(told.matches("At /").count(), MAX_TOLD, "{told}");
        assert!(told.ends_with("And more."), "{told}");
    }

    #[test]
    fn references_within_the_schema_are_followed() {
        let schema = OutputSchema::new(json!({
            "type": "array", "items": {"$ref": "#/$defs/short"}, "$defs": {"short": {"type": "string", "maxLength": 3}}
        }));
        let schema = schema.unwrap();
        assert_eq!(schema.check("[\"abc\"]"), Ok(()));
        assert!(schema.check("[\"abcd\"]").unwrap_err().starts_with("At /0: "));
        let doubling: serde_json::Map<String, Value> = (0..30)
            .map(|n| {
                let next = format!("#/$defs/{}", n + 1);
                (n.to_string(), json!({"anyOf": [{"$ref": next}, {"$ref": next}]}))
            })
            .chain([("30".to_owned(), json!({"type": "string"}))])
            .collect();
        let fault = OutputSchema::new(json!({"type": "object", "$defs": doubling})).unwrap_err();
        assert!(fault.contains("too many places"), "{fault}");
    }

    #[test]
    fn schemas_are_bounded_and_stand_alone() {
        let deep = (0..40).fold(json!({"type": "string"}), |inner, _| json!({"items": inner}));
        for (schema, part) in [
            (json!({"type": "object", "description": "x".repeat(MAX_BYTES)}), "bytes"),
            (json!({"type": "array", "items": deep}), "deep"),
            (json!({"type": "string"}), "\"object\" or \"array\""),
            (json!(true), "\"object\" or \"array\""),
            (json!({"type": "object", "allOf": [{"$ref": "#"}]}), "circle"),
            (
                json!({"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
                "circle",
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "http://example.org/s"}}}),
                "leads nowhere",
            ),
            (json!({"type": "object", "$id": "http://example.org/s"}), "$id"),
            (json!({"type": "object", "properties": 7}), "no JSON schema"),
            (json!({"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}), "no JSON schema"),
        ] {
            let fault = OutputSchema::new(schema).unwrap_err();
            assert!(fault.contains(part), "{fault}");
        }
    }
}
