//! Items: the things that an intent treats one by one, from a file.

use crate::{Format, TextLimits, text_of};
use serde_json::Value;

/// Why there are no items. Begins with what the file is or has, so that its name can stand before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ItemsFault(String);

/// The items of a file: the lines of a text, one column of a table, the entries of a JSON array or the lines of JSON.
/// `column` names the column of a table, or the field of JSON objects.
///
/// # Errors
/// The file is no text, or has another form; all faulty lines are named, up to ten.
pub fn items_of(name: &str, bytes: &[u8], column: Option<&str>) -> Result<Vec<String>, ItemsFault> {
    let read = text_of(name, bytes, TextLimits::default()).map_err(|fault| ItemsFault(fault.to_string()))?;
    let text = read.text.as_str();
    let items = match read.format {
        Format::Csv => of_table(text, b',', column)?,
        Format::Tsv => of_table(text, b'\t', column)?,
        Format::Json => of_array(text, column)?,
        Format::JsonLines => of_json_lines(text, column)?,
        Format::Plain | Format::Markdown => {
            if let Some(column) = column {
                return Err(ItemsFault(format!("is no table and no JSON, and so has no column {column:?}")));
            }
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        Format::Html | Format::Pdf => {
            let expected = "expected one item a line, CSV, a JSON array, or JSON lines";
            return Err(ItemsFault(format!("is {}: {expected}", read.format.media_type_of_file())));
        }
    };
    if items.is_empty() {
        return Err(ItemsFault("has no items in it".to_owned()));
    }
    Ok(items)
}

impl Format {
    fn media_type_of_file(self) -> &'static str {
        match self {
            Format::Html => "a web page",
            Format::Pdf => "a PDF",
            _ => self.media_type(),
        }
    }
}

fn of_table(text: &str, delimiter: u8, column: Option<&str>) -> Result<Vec<String>, ItemsFault> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
    let broken = |error: csv::Error| ItemsFault(format!("is no table: {error}"));
    let header = reader.headers().map_err(broken)?.clone();
    let named = || header.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let at = match column {
        Some(column) => header
            .iter()
            .position(|name| name.trim() == column)
            .ok_or_else(|| ItemsFault(format!("has no column {column:?}, but {}", named())))?,
        None if header.len() == 1 => 0,
        None => return Err(ItemsFault(format!("has the columns {}: say which one has the items", named()))),
    };
    let mut items = Vec::new();
    let mut faults = Faults::default();
    for record in reader.records() {
        match record {
            Ok(record) => {
                let item = record.get(at).unwrap_or_default().trim();
                if item.is_empty() {
                    let line = record.position().map_or(0, csv::Position::line);
                    faults.add(format!("line {line} has nothing in that column"));
                } else {
                    items.push(item.to_owned());
                }
            }
            Err(error) => faults.add(error.to_string()),
        }
    }
    faults.none()?;
    Ok(items)
}

fn of_array(text: &str, field: Option<&str>) -> Result<Vec<String>, ItemsFault> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| ItemsFault(format!("is no JSON: {error}")))?;
    let Value::Array(entries) = value else {
        return Err(ItemsFault("is no JSON array".to_owned()));
    };
    let entries = entries.into_iter().enumerate().map(|(n, entry)| (format!("entry {n}"), entry));
    of_values(entries, field, Faults::default())
}

fn of_json_lines(text: &str, field: Option<&str>) -> Result<Vec<String>, ItemsFault> {
    let mut faults = Faults::default();
    let mut entries = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("line {}", n + 1);
        match serde_json::from_str::<Value>(line) {
            Ok(entry) => entries.push((place, entry)),
            Err(error) => faults.add(format!("{place} is no JSON: {error}")),
        }
    }
    of_values(entries.into_iter(), field, faults)
}

/// A text is an item as it is; what has more to it is one as JSON.
fn of_values(
    entries: impl Iterator<Item = (String, Value)>,
    field: Option<&str>,
    mut faults: Faults,
) -> Result<Vec<String>, ItemsFault> {
    let mut items = Vec::new();
    for (place, mut entry) in entries {
        if let Some(field) = field {
            match entry.get_mut(field) {
                Some(value) => entry = value.take(),
                None => {
                    faults.add(format!("{place} has no field {field:?}"));
                    continue;
                }
            }
        }
        match entry {
            Value::Null => faults.add(format!("{place} is null")),
            Value::String(item) if item.trim().is_empty() => faults.add(format!("{place} is empty")),
            Value::String(item) => items.push(item.trim().to_owned()),
            other => items.push(other.to_string()),
        }
    }
    faults.none()?;
    Ok(items)
}

#[derive(Default)]
struct Faults {
    told: Vec<String>,
    untold: usize,
}

impl Faults {
    const MOST: usize = 10;

    fn add(&mut self, fault: String) {
        if self.told.len() < Self::MOST {
            self.told.push(fault);
        } else {
            self.untold += 1;
        }
    }

    fn none(mut self) -> Result<(), ItemsFault> {
        if self.told.is_empty() {
            return Ok(());
        }
        if self.untold > 0 {
            self.told.push(format!("and {} more", self.untold));
        }
        Err(ItemsFault(format!("has faulty items: {}", self.told.join("; "))))
    }
}
