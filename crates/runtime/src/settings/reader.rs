//! Takes typed values out of the tree and collects what is wrong with them.

use super::{
    Fault,
    layers::{Leaf, Node, Raw, origin_of},
    units,
};
use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

/// What is left of the tree, and the faults so far. A value that is faulty is replaced by a harmless one:
/// nobody sees it, because faults fail the whole.
pub(super) struct Reader {
    tree: BTreeMap<String, Node>,
    faults: Vec<Fault>,
}

impl Reader {
    pub(super) fn new(tree: BTreeMap<String, Node>, faults: Vec<Fault>) -> Self {
        Self { tree, faults }
    }

    /// The faults, unknown names included.
    pub(super) fn finish(mut self) -> Vec<Fault> {
        for (path, leaf) in flatten(self.tree, "") {
            self.faults.push(Fault {
                path,
                expected: "the name of a setting".to_owned(),
                found: "an unknown name".to_owned(),
                origin: leaf.origin,
            });
        }
        self.faults
    }

    pub(super) fn text(&mut self, path: &str) -> String {
        self.take(path, "a text", |raw| match raw {
            Raw::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    /// A text that `accept` takes.
    pub(super) fn checked(&mut self, path: &str, expected: &str, accept: impl Fn(&str) -> bool) -> String {
        self.take(path, expected, |raw| match raw {
            Raw::Text(text) => accept(text).then(|| text.clone()),
            _ => None,
        })
    }

    /// An address of an HTTP server; `None` if it is empty.
    pub(super) fn http(&mut self, path: &str) -> Option<String> {
        let accept = |url: &str| url.is_empty() || url.starts_with("http://") || url.starts_with("https://");
        Some(self.checked(path, "an http:// or https:// address", accept)).filter(|url| !url.is_empty())
    }

    /// A text; `None` if it is empty.
    pub(super) fn optional(&mut self, path: &str) -> Option<String> {
        Some(self.text(path)).filter(|text| !text.is_empty())
    }

    /// A secret: a fault never shows it.
    pub(super) fn secret(&mut self, path: &str) -> Option<String> {
        match self.remove(path) {
            Some(Leaf { value: Raw::Text(text), .. }) => Some(text).filter(|text| !text.is_empty()),
            Some(leaf) => {
                self.faults.push(Fault {
                    path: path.to_owned(),
                    expected: "a text".to_owned(),
                    found: "something else (not shown)".to_owned(),
                    origin: leaf.origin,
                });
                None
            }
            None => None,
        }
    }

    /// A secret, or else what stands in the file that the setting `<path>_file` names.
    pub(super) fn secret_or_file(&mut self, path: &str) -> Option<String> {
        let secret = self.secret(path);
        let file_path = format!("{path}_file");
        let Some(file) = self.optional(&file_path) else { return secret };
        match std::fs::read_to_string(&file) {
            // One that is set wins over the file.
            Ok(text) => secret.or_else(|| Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Err(error) => {
                self.complain(&file_path, "a readable file", &format!("{file:?}: {error}"), "the settings");
                secret
            }
        }
    }

    /// One of the given words.
    pub(super) fn choice<T: Copy + Default>(&mut self, path: &str, choices: &[(&str, T)]) -> T {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.take(path, &format!("one of {}", words.join(", ")), |raw| {
            let word = match raw {
                Raw::Text(text) => text.clone(),
                Raw::Bool(value) => value.to_string(),
                _ => return None,
            };
            choices.iter().find(|(choice, _)| *choice == word).map(|(_, value)| *value)
        })
    }

    /// A whole number within `range`.
    pub(super) fn integer<T>(&mut self, path: &str, range: RangeInclusive<T>) -> T
    where
        T: TryFrom<i64> + FromStr + PartialOrd + Display + Default + Copy,
    {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.take(path, &expected, |raw| {
            let value = match raw {
                Raw::Int(value) => T::try_from(*value).ok()?,
                Raw::Text(text) => text.trim().parse().ok()?,
                _ => return None,
            };
            range.contains(&value).then_some(value)
        })
    }

    /// A number within `range`.
    pub(super) fn number(&mut self, path: &str, range: RangeInclusive<f64>) -> f64 {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.take(path, &expected, |raw| number(raw).filter(|value| range.contains(value)))
    }

    /// A duration within `range`.
    pub(super) fn duration(&mut self, path: &str, range: RangeInclusive<Duration>) -> Duration {
        let expected = format!("a duration such as \"10s\", from {:?} to {:?}", range.start(), range.end());
        self.take(path, &expected, |raw| match raw {
            Raw::Text(text) => units::duration(text).filter(|value| range.contains(value)),
            _ => None,
        })
    }

    /// A size in bytes within `range`.
    pub(super) fn size(&mut self, path: &str, range: RangeInclusive<u64>) -> usize {
        let expected = format!("a size such as \"8MiB\", from {} to {} bytes", range.start(), range.end());
        self.take(path, &expected, |raw| {
            let value = match raw {
                Raw::Text(text) => units::bytes(text)?,
                Raw::Int(value) => u64::try_from(*value).ok()?,
                _ => return None,
            };
            range.contains(&value).then_some(usize::try_from(value).ok()?)
        })
    }

    /// A list of texts, in the environment separated by commas, each of which `accept` must take.
    pub(super) fn list(&mut self, path: &str, expected: &str, accept: impl Fn(&str) -> bool) -> Vec<String> {
        self.take(path, expected, |raw| {
            let texts = match raw {
                Raw::List(items) => items
                    .iter()
                    .map(|item| match item {
                        Raw::Text(text) => Some(text.clone()),
                        _ => None,
                    })
                    .collect::<Option<Vec<_>>>()?,
                Raw::Text(text) => {
                    text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
                }
                _ => return None,
            };
            texts.iter().all(|text| accept(text)).then_some(texts)
        })
    }

    /// A section whose names are the user's, such as properties of the Kafka client.
    pub(super) fn texts(&mut self, path: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for (name, leaf) in self.section(path) {
            match leaf.value {
                Raw::Text(text) => texts.insert(name, text),
                Raw::Int(value) => texts.insert(name, value.to_string()),
                Raw::Float(value) => texts.insert(name, value.to_string()),
                Raw::Bool(value) => texts.insert(name, value.to_string()),
                Raw::List(_) => {
                    self.fault(&format!("{path}.{name}"), "a text", &leaf);
                    None
                }
            };
        }
        texts
    }

    /// A section of whatever JSON can hold.
    pub(super) fn object(&mut self, path: &str) -> serde_json::Map<String, serde_json::Value> {
        match detach(&mut self.tree, path) {
            Some(Node::Table(table)) => object(table),
            Some(Node::Leaf(leaf)) => {
                self.fault(path, "a section", &leaf);
                serde_json::Map::new()
            }
            None => serde_json::Map::new(),
        }
    }

    /// The names of the sections in a section.
    pub(super) fn sections(&self, path: &str) -> Vec<String> {
        match self.tree.get(path) {
            Some(Node::Table(table)) => {
                let tables = table.iter().filter(|(_, node)| matches!(node, Node::Table(_)));
                tables.map(|(name, _)| name.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Reads a section whose name is the user's, and may contain dots: within it, names are its own.
    pub(super) fn within<T>(
        &mut self,
        section: &str,
        name: &str,
        read: impl FnOnce(&mut Reader) -> T,
    ) -> Option<T> {
        let Some(Node::Table(table)) = self.tree.get_mut(section) else { return None };
        let Some(Node::Table(table)) = table.remove(name) else { return None };
        let mut reader = Reader::new(table, Vec::new());
        let value = read(&mut reader);
        let named = |fault: Fault| Fault { path: format!("{section}.{name}.{}", fault.path), ..fault };
        self.faults.extend(reader.finish().into_iter().map(named));
        Some(value)
    }

    /// Whether something was wrong with a setting already.
    pub(super) fn is_faulty(&self, path: &str) -> bool {
        self.faults.iter().any(|fault| fault.path == path)
    }

    /// A section of numbers whose names are the user's.
    pub(super) fn numbers(&mut self, path: &str, range: RangeInclusive<f64>) -> BTreeMap<String, f64> {
        let mut numbers = BTreeMap::new();
        for (name, leaf) in self.section(path) {
            match number(&leaf.value).filter(|value| range.contains(value)) {
                Some(value) => {
                    numbers.insert(name, value);
                }
                None => {
                    let expected = format!("a number from {} to {}", range.start(), range.end());
                    self.fault(&format!("{path}.{name}"), &expected, &leaf);
                }
            }
        }
        numbers
    }

    /// Adds a fault that spans several settings or needs more than a type.
    pub(super) fn complain(&mut self, path: &str, expected: &str, found: &str, origin: &str) {
        self.faults.push(Fault {
            path: path.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
            origin: origin.to_owned(),
        });
    }

    fn take<T: Default>(&mut self, path: &str, expected: &str, read: impl FnOnce(&Raw) -> Option<T>) -> T {
        // Every setting has a default in the built-in file; a name that is missing here is missing there,
        // or a section stands in its place, which was reported already.
        let Some(leaf) = self.remove(path) else { return T::default() };
        match read(&leaf.value) {
            Some(value) => value,
            None => {
                self.fault(path, expected, &leaf);
                T::default()
            }
        }
    }

    fn fault(&mut self, path: &str, expected: &str, leaf: &Leaf) {
        self.complain(path, expected, &leaf.value.describe(), &leaf.origin);
    }

    fn section(&mut self, path: &str) -> Vec<(String, Leaf)> {
        match detach(&mut self.tree, path) {
            Some(Node::Table(table)) => flatten(table, ""),
            Some(Node::Leaf(leaf)) => {
                self.fault(path, "a section", &leaf);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn remove(&mut self, path: &str) -> Option<Leaf> {
        match detach(&mut self.tree, path)? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Table(table) => {
                let origin = origin_of(&table);
                self.complain(path, "a single value", "a section", &origin);
                None
            }
        }
    }
}

fn object(table: BTreeMap<String, Node>) -> serde_json::Map<String, serde_json::Value> {
    let value = |node| match node {
        Node::Table(inner) => serde_json::Value::Object(object(inner)),
        Node::Leaf(leaf) => json(leaf.value),
    };
    table.into_iter().map(|(name, node)| (name, value(node))).collect()
}

fn json(raw: Raw) -> serde_json::Value {
    match raw {
        Raw::Text(text) => text.into(),
        Raw::Int(value) => value.into(),
        Raw::Float(value) => value.into(),
        Raw::Bool(value) => value.into(),
        Raw::List(values) => values.into_iter().map(json).collect(),
    }
}

fn number(raw: &Raw) -> Option<f64> {
    match raw {
        Raw::Int(value) => Some(*value as f64),
        Raw::Float(value) => Some(*value),
        Raw::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn detach(tree: &mut BTreeMap<String, Node>, path: &str) -> Option<Node> {
    match path.split_once('.') {
        None => tree.remove(path),
        Some((name, rest)) => match tree.get_mut(name)? {
            Node::Table(table) => detach(table, rest),
            Node::Leaf(_) => None,
        },
    }
}

fn flatten(table: BTreeMap<String, Node>, at: &str) -> Vec<(String, Leaf)> {
    let mut flat = Vec::new();
    for (name, node) in table {
        let path = if at.is_empty() { name } else { format!("{at}.{name}") };
        match node {
            Node::Leaf(leaf) => flat.push((path, leaf)),
            Node::Table(inner) => flat.extend(flatten(inner, &path)),
        }
    }
    flat
}
