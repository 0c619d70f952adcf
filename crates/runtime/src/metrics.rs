//! What a process counts and measures, in the OpenMetrics text format.

use crate::process_metrics::ProcessCollector;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets, linear_buckets},
        info::Info,
    },
    registry::Registry,
};
use starling_engine::coordinator::Milestone;
use starling_protocol::{CallReport, DeadReason, OutcomeStatus, Timestamp, Usage};
use std::{
    fmt,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

/// What the names of all metrics of the project begin with.
const PREFIX: &str = "starling";

/// A topic.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct TopicLabel {
    /// Full name.
    pub topic: String,
}

/// A topic and what became of its records.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResultLabels {
    /// Full name.
    pub topic: String,
    /// `done`, `dead_letter`, `superseded`, `retried` or `already_done`.
    pub result: String,
}

/// A reason, out of a small set of words.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The word.
    pub reason: String,
}

/// A kind, out of a small set of words.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabel {
    /// The word.
    pub kind: String,
}

/// A model and what it is asked for.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ModelLabels {
    /// Its name.
    pub model: String,
    /// `plan`, `work`, `judge` or `synthesize`.
    pub purpose: String,
}

/// A question to a model that was given up, and why.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ModelFailureLabels {
    /// The model's name.
    pub model: String,
    /// `plan`, `work`, `judge` or `synthesize`.
    pub purpose: String,
    /// The code of the failure, as it travels in envelopes.
    pub kind: String,
}

/// How an intent ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StatusLabel {
    /// Name of the outcome's status.
    pub status: String,
}

/// Makes histograms of durations in seconds, from 0.5 ms to 4 minutes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.000_5, 2.0, 20))
    }
}

/// The metrics of a process.
pub struct Metrics {
    registry: Mutex<Registry>,
    reuse: Reuse,
    /// Records by topic and result.
    pub records: Family<ResultLabels, Counter>,
    /// Handlers that run.
    pub in_flight: Family<TopicLabel, Gauge>,
    /// Time in handlers.
    pub handler_seconds: Family<TopicLabel, Histogram, Seconds>,
    /// Commits that failed.
    pub commit_failures: Family<TopicLabel, Counter>,
    /// Commits that were made.
    pub commits: Family<TopicLabel, Counter>,
    /// Partitions that are paused now.
    pub paused_partitions: Family<TopicLabel, Gauge>,
    /// Dead letters by reason.
    pub dead_letters: Family<ReasonLabel, Counter>,
    /// Records that nobody needs any more, by kind: `cancelled`, `late`, `abandoned_run`, `duplicate`.
    pub superseded: Family<KindLabel, Counter>,
    /// Records sent, by topic.
    pub sent: Family<TopicLabel, Counter>,
    /// Records sent again, by topic.
    pub resent: Family<TopicLabel, Counter>,
    /// Model calls.
    pub model_calls: Family<ModelLabels, Counter>,
    /// Tokens sent to models.
    pub prompt_tokens: Family<ModelLabels, Counter>,
    /// Tokens received from models.
    pub completion_tokens: Family<ModelLabels, Counter>,
    /// Those of the tokens sent that the provider had in its prompt cache.
    pub cached_prompt_tokens: Family<ModelLabels, Counter>,
    /// Prompt tokens of questions that were answered without a call. They were not sent.
    pub reused_prompt_tokens: Family<ModelLabels, Counter>,
    /// The share of prompt tokens since the start that were reused, from the provider's prompt cache or with whole
    /// replies.
    pub context_reuse: Gauge<f64, AtomicU64>,
    /// Cost of model calls in US dollars, of those models that have a price.
    pub cost_usd: Family<ModelLabels, Counter<f64, AtomicU64>>,
    /// Scores given by critics.
    pub verdict_scores: Histogram,
    /// From an input's arrival to the confirmed decision.
    pub decision_seconds: Histogram,
    /// From the timestamp of a record to the beginning of its handling: how far behind a topic's readers are.
    pub hop_seconds: Family<TopicLabel, Histogram, Seconds>,
    /// From a question to the whole reply or the failure, waiting and retries included.
    pub model_call_seconds: Family<ModelLabels, Histogram, Seconds>,
    /// Questions that were given up.
    pub model_failures: Family<ModelFailureLabels, Counter>,
    /// Intents that ended.
    pub outcomes: Family<StatusLabel, Counter>,
    /// Attempts of tasks after the first.
    pub task_retries: Counter,
    /// From the acceptance of an intent to its outcome.
    pub intent_seconds: Histogram,
    /// From the acceptance of an intent to its complete plan.
    pub orch_split_latency: Histogram,
    /// Worker slots that are busy now.
    pub worker_active_count: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that are all zero.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            reuse: Reuse::default(),
            records: Family::default(),
            in_flight: Family::default(),
            handler_seconds: Family::new_with_constructor(Seconds),
            commit_failures: Family::default(),
            commits: Family::default(),
            paused_partitions: Family::default(),
            dead_letters: Family::default(),
            superseded: Family::default(),
            sent: Family::default(),
            resent: Family::default(),
            model_calls: Family::default(),
            prompt_tokens: Family::default(),
            completion_tokens: Family::default(),
            cached_prompt_tokens: Family::default(),
            reused_prompt_tokens: Family::default(),
            context_reuse: Gauge::default(),
            cost_usd: Family::default(),
            verdict_scores: Histogram::new(linear_buckets(0.1, 0.1, 10)),
            decision_seconds: Seconds.new_metric(),
            hop_seconds: Family::new_with_constructor(Seconds),
            model_call_seconds: Family::new_with_constructor(Seconds),
            model_failures: Family::default(),
            outcomes: Family::default(),
            task_retries: Counter::default(),
            // An intent takes a second, or the hour that its deadline allows.
            intent_seconds: Histogram::new(exponential_buckets(0.1, 2.0, 16)),
            orch_split_latency: Seconds.new_metric(),
            worker_active_count: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        self.with_registry(|r| {
            r.register("records", "Records by topic and result", self.records.clone());
            r.register("in_flight", "Handlers that run", self.in_flight.clone());
            r.register("handler_seconds", "Time in handlers", self.handler_seconds.clone());
            r.register("commit_failures", "Commits that failed", self.commit_failures.clone());
            r.register("commits", "Commits that were made", self.commits.clone());
            r.register("paused_partitions", "Partitions that are paused", self.paused_partitions.clone());
            r.register("dead_letters", "Dead letters by reason", self.dead_letters.clone());
            r.register("superseded", "Records that nobody needs any more", self.superseded.clone());
            r.register("sent", "Records sent", self.sent.clone());
            r.register("resent", "Records sent again", self.resent.clone());
            r.register("model_calls", "Model calls", self.model_calls.clone());
            r.register("prompt_tokens", "Tokens sent to models", self.prompt_tokens.clone());
            r.register("completion_tokens", "Tokens received from models", self.completion_tokens.clone());
            r.register(
                "cached_prompt_tokens",
                "Tokens sent to models that the provider had in its prompt cache",
                self.cached_prompt_tokens.clone(),
            );
            r.register(
                "reused_prompt_tokens",
                "Prompt tokens of questions that were answered without a call",
                self.reused_prompt_tokens.clone(),
            );
            r.register(
                "context_reuse",
                "Share of prompt tokens that were reused since the start",
                self.context_reuse.clone(),
            );
            r.register(
                "cost_usd",
                "Cost of model calls in US dollars, where there is a price",
                self.cost_usd.clone(),
            );
            r.register("verdict_scores", "Scores given by critics", self.verdict_scores.clone());
            r.register("decision_seconds", "From input to confirmed decision", self.decision_seconds.clone());
            r.register("worker_active_count", "Worker slots that are busy", self.worker_active_count.clone());
            r.register("hop_seconds", "From a record's timestamp to its handling", self.hop_seconds.clone());
            r.register("model_call_seconds", "Time of questions to models", self.model_call_seconds.clone());
            r.register("model_failures", "Questions that were given up", self.model_failures.clone());
            r.register("outcomes", "Intents that ended, by status", self.outcomes.clone());
            r.register("task_retries", "Attempts of tasks after the first", self.task_retries.clone());
            r.register("intent_seconds", "From acceptance to outcome", self.intent_seconds.clone());
            r.register(
                "orch_split_latency",
                "Seconds from the acceptance of an intent to its complete plan",
                self.orch_split_latency.clone(),
            );
            r.register("build", "What runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        });
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(ProcessCollector));
    }

    /// Lets a service register metrics of its own.
    pub fn with_registry(&self, add: impl FnOnce(&mut Registry)) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        add(registry.sub_registry_with_prefix(PREFIX));
    }

    /// All metrics as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let _ = text::encode(&mut out, &registry); // writing to a String cannot fail
        out
    }

    /// Counts what a step's model calls took.
    pub fn count_calls(&self, purpose: &str, report: &CallReport) {
        let labels = ModelLabels { model: report.model.clone(), purpose: purpose.to_owned() };
        let positive = |value: i64| u64::try_from(value).unwrap_or(0);
        self.model_calls.get_or_create(&labels).inc_by(positive(report.calls));
        self.prompt_tokens.get_or_create(&labels).inc_by(positive(report.usage.prompt_tokens));
        self.completion_tokens.get_or_create(&labels).inc_by(positive(report.usage.completion_tokens));
        self.cached_prompt_tokens.get_or_create(&labels).inc_by(positive(report.usage.cached_tokens));
        self.reused_prompt_tokens.get_or_create(&labels).inc_by(positive(report.cached_prompt_tokens));
        self.context_reuse.set(self.reuse.add(report));
        // What is not known is not shown as nothing, and whether the model has a price is not known from a reply that was
        // there already.
        if report.unpriced_calls == 0 && report.cached_calls == 0 {
            self.cost_usd.get_or_create(&labels).inc_by(report.cost_usd.max(0.0));
        }
    }

    /// Counts a question that got no answer.
    pub fn count_model_failure(&self, model: &str, purpose: &str, kind: &str) {
        let labels = ModelFailureLabels {
            model: model.to_owned(),
            purpose: purpose.to_owned(),
            kind: kind.to_owned(),
        };
        self.model_failures.get_or_create(&labels).inc();
    }

    /// Notes how long a question took.
    pub fn observe_model_call(&self, model: &str, purpose: &str, took: Duration) {
        let labels = ModelLabels { model: model.to_owned(), purpose: purpose.to_owned() };
        self.model_call_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts what a confirmed decision brought to its end.
    pub(crate) fn reach(&self, milestone: Milestone) {
        match milestone {
            Milestone::Planned { took } => self.orch_split_latency.observe(took.as_secs_f64()),
            Milestone::Ended { status, took } => {
                let label = StatusLabel { status: status.name().to_owned() };
                self.outcomes.get_or_create(&label).inc();
                took.iter().for_each(|took| self.intent_seconds.observe(took.as_secs_f64()));
            }
            Milestone::Retried => {
                self.task_retries.inc();
            }
        }
    }

    /// Makes the counts that a coordinator may raise, so that they begin at zero.
    pub(crate) fn expect_decisions(&self) {
        for status in OutcomeStatus::ALL {
            drop(self.outcomes.get_or_create(&StatusLabel { status: status.name().to_owned() }));
        }
        for kind in ["duplicate", "late", "abandoned_run", "cancelled"] {
            drop(self.superseded.get_or_create(&KindLabel { kind: kind.to_owned() }));
        }
        self.expect_dead_letters();
    }

    /// Known from the start, so that the first one is an increase.
    fn expect_dead_letters(&self) {
        for reason in DeadReason::ALL {
            drop(self.dead_letters.get_or_create(&ReasonLabel { reason: reason.name().to_owned() }));
        }
    }

    pub(crate) fn count_dead_letter(&self, reason: DeadReason) {
        self.dead_letters.get_or_create(&ReasonLabel { reason: reason.name().to_owned() }).inc();
    }

    /// Counts a record that nobody needs any more.
    pub fn count_superseded(&self, kind: &str) {
        self.superseded.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// What the share of reused prompt tokens follows from.
#[derive(Default)]
struct Reuse(Mutex<(Usage, i64)>);

impl Reuse {
    /// Adds what a call took; gives the share of all so far.
    fn add(&self, report: &CallReport) -> f64 {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (usage, cached_prompt_tokens) = &mut *sums;
        usage.add(report.usage);
        *cached_prompt_tokens = cached_prompt_tokens.saturating_add(report.cached_prompt_tokens);
        usage.context_reuse(*cached_prompt_tokens)
    }
}

/// The metrics of one topic, looked up once.
#[derive(Clone, Debug)]
pub(crate) struct TopicMetrics {
    pub(crate) done: Counter,
    pub(crate) dead: Counter,
    pub(crate) superseded: Counter,
    pub(crate) retried: Counter,
    pub(crate) already_done: Counter,
    pub(crate) in_flight: Gauge,
    pub(crate) seconds: Histogram,
    pub(crate) hops: Hops,
    pub(crate) commits: Counter,
    pub(crate) commit_failures: Counter,
    pub(crate) paused: Gauge,
}

impl TopicMetrics {
    pub(crate) fn of(metrics: &Metrics, topic: &str) -> Self {
        let label = TopicLabel { topic: topic.to_owned() };
        metrics.expect_dead_letters();
        for kind in ["late", "cancelled"] {
            drop(metrics.superseded.get_or_create(&KindLabel { kind: kind.to_owned() }));
        }
        let result = |result: &str| {
            let labels = ResultLabels { topic: topic.to_owned(), result: result.to_owned() };
            metrics.records.get_or_create_owned(&labels)
        };
        Self {
            done: result("done"),
            dead: result("dead_letter"),
            superseded: result("superseded"),
            retried: result("retried"),
            already_done: result("already_done"),
            in_flight: metrics.in_flight.get_or_create_owned(&label),
            seconds: metrics.handler_seconds.get_or_create_owned(&label),
            hops: Hops::of(metrics, topic),
            commits: metrics.commits.get_or_create_owned(&label),
            commit_failures: metrics.commit_failures.get_or_create_owned(&label),
            paused: metrics.paused_partitions.get_or_create_owned(&label),
        }
    }

    pub(crate) fn observe(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
    }
}

/// How long the records of one topic waited before they were handled.
#[derive(Clone, Debug)]
pub(crate) struct Hops(Histogram);

impl Hops {
    pub(crate) fn of(metrics: &Metrics, topic: &str) -> Self {
        Self(metrics.hop_seconds.get_or_create_owned(&TopicLabel { topic: topic.to_owned() }))
    }

    /// A record of that time is handled now. Brokers and clients of old write records without a time.
    pub(crate) fn observe(&self, written: Timestamp, now: Timestamp) {
        if written > Timestamp(0) {
            self.0.observe(now.since(written).as_secs_f64());
        }
    }
}
