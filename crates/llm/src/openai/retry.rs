//! When to ask again.

use super::options::Backoff;
use std::time::{Duration, SystemTime};

/// The wait before the next attempt, or `None` to give up: no attempts left, or the wait would
/// outlast the `remaining` time to the deadline. `None` for `max_attempts` leaves only the deadline.
///
/// `attempt` counts from 1 and has just failed; `random` is in 0..1.
pub(super) fn wait_before_next(
    attempt: u32,
    max_attempts: Option<u32>,
    retry_after: Option<Duration>,
    remaining: Duration,
    backoff: Backoff,
    random: f64,
) -> Option<Duration> {
    if max_attempts.is_some_and(|most| attempt >= most) {
        return None;
    }
    let doublings = attempt.saturating_sub(1).min(31);
    let ceiling = backoff.base.saturating_mul(1 << doublings).min(backoff.cap);
    let jitter = ceiling.mul_f64(random.clamp(0.0, 1.0));
    // Callers that were told the same second should not come back in the same instant: the jitter
    // comes on top of what the server asked for, a tenth of it at most.
    let wait = match retry_after {
        Some(asked) => asked.saturating_add(jitter.min(asked / 10)).max(jitter),
        None => jitter,
    };
    (wait < remaining).then_some(wait)
}

/// Reads `Retry-After`: seconds, with or without a fraction, or an HTTP date.
pub(super) fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_millis(500) };

    #[test]
    fn waits_grow_up_to_the_cap_and_end_at_the_deadline() {
        let ms = Duration::from_millis;
        let long = Duration::from_secs(60);
        let table = [
            // attempt, retry_after, remaining, random, expected
            (1, None, long, 0.0, Some(ms(0))),
            (1, None, long, 1.0, Some(ms(100))),
            (2, None, long, 1.0, Some(ms(200))),
            (3, None, long, 0.5, Some(ms(200))),
            (9, None, long, 1.0, Some(ms(500))),
            (10, None, long, 1.0, None),
            (11, None, long, 1.0, None),
            (1, None, ms(50), 1.0, None),
            (1, Some(ms(2000)), long, 0.0, Some(ms(2000))),
            (1, Some(ms(2000)), long, 1.0, Some(ms(2100))),
            (1, Some(ms(0)), long, 1.0, Some(ms(100))),
            (1, Some(ms(2000)), ms(1000), 0.0, None),
            (1, Some(Duration::MAX), long, 0.5, None),
        ];
        for (attempt, retry_after, remaining, random, expected) in table {
            let got = wait_before_next(attempt, Some(10), retry_after, remaining, BACKOFF, random);
            assert_eq!(got, expected, "attempt {attempt}, {retry_after:?}, {random}");
        }
    }

    #[test]
    fn retry_after_in_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, expected) in [
            ("3", Some(Duration::from_secs(3))),
            (" 0.25 ", Some(Duration::from_millis(250))),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(Duration::from_secs(10))),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(Duration::ZERO)),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(parse_retry_after(value, now), expected, "{value}");
        }
    }
}
