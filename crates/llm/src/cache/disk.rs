//! Replies on disk: a file for each.
//!
//! Files and not an embedded database, because a cache may lose anything at any time and must never be in the way: several
//! processes can share a folder without a lock, a damaged file is one miss, and whoever wants it empty deletes it. A file
//! is written beside its place and moved there, so nobody reads half of one; it begins with a checksum, so what a crash or
//! a disk made of it is noticed.

use super::bounded::{Bounded, CacheBounds};
use super::entry::Entry;
use super::key::Key;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How the name of a reply's file ends; before that stands its key.
const ENDING: &str = ".reply";
/// How the name of a file begins that is being written.
const UNFINISHED: &str = ".starling-";
/// After which time nobody writes on a file any more that is being written.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The length of a checksum in hex, with the end of its line.
const HEAD: usize = 65;

/// A folder of replies.
pub(super) struct Disk {
    folder: PathBuf,
    bounds: CacheBounds,
    known: Mutex<Known>,
    /// The last write failed, which was told.
    failing: AtomicBool,
}

/// What is in the folder, as far as this process knows.
struct Known {
    files: Bounded<()>,
    /// Bytes and files written since the folder was looked through.
    written: (u64, usize),
}

/// What stands in a file after the checksum, as JSON.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// So that a file in the wrong place answers nobody.
    key: String,
    model: String,
    prompt_tokens: i64,
    stored_at: u64,
    text: String,
}

impl Disk {
    /// Looks through the folder, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, read, or written to.
    pub(super) fn open(folder: &Path, bounds: CacheBounds) -> io::Result<Self> {
        make_folder(folder)?;
        drop(unfinished(folder)?);
        let disk = Self {
            folder: folder.to_owned(),
            bounds,
            known: Mutex::new(Known { files: Bounded::new(bounds), written: (0, 0) }),
            failing: AtomicBool::new(false),
        };
        disk.look_through()?;
        Ok(disk)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries and bytes.
    pub(super) fn size(&self) -> (usize, u64) {
        let known = self.known();
        (known.files.len(), known.files.bytes())
    }

    fn place(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        let shelf = name.get(..2).unwrap_or_default();
        self.folder.join(shelf).join(format!("{name}{ENDING}"))
    }

    /// What is kept for `key`; whatever is wrong with it, it is as if nothing was.
    pub(super) fn read(&self, key: &Key) -> Option<Entry> {
        let path = self.place(key);
        let Ok(mut file) = File::open(&path) else {
            self.known().files.remove(key);
            return None;
        };
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = Vec::new();
        let entry = (size <= self.bounds.bytes)
            .then(|| (&mut file).take(self.bounds.bytes).read_to_end(&mut bytes).ok())
            .flatten()
            .and_then(|_| decode(&bytes, key));
        let Some(entry) = entry else {
            tracing::debug!(path = %path.display(), "a cached reply is damaged, and is dropped");
            self.remove(key);
            return None;
        };
        // Which was used last is known from this when the folder is looked through.
        let _ = file.set_modified(SystemTime::now());
        // Another process may have written it.
        self.note(*key, size);
        Some(entry)
    }

    /// Keeps a reply, if it goes. Says whether it is time to tidy up.
    pub(super) fn write(&self, key: Key, entry: &Entry) -> bool {
        let bytes = encode(&key, entry);
        let size = bytes.len() as u64;
        if size > self.bounds.bytes {
            return false;
        }
        match self.put(&key, &bytes) {
            Ok(()) => {
                self.failing.store(false, Ordering::Relaxed);
                self.note(key, size);
                self.is_due(size)
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(folder = %self.folder.display(), %error, "replies cannot be kept on disk");
                }
                false
            }
        }
    }

    fn put(&self, key: &Key, bytes: &[u8]) -> io::Result<()> {
        let path = self.place(key);
        let shelf = path.parent().unwrap_or(&self.folder);
        make_folder(shelf)?;
        let mut file = unfinished(shelf)?;
        file.write_all(bytes)?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    }

    pub(super) fn remove(&self, key: &Key) {
        self.known().files.remove(key);
        // It may be gone already.
        let _ = fs::remove_file(self.place(key));
    }

    /// Notes a file that is there, and deletes those for which there is no room any more.
    fn note(&self, key: Key, size: u64) {
        let gone = self.known().files.put(key, (), size);
        for key in gone {
            let _ = fs::remove_file(self.place(&key));
        }
    }

    /// Others may write into the folder: after an eighth of what fits, what is there is counted anew, so that all together
    /// exceed the bounds by little.
    fn is_due(&self, size: u64) -> bool {
        let mut known = self.known();
        known.written.0 += size;
        known.written.1 += 1;
        let (bytes, files) = known.written;
        let due = bytes > self.bounds.bytes / 8 || files > self.bounds.entries / 8 + 1;
        if due {
            known.written = (0, 0);
        }
        due
    }

    /// Counts what is in the folder, and deletes what is too much.
    pub(super) fn tidy_up(&self) {
        if let Err(error) = self.look_through() {
            tracing::debug!(folder = %self.folder.display(), %error, "the folder cannot be looked through");
        }
    }

    fn look_through(&self) -> io::Result<()> {
        let mut found: Vec<(SystemTime, Key, u64)> = Vec::new();
        for shelf in fs::read_dir(&self.folder)?.flatten() {
            // What is no folder, and what goes while it is looked at, is of no interest.
            let Ok(files) = fs::read_dir(shelf.path()) else { continue };
            for file in files.flatten() {
                let name = file.file_name();
                let Some(name) = name.to_str() else { continue };
                let Ok(metadata) = file.metadata() else { continue };
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                if let Some(key) = name.strip_suffix(ENDING).and_then(Key::parse) {
                    found.push((used, key, metadata.len()));
                } else if name.starts_with(UNFINISHED) && used.elapsed().is_ok_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(file.path());
                }
            }
        }
        found.sort_unstable_by_key(|(used, ..)| *used);
        let mut files = Bounded::new(self.bounds);
        let gone: Vec<Key> = found.into_iter().flat_map(|(_, key, size)| files.put(key, (), size)).collect();
        self.known().files = files;
        for key in gone {
            let _ = fs::remove_file(self.place(&key));
        }
        Ok(())
    }
}

/// A file that is gone unless it is moved to its place. Only its owner may read it.
fn unfinished(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)
}

/// Makes a folder, if it is not there, that is nobody else's business.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn encode(key: &Key, entry: &Entry) -> Vec<u8> {
    let kept = Kept {
        key: key.to_string(),
        model: entry.model.clone(),
        prompt_tokens: entry.prompt_tokens,
        stored_at: entry.stored_at,
        text: entry.text.to_string(),
    };
    // Texts and numbers always have a form in JSON; nothing at all would be noticed as damage.
    let body = serde_json::to_vec(&kept).unwrap_or_default();
    let mut bytes = checksum(&body).into_bytes();
    bytes.extend(body);
    bytes
}

fn decode(bytes: &[u8], key: &Key) -> Option<Entry> {
    let (head, body) = bytes.split_at_checked(HEAD)?;
    if head != checksum(body).as_bytes() {
        return None;
    }
    let kept: Kept = serde_json::from_slice(body).ok()?;
    (kept.key == key.to_string()).then(|| Entry {
        text: kept.text.into(),
        model: kept.model,
        prompt_tokens: kept.prompt_tokens,
        stored_at: kept.stored_at,
    })
}

fn checksum(body: &[u8]) -> String {
    format!("{}\n", Key(Sha256::digest(body).into()))
}
