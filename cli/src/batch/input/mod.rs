//! Rows, one after the other: nothing but the row in hand is in memory.

mod csv_rows;
mod json_rows;

use super::{RowFormat, identity::RowId};
use crate::exit::CliError;
use csv_rows::CsvRows;
use json_rows::JsonRows;
use serde_json::{Map, Value};
use starling_protocol::ids::digest;
use std::{
    fs::File,
    path::{Path, PathBuf},
};
use tokio::sync::mpsc;

/// The column that names a row.
pub(super) const ID: &str = "id";
/// Rows that wait between the file and the batch.
const AHEAD: usize = 64;

/// The file of rows.
#[derive(Clone, Debug)]
pub struct Input {
    path: PathBuf,
    format: RowFormat,
    max_row: usize,
}

/// A row as it stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RawRow {
    /// From 1.
    pub(super) number: u64,
    /// How many bytes of the file were read when it was.
    pub(super) read: u64,
    /// Its name.
    pub(super) key: String,
    pub(super) id: RowId,
    /// What is in it; or what is wrong with it.
    pub(super) columns: Result<Map<String, Value>, String>,
}

/// Why no more rows can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error(
        "{}: row {number} is larger than {max} bytes (batch.max_row): is a quote not closed?",
        path.display()
    )]
    RowTooLarge { path: PathBuf, number: u64, max: usize },
    #[error("{}: {fault}", path.display())]
    Header { path: PathBuf, fault: String },
}

impl From<InputError> for CliError {
    fn from(error: InputError) -> Self {
        CliError::Usage(error.to_string())
    }
}

/// The rows of an input, in its order.
#[derive(Debug)]
pub enum RowReader {
    /// Of a table.
    #[doc(hidden)]
    Csv(Box<CsvRows>),
    /// Of lines of JSON.
    #[doc(hidden)]
    Json(Box<JsonRows>),
}

impl Input {
    /// A file whose rows have at most `max_row` bytes.
    ///
    /// # Errors
    /// Nobody says how its rows are written.
    pub fn new(path: &Path, format: Option<RowFormat>, max_row: usize) -> Result<Self, CliError> {
        let by_name = || match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Some(RowFormat::Csv),
            Some("tsv") => Some(RowFormat::Tsv),
            Some("jsonl" | "ndjson") => Some(RowFormat::Jsonl),
            _ => None,
        };
        let format = format.or_else(by_name).ok_or_else(|| {
            CliError::Usage(format!(
                "{}: expected a file named .csv, .tsv, .jsonl or .ndjson, or --format",
                path.display()
            ))
        })?;
        Ok(Self { path: path.to_owned(), format, max_row })
    }

    /// The file's name, without folders.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Its size in bytes, where it has one.
    pub(super) fn size(&self) -> Option<u64> {
        std::fs::metadata(&self.path).ok().map(|file| file.len()).filter(|size| *size > 0)
    }

    /// Opens it.
    ///
    /// # Errors
    /// It cannot be read, or its line of column names is of no use.
    pub fn open(&self) -> Result<RowReader, CliError> {
        let file = File::open(&self.path).map_err(|error| self.broken(error))?;
        Ok(match self.format {
            RowFormat::Csv => RowReader::Csv(Box::new(CsvRows::open(self.clone(), file, b',')?)),
            RowFormat::Tsv => RowReader::Csv(Box::new(CsvRows::open(self.clone(), file, b'\t')?)),
            RowFormat::Jsonl => RowReader::Json(Box::new(JsonRows::open(self.clone(), file))),
        })
    }

    fn broken(&self, error: std::io::Error) -> InputError {
        InputError::Io { path: self.path.clone(), error }
    }

    fn too_large(&self, number: u64) -> InputError {
        InputError::RowTooLarge { path: self.path.clone(), number, max: self.max_row }
    }
}

impl RowReader {
    /// The names of the columns, if all rows have the same.
    #[must_use]
    pub fn columns(&self) -> Option<&[String]> {
        match self {
            RowReader::Csv(rows) => Some(rows.columns()),
            RowReader::Json(_) => None,
        }
    }

    fn next(&mut self) -> Result<Option<RawRow>, InputError> {
        match self {
            RowReader::Csv(rows) => rows.next(),
            RowReader::Json(rows) => rows.next(),
        }
    }

    /// Reads on a thread of its own, a bounded number of rows ahead.
    pub(super) fn in_background(mut self) -> mpsc::Receiver<Result<RawRow, InputError>> {
        let (rows, receiver) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || {
            while let Some(row) = self.next().transpose() {
                let broken = row.is_err();
                if rows.blocking_send(row).is_err() || broken {
                    return; // nobody wants more, or there is no more
                }
            }
        });
        receiver
    }
}

/// A row with these columns, or a bad one, of which `content` tells it from others.
fn row(number: u64, read: u64, content: &[u8], columns: Result<Map<String, Value>, String>) -> RawRow {
    let by_content = || {
        let content = String::from_utf8_lossy(content);
        digest(&["row", &content, &number.to_string()])
    };
    let named = columns.and_then(|columns| match columns.get(ID) {
        None => Ok((by_content(), columns)),
        Some(Value::String(id)) if !id.trim().is_empty() => Ok((id.clone(), columns)),
        Some(Value::Number(id)) => Ok((id.to_string(), columns)),
        Some(_) => Err("the column id is neither text nor a number".to_owned()),
    });
    let (key, columns) = match named {
        Ok((key, columns)) => (key, Ok(columns)),
        Err(fault) => (by_content(), Err(fault)),
    };
    RawRow { number, read, id: RowId::of_key(&key), key, columns }
}
