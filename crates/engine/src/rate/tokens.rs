//! How many tokens a minute one model behind one endpoint may be sent.

use std::time::Duration;

const MINUTE: f64 = 60.0;

/// A bucket of tokens that fills up within a minute. What a request will take is reserved by estimate before it is sent,
/// and corrected once that is known; so it can hold less than nothing for a while.
#[derive(Clone, Debug)]
pub struct TokenBudget {
    /// Of a minute; `None` as long as nobody has said.
    limit: Option<f64>,
    /// Whether that is the user's own word, which an endpoint does not change.
    fixed: bool,
    /// The part of it that is this process's own.
    share: f64,
    level: f64,
    at: Duration,
}

impl TokenBudget {
    /// Full. `per_minute` is the user's limit; without one, that of the endpoint holds, once it is heard.
    #[must_use]
    pub fn new(per_minute: Option<u64>) -> Self {
        let limit = per_minute.map(|limit| limit as f64);
        Self { limit, fixed: limit.is_some(), share: 1.0, level: limit.unwrap_or(0.0), at: Duration::ZERO }
    }

    /// Whether there is a limit, of the user's or of the endpoint's.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.limit.is_some()
    }

    /// From now on that part of all tokens is this process's own.
    pub fn take_share(&mut self, now: Duration, share: f64) {
        self.fill(now);
        self.share = share.clamp(f64::MIN_POSITIVE, 1.0);
        self.level = self.level.min(self.own().unwrap_or(self.level));
    }

    fn own(&self) -> Option<f64> {
        self.limit.map(|limit| limit * self.share)
    }

    /// How long until so many tokens may be sent. A request that is larger than a minute's worth has to wait for a full
    /// bucket.
    #[must_use]
    pub fn wait(&mut self, now: Duration, tokens: i64) -> Duration {
        let Some(limit) = self.own() else { return Duration::ZERO };
        self.fill(now);
        let missing = (tokens.max(0) as f64).min(limit) - self.level;
        if missing <= 0.0 {
            return Duration::ZERO;
        }
        // Rounded up, so that it is enough when the time has come.
        Duration::try_from_secs_f64(missing / limit * MINUTE + 1e-6).unwrap_or(Duration::MAX)
    }

    /// Takes tokens out, whether they are there or not.
    pub fn take(&mut self, now: Duration, tokens: i64) {
        if self.limit.is_some() {
            self.fill(now);
            self.level -= tokens.max(0) as f64;
        }
    }

    /// A request for which `reserved` tokens were taken out has used `used`.
    pub fn correct(&mut self, now: Duration, reserved: i64, used: i64) {
        if let Some(limit) = self.own() {
            self.fill(now);
            self.level = (self.level + (reserved.max(0) as f64) - (used.max(0) as f64)).min(limit);
        }
    }

    /// The endpoint has said what it allows for a minute, and what is left of that.
    pub fn heard(&mut self, now: Duration, limit: Option<i64>, remaining: Option<i64>) {
        let said = limit.filter(|limit| *limit > 0).map(|limit| limit as f64);
        if let (false, Some(said)) = (self.fixed, said) {
            if self.limit.is_none() {
                self.level = said * self.share;
            }
            self.limit = Some(said);
        }
        self.fill(now);
        // Others may use the same account. What is under way may not have arrived, so it is never more than we know.
        if let (Some(remaining), Some(_)) = (remaining, self.limit) {
            self.level = self.level.min(remaining.max(0) as f64 * self.share);
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        if let Some(limit) = self.own() {
            self.level = (self.level + limit * passed / MINUTE).min(limit);
        }
    }
}
