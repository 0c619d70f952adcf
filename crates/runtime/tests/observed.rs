//! What can be seen of a process from outside: spans, metrics, health.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SimpleSpanProcessor, SpanData, SpanExporter},
};
use starling_bus::InRecord;
use starling_protocol::Topic;
use starling_runtime::{
    health::Health,
    http,
    telemetry::{self, Spans, TelemetryGuard, TraceContext},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use support::scripted::{Scripted, Worker, commits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// Keeps the spans that have ended.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Kept {
    fn named(&self, name: &str) -> Vec<SpanData> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }

    fn one(&self, name: &str) -> SpanData {
        let mut found = self.named(name);
        assert_eq!(found.len(), 1, "{name}");
        found.remove(0)
    }
}

fn recording() -> (Kept, TelemetryGuard) {
    let kept = Kept::default();
    let guard = TelemetryGuard::exporting_to(SimpleSpanProcessor::new(kept.clone()), Duration::from_secs(1));
    (kept, guard)
}

fn trace_of(record: &InRecord) -> TraceContext {
    TraceContext::parse(record.header("traceparent").unwrap()).unwrap()
}

#[tokio::test]
async fn the_spans_of_a_record_form_one_tree() {
    let (kept, guard) = recording();
    let settings =
        support::settings(&[("topics.partitions.worker", "1"), ("topics.partitions.coordinator", "1")]);
    let bus = support::bus(&settings).await;
    let node = support::node(&settings, bus.clone(), guard.spans()).await;
    let handler = Scripted::new();
    let task = support::task("the-intent", "reply:a");
    support::put(&node, &bus, &Topic::Worker(None), 0, &task).await;
    let worker = Worker::start(&node, &handler, |_| ());
    commits(&node, &bus, 0, 1).await;

    // It came without a trace: the intent decides which one it is.
    let process = kept.one("process starling.worker");
    let root = TraceContext::trace_of_intent(&task.intent_id);
    assert_eq!(process.span_context.trace_id(), root.into());
    assert_eq!(process.parent_span_id.to_bytes(), [0; 8]);
    assert_eq!(process.span_kind, SpanKind::Consumer);
    let send = kept.one("send starling.coordinator");
    assert_eq!(send.parent_span_id, process.span_context.span_id());
    assert_eq!(send.span_kind, SpanKind::Producer);
    let sent = support::contents(&node, &bus, &Topic::Coordinator).await;
    assert_eq!(trace_of(&sent[0]).trace_id, root);
    assert_eq!(trace_of(&sent[0]).span_id.to_be_bytes(), send.span_context.span_id().to_bytes());

    // It came with a trace: it stays in it.
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let value = node.codec.encode(&support::task("the-intent", "refuse:b")).unwrap();
    let to = starling_bus::PartitionId::new("starling.worker", 0);
    let headers = [("traceparent", parent), ("tracestate", "vendor=1")];
    support::write(&bus, to.clone(), None, &headers, &value).await;
    commits(&node, &bus, 0, 2).await;
    let refused = kept.named("process starling.worker").remove(1);
    assert_eq!(format!("{}", refused.span_context.trace_id()), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(format!("{}", refused.parent_span_id), "00f067aa0ba902b7");
    assert!(matches!(refused.status, Status::Error { .. }));

    // A handler that is dropped leaves a span nevertheless, and so does what it said.
    support::put(&node, &bus, &Topic::Worker(None), 0, &support::task("i", "hold:c")).await;
    handler.handled("hold:c", 1).await;
    bus.faults().rebalance("starling.worker");
    handler.handled("hold:c", 2).await;
    handler.release("hold:c");
    commits(&node, &bus, 0, 3).await;
    worker.stop().await;
    assert_eq!(kept.named("process starling.worker").len(), 4);
    guard.shutdown().await;

    let spans = kept.0.lock().unwrap().clone();
    for span in spans.iter().filter(|span| span.parent_span_id.to_bytes() != [0; 8]) {
        let is_known = spans.iter().any(|other| other.span_context.span_id() == span.parent_span_id);
        assert!(
            is_known || format!("{}", span.parent_span_id) == "00f067aa0ba902b7",
            "{} is an orphan",
            span.name
        );
    }
}

#[tokio::test]
async fn without_an_exporter_no_trace_names_a_span_that_nobody_exports() {
    let spans = Spans::off();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let chat = spans.chat("m", "work", parent);
    assert_eq!(&**chat.traceparent(), parent);
    let intent = support::task("i", "t").intent_id;
    let root = spans.named("submit", None, &intent);
    let context = TraceContext::parse(root.traceparent()).unwrap();
    assert_eq!(context.trace_id, TraceContext::trace_of_intent(&intent));
    assert!(!context.sampled);
}

async fn get(address: std::net::SocketAddr, path: &str) -> (String, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().to_owned();
    (status, answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
}

#[tokio::test]
async fn health_tells_what_is_waited_for_and_what_stands_still() {
    let settings = support::settings(&[("topics.partitions.worker", "1")]);
    let bus = support::bus(&settings).await;
    let node = support::node(&settings, bus.clone(), Spans::off()).await;
    let stop = CancellationToken::new();
    let limit = Duration::from_secs(30);
    let address = http::serve("127.0.0.1:0", node.health.clone(), node.metrics.clone(), limit, stop.clone())
        .await
        .unwrap();
    let gate = node.health.gate("the moon");
    let (status, body) = get(address, "/readyz").await;
    assert_eq!(status, "503");
    assert!(body.contains("the moon"), "{body}");
    gate.set(true);

    let handler = Scripted::new();
    let worker = Worker::start(&node, &handler, |_| ());
    support::until("it is ready", || async { (get(address, "/readyz").await.0 == "200").then_some(()) })
        .await;
    assert_eq!(get(address, "/healthz").await.0, "200");
    support::put(&node, &bus, &Topic::Worker(None), 0, &support::task("i", "reply:a")).await;
    commits(&node, &bus, 0, 1).await;
    let (status, body) = get(address, "/metrics").await;
    assert_eq!(status, "200");
    assert!(body.contains("starling_records_total{topic=\"starling.worker\",result=\"done\"} 1"), "{body}");
    assert!(body.trim_end().ends_with("# EOF"));
    worker.stop().await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_stands_still_is_told() {
    let health = Health::default();
    let pulse = health.pulse("the loop");
    let limit = Duration::from_secs(30);
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(health.stalled(limit), ["the loop"]);
    pulse.beat();
    assert!(health.stalled(limit).is_empty());
}

#[tokio::test]
async fn spans_reach_a_collector_over_http() {
    // Takes what is posted, as a collector would.
    let (posted, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    let app = axum::Router::new().route(
        "/v1/traces",
        axum::routing::post(move |body: axum::body::Bytes| {
            let posted = posted.clone();
            async move { _ = posted.send(body) }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let settings = support::settings(&[("telemetry.otlp_endpoint", &endpoint), ("telemetry.delay", "1m")]);
    let guard = telemetry::init(&settings.telemetry, "worker", "worker-1").unwrap();
    let intent = support::task("i", "t").intent_id;
    guard.spans().named("a span to be exported", None, &intent).end();
    guard.shutdown().await; // long before the batch would be due
    let body = bodies.try_recv().expect("the spans were posted before the shutdown ended");
    let has = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("a span to be exported") && has("starling-worker"));
}

#[tokio::test]
async fn a_collector_that_is_down_holds_nobody_up() {
    let settings = support::settings(&[
        ("telemetry.otlp_endpoint", "http://127.0.0.1:9"),
        ("telemetry.timeout", "300ms"),
    ]);
    let guard = telemetry::init(&settings.telemetry, "worker", "worker-1").unwrap();
    guard.spans().named("lost", None, &support::task("i", "t").intent_id).end();
    let began = std::time::Instant::now();
    guard.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
