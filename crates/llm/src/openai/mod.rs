//! Any endpoint that speaks the chat-completions protocol.
//!
//! Decisions are plain functions in the submodules: what to send ([`dialect`]), what a failure means
//! ([`fault`]), when to ask again ([`retry`]), what came back ([`reply`], [`sse`]). Here and in
//! [`call`] and [`streaming`] are their effects.

mod amend;
mod body;
mod call;
mod dialect;
mod failures;
mod fault;
mod hints;
mod models;
mod options;
mod preflight;
mod reply;
mod retry;
mod sse;
mod streaming;
mod tool_calls;

pub use dialect::JsonForm;
pub use options::{Backoff, ModelNames, OpenAiOptions, OptionsError, Price, ReplayReasoning};

use crate::{
    Capacity, ChatReply, ChatRequest, FailedAttempts, Limiter, Model, ModelChoice, ModelError, ModelInfo,
    Preflight, PreflightOptions, Purpose, TextStream,
};
use async_trait::async_trait;
use call::Call;
use dialect::Dialects;
use failures::Failures;
use options::Target;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder};
use secrecy::ExposeSecret;
use serde_json::Value;
use starling_protocol::CallReport;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A model behind an OpenAI-compatible endpoint. Cheap to clone; clones share connections, limits and
/// what was learned about the endpoint.
#[derive(Clone)]
pub struct OpenAiModel {
    inner: Arc<Endpoint>,
}

/// What all calls share.
struct Endpoint {
    client: Client,
    target: Target,
    options: OpenAiOptions,
    secrets: Vec<String>,
    dialects: Dialects,
    failures: Failures,
    in_flight: Arc<Semaphore>,
    limiter: Option<Arc<dyn Limiter>>,
}

impl Endpoint {
    /// A question, ready to be sent.
    fn post(&self, body: &Value) -> RequestBuilder {
        let request = self.client.post(self.target.url.clone());
        let json = HeaderValue::from_static("application/json");
        self.signed(request).header(CONTENT_TYPE, json).body(body.to_string())
    }

    /// With the login that the base URL holds, where there is no key in its place.
    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        match (&self.target.login, &self.options.api_key) {
            (Some((user, password)), None) => request.basic_auth(user, password.as_deref()),
            _ => request,
        }
    }
}

impl OpenAiModel {
    /// Makes the client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`OptionsError`] says which setting is wrong.
    pub fn new(options: OpenAiOptions) -> Result<Self, OptionsError> {
        Self::make(options, None)
    }

    /// The same, but each request waits for the leave of `limiter`. A request that was refused because there are too
    /// many is sent again for as long as its deadline allows: [`OpenAiOptions::max_attempts`] is for other failures.
    ///
    /// # Errors
    /// [`OptionsError`] says which setting is wrong.
    pub fn limited_by(limiter: Arc<dyn Limiter>, options: OpenAiOptions) -> Result<Self, OptionsError> {
        Self::make(options, Some(limiter))
    }

    fn make(options: OpenAiOptions, limiter: Option<Arc<dyn Limiter>>) -> Result<Self, OptionsError> {
        let target = options.check()?;
        let client = client(&options, &target)?;
        Ok(OpenAiModel {
            inner: Arc::new(Endpoint {
                client,
                secrets: options.secrets(&target),
                dialects: Dialects::beginning_with(options.json),
                failures: Failures::of(&options.models),
                in_flight: Arc::new(Semaphore::new(options.max_in_flight.min(Semaphore::MAX_PERMITS))),
                limiter,
                target,
                options,
            }),
        })
    }

    /// The model that answers for a purpose.
    #[must_use]
    pub fn model_for(&self, purpose: Purpose) -> &str {
        self.inner.options.models.for_purpose(purpose)
    }
}

fn client(options: &OpenAiOptions, target: &Target) -> Result<Client, OptionsError> {
    // An error means that another part of the process has installed one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_max_idle_per_host(options.max_idle_connections)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("starling/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers(options)?);
    if target.loopback {
        builder = builder.no_proxy();
    }
    if target.url.scheme() == "http" {
        // Plain HTTP must not fail for want of root certificates on the machine.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| OptionsError::Client(body::root_cause(&error)))
}

fn headers(options: &OpenAiOptions) -> Result<HeaderMap, OptionsError> {
    let mut headers = HeaderMap::new();
    let secret_value = |name: &str, value: &str| {
        let mut value = HeaderValue::from_str(value).map_err(|_| OptionsError::Header(name.to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    };
    if let Some(key) = &options.api_key {
        let bearer = format!("Bearer {}", key.expose_secret().trim());
        headers.insert(AUTHORIZATION, secret_value("authorization", &bearer)?);
    }
    for (name, value) in &options.extra_headers {
        let parsed =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| OptionsError::Header(name.clone()))?;
        headers.insert(parsed, secret_value(name, value.expose_secret())?);
    }
    Ok(headers)
}

#[async_trait]
impl Model for OpenAiModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            model: self.inner.options.models.default.clone(),
            offline: false,
            endpoint: self.inner.target.endpoint.clone(),
        }
    }

    fn provenance(&self, purpose: Purpose) -> String {
        let Endpoint { target, options, .. } = self.inner.as_ref();
        // The query of an address may choose a version of the endpoint, and hold a key as well: it is only hashed.
        let said = (target.url.as_str(), self.model_for(purpose), &options.extra_body, &options.omit);
        serde_json::json!(said).to_string()
    }

    fn capacity(&self, purpose: Purpose, choice: Option<&ModelChoice>) -> Capacity {
        let options = &self.inner.options;
        let model = options.models.chosen(purpose, choice);
        Capacity { encoding: options.encoding_of(model), window: options.window }
    }

    async fn reach(&self) -> Result<(), ModelError> {
        let Endpoint { client, target, options, .. } = self.inner.as_ref();
        let knock = client.head(target.url.clone()).timeout(options.connect_timeout).send().await;
        match knock {
            Err(error) if error.is_connect() => {
                let fault = body::network_fault(error);
                Err(ModelError {
                    kind: fault.kind,
                    message: fault.message,
                    endpoint: target.endpoint.clone(),
                    report: CallReport::default(),
                })
            }
            // A server that does not know the request, or takes its time, is there.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn failed_attempts(&self) -> Vec<FailedAttempts> {
        self.inner.failures.all()
    }

    async fn models(&self) -> Result<Option<Vec<String>>, ModelError> {
        models::list(&self.inner).await
    }

    async fn preflight(&self, options: PreflightOptions) -> Option<Preflight> {
        Some(preflight::run(&self.inner, options).await)
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        Call::begin(Arc::clone(&self.inner), request, false).await?.whole().await
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        let call = Call::begin(Arc::clone(&self.inner), request, true).await?;
        streaming::open(call).await
    }
}
