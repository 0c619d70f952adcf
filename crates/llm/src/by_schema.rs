//! A value that a JSON schema allows, for those who answer without understanding it.

use serde_json::{Map, Value, json};

/// Deepest nesting of a value, and of references.
const MAX_DEPTH: usize = 32;

/// Most items of a list, and most characters of a text.
const MOST: u64 = 1_000;

/// The simplest value that keeps to `schema`. Where it has texts, they say `text`, as often or as much of it as fits.
pub(crate) fn simplest(schema: &Value, text: &str) -> Value {
    Simplest { root: schema, text }.of(schema, 0)
}

struct Simplest<'s> {
    root: &'s Value,
    text: &'s str,
}

impl Simplest<'_> {
    fn of(&self, schema: &Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        let inner = |schema: &Value| self.of(schema, depth + 1);
        let first = |name: &str| schema.get(name)?.as_array()?.first();
        let number = |name: &str| schema.get(name).and_then(Value::as_u64);
        let referred = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        if let Some(schema) = referred.and_then(|pointer| self.root.pointer(pointer)) {
            return inner(schema);
        }
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
                (0..number("minItems").unwrap_or(0).min(MOST)).map(|_| item.clone()).collect()
            }
            Some("string") => self.string(number("minLength"), number("maxLength")).into(),
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

    fn string(&self, least: Option<u64>, most: Option<u64>) -> String {
        let whole = self.text.chars().count() as u64;
        let length = whole.min(most.unwrap_or(MOST)).max(least.unwrap_or(0)).min(MOST);
        self.text.chars().cycle().take(usize::try_from(length).unwrap_or(0)).collect()
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
            assert_eq!(simplest(&schema, "x"), expected, "{schema}");
        }
        let deep = (0..100).fold(json!({"type": "null"}), |inner, _| json!({"properties": {"a": inner}}));
        assert!(simplest(&deep, "x").is_object());
    }

    #[test]
    fn texts_say_what_they_are_given_within_their_bounds() {
        let schema = json!({
            "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/short"},
            "$defs": {"short": {"type": "string", "maxLength": 4}}
        });
        assert_eq!(simplest(&schema, "grün ist es"), json!(["grün"]));
        assert_eq!(simplest(&json!({"$ref": "#"}), "x"), Value::Null, "a circle ends");
    }
}
