//! A model whose calls are seen: a span and counts for each.

use async_trait::async_trait;
use futures::{Stream, StreamExt as _};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use starling_llm::{
    ChatReply, ChatRequest, FailedAttempts, Model, ModelError, ModelInfo, StreamEvent, TextStream,
};
use starling_protocol::CallReport;
use starling_runtime::{
    Metrics,
    telemetry::{ActiveSpan, Spans},
};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Instant;

/// Wraps a model: each question is a span `chat <model>` below the request's traceparent, and what it took
/// is counted.
pub struct TracedModel {
    model: Arc<dyn Model>,
    spans: Spans,
    metrics: Arc<Metrics>,
}

impl TracedModel {
    /// Wraps `model`.
    pub fn new(model: Arc<dyn Model>, spans: Spans, metrics: Arc<Metrics>) -> Self {
        let attempts = Box::new(AttemptCollector(model.clone()));
        metrics.with_registry(|registry| registry.register_collector(attempts));
        Self { model, spans, metrics }
    }

    /// Begins the span of a question and puts it in place of the question's own parent.
    fn begin(&self, request: &mut ChatRequest) -> Question {
        let purpose = request.purpose.name();
        let parent = request.traceparent.take().unwrap_or_default();
        let model = self.model.info().model;
        let span = self.spans.chat(&model, purpose, &parent);
        request.traceparent = Some(span.traceparent().to_string()).filter(|text| !text.is_empty());
        Question { begun: Instant::now(), span, purpose, model: Some(model), metrics: self.metrics.clone() }
    }
}

/// A question that is being answered.
struct Question {
    begun: Instant,
    span: ActiveSpan,
    purpose: &'static str,
    /// Who is asked; taken once it is known what the answer took.
    model: Option<String>,
    metrics: Arc<Metrics>,
}

impl Question {
    fn answered(&mut self, report: &CallReport) {
        self.model = None;
        self.span.usage(report);
        self.metrics.count_calls(self.purpose, report);
        // How long a model takes is not told by what it was not asked.
        if report.cached_calls == 0 {
            self.metrics.observe_model_call(&report.model, self.purpose, self.begun.elapsed());
        }
    }

    fn failed(&mut self, error: &ModelError) {
        self.answered(&error.report);
        self.metrics.count_model_failure(&error.report.model, self.purpose, error.kind.code());
        self.span.set("error.type", error.kind.code());
        self.span.fail(&error.to_string());
    }
}

impl Drop for Question {
    /// Nobody waited for the answer: the intent was cancelled, or enough was read. It was a call all the
    /// same, as far as is known here: it may have waited for its turn, or for the reply to an equal question.
    fn drop(&mut self) {
        if let Some(model) = self.model.take() {
            self.span.set("error.type", "abandoned");
            let report = CallReport { model, calls: 1, unpriced_calls: 1, ..CallReport::default() };
            self.metrics.count_calls(self.purpose, &report);
        }
    }
}

#[async_trait]
impl Model for TracedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn wrapped(&self) -> Option<&dyn Model> {
        Some(self.model.as_ref())
    }

    async fn chat(&self, mut request: ChatRequest) -> Result<ChatReply, ModelError> {
        let mut question = self.begin(&mut request);
        let reply = self.model.chat(request).await;
        match &reply {
            Ok(reply) => question.answered(&reply.report),
            Err(error) => question.failed(error),
        }
        reply
    }

    async fn stream(&self, mut request: ChatRequest) -> Result<TextStream, ModelError> {
        let mut question = self.begin(&mut request);
        match self.model.stream(request).await {
            Ok(events) => Ok(Traced { events, question: Some(question) }.boxed()),
            Err(error) => {
                question.failed(&error);
                Err(error)
            }
        }
    }
}

/// Keeps the span open until the stream ends or is dropped.
struct Traced {
    events: TextStream,
    question: Option<Question>,
}

impl Stream for Traced {
    type Item = Result<StreamEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = self.events.poll_next_unpin(cx);
        let ended = match (&event, &mut self.question) {
            (Poll::Ready(Some(Ok(StreamEvent::Done(report)))), Some(question)) => {
                question.answered(report);
                true
            }
            (Poll::Ready(Some(Err(error))), Some(question)) => {
                question.failed(error);
                true
            }
            (Poll::Ready(None), _) => true,
            _ => false,
        };
        if ended {
            self.question = None;
        }
        event
    }
}

/// Tells how often attempts failed, also those that nobody hears of because a later one succeeded.
struct AttemptCollector(Arc<dyn Model>);

impl fmt::Debug for AttemptCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AttemptCollector").field(&self.0.info()).finish()
    }
}

impl Collector for AttemptCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.failed_attempts();
        if all.is_empty() {
            return Ok(());
        }
        let (name, help) = ("model_attempt_failures", "Attempts of model calls that failed");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for FailedAttempts { model, kind, count } in all {
            let labels = [("model", model.as_str()), ("kind", kind.code())];
            metric.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)?;
        }
        Ok(())
    }
}
