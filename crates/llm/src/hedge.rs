//! A second request for the slowest questions; whichever is answered first counts (Dean and Barroso, "The tail at scale",
//! 2013: hedged requests).

use crate::{ChatReply, ChatRequest, Model, ModelError, ModelInfo, Purpose, TextStream};
use async_trait::async_trait;
use starling_protocol::CallReport;
use std::{
    collections::{HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Replies whose times are remembered, for each purpose.
const REMEMBERED: usize = 200;
/// Fewer than that say nothing about the slowest ones.
const FEWEST: usize = 20;
/// Second requests that may be made before there were questions enough for their share.
const BURST: f64 = 2.0;

/// When a second request is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hedge {
    /// Second requests for each question, in the long run; 0 for none.
    pub share: f64,
    /// A question is slow when it has taken longer than this share of the last replies, 0 to 1.
    pub quantile: f64,
}

/// Asks a model, and asks it once more where a reply takes much longer than replies mostly do. Whole replies only: of a
/// stream the reader has the beginning. A question whose allowance is bounded is asked once, because what the slower
/// request has taken nobody says.
pub struct HedgedModel {
    model: Arc<dyn Model>,
    hedge: Hedge,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    took: HashMap<Purpose, VecDeque<Duration>>,
    /// Second requests that may be made now.
    level: f64,
}

impl HedgedModel {
    /// Wraps `model`.
    #[must_use]
    pub fn new(model: Arc<dyn Model>, hedge: Hedge) -> Self {
        Self { model, hedge, state: Mutex::new(State { level: BURST, ..State::default() }) }
    }

    /// How long a question is waited for before it is asked a second time.
    fn patience(&self, purpose: Purpose) -> Option<Duration> {
        let mut state = self.lock();
        state.level = (state.level + self.hedge.share).min(BURST);
        let took = state.took.get(&purpose).filter(|took| took.len() >= FEWEST)?;
        let mut sorted: Vec<Duration> = took.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (self.hedge.quantile * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }

    fn may_hedge(&self) -> bool {
        let mut state = self.lock();
        let may = state.level >= 1.0;
        if may {
            state.level -= 1.0;
        }
        may
    }

    fn answered(&self, purpose: Purpose, took: Duration) {
        let mut state = self.lock();
        let times = state.took.entry(purpose).or_default();
        if times.len() == REMEMBERED {
            times.pop_front();
        }
        times.push_back(took);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn asked_twice(&self, request: ChatRequest, patience: Duration) -> Result<ChatReply, ModelError> {
        let mut first = pin!(self.model.chat(request.clone()));
        tokio::select! {
            biased;
            reply = &mut first => return reply,
            () = sleep(patience) => {}
        }
        if !self.may_hedge() {
            return first.await;
        }
        tracing::debug!(patience_ms = patience.as_millis() as u64, "a reply is slow, asking a second time");
        let mut second = pin!(self.model.chat(request));
        let (reply, other_failed) = tokio::select! {
            biased;
            reply = &mut first => match reply {
                Ok(reply) => (Ok(reply), None),
                Err(error) => (second.await, Some(error)),
            },
            reply = &mut second => match reply {
                Ok(reply) => (Ok(reply), None),
                Err(error) => (first.await, Some(error)),
            },
        };
        // The slower one is closed; it was a call all the same, and nobody says what it took.
        let other = match other_failed {
            Some(error) => error.report,
            None => CallReport { calls: 1, unpriced_calls: 1, ..CallReport::default() },
        };
        match reply {
            Ok(reply) => Ok(ChatReply { report: beside(reply.report, &other), ..reply }),
            Err(error) => Err(ModelError { report: beside(error.report, &other), ..error }),
        }
    }
}

/// What both took that ran at the same time.
fn beside(report: CallReport, other: &CallReport) -> CallReport {
    let latency_ms = report.latency_ms.max(other.latency_ms);
    CallReport { latency_ms, ..report.after(other) }
}

#[async_trait]
impl Model for HedgedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn wrapped(&self) -> Option<&dyn Model> {
        Some(self.model.as_ref())
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        let (purpose, begun) = (request.purpose, Instant::now());
        let reply = match self.patience(purpose).filter(|_| request.allowance.is_none()) {
            Some(patience) => self.asked_twice(request, patience).await,
            None => self.model.chat(request).await,
        };
        if reply.is_ok() {
            self.answered(purpose, begun.elapsed());
        }
        reply
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        self.model.stream(request).await
    }
}
