//! Tables in inputs: delimited text with a header, and what its numbers mean.

use crate::prompt::Input;

/// Most rows that are read of one table; the rest is left out and counted.
const MAX_ROWS: usize = 10_000;

/// Begins the note that stands in place of the end of a long input.
pub(super) const LEFT_OUT: &str = "(… ";

/// A table of an input.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) source: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// Lines that have another number of fields than the header.
    pub(super) skipped: usize,
    /// The input came with the note that its end was left out.
    pub(super) shortened: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Whether more is better; `None` for text, and for numbers of unknown meaning.
    pub(super) better: Option<Better>,
    /// Smallest and largest number; `None` if the column is text.
    pub(super) range: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    High,
    Low,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Counts from 1, without the header.
    pub(super) number: usize,
    pub(super) cells: Vec<String>,
}

impl Row {
    pub(super) fn number_at(&self, column: usize) -> Option<f64> {
        number(self.cells.get(column)?)
    }
}

impl Table {
    /// Reads an input as a table, if it is one: a header and at least two rows of as many fields.
    pub(super) fn read(input: Input<'_>) -> Option<Table> {
        let (text, shortened) = match input.text.rsplit_once('\n') {
            Some((text, note)) if note.starts_with(LEFT_OUT) => (text, true),
            _ => (input.text, false),
        };
        let head = text.lines().find(|line| !line.trim().is_empty())?;
        let delimiter = [',', ';', '\t', '|']
            .into_iter()
            .max_by_key(|d| head.matches(*d).count())
            .filter(|d| head.contains(*d))?;
        let mut records = split_records(text, delimiter).into_iter();
        let header = records.next()?;
        if header.len() < 2 || header.iter().any(|name| name.is_empty() || name.len() > 60) {
            return None;
        }
        let mut rows = Vec::new();
        let mut skipped = 0;
        for record in records {
            if record.len() == header.len() && rows.len() < MAX_ROWS {
                let number = rows.len() + 1;
                let cells = record;
                rows.push(Row { number, cells });
            } else {
                skipped += 1;
            }
        }
        // Prose with commas is no table.
        if rows.len() < 2 || skipped > rows.len() / 4 + 1 {
            return None;
        }
        let columns =
            header.into_iter().enumerate().map(|(at, name)| Column::judge(name, at, &rows)).collect();
        Some(Table { source: input.name.to_owned(), columns, rows, skipped, shortened })
    }

    /// The first table of the inputs.
    pub(super) fn first(inputs: &[Input<'_>]) -> Option<Table> {
        inputs.iter().find_map(|input| Table::read(*input))
    }

    /// The column that names the rows: `name` or the like, else the first text column.
    pub(super) fn name_column(&self) -> usize {
        let named = |wanted: &str| self.columns.iter().position(|c| c.name.to_lowercase().contains(wanted));
        named("name")
            .or_else(|| named("title"))
            .or_else(|| named("model"))
            .or_else(|| self.columns.iter().position(|c| c.range.is_none()))
            .unwrap_or(0)
    }

    pub(super) fn name_of(&self, row: &Row) -> String {
        let cell = row.cells.get(self.name_column());
        match cell.filter(|cell| !cell.is_empty()) {
            Some(name) => name.clone(),
            None => format!("row {}", row.number),
        }
    }

    pub(super) fn row(&self, number: usize) -> Option<&Row> {
        self.rows.get(number.checked_sub(1)?)
    }

    /// Place of a row within a column, from 1 = best; equal values share a place.
    pub(super) fn place(&self, row: &Row, column: usize) -> Option<usize> {
        let better = self.columns.get(column)?.better?;
        let own = row.number_at(column)?;
        let ahead = self
            .rows
            .iter()
            .filter_map(|other| other.number_at(column))
            .filter(|value| match better {
                Better::High => *value > own,
                Better::Low => *value < own,
            })
            .count();
        Some(ahead + 1)
    }
}

impl Column {
    fn judge(name: String, at: usize, rows: &[Row]) -> Column {
        let numbers: Vec<f64> = rows.iter().filter_map(|row| row.number_at(at)).collect();
        let numeric = numbers.len() * 5 >= rows.len() * 4;
        let range = numeric.then(|| {
            numbers
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), n| (low.min(*n), high.max(*n)))
        });
        let better = range.and_then(|_| meaning(&name));
        Column { name, better, range }
    }

    /// The name for people: `battery_h` is "battery (h)".
    pub(super) fn label(&self) -> String {
        match self.name.rsplit_once('_') {
            Some((what, unit)) if unit.len() <= 4 => {
                format!("{} ({unit})", what.replace('_', " "))
            }
            _ => self.name.replace('_', " "),
        }
    }
}

/// Which way a number is good, by its name.
fn meaning(name: &str) -> Option<Better> {
    const LOW: &[&str] = &[
        "price", "cost", "fee", "usd", "eur", "weight", "kg", "latency", "delay", "error", "risk", "defect",
        "noise", "power", "watt", "distance", "age",
    ];
    const HIGH: &[&str] = &[
        "rating",
        "score",
        "stars",
        "ram",
        "memory",
        "storage",
        "ssd",
        "battery",
        "capacity",
        "speed",
        "quality",
        "review",
        "benefit",
        "revenue",
        "profit",
        "warranty",
        "cores",
        "resolution",
        "margin",
        "value",
        "points",
    ];
    let name = name.to_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
    let any = |list: &[&str]| {
        words.iter().any(|word| list.contains(&word.trim_end_matches('s')) || list.contains(word))
    };
    if any(LOW) {
        Some(Better::Low)
    } else if any(HIGH) {
        Some(Better::High)
    } else {
        None
    }
}

/// Reads a number that may wear a currency sign, thousands separators or a unit.
pub(super) fn number(cell: &str) -> Option<f64> {
    let bare: String = cell
        .trim()
        .trim_start_matches(['$', '€', '£'])
        .trim_end_matches(|c: char| c.is_alphabetic() || matches!(c, '%' | '"' | '€' | ' '))
        .chars()
        .filter(|c| !matches!(c, ',' | '_' | '\''))
        .collect();
    bare.parse::<f64>().ok().filter(|n| n.is_finite())
}

/// Splits delimited text; a quoted field may hold delimiters and line ends.
fn split_records(text: &str, delimiter: char) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    let mut close = |record: &mut Vec<String>, field: &mut String| {
        record.push(field.trim().to_owned());
        field.clear();
        if record.iter().any(|cell| !cell.is_empty()) {
            records.push(std::mem::take(record));
        }
        record.clear();
    };
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                field.push('"');
                chars.next();
            }
            '"' if quoted => quoted = false,
            '"' if field.trim().is_empty() => quoted = true,
            '\n' if !quoted => close(&mut record, &mut field),
            c if c == delimiter && !quoted => {
                record.push(field.trim().to_owned());
                field.clear();
            }
            c => field.push(c),
        }
    }
    if !field.is_empty() || !record.is_empty() {
        close(&mut record, &mut field);
    }
    records
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn table(text: &str) -> Option<Table> {
        Table::read(Input { name: "x.csv", media_type: "text/csv", text })
    }

    #[test]
    fn quotes_units_and_broken_lines() {
        let t = table("name,price_usd,ram_gb,note\n\"Alpha, 2\",\"$1,299.50\",16,\"a\nb\"\nBeta,900,8 GB,x\nGamma,1000,32,\nbroken,1\n").unwrap();
        assert_eq!(t.rows.len(), 3);
        assert_eq!((t.skipped, t.shortened), (1, false));
        let cut = table("a,b\n1,2\n3,4\n(… 9 of 19 bytes left out)").unwrap();
        assert_eq!((cut.rows.len(), cut.skipped, cut.shortened), (2, 0, true));
        assert_eq!(t.name_of(&t.rows[0]), "Alpha, 2");
        assert_eq!(t.rows[0].number_at(1), Some(1299.5));
        assert_eq!(t.rows[1].number_at(2), Some(8.0));
        assert_eq!(t.columns[1].better, Some(Better::Low));
        assert_eq!(t.columns[2].better, Some(Better::High));
        assert_eq!(t.columns[3].better, None);
        assert_eq!(t.place(&t.rows[2], 2), Some(1));
        assert_eq!(t.columns[1].label(), "price (usd)");
    }

    #[test]
    fn prose_is_no_table() {
        assert_eq!(table("Dear team, hello.\nIt broke, again, and again.\nBye\n"), None);
        assert_eq!(table(""), None);
        assert_eq!(table("a,b\n1,2\n"), None);
    }
}
