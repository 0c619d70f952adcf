//! Where settings come from, laid one over the other; every value knows its origin.

use super::{Fault, Sources, presets};
use config::{FileFormat, Source as _, Value, ValueKind};
use std::collections::BTreeMap;

const DEFAULTS: &str = include_str!("../../../../config/default.toml");

/// Settings by name.
pub(super) type Tree = BTreeMap<String, Node>;

/// A setting, or a section of them.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Table(Tree),
    Leaf(Leaf),
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) value: Raw,
    pub(super) origin: String,
}

/// A value before anybody knows what it should be. In the environment and in flags all are texts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Raw>),
}

/// All layers as one tree, and what was wrong with them.
pub(super) fn gather(sources: &Sources) -> (Tree, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut files = Vec::new();
    for path in &sources.files {
        let origin = format!("file {}", path.display());
        match std::fs::read_to_string(path)
            .map_err(|error| unreadable(&origin, &error.to_string()))
            .and_then(|text| toml(&text, &origin))
        {
            Ok(layer) => files.push(layer),
            Err(fault) => faults.push(fault),
        }
    }
    let mut said = Vec::new();
    for (name, value) in &sources.environment {
        if let Some(path) = name.strip_prefix("STARLING__") {
            let path = path.to_ascii_lowercase().replace("__", ".");
            // Properties of the client have dots in their names, which environment variables cannot have.
            let path = match path.strip_prefix("kafka.properties.") {
                Some(property) => format!("kafka.properties.{}", property.replace('_', ".")),
                None => path,
            };
            said.push(single(path.split('.'), value, format!("environment variable {name}")));
        }
    }
    for (path, value) in &sources.overrides {
        said.push(single(path.split('.'), value, format!("flag for {path}")));
    }
    let presets = presets::wanted(files.iter().chain(&said), &mut faults);
    let mut known =
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"), ("RUST_LOG", "telemetry.log_level")];
    // Where another provider is asked, they are not meant, and a key is not for others to see.
    if presets.model_is_openai() {
        known.extend([("OPENAI_API_KEY", "model.api_key"), ("OPENAI_BASE_URL", "model.base_url")]);
    }
    let known = known.into_iter().filter_map(|(variable, path)| {
        let value = variable_of(sources, variable)?;
        Some(single(path.split('.'), value, format!("environment variable {variable}")))
    });
    let mut tree = BTreeMap::new();
    match toml(DEFAULTS, "the built-in defaults") {
        Ok(defaults) => merge(&mut tree, defaults, "", &mut faults),
        Err(fault) => faults.push(fault),
    }
    for layer in presets.layers().chain(files).chain(known).chain(said) {
        merge(&mut tree, layer, "", &mut faults);
    }
    presets::take_keys(&mut tree, |variable| variable_of(sources, variable));
    (tree, faults)
}

fn variable_of<'s>(sources: &'s Sources, variable: &str) -> Option<&'s str> {
    let set = sources.environment.iter().find(|(name, value)| name == variable && !value.is_empty());
    set.map(|(_, value)| value.as_str())
}

fn merge(into: &mut Tree, from: Tree, at: &str, faults: &mut Vec<Fault>) {
    for (name, node) in from {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match (into.get_mut(&name), node) {
            (Some(Node::Table(below)), Node::Table(above)) => merge(below, above, &path, faults),
            (Some(Node::Table(_)), Node::Leaf(leaf)) => faults.push(Fault {
                path,
                expected: "a section with settings of its own".to_owned(),
                found: leaf.value.describe(),
                origin: leaf.origin,
            }),
            (Some(Node::Leaf(_)), Node::Table(above)) => faults.push(Fault {
                path,
                expected: "a single value".to_owned(),
                found: "a section".to_owned(),
                origin: origin_of(&above),
            }),
            (Some(Node::Leaf(_)) | None, node) => {
                into.insert(name, node);
            }
        }
    }
}

/// The origin of the first value in a table.
pub(super) fn origin_of(table: &Tree) -> String {
    match table.values().next() {
        Some(Node::Leaf(leaf)) => leaf.origin.clone(),
        Some(Node::Table(inner)) => origin_of(inner),
        None => "an empty section".to_owned(),
    }
}

pub(super) fn single<'p>(path: impl Iterator<Item = &'p str>, value: &str, origin: String) -> Tree {
    let names: Vec<&str> = path.collect();
    let mut node = Node::Leaf(Leaf { value: Raw::Text(value.to_owned()), origin });
    for name in names.into_iter().rev() {
        node = Node::Table(BTreeMap::from([(name.to_owned(), node)]));
    }
    match node {
        Node::Table(table) => table,
        Node::Leaf(_) => BTreeMap::new(), // a path has at least one name
    }
}

pub(super) fn toml(text: &str, origin: &str) -> Result<Tree, Fault> {
    let values = config::File::from_str(text, FileFormat::Toml)
        .collect()
        .map_err(|error| unreadable(origin, &error.to_string()))?;
    Ok(values.into_iter().map(|(name, value)| (name, node(value, origin))).collect())
}

fn node(value: Value, origin: &str) -> Node {
    match value.kind {
        ValueKind::Table(table) => {
            Node::Table(table.into_iter().map(|(name, value)| (name, node(value, origin))).collect())
        }
        kind => Node::Leaf(Leaf { value: raw(kind), origin: origin.to_owned() }),
    }
}

fn raw(kind: ValueKind) -> Raw {
    match kind {
        ValueKind::Nil => Raw::Text(String::new()),
        ValueKind::Boolean(value) => Raw::Bool(value),
        ValueKind::I64(value) => Raw::Int(value),
        ValueKind::I128(value) => Raw::Int(i64::try_from(value).unwrap_or(i64::MAX)),
        ValueKind::U64(value) => Raw::Int(i64::try_from(value).unwrap_or(i64::MAX)),
        ValueKind::U128(value) => Raw::Int(i64::try_from(value).unwrap_or(i64::MAX)),
        ValueKind::Float(value) => Raw::Float(value),
        ValueKind::String(value) => Raw::Text(value),
        ValueKind::Array(values) => Raw::List(values.into_iter().map(|value| raw(value.kind)).collect()),
        ValueKind::Table(_) => Raw::Text("a table".to_owned()),
    }
}

fn unreadable(origin: &str, reason: &str) -> Fault {
    Fault {
        path: "(all)".to_owned(),
        expected: "a readable TOML file".to_owned(),
        found: reason.trim().to_owned(),
        origin: origin.to_owned(),
    }
}

impl Raw {
    /// The value as it is shown in a fault.
    pub(super) fn describe(&self) -> String {
        match self {
            Raw::Text(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
            Raw::Int(value) => value.to_string(),
            Raw::Float(value) => value.to_string(),
            Raw::Bool(value) => value.to_string(),
            Raw::List(values) => format!("a list of {}", values.len()),
        }
    }
}
