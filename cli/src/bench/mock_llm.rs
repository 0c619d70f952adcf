//! The mock endpoint alone: how much processor time its one thread takes for a request.
//!
//! Clients and server share this machine, so the wall clock says little about the server. Its thread is therefore looked at
//! by itself: what it takes, in user and system together, is all that one core needs for a request.

use super::measure::{Figures, rss_mb};
use crate::{args::BenchMockArgs, exit::CliError};
use starling_llm::mock::{MockOptions, MockServer, Rehearsal};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// Share of the requests that come beforehand: connections are opened, memory is got from the system.
const WARM: usize = 20;
/// What prompts are filled up with.
const FILLER: &str =
    "The quarterly report compares suppliers by price, delivery time and support in three regions. ";
/// Longest head of a reply, in bytes.
const MAX_HEAD: usize = 4096;

pub(super) async fn run(args: &BenchMockArgs) -> Result<Figures, CliError> {
    let script = Rehearsal::new(0).script().map_err(|error| CliError::Usage(error.to_string()))?;
    let server = MockServer::start(MockOptions::new(script))
        .map_err(|error| CliError::Failed(format!("the mock endpoint: {error}")))?;
    ask(&server, args, args.requests / WARM + 1).await?;
    let cpu = server_cpu_time();
    let start = Instant::now();
    let bytes = ask(&server, args, args.requests).await?;
    let wall = start.elapsed();
    let taken = cpu.zip(server_cpu_time()).map(|(before, after)| after.saturating_sub(before));
    let requests = args.requests as f64;
    let mut figures = Figures::new("mock-llm", "loopback");
    figures.slots = usize::from(args.connections);
    figures.rss_mb = rss_mb();
    figures.more = vec![
        ("requests_per_s", (requests / wall.as_secs_f64()).round()),
        ("reply_bytes", (bytes as f64 / requests).round()),
    ];
    if let Some(taken) = taken.filter(|taken| !taken.is_zero()) {
        let each = taken.as_secs_f64() / requests;
        figures.more.push(("server_cpu_us_per_request", each * 1e6));
        figures.more.push(("requests_per_s_of_one_core", (1.0 / each).round()));
    }
    Ok(figures)
}

/// Asks so many times, over all connections; the bytes of all replies.
async fn ask(server: &MockServer, args: &BenchMockArgs, requests: usize) -> Result<usize, CliError> {
    let address = server.base_url();
    let address = address.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let left = Arc::new(AtomicUsize::new(requests));
    let mut clients = JoinSet::new();
    for client in 0..args.connections {
        let (address, left, padding) = (address.clone(), left.clone(), args.prompt);
        clients.spawn(async move { one_client(&address, client, padding, &left).await });
    }
    let mut bytes = 0;
    while let Some(client) = clients.join_next().await {
        let outcome = client.map_err(std::io::Error::other).and_then(|bytes| bytes);
        bytes +=
            outcome.map_err(|error| CliError::Failed(format!("a client of the mock endpoint: {error}")))?;
    }
    Ok(bytes)
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
    while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
    {
        stream.write_all(request(address, client, number, padding).as_bytes()).await?;
        bytes += read_reply(&mut stream, &mut reply).await?;
    }
    Ok(bytes)
}

/// A question that nobody has asked before.
fn request(address: &str, client: u16, number: usize, padding: usize) -> String {
    let prompt = format!(
        "## Goal\\nCompare what there is\\n## Task\\nTask {client}-{number}\\n## Instruction\\nSay what is known. {}",
        FILLER.chars().cycle().take(padding).collect::<String>()
    );
    let body = format!(
        r#"{{"model":"mock","messages":[{{"role":"system","content":"You do one task."}},{{"role":"user","content":"{prompt}"}}],"max_tokens":1000,"temperature":0.2}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
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

/// Processor time of the endpoint's thread so far.
fn server_cpu_time() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let named = |folder: &std::path::Path| {
        fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == MockServer::THREAD)
    };
    let folder = threads.flatten().map(|entry| entry.path()).find(|folder| named(folder))?;
    let schedstat = fs::read_to_string(folder.join("schedstat")).ok()?;
    Some(Duration::from_nanos(schedstat.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn every_request_is_answered_and_the_time_of_the_servers_thread_is_known() {
        let args = BenchMockArgs { requests: 50, connections: 3, prompt: 100, json: true };
        let figures = run(&args).await.unwrap();
        let figure = |name: &str| figures.more.iter().find(|(n, _)| *n == name).map(|(_, figure)| *figure);
        assert!(figure("reply_bytes").unwrap() > 100.0);
        assert!(figure("requests_per_s").unwrap() > 0.0);
    }
}
