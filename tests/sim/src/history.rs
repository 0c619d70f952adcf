//! What happened in a run, line by line.

use std::{
    collections::{VecDeque, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

/// Lines that are kept for printing, at most.
const KEPT: usize = 4_000;

/// The lines of a run, and a fingerprint of all of them: two runs of one seed must have the same.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: VecDeque<String>,
    hasher: DefaultHasher, // with fixed keys
    keep: bool,
}

impl History {
    /// One that keeps its last lines if `keep`; the fingerprint is taken in any case.
    #[must_use]
    pub(crate) fn new(keep: bool) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Something happened at `now` milliseconds.
    pub(crate) fn note(&mut self, now: i64, line: &str) {
        now.hash(&mut self.hasher);
        line.hash(&mut self.hasher);
        if self.keep {
            if self.lines.len() == KEPT {
                self.lines.pop_front();
            }
            self.lines.push_back(format!("{now:>7} {line}"));
        }
    }

    /// The last lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Tells this history from others.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.hasher.clone().finish()
    }
}
