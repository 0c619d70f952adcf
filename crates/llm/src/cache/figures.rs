//! What a cache counts.

use crate::Purpose;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a reply came from that was not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// It was kept in memory.
    Memory,
    /// It was kept on disk.
    Disk,
    /// An equal question was being answered.
    Flight,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Flight];

    /// As it stands in a metric.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Memory => "memory",
            Source::Disk => "disk",
            Source::Flight => "flight",
        }
    }
}

/// What became of the questions with one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Answered with what was kept in memory.
    pub memory: u64,
    /// Answered with what was kept on disk.
    pub disk: u64,
    /// Answered with the reply to an equal question.
    pub flight: u64,
    /// Asked, though their purpose is one whose replies are kept.
    pub misses: u64,
}

impl CacheCounts {
    /// Those that were answered from this source.
    #[must_use]
    pub fn hits(&self, source: Source) -> u64 {
        match source {
            Source::Memory => self.memory,
            Source::Disk => self.disk,
            Source::Flight => self.flight,
        }
    }
}

/// The figures of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFigures {
    /// By purpose, in the order of [`Purpose::ALL`].
    pub counts: [(Purpose, CacheCounts); 4],
    /// Replies in memory, and their bytes.
    pub memory: (usize, u64),
    /// Replies on disk, and their bytes; `None` if none are kept there.
    pub disk: Option<(usize, u64)>,
}

#[derive(Default)]
struct Counters {
    memory: AtomicU64,
    disk: AtomicU64,
    flight: AtomicU64,
    misses: AtomicU64,
}

/// Counts as it goes.
#[derive(Default)]
pub(super) struct Tally {
    plan: Counters,
    work: Counters,
    judge: Counters,
    synthesize: Counters,
}

impl Tally {
    fn of(&self, purpose: Purpose) -> &Counters {
        match purpose {
            Purpose::Plan => &self.plan,
            Purpose::Work => &self.work,
            Purpose::Judge => &self.judge,
            Purpose::Synthesize => &self.synthesize,
        }
    }

    pub(super) fn hit(&self, purpose: Purpose, source: Source) {
        let counters = self.of(purpose);
        let counter = match source {
            Source::Memory => &counters.memory,
            Source::Disk => &counters.disk,
            Source::Flight => &counters.flight,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn miss(&self, purpose: Purpose) {
        self.of(purpose).misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> [(Purpose, CacheCounts); 4] {
        Purpose::ALL.map(|purpose| {
            let counters = self.of(purpose);
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let counts = CacheCounts {
                memory: get(&counters.memory),
                disk: get(&counters.disk),
                flight: get(&counters.flight),
                misses: get(&counters.misses),
            };
            (purpose, counts)
        })
    }
}
