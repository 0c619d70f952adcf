//! At which rate requests are accepted.
//!
//! A refusal comes at once, a reply after seconds. So a request counts as accepted as soon as it is sent, until the
//! refusal comes.

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

/// When the last requests were sent that were not refused, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Accepted(VecDeque<Duration>);

impl Accepted {
    pub(super) fn note(&mut self, now: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// What was sent then was refused.
    pub(super) fn forget(&mut self, sent: Duration) {
        if let Ok(at) = self.0.binary_search(&sent) {
            self.0.remove(at);
        }
    }

    /// How many within `span` before `now`.
    pub(super) fn in_last(&self, now: Duration, span: Duration) -> usize {
        self.0.iter().rev().take_while(|at| now.saturating_sub(**at) <= span).count()
    }

    /// Requests a second: over the last second, or over as much time as it took to accept a few. `None` if there were
    /// not even those.
    pub(super) fn rate(&self, now: Duration) -> Option<f64> {
        let recent = self.in_last(now, SPAN);
        if recent >= ENOUGH {
            // A second that is known whole, unless nothing is older.
            let oldest = self.0.iter().rev().nth(recent - 1)?;
            let known = if self.0.len() > recent { SPAN } else { now.saturating_sub(*oldest) };
            return Some(recent as f64 / known.as_secs_f64().max(SHORTEST));
        }
        let oldest = self.0.iter().rev().nth(ENOUGH - 1)?;
        let known = now.saturating_sub(*oldest);
        (known <= LONGEST).then(|| ENOUGH as f64 / known.as_secs_f64().max(SHORTEST))
    }
}
