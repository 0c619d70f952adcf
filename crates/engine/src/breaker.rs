//! Whether an endpoint that fails is left alone for a while (circuit breaker; Nygard, Release It!, 2007).
//!
//! Closed, all requests pass. After so many failures in a row it opens: nothing passes for a while. Then a few requests
//! pass to try it: one that is answered closes it, one that fails opens it again.

use std::time::Duration;

/// How a [`Breaker`] behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Failures in a row that open it; 0 never does.
    pub failures: u32,
    /// How long it stays open.
    pub open: Duration,
    /// Requests that try the endpoint at once after that.
    pub probes: u32,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures: 10, open: Duration::from_secs(15), probes: 1 }
    }
}

/// What it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything.
    Closed,
    /// A few requests, to see what becomes of them.
    HalfOpen,
    /// Nothing.
    Open,
}

/// Leave to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BreakerPass {
    /// Which time that it was closed, or tried: what was sent before says nothing about now.
    generation: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The endpoint answered, whatever it said.
    Answered,
    /// It did not, or said that it failed.
    Failed,
    /// Nobody waited for it.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Duration },
    HalfOpen { under_way: u32 },
}

/// Decides whether requests may be sent to one endpoint. Times are those of any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    phase: Phase,
    generation: u64,
}

impl Breaker {
    /// Closed.
    #[must_use]
    pub fn new(limits: BreakerLimits) -> Self {
        let limits = BreakerLimits { probes: limits.probes.max(1), ..limits };
        Self { limits, phase: Phase::Closed { failures: 0 }, generation: 0 }
    }

    /// What it lets through now.
    #[must_use]
    pub fn state(&self, now: Duration) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { until } if now < until => BreakerState::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Leave to send a request now.
    ///
    /// # Errors
    /// How long to wait before asking again; longest while it is tried and nobody knows how long that takes.
    pub fn pass(&mut self, now: Duration) -> Result<BreakerPass, Duration> {
        if let Phase::Open { until } = self.phase {
            if now < until {
                return Err(until - now);
            }
            self.enter(Phase::HalfOpen { under_way: 0 });
        }
        if let Phase::HalfOpen { under_way } = &mut self.phase {
            if *under_way >= self.limits.probes {
                return Err(self.limits.open);
            }
            *under_way += 1;
        }
        Ok(BreakerPass { generation: self.generation })
    }

    /// What became of a request that was let through. Says whether it lets more through than before.
    pub fn heard(&mut self, now: Duration, pass: BreakerPass, health: Health) -> bool {
        if pass.generation != self.generation {
            return false;
        }
        match (&mut self.phase, health) {
            (Phase::Closed { failures }, Health::Answered) => *failures = 0,
            (Phase::Closed { failures }, Health::Failed) => {
                *failures = failures.saturating_add(1);
                if self.limits.failures > 0 && *failures >= self.limits.failures {
                    self.open(now);
                }
            }
            (Phase::HalfOpen { .. }, Health::Answered) => {
                self.enter(Phase::Closed { failures: 0 });
                return true;
            }
            (Phase::HalfOpen { .. }, Health::Failed) => self.open(now),
            (Phase::HalfOpen { under_way }, Health::Unknown) => {
                *under_way = under_way.saturating_sub(1);
                return true;
            }
            (Phase::Closed { .. }, Health::Unknown) | (Phase::Open { .. }, _) => {}
        }
        false
    }

    fn open(&mut self, now: Duration) {
        self.enter(Phase::Open { until: now.saturating_add(self.limits.open) });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn breaker() -> Breaker {
        Breaker::new(BreakerLimits { failures: 3, open: s(15), probes: 2 })
    }

    /// One request after the other, each with this end.
    fn play(breaker: &mut Breaker, now: Duration, ends: &[Health]) {
        for end in ends {
            let pass = breaker.pass(now).unwrap();
            breaker.heard(now, pass, *end);
        }
    }

    #[test]
    fn failures_in_a_row_open_it_and_others_do_not() {
        use Health::{Answered, Failed, Unknown};
        let mut breaker = breaker();
        play(&mut breaker, s(1), &[Failed, Failed, Answered, Failed, Unknown, Failed]);
        assert_eq!(breaker.state(s(1)), BreakerState::Closed);
        play(&mut breaker, s(2), &[Failed]);
        assert_eq!(breaker.state(s(2)), BreakerState::Open);
        assert_eq!(breaker.pass(s(5)), Err(s(12)));
        assert_eq!(breaker.state(s(17)), BreakerState::HalfOpen);

        let mut never = Breaker::new(BreakerLimits { failures: 0, ..BreakerLimits::default() });
        play(&mut never, s(1), &[Failed; 100]);
        assert_eq!(never.state(s(1)), BreakerState::Closed);
    }

    #[test]
    fn a_few_try_it_and_what_they_meet_decides() {
        let mut breaker = breaker();
        let before = breaker.pass(s(0)).unwrap();
        play(&mut breaker, s(0), &[Health::Failed; 3]);
        // What was sent before it opened says nothing, whatever it is.
        assert!(!breaker.heard(s(1), before, Health::Answered));
        assert_eq!(breaker.state(s(1)), BreakerState::Open);

        let first = breaker.pass(s(15)).unwrap();
        let second = breaker.pass(s(15)).unwrap();
        assert_eq!(breaker.pass(s(15)), Err(s(15)), "two are enough");
        assert!(breaker.heard(s(16), first, Health::Unknown), "another one may try");
        let third = breaker.pass(s(16)).unwrap();
        breaker.heard(s(17), third, Health::Failed);
        assert_eq!(breaker.pass(s(18)), Err(s(14)), "15 s from the failure on");
        assert!(!breaker.heard(s(18), second, Health::Answered), "of the last time that it was tried");

        let probe = breaker.pass(s(32)).unwrap();
        assert!(breaker.heard(s(33), probe, Health::Answered));
        assert_eq!(breaker.state(s(33)), BreakerState::Closed);
        play(&mut breaker, s(33), &[Health::Failed; 2]);
        assert_eq!(breaker.state(s(33)), BreakerState::Closed, "it counts from the beginning");
    }
}
