//! How fast this process asks its models, and how much at once. What that should be is decided by `starling_engine::rate`;
//! here calls wait for it.

mod ceiling;
mod circuit;
mod fleet;
mod line;
mod purposes;
mod queue;
mod retries;
mod sent;

use ceiling::Ceiling;
use circuit::Circuit;
pub(crate) use fleet::share_with_fleet;
use futures::{FutureExt as _, future::BoxFuture};
use line::{Line, LineFigures};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use retries::Retries;
use starling_engine::{
    breaker::{BreakerLimits, BreakerState},
    rate::ConcurrencyLimits,
    retries::RetryLimits,
};
use starling_llm::{Ask, Leave, Limiter, NotSent, Purpose};
use starling_runtime::settings::{BulkheadSettings, ModelSettings, RateSettings};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// How an endpoint may be asked by one process.
#[derive(Clone, Copy, Debug)]
pub struct EndpointLimits {
    /// How fast each model is asked.
    pub rate: RateSettings,
    /// When it is left alone because it fails.
    pub breaker: BreakerLimits,
    /// How many calls may be sent again.
    pub retries: RetryLimits,
    /// How many calls of each model may be open.
    pub concurrency: ConcurrencyLimits,
    /// Which part of the open calls is kept for what.
    pub bulkheads: BulkheadSettings,
    /// Open calls of all models together.
    pub max_in_flight: usize,
    /// Calls that may wait for each model.
    pub max_waiting: usize,
}

impl EndpointLimits {
    /// As the settings want it.
    #[must_use]
    pub fn of(settings: &ModelSettings) -> Self {
        Self {
            rate: settings.rate,
            breaker: settings.breaker,
            retries: settings.retries,
            concurrency: settings.concurrency,
            bulkheads: settings.bulkheads,
            max_in_flight: settings.max_in_flight,
            max_waiting: settings.max_waiting,
        }
    }

    /// No model may have more open calls than there may be at all.
    fn concurrency(&self) -> ConcurrencyLimits {
        let most = u32::try_from(self.max_in_flight).unwrap_or(u32::MAX);
        let ConcurrencyLimits { start, min, max, tolerance } = self.concurrency;
        ConcurrencyLimits { start: start.min(most), min: min.min(most), max: max.min(most), tolerance }
    }
}

/// One line for each model that is asked, and what is common to the endpoint that they are behind: a circuit breaker,
/// a retry budget, and a ceiling of open calls.
#[derive(Debug)]
pub struct RateLimiter {
    limits: EndpointLimits,
    circuit: Arc<Circuit>,
    retries: Arc<Retries>,
    ceiling: Arc<Ceiling>,
    lines: Mutex<BTreeMap<String, Arc<Line>>>,
}

impl RateLimiter {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(limits: EndpointLimits) -> Arc<Self> {
        let circuit = Arc::new(Circuit::new(limits.breaker));
        let retries = Arc::new(Retries::new(limits.retries));
        let bulkheads = purposes::bulkheads(limits.bulkheads);
        let ceiling = Arc::new(Ceiling::new(limits.max_in_flight, bulkheads));
        Arc::new(Self { limits, circuit, retries, ceiling, lines: Mutex::default() })
    }

    fn line(&self, model: &str) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // No more than there are models in the settings.
        let made = || {
            let line = Line::new(&self.limits, self.circuit.clone(), self.ceiling.clone());
            let line = Arc::new(line);
            self.ceiling.add(Arc::downgrade(&line));
            line
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
            let LineFigures { rate, limit, open, waiting } = line.figures();
            RateFigures { model, rate, limit, open, waiting }
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
    /// Calls that may be open.
    pub limit: u32,
    /// Calls that are open: for plans, tasks, verdicts and answers.
    pub open: [usize; 4],
    /// Calls that wait for their turn.
    pub waiting: usize,
}

impl Limiter for RateLimiter {
    fn counts_tokens(&self, model: &str) -> bool {
        self.line(model).counts_tokens()
    }

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

/// How a breaker's state is told in figures.
fn breaker_number(state: BreakerState) -> i32 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
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
        let (name, help) = (
            "model_concurrency_limit",
            "Calls of a model that may be open in this process, as its endpoint bears",
        );
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (endpoint, RateFigures { model, limit, .. }) in &all {
            let limit = i64::from(*limit);
            let labels = [("endpoint", endpoint.as_str()), ("model", model.as_str())];
            metric.encode_family(&labels)?.encode_gauge(&limit)?;
        }
        let (name, help) = ("model_calls_open", "Calls of a model that are open, by what they are for");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (endpoint, RateFigures { model, open, .. }) in &all {
            for (open, purpose) in open.iter().zip(Purpose::ALL) {
                let open = i64::try_from(*open).unwrap_or(i64::MAX);
                let labels =
                    [("endpoint", endpoint.as_str()), ("model", model.as_str()), ("purpose", purpose.name())];
                metric.encode_family(&labels)?.encode_gauge(&open)?;
            }
        }
        let help = "Whether calls of the model endpoint are let through: 0 all, 1 a few, 2 none";
        let mut breaker = encoder.encode_descriptor("model_breaker", help, None, MetricType::Gauge)?;
        for (endpoint, limiter) in &self.0 {
            let state = i64::from(breaker_number(limiter.breaker()));
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
