//! The port.

use crate::{Capacity, Deeds, Message, Preflight, PreflightOptions, Speaker, Tool, ToolCall};
use async_trait::async_trait;
use futures::stream::BoxStream;
use starling_protocol::{Allowance, CallReport, Failure, Priority};
use std::{fmt, sync::Arc};
use tokio::time::Instant;

/// A model behind an endpoint.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Which model it is, before anything is asked.
    fn info(&self) -> ModelInfo;

    /// The model behind this one, if it is one that stands in front of another: whatever it does not do itself goes there.
    fn wrapped(&self) -> Option<&dyn Model> {
        None
    }

    /// Whose word the reply to a question with this purpose is: the endpoint, the model, and whatever is added to each
    /// request there. Where this is the same, equal questions get replies of equal worth.
    fn provenance(&self, purpose: Purpose) -> String {
        if let Some(model) = self.wrapped() {
            return model.provenance(purpose);
        }
        let ModelInfo { model, endpoint, .. } = self.info();
        format!("{model} at {endpoint}")
    }

    /// How the model counts that is asked for this purpose, or is chosen in place of that, and how much it takes in.
    fn capacity(&self, purpose: Purpose, choice: Option<&ModelChoice>) -> Capacity {
        self.wrapped().map_or_else(Capacity::default, |model| model.capacity(purpose, choice))
    }

    /// Whether anybody answers at the endpoint, without asking the model anything. One try, no retries.
    ///
    /// # Errors
    /// [`ModelErrorKind::Unreachable`]; whatever a server answers counts as reachable.
    async fn reach(&self) -> Result<(), ModelError> {
        match self.wrapped() {
            Some(model) => model.reach().await,
            None => Ok(()),
        }
    }

    /// Attempts that have failed so far, also those of questions that were answered in the end: what an
    /// endpoint lets the callers feel. Sorts of failure that have not happened are among them, with 0.
    fn failed_attempts(&self) -> Vec<FailedAttempts> {
        self.wrapped().map_or_else(Vec::new, |model| model.failed_attempts())
    }

    /// The models that the endpoint says it has, newest first where it says so; `None` if it does not say. One look, no retries.
    ///
    /// # Errors
    /// See [`ModelError`].
    async fn models(&self) -> Result<Option<Vec<String>>, ModelError> {
        match self.wrapped() {
            Some(model) => model.models().await,
            None => Ok(None),
        }
    }

    /// Tries out what the endpoint does of the protocol, with a few small calls. To be asked when it has answered a plain
    /// question: what it refuses then is what the calls have beside it. `None` where no protocol is spoken.
    async fn preflight(&self, options: PreflightOptions) -> Option<Preflight> {
        match self.wrapped() {
            Some(model) => model.preflight(options).await,
            None => None,
        }
    }

    /// Asks and waits for the whole reply. Retries what can be retried, until the deadline.
    ///
    /// # Errors
    /// See [`ModelError`].
    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError>;

    /// Asks and gives the reply as it comes. Retries only until the first text has come. Dropping the
    /// stream ends the call.
    ///
    /// # Errors
    /// See [`ModelError`].
    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError>;

    /// The reply to this question was of no use, so nobody is to get it a second time. Nothing happens where replies are
    /// not kept.
    async fn forget(&self, request: &ChatRequest) {
        if let Some(model) = self.wrapped() {
            model.forget(request).await;
        }
    }
}

/// How often attempts failed in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempts {
    /// The model that was asked.
    pub model: String,
    /// In which way.
    pub kind: ModelErrorKind,
    /// How often.
    pub count: u64,
}

/// The pieces of a reply.
pub type TextStream = BoxStream<'static, Result<StreamEvent, ModelError>>;

/// A piece of a streamed reply.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// More text.
    Text(String),
    /// The tools that the model calls, whole, after all text.
    Calls(Deeds),
    /// The end; nothing follows. A stream that ends without it was cut and yields an error instead.
    Done(CallReport),
}

/// What is known of a model without asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub model: String,
    /// Whether it is the offline model, which is no LLM.
    pub offline: bool,
    /// Where it is, without secrets.
    pub endpoint: String,
}

/// What a call is for. Chooses the model, and tells the offline model what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Make a plan.
    Plan,
    /// Do a task.
    Work,
    /// Score a result.
    Judge,
    /// Make the answer out of results.
    Synthesize,
}

/// Some purposes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purposes(u8);

impl Purposes {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(0b1111);

    /// Whether `purpose` is one of them.
    #[must_use]
    pub fn contains(self, purpose: Purpose) -> bool {
        self.0 & 1 << purpose as u8 != 0
    }

    /// Those of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Purpose> for Purposes {
    fn from_iter<I: IntoIterator<Item = Purpose>>(purposes: I) -> Self {
        purposes.into_iter().fold(Self::NONE, |all, purpose| Self(all.0 | 1 << purpose as u8))
    }
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Work, Self::Judge, Self::Synthesize];

    /// Its name, in settings and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Plan => "plan",
            Purpose::Work => "work",
            Purpose::Judge => "judge",
            Purpose::Synthesize => "synthesize",
        }
    }
}

/// Whether a reply that was given before will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reuse {
    /// Yes, if it was given to the same question.
    #[default]
    Allowed,
    /// No: it may be the one that was no good. The new reply takes its place.
    Refused,
}

impl Reuse {
    /// What goes for an attempt, counted from 1. Whoever tries again was not content with what came of the last attempt, so
    /// no further one is answered with a reply that is there already, whether its prompt says what was wrong or not.
    #[must_use]
    pub fn for_attempt(attempt: i32) -> Self {
        if attempt > 1 { Self::Refused } else { Self::Allowed }
    }
}

/// The form of the reply.
#[derive(Clone, Debug)]
pub enum Format {
    /// Prose.
    Text,
    /// JSON by a schema.
    Json {
        /// Name of the schema, letters, digits, `_` and `-`.
        name: String,
        /// JSON Schema.
        schema: Arc<serde_json::Value>,
        /// Says what is wrong with a whole reply that is JSON, for the model, which is asked once more. `None` takes
        /// whatever is JSON. Not for streams, whose reader has the text before it is complete.
        check: Option<JsonCheck>,
    },
}

/// Looks at a JSON text; the error is a sentence about it.
#[derive(Clone)]
pub struct JsonCheck(Arc<Check>);

type Check = dyn Fn(&str) -> Result<(), String> + Send + Sync;

impl JsonCheck {
    /// A check that is this function.
    pub fn new(check: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Whether the text will do.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(&self, json: &str) -> Result<(), String> {
        (self.0)(json)
    }
}

impl fmt::Debug for JsonCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonCheck")
    }
}

/// Which model is asked, where that is not left to the purpose of a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ModelChoice {
    /// The one that each endpoint has for this purpose.
    Role(Purpose),
    /// The one with this name. Only the first endpoint of a chain knows it; those that stand in for it are asked for the
    /// model that they have for the purpose.
    Named(String),
}

/// One question.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// What it is for.
    pub purpose: Purpose,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// The form of the reply, where it calls none.
    pub format: Format,
    /// Most tokens of the reply; `None` leaves it to the endpoint.
    pub max_tokens: Option<u32>,
    /// 0 to 2; `None` leaves it to the endpoint.
    pub temperature: Option<f32>,
    /// When nobody needs the reply any more.
    pub deadline: Instant,
    /// W3C traceparent to send along; `None` sends none.
    pub traceparent: Option<String>,
    /// What all attempts may take together; `None` bounds nothing. An attempt counts before it is made with its prompt and
    /// [`ChatRequest::max_tokens`] by estimate, and afterwards with what the endpoint says that it took.
    pub allowance: Option<Allowance>,
    /// Whether a reply that was given before will do.
    pub reuse: Reuse,
    /// How urgent it is, where calls have to wait for each other.
    pub priority: Priority,
    /// Which model is asked; `None` leaves it to the purpose.
    pub model: Option<ModelChoice>,
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatReply {
    /// The text; empty only where tools are called.
    pub text: String,
    /// The tools that the model calls, none unless it was offered some, and what it thought.
    pub deeds: Deeds,
    /// What it took.
    pub report: CallReport,
}

impl ChatReply {
    /// The calls of tools in it.
    #[must_use]
    pub fn calls(&self) -> &[ToolCall] {
        &self.deeds.calls
    }

    /// The reply as a turn of the conversation that goes on.
    #[must_use]
    pub fn into_turn(self) -> Message {
        Message { speaker: Speaker::Assistant(self.deeds), text: self.text }
    }
}

/// A call failed for good, as far as this layer can tell.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{endpoint}: {message}")]
pub struct ModelError {
    /// What sort of failure.
    pub kind: ModelErrorKind,
    /// What happened and what to do, without secrets.
    pub message: String,
    /// The endpoint, without secrets.
    pub endpoint: String,
    /// What was spent nevertheless.
    pub report: CallReport,
}

/// The sorts of failure, by the reaction that they call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelErrorKind {
    /// Nobody answers there.
    Unreachable,
    /// 429 until the deadline or the last try.
    RateLimited,
    /// 5xx or other trouble of the server, until the last try.
    Server,
    /// The deadline came first.
    Deadline,
    /// 401 or 403: the key is wrong.
    Unauthorized,
    /// The endpoint does not know the model.
    UnknownModel,
    /// The conversation does not fit the model's window.
    ContextTooLong,
    /// The model's provider refuses the content.
    Filtered,
    /// Other 4xx: asking again will not help.
    BadRequest,
    /// 200, but no usable reply: no choices, empty, cut off, not what was asked for.
    BadReply,
    /// What the question may take does not cover another attempt.
    OverAllowance,
    /// What the question may cost is bounded, and nobody knows what it costs.
    Unpriced,
}

impl ModelErrorKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Unreachable,
        Self::RateLimited,
        Self::Server,
        Self::Deadline,
        Self::Unauthorized,
        Self::UnknownModel,
        Self::ContextTooLong,
        Self::Filtered,
        Self::BadRequest,
        Self::BadReply,
        Self::OverAllowance,
        Self::Unpriced,
    ];

    /// The code of the failure as it travels in envelopes.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            ModelErrorKind::Unreachable => "model_unreachable",
            ModelErrorKind::RateLimited => "rate_limited",
            ModelErrorKind::Server => "model_server_error",
            ModelErrorKind::Deadline => "deadline",
            ModelErrorKind::Unauthorized => "unauthorized",
            ModelErrorKind::UnknownModel => "unknown_model",
            ModelErrorKind::ContextTooLong => "context_too_long",
            ModelErrorKind::Filtered => "filtered",
            ModelErrorKind::BadRequest => "bad_request",
            ModelErrorKind::BadReply => "bad_reply",
            ModelErrorKind::OverAllowance => "over_allowance",
            ModelErrorKind::Unpriced => "unpriced_model",
        }
    }

    /// Whether another attempt of the whole task can help.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            ModelErrorKind::Unreachable
                | ModelErrorKind::RateLimited
                | ModelErrorKind::Server
                | ModelErrorKind::BadReply
                | ModelErrorKind::OverAllowance
        )
    }
}

impl ModelErrorKind {
    /// Whether another endpoint may answer the same question.
    #[must_use]
    pub fn may_be_answered_elsewhere(self) -> bool {
        !matches!(self, ModelErrorKind::Deadline | ModelErrorKind::OverAllowance)
    }
}

impl ModelError {
    /// The failure as data for an envelope.
    #[must_use]
    pub fn to_failure(&self) -> Failure {
        Failure {
            code: self.kind.code().to_owned(),
            message: self.to_string(),
            retryable: self.kind.is_retryable(),
        }
    }
}
