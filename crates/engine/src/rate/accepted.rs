//! At which rate requests are accepted.
//!
//! A refusal comes at once, a reply after seconds. So a request counts as accepted as soon as it is sent, until the
//! refusal comes.
//!
//! While the rate rises, what was accepted in the last second is less than what is accepted now. So requests are counted
//! against what was allowed in that time as well: of a rate that was used whole and never refused, all is accepted,
//! whatever it was a second ago.

use std::{collections::VecDeque, time::Duration};

/// What is accepted within that counts.
const SPAN: Duration = Duration::from_secs(1);
/// Fewer than so many would be chance: they are counted over a longer time.
const ENOUGH: usize = 20;
/// But no longer than this.
const LONGEST: Duration = Duration::from_secs(10);
/// No rate is measured over less than this, in seconds.
const SHORTEST: f64 = 0.05;
/// Most times that are kept; at higher rates the span is shorter.
const KEPT: usize = 2048;

/// A request that was not refused.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Duration,
    /// Requests that had been allowed until then, since the beginning.
    allowed: f64,
}

/// The last requests that were not refused, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Accepted(VecDeque<Sent>);

impl Accepted {
    /// One is sent now, when so many have been allowed since the beginning.
    pub(super) fn note(&mut self, now: Duration, allowed: f64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Sent { at: now, allowed });
    }

    /// What was sent then was refused.
    pub(super) fn forget(&mut self, sent: Duration) {
        if let Ok(place) = self.0.binary_search_by_key(&sent, |request| request.at) {
            self.0.remove(place);
        }
    }

    /// How many within `span` before `now`.
    pub(super) fn in_last(&self, now: Duration, span: Duration) -> usize {
        self.0.iter().rev().take_while(|request| now.saturating_sub(request.at) <= span).count()
    }

    /// Requests a second where `present` are allowed, and `allowed` were since the beginning: over the last second, or over as
    /// much time as it took to accept a few. `None` if there were not even those.
    pub(super) fn rate(&self, now: Duration, present: f64, allowed: f64) -> Option<f64> {
        let recent = self.in_last(now, SPAN);
        let counted = recent.max(ENOUGH);
        let oldest = self.0.iter().rev().nth(counted - 1)?;
        let passed = now.saturating_sub(oldest.at);
        // A second that is known whole, unless nothing is older.
        let known = if recent >= ENOUGH && self.0.len() > recent { SPAN } else { passed };
        let in_time = counted as f64 / known.as_secs_f64().max(SHORTEST);
        let of_allowed = present * counted as f64 / (allowed - oldest.allowed).max(counted as f64);
        (known <= LONGEST).then(|| in_time.max(of_allowed))
    }
}
