//! Whether a process is alive and ready.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The health of a process: its loops and what it waits for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Health {
    began: Instant,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    pulses: BTreeMap<String, Pulse>,
    gates: BTreeMap<String, Gate>,
}

/// Beaten by a loop each time that it comes round.
#[derive(Clone, Debug)]
pub struct Pulse {
    began: Instant,
    last_ms: Arc<AtomicU64>,
}

/// Something without which the process is not ready.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Default for Health {
    fn default() -> Self {
        Self { began: Instant::now(), parts: Arc::default() }
    }
}

impl Health {
    /// A loop that must come round again and again.
    #[must_use]
    pub fn pulse(&self, name: &str) -> Pulse {
        let pulse = Pulse { began: self.began, last_ms: Arc::default() };
        pulse.beat();
        self.lock().pulses.insert(name.to_owned(), pulse.clone());
        pulse
    }

    /// The loop has ended as it should.
    pub fn ended(&self, name: &str) {
        self.lock().pulses.remove(name);
    }

    /// A condition for being ready, closed at first.
    #[must_use]
    pub fn gate(&self, name: &str) -> Gate {
        let gate = Gate::default();
        self.lock().gates.insert(name.to_owned(), gate.clone());
        gate
    }

    /// Loops that have not come round for `limit`.
    #[must_use]
    pub fn stalled(&self, limit: Duration) -> Vec<String> {
        let now = self.began.elapsed();
        let silent =
            |pulse: &Pulse| now.saturating_sub(Duration::from_millis(pulse.last_ms.load(Ordering::Relaxed)));
        let parts = self.lock();
        parts.pulses.iter().filter(|(_, pulse)| silent(pulse) > limit).map(|(name, _)| name.clone()).collect()
    }

    /// What the process still waits for.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        let parts = self.lock();
        parts.gates.iter().filter(|(_, gate)| !gate.is_open()).map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pulse {
    /// The loop came round.
    pub fn beat(&self) {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(millis, Ordering::Relaxed);
    }
}

impl Gate {
    /// The condition holds, or does not any more.
    pub fn set(&self, open: bool) {
        self.0.store(open, Ordering::Relaxed);
    }

    /// Whether the condition holds.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
