//! An intent as a JSON object.

use super::check::Draft;
use super::fault::{Faults, excerpt};
use super::tree::{Tree, without_mark};
use crate::Input;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::{BTreeMap, btree_map::Entry};
use std::fmt;

/// Reads an intent; what is wrong with its shape is added to `faults`.
pub(super) fn read(json: &[u8], faults: &mut Faults) -> Draft {
    let mut draft = Draft::default();
    match Tree::parse(json) {
        Ok(Tree::Object(fields)) => read_fields(fields, &mut draft, faults),
        Ok(other) => {
            faults.add("", format!("expected a JSON object, found {}", other.describe()));
            draft.goal_is_faulty = true;
        }
        Err(error) => {
            faults.add("", format!("not valid JSON: {error}"));
            draft.goal_is_faulty = true;
            (draft.id, draft.tenant) = peek(json);
        }
    }
    draft
}

fn read_fields(fields: Vec<(String, Tree)>, draft: &mut Draft, faults: &mut Faults) {
    const KNOWN: &[&str] = &[
        "id",
        "goal",
        "strategy",
        "tenant",
        "priority",
        "deadline_ms",
        "limits",
        "inputs",
        "items",
        "parameters",
    ];
    for (name, value) in known_fields("", fields, KNOWN, faults) {
        match name {
            "id" => draft.id = text(name, value, faults),
            "goal" => {
                draft.goal_is_faulty = !matches!(value, Tree::Text(_));
                draft.goal = text(name, value, faults);
            }
            "strategy" => draft.strategy = text(name, value, faults),
            "tenant" => draft.tenant = text(name, value, faults),
            "priority" => draft.priority = integer(name, &value, faults),
            "deadline_ms" => draft.deadline_ms = integer(name, &value, faults),
            "limits" => read_limits(value, draft, faults),
            "inputs" => draft.inputs = read_inputs(value, faults),
            "items" => draft.items = read_items(value, faults),
            _ => draft.parameters = read_parameters(value, faults),
        }
    }
}

fn read_limits(value: Tree, draft: &mut Draft, faults: &mut Faults) {
    const KNOWN: &[&str] = &[
        "max_tasks",
        "max_attempts",
        "min_score",
        "max_calls",
        "max_tokens",
        "max_cost_usd",
        "degrade_after_ms",
    ];
    let Some(fields) = object("limits", value, faults) else { return };
    for (name, value) in known_fields("limits.", fields, KNOWN, faults) {
        let path = format!("limits.{name}");
        match name {
            "max_tasks" => draft.max_tasks = integer(&path, &value, faults),
            "max_attempts" => draft.max_attempts = integer(&path, &value, faults),
            "min_score" => draft.min_score = number(&path, &value, faults),
            "max_calls" => draft.max_calls = integer(&path, &value, faults),
            "max_tokens" => draft.max_tokens = integer(&path, &value, faults),
            "degrade_after_ms" => draft.degrade_after_ms = integer(&path, &value, faults),
            _ => draft.max_cost_usd = number(&path, &value, faults),
        }
    }
}

fn read_inputs(value: Tree, faults: &mut Faults) -> Vec<Input> {
    const KNOWN: &[&str] = &["name", "media_type", "content"];
    let mut inputs = Vec::new();
    for (position, value) in array("inputs", value, faults).into_iter().enumerate() {
        let path = format!("inputs[{position}]");
        let Some(fields) = object(&path, value, faults) else { continue };
        let (mut name, mut media_type, mut content) = (None, None, None);
        let prefix = format!("{path}.");
        let fields = known_fields(&prefix, fields, KNOWN, faults);
        for required in ["name", "content"] {
            if !fields.iter().any(|(field, _)| *field == required) {
                faults.add(&format!("{prefix}{required}"), "missing, expected a text");
            }
        }
        for (field, value) in fields {
            let path = format!("{prefix}{field}");
            match field {
                "name" => name = text(&path, value, faults),
                "media_type" => media_type = text(&path, value, faults),
                _ => content = text(&path, value, faults),
            }
        }
        // An input without them is at fault already; what it has is still checked.
        if let (Some(name), Some(content)) = (name, content) {
            let media_type = media_type.unwrap_or_else(|| "text/plain".into());
            inputs.push(Input { name, media_type, content, chunks: Vec::new() });
        }
    }
    inputs
}

fn read_items(value: Tree, faults: &mut Faults) -> Vec<String> {
    let items = array("items", value, faults).into_iter().enumerate();
    items.filter_map(|(position, value)| text(&format!("items[{position}]"), value, faults)).collect()
}

/// Values of any kind, each as a text: a text as it is, anything else as JSON. `null` is as good as absent.
fn read_parameters(value: Tree, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::new();
    for (name, value) in object("parameters", value, faults).unwrap_or_default() {
        let text = match value {
            Tree::Null => continue,
            Tree::Text(text) => text,
            other => other.to_json(),
        };
        match parameters.entry(name) {
            Entry::Vacant(free) => {
                free.insert(text);
            }
            Entry::Occupied(taken) => {
                let path = format!("parameters.{}", excerpt(taken.key()).trim_matches('"'));
                faults.add(&path, "expected once, found again");
            }
        }
    }
    parameters
}

/// The fields of an object that have a known name and a value, each once. `null` is as good as absent.
fn known_fields(
    prefix: &str,
    fields: Vec<(String, Tree)>,
    known: &'static [&'static str],
    faults: &mut Faults,
) -> Vec<(&'static str, Tree)> {
    let mut found: Vec<(&'static str, Tree)> = Vec::new();
    for (name, value) in fields {
        match known.iter().find(|field| **field == name) {
            None => {
                let path = format!("{prefix}{}", excerpt(&name).trim_matches('"'));
                faults.add(&path, format!("unknown field, expected {}", nearest(&name, known)));
            }
            Some(field) if found.iter().any(|(other, _)| other == field) => {
                faults.add(&format!("{prefix}{field}"), "expected once, found again");
            }
            Some(_) if matches!(value, Tree::Null) => {}
            Some(field) => found.push((field, value)),
        }
    }
    found
}

/// The known name that was probably meant, or all of them.
fn nearest(name: &str, known: &[&str]) -> String {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '-', ' '], "");
    let wanted: String = plain(name).chars().take(64).collect();
    let closest = known.iter().map(|field| (distance(&wanted, &plain(field)), *field)).min();
    match closest {
        Some((distance, field)) if distance <= 1 + field.len() / 4 => format!("perhaps {field:?}"),
        _ => format!("one of {}", known.join(", ")),
    }
}

/// Number of single-character changes that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn text(path: &str, value: Tree, faults: &mut Faults) -> Option<String> {
    match value {
        Tree::Text(text) => Some(text),
        other => wrong(path, "a text", &other, faults),
    }
}

fn integer(path: &str, value: &Tree, faults: &mut Faults) -> Option<i64> {
    match value {
        Tree::Number(number) if number.is_i64() => number.as_i64(),
        other => wrong(path, "an integer", other, faults),
    }
}

fn number(path: &str, value: &Tree, faults: &mut Faults) -> Option<f64> {
    match value {
        Tree::Number(number) => number.as_f64(),
        other => wrong(path, "a number", other, faults),
    }
}

fn object(path: &str, value: Tree, faults: &mut Faults) -> Option<Vec<(String, Tree)>> {
    match value {
        Tree::Object(fields) => Some(fields),
        other => wrong(path, "an object", &other, faults),
    }
}

fn array(path: &str, value: Tree, faults: &mut Faults) -> Vec<Tree> {
    match value {
        Tree::Array(items) => items,
        other => wrong(path, "an array", &other, faults).unwrap_or_default(),
    }
}

fn wrong<T>(path: &str, expected: &str, found: &Tree, faults: &mut Faults) -> Option<T> {
    faults.add(path, format!("expected {expected}, found {}", found.describe()));
    None
}

/// Id and tenant of an object that is too large or broken: as much as is read before it breaks.
pub(super) fn peek(json: &[u8]) -> (Option<String>, Option<String>) {
    let mut peek = Peek::default();
    // What comes after the break is nobody's loss; what is wrong is told elsewhere.
    let _ = peek.deserialize(&mut serde_json::Deserializer::from_slice(without_mark(json)));
    (peek.id, peek.tenant)
}

#[derive(Default)]
struct Peek {
    id: Option<String>,
    tenant: Option<String>,
}

impl<'de> DeserializeSeed<'de> for &mut Peek {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Peek {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(name) = access.next_key::<String>()? {
            let field = match name.as_str() {
                "id" => &mut self.id,
                "tenant" => &mut self.tenant,
                _ => {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Tree::Text(text) = access.next_value()? {
                *field = Some(text);
            }
        }
        Ok(())
    }
}
