//! The circuit breaker of an endpoint, for all models behind it.

use starling_engine::breaker::{Breaker, BreakerLimits, BreakerPass, BreakerState, Health};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

#[derive(Debug)]
pub(super) struct Circuit {
    /// Where the breaker's time begins.
    origin: Instant,
    breaker: Mutex<Breaker>,
    changed: Notify,
}

impl Circuit {
    pub(super) fn new(limits: BreakerLimits) -> Self {
        let breaker = Mutex::new(Breaker::new(limits));
        Self { origin: Instant::now(), breaker, changed: Notify::new() }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.lock().state(self.origin.elapsed())
    }

    pub(super) fn pass(&self) -> Result<BreakerPass, Duration> {
        self.lock().pass(self.origin.elapsed())
    }

    /// A request was not sent after all. Nobody else is called: its turn comes soon.
    pub(super) fn give_back(&self, pass: BreakerPass) {
        self.lock().heard(self.origin.elapsed(), pass, Health::Unknown);
    }

    pub(super) fn heard(&self, pass: BreakerPass, health: Health) {
        let mut breaker = self.lock();
        let now = self.origin.elapsed();
        let before = breaker.state(now);
        let eased = breaker.heard(now, pass, health);
        let state = breaker.state(now);
        drop(breaker);
        match (before, state) {
            (BreakerState::Closed | BreakerState::HalfOpen, BreakerState::Open) => {
                tracing::warn!("the model endpoint fails and is left alone for a while; calls wait");
            }
            (BreakerState::HalfOpen, BreakerState::Closed) => {
                tracing::info!("the model endpoint answers again")
            }
            _ => {}
        }
        // Another call may be the one that goes next.
        if eased || state != before {
            self.changed.notify_waiters();
        }
    }

    /// Ends when it lets more or less through than before.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
