//! Where replies are kept: in memory, and if wanted on disk as well.

use super::bounded::{Bounded, CacheBounds};
use super::disk::Disk;
use super::entry::{Calendar, Entry};
use super::figures::Source;
use super::key::Key;
use starling_protocol::CallReport;
use std::array;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

pub(super) struct Store {
    memory: Mutex<Bounded<Entry>>,
    disk: Option<Arc<Disk>>,
    /// Who changes what is on disk for a key, by its first byte: one at a time, so that what is forgotten is not written by
    /// somebody who began before.
    changing: [Arc<tokio::sync::Mutex<()>>; 256],
    ttl: Duration,
    calendar: Calendar,
}

impl Store {
    pub(super) fn new(ttl: Duration, memory: CacheBounds, disk: Option<Disk>) -> Self {
        Self {
            memory: Mutex::new(Bounded::new(memory)),
            disk: disk.map(Arc::new),
            changing: array::from_fn(|_| Arc::default()),
            ttl,
            calendar: Calendar::new(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Bounded<Entry>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is at hand.
    pub(super) fn recall(&self, key: &Key) -> Option<Entry> {
        let now = self.calendar.now();
        let mut memory = self.memory();
        let entry = memory.get(key)?.clone();
        if entry.is_fresh(now, self.ttl) {
            return Some(entry);
        }
        memory.remove(key);
        None
    }

    /// What is at hand, or on disk.
    pub(super) async fn find(&self, key: Key) -> Option<(Entry, Source)> {
        if let Some(entry) = self.recall(&key) {
            return Some((entry, Source::Memory));
        }
        let disk = self.disk.clone()?;
        // A task that cannot be joined has panicked, or the runtime ends: as good as nothing found.
        let entry = spawn_blocking(move || disk.read(&key)).await.ok()??;
        if !entry.is_fresh(self.calendar.now(), self.ttl) {
            return None; // what is written next takes its place
        }
        self.memory().put(key, entry.clone(), entry.bytes());
        Some((entry, Source::Disk))
    }

    /// Makes something to keep of a reply, and has it at hand from now on.
    pub(super) fn remember(&self, key: Key, text: &str, report: &CallReport) -> Entry {
        let entry = Entry::new(text, report, self.calendar.now());
        self.memory().put(key, entry.clone(), entry.bytes());
        entry
    }

    async fn change(&self, key: &Key) -> OwnedMutexGuard<()> {
        let [first, ..] = key.0;
        self.changing[usize::from(first)].clone().lock_owned().await
    }

    /// Writes to disk, if there is one.
    pub(super) async fn write(&self, key: Key, entry: Entry) {
        let Some(disk) = self.disk.clone() else { return };
        let writer = disk.clone();
        // Goes with the work, which goes on if nobody waits for it any more.
        let turn = self.change(&key).await;
        let written = spawn_blocking(move || {
            let due = writer.write(key, &entry);
            drop(turn);
            due
        });
        if matches!(written.await, Ok(true)) {
            // Nobody waits for that.
            drop(spawn_blocking(move || disk.tidy_up()));
        }
    }

    pub(super) async fn forget(&self, key: Key) {
        self.memory().remove(&key);
        let Some(disk) = self.disk.clone() else { return };
        let turn = self.change(&key).await;
        let removed = spawn_blocking(move || {
            disk.remove(&key);
            drop(turn);
        });
        let _ = removed.await;
    }

    /// Entries and bytes in memory, and on disk if there is one.
    pub(super) fn sizes(&self) -> ((usize, u64), Option<(usize, u64)>) {
        let memory = self.memory();
        let in_memory = (memory.len(), memory.bytes());
        drop(memory);
        (in_memory, self.disk.as_ref().map(|disk| disk.size()))
    }
}
