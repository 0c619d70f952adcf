//! The file of outcomes: lines are added, never changed.

use super::{
    budget::Spent,
    identity::BatchTag,
    line::{SUCCEEDED, Written},
    settled::Settled,
};
use crate::exit::CliError;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use starling_protocol::Timestamp;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Lines that are gathered before they are written.
const BUFFER: usize = 256 << 10;

/// The output, which no other process has open as long as this is.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: BufWriter<File>,
    sync_every: Duration,
    synced: Instant,
    /// Whether something was written since.
    unsynced: bool,
    began: Timestamp,
    is_new: bool,
}

/// What is remembered beside the output.
#[derive(Debug, Serialize, Deserialize)]
struct Beginning {
    /// The batch's tag.
    batch: String,
    /// When its first run began, in milliseconds since 1970.
    began_ms: i64,
}

/// What the output says of earlier runs.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) settled: Settled,
    /// What those cost of which that is known.
    pub(super) spent: Spent,
}

impl Output {
    /// Opens the output of a batch, or makes it; cuts off a line that was torn when a process died. Says what it has.
    ///
    /// # Errors
    /// Another process has it open; it is the output of another batch, or none at all; it cannot be written.
    pub(super) fn open(
        path: &Path,
        tag: &BatchTag,
        now: Timestamp,
        sync_every: Duration,
    ) -> Result<(Self, Past), CliError> {
        let cannot = |error: io::Error| CliError::Usage(format!("{}: {error}", path.display()));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(cannot)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => {
                CliError::Usage(format!("{}: another process writes it", path.display()))
            }
            other => cannot(other.into()),
        })?;
        let (past, end) = read_past(path, &file, tag)?;
        file.set_len(end).map_err(cannot)?;
        (&file).seek(SeekFrom::Start(end)).map_err(cannot)?;
        let (beginning, is_new) = beginning(path, tag, now)?;
        let output = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BUFFER, file),
            sync_every,
            synced: Instant::now(),
            unsynced: false,
            began: Timestamp(beginning.began_ms),
            is_new,
        };
        Ok((output, past))
    }

    /// When the first run of this output began.
    pub(super) fn began(&self) -> Timestamp {
        self.began
    }

    /// Whether that is this one.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&mut self, line: &str) -> Result<(), CliError> {
        self.unsynced = true;
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|error| self.broken(error))
    }

    /// Gives what was written to the system, and now and then to the disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn settle(&mut self) -> Result<(), CliError> {
        self.file.flush().map_err(|error| self.broken(error))?;
        if self.synced.elapsed() >= self.sync_every { self.sync() } else { Ok(()) }
    }

    /// Gives all that was written to the disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn sync(&mut self) -> Result<(), CliError> {
        self.file.flush().map_err(|error| self.broken(error))?;
        if self.unsynced {
            tokio::task::block_in_place(|| self.file.get_ref().sync_data())
                .map_err(|error| self.broken(error))?;
        }
        self.unsynced = false;
        self.synced = Instant::now();
        Ok(())
    }

    fn broken(&self, error: io::Error) -> CliError {
        CliError::Failed(format!("{}: {error}", self.path.display()))
    }
}

/// Reads what is there: the rows that have ended, and where the last whole line ends.
fn read_past(path: &Path, file: &File, tag: &BatchTag) -> Result<(Past, u64), CliError> {
    let refuse = |what: String| CliError::Usage(format!("{}: {what}", path.display()));
    let mut past = Past::default();
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let (mut end, mut number, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        let read = reader.by_ref().read_until(b'\n', &mut line).map_err(|error| refuse(error.to_string()))?;
        if !line.ends_with(b"\n") {
            return Ok((past, end)); // the end, or a line that was torn
        }
        number += 1;
        let Ok(written) = serde_json::from_slice::<Written>(&line) else {
            let is_last = reader.fill_buf().is_ok_and(<[u8]>::is_empty);
            if is_last && number > 1 {
                return Ok((past, end)); // torn where the disk was
            }
            return Err(refuse(format!(
                "line {number} is none of a batch's output: name another file with --out"
            )));
        };
        let Some(instance) = tag.instance_of(&written.id) else {
            return Err(refuse(format!(
                "line {number} is of another batch: goal, strategy, input or --name are not what they were; name another file with --out"
            )));
        };
        past.settled.found(instance, written.status == SUCCEEDED);
        if written.unpriced_calls == 0 {
            past.spent.add(written.cost_usd); // otherwise nobody knows what a row costs
        }
        end += read as u64;
    }
}

/// Reads the small file beside the output, or makes it.
fn beginning(output: &Path, tag: &BatchTag, now: Timestamp) -> Result<(Beginning, bool), CliError> {
    let mut path = output.as_os_str().to_owned();
    path.push(".batch");
    let path = PathBuf::from(path);
    let cannot = |what: String| CliError::Usage(format!("{}: {what}", path.display()));
    match std::fs::read(&path) {
        Ok(bytes) => {
            // One that was torn says nothing; then the batch is as new as it can be.
            if let Ok(known) = serde_json::from_slice::<Beginning>(&bytes)
                && known.batch == tag.as_str()
            {
                return Ok((known, false));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error.to_string())),
    }
    let new = Beginning { batch: tag.as_str().to_owned(), began_ms: now.0 };
    let written = File::create(&path).and_then(|mut file| {
        serde_json::to_writer(&file, &new)?;
        file.write_all(b"\n")?;
        file.sync_all()
    });
    written.map_err(|error| cannot(error.to_string()))?;
    Ok((new, true))
}
