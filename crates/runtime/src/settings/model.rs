//! `[model]`: whom to ask, how fast, and at what price.

use super::{provider, provider::ProviderSettings, reader::Reader};
use starling_engine::{
    breaker::BreakerLimits,
    rate::{ConcurrencyLimits, RateLimits},
    retries::RetryLimits,
};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
/// Requests a second that no endpoint takes.
const FASTEST: f64 = 1_000_000.0;

/// `[model]`
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// Who is asked first.
    pub provider: ProviderSettings,
    /// Who is asked, in this order, when it does not answer.
    pub fallbacks: Vec<ProviderSettings>,
    /// Whether to use the offline model.
    pub offline: Offline,
    /// What to do about an Ollama on this machine.
    pub ollama: OllamaSettings,
    /// Tokens of a window that are left free.
    pub window_margin: i64,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait until a streamed reply begins.
    pub first_token_timeout: Duration,
    /// Longest pause of a streamed reply.
    pub token_timeout: Duration,
    /// Tries of one call.
    pub tries: u32,
    /// Open calls of one process.
    pub max_in_flight: usize,
    /// Calls of one process that may wait for one model.
    pub max_waiting: usize,
    /// How many calls of each model may be open.
    pub concurrency: ConcurrencyLimits,
    /// Which part of the open calls is kept for what.
    pub bulkheads: BulkheadSettings,
    /// How fast it may be asked.
    pub rate: RateSettings,
    /// When an endpoint that fails is left alone.
    pub breaker: BreakerLimits,
    /// How many calls may be sent again.
    pub retries: RetryLimits,
    /// Which replies are given again.
    pub cache: CacheSettings,
    /// Second requests for each question, 0 for none.
    pub hedge_share: f64,
    /// Share of the last replies that were quicker than one that is asked for a second time.
    pub hedge_quantile: f64,
    /// Prices by model.
    pub prices: BTreeMap<String, ModelPrice>,
}

/// `[model.cache]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Whether plans are given again.
    pub plan: bool,
    /// Whether results of tasks are.
    pub work: bool,
    /// Whether verdicts are.
    pub judge: bool,
    /// Whether answers are.
    pub synthesize: bool,
    /// For how long.
    pub ttl: Duration,
    /// Bytes in memory.
    pub memory: usize,
    /// Replies in memory.
    pub memory_entries: usize,
    /// Where they are kept on disk; `None` keeps none there.
    pub folder: Option<PathBuf>,
    /// Bytes on disk.
    pub disk: usize,
    /// Replies on disk.
    pub disk_entries: usize,
}

impl CacheSettings {
    /// Whether there are any replies to keep.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.plan || self.work || self.judge || self.synthesize
    }

    /// Keeps none.
    pub fn switch_off(&mut self) {
        (self.plan, self.work, self.judge, self.synthesize) = (false, false, false, false);
    }
}

/// `[model.rate]`, for each model that is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSettings {
    /// Requests.
    pub limits: RateLimits,
    /// Tokens, sent and received, in a minute; `None` leaves that to the endpoint.
    pub tokens_per_minute: Option<u64>,
}

impl RateSettings {
    /// As fast as it goes, for endpoints without limits.
    #[must_use]
    pub fn unlimited() -> Self {
        let limits = RateLimits { start: FASTEST, max: FASTEST, ..RateLimits::default() };
        Self { limits, tokens_per_minute: None }
    }
}

/// `[model.bulkheads]`: the share of the open calls, 0 to 1, that each purpose can always have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BulkheadSettings {
    /// Plans.
    pub plan: f64,
    /// Tasks.
    pub work: f64,
    /// Verdicts.
    pub judge: f64,
    /// Answers.
    pub synthesize: f64,
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelPrice {
    /// Tokens sent.
    pub input: f64,
    /// Tokens sent that the provider had in its prompt cache.
    pub cached_input: f64,
    /// Tokens received.
    pub output: f64,
}

/// Whether to use the offline model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// If neither a key nor an address is set.
    #[default]
    Auto,
    /// Yes.
    Yes,
    /// No.
    No,
}

/// `[model.ollama]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OllamaSettings {
    /// What to do about it where nothing else is set.
    pub nearby: Nearby,
    /// Where it is looked for.
    pub base_url: String,
}

/// What to do about an Ollama that answers, where neither a key nor an address is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nearby {
    /// Nobody looks for it.
    Off,
    /// Say that it is there, and how it is used.
    #[default]
    Tell,
    /// Use it in place of the offline model.
    Use,
}

impl ModelSettings {
    /// Whom a question may go to, in the order in which they are asked.
    pub fn providers(&self) -> impl DoubleEndedIterator<Item = &ProviderSettings> {
        std::iter::once(&self.provider).chain(&self.fallbacks)
    }

    /// Whether the offline model answers.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        match self.offline {
            Offline::Yes => true,
            Offline::No => false,
            Offline::Auto => self.provider.api_key.is_none() && self.provider.base_url.is_none(),
        }
    }
}

pub(super) fn read(r: &mut Reader) -> ModelSettings {
    let offline =
        r.choice("model.offline", &[("auto", Offline::Auto), ("true", Offline::Yes), ("false", Offline::No)]);
    let provider = provider::read(r, "model", offline != Offline::Yes);
    ModelSettings {
        ollama: OllamaSettings {
            nearby: r.choice(
                "model.ollama.nearby",
                &[("off", Nearby::Off), ("tell", Nearby::Tell), ("use", Nearby::Use)],
            ),
            base_url: r.http("model.ollama.base_url").unwrap_or_default(),
        },
        provider,
        fallbacks: fallbacks(r, offline != Offline::Yes),
        offline,
        window_margin: r.integer("model.window_margin", 0..=1_000_000),
        timeout: r.duration("model.timeout", MS * 100..=HOUR),
        connect_timeout: r.duration("model.connect_timeout", MS * 10..=HOUR),
        first_token_timeout: r.duration("model.first_token_timeout", MS * 100..=HOUR),
        token_timeout: r.duration("model.token_timeout", MS * 100..=HOUR),
        tries: r.integer("model.tries", 1..=100),
        max_in_flight: r.integer("model.max_in_flight", 1..=100_000),
        max_waiting: r.integer("model.max_waiting", 1..=1_000_000),
        concurrency: concurrency(r),
        bulkheads: bulkheads(r),
        rate: rate(r),
        breaker: BreakerLimits {
            failures: r.integer("model.breaker.failures", 0..=1_000_000),
            open: r.duration("model.breaker.open", MS * 100..=HOUR),
            probes: r.integer("model.breaker.probes", 1..=1_000),
        },
        retries: RetryLimits {
            share: r.number("model.retries.share", 0.0..=10.0),
            per_second: r.number("model.retries.per_second", 0.01..=100_000.0),
            burst: r.integer("model.retries.burst", 1..=1_000_000),
        },
        cache: cache(r),
        hedge_share: r.number("model.hedge.share", 0.0..=1.0),
        hedge_quantile: r.number("model.hedge.quantile", 0.5..=0.999),
        prices: prices(r),
    }
}

/// Sections of `[providers]` that nobody asks may be incomplete.
fn fallbacks(r: &mut Reader, asked: bool) -> Vec<ProviderSettings> {
    let names = r.list("model.fallback", "names of sections of [providers]", |name| !name.is_empty());
    let mut known: BTreeMap<String, ProviderSettings> = BTreeMap::new();
    for name in r.sections("providers") {
        let provider = provider::read(r, &format!("providers.{name}"), asked && names.contains(&name));
        known.insert(name, provider);
    }
    let mut fallbacks = Vec::new();
    for name in names {
        match known.remove(&name) {
            Some(provider) => fallbacks.push(provider),
            None => {
                let expected = "names of sections of [providers], each once";
                r.complain("model.fallback", expected, &format!("{name:?}"), "the settings");
            }
        }
    }
    fallbacks
}

fn concurrency(r: &mut Reader) -> ConcurrencyLimits {
    let numbers = 1..=100_000;
    let limits = ConcurrencyLimits {
        start: r.integer("model.concurrency.start", numbers.clone()),
        min: r.integer("model.concurrency.min", numbers.clone()),
        max: r.integer("model.concurrency.max", numbers),
        tolerance: r.number("model.concurrency.tolerance", 1.05..=1.95),
    };
    let ConcurrencyLimits { start, min, max, .. } = limits;
    if min > 0 && start > 0 && max > 0 && !(min <= start && start <= max) {
        let found = format!("start {start}, min {min}, max {max}");
        let expected = "at least model.concurrency.min and at most model.concurrency.max";
        r.complain("model.concurrency.start", expected, &found, "the settings");
    }
    limits
}

fn bulkheads(r: &mut Reader) -> BulkheadSettings {
    let mut share = |name| r.number(&format!("model.bulkheads.{name}"), 0.0..=1.0);
    let shares = BulkheadSettings {
        plan: share("plan"),
        work: share("work"),
        judge: share("judge"),
        synthesize: share("synthesize"),
    };
    let BulkheadSettings { plan, work, judge, synthesize } = shares;
    let sum = plan + work + judge + synthesize;
    // Tenths do not add up exactly.
    if sum > 1.0 + 1e-9 {
        let expected = "shares of at most 1 together";
        r.complain("model.bulkheads", expected, &format!("{sum:.3} in all"), "the settings");
    }
    shares
}

fn cache(r: &mut Reader) -> CacheSettings {
    let mut keeps =
        |what: &str| r.choice(&format!("model.cache.{what}"), &[("true", true), ("false", false)]);
    let (plan, work) = (keeps("plan"), keeps("work"));
    let (judge, synthesize) = (keeps("judge"), keeps("synthesize"));
    let sizes = 64 << 10..=1 << 50;
    CacheSettings {
        plan,
        work,
        judge,
        synthesize,
        ttl: r.duration("model.cache.ttl", MS * 100..=HOUR * 24 * 365),
        memory: r.size("model.cache.memory", sizes.clone()),
        memory_entries: r.integer("model.cache.memory_entries", 1..=100_000_000),
        folder: r.optional("model.cache.folder").map(PathBuf::from),
        disk: r.size("model.cache.disk", sizes),
        disk_entries: r.integer("model.cache.disk_entries", 1..=100_000_000),
    }
}

fn rate(r: &mut Reader) -> RateSettings {
    let rates = 0.1..=FASTEST;
    let defaults = RateLimits::default();
    let limits = RateLimits {
        start: r.number("model.rate.start", rates.clone()),
        min: r.number("model.rate.min", rates.clone()),
        max: r.number("model.rate.max", rates),
        window: r.integer("model.rate.window", 1..=1_000_000),
        lower: (r.number("model.rate.lower_above", 0.0..=1.0), r.number("model.rate.lower_by", 0.01..=1.0)),
        raise: (r.number("model.rate.raise_below", 0.0..=1.0), r.number("model.rate.raise_by", 1.0..=10.0)),
        hold: r.duration("model.rate.hold", MS * 100..=HOUR),
        probe: r.number("model.rate.probe", 0.0001..=1.0),
        ..defaults
    };
    let RateLimits { start, min, max, .. } = limits;
    // A value that was refused for itself is complained about already.
    if min > 0.0 && start > 0.0 && max > 0.0 && !(min <= start && start <= max) {
        let found = format!("start {start}, min {min}, max {max}");
        r.complain(
            "model.rate.start",
            "at least model.rate.min and at most model.rate.max",
            &found,
            "the settings",
        );
    }
    let per_minute: u64 = r.integer("model.rate.tokens_per_minute", 0..=1_000_000_000_000);
    RateSettings { limits, tokens_per_minute: Some(per_minute).filter(|limit| *limit > 0) }
}

fn prices(r: &mut Reader) -> BTreeMap<String, ModelPrice> {
    /// As far as it is set.
    #[derive(Default)]
    struct Parts {
        input: Option<f64>,
        cached_input: Option<f64>,
        output: Option<f64>,
    }
    let mut parts: BTreeMap<String, Parts> = BTreeMap::new();
    for (path, value) in r.numbers("model.prices", 0.0..=1_000_000.0) {
        // Names of models contain dots; the last part of the path is the direction.
        match path.rsplit_once('.') {
            Some((model, "input")) => parts.entry(model.to_owned()).or_default().input = Some(value),
            Some((model, "cached_input")) => {
                parts.entry(model.to_owned()).or_default().cached_input = Some(value);
            }
            Some((model, "output")) => parts.entry(model.to_owned()).or_default().output = Some(value),
            _ => {
                let expected = "<model>.input, <model>.cached_input or <model>.output";
                r.complain(&format!("model.prices.{path}"), expected, "another name", "the settings");
            }
        }
    }
    let mut prices = BTreeMap::new();
    for (model, part) in parts {
        match (part.input, part.output) {
            (Some(input), Some(output)) => {
                let cached_input = part.cached_input.unwrap_or(input);
                prices.insert(model, ModelPrice { input, cached_input, output });
            }
            // Half a price would make a sum that looks like a cost and is none.
            (input, output) => {
                let found = match (input, output) {
                    (Some(_), _) => "no output",
                    (None, Some(_)) => "no input",
                    (None, None) => "cached_input alone",
                };
                let path = format!("model.prices.{model}");
                r.complain(&path, "both input and output", found, "the settings");
            }
        }
    }
    prices
}
