//! How fast this process asks its models. What a rate should be is decided by `starling_engine::rate`; here calls wait
//! for it.

mod circuit;
mod fleet;
mod line;
mod retries;

use circuit::Circuit;
pub(crate) use fleet::share_with_fleet;
use futures::{FutureExt as _, future::BoxFuture};
use line::Line;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use retries::Retries;
use starling_engine::{
    breaker::{BreakerLimits, BreakerState},
    retries::RetryLimits,
};
use starling_llm::{Ask, Leave, Limiter, NotSent};
use starling_runtime::settings::{ModelSettings, RateSettings};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// How an endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointLimits {
    /// How fast each model is.
    pub rate: RateSettings,
    /// When the endpoint is left alone.
    pub breaker: BreakerLimits,
    /// How many calls may be sent again.
    pub retries: RetryLimits,
    /// Calls that may wait for one model.
    pub longest: usize,
}

impl From<&ModelSettings> for EndpointLimits {
    fn from(settings: &ModelSettings) -> Self {
        Self {
            rate: settings.rate,
            breaker: settings.breaker,
            retries: settings.retries,
            longest: settings.max_in_flight,
        }
    }
}

/// One line for each model that is asked, and one circuit breaker and one retry budget for the endpoint that they are behind.
#[derive(Debug)]
pub struct RateLimiter {
    limits: EndpointLimits,
    circuit: Arc<Circuit>,
    retries: Arc<Retries>,
    lines: Mutex<BTreeMap<String, Arc<Line>>>,
}

impl RateLimiter {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(limits: EndpointLimits) -> Arc<Self> {
        let circuit = Arc::new(Circuit::new(limits.breaker));
        let retries = Arc::new(Retries::new(limits.retries));
        Arc::new(Self { limits, circuit, retries, lines: Mutex::default() })
    }

    fn line(&self, model: &str) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // No more than there are models in the settings.
        let made = || {
            let circuit = self.circuit.clone();
            Arc::new(Line::new(self.limits.rate, self.limits.longest, circuit))
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
        let line = self.line(&ask.model);
        let retries = self.retries.clone();
        async move {
            retries.admit(&ask).await?;
            line.admit(ask).await
        }
        .boxed()
    }
}

/// Tells at which rate models are asked, by endpoint.
#[derive(Debug)]
pub(crate) struct RateCollector(pub(crate) Vec<(String, Arc<RateLimiter>)>);

impl Collector for RateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self
            .0
            .iter()
            .flat_map(|(endpoint, limiter)| limiter.figures().into_iter().map(move |all| (endpoint, all)))
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let (name, help) =
            ("model_rate_limit", "Requests a second that a model may be asked by this process");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (endpoint, RateFigures { model, rate, .. }) in &all {
            let labels = [("endpoint", endpoint.as_str()), ("model", model.as_str())];
            metric.encode_family(&labels)?.encode_gauge(rate)?;
        }
        let help = "Whether calls of the model endpoint are let through: 0 all, 1 a few, 2 none";
        let mut breaker = encoder.encode_descriptor("model_breaker", help, None, MetricType::Gauge)?;
        for (endpoint, limiter) in &self.0 {
            let state: i64 = match limiter.breaker() {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                BreakerState::Open => 2,
            };
            breaker.encode_family(&[("endpoint", endpoint.as_str())])?.encode_gauge(&state)?;
        }
        let (name, help) = ("model_rate_waiting", "Calls that wait until they may be sent");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (endpoint, RateFigures { model, waiting, .. }) in &all {
            let waiting = i64::try_from(*waiting).unwrap_or(i64::MAX);
            let labels = [("endpoint", endpoint.as_str()), ("model", model.as_str())];
            metric.encode_family(&labels)?.encode_gauge(&waiting)?;
        }
        Ok(())
    }
}
