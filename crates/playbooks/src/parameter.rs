//! What a playbook wants to be told, and reading it out of an intent's parameters.

use crate::fault::{Faults, excerpt};
use crate::file::ParameterFile;
use crate::template::Names;
use minijinja::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Most entries of a list.
const MAX_ENTRIES: usize = 1_000;

/// What a parameter's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A number.
    Number,
    /// Texts, as a JSON array or with commas between them.
    List,
    /// `true` or `false`.
    Bool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Text => "text",
            Kind::Number => "number",
            Kind::List => "list",
            Kind::Bool => "bool",
        })
    }
}

/// A parameter of a playbook.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// What its value is.
    pub kind: Kind,
    /// Whether an intent must have it.
    pub required: bool,
    /// Its value where an intent does not have it, as text; absent for an empty one.
    pub default: Option<String>,
    /// For people.
    pub description: String,
}

impl Parameter {
    pub(crate) fn read(path: &str, name: &str, file: &ParameterFile, faults: &mut Faults) -> Option<Self> {
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        let plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !begins || !plain || name.len() > 64 {
            faults.add(path, "expected a name of 1 to 64 characters of a-z 0-9 _ that begins with a letter");
        }
        if RESERVED.contains(&name) {
            faults.add(path, format!("the name is taken, like {}", RESERVED.join(", ")));
        }
        let kind = match file.kind.as_str() {
            "text" => Kind::Text,
            "number" => Kind::Number,
            "list" => Kind::List,
            "bool" => Kind::Bool,
            other => {
                faults.add(
                    format!("{path}.type"),
                    format!("expected text, number, list or bool, found {}", excerpt(other)),
                );
                return None;
            }
        };
        let default = match &file.default {
            None if kind == Kind::Number && !file.required => {
                faults.add(format!("{path}.default"), "missing: a number that is not required needs one");
                return None;
            }
            None => None,
            Some(_) if file.required => {
                faults.add(format!("{path}.default"), "a required parameter has none");
                return None;
            }
            Some(value) => {
                let text = as_text(value);
                faults.note(format!("{path}.default"), value_of(kind, &text))?;
                Some(text)
            }
        };
        Some(Self { kind, required: file.required, default, description: file.description.trim().to_owned() })
    }
}

/// Names that mean something in every playbook.
pub(crate) const RESERVED: [&str; 9] =
    ["goal", "items", "inputs", "chunks", "index", "count", "loop", "true", "false"];

/// The values of all parameters, out of what an intent has.
pub(crate) fn bind(
    parameters: &BTreeMap<String, Parameter>,
    given: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> Names {
    let mut names = Names::new();
    for (name, parameter) in parameters {
        let path = format!("parameters.{name}");
        let value = match given.get(name).or(parameter.default.as_ref()) {
            Some(text) => faults.note(&path, value_of(parameter.kind, text)),
            None if parameter.required => {
                let what = match parameter.description.as_str() {
                    "" => String::new(),
                    description => format!(" ({description})"),
                };
                faults.add(&path, format!("missing, expected a {}{what}", parameter.kind));
                None
            }
            None => Some(empty(parameter.kind)),
        };
        names.extend(value.map(|value| (name.clone(), value)));
    }
    for name in given.keys().filter(|name| !parameters.contains_key(*name)) {
        let known: Vec<&str> = parameters.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        faults.add(format!("parameters.{name}"), format!("unknown parameter, the playbook has {known}"));
    }
    names
}

/// The entries of a list.
pub(crate) fn entries(value: &Value) -> Vec<Value> {
    value.try_iter().map(Iterator::collect).unwrap_or_default()
}

fn empty(kind: Kind) -> Value {
    match kind {
        Kind::Text => Value::from(""),
        Kind::Number => Value::from(0),
        Kind::List => Value::from(Vec::<Value>::new()),
        Kind::Bool => Value::from(false),
    }
}

fn value_of(kind: Kind, text: &str) -> Result<Value, String> {
    let fault = |expected: &str| format!("expected {expected}, found {}", excerpt(text));
    match kind {
        Kind::Text => Ok(Value::from(text)),
        Kind::Number => match serde_json::from_str::<serde_json::Number>(text.trim()) {
            Ok(number) => match number.as_i64() {
                Some(whole) => Ok(Value::from(whole)),
                None => Ok(Value::from(number.as_f64().unwrap_or_default())),
            },
            Err(_) => Err(fault("a number")),
        },
        Kind::Bool => match text.trim() {
            "true" => Ok(Value::from(true)),
            "false" => Ok(Value::from(false)),
            _ => Err(fault("true or false")),
        },
        Kind::List => {
            let entries = list(text)
                .ok_or_else(|| fault("a JSON array of texts, or texts with commas between them"))?;
            if entries.len() > MAX_ENTRIES {
                return Err(format!("expected at most {MAX_ENTRIES} entries, found {}", entries.len()));
            }
            Ok(entries.into_iter().map(Value::from).collect())
        }
    }
}

fn list(text: &str) -> Option<Vec<String>> {
    if !text.trim_start().starts_with('[') {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        return Some(parts.map(str::to_owned).collect());
    }
    let entries: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let entries = entries.into_iter().map(|entry| match entry {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(value) => Some(value.to_string()),
        _ => None,
    });
    let entries: Option<Vec<String>> = entries.collect();
    entries.filter(|entries| entries.iter().all(|entry| !entry.trim().is_empty()))
}

fn as_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}
