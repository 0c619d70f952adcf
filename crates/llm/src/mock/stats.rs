//! What a mock endpoint counts.

use crate::Purpose;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Open calls that are shown one by one.
const MAX_SHOWN: usize = 100;

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
    seen: Mutex<HashMap<u64, u32>>,
    max_remembered: usize,
    marks: Mutex<BTreeMap<&'static str, u64>>,
    /// Bounded by the connections that there are.
    open_calls: Mutex<BTreeMap<u64, (Purpose, Instant)>>,
}

/// All that a mock endpoint tells over HTTP.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    #[serde(flatten)]
    counts: MockStats,
    /// Calls by what was done to them.
    marks: BTreeMap<&'static str, u64>,
    /// The oldest calls without a complete reply.
    open_calls: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    number: u64,
    purpose: &'static str,
    open_ms: u64,
}

/// A request body, compared with those before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) fingerprint: u64,
    pub(super) earlier: u32,
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
            marks: Mutex::default(),
            open_calls: Mutex::default(),
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

    /// Compares the body of a call with those before.
    pub(super) fn compare(&self, body: &[u8]) -> Compared {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let fingerprint = hasher.finish();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let room = seen.len() < self.max_remembered;
        let earlier = match seen.get_mut(&fingerprint) {
            Some(calls) => {
                *calls = calls.saturating_add(1);
                *calls - 1
            }
            None => {
                if room {
                    seen.insert(fingerprint, 1);
                }
                0
            }
        };
        drop(seen);
        if earlier > 0 {
            self.repeated.fetch_add(1, Ordering::SeqCst);
        }
        Compared { fingerprint, earlier }
    }

    /// Opens a call.
    pub(super) fn open(counters: Arc<Counters>, number: u64, purpose: Purpose) -> OpenCall {
        counters.by_purpose.of(purpose).fetch_add(1, Ordering::SeqCst);
        counters.open_by_purpose.of(purpose).fetch_add(1, Ordering::SeqCst);
        let open = counters.open.fetch_add(1, Ordering::SeqCst) + 1;
        counters.max_open.fetch_max(open, Ordering::SeqCst);
        counters.open_calls().insert(number, (purpose, Instant::now()));
        OpenCall { counters, number, purpose, replied: false }
    }

    /// Counts a call under a mark.
    pub(super) fn mark(&self, mark: &'static str) {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner).entry(mark).or_default() += 1;
    }

    pub(super) fn marks(&self) -> BTreeMap<&'static str, u64> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn open_calls(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Purpose, Instant)>> {
        self.open_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn told(&self) -> Told {
        let shown = |(number, (purpose, since)): (&u64, &(Purpose, Instant))| Shown {
            number: *number,
            purpose: purpose.name(),
            open_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let open_calls = self.open_calls().iter().take(MAX_SHOWN).map(shown).collect();
        Told { counts: self.snapshot(), marks: self.marks(), open_calls }
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
    number: u64,
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
        counters.open_calls().remove(&self.number);
        let of_purpose = counters.open_by_purpose.of(self.purpose);
        of_purpose.fetch_sub(1, Ordering::SeqCst);
        counters.open.fetch_sub(1, Ordering::SeqCst);
    }
}
