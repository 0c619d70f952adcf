//! Rows of a table, the first of which has the names of the columns.

use super::{Input, InputError, RawRow, row};
use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::{Map, Value};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
};

/// Reads them.
#[derive(Debug)]
pub struct CsvRows {
    input: Input,
    reader: Reader<Bounded>,
    columns: Vec<String>,
    record: ByteRecord,
    number: u64,
}

/// Bytes that the reader fetches at once: so much more than a row may have been read for it.
const BUFFER: usize = 64 << 10;

/// A file of which only so much is given for one row: a quote that is not closed makes all that follows one row.
#[derive(Debug)]
struct Bounded {
    file: File,
    left: usize,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let read = self.file.read(buffer)?;
        self.left = self.left.saturating_sub(read);
        Ok(read)
    }
}

impl CsvRows {
    pub(super) fn open(input: Input, file: File, delimiter: u8) -> Result<Self, InputError> {
        let bounded = Bounded { file, left: input.max_row + BUFFER };
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .flexible(true) // a row with too many columns is a bad row, and no end of all
            .buffer_capacity(BUFFER)
            .from_reader(bounded);
        let header = reader.byte_headers().cloned();
        let header = header.map_err(|error| broken(&input, 0, error))?;
        let columns =
            columns(&header).map_err(|fault| InputError::Header { path: input.path.clone(), fault })?;
        Ok(Self { input, reader, columns, record: ByteRecord::new(), number: 0 })
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(super) fn next(&mut self) -> Result<Option<RawRow>, InputError> {
        self.reader.get_mut().left = self.input.max_row + BUFFER;
        let number = self.number + 1;
        let more = self.reader.read_byte_record(&mut self.record);
        if !more.map_err(|error| broken(&self.input, number, error))? {
            return Ok(None);
        }
        self.number = number;
        if self.record.as_slice().len() > self.input.max_row {
            return Err(self.input.too_large(number));
        }
        let content: Vec<u8> =
            self.record.iter().flat_map(|cell| [cell, b"\x1f"]).flatten().copied().collect();
        Ok(Some(row(number, self.reader.position().byte(), &content, self.cells())))
    }

    fn cells(&self) -> Result<Map<String, Value>, String> {
        if self.record.len() != self.columns.len() {
            return Err(format!("the row has {} columns, not {}", self.record.len(), self.columns.len()));
        }
        let cell = |(name, cell): (&String, &[u8])| match std::str::from_utf8(cell) {
            Ok(cell) => Ok((name.clone(), Value::String(cell.to_owned()))),
            Err(_) => Err(format!("the column {name} is not UTF-8 text")),
        };
        self.columns.iter().zip(&self.record).map(cell).collect()
    }
}

fn broken(input: &Input, number: u64, error: csv::Error) -> InputError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => input.too_large(number),
        csv::ErrorKind::Io(error) => input.broken(error),
        other => input.broken(io::Error::other(format!("{other:?}"))),
    }
}

/// The names of the columns.
fn columns(header: &ByteRecord) -> Result<Vec<String>, String> {
    let names: Result<Vec<String>, _> =
        header.iter().map(|name| std::str::from_utf8(name).map(|name| name.trim().to_owned())).collect();
    let names = names.map_err(|_| "the line of column names is not UTF-8 text".to_owned())?;
    if names.iter().all(String::is_empty) {
        return Err("expected a line of column names".to_owned());
    }
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() {
            faults.push(format!("column {} has no name", index + 1));
        } else if !seen.insert(name) {
            faults.push(format!("two columns are named {name}"));
        }
    }
    if faults.is_empty() { Ok(names) } else { Err(faults.join("; ")) }
}
