//! Takes typed values out of an agent's front matter and collects what is wrong with them, so that all faults come at once.

use std::{ops::RangeInclusive, time::Duration};
use toml::{Table, Value};

/// What is left of the front matter, and the faults so far.
pub(crate) struct Fields {
    table: Table,
    /// Stands before the names of fields in faults.
    within: String,
    faults: Vec<String>,
}

impl Fields {
    pub(crate) fn new(table: Table) -> Self {
        Self { table, within: String::new(), faults: Vec::new() }
    }

    /// Adds a fault that is not about the type of one field.
    pub(crate) fn complain(&mut self, name: &str, what: &str) {
        self.faults.push(format!("{}{name}: {what}", self.within));
    }

    /// The faults; whatever nobody has taken is unknown.
    pub(crate) fn finish(mut self) -> Vec<String> {
        for name in std::mem::take(&mut self.table).keys() {
            self.complain(name, "there is no such field");
        }
        self.faults
    }

    /// Whether a fault of that field was found.
    pub(crate) fn has_fault(&self, name: &str) -> bool {
        let start = format!("{}{name}: ", self.within);
        self.faults.iter().any(|fault| fault.starts_with(&start))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.table.remove(name)
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, "a text", |value| Some(value.as_str()?.trim().to_owned()))
    }

    /// A text that must be there, and say something.
    pub(crate) fn required(&mut self, name: &str, what: &str) -> String {
        if !self.has(name) {
            self.complain(name, &format!("expected {what}, found nothing"));
            return String::new();
        }
        let text = self.text(name);
        if text.as_deref() == Some("") {
            self.complain(name, &format!("expected {what}, found nothing"));
        }
        text.unwrap_or_default()
    }

    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub(crate) fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> Option<i64> {
        let expected = if *range.end() == i64::MAX {
            format!("a whole number, at least {}", range.start())
        } else {
            format!("a whole number from {} to {}", range.start(), range.end())
        };
        self.read(name, &expected, |value| value.as_integer().filter(|number| range.contains(number)))
    }

    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.read(name, &expected, |value| {
            let number = value.as_float().or_else(|| Some(value.as_integer()? as f64))?;
            range.contains(&number).then_some(number)
        })
    }

    pub(crate) fn duration(&mut self, name: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let expected = format!("a duration such as \"90s\", from {:?} to {:?}", range.start(), range.end());
        self.read(name, &expected, |value| {
            starling_protocol::time::duration(value.as_str()?).filter(|time| range.contains(time))
        })
    }

    /// Texts, none of them empty; nothing if there are none.
    pub(crate) fn texts(&mut self, name: &str, most: usize) -> Vec<String> {
        let expected = format!("a list of at most {most} texts that are not empty");
        let texts = self.read(name, &expected, |value| {
            let text =
                |value: &Value| Some(value.as_str()?.trim().to_owned()).filter(|text| !text.is_empty());
            let texts: Vec<String> = value.as_array()?.iter().map(text).collect::<Option<_>>()?;
            (texts.len() <= most).then_some(texts)
        });
        texts.unwrap_or_default()
    }

    /// A table of fields of its own.
    pub(crate) fn table<T>(&mut self, name: &str, read: impl FnOnce(&mut Fields) -> T) -> Option<T> {
        let table = self.read(name, "a table", |value| value.as_table().cloned())?;
        let within = format!("{}{name}.", self.within);
        let mut inner = Fields { table, within, faults: Vec::new() };
        let value = read(&mut inner);
        self.faults.extend(inner.finish());
        Some(value)
    }

    fn read<T>(&mut self, name: &str, expected: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = self.table.remove(name)?;
        let read = read(&value);
        if read.is_none() {
            self.complain(name, &format!("expected {expected}, found {}", shown(&value)));
        }
        read
    }
}

/// A value as a fault shows it.
fn shown(value: &Value) -> String {
    const MOST: usize = 80;
    let text = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Datetime(time) => time.to_string(),
    };
    let start: String = text.chars().take(MOST).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}
