//! Instants as people write them on the command line.

use starling_protocol::Timestamp;
use starling_runtime::{Clock, settings::parse_duration};

/// An instant, or how long ago.
///
/// # Errors
/// Says what was expected.
pub fn instant(text: &str) -> Result<Timestamp, String> {
    if let Some(ago) = parse_duration(text) {
        let now = Clock::system().now();
        return Ok(Timestamp(now.0.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))));
    }
    Timestamp::from_rfc3339(text).ok_or_else(|| {
        "expected an instant such as 2026-11-30T09:30:00Z or 2026-11-30, or how long ago, such as 90s, 2h or 7d"
            .to_owned()
    })
}
