//! What a user sets about an endpoint, checked once.

use super::dialect::JsonForm;
use crate::{ChatRequest, Encoding, ModelChoice, Purpose, Purposes};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use starling_protocol::Usage;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Settings of an OpenAI-compatible endpoint. [`OpenAiOptions::new`] fills in the defaults.
#[derive(Clone)]
pub struct OpenAiOptions {
    /// Such as `https://api.openai.com/v1`; `/chat/completions` is appended. A query stays, and
    /// `user:password@` becomes basic authentication.
    pub base_url: String,
    /// Sent as a bearer token; `None` sends none, as local servers want it.
    pub api_key: Option<SecretString>,
    /// Which model answers what.
    pub models: ModelNames,
    /// Prices by the name that is asked for, or that the endpoint says. Without one, what a call costs is not known.
    pub prices: BTreeMap<String, Price>,
    /// Longest wait for a connection. Default 5 s.
    pub connect_timeout: Duration,
    /// Longest time of one attempt, whole reply included. Default 120 s.
    pub call_timeout: Duration,
    /// Longest wait until a streamed reply begins, be it with thoughts. Default 60 s.
    pub first_token_timeout: Duration,
    /// Longest pause of a streamed reply that has begun. Default 30 s.
    pub token_timeout: Duration,
    /// Attempts of one question, the first included. Default 4.
    pub max_attempts: u32,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Longest reply in bytes, as it comes over the wire. Default 8 MiB.
    pub max_response_bytes: usize,
    /// Calls open at once; more wait. Default 256. Where a [`crate::Limiter`] gives leave, that is for it to decide.
    pub max_in_flight: usize,
    /// Connections kept open while idle. Default 256.
    pub max_idle_connections: usize,
    /// Fields merged into every request body; they win over ours.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Fields that are left out of the body, such as `temperature`. What an endpoint refuses is found out anyway.
    pub omit: Vec<String>,
    /// How JSON is asked for at first. Default: by its schema; what an endpoint refuses is not asked for again.
    pub json: JsonForm,
    /// Whether what a model thought is sent again with the turns that follow. Default: never.
    pub replay_reasoning: ReplayReasoning,
    /// How the models count; `None`: as their names say.
    pub encoding: Option<Encoding>,
    /// Tokens that a prompt and its reply may have together; `None` if that is not known.
    pub window: Option<i64>,
    /// Purposes for which somebody else answers if this endpoint does not: it is not waited for when it fails for all.
    pub stand_ins: Purposes,
    /// Further headers, such as `api-key`; values are treated as secrets.
    pub extra_headers: BTreeMap<String, SecretString>,
}

/// Whether what a model thought (`reasoning_content`) is sent again with the conversation that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayReasoning {
    /// It is dropped, as most providers want it.
    #[default]
    Never,
    /// In the turns in which the model calls tools, even if it is empty.
    WithCalls,
    /// In every turn that has some.
    Always,
}

/// Model names by purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelNames {
    /// For every purpose that names none of its own.
    pub default: String,
    /// For plans.
    pub planner: Option<String>,
    /// For tasks.
    pub worker: Option<String>,
    /// For verdicts.
    pub critic: Option<String>,
    /// For the answer.
    pub synthesizer: Option<String>,
}

impl ModelNames {
    /// The model for a purpose.
    #[must_use]
    pub fn for_purpose(&self, purpose: Purpose) -> &str {
        let own = match purpose {
            Purpose::Plan => &self.planner,
            Purpose::Work => &self.worker,
            Purpose::Judge => &self.critic,
            Purpose::Synthesize => &self.synthesizer,
        };
        own.as_deref().unwrap_or(&self.default)
    }

    /// The model for a question.
    pub(super) fn for_request<'m>(&'m self, request: &'m ChatRequest) -> &'m str {
        self.chosen(request.purpose, request.model.as_ref())
    }

    /// The model for a purpose, or the one that is chosen in place of it.
    pub(super) fn chosen<'m>(&'m self, purpose: Purpose, choice: Option<&'m ModelChoice>) -> &'m str {
        match choice {
            None => self.for_purpose(purpose),
            Some(ModelChoice::Role(role)) => self.for_purpose(*role),
            Some(ModelChoice::Named(name)) => name,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        [&self.planner, &self.worker, &self.critic, &self.synthesizer]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .chain([self.default.as_str()])
    }
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// For tokens sent.
    pub input: f64,
    /// For tokens sent that the provider had in its prompt cache.
    pub cached_input: f64,
    /// For tokens received.
    pub output: f64,
}

impl Price {
    /// US dollars for this many tokens.
    #[allow(clippy::cast_precision_loss)] // far below 2^52 tokens
    pub(super) fn of(self, usage: Usage) -> f64 {
        let read = usage.prompt_tokens.saturating_sub(usage.cached_tokens) as f64 * self.input;
        let cached = usage.cached_tokens as f64 * self.cached_input;
        (read + cached + usage.completion_tokens as f64 * self.output) / 1_000_000.0
    }
}

/// Exponential backoff with full jitter: attempt n waits a random time up to `base * 2^(n-1)`,
/// never more than `cap`. A `Retry-After` of the server is a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first wait. Default 500 ms.
    pub base: Duration,
    /// Upper bound of any wait that the server did not ask for. Default 20 s.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(20) }
    }
}

impl OpenAiOptions {
    /// The defaults for a base URL and one model for everything.
    #[must_use]
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        OpenAiOptions {
            base_url: base_url.into(),
            api_key: None,
            models: ModelNames { default: model.into(), ..ModelNames::default() },
            prices: BTreeMap::new(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(120),
            first_token_timeout: Duration::from_secs(60),
            token_timeout: Duration::from_secs(30),
            max_attempts: 4,
            backoff: Backoff::default(),
            max_response_bytes: 8 << 20,
            max_in_flight: 256,
            max_idle_connections: 256,
            extra_body: serde_json::Map::new(),
            omit: Vec::new(),
            json: JsonForm::default(),
            replay_reasoning: ReplayReasoning::default(),
            encoding: None,
            window: None,
            stand_ins: Purposes::NONE,
            extra_headers: BTreeMap::new(),
        }
    }

    /// How a model counts.
    pub(super) fn encoding_of(&self, model: &str) -> Encoding {
        self.encoding.unwrap_or_else(|| Encoding::of_model(model))
    }

    pub(super) fn check(&self) -> Result<Target, OptionsError> {
        if self.models.all().any(|name| name.trim().is_empty()) {
            return Err(OptionsError::Empty("models"));
        }
        for (name, zero) in [
            ("max_attempts", self.max_attempts == 0),
            ("max_in_flight", self.max_in_flight == 0),
            ("max_response_bytes", self.max_response_bytes == 0),
            ("call_timeout", self.call_timeout.is_zero()),
            ("connect_timeout", self.connect_timeout.is_zero()),
            ("first_token_timeout", self.first_token_timeout.is_zero()),
            ("token_timeout", self.token_timeout.is_zero()),
        ] {
            if zero {
                return Err(OptionsError::Zero(name));
            }
        }
        for (model, price) in &self.prices {
            let sane = |usd: f64| usd.is_finite() && usd >= 0.0;
            if ![price.input, price.cached_input, price.output].into_iter().all(sane) {
                return Err(OptionsError::Price(model.clone()));
            }
        }
        Target::parse(&self.base_url)
    }

    /// Everything that must never be shown.
    pub(super) fn secrets(&self, target: &Target) -> Vec<String> {
        self.api_key
            .iter()
            .chain(self.extra_headers.values())
            .map(|secret| secret.expose_secret().to_owned())
            .chain(target.login.iter().filter_map(|login| login.1.clone()))
            .filter(|secret| !secret.is_empty())
            .collect()
    }
}

impl fmt::Debug for OpenAiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The base URL may hold a password or a key, so only its harmless part is shown.
        let endpoint =
            Target::parse(&self.base_url).map_or_else(|_| "(not a URL)".to_owned(), |target| target.endpoint);
        f.debug_struct("OpenAiOptions")
            .field("endpoint", &endpoint)
            .field("models", &self.models)
            .field("max_attempts", &self.max_attempts)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

/// Where the calls go.
pub(super) struct Target {
    /// With path and query, without user and password.
    pub(super) url: Url,
    /// User and password of the base URL.
    pub(super) login: Option<(String, Option<String>)>,
    /// For people: no user, password or query.
    pub(super) endpoint: String,
    /// On this machine: no proxy may stand between.
    pub(super) loopback: bool,
}

impl Target {
    fn parse(base_url: &str) -> Result<Target, OptionsError> {
        let mut url = Url::parse(base_url.trim()).map_err(|e| OptionsError::BaseUrl(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OptionsError::BaseUrl("it must begin with http:// or https://".to_owned()));
        }
        let login = (!url.username().is_empty() || url.password().is_some())
            .then(|| (url.username().to_owned(), url.password().map(str::to_owned)));
        // Both fail only for URLs without a host, and http(s) URLs always have one.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let mut bare = url.clone();
        bare.set_query(None);
        let endpoint = bare.as_str().trim_end_matches('/').to_owned();
        let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let host = url.host_str().unwrap_or_default();
        let loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
        Ok(Target { url, login, endpoint, loopback })
    }
}

/// The settings make no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Not a URL that can be called.
    #[error("base URL of the model endpoint: {0}")]
    BaseUrl(String),
    /// A setting that must not be empty.
    #[error("{0} of the model endpoint must not be empty")]
    Empty(&'static str),
    /// A setting that must be above zero.
    #[error("{0} of the model endpoint must be above 0")]
    Zero(&'static str),
    /// A price that is none.
    #[error("the prices of model {0} must be 0 or more")]
    Price(String),
    /// A header that HTTP does not allow, by name.
    #[error("header {0} is not a valid HTTP header; look at its name and its value")]
    Header(String),
    /// No HTTP client could be made, mostly for want of root certificates.
    #[error("no HTTP client: {0}; for https, are root certificates (ca-certificates) installed?")]
    Client(String),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_endpoint_shows_no_secrets_and_the_query_survives() {
        let target = Target::parse("https://me:hunter2@llm.example/openai/v1/?api-version=7&key=k").unwrap();
        assert_eq!(target.endpoint, "https://llm.example/openai/v1");
        assert_eq!(target.url.as_str(), "https://llm.example/openai/v1/chat/completions?api-version=7&key=k");
        assert_eq!(target.login, Some(("me".to_owned(), Some("hunter2".to_owned()))));
        assert!(!target.loopback);
        let shown = format!("{:?}", OpenAiOptions::new("https://a:hunter2@b/v1", "m"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn nonsense_is_refused_with_the_setting_named() {
        for (change, expected) in [
            (
                Box::new(|o: &mut OpenAiOptions| o.base_url = "ftp://x".into())
                    as Box<dyn Fn(&mut OpenAiOptions)>,
                "base URL",
            ),
            (Box::new(|o| o.base_url = "not a url".into()), "base URL"),
            (Box::new(|o| o.models.critic = Some(" ".into())), "models"),
            (Box::new(|o| o.max_attempts = 0), "max_attempts"),
            (Box::new(|o| o.max_in_flight = 0), "max_in_flight"),
            (
                Box::new(|o| {
                    let price = Price { input: -1.0, ..Price::default() };
                    o.prices.insert("gpt".into(), price);
                }),
                "gpt",
            ),
        ] {
            let mut options = OpenAiOptions::new("http://localhost:1/v1", "m");
            change(&mut options);
            let message = options.check().err().unwrap().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
