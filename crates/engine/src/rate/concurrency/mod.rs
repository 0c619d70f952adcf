//! How many calls of one model behind one endpoint may be open at once.
//!
//! An endpoint that has no more places does not always say so (429): often it lets calls wait, and they take longer the
//! more there are. More open calls bring nothing then, and those that wait there can no longer be put in order.
//!
//! The number is found by the gradient of the time that calls take. Calls run in cohorts, each under one limit. While calls
//! are not slower than they are on an endpoint with room, by more than a tolerated factor, the limit grows:
//!
//! `limit × tolerance × time with room / time now`
//!
//! which is the step of the gradient limiters of Netflix (concurrency-limits, 2018). By Little's law it leads at once to
//! where it stays: an endpoint with n places ends at `tolerance × n` open calls, all places in use and a short queue
//! before them.
//!
//! What a call takes with room is the weak point of such limiters. The least time of a window (TCP Vegas, Brakmo and
//! Peterson 1995) is that of the shortest reply and stays when the endpoint becomes slower for everybody; a long mean
//! (Gradient2) comes after the load itself, so that a limit under lasting load rises without end. Here it is measured, as
//! BBR does it (Cardwell et al., 2016): at times one cohort runs with half as many open calls as before, the look. A limit
//! does not fall but on the proof of a look that fewer open calls are faster calls, or where so many calls get no reply
//! that nothing can be measured. So an endpoint that is slow for another reason keeps its limit, and the limit settles
//! where the second half of the open calls brings just a third more replies (at the tolerance of 1.5), whether the
//! endpoint queues or slows down by degrees.
//!
//! Looks cost replies, so there are none as long as nothing speaks for a queue. They begin at times that are the same for
//! all processes if their clocks are: of several who ask one endpoint, one alone would not see it with room. For the same
//! reason the fastest of the last few looks is what counts for growth, so that several do not drive each other up.
//!
//! A limit that is not what keeps calls back stays as it is: it grows only while nearly all places are taken, and falls only
//! if fewer calls than are open would be faster.
//!
//! Replies of different lengths are compared by kind; see [`lengths`].

mod cohort;
mod lengths;

use cohort::{Cohort, Outcome};
use lengths::Lengths;
use std::{collections::VecDeque, time::Duration};

/// Share of the places that have to be taken for the limit to be what keeps others back.
const IN_USE: f64 = 0.8;
/// A look at more than this part of the open calls would show nothing.
const FEWER: f64 = 0.8;
/// With so few open calls nothing is worth a look, unless the limit itself is that low.
const FEW: f64 = 4.0;
/// Share of a cohort that may get no reply before the endpoint is taken for overloaded.
const LOST: f64 = 0.25;
/// From this slowness on there may be a queue, and it is worth while to look again and again.
const QUEUE: f64 = 1.2;
/// The endpoint is so much faster than it was with room that it has become another one.
const FASTER: f64 = 0.8;
/// Part of the gain that the tolerance stands for. A look that shows less was in vain: it is not the calls' own doing.
const IN_VAIN: f64 = 0.5;
/// Beyond the tolerated slowness by this factor there is more to it than chance.
const WORSE: f64 = 1.1;
/// Times of calls between two looks, and between two of them where something has changed.
const LOOKS: (f64, f64) = (24.0, 4.0);
/// Times of a call after which a look that has come to nothing is given up: nobody asks any more, or nothing is answered.
const GIVEN_UP: f64 = 16.0;
/// The fastest of so many looks is what calls take with room: in the others the calls of somebody else may have been in the
/// way.
const REMEMBERED: usize = 4;
/// A look in which the calls were faster by this part of what would be if the endpoint had a queue and nothing else:
/// it had one with half the calls, too.
const STILL_FULL: f64 = 0.85;

/// How a [`ConcurrencyGovernor`] behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyLimits {
    /// Open calls at the beginning.
    pub start: u32,
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
    /// How much longer calls may take than with half as many open, above 1 and below 2.
    pub tolerance: f64,
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        Self { start: 64, min: 1, max: 1000, tolerance: 1.5 }
    }
}

impl ConcurrencyLimits {
    /// Always so many.
    #[must_use]
    pub fn fixed(open: u32) -> Self {
        Self { start: open, min: open, max: open, ..Self::default() }
    }
}

/// The place of an open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct OpenCall {
    /// The cohort that it belongs to, if any.
    cohort: Option<u64>,
    role: usize,
    since: Duration,
}

/// How an open call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a reply of so many tokens, after so long.
    Replied {
        /// Received.
        tokens: i64,
        /// From the request to the last of them.
        took: Duration,
    },
    /// Without one.
    Unanswered,
}

/// What was seen with a cohort.
#[derive(Clone, Copy, Debug)]
struct Sight {
    /// Mean of the open calls.
    open: f64,
    slowness: f64,
}

/// Decides how many calls may be open. Times are those of any clock that does not go back; processes that share an endpoint
/// look at the same time if their clocks have the same origin.
#[derive(Clone, Debug)]
pub struct ConcurrencyGovernor {
    limits: ConcurrencyLimits,
    limit: f64,
    /// What the last look has left. Without another one the limit does not fall below.
    proven: f64,
    open: u32,
    cohort: Cohort,
    lengths: Lengths,
    /// How slow the endpoint was at the last looks.
    looks: VecDeque<f64>,
    /// There was no room at the last look, or there was none yet.
    unsure: bool,
    /// At the last look fewer calls were hardly faster.
    vain: bool,
    /// Or they were so much faster that there may be more to it.
    fell: bool,
    /// The last cohort since a look.
    last: Option<Sight>,
    /// Whether it is worth a look soon, or at all.
    interest: Interest,
    /// Open calls of a look that is going on.
    look: Option<f64>,
    /// When it was asked last whether it is time for one.
    asked: Duration,
    /// Mean time of a call, in seconds.
    usual: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interest {
    None,
    Some,
    Urgent,
}

impl ConcurrencyGovernor {
    /// Nothing is open.
    #[must_use]
    pub fn new(limits: ConcurrencyLimits) -> Self {
        let min = limits.min.max(1);
        let max = limits.max.max(min);
        let tolerance = if limits.tolerance.is_finite() { limits.tolerance.clamp(1.05, 1.95) } else { 1.5 };
        let limits = ConcurrencyLimits { min, max, tolerance, ..limits };
        let limit = f64::from(limits.start.clamp(min, max));
        Self {
            limits,
            limit,
            proven: limit,
            open: 0,
            cohort: Cohort::default().next(Duration::ZERO, limit as u32),
            lengths: Lengths::default(),
            looks: VecDeque::new(),
            unsure: true,
            vain: false,
            fell: false,
            last: None,
            interest: Interest::None,
            look: None,
            asked: Duration::ZERO,
            usual: 0.0,
        }
    }

    /// Calls that may be open at once, looks aside.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Calls that may be open now.
    #[must_use]
    pub fn allowed(&self) -> u32 {
        self.look.unwrap_or(self.limit) as u32
    }

    /// Whether a look goes on, which ends with a call or with the time.
    #[must_use]
    pub fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    /// Calls that are open.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Goes with the time, without which a look neither begins nor is given up. Says after which time to come again, even if
    /// no call ends.
    pub fn tick(&mut self, now: Duration) -> Option<Duration> {
        let before = std::mem::replace(&mut self.asked, now);
        if self.look.is_none() {
            self.look_if_due(now, before);
        }
        self.look?;
        let left = Duration::try_from_secs_f64(GIVEN_UP * self.usual)
            .unwrap_or(Duration::MAX)
            .saturating_sub(now.saturating_sub(self.cohort.since()));
        if left.is_zero() {
            self.look = None;
            self.last = None;
            self.cohort = self.cohort.next(now, self.allowed());
            return None;
        }
        Some(left)
    }

    /// Whether there is a place for another call.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.open < self.allowed()
    }

    /// Begins a call, which [`Self::has_room`] has allowed. `role` is what it is for: calls of one are like each other.
    pub fn begin(&mut self, now: Duration, role: usize) -> OpenCall {
        self.cohort.pass_time(now, self.open);
        self.open += 1;
        let allowed = self.allowed();
        self.cohort.begin(now, role, self.open, allowed, self.usual)
    }

    /// The place of a call is free again.
    pub fn ended(&mut self, now: Duration, call: OpenCall, ended: Ended) {
        self.cohort.pass_time(now, self.open);
        self.open = self.open.saturating_sub(1);
        if let Some(outcome) = self.cohort.ended(now, call, ended, self.usual) {
            self.conclude(&outcome);
            self.cohort = self.cohort.next(now, self.allowed());
        }
    }

    /// What follows from a cohort.
    fn conclude(&mut self, Outcome { open, held, lost, times }: &Outcome) {
        let slowness = self.lengths.slowness(times);
        let looked = self.look.take().is_some();
        if let (false, Some(mean)) = (looked, times.mean()) {
            self.usual = if self.usual > 0.0 { (self.usual + mean) / 2.0 } else { mean };
        }
        // Whether the limit is what kept others back.
        let in_use = *held >= IN_USE * f64::from(self.limit());
        if *lost > LOST && in_use {
            self.fall(open / 2.0);
        } else if let Some(slowness) = slowness {
            let sight = Sight { open: *open, slowness };
            if looked { self.saw(sight) } else { self.cruised(sight, in_use) }
        }
    }

    /// How slow the endpoint is with room, as far as is known.
    fn with_room(&self) -> Option<f64> {
        self.looks.iter().copied().min_by(f64::total_cmp)
    }

    /// A cohort under the whole limit.
    fn cruised(&mut self, sight: Sight, in_use: bool) {
        self.last = Some(sight);
        let few = sight.open < FEW && !in_use;
        let tolerance = self.limits.tolerance;
        let least = self.limit() <= self.limits.min;
        if least {
            // With fewer open calls it is never seen.
            self.remember(sight.slowness);
            self.unsure = false;
        }
        let with_room = self.with_room().unwrap_or(sight.slowness);
        let factor = sight.slowness / with_room;
        if factor < 1.0 {
            // It has become faster, for which no look is needed; but how much faster it is with room is not known.
            self.unsure |= factor < FASTER;
            self.vain = false;
            self.looks.clear();
            self.remember(with_room + (sight.slowness - with_room) / 2.0);
        }
        self.interest = match () {
            () if few || least => Interest::None,
            () if self.unsure || self.fell => Interest::Urgent,
            () if factor > tolerance * WORSE && !self.vain => Interest::Urgent,
            () if factor > tolerance * WORSE || (factor > QUEUE && in_use) => Interest::Some,
            () => Interest::None,
        };
        if in_use && !self.unsure {
            let target = self.limit * tolerance / factor.max(1.0);
            self.set(target.max(self.proven.min(self.limit)));
        }
    }

    /// A cohort with half as many open.
    fn saw(&mut self, sight: Sight) {
        let Some(before) = self.last.take() else { return };
        let queue = self.unsure || self.with_room().is_some_and(|known| sight.slowness > QUEUE * known);
        self.remember(sight.slowness);
        self.proven = self.limit;
        let (fewer, faster) = (before.open / sight.open, before.slowness / sight.slowness);
        if fewer * FEWER <= 1.0 {
            return;
        }
        // 0: the calls have nothing to do with it; 1: all that are more than these wait.
        let gain = faster.ln() / fewer.ln();
        let tolerance = self.limits.tolerance;
        self.vain = gain < IN_VAIN * tolerance.log2();
        self.unsure = queue && gain >= STILL_FULL;
        self.fell = faster > tolerance * WORSE;
        if self.unsure {
            self.fall(sight.open);
        } else if faster > tolerance {
            self.fall(before.open * tolerance / faster);
        }
    }

    fn remember(&mut self, slowness: f64) {
        if self.looks.len() == REMEMBERED {
            self.looks.pop_front();
        }
        self.looks.push_back(slowness);
    }

    /// Down to `limit`.
    fn fall(&mut self, limit: f64) {
        if limit < self.limit {
            self.set(limit);
            self.last = None;
        }
        self.proven = self.limit;
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(f64::from(self.limits.min), f64::from(self.limits.max));
    }

    /// Begins with a look if it is time for one, which was asked last `before`.
    fn look_if_due(&mut self, now: Duration, before: Duration) {
        let Some(last) = self.last else { return };
        let calls = match self.interest {
            Interest::None => return,
            Interest::Some => LOOKS.0,
            Interest::Urgent => LOOKS.1,
        };
        // At multiples of a power of two: who takes another one comes to the same times now and then. Not so where the limit is
        // on its way down, for which each has to see a proof of its own.
        let ms = u128::from(((calls * self.usual * 1000.0) as u64).max(1).next_power_of_two());
        let half = (last.open / 2.0).floor().max(f64::from(self.limits.min));
        let due = self.unsure || now.as_millis() / ms > before.as_millis() / ms;
        if due && half <= FEWER * last.open {
            self.look = Some(half);
            self.cohort = self.cohort.next(now, self.allowed());
        }
    }
}
