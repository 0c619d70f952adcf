//! Wall-clock instants as they appear on the wire.

use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// Milliseconds since the Unix epoch. The only notion of time in the protocol and in the engine:
/// whoever needs the current one is given it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The latest representable instant: "no deadline".
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// This instant moved later by `by`, saturating.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant in UTC as RFC 3339 writes it, with milliseconds; `None` outside of the years 0 to 9999,
    /// for which RFC 3339 has no form.
    #[must_use]
    pub fn to_rfc3339(self) -> Option<String> {
        const DAY: i64 = 24 * 60 * 60 * 1000;
        let (year, month, day) = civil_date(self.0.div_euclid(DAY));
        let in_day = self.0.rem_euclid(DAY);
        let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
        let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
        (0..=9999)
            .contains(&year)
            .then(|| format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"))
    }

    /// Reads a day, or an instant as RFC 3339 writes it: `2026-11-30`, `2026-11-30T09:30:00Z`, with fractions of a
    /// second and with offsets too.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let (date, time) = match text.split_at_checked(10)? {
            (date, "") => (date, "00:00:00Z"),
            (date, rest) => (date, rest.strip_prefix(['T', 't', ' '])?),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let (clock, offset) = time.split_at_checked(time.find(['Z', 'z', '+', '-'])?)?;
        let offset = match offset.split_at_checked(1)? {
            ("Z" | "z", "") => 0,
            (sign, offset) => {
                let [hours, minutes] = numbers(offset, ':', [2, 2])?;
                let minutes = (hours <= 23 && minutes <= 59).then_some(hours * 60 + minutes)?;
                if sign == "-" { -minutes } else { minutes }
            }
        };
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
        let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
        if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
        let days = days_since_1970(year, month, day);
        // A day that there is not, such as the 31st of April, comes back as another one.
        let exists = civil_date(days) == (year, month, day) && hour <= 23 && minute <= 59 && second <= 60;
        let seconds = days * 86_400 + (hour * 60 + minute - offset) * 60 + second;
        exists.then_some(Self(seconds * 1000 + millis))
    }
}

/// Numbers of so many digits each.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut read = [0; N];
    for (number, digits) in read.iter_mut().zip(digits) {
        let part = parts.next().filter(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(read)
}

/// The inverse of [`civil_date`].
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01. Years are counted from March, so that the
/// leap day is the last of its year and months have a regular pattern of lengths.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097; // days of 400 years
    let since_march_of_year_0 = days + 719_468;
    let (era, of_era) = (since_march_of_year_0.div_euclid(ERA), since_march_of_year_0.rem_euclid(ERA));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Reads a duration as people write it: `200ms`, `10s`, `15m`, `6h`, `7d`, or several in a row: `1h30m`.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(millis)?))?;
        rest = after.trim_start();
    }
    Some(total)
}
