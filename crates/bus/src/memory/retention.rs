//! Which records are of no more use, where memory is short.

use super::options::MemoryRetention;
use crate::{InRecord, OutRecord};
use bytes::Bytes;
use starling_protocol::{Timestamp, headers::CE_SUBJECT};
use std::{collections::HashMap, time::Duration};

/// What is live, and when to look for what is not.
#[derive(Debug)]
pub(super) struct Retention {
    options: MemoryRetention,
    /// Subjects that have begun and not ended, and when they began.
    live: HashMap<Bytes, Timestamp>,
    /// Bytes beyond which it is time to look again.
    due_above: usize,
}

impl Retention {
    pub(super) fn new(options: MemoryRetention) -> Self {
        Self { live: HashMap::new(), due_above: options.max_bytes, options }
    }

    /// A record is written.
    pub(super) fn sees(&mut self, record: &OutRecord, now: Timestamp) {
        let topic = &*record.to.topic;
        let begins = topic == self.options.begins_in;
        if !begins && topic != self.options.ends_in {
            return;
        }
        let Some(subject) = subject(&record.headers).or(record.key.as_ref()) else { return };
        if begins {
            self.live.entry(subject.clone()).or_insert(now);
        } else {
            self.live.remove(subject);
        }
    }

    /// Whether it is time to remove what is of no more use.
    pub(super) fn is_due(&self, bytes: usize) -> bool {
        bytes > self.due_above
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        // One that began once more after its end has no other.
        let longest = self.options.longest;
        self.live.retain(|_, began| began.plus(longest) > now);
    }

    /// Whether a record that all have read is still of use. One that belongs to nothing is kept as its topic says.
    pub(super) fn needs(&self, record: &InRecord, kept: Option<Duration>, now: Timestamp) -> bool {
        match subject(&record.headers) {
            Some(subject) => self.live.contains_key(subject),
            None => kept.is_none_or(|kept| record.timestamp.plus(kept) > now),
        }
    }

    /// So much is left; looking again is worth while once a good deal has come.
    pub(super) fn end(&mut self, bytes: usize) {
        self.due_above = self.options.max_bytes.max(bytes.saturating_add(self.options.max_bytes / 4));
    }
}

/// What a record is about.
fn subject(headers: &[(String, Bytes)]) -> Option<&Bytes> {
    headers.iter().find(|(name, _)| name == CE_SUBJECT).map(|(_, subject)| subject)
}
