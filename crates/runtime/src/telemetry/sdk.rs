//! The OpenTelemetry SDK, behind what `spans` needs of it.

use super::{
    spans::{ActiveSpan, remote},
    trace_context::TraceContext,
};
use async_trait::async_trait;
use opentelemetry::{
    Context, KeyValue,
    trace::{
        Span as _, SpanBuilder, SpanId, SpanKind, TraceContextExt as _, TraceId, Tracer as _,
        TracerProvider as _,
    },
};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, Sampler, SdkTracer,
        SdkTracerProvider, SpanProcessor,
    },
};
use std::{borrow::Cow, cell::Cell, time::Duration};

/// Makes spans that are recorded.
#[derive(Debug)]
pub(super) struct Tracer(SdkTracer);

/// How to export.
#[derive(Clone, Debug)]
pub(super) struct Export {
    /// Base address of the collector; `/v1/traces` is appended.
    pub(super) endpoint: String,
    /// `service.name`.
    pub(super) service: String,
    /// `service.instance.id`.
    pub(super) process: String,
    /// Share of traces that are recorded where the publisher did not decide, 0 to 1.
    pub(super) ratio: f64,
    /// Most spans waiting for export; more are dropped and counted by the SDK.
    pub(super) queue: usize,
    /// Spans in one export.
    pub(super) batch: usize,
    /// Longest time a span waits for its batch to fill.
    pub(super) delay: Duration,
    /// Longest time of one export.
    pub(super) timeout: Duration,
}

/// A provider that exports over OTLP. Must be called within a tokio runtime.
pub(super) fn provider(export: &Export) -> Result<SdkTracerProvider, ExporterBuildError> {
    let client = RuntimeClient {
        runtime: tokio::runtime::Handle::current(),
        inner: reqwest::Client::builder().timeout(export.timeout).build().unwrap_or_default(),
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(client)
        .with_endpoint(format!("{}/v1/traces", export.endpoint.trim_end_matches('/')))
        .with_timeout(export.timeout)
        .build()?;
    let batching = BatchConfigBuilder::default()
        .with_max_queue_size(export.queue)
        .with_max_export_batch_size(export.batch)
        .with_scheduled_delay(export.delay)
        .build();
    let resource = Resource::builder()
        .with_service_name(export.service.clone())
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", export.process.clone()),
        ])
        .build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batching).build())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(export.ratio))))
        .with_id_generator(ChosenIds::default())
        .with_resource(resource)
        .build())
}

/// A provider that records everything and hands it to `processor`.
pub(super) fn provider_with(processor: impl SpanProcessor + 'static) -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_id_generator(ChosenIds::default())
        .build()
}

impl Tracer {
    pub(super) fn of(provider: &SdkTracerProvider) -> Self {
        Self(provider.tracer("starling"))
    }

    pub(super) fn start(
        &self,
        name: Cow<'static, str>,
        kind: SpanKind,
        parent: Option<TraceContext>,
        root: impl FnOnce() -> u128,
        attributes: Vec<KeyValue>,
    ) -> ActiveSpan {
        let context = match parent {
            Some(parent) => Context::new().with_remote_span_context(remote(parent)),
            None => {
                NEXT_TRACE.set(Some(root()));
                Context::new()
            }
        };
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes);
        let span = self.0.build_with_context(builder, &context);
        NEXT_TRACE.set(None);
        let made = span.span_context();
        let context = match parent {
            // A span that is not recorded must never be named as a parent.
            Some(parent) if !span.is_recording() => parent,
            _ => TraceContext {
                trace_id: u128::from_be_bytes(made.trace_id().to_bytes()),
                span_id: u64::from_be_bytes(made.span_id().to_bytes()),
                sampled: made.is_sampled(),
            },
        };
        ActiveSpan { span: Some(span), traceparent: context.to_string().into() }
    }
}

thread_local! {
    /// The id of the next trace that this thread begins. The SDK takes ids from a generator only; it asks
    /// it within `build_with_context`, on the same thread.
    static NEXT_TRACE: Cell<Option<u128>> = const { Cell::new(None) };
}

/// Random ids, except where the trace follows from an intent.
#[derive(Debug, Default)]
struct ChosenIds(RandomIdGenerator);

impl IdGenerator for ChosenIds {
    fn new_trace_id(&self) -> TraceId {
        match NEXT_TRACE.take() {
            Some(chosen) => TraceId::from(chosen),
            None => self.0.new_trace_id(),
        }
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}

/// The batch processor exports from a thread of its own, where no tokio runtime is; the client needs one.
#[derive(Debug)]
struct RuntimeClient {
    runtime: tokio::runtime::Handle,
    inner: reqwest::Client,
}

#[async_trait]
impl HttpClient for RuntimeClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.inner.clone();
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}
