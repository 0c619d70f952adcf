//! The HTTP side of the mock endpoint.

use super::limits::Headers;
use super::stats::{Counters, MockStats, OpenCall};
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

async fn stats(State(shared): State<Arc<Shared>>) -> Json<MockStats> {
    Json(shared.counters.snapshot())
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
    let admitted =
        shared.limiter.as_ref().map_or(Ok(Vec::new()), |limiter| limiter.admit(&parsed, body.len()));
    let said = match admitted {
        Ok(said) => said,
        Err(said) => {
            shared.counters.refuse();
            let body = r#"{"error":{"message":"too many requests","type":"rate_limit_exceeded"}}"#;
            return with((StatusCode::TOO_MANY_REQUESTS, body).into_response(), said);
        }
    };
    let number = shared.counters.number();
    let call = read_call(number, headers, parsed);
    let open = Counters::open(Arc::clone(&shared.counters), call.purpose, &body);
    drop(body);
    let mut action = (shared.options.script)(&call);
    while let MockAction::Hold { then } = action {
        let passed = gate.wait_for(|gate| gate.open || gate.released > held_at).await;
        // An error means that the server is ending, and then nobody reads the reply.
        held_at = passed.map_or(held_at, |gate| gate.released);
        action = *then;
    }
    with(perform(action, &call, shared.options.latency, open).await, said)
}

fn with(mut response: Response, headers: Headers) -> Response {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn read_call(number: u64, headers: HeaderMap, body: Value) -> MockCall {
    let prompt = body
        .get("messages")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .rev()
        .find(|message| message.get("role").and_then(Value::as_str) == Some("user"))
        .and_then(|message| message.get("content")?.as_str())
        .unwrap_or_default()
        .to_owned();
    let schema = body.pointer("/response_format/json_schema/name").and_then(Value::as_str);
    let purpose = match schema {
        Some(name) if name.contains("plan") => Purpose::Plan,
        Some(name) if name.contains("verdict") => Purpose::Judge,
        _ => Prompt::parse(&prompt).purpose(),
    };
    MockCall {
        number,
        purpose,
        prompt,
        streams: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        body,
        headers,
    }
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
        MockAction::Hold { .. } => {
            // Holds are unwrapped before this.
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn usage_json(usage: Option<Usage>, prompt: &str, reply_chars: usize) -> Value {
    let usage = usage.unwrap_or_else(|| Usage {
        prompt_tokens: crate::estimated_tokens(prompt.len()),
        completion_tokens: crate::estimated_tokens(reply_chars),
        cached_tokens: 0,
    });
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens.saturating_add(usage.completion_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

fn model(call: &MockCall) -> &str {
    let named = call.body.get("model").and_then(Value::as_str);
    named.unwrap_or("mock")
}

fn whole(text: &str, usage: Option<Usage>, call: &MockCall) -> Response {
    let body = json!({
        "id": format!("mock-{}", call.number),
        "object": "chat.completion",
        "model": model(call),
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }],
        "usage": usage_json(usage, &call.prompt, text.len()),
    });
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// A streamed reply.
struct Pieces {
    chunks: VecDeque<(Duration, String)>,
    /// The last event: counts and `[DONE]`; `None` cuts the stream instead.
    end: Option<String>,
    id: String,
    model: String,
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
        let id = format!("mock-{}", call.number);
        let wants_usage = call.body.pointer("/stream_options/include_usage") == Some(&json!(true));
        let end = complete.then(|| {
            let stop = json!({
                "id": id, "object": "chat.completion.chunk", "model": model(call),
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            });
            let mut end = format!("data: {stop}\n\n");
            if wants_usage {
                let chars = chunks.iter().map(|(_, piece)| piece.len()).sum();
                let counts = json!({
                    "id": id, "object": "chat.completion.chunk", "model": model(call),
                    "choices": [], "usage": usage_json(usage, &call.prompt, chars),
                });
                end.push_str(&format!("data: {counts}\n\n"));
            }
            end.push_str("data: [DONE]\n\n");
            end
        });
        Pieces { chunks: chunks.into(), end, id, model: model(call).to_owned(), open, over: false }
    }

    async fn next(&mut self) -> Option<Result<String, std::io::Error>> {
        if self.over {
            return None;
        }
        if let Some((delay, piece)) = self.chunks.pop_front() {
            pause(delay).await;
            let chunk = json!({
                "id": self.id, "object": "chat.completion.chunk", "model": self.model,
                "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": null}],
            });
            let mut event = format!("data: {chunk}\n\n");
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
            None => Some(Err(std::io::Error::other("cut, as the script says"))),
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
