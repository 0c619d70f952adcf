//! Deadlines of envelopes as instants of this process.

use starling_protocol::Timestamp;
use starling_runtime::Clock;
use std::time::Duration;
use tokio::time::Instant;

/// Further away than this is not a deadline but the absence of one.
const FAR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The instant at which `deadline` comes; now if it has passed.
#[must_use]
pub fn instant_of(deadline: Timestamp, clock: &Clock) -> Instant {
    Instant::now() + deadline.since(clock.now()).min(FAR)
}
