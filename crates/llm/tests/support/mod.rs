//! What the tests of the endpoint share.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use serde_json::json;
use starling_llm::mock::{MockAction, MockCall, MockOptions, MockServer};
use starling_llm::{
    Backoff, ChatRequest, Format, Message, OpenAiModel, OpenAiOptions, Purpose, Reuse, Speaker,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

pub(crate) const KEY: &str = "sk-very-secret-key";

pub(crate) fn options(base_url: &str) -> OpenAiOptions {
    let mut options = OpenAiOptions::new(base_url, "small");
    options.api_key = Some(KEY.into());
    options.backoff = Backoff { base: Duration::from_millis(5), cap: Duration::from_millis(20) };
    options
}

pub(crate) fn model(base_url: &str) -> OpenAiModel {
    OpenAiModel::new(options(base_url)).unwrap()
}

pub(crate) fn mock(script: impl Fn(&MockCall) -> MockAction + Send + Sync + 'static) -> MockServer {
    MockServer::start(MockOptions::new(Arc::new(script))).unwrap()
}

pub(crate) fn request(purpose: Purpose) -> ChatRequest {
    let message = |speaker, text: &str| Message { speaker, text: text.to_owned() };
    ChatRequest {
        purpose,
        messages: vec![message(Speaker::System, "You are terse."), message(Speaker::User, "Say hello.")],
        tools: Vec::new(),
        format: Format::Text,
        max_tokens: Some(50),
        temperature: Some(0.2),
        deadline: Instant::now() + Duration::from_secs(20),
        traceparent: Some("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01".to_owned()),
        allowance: None,
        reuse: Reuse::Allowed,
        priority: starling_protocol::Priority::default(),
        model: None,
    }
}

pub(crate) fn json_request(name: &str) -> ChatRequest {
    let mut request = request(Purpose::Judge);
    request.format = Format::Json {
        name: name.to_owned(),
        schema: Arc::new(json!({"type": "object", "required": ["score"]})),
        check: None,
    };
    request
}

/// A server that answers every connection's first request with these writes, each in a packet of its
/// own, and closes.
pub(crate) async fn raw_server(writes: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let writes = writes.clone();
            tokio::spawn(async move {
                socket.set_nodelay(true).unwrap();
                let mut buffer = [0; 65536];
                let _ = socket.read(&mut buffer).await;
                for bytes in writes {
                    if socket.write_all(&bytes).await.is_err() {
                        return;
                    }
                    let _ = socket.flush().await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
    });
    format!("http://{address}/v1")
}

/// The head of a streamed response that ends with its connection.
pub(crate) const SSE_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Waits for a condition; fails after five seconds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(5), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

/// A server that keeps a connection open after each whole reply, and closes it without a word when the
/// next request comes over it.
pub(crate) async fn forgetful_server(reply: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 65536];
                let _ = socket.read(&mut buffer).await;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
                let response = format!("{head} {}\r\n\r\n{reply}", reply.len());
                let _ = socket.write_all(response.as_bytes()).await;
                let _ = socket.read(&mut buffer).await;
            });
        }
    });
    format!("http://{address}/v1")
}
