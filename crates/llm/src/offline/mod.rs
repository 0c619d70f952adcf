//! The offline model: no network, no randomness, and no LLM.
//!
//! It reads the prompts that the services send ([`crate::prompt`]), and does honest work by rule: splits
//! goals and inputs into tasks ([`plan`]), reads tables and prose ([`table`], [`words`]), scores and
//! ranks ([`scoring`]), checks results ([`judge`]) and puts them together ([`synthesis`]). The same
//! question has the same answer, always.

mod aspects;
mod judge;
mod plan;
mod prose;
mod ranking;
mod scoring;
mod synthesis;
mod table;
mod words;
mod work;

use crate::prompt::Prompt;
use crate::{
    ChatReply, ChatRequest, Deeds, Encoding, Format, Model, ModelError, ModelErrorKind, ModelInfo, Price,
    Purpose, Speaker, StreamEvent, TextStream, by_schema,
};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use starling_protocol::{CallReport, Usage};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How this model introduces itself wherever it writes.
pub(crate) const DISCLAIMER: &str = "offline model, not an LLM";

const MODEL: &str = "offline";
const ENDPOINT: &str = "in process";

/// So much of the prose stands in each text of a form.
const FORM_CHARS: usize = 300;

/// How the offline model behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineOptions {
    /// Time to think before each reply. Default 0.
    pub latency: Duration,
    /// Characters in a piece of a streamed reply. Default 160; 0 counts as 1.
    pub chunk_chars: usize,
}

impl Default for OfflineOptions {
    fn default() -> Self {
        OfflineOptions { latency: Duration::ZERO, chunk_chars: 160 }
    }
}

/// The model that needs nothing: see the module's own words on what it is and what not.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfflineModel {
    options: OfflineOptions,
}

impl OfflineModel {
    /// With the default options.
    #[must_use]
    pub fn new() -> Self {
        OfflineModel::default()
    }

    /// With options.
    #[must_use]
    pub fn with_options(options: OfflineOptions) -> Self {
        OfflineModel { options }
    }

    async fn answer(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let started = Instant::now();
        if let Some(allowance) = &request.allowance {
            let next =
                (report(request, "", started).usage.prompt_tokens, request.max_tokens.map_or(0, i64::from));
            let free = Some(Price::default());
            let fits = crate::allowance::check(allowance, &CallReport::default(), next, free);
            fits.map_err(|shortfall| {
                let none = CallReport { calls: 0, usage: Usage::default(), ..report(request, "", started) };
                failure(ModelErrorKind::OverAllowance, &shortfall.to_string(), none)
            })?;
        }
        let ready = started.checked_add(self.options.latency).unwrap_or(request.deadline);
        if !self.options.latency.is_zero() {
            sleep_until(ready.min(request.deadline)).await;
        }
        if ready > request.deadline || started >= request.deadline {
            return Err(failure(
                ModelErrorKind::Deadline,
                "the deadline came before the reply was complete",
                report(request, "", started),
            ));
        }
        let text = reply_to(request);
        let report = report(request, &text, started);
        if text.trim().is_empty() {
            let message = "there is nothing to answer: the prompt is empty";
            return Err(failure(ModelErrorKind::BadReply, message, report));
        }
        Ok(ChatReply { text, deeds: Deeds::default(), report })
    }
}

fn failure(kind: ModelErrorKind, message: &str, report: CallReport) -> ModelError {
    ModelError { kind, message: message.to_owned(), endpoint: ENDPOINT.to_owned(), report }
}

fn report(request: &ChatRequest, reply: &str, started: Instant) -> CallReport {
    CallReport {
        model: MODEL.to_owned(),
        offline: true,
        calls: 1,
        usage: Usage {
            prompt_tokens: Encoding::Estimate.count_messages(&request.messages),
            completion_tokens: Encoding::Estimate.count(reply),
            cached_tokens: 0,
        },
        cost_usd: 0.0,
        latency_ms: i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX),
        unpriced_calls: 0,
        cached_calls: 0,
        cached_prompt_tokens: 0,
    }
}

/// The whole model, as a function of the question.
fn reply_to(request: &ChatRequest) -> String {
    let asked = request
        .messages
        .iter()
        .rev()
        .find(|message| message.speaker == Speaker::User)
        .map_or("", |message| message.text.as_str());
    let answer = answer_to(request.purpose, asked);
    match &request.format {
        // It writes prose: the values of a form that it does not understand say what it would have written.
        Format::Json { schema, .. } if matches!(request.purpose, Purpose::Work | Purpose::Synthesize) => {
            let beginning: String = answer.chars().take(FORM_CHARS).collect();
            if beginning.is_empty() { beginning } else { by_schema::simplest(schema, &beginning).to_string() }
        }
        _ => answer,
    }
}

/// The same for a prompt alone; nothing to an empty one.
pub(crate) fn answer_to(purpose: Purpose, asked: &str) -> String {
    if asked.trim().is_empty() {
        return String::new();
    }
    let prompt = Prompt::parse(asked);
    match purpose {
        Purpose::Plan => plan::plan(&prompt),
        Purpose::Work => work::work(&prompt),
        Purpose::Judge => judge::verdict(&prompt),
        // What condenses is a task of its own; how an answer is to be may be instructed as well.
        Purpose::Synthesize if prompt.section("Task").is_some() => synthesis::digest(&prompt),
        Purpose::Synthesize => synthesis::answer(&prompt),
    }
}

#[async_trait]
impl Model for OfflineModel {
    fn info(&self) -> ModelInfo {
        ModelInfo { model: MODEL.to_owned(), offline: true, endpoint: ENDPOINT.to_owned() }
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        self.answer(&request).await
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        let reply = self.answer(&request).await?;
        let chars: Vec<char> = reply.text.chars().collect();
        let mut events: Vec<StreamEvent> = chars
            .chunks(self.options.chunk_chars.max(1))
            .map(|piece| StreamEvent::Text(piece.iter().collect()))
            .collect();
        events.push(StreamEvent::Done(reply.report));
        Ok(stream::iter(events.into_iter().map(Ok)).boxed())
    }
}
