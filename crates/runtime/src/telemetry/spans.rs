//! Spans with explicit parents.
//!
//! A record's trace arrives as text and leaves as text, and one task may serve many records, so nothing
//! here depends on what is current on a thread. Without an exporter nothing is recorded: what arrives is
//! passed on unchanged, so that no trace ever names a span that nobody exports.

use super::{sdk::Tracer, trace_context::TraceContext};
use opentelemetry::{
    KeyValue, Value,
    trace::{Link, Span as _, SpanContext, SpanKind, Status, TraceFlags, TraceState},
};
use starling_bus::PartitionId;
use starling_protocol::IntentId;
use std::{borrow::Cow, sync::Arc};

/// Starts spans. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Arc<Tracer>>);

/// A record that is processed, as far as its span tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Processed<'r> {
    /// Where it lies.
    pub at: &'r PartitionId,
    /// Its offset.
    pub offset: i64,
    /// The consumer group.
    pub group: &'r str,
    /// Its `traceparent` header.
    pub traceparent: Option<&'r str>,
    /// Its intent, where known.
    pub intent: Option<&'r IntentId>,
}

impl Spans {
    /// Records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    pub(super) fn recorded_by(tracer: Tracer) -> Self {
        Self(Some(Arc::new(tracer)))
    }

    /// Whether spans are recorded.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// `process <topic>`: a consumer works on a record. Where the record has no trace, this is the root of
    /// one whose id follows from the intent or, where that is unknown, from the record's place.
    #[must_use]
    pub fn process(&self, record: Processed<'_>) -> ActiveSpan {
        let parent = record.traceparent.and_then(TraceContext::parse);
        let root = || match record.intent {
            Some(intent) => TraceContext::trace_of_intent(intent),
            None => TraceContext::trace_of_record(&record.at.topic, record.at.partition, record.offset),
        };
        let Some(tracer) = &self.0 else { return ActiveSpan::unrecorded(parent, root) };
        let mut attributes = messaging("process", record.at);
        attributes.push(KeyValue::new("messaging.kafka.offset", record.offset));
        attributes.push(KeyValue::new("messaging.consumer.group.name", record.group.to_owned()));
        if let Some(intent) = record.intent {
            attributes.push(KeyValue::new("starling.intent_id", intent.as_str().to_owned()));
        }
        let name = format!("process {}", record.at.topic);
        tracer.start(name.into(), SpanKind::Consumer, parent, root, attributes)
    }

    /// `send <topic>`: a producer writes a record.
    #[must_use]
    pub fn send(&self, to: &PartitionId, parent: &str) -> ActiveSpan {
        self.child(parent, SpanKind::Producer, || {
            (format!("send {}", to.topic).into(), messaging("send", to))
        })
    }

    /// `chat <model>`: one question to a model.
    #[must_use]
    pub fn chat(&self, model: &str, purpose: &'static str, parent: &str) -> ActiveSpan {
        self.child(parent, SpanKind::Client, || {
            let attributes = vec![
                KeyValue::new("gen_ai.operation.name", "chat"),
                KeyValue::new("gen_ai.provider.name", "openai"),
                KeyValue::new("gen_ai.request.model", model.to_owned()),
                KeyValue::new("starling.purpose", purpose),
            ];
            (format!("chat {model}").into(), attributes)
        })
    }

    /// `invoke_agent <agent>`: an agent works on a task.
    #[must_use]
    pub fn invoke_agent(&self, agent: &str, parent: &str) -> ActiveSpan {
        self.child(parent, SpanKind::Internal, || {
            let attributes = vec![
                KeyValue::new("gen_ai.operation.name", "invoke_agent"),
                KeyValue::new("gen_ai.agent.name", agent.to_owned()),
            ];
            (format!("invoke_agent {agent}").into(), attributes)
        })
    }

    /// `execute_tool <name>`: a tool is called.
    #[must_use]
    pub fn execute_tool(&self, tool: &str, parent: &str) -> ActiveSpan {
        self.child(parent, SpanKind::Internal, || {
            let attributes = vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", tool.to_owned()),
            ];
            (format!("execute_tool {tool}").into(), attributes)
        })
    }

    /// A span of another name, such as the publisher's root (`parent` then is no traceparent: the trace
    /// follows from `intent`).
    #[must_use]
    pub fn named(&self, name: &'static str, parent: Option<&str>, intent: &IntentId) -> ActiveSpan {
        let parent = parent.and_then(TraceContext::parse);
        let root = || TraceContext::trace_of_intent(intent);
        match &self.0 {
            None => ActiveSpan::unrecorded(parent, root),
            Some(tracer) => {
                let intent = KeyValue::new("starling.intent_id", intent.as_str().to_owned());
                tracer.start(name.into(), SpanKind::Internal, parent, root, vec![intent])
            }
        }
    }

    fn child(
        &self,
        parent: &str,
        kind: SpanKind,
        describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>),
    ) -> ActiveSpan {
        let Some(tracer) = &self.0 else {
            return ActiveSpan { span: None, traceparent: Arc::from(parent) };
        };
        let (name, attributes) = describe();
        let root = || TraceContext::trace_of_record(parent, 0, 0);
        tracer.start(name, kind, TraceContext::parse(parent), root, attributes)
    }
}

fn messaging(operation: &'static str, at: &PartitionId) -> Vec<KeyValue> {
    vec![
        KeyValue::new("messaging.system", "kafka"),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.operation.name", operation),
        KeyValue::new("messaging.destination.name", at.topic.to_string()),
        KeyValue::new("messaging.destination.partition.id", at.partition.to_string()),
    ]
}

/// A span that has begun. It ends when it is dropped, whatever became of the work, and is exported then.
#[derive(Debug)]
pub struct ActiveSpan {
    pub(super) span: Option<opentelemetry_sdk::trace::Span>,
    pub(super) traceparent: Arc<str>,
}

impl ActiveSpan {
    fn unrecorded(parent: Option<TraceContext>, root: impl FnOnce() -> u128) -> Self {
        let context = parent.unwrap_or_else(|| {
            let trace_id = root();
            // Low bits of a digest; nobody exports a span of that id, hence not sampled.
            let span_id = u64::try_from(trace_id & u128::from(u64::MAX)).unwrap_or(1).max(1);
            TraceContext { trace_id, span_id, sampled: false }
        });
        Self { span: None, traceparent: context.to_string().into() }
    }

    /// What to hand to whatever this span causes.
    #[must_use]
    pub fn traceparent(&self) -> &Arc<str> {
        &self.traceparent
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Adds an attribute that is costly to make.
    pub fn set_with<V: Into<Value>>(&mut self, key: &'static str, value: impl FnOnce() -> V) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new(key, value()));
        }
    }

    /// Says that this work also follows from another span, as a synthesis from many results.
    pub fn link(&mut self, traceparent: &str) {
        if let (Some(span), Some(context)) = (&mut self.span, TraceContext::parse(traceparent)) {
            let link = Link::with_context(remote(context));
            span.add_link(link.span_context, link.attributes);
        }
    }

    /// Marks the span as failed.
    pub fn fail(&mut self, reason: &str) {
        if let Some(span) = &mut self.span {
            span.set_status(Status::error(reason.to_owned()));
        }
    }

    /// What a model call took, by the GenAI conventions.
    pub fn usage(&mut self, report: &starling_protocol::CallReport) {
        if let Some(span) = &mut self.span {
            span.set_attributes([
                KeyValue::new("gen_ai.response.model", report.model.clone()),
                KeyValue::new("gen_ai.usage.input_tokens", report.usage.prompt_tokens),
                KeyValue::new("gen_ai.usage.output_tokens", report.usage.completion_tokens),
                KeyValue::new("gen_ai.usage.cache_read.input_tokens", report.usage.cached_tokens),
                KeyValue::new("starling.calls", report.calls),
                KeyValue::new("starling.cache_hit", report.cached_calls > 0),
                KeyValue::new("starling.offline", report.offline),
            ]);
            if report.unpriced_calls == 0 {
                span.set_attribute(KeyValue::new("starling.cost_usd", report.cost_usd));
            }
        }
    }

    /// Ends it now.
    pub fn end(self) {}
}

pub(super) fn remote(context: TraceContext) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(context.trace_id.into(), context.span_id.into(), flags, true, TraceState::default())
}
