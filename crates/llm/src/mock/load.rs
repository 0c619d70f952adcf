//! Clients for a mock endpoint: those that cost next to nothing, so that what is measured is the endpoint; and a plain one,
//! which other clients are compared with.

use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// What prompts are filled up with.
const FILLER: &str =
    "The quarterly report compares suppliers by price, delivery time and support in three regions. ";
/// Longest head of a reply, in bytes.
const MAX_HEAD: usize = 4096;

/// Asks the mock endpoint at `base_url` so many times, over so many connections, with prompts that are filled up with
/// `padding` characters; the bytes of all replies.
///
/// # Errors
/// A connection breaks, or a reply is not a 200 with a length.
pub async fn load(
    base_url: &str,
    requests: usize,
    connections: u16,
    padding: usize,
) -> std::io::Result<usize> {
    let address = base_url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let left = Arc::new(AtomicUsize::new(requests));
    let mut clients = JoinSet::new();
    for client in 0..connections {
        let (address, left) = (address.clone(), left.clone());
        clients.spawn(async move { one_client(&address, client, padding, &left).await });
    }
    sum(clients).await
}

async fn one_client(
    address: &str,
    client: u16,
    padding: usize,
    left: &AtomicUsize,
) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut bytes = 0;
    let mut reply = Vec::new();
    while let Some(number) = take(left) {
        stream.write_all(request(address, client, number, padding).as_bytes()).await?;
        bytes += read_reply(&mut stream, &mut reply).await?;
    }
    Ok(bytes)
}

/// What a load asks: as system, and as user. Nobody has asked it before.
#[must_use]
pub fn question(client: u16, number: usize, padding: usize) -> (&'static str, String) {
    let padding = FILLER.chars().cycle().take(padding).collect::<String>();
    let task = format!("## Task\nTask {client}-{number}\n## Instruction\nSay what is known. {padding}");
    ("You do one task.", format!("## Goal\nCompare what there is\n{task}"))
}

fn body(client: u16, number: usize, padding: usize) -> String {
    let (system, user) = question(client, number, padding);
    json!({
        "model": "mock",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "max_tokens": 1000,
        "temperature": 0.2,
    })
    .to_string()
}

fn request(address: &str, client: u16, number: usize, padding: usize) -> String {
    let body = body(client, number, padding);
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The same with a plain HTTP client, which reads the text out of each reply: the least that a client does.
///
/// # Errors
/// A request fails, or a reply has no text.
pub async fn plain_load(
    base_url: &str,
    requests: usize,
    connections: u16,
    padding: usize,
) -> std::io::Result<usize> {
    let http = reqwest::Client::builder()
        .pool_max_idle_per_host(usize::from(connections))
        .tcp_nodelay(true)
        .no_proxy()
        .build()
        .map_err(std::io::Error::other)?;
    let url = format!("{base_url}/chat/completions");
    let left = Arc::new(AtomicUsize::new(requests));
    let mut clients = JoinSet::new();
    for client in 0..connections {
        let (http, url, left) = (http.clone(), url.clone(), left.clone());
        clients.spawn(async move {
            let mut bytes = 0;
            while let Some(number) = take(&left) {
                let body = body(client, number, padding);
                let request = http.post(&url).header(CONTENT_TYPE, "application/json").body(body);
                let reply = async { request.send().await?.error_for_status()?.bytes().await }.await;
                let reply = reply.map_err(std::io::Error::other)?;
                let value: Value = serde_json::from_slice(&reply)?;
                let text = value.pointer("/choices/0/message/content").and_then(Value::as_str);
                bytes += text.ok_or_else(|| std::io::Error::other("a reply without text"))?.len();
            }
            Ok(bytes)
        });
    }
    sum(clients).await
}

fn take(left: &AtomicUsize) -> Option<usize> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()
}

async fn sum(mut clients: JoinSet<std::io::Result<usize>>) -> std::io::Result<usize> {
    let mut bytes = 0;
    while let Some(client) = clients.join_next().await {
        bytes += client.map_err(std::io::Error::other)??;
    }
    Ok(bytes)
}

/// Reads one reply with a content length; its bytes.
async fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
    let strange = |what: &str| std::io::Error::other(format!("a strange reply: {what}"));
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(strange("it ends too early"));
        }
        let Some(head) = buffer.windows(4).take(MAX_HEAD).position(|bytes| bytes == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(buffer.get(..head).unwrap_or_default()).to_lowercase();
        if !text.starts_with("http/1.1 200") {
            return Err(strange(&text));
        }
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize =
            length.and_then(|length| length.trim().parse().ok()).ok_or_else(|| strange(&text))?;
        let whole = head + 4 + length;
        while buffer.len() < whole {
            if stream.read_buf(buffer).await? == 0 {
                return Err(strange("it ends too early"));
            }
        }
        return Ok(whole);
    }
}
