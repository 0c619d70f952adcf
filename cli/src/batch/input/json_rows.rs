//! Rows as lines of JSON.

use super::{Input, InputError, RawRow, row};
use serde_json::{Map, Value};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
};

/// Reads them.
#[derive(Debug)]
pub struct JsonRows {
    input: Input,
    file: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    read: u64,
}

impl JsonRows {
    pub(super) fn open(input: Input, file: File) -> Self {
        Self { input, file: BufReader::new(file), line: Vec::new(), number: 0, read: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Option<RawRow>, InputError> {
        loop {
            let Some(whole) = self.read_line().map_err(|error| self.input.broken(error))? else {
                return Ok(None);
            };
            self.number += 1;
            let mut line = self.line.trim_ascii();
            if self.number == 1 {
                line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
            }
            if line.is_empty() {
                continue;
            }
            let columns = if whole {
                columns(line)
            } else {
                Err(format!("the line is larger than {} bytes (batch.max_row)", self.input.max_row))
            };
            return Ok(Some(row(self.number, self.read, line, columns)));
        }
    }

    /// The next line, as far as it may be held; whether that is all of it. `None` at the end.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        self.line.clear();
        let most = self.input.max_row as u64 + 1;
        let read = (&mut self.file).take(most).read_until(b'\n', &mut self.line)? as u64;
        self.read += read;
        if read == 0 {
            return Ok(None);
        }
        let whole = read < most || self.line.ends_with(b"\n");
        if !whole {
            self.read += self.skip_line()?;
        }
        Ok(Some(whole))
    }

    fn skip_line(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let buffer = self.file.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.file.consume(used);
            skipped += used as u64;
            if used == 0 || end.is_some() {
                return Ok(skipped);
            }
        }
    }
}

fn columns(line: &[u8]) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8 text".to_owned())?;
    match serde_json::from_str(text) {
        Ok(Value::Object(columns)) => Ok(columns),
        Ok(_) => Err("the line is no JSON object".to_owned()),
        Err(error) => Err(format!("the line is not JSON: {error}")),
    }
}
