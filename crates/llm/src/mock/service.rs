//! The HTTP side of the mock endpoint.

use super::limits::Headers;
use super::prompt_cache::Counted;
use super::stats::{Compared, Counters, OpenCall, Told};
use super::wire::{self, Frame};
use super::{MockAction, MockCall, Shared};
use crate::Purpose;
use crate::prompt::Prompt;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use starling_protocol::Usage;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Longest request body; prompts of tests go to some megabytes.
const MAX_BODY_BYTES: usize = 64 << 20;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> std::io::Result<()> {
    let app = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/_mock/stats", get(stats))
        .route("/_mock/release", post(release))
        .route("/_mock/release-for-good", post(release_for_good))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(shared);
    let listener = listener.tap_io(|stream| {
        // Only speed depends on it.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}

async fn stats(State(shared): State<Arc<Shared>>) -> Json<Told> {
    Json(shared.counters.told())
}

async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let listed = shared.options.models.as_deref().unwrap_or_default();
    if listed.is_empty() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let model = |name: &String| json!({"id": name, "object": "model", "owned_by": "mock"});
    let data: Vec<Value> = listed.iter().map(model).collect();
    Json(json!({"object": "list", "data": data})).into_response()
}

async fn release(State(shared): State<Arc<Shared>>) -> StatusCode {
    shared.release();
    StatusCode::NO_CONTENT
}

async fn release_for_good(State(shared): State<Arc<Shared>>) -> StatusCode {
    shared.open_gate();
    StatusCode::NO_CONTENT
}

async fn chat(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    // Before the call is counted: who sees it in the counts may release it.
    let mut gate = shared.gate.subscribe();
    let mut held_at = gate.borrow().released;
    let Ok(parsed) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "the body is no JSON").into_response();
    };
    let said = match shared.limiter.admit(&parsed, body.len()) {
        Ok(said) => said,
        Err(said) => {
            shared.counters.refuse();
            let body = r#"{"error":{"message":"too many requests","type":"rate_limit_exceeded"}}"#;
            return with((StatusCode::TOO_MANY_REQUESTS, body).into_response(), said);
        }
    };
    let asked = parsed.get("model").and_then(Value::as_str).unwrap_or("mock");
    let named = match &shared.options.models {
        None => asked.to_owned(),
        Some(known) if known.is_empty() || known.iter().any(|name| name == asked) => {
            format!("{asked} (mock)")
        }
        Some(_) => return with(unknown(asked), said),
    };
    let number = shared.counters.number();
    if let Some(status) = shared.is_down() {
        shared.counters.mark("down");
        return (status, r#"{"error":{"message":"the endpoint is down"}}"#).into_response();
    }
    let mut call = read_call(number, named, headers, parsed, shared.counters.compare(&body));
    if let Some(prompts) = &shared.prompts {
        call.prompt_tokens = prompts.count(&call.body);
    }
    let open = Counters::open(Arc::clone(&shared.counters), number, call.purpose);
    drop(body);
    let mut action = (shared.options.script)(&call);
    loop {
        action = match action {
            MockAction::Hold { then } => {
                let passed = gate.wait_for(|gate| gate.open || gate.released > held_at).await;
                // An error means that the server is ending, and then nobody reads the reply.
                held_at = passed.map_or(held_at, |gate| gate.released);
                *then
            }
            MockAction::Marked { mark, then } => {
                shared.counters.mark(mark);
                *then
            }
            ready => {
                if let Some(places) = &shared.places {
                    places.serve().await;
                }
                break with(perform(ready, &call, shared.options.latency, open).await, said);
            }
        };
    }
}

fn unknown(model: &str) -> Response {
    let error = json!({"error": {
        "message": format!("the model {model} does not exist here"),
        "type": "invalid_request_error",
        "code": "model_not_found",
    }});
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

fn with(mut response: Response, headers: Headers) -> Response {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn read_call(number: u64, model: String, headers: HeaderMap, body: Value, compared: Compared) -> MockCall {
    let text = |message: &Value| {
        let user = message.get("role").and_then(Value::as_str) == Some("user");
        user.then(|| message.get("content")?.as_str().map(str::to_owned)).flatten()
    };
    let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten();
    let mut said = messages.rev().filter_map(text).peekable();
    let last = said.peek().cloned();
    let prompt = said.find(|text| Prompt::parse(text).has_sections()).or(last).unwrap_or_default();
    let schema = body.pointer("/response_format/json_schema/name").and_then(Value::as_str);
    let purpose = match schema {
        Some(name) if name.contains("plan") => Purpose::Plan,
        Some(name) if name.contains("verdict") => Purpose::Judge,
        _ => Prompt::parse(&prompt).purpose(),
    };
    let Compared { fingerprint, earlier } = compared;
    let streams = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let tokens = crate::estimated_tokens(prompt.len());
    let prompt_tokens = Counted { tokens, cached: 0 };
    MockCall { number, purpose, prompt, streams, model, fingerprint, earlier, body, headers, prompt_tokens }
}

async fn perform(action: MockAction, call: &MockCall, latency: Duration, mut open: OpenCall) -> Response {
    match action {
        MockAction::Reply { text, usage, delay } => {
            let delay = delay.unwrap_or(latency);
            if call.streams {
                let pieces = Pieces::new(vec![(delay, text)], usage, call, open, true);
                return pieces.into_response();
            }
            pause(delay).await;
            open.replied();
            whole(&text, usage, call)
        }
        MockAction::Calls { text, deeds } if call.streams => {
            let events = Frame::of(call).streamed_calls(&text, &deeds, wants_usage(call));
            let chunks = events.into_iter().map(|event| (Duration::ZERO, event.into())).collect();
            pause(latency).await;
            bytes("text/event-stream", chunks, true, open).await
        }
        MockAction::Calls { text, deeds } => {
            pause(latency).await;
            open.replied();
            Json(Frame::of(call).calls(&text, &deeds)).into_response()
        }
        MockAction::Bytes { content_type, chunks, complete } => {
            bytes(content_type, chunks, complete, open).await
        }
        MockAction::Stream { chunks } if call.streams => {
            Pieces::new(chunks, None, call, open, true).into_response()
        }
        MockAction::Stream { chunks } => {
            let mut text = String::new();
            for (delay, piece) in chunks {
                pause(delay).await;
                text.push_str(&piece);
            }
            open.replied();
            whole(&text, None, call)
        }
        MockAction::CutStream { chunks } => Pieces::new(chunks, None, call, open, false).into_response(),
        MockAction::Status { code, headers, body } => {
            pause(latency).await;
            open.replied();
            let mut response =
                Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).unwrap_or_else(|error| {
                let text = format!("the script asks for an impossible reply: {error}");
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            })
        }
        MockAction::RawBody { content_type, body } => {
            pause(latency).await;
            open.replied();
            ([(header::CONTENT_TYPE, content_type)], body).into_response()
        }
        MockAction::Hold { .. } | MockAction::Marked { .. } => {
            // They are unwrapped before this.
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn whole(text: &str, usage: Option<Usage>, call: &MockCall) -> Response {
    let body = Frame::of(call).says(text, usage).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn wants_usage(call: &MockCall) -> bool {
    call.body.pointer("/stream_options/include_usage") == Some(&json!(true))
}

/// A body as it is.
async fn bytes(
    content_type: &'static str,
    chunks: Vec<(Duration, Bytes)>,
    complete: bool,
    mut open: OpenCall,
) -> Response {
    let content_type = [(header::CONTENT_TYPE, content_type)];
    let mut chunks = VecDeque::from(chunks);
    let first = chunks.front_mut().map(|(delay, _)| std::mem::take(delay));
    pause(first.unwrap_or_default()).await;
    if complete && chunks.len() <= 1 {
        open.replied();
        let body = chunks.pop_front().map(|(_, body)| body).unwrap_or_default();
        return (content_type, body).into_response();
    }
    let body = stream::unfold((chunks, open, complete), |(mut chunks, mut open, complete)| async move {
        if let Some((delay, piece)) = chunks.pop_front() {
            pause(delay).await;
            if chunks.is_empty() {
                open.replied();
            }
            return Some((Ok(piece), (chunks, open, complete)));
        }
        if complete {
            return None;
        }
        open.replied();
        Some((Err(cut().await), (chunks, open, true)))
    });
    (content_type, Body::from_stream(body.boxed())).into_response()
}

/// The error that breaks a connection off, once what was written before is on its way.
async fn cut() -> std::io::Error {
    tokio::task::yield_now().await;
    std::io::Error::other("cut, as the script says")
}

/// A streamed reply.
struct Pieces {
    chunks: VecDeque<(Duration, String)>,
    /// The last events: counts and `[DONE]`; `None` cuts the stream instead.
    end: Option<String>,
    frame: Frame,
    open: OpenCall,
    over: bool,
}

impl Pieces {
    fn new(
        chunks: Vec<(Duration, String)>,
        usage: Option<Usage>,
        call: &MockCall,
        open: OpenCall,
        complete: bool,
    ) -> Pieces {
        let frame = Frame::of(call);
        let end = complete.then(|| {
            let mut end = wire::event(&frame.stop());
            if wants_usage(call) {
                let chars = chunks.iter().map(|(_, piece)| piece.len()).sum();
                end.push_str(&wire::event(&frame.counts(json!([]), frame.usage(usage, chars))));
            }
            end.push_str(wire::DONE);
            end
        });
        Pieces { chunks: chunks.into(), end, frame, open, over: false }
    }

    async fn next(&mut self) -> Option<Result<String, std::io::Error>> {
        if self.over {
            return None;
        }
        if let Some((delay, piece)) = self.chunks.pop_front() {
            pause(delay).await;
            let mut event = wire::event(&self.frame.piece(&piece));
            if self.chunks.is_empty()
                && let Some(end) = self.end.take()
            {
                // In one write with the last piece, as a fast server would.
                event.push_str(&end);
                self.close();
            }
            return Some(Ok(event));
        }
        self.close();
        match self.end.take() {
            Some(end) => Some(Ok(end)),
            None => Some(Err(cut().await)),
        }
    }

    fn close(&mut self) {
        self.open.replied();
        self.over = true;
    }

    fn into_response(self) -> Response {
        let body = stream::unfold(self, |mut pieces| async move {
            let item = pieces.next().await?;
            Some((item, pieces))
        });
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body.boxed())).into_response()
    }
}
