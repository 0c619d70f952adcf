//! `[model]`: whom to ask, how fast, and at what price.

use super::reader::Reader;
use secrecy::SecretString;
use starling_engine::{breaker::BreakerLimits, rate::RateLimits};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
/// Requests a second that no endpoint takes.
const FASTEST: f64 = 1_000_000.0;

/// `[model]`
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// Address; `None` is OpenAI's.
    pub base_url: Option<String>,
    /// The key.
    pub api_key: Option<SecretString>,
    /// Whether to use the offline model.
    pub offline: Offline,
    /// The model.
    pub name: String,
    /// The one for plans, if another.
    pub plan: Option<String>,
    /// The one for tasks, if another.
    pub work: Option<String>,
    /// The one for verdicts, if another.
    pub judge: Option<String>,
    /// The one for answers, if another.
    pub synthesize: Option<String>,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Tries of one call.
    pub tries: u32,
    /// Open calls of one process.
    pub max_in_flight: usize,
    /// How fast it may be asked.
    pub rate: RateSettings,
    /// When an endpoint that fails is left alone.
    pub breaker: BreakerLimits,
    /// Which replies are given again.
    pub cache: CacheSettings,
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

impl ModelSettings {
    /// Whether the offline model answers.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        match self.offline {
            Offline::Yes => true,
            Offline::No => false,
            Offline::Auto => self.api_key.is_none() && self.base_url.is_none(),
        }
    }
}

pub(super) fn read(r: &mut Reader) -> ModelSettings {
    let api_key = r.secret_or_file("model.api_key");
    ModelSettings {
        base_url: r.http("model.base_url"),
        api_key: api_key.map(SecretString::from),
        offline: r.choice(
            "model.offline",
            &[("auto", Offline::Auto), ("true", Offline::Yes), ("false", Offline::No)],
        ),
        name: r.text("model.name"),
        plan: r.optional("model.plan"),
        work: r.optional("model.work"),
        judge: r.optional("model.judge"),
        synthesize: r.optional("model.synthesize"),
        timeout: r.duration("model.timeout", MS * 100..=HOUR),
        tries: r.integer("model.tries", 1..=100),
        max_in_flight: r.integer("model.max_in_flight", 1..=100_000),
        rate: rate(r),
        breaker: BreakerLimits {
            failures: r.integer("model.breaker.failures", 0..=1_000_000),
            open: r.duration("model.breaker.open", MS * 100..=HOUR),
            probes: r.integer("model.breaker.probes", 1..=1_000),
        },
        cache: cache(r),
        prices: prices(r),
    }
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
