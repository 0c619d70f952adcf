//! An OTLP endpoint that keeps the spans it is sent.

use anyhow::Result;
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

/// One exported span.
#[derive(Clone, Debug)]
pub struct Span {
    /// 32 hex digits.
    pub trace: String,
    /// 16 hex digits.
    pub id: String,
    /// 16 hex digits; empty for a root.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// The service that exported it.
    pub service: String,
    /// Spans it links to.
    pub links: Vec<String>,
    /// Attributes, as text.
    pub attributes: BTreeMap<String, String>,
}

/// Receives spans over OTLP/HTTP.
#[derive(Debug)]
pub struct SpanSink {
    spans: Arc<Mutex<Vec<Span>>>,
    /// To be given to processes as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: String,
}

impl SpanSink {
    /// Listens on a free port of the loopback address.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> Result<Self> {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let app = Router::new().route("/v1/traces", post(receive)).with_state(Arc::clone(&spans));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { spans, endpoint })
    }

    /// The spans of one trace, as far as they have come.
    #[must_use]
    pub fn of_trace(&self, trace: &str) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span.trace == trace).cloned().collect()
    }
}

/// What is wrong with spans that should form one tree; empty if nothing is.
#[must_use]
pub fn faults_of_tree(spans: &[Span]) -> Vec<String> {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let mut faults = Vec::new();
    let roots: Vec<&str> = spans.iter().filter(|s| s.parent.is_empty()).map(|s| s.name.as_str()).collect();
    if roots.len() != 1 {
        faults.push(format!("{} roots: {roots:?}", roots.len()));
    }
    if ids.len() != spans.len() {
        faults.push(format!("{} spans have {} ids", spans.len(), ids.len()));
    }
    for span in spans {
        if !span.parent.is_empty() && !ids.contains(span.parent.as_str()) {
            faults.push(format!(
                "{} of {} has a parent {} that nobody exported",
                span.name, span.service, span.parent
            ));
        }
        for link in span.links.iter().filter(|link| !ids.contains(link.as_str())) {
            faults.push(format!(
                "{} of {} has a link to {link}, which nobody exported",
                span.name, span.service
            ));
        }
    }
    faults
}

async fn receive(State(spans): State<Arc<Mutex<Vec<Span>>>>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut all = spans.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in request.resource_spans {
        let service = resource
            .resource
            .iter()
            .flat_map(|r| &r.attributes)
            .find(|a| a.key == "service.name")
            .map(|a| text(a.value.as_ref().and_then(|v| v.value.as_ref())))
            .unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            all.push(Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                service: service.clone(),
                links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
                attributes: span
                    .attributes
                    .iter()
                    .map(|a| (a.key.clone(), text(a.value.as_ref().and_then(|v| v.value.as_ref()))))
                    .collect(),
            });
        }
    }
    StatusCode::OK
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(n)) => n.to_string(),
        Some(Value::DoubleValue(n)) => n.to_string(),
        Some(Value::BoolValue(b)) => b.to_string(),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
