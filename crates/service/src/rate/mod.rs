//! How fast this process asks its models. What a rate should be is decided by `starling_engine::rate`; here calls wait
//! for it.

mod circuit;
mod fleet;
mod line;

use circuit::Circuit;
pub(crate) use fleet::share_with_fleet;
use futures::{FutureExt as _, future::BoxFuture};
use line::Line;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use starling_engine::{
    breaker::{BreakerLimits, BreakerState},
    rate::RateLimits,
};
use starling_llm::{Ask, Leave, Limiter, NotSent};
use starling_runtime::settings::RateSettings;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// One line for each model that is asked, and one circuit breaker for the endpoint that they are behind.
#[derive(Debug)]
pub struct RateLimiter {
    limits: RateLimits,
    tokens_per_minute: Option<u64>,
    /// Calls that may wait for one model.
    longest: usize,
    circuit: Arc<Circuit>,
    lines: Mutex<BTreeMap<String, Arc<Line>>>,
}

impl RateLimiter {
    /// As the settings want it; at most `longest` calls wait for each model.
    #[must_use]
    pub fn new(settings: &RateSettings, breaker: BreakerLimits, longest: usize) -> Arc<Self> {
        let RateSettings { limits, tokens_per_minute } = *settings;
        let circuit = Arc::new(Circuit::new(breaker));
        Arc::new(Self { limits, tokens_per_minute, longest, circuit, lines: Mutex::default() })
    }

    fn line(&self, model: &str) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // No more than there are models in the settings.
        let made = || {
            let circuit = self.circuit.clone();
            Arc::new(Line::new(self.limits, self.tokens_per_minute, self.longest, circuit))
        };
        lines.entry(model.to_owned()).or_insert_with(made).clone()
    }

    fn lines(&self) -> Vec<(String, Arc<Line>)> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(model, line)| (model.clone(), line.clone())).collect()
    }

    /// What the circuit breaker lets through.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.circuit.state()
    }

    /// What each model may be asked now.
    #[must_use]
    pub fn figures(&self) -> Vec<RateFigures> {
        let all = self.lines().into_iter().map(|(model, line)| {
            let (rate, waiting) = line.figures();
            RateFigures { model, rate, waiting }
        });
        all.collect()
    }
}

/// What one model may be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct RateFigures {
    /// Which.
    pub model: String,
    /// Requests a second.
    pub rate: f64,
    /// Calls that wait for their turn.
    pub waiting: usize,
}

impl Limiter for RateLimiter {
    fn admit(&self, ask: Ask) -> BoxFuture<'static, Result<Box<dyn Leave>, NotSent>> {
        self.line(&ask.model).admit(ask).boxed()
    }
}

/// Tells at which rate models are asked.
#[derive(Debug)]
pub(crate) struct RateCollector(pub(crate) Arc<RateLimiter>);

impl Collector for RateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.figures();
        if all.is_empty() {
            return Ok(());
        }
        let (name, help) =
            ("model_rate_limit", "Requests a second that a model may be asked by this process");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for RateFigures { model, rate, .. } in &all {
            metric.encode_family(&[("model", model.as_str())])?.encode_gauge(rate)?;
        }
        let help = "Whether calls of the model endpoint are let through: 0 all, 1 a few, 2 none";
        let mut breaker = encoder.encode_descriptor("model_breaker", help, None, MetricType::Gauge)?;
        let state: i64 = match self.0.breaker() {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        breaker.encode_gauge(&state)?;
        let (name, help) = ("model_rate_waiting", "Calls that wait until they may be sent");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for RateFigures { model, waiting, .. } in &all {
            let waiting = i64::try_from(*waiting).unwrap_or(i64::MAX);
            metric.encode_family(&[("model", model.as_str())])?.encode_gauge(&waiting)?;
        }
        Ok(())
    }
}
