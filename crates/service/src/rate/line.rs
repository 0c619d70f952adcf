//! Those who wait to ask one model, in the order of their deadlines.

use super::circuit::Circuit;
use rand::Rng as _;
use starling_engine::breaker::{BreakerPass, BreakerState, Health};
use starling_engine::rate::{self, Pass, RateGovernor, TokenBudget};
use starling_llm::{Answer, Ask, Hints, Leave, NotSent, Purpose};
use starling_runtime::settings::RateSettings;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
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

/// A place in the line: whose deadline comes first stands first.
type Rank = (Instant, u64);

/// Somebody who waits.
#[derive(Debug)]
struct Waiting {
    called: Arc<Notify>,
    /// How often the call has failed.
    failed: u32,
}

/// What a process would send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    /// Requests a second.
    pub(super) demand: f64,
    /// What refusals have led it to, in requests a second of all processes.
    pub(super) found: Option<f64>,
}

/// What one model is asked by this process.
#[derive(Debug)]
pub(super) struct Line {
    /// Where the governor's time begins.
    origin: Instant,
    longest: usize,
    circuit: Arc<Circuit>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    governor: RateGovernor,
    tokens: TokenBudget,
    waiting: BTreeMap<Rank, Waiting>,
    serial: u64,
    /// Requests that were sent since the demand was asked for last, and when that was.
    sent: u64,
    since: Instant,
    /// When the last calls ended and how long they took, by what they were for.
    took: HashMap<Purpose, VecDeque<(Instant, Duration)>>,
}

impl Line {
    pub(super) fn new(rate: RateSettings, longest: usize, circuit: Arc<Circuit>) -> Self {
        let RateSettings { limits, tokens_per_minute } = rate;
        let state = State {
            governor: RateGovernor::new(limits),
            tokens: TokenBudget::new(tokens_per_minute),
            waiting: BTreeMap::new(),
            serial: 0,
            sent: 0,
            since: Instant::now(),
            took: HashMap::new(),
        };
        Self { origin: Instant::now(), longest, circuit, state: Mutex::new(state) }
    }

    /// Requests a second that may be sent now, and how many wait.
    pub(super) fn figures(&self) -> (f64, usize) {
        let state = self.lock();
        (state.governor.rate(), state.waiting.len())
    }

    /// What this process would ask now, if it is limited or was refused before.
    pub(super) fn demand(&self) -> Option<Demand> {
        let mut state = self.lock();
        let passed = std::mem::replace(&mut state.since, Instant::now()).elapsed();
        let sent = std::mem::take(&mut state.sent) as f64;
        // Each of those that wait would be sent within a second.
        let demand = sent / passed.as_secs_f64().max(0.001) + state.waiting.len() as f64;
        let found = state.governor.found();
        let limited = found.is_some() || !state.waiting.is_empty();
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
        state.call_first(&self.circuit);
    }

    pub(super) async fn admit(self: Arc<Self>, ask: Ask) -> Result<Box<dyn Leave>, NotSent> {
        let place = Place::take(&self, &ask)?;
        loop {
            // From here on, so that it is not missed.
            let mut changed = pin!(self.circuit.changed());
            changed.as_mut().enable();
            let wait = {
                let mut state = self.lock();
                state.in_time(&ask)?;
                if state.is_first(&self.circuit, place.rank) {
                    state.pass(&self.circuit, self.now(), ask.tokens)
                } else {
                    Err(Duration::MAX)
                }
            };
            let wait = match wait {
                Ok(pass) => {
                    let line = self.clone();
                    let sent = Instant::now();
                    let reserved = Some(ask.tokens);
                    let purpose = ask.purpose;
                    return Ok(Box::new(Sent {
                        line,
                        pass: Some(pass),
                        sent,
                        reserved,
                        purpose,
                        excused: false,
                    }));
                }
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
                let rate = self.lock().governor.rate().round() as u64;
                return Err(NotSent::NoTurn { rate });
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Who goes next: whose deadline comes first. An endpoint that fails is tried with those that have failed least:
    /// a question that makes it fail is not asked again and again while all others wait.
    fn first(&self, circuit: &Circuit) -> Option<(&Rank, &Waiting)> {
        if circuit.state() == BreakerState::Closed {
            return self.waiting.first_key_value();
        }
        self.waiting.iter().min_by_key(|(rank, waiting)| (waiting.failed, **rank))
    }

    fn is_first(&self, circuit: &Circuit, rank: Rank) -> bool {
        self.first(circuit).is_some_and(|(first, _)| *first == rank)
    }

    fn call_first(&self, circuit: &Circuit) {
        if let Some((_, first)) = self.first(circuit) {
            first.called.notify_one();
        }
    }

    fn pass(
        &mut self,
        circuit: &Circuit,
        now: Duration,
        tokens: i64,
    ) -> Result<(Pass, BreakerPass), Duration> {
        let wait = self.tokens.wait(now, tokens);
        if !wait.is_zero() {
            return Err(wait);
        }
        let trial = circuit.pass()?;
        let pass = self.governor.pass(now).inspect_err(|_| circuit.give_back(trial))?;
        self.tokens.take(now, tokens);
        self.sent += 1;
        Ok((pass, trial))
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

/// A place that is given up when this is dropped.
struct Place {
    line: Arc<Line>,
    rank: Rank,
    called: Arc<Notify>,
}

impl Place {
    fn take(line: &Arc<Line>, ask: &Ask) -> Result<Self, NotSent> {
        let mut state = line.lock();
        if state.waiting.len() >= line.longest {
            return Err(NotSent::Full(state.waiting.len()));
        }
        state.serial += 1;
        let rank = (ask.deadline, state.serial);
        let called = Arc::new(Notify::new());
        state.waiting.insert(rank, Waiting { called: called.clone(), failed: ask.failed });
        drop(state);
        Ok(Self { line: line.clone(), rank, called })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        let circuit = &self.line.circuit;
        let was_first = state.is_first(circuit, self.rank);
        state.waiting.remove(&self.rank);
        if was_first {
            state.call_first(circuit);
        }
    }
}

/// A request that was sent.
struct Sent {
    line: Arc<Line>,
    /// Until it is known what became of it.
    pass: Option<(Pass, BreakerPass)>,
    sent: Instant,
    /// Tokens; none once the endpoint keeps the account.
    reserved: Option<i64>,
    purpose: Purpose,
    /// It failed while the endpoint as a whole does.
    excused: bool,
}

impl Leave for Sent {
    fn is_excused(&self) -> bool {
        self.excused
    }

    fn answered(&mut self, answer: Answer, hints: Hints) {
        let Some((pass, trial)) = self.pass.take() else { return };
        self.line.circuit.heard(
            trial,
            match answer {
                Answer::Accepted | Answer::Refused => Health::Answered,
                Answer::Failed => Health::Failed,
                Answer::Unknown => Health::Unknown,
            },
        );
        self.excused = answer == Answer::Failed && self.line.circuit.state() != BreakerState::Closed;
        let now = self.line.now();
        let mut state = self.line.lock();
        let answer = match answer {
            Answer::Accepted => rate::Answer::Accepted,
            Answer::Refused => rate::Answer::Refused(hints.retry_after),
            Answer::Failed | Answer::Unknown => rate::Answer::Unknown,
        };
        state.governor.answered(now, pass, answer);
        if !matches!(answer, rate::Answer::Accepted)
            && let Some(reserved) = self.reserved.take()
        {
            state.tokens.correct(now, reserved, 0); // what was not taken in takes no tokens
        }
        state.tokens.heard(now, hints.tokens.limit, hints.tokens.remaining);
        if hints.tokens.remaining.is_some() {
            self.reserved = None; // it may count what was asked for, not what was used
        }
        if let (Some(0), Some(reset)) = (hints.requests.remaining, hints.requests.reset) {
            // The next one is there when a part of all is there again.
            let of = hints.requests.limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(1).max(1);
            state.governor.close(now, reset / of);
        }
    }

    fn used(&mut self, tokens: i64) {
        let took = self.sent.elapsed();
        let now = self.line.now();
        let mut state = self.line.lock();
        if let Some(reserved) = self.reserved.take() {
            state.tokens.correct(now, reserved, tokens);
        }
        let times = state.took.entry(self.purpose).or_default();
        if times.len() == REMEMBERED {
            times.pop_front();
        }
        times.push_back((Instant::now(), took));
        state.call_first(&self.line.circuit);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.answered(Answer::Unknown, Hints::default());
    }
}
