//! An endpoint that takes longer the more calls are open, and who asks it, in virtual time.

use starling_engine::rate::{
    Answer, ConcurrencyGovernor, ConcurrencyLimits, Ended, OpenCall, RateGovernor, RateLimits,
};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// How an endpoint that has too many open calls behaves.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// It has so many places; who has none waits, in the order of coming.
    Queue(usize),
    /// It does all at once, and each takes longer by this part with each other one.
    Sharing(f64),
}

/// What somebody asks: the role, the tokens of the reply, and how long it takes with nobody else, in seconds.
pub(crate) type Question = (usize, i64, f64);

/// A run.
pub(crate) struct Run<'a> {
    pub(crate) limits: ConcurrencyLimits,
    /// Processes, each with a limit of its own.
    pub(crate) processes: usize,
    pub(crate) seconds: u64,
    /// What the endpoint is at a time, in seconds, and by which factor it is slower for everybody.
    pub(crate) endpoint: &'a dyn Fn(f64) -> (Kind, f64),
    /// Calls that each process would have open at a time.
    pub(crate) demand: &'a dyn Fn(f64) -> u32,
    /// Requests a second that each process may send.
    pub(crate) rate: f64,
    /// The question of a number; `random` is between 0 and 1.
    pub(crate) question: &'a dyn Fn(u64, f64) -> Question,
}

/// What was seen.
pub(crate) struct Seen {
    /// When a call ended, how long it took and would have taken alone.
    pub(crate) ended: Vec<(f64, f64, f64)>,
    /// The limits of all processes together, second by second.
    pub(crate) limits: Vec<u32>,
}

impl Default for Run<'_> {
    /// A process that has more than enough to ask: 2 s each, for 10 minutes, of an endpoint with 50 places.
    fn default() -> Self {
        Self {
            limits: ConcurrencyLimits::default(),
            processes: 1,
            seconds: 600,
            endpoint: &|_| (Kind::Queue(50), 1.0),
            demand: &|_| 500,
            rate: 1e6,
            question: &|_, _| (0, 100, 2.0),
        }
    }
}

impl Seen {
    fn within(&self, from: f64, to: f64) -> impl Iterator<Item = &(f64, f64, f64)> {
        self.ended.iter().filter(move |(at, _, _)| (from..to).contains(at))
    }

    /// Replies a second.
    pub(crate) fn rate(&self, from: f64, to: f64) -> f64 {
        self.within(from, to).count() as f64 / (to - from)
    }

    /// Seconds of work that were done in a second.
    pub(crate) fn work(&self, from: f64, to: f64) -> f64 {
        self.within(from, to).map(|(_, _, alone)| alone).sum::<f64>() / (to - from)
    }

    /// The 99th percentile of the time that calls took, beside that of what they would have taken alone.
    pub(crate) fn p99(&self, from: f64, to: f64) -> f64 {
        let p99 = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() * 99 / 100]
        };
        let (mut took, mut alone): (Vec<_>, Vec<_>) =
            self.within(from, to).map(|(_, took, alone)| (*took, *alone)).unzip();
        p99(&mut took) / p99(&mut alone)
    }

    /// The lowest and the highest limit.
    pub(crate) fn limits(&self, from: f64, to: f64) -> (u32, u32) {
        let seen = &self.limits[from as usize..to as usize];
        (*seen.iter().min().unwrap(), *seen.iter().max().unwrap())
    }
}

/// Numbers that look like chance, the same in every run.
fn chance(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

struct Under {
    process: usize,
    call: OpenCall,
    sent: f64,
    tokens: i64,
    alone: f64,
}

/// Everybody has a question ready as soon as there is a place for it.
pub(crate) fn run(run: &Run<'_>) -> Seen {
    let at = |seconds: f64| Duration::from_secs_f64(seconds + 1000.0);
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let mut governors: Vec<_> = (0..run.processes).map(|_| ConcurrencyGovernor::new(run.limits)).collect();
    let rate = RateLimits { start: run.rate, min: run.rate, max: run.rate, ..RateLimits::default() };
    let mut rates: Vec<_> = (0..run.processes).map(|_| RateGovernor::new(rate)).collect();
    let mut seen = Seen { ended: Vec::new(), limits: Vec::new() };
    let mut random = 7;
    let mut number = 0;
    let mut under: Vec<Option<Under>> = Vec::new();
    // When the places of the endpoint are free.
    let mut places: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut count = 0;
    let mut open = 0;
    // At each tenth of a second all look whether they want more.
    let mut events: BinaryHeap<Reverse<(u64, Option<usize>)>> =
        (0..run.seconds * 10).map(|tenth| Reverse((tenth * 100_000_000, None))).collect();
    while let Some(Reverse((when, ended))) = events.pop() {
        let now = when as f64 / 1e9;
        let mut asking: Vec<usize> = (0..run.processes).collect();
        if let Some(index) = ended {
            let call = under[index].take().unwrap();
            let took = now - call.sent;
            open -= 1;
            seen.ended.push((now, took, call.alone));
            let reply = Ended::Replied { tokens: call.tokens, took: Duration::from_secs_f64(took) };
            governors[call.process].ended(at(now), call.call, reply);
            asking = vec![call.process];
        } else if when % 1_000_000_000 == 0 {
            seen.limits.push(governors.iter().map(ConcurrencyGovernor::limit).sum());
        }
        for process in asking {
            loop {
                let governor = &mut governors[process];
                if governor.open() >= (run.demand)(now) {
                    break;
                }
                let (role, tokens, length) = (run.question)(number, chance(&mut random));
                governor.tick(at(now));
                if !governor.has_room() {
                    break;
                }
                match rates[process].pass(at(now)) {
                    Ok(pass) => rates[process].answered(at(now), pass, Answer::Accepted),
                    Err(_) => break, // the next tenth of a second is soon enough
                }
                let call = governor.begin(at(now), role);
                number += 1;
                open += 1;
                let (kind, slower) = (run.endpoint)(now);
                let alone = length * slower;
                let end = match kind {
                    Kind::Queue(wanted) => {
                        while count < wanted {
                            places.push(Reverse(when));
                            count += 1;
                        }
                        while count > wanted {
                            places.pop();
                            count -= 1;
                        }
                        let free = places.pop().unwrap().0.max(when);
                        let end = free + nanos(alone);
                        places.push(Reverse(end));
                        end
                    }
                    Kind::Sharing(part) => when + nanos(alone * (1.0 + part * f64::from(open - 1))),
                };
                under.push(Some(Under { process, call, sent: now, tokens, alone }));
                events.push(Reverse((end, Some(under.len() - 1))));
            }
        }
        if now >= run.seconds as f64 {
            break;
        }
    }
    seen
}
