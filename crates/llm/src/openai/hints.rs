//! What headers say about an endpoint's limits.

use super::retry::parse_retry_after;
use crate::{Hints, Quota};
use reqwest::header::HeaderMap;
use std::time::{Duration, SystemTime};

/// Longest time that a server is believed.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Reads `retry-after-ms`, `retry-after` and `x-ratelimit-*`; what cannot be read is as if it were not there.
pub(super) fn read(headers: &HeaderMap, now: SystemTime) -> Hints {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let exact = text("retry-after-ms").and_then(|value| units(value, 1e-3));
    let retry_after = exact.or_else(|| text("retry-after").and_then(|value| parse_retry_after(value, now)));
    let quota = |what: &str| Quota {
        limit: text(&format!("x-ratelimit-limit-{what}")).and_then(count),
        remaining: text(&format!("x-ratelimit-remaining-{what}")).and_then(count),
        reset: text(&format!("x-ratelimit-reset-{what}")).and_then(duration),
    };
    Hints {
        retry_after: retry_after.map(|wait| wait.min(LONGEST)),
        requests: quota("requests"),
        tokens: quota("tokens"),
    }
}

fn count(text: &str) -> Option<i64> {
    // Some write -1 for "no limit".
    text.parse::<i64>().ok().filter(|count| *count >= 0)
}

/// A number of units, each so many seconds.
fn units(text: &str, unit: f64) -> Option<Duration> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Durations such as `12ms`, `6m0s`, `1h2m3.5s`, or a bare number of seconds. `-1`, and whatever else is none, is nothing.
fn duration(text: &str) -> Option<Duration> {
    if let Some(seconds) = units(text, 1.0) {
        return Some(seconds.min(LONGEST));
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        sum = sum.checked_add(units(number, seconds)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum.min(LONGEST))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn hints(headers: &[(&str, &str)]) -> Hints {
        let pairs = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        read(&pairs.collect(), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn durations_as_servers_write_them() {
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("12ms", Some(ms(12))),
            ("1s", Some(ms(1000))),
            ("6m0s", Some(ms(360_000))),
            ("1m3s", Some(ms(63_000))),
            ("1h2m3.5s", Some(ms(3_723_500))),
            ("7.66s", Some(ms(7_660))),
            ("2", Some(ms(2000))),
            ("0.5", Some(ms(500))),
            ("999999h", Some(LONGEST)),
            ("-1", None),
            ("", None),
            ("s", None),
            ("5", Some(ms(5000))),
            ("5 minutes", None),
            ("1m3", None),
            ("..s", None),
            ("1e400s", None),
            ("NaN", None),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_exact_goes_before_what_is_rounded() {
        let seconds = Duration::from_secs;
        assert_eq!(hints(&[]), Hints::default());
        let both = hints(&[("retry-after", "3"), ("retry-after-ms", "2750")]);
        assert_eq!(both.retry_after, Some(Duration::from_millis(2750)));
        assert_eq!(hints(&[("retry-after-ms", "soon"), ("retry-after", "3")]).retry_after, Some(seconds(3)));
        assert_eq!(hints(&[("retry-after", "\u{fe}")]).retry_after, None);
        let said = hints(&[
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "-1"),
            ("x-ratelimit-remaining-tokens", "many"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let requests =
            Quota { limit: Some(500), remaining: Some(0), reset: Some(Duration::from_millis(120)) };
        assert_eq!(said.requests, requests);
        assert_eq!(said.tokens, Quota { limit: None, remaining: None, reset: Some(seconds(360)) });
    }
}
