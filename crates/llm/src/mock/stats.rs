//! What a mock endpoint counts.

use crate::Purpose;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counts of a mock endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockStats {
    /// Calls that came.
    pub calls: u64,
    /// Calls that came, by purpose.
    pub by_purpose: ByPurpose,
    /// Calls whose body was that of an earlier one, byte for byte.
    pub repeated: u64,
    /// Calls without a complete reply yet.
    pub open: u64,
    /// Calls without a complete reply yet, by purpose.
    pub open_by_purpose: ByPurpose,
    /// Most calls that were open at once.
    pub max_open: u64,
    /// Calls whose client went away before the reply was complete.
    pub closed_by_client: u64,
    /// Calls beyond the limits; they are counted nowhere else.
    pub refused: u64,
}

/// A count for each purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByPurpose {
    /// Make a plan.
    pub plan: u64,
    /// Do a task.
    pub work: u64,
    /// Score a result.
    pub judge: u64,
    /// Make the answer.
    pub synthesize: u64,
}

#[derive(Default)]
struct PurposeCounters([AtomicU64; 4]);

impl PurposeCounters {
    fn of(&self, purpose: Purpose) -> &AtomicU64 {
        let [plan, work, judge, synthesize] = &self.0;
        match purpose {
            Purpose::Plan => plan,
            Purpose::Work => work,
            Purpose::Judge => judge,
            Purpose::Synthesize => synthesize,
        }
    }

    fn snapshot(&self) -> ByPurpose {
        let count = |purpose| self.of(purpose).load(Ordering::SeqCst);
        ByPurpose {
            plan: count(Purpose::Plan),
            work: count(Purpose::Work),
            judge: count(Purpose::Judge),
            synthesize: count(Purpose::Synthesize),
        }
    }
}

pub(super) struct Counters {
    calls: AtomicU64,
    by_purpose: PurposeCounters,
    repeated: AtomicU64,
    open: AtomicU64,
    open_by_purpose: PurposeCounters,
    max_open: AtomicU64,
    closed_by_client: AtomicU64,
    refused: AtomicU64,
    seen: Mutex<HashSet<u64>>,
    max_remembered: usize,
}

impl Counters {
    pub(super) fn new(max_remembered: usize) -> Counters {
        Counters {
            calls: AtomicU64::default(),
            by_purpose: PurposeCounters::default(),
            repeated: AtomicU64::default(),
            open: AtomicU64::default(),
            open_by_purpose: PurposeCounters::default(),
            max_open: AtomicU64::default(),
            closed_by_client: AtomicU64::default(),
            refused: AtomicU64::default(),
            seen: Mutex::default(),
            max_remembered,
        }
    }

    /// Gives a call its number.
    pub(super) fn number(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Counts a call that is refused.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }

    /// Opens a call.
    pub(super) fn open(counters: Arc<Counters>, purpose: Purpose, body: &[u8]) -> OpenCall {
        counters.by_purpose.of(purpose).fetch_add(1, Ordering::SeqCst);
        counters.open_by_purpose.of(purpose).fetch_add(1, Ordering::SeqCst);
        let open = counters.open.fetch_add(1, Ordering::SeqCst) + 1;
        counters.max_open.fetch_max(open, Ordering::SeqCst);
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let hash = hasher.finish();
        let mut seen = counters.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            if seen.len() < counters.max_remembered { !seen.insert(hash) } else { seen.contains(&hash) };
        drop(seen);
        if known {
            counters.repeated.fetch_add(1, Ordering::SeqCst);
        }
        OpenCall { counters, purpose, replied: false }
    }

    pub(super) fn snapshot(&self) -> MockStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        MockStats {
            calls: get(&self.calls),
            by_purpose: self.by_purpose.snapshot(),
            repeated: get(&self.repeated),
            open: get(&self.open),
            open_by_purpose: self.open_by_purpose.snapshot(),
            max_open: get(&self.max_open),
            closed_by_client: get(&self.closed_by_client),
            refused: get(&self.refused),
        }
    }
}

/// A call without a complete reply. Dropped before [`OpenCall::replied`]: the client went away.
pub(super) struct OpenCall {
    counters: Arc<Counters>,
    purpose: Purpose,
    replied: bool,
}

impl OpenCall {
    pub(super) fn replied(&mut self) {
        self.replied = true;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let counters = &self.counters;
        if !self.replied {
            counters.closed_by_client.fetch_add(1, Ordering::SeqCst);
        }
        let of_purpose = counters.open_by_purpose.of(self.purpose);
        of_purpose.fetch_sub(1, Ordering::SeqCst);
        counters.open.fetch_sub(1, Ordering::SeqCst);
    }
}
