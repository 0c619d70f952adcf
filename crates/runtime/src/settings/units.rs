//! Sizes as people write them, and durations.

pub(super) use starling_protocol::time::duration;

/// Reads `900`, `512KiB`, `8MiB`, `1GiB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durations_and_sizes() {
        assert_eq!(duration("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("7d"), Some(Duration::from_secs(604_800)));
        for bad in ["", "10", "s", "1.5s", "10 parsecs", "-1s", "99999999999999999999s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(bytes("8MiB"), Some(8 << 20));
        assert_eq!(bytes("900"), Some(900));
        for bad in ["", "MiB", "8MB", "-1", "1.5MiB", "99999999999GiB"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
