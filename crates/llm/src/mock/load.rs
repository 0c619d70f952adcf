//! Clients for a mock endpoint that cost next to nothing, so that what is measured is the endpoint.

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
    let mut bytes = 0;
    while let Some(client) = clients.join_next().await {
        bytes += client.map_err(std::io::Error::other)??;
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
