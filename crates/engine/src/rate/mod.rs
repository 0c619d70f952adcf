//! How fast one model behind one endpoint may be asked.
//!
//! Two bounds. The outer one begins at a configured rate and moves by the share of refusals among the last replies:
//! multiplied down when there are many, up when there are hardly any. The inner one appears with the first refusal: the
//! rate falls to what was accepted just then, and stays there. After a while it is raised by a hundredth; while that goes
//! well, in steps that double, so that a limit which was raised is found soon. The next refusal ends that. So the rate
//! settles below a limit instead of circling above it, which additive increase without a hold does (compare AIMD, Chiu
//! and Jain 1989).
//!
//! Requests are spaced by the generic cell rate algorithm (ITU-T I.371): they are let through one by one, never a second's
//! worth at once.
//!
//! Where several processes ask the same endpoint, both bounds are those of all of them together, and each process takes its
//! [`share`]; see [`RateGovernor::take_share`].

mod accepted;
mod bulkhead;
mod concurrency;
mod share;
mod tokens;

use accepted::Accepted;
pub use bulkhead::Bulkheads;
pub use concurrency::{ConcurrencyGovernor, ConcurrencyLimits, Ended, OpenCall};
pub use share::share;
use std::time::Duration;
pub use tokens::TokenBudget;

/// The lowest rate that refusals can lead to, in requests a second: a provider that accepts nothing is still asked.
const LOWEST: f64 = 0.1;
/// What is accepted is measured with an error; a rate at the very limit would be refused again and again.
const MARGIN: f64 = 0.98;
/// What a refusal leaves of the rate when so few requests were sent that it is chance how many were accepted.
const LEFT: f64 = 0.5;
/// Share of the rate that has to be used before it is worth asking for more.
const IN_USE: f64 = 0.8;
/// Fewer replies than that say nothing about a share of refusals.
const FEWEST_REPLIES: f64 = 20.0;
/// How long a step has to go well before the next one.
const STEP: Duration = Duration::from_secs(1);

/// How a [`RateGovernor`] behaves. Rates are in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimits {
    /// The outer bound at the beginning.
    pub start: f64,
    /// The outer bound at least.
    pub min: f64,
    /// The outer bound at most.
    pub max: f64,
    /// Replies after which the outer bound is looked at.
    pub window: u32,
    /// Share of refusals among them, 0 to 1, above which it is lowered, and by which factor.
    pub lower: (f64, f64),
    /// Share of refusals below which it is raised, and by which factor.
    pub raise: (f64, f64),
    /// How long the inner bound stays before it is raised.
    pub hold: Duration,
    /// By which share it is raised first; twice as much each time that goes well.
    pub probe: f64,
    /// And at most.
    pub max_probe: f64,
    /// How much of the time that requests did not use may be made up for at once.
    pub burst: Duration,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            start: 200.0,
            min: 20.0,
            max: 1500.0,
            window: 200,
            lower: (0.05, 0.8),
            raise: (0.005, 1.1),
            hold: Duration::from_secs(10),
            probe: 0.01,
            max_probe: 0.25,
            burst: Duration::from_millis(20),
        }
    }
}

/// Leave to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pass {
    /// The inner bound under which it was given. What is refused of an older one says nothing about the present one.
    generation: u64,
    sent: Duration,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was taken in, whatever the reply was.
    Accepted,
    /// Too many (429), and when to come back, if that was said.
    Refused(Option<Duration>),
    /// It did not get far enough to be refused.
    Unknown,
}

/// The bound that refusals have led to.
#[derive(Clone, Copy, Debug)]
struct Inner {
    rate: f64,
    since: Duration,
    /// What it is raised by next.
    step: f64,
    /// Requests that were let through since, and those of them that were accepted.
    passed: u64,
    accepted: u64,
}

/// Decides when the next request may be sent. Times are those of any clock that does not go back, from any origin.
#[derive(Clone, Debug)]
pub struct RateGovernor {
    limits: RateLimits,
    outer: f64,
    inner: Option<Inner>,
    /// The part of the rate that is this process's own.
    share: f64,
    generation: u64,
    /// Replies in the window, and refusals among them.
    replies: u32,
    refused: u32,
    accepted: Accepted,
    /// Requests that this process was allowed until then, used or not.
    allowed: f64,
    reckoned: Duration,
    /// When the next request is due, were all sent at the rate.
    due: Duration,
    /// Nothing is sent before.
    closed_until: Duration,
}

impl RateGovernor {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(limits: RateLimits) -> Self {
        let min = limits.min.max(LOWEST);
        let limits = RateLimits {
            window: limits.window.max(1),
            min,
            max: limits.max.max(min),
            max_probe: limits.max_probe.max(limits.probe),
            ..limits
        };
        Self {
            outer: limits.start.clamp(limits.min, limits.max),
            limits,
            inner: None,
            share: 1.0,
            generation: 0,
            replies: 0,
            refused: 0,
            accepted: Accepted::default(),
            allowed: 0.0,
            reckoned: Duration::ZERO,
            due: Duration::ZERO,
            closed_until: Duration::ZERO,
        }
    }

    /// Requests a second that are let through now.
    #[must_use]
    pub fn rate(&self) -> f64 {
        (self.common_rate() * self.share).max(LOWEST)
    }

    /// Requests a second that all processes together may send, as far as this one knows.
    #[must_use]
    pub fn common_rate(&self) -> f64 {
        self.inner.map_or(self.outer, |inner| inner.rate.min(self.outer))
    }

    /// What refusals have led to, in requests a second of all processes together; `None` if none was refused yet.
    #[must_use]
    pub fn found(&self) -> Option<f64> {
        self.inner.map(|inner| inner.rate)
    }

    /// From now on this process sends that part of what all together may send, above 0 and up to 1.
    pub fn take_share(&mut self, share: f64) {
        self.share = share.clamp(f64::MIN_POSITIVE, 1.0);
    }

    /// Others were refused, and now send `rate` requests a second, all together. Who has found out for itself knows better.
    pub fn heard(&mut self, now: Duration, rate: f64) {
        self.reckon(now);
        if self.inner.is_none() && rate > 0.0 && rate < self.outer {
            self.bound(now, rate, self.limits.probe);
        }
    }

    /// Leave to send a request now.
    ///
    /// # Errors
    /// How long to wait before asking again.
    pub fn pass(&mut self, now: Duration) -> Result<Pass, Duration> {
        if now < self.closed_until {
            return Err(self.closed_until - now);
        }
        self.reckon(now);
        self.probe(now);
        let earliest = self.due.saturating_sub(self.limits.burst);
        if now < earliest {
            return Err(earliest - now);
        }
        self.due = self.due.max(now) + Duration::from_secs_f64(1.0 / self.rate());
        if let Some(inner) = &mut self.inner {
            inner.passed += 1;
        }
        self.accepted.note(now, self.allowed);
        Ok(Pass { generation: self.generation, sent: now })
    }

    /// Nothing is let through for so long: the endpoint says that nothing is left until then.
    pub fn close(&mut self, now: Duration, wait: Duration) {
        self.closed_until = self.closed_until.max(now.saturating_add(wait));
        self.due = self.due.max(self.closed_until);
    }

    /// What became of a request that was let through.
    pub fn answered(&mut self, now: Duration, pass: Pass, answer: Answer) {
        self.reckon(now);
        match answer {
            Answer::Accepted => {
                if let Some(inner) = self.inner.as_mut().filter(|_| pass.generation == self.generation) {
                    inner.accepted += 1;
                }
            }
            Answer::Refused(retry_after) => {
                self.refused += 1;
                self.accepted.forget(pass.sent);
                if pass.generation == self.generation {
                    self.fall(now);
                }
                // Others are accepted: who was refused comes back later, the others go on, more slowly.
                if let Some(wait) = retry_after.filter(|_| self.accepted.in_last(now, STEP) == 0) {
                    self.close(now, wait);
                }
            }
            Answer::Unknown => {
                self.accepted.forget(pass.sent);
                return;
            }
        }
        self.replies += 1;
        // The window is one of all processes.
        let window = f64::from(self.limits.window);
        if f64::from(self.replies) >= (window * self.share).max(FEWEST_REPLIES.min(window)) {
            self.move_outer();
        }
    }

    /// The rate falls to what was accepted just now.
    fn fall(&mut self, now: Duration) {
        let accepted = self.accepted.rate(now, self.rate(), self.allowed);
        let (left, step) = match accepted {
            Some(accepted) => (MARGIN * accepted.min(self.rate()), self.limits.probe),
            // A guess is soon seen to be too low, or too high.
            None => (LEFT * self.rate(), self.limits.max_probe),
        };
        self.bound(now, (left / self.share).max(LOWEST), step);
    }

    /// Adds up what is allowed. What changes the rate comes after it.
    fn reckon(&mut self, now: Duration) {
        self.allowed += self.rate() * now.saturating_sub(self.reckoned).as_secs_f64();
        self.reckoned = self.reckoned.max(now);
    }

    /// From now on this is the inner bound, which is raised by `step` next.
    fn bound(&mut self, now: Duration, rate: f64, step: f64) {
        self.inner = Some(Inner { rate, since: now, step, passed: 0, accepted: 0 });
        self.generation += 1;
    }

    /// Raises the inner bound if it has held for long enough and is what keeps requests back.
    fn probe(&mut self, now: Duration) {
        let Some(inner) = &mut self.inner else { return };
        let first = inner.step <= self.limits.probe; // and not a step of those that follow soon
        let hold = if first { self.limits.hold } else { STEP };
        let held = now.saturating_sub(inner.since);
        if held < hold {
            return;
        }
        let in_use = IN_USE * inner.rate * self.share;
        if (inner.passed as f64) < in_use * held.as_secs_f64() {
            // There was no want of more.
            *inner = Inner { since: now, passed: 0, accepted: 0, ..*inner };
            return;
        }
        if (inner.accepted as f64) < (in_use * STEP.as_secs_f64()).max(1.0) {
            return; // whether it goes well is not known yet
        }
        let rate = (inner.rate * (1.0 + inner.step)).min(self.limits.max);
        let step = (inner.step * 2.0).min(self.limits.max_probe);
        self.bound(now, rate, step);
    }

    fn move_outer(&mut self) {
        let share = f64::from(self.refused) / f64::from(self.replies);
        let (lower_above, lower_by) = self.limits.lower;
        let (raise_below, raise_by) = self.limits.raise;
        if share > lower_above {
            self.outer *= lower_by;
        } else if share < raise_below {
            self.outer *= raise_by;
        }
        self.outer = self.outer.clamp(self.limits.min, self.limits.max);
        (self.replies, self.refused) = (0, 0);
    }
}
