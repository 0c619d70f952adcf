//! How many calls of an endpoint may be sent again.
//!
//! A bucket into which every first try puts a part of a token, and from which every retry takes one (the retry budget of
//! Finagle, and of gRPC, A6). So an endpoint that fails at more than a share of what it is asked is not asked ever more for it.
//! A little drips in with time, for those that ask seldom. Who finds it empty waits: a retry is put off, not given up.

use std::time::Duration;

/// How a [`RetryBudget`] behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    /// Retries for each first try, in the long run.
    pub share: f64,
    /// Retries a second on top.
    pub per_second: f64,
    /// Retries at once, at most.
    pub burst: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { share: 0.2, per_second: 1.0, burst: 10 }
    }
}

/// Decides when a retry may be sent. Times are those of any clock that does not go back, from any origin.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    limits: RetryLimits,
    level: f64,
    at: Duration,
}

impl RetryBudget {
    /// Full.
    #[must_use]
    pub fn new(limits: RetryLimits) -> Self {
        let limits = RetryLimits {
            share: limits.share.max(0.0),
            per_second: limits.per_second.max(0.01),
            burst: limits.burst.max(1),
        };
        Self { limits, level: f64::from(limits.burst), at: Duration::ZERO }
    }

    /// A first try is sent.
    pub fn first(&mut self) {
        self.level = (self.level + self.limits.share).min(f64::from(self.limits.burst));
    }

    /// A retry is sent now.
    ///
    /// # Errors
    /// It is not; and how long to wait before asking again, unless first tries come in between.
    pub fn retry(&mut self, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.level = (self.level + passed * self.limits.per_second).min(f64::from(self.limits.burst));
        if self.level >= 1.0 {
            self.level -= 1.0;
            return Ok(());
        }
        // Rounded up, so that it is enough when the time has come.
        Err(Duration::from_secs_f64((1.0 - self.level) / self.limits.per_second + 1e-6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_calls() {
        let mut budget = RetryBudget::new(RetryLimits { share: 0.1, per_second: 1.0, burst: 5 });
        let mut retries = 0;
        // 1,000 calls in 10 s, each of which fails as often as it is sent.
        for ms in (0..10_000).step_by(10) {
            budget.first();
            while budget.retry(Duration::from_millis(ms)).is_ok() {
                retries += 1;
            }
        }
        assert!((105..=115).contains(&retries), "{retries}: 100 + 10 + 5");
    }

    #[test]
    fn who_finds_it_empty_is_told_for_how_long() {
        let mut budget = RetryBudget::new(RetryLimits { share: 0.0, per_second: 2.0, burst: 1 });
        let now = Duration::from_secs(3);
        assert_eq!(budget.retry(now), Ok(()));
        let wait = budget.retry(now).err().unwrap_or_default();
        assert!(wait >= Duration::from_millis(500) && wait < Duration::from_millis(510), "{wait:?}");
        assert_eq!(budget.retry(now + wait), Ok(()));
    }
}
