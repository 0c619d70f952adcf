//! Calls that run under the same limit, and what they say about it.

use super::{Ended, OpenCall, lengths::Times};
use std::time::Duration;

/// Calls of a cohort: as many as may be open, but so many at least and at most.
const SIZE: (u32, u32) = (8, 256);
/// It is over when this share of its calls has ended: the longest of all would hold up what follows.
const ENDED: f64 = 0.9;

/// A cohort that is gathered or runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Cohort {
    number: u64,
    since: Duration,
    size: u32,
    begun: u32,
    ended: u32,
    /// Those of them that got no reply, and waited for long.
    lost: u32,
    /// Since when calls belong to it: those of the limit before are gone.
    settled: Option<Duration>,
    /// Sum of the calls that were open when one of it began.
    open: f64,
    /// Open calls times the seconds that they were open, from then until a time.
    held: f64,
    until: Duration,
    times: Times,
}

/// What became of a cohort.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Mean of the calls that were open when one of its began, with it: so many may be in its way.
    pub(super) open: f64,
    /// Mean of the open calls over its time. More than the other where many begin at once.
    pub(super) held: f64,
    /// Share of its calls that got no reply, and waited for long.
    pub(super) lost: f64,
    pub(super) times: Times,
}

impl Cohort {
    /// The one after this, from now on, under a limit of so many open calls.
    pub(super) fn next(&self, now: Duration, allowed: u32) -> Self {
        let size = allowed.clamp(SIZE.0, SIZE.1);
        Self { number: self.number + 1, since: now, size, ..Self::default() }
    }

    /// When it was begun to be gathered.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// So many calls were open up to now.
    pub(super) fn pass_time(&mut self, now: Duration, open: u32) {
        if self.settled.is_some() {
            self.held += f64::from(open) * now.saturating_sub(self.until).as_secs_f64();
            self.until = self.until.max(now);
        }
    }

    /// A call begins as one of `open`, of which `allowed` may be. `usual` is the time of a call, in seconds.
    pub(super) fn begin(
        &mut self,
        now: Duration,
        role: usize,
        open: u32,
        allowed: u32,
        usual: f64,
    ) -> OpenCall {
        let settles = open >= allowed || now.saturating_sub(self.since).as_secs_f64() >= usual;
        if settles && self.settled.is_none() {
            (self.settled, self.until) = (Some(now), now);
        }
        let belongs = self.settled.is_some() && self.begun < self.size;
        if belongs {
            self.begun += 1;
            self.open += f64::from(open);
        }
        OpenCall { cohort: belongs.then_some(self.number), role, since: now }
    }

    /// A call has ended. What became of the cohort, if that was the last that is waited for.
    pub(super) fn ended(
        &mut self,
        now: Duration,
        call: OpenCall,
        ended: Ended,
        usual: f64,
    ) -> Option<Outcome> {
        if call.cohort != Some(self.number) {
            return None;
        }
        self.ended += 1;
        match ended {
            Ended::Replied { tokens, took } => self.times.note(call.role, tokens, took.as_secs_f64()),
            // An error that comes quickly has nothing to do with the load.
            Ended::Unanswered => {
                let waited = now.saturating_sub(call.since).as_secs_f64();
                self.lost += u32::from(usual > 0.0 && waited >= usual);
            }
        }
        if self.begun < self.size || f64::from(self.ended) < ENDED * f64::from(self.size) {
            return None;
        }
        let lasted = now.saturating_sub(self.settled.unwrap_or(now)).as_secs_f64();
        Some(Outcome {
            open: self.open / f64::from(self.size),
            held: if lasted > 0.0 { self.held / lasted } else { 0.0 },
            lost: f64::from(self.lost) / f64::from(self.ended),
            times: std::mem::take(&mut self.times),
        })
    }
}
