//! Those who wait to ask one model, in the order of their deadlines and of how urgent they are.

use super::{
    EndpointLimits,
    ceiling::Ceiling,
    circuit::Circuit,
    purposes::{self, PURPOSES},
    queue::{Queue, Rank, Waiting},
    sent::Sent,
};
use rand::Rng as _;
use starling_engine::breaker::{BreakerPass, BreakerState};
use starling_engine::rate::{
    self, Answer, Bulkheads, ConcurrencyGovernor, OpenCall, Pass, RateGovernor, TokenBudget,
};
use starling_llm::{Ask, Leave, NotSent, Purpose};
use std::{
    collections::{HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

/// Last calls that are remembered for how long a call takes at least.
const REMEMBERED: usize = 16;
/// Those that ended earlier say nothing about the endpoint as it is now.
const LATELY: Duration = Duration::from_secs(60);
/// Waits that are at least so long were asked for by the endpoint; others were told the same.
const LONG: Duration = Duration::from_millis(200);
/// Such a wait is made longer by up to this share.
const JITTER: f64 = 0.1;

/// What a process would send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    /// Requests a second.
    pub(super) demand: f64,
    /// What refusals have led it to, in requests a second of all processes.
    pub(super) found: Option<f64>,
}

/// How a model may be asked now, and what waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineFigures {
    /// Requests a second.
    pub(super) rate: f64,
    /// Calls that may be open.
    pub(super) limit: u32,
    /// Calls that are open, by purpose.
    pub(super) open: [usize; PURPOSES],
    pub(super) waiting: usize,
}

/// What one model is asked by this process.
#[derive(Debug)]
pub(super) struct Line {
    /// Where the governors' time begins, and when that was on the clock that all processes have.
    origin: Instant,
    epoch: Duration,
    longest: usize,
    pub(super) circuit: Arc<Circuit>,
    pub(super) ceiling: Arc<Ceiling>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) governor: RateGovernor,
    pub(super) tokens: TokenBudget,
    pub(super) concurrency: ConcurrencyGovernor,
    /// Who may have the places that it gives.
    pub(super) bulkheads: Bulkheads,
    queue: Queue,
    /// Requests that were sent since the demand was asked for last, and when that was.
    sent: u64,
    since: Instant,
    /// When the last calls ended and how long they took, by what they were for.
    took: HashMap<Purpose, VecDeque<(Instant, Duration)>>,
}

impl Line {
    pub(super) fn new(limits: &EndpointLimits, circuit: Arc<Circuit>, ceiling: Arc<Ceiling>) -> Self {
        let state = State {
            governor: RateGovernor::new(limits.rate.limits),
            tokens: TokenBudget::new(limits.rate.tokens_per_minute),
            concurrency: ConcurrencyGovernor::new(limits.concurrency()),
            bulkheads: purposes::bulkheads(limits.bulkheads),
            queue: Queue::default(),
            sent: 0,
            since: Instant::now(),
            took: HashMap::new(),
        };
        Self {
            origin: Instant::now(),
            // A clock that stands before 1970 costs no more than the common beat.
            epoch: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            longest: limits.max_waiting,
            circuit,
            ceiling,
            state: Mutex::new(state),
        }
    }

    /// Whether tokens are bounded.
    pub(super) fn counts_tokens(&self) -> bool {
        self.lock().tokens.is_bounded()
    }

    pub(super) fn figures(&self) -> LineFigures {
        let state = self.lock();
        LineFigures {
            rate: state.governor.rate(),
            limit: state.concurrency.limit(),
            open: std::array::from_fn(|purpose| state.bulkheads.open(purpose)),
            waiting: state.queue.len(),
        }
    }

    /// What this process would ask now, if it is limited or was refused before.
    pub(super) fn demand(&self) -> Option<Demand> {
        let mut state = self.lock();
        let passed = std::mem::replace(&mut state.since, Instant::now()).elapsed();
        let sent = std::mem::take(&mut state.sent) as f64;
        // Each of those that wait would be sent within a second, if there is a place for it.
        let places = state.bulkheads.free(state.concurrency.allowed() as usize).min(self.ceiling.free());
        let held_back = state.queue.len().min(places);
        let demand = sent / passed.as_secs_f64().max(0.001) + held_back as f64;
        let found = state.governor.found();
        let limited = found.is_some() || held_back > 0;
        (limited && demand > 0.0).then_some(Demand { demand, found })
    }

    /// Takes this process's part of what all may send, where `others` ask, too.
    pub(super) fn share_with(&self, own: f64, others: &[Demand]) {
        let now = self.now();
        let mut state = self.lock();
        // A refusal of one is one for all.
        if let Some(lowest) = others.iter().filter_map(|other| other.found).min_by(f64::total_cmp) {
            state.governor.heard(now, lowest);
        }
        let demands: Vec<f64> = others.iter().map(|other| other.demand).collect();
        let share = rate::share(state.governor.common_rate(), own, &demands);
        state.governor.take_share(share);
        state.tokens.take_share(now, share);
        self.call_first_of(&state);
    }

    pub(super) async fn admit(self: Arc<Self>, ask: Ask) -> Result<Box<dyn Leave>, NotSent> {
        let place = Place::take(&self, &ask)?;
        loop {
            // From here on, so that it is not missed.
            let mut changed = pin!(self.circuit.changed());
            changed.as_mut().enable();
            let granted = {
                let mut state = self.lock();
                state.in_time(&ask)?;
                let again = state.concurrency.tick(self.common_now()).unwrap_or(Duration::MAX);
                if self.first_of(&state).is_some_and(|(first, _)| first == place.rank) {
                    self.pass(&mut state, place.purpose, ask.tokens)
                } else {
                    Err(again)
                }
            };
            let wait = match granted {
                Ok(granted) => return Ok(Box::new(Sent::new(self.clone(), granted, &ask))),
                Err(_) if !ask.patient && self.circuit.state() != BreakerState::Closed => {
                    return Err(NotSent::Down);
                }
                Err(wait) => jittered(wait),
            };
            let turn = async {
                tokio::select! {
                    () = place.called.notified() => {}
                    () = changed => {}
                    () = sleep(wait) => {}
                }
            };
            if timeout_at(ask.deadline, turn).await.is_err() {
                if self.circuit.state() != BreakerState::Closed {
                    return Err(NotSent::Down);
                }
                let state = self.lock();
                let rate = state.governor.rate().round() as u64;
                return Err(NotSent::NoTurn { rate, places: state.concurrency.limit() });
            }
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The same time for all processes whose clocks are right.
    pub(super) fn common_now(&self) -> Duration {
        self.epoch + self.origin.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls who goes next.
    pub(super) fn call_first(&self) {
        self.call_first_of(&self.lock());
    }

    pub(super) fn call_first_of(&self, state: &State) {
        let first = self.first_of(state).or_else(|| {
            // Somebody has to see to it that a look comes to its end, though no call may end.
            let looking = state.concurrency.is_looking();
            looking.then(|| state.queue.first(|_| true)).flatten()
        });
        if let Some((_, first)) = first {
            first.called.notify_one();
        }
    }

    /// Who goes next, if there is a place: whose deadline comes first, those that are more urgent ahead. An endpoint that fails is tried with those that have
    /// failed least: a question that makes it fail is not asked again and again while all others wait.
    fn first_of<'a>(&self, state: &'a State) -> Option<(Rank, &'a Waiting)> {
        let places = state.concurrency.allowed() as usize;
        let admitted = |purpose| state.bulkheads.admits(purpose, places) && self.ceiling.admits(purpose);
        if self.circuit.state() == BreakerState::Closed {
            state.queue.first(admitted)
        } else {
            state.queue.least_failed(admitted)
        }
    }

    fn pass(&self, state: &mut State, purpose: usize, tokens: i64) -> Result<Granted, Duration> {
        let now = self.now();
        let wait = state.tokens.wait(now, tokens);
        if !wait.is_zero() {
            return Err(wait);
        }
        let trial = self.circuit.pass()?;
        let pass = state.governor.pass(now).inspect_err(|_| self.circuit.give_back(trial))?;
        if !self.ceiling.take(purpose) {
            // Another line was faster.
            self.circuit.give_back(trial);
            state.governor.answered(now, pass, Answer::Unknown);
            return Err(Duration::MAX);
        }
        state.tokens.take(now, tokens);
        state.sent += 1;
        state.bulkheads.opened(purpose);
        let call = state.concurrency.begin(self.common_now(), purpose);
        Ok(Granted { pass, trial, call })
    }
}

/// Leave of all who were asked.
pub(super) struct Granted {
    pub(super) pass: Pass,
    pub(super) trial: BreakerPass,
    pub(super) call: OpenCall,
}

impl State {
    /// A call has ended after so long.
    pub(super) fn note(&mut self, purpose: Purpose, took: Duration) {
        let times = self.took.entry(purpose).or_default();
        if times.len() == REMEMBERED {
            times.pop_front();
        }
        times.push_back((Instant::now(), took));
    }

    /// Whether a reply can still come before the deadline. Nothing but the fastest of the last calls is proof: others
    /// were longer questions.
    fn in_time(&self, ask: &Ask) -> Result<(), NotSent> {
        let left = ask.deadline.saturating_duration_since(Instant::now());
        let took = self.took.get(&ask.purpose).into_iter().flatten();
        let lately = took.filter(|(ended, _)| ended.elapsed() < LATELY);
        match lately.map(|(_, took)| *took).min() {
            Some(fastest) if fastest > left => Err(NotSent::TooLate { left, fastest }),
            _ => Ok(()),
        }
    }
}

/// Callers that were told the same time do not come back in the same instant.
pub(super) fn jittered(wait: Duration) -> Duration {
    if wait < LONG {
        return wait;
    }
    wait.saturating_add(wait.min(Duration::from_secs(60)).mul_f64(rand::rng().random_range(0.0..JITTER)))
}

/// A place in the queue that is given up when this is dropped.
struct Place {
    line: Arc<Line>,
    purpose: usize,
    rank: Rank,
    called: Arc<Notify>,
}

impl Place {
    fn take(line: &Arc<Line>, ask: &Ask) -> Result<Self, NotSent> {
        let purpose = purposes::number(ask.purpose);
        let mut state = line.lock();
        if state.queue.len() >= line.longest {
            return Err(NotSent::Full(state.queue.len()));
        }
        let called = Arc::new(Notify::new());
        let waiting = Waiting { called: called.clone(), failed: ask.failed };
        let rank = state.queue.join(purpose, ask.deadline, ask.priority, waiting);
        state.bulkheads.waits(purpose);
        line.ceiling.waits(purpose);
        drop(state);
        Ok(Self { line: line.clone(), purpose, rank, called })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.line.ceiling.waits_no_more(&self.line, self.purpose);
        let mut state = self.line.lock();
        state.queue.leave(self.purpose, self.rank);
        state.bulkheads.waits_no_more(self.purpose);
        // Who stood first, or had places kept, makes room for others.
        self.line.call_first_of(&state);
    }
}
