//! What a provider lets through: buckets of requests and of tokens, and the headers that tell what is left.

use serde_json::Value;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Beyond this a mock endpoint refuses calls with 429.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MockLimits {
    /// Requests a second.
    pub requests_per_s: f64,
    /// Requests that may come at once.
    pub burst: f64,
    /// Tokens in a minute, sent and asked for (`max_tokens`), by four characters a token; as many may come at once.
    pub tokens_per_minute: Option<f64>,
}

/// Headers of a reply.
pub(super) type Headers = Vec<(&'static str, String)>;

pub(super) struct Limiter {
    state: Mutex<State>,
}

struct State {
    limits: Option<MockLimits>,
    requests: f64,
    tokens: f64,
    at: Instant,
}

impl State {
    fn full(limits: Option<MockLimits>) -> Self {
        let requests = limits.map_or(0.0, |limits| limits.burst);
        let tokens = limits.and_then(|limits| limits.tokens_per_minute).unwrap_or(0.0);
        Self { limits, requests, tokens, at: Instant::now() }
    }
}

impl Limiter {
    pub(super) fn new(limits: Option<MockLimits>) -> Self {
        Self { state: Mutex::new(State::full(limits)) }
    }

    /// Other limits from now on, with full buckets.
    pub(super) fn set(&self, limits: Option<MockLimits>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::full(limits);
    }

    /// Lets a call in, or refuses it; with what is said about the limits.
    pub(super) fn admit(&self, body: &Value, bytes: usize) -> Result<Headers, Headers> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(MockLimits { requests_per_s, burst, tokens_per_minute }) = state.limits else {
            return Ok(Vec::new());
        };
        let reply =
            body.get("max_tokens").or_else(|| body.get("max_completion_tokens")).and_then(Value::as_i64);
        let wanted = (crate::estimated_tokens(bytes) + reply.unwrap_or(0)) as f64;
        let passed = state.at.elapsed().as_secs_f64();
        state.at = Instant::now();
        state.requests = (state.requests + passed * requests_per_s).min(burst);
        let mut wait = if state.requests < 1.0 { (1.0 - state.requests) / requests_per_s } else { 0.0 };
        if let Some(limit) = tokens_per_minute {
            state.tokens = (state.tokens + passed * limit / 60.0).min(limit);
            if state.tokens < wanted {
                wait = wait.max((wanted - state.tokens) / limit * 60.0);
            }
        }
        if wait == 0.0 {
            state.requests -= 1.0;
            state.tokens -= wanted;
        }
        let mut headers = Vec::new();
        if let Some(limit) = tokens_per_minute {
            let missing =
                Duration::try_from_secs_f64((limit - state.tokens) / limit * 60.0).unwrap_or_default();
            headers.push(("x-ratelimit-limit-tokens", format!("{limit:.0}")));
            headers.push(("x-ratelimit-remaining-tokens", format!("{:.0}", state.tokens.max(0.0).floor())));
            headers.push(("x-ratelimit-reset-tokens", format!("{}ms", missing.as_millis())));
        }
        if wait == 0.0 {
            return Ok(headers);
        }
        headers.push(("retry-after-ms", format!("{:.0}", (wait * 1000.0).ceil())));
        headers.push(("retry-after", format!("{:.0}", wait.ceil()))); // for who does not know the other
        Err(headers)
    }
}
