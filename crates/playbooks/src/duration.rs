//! Spans of time as people write them.

/// The shortest and the longest time that a playbook can give a task, in milliseconds.
const BOUNDS: std::ops::RangeInclusive<i64> = 1..=3_600_000;

/// Milliseconds in a text such as `500ms`, `5s` or `2m`.
///
/// # Errors
/// Says what was expected.
pub(crate) fn milliseconds(text: &str) -> Result<i64, String> {
    let fault =
        || format!("expected a time from 1ms to 60m such as \"5s\", found {}", crate::fault::excerpt(text));
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(fault()),
    };
    let number: i64 = number.parse().map_err(|_| fault())?;
    number.checked_mul(factor).filter(|ms| BOUNDS.contains(ms)).ok_or_else(fault)
}

/// The same text for a time.
pub(crate) fn text(milliseconds: i64) -> String {
    if milliseconds % 1_000 == 0 { format!("{}s", milliseconds / 1_000) } else { format!("{milliseconds}ms") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (written, read) in [("1ms", 1), ("500ms", 500), ("5s", 5_000), ("60m", 3_600_000)] {
            assert_eq!(milliseconds(written), Ok(read));
            assert_eq!(milliseconds(&text(read)), Ok(read));
        }
        for wrong in ["", "5", "s", "0s", "-1s", "1.5s", "61m", "2h", "99999999999999999999s", "5 s"] {
            assert!(milliseconds(wrong).unwrap_err().starts_with("expected a time"), "{wrong}");
        }
    }
}
