//! Bodies as they come over the network, and what it means when they do not.

use super::fault::Fault;
use super::reply::Spoiled;
use crate::ModelErrorKind;
use reqwest::Response;

/// Longest error body that is read: it is only quoted from.
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;

/// Reads a body; more bytes than `most` are a fault.
pub(super) async fn read_body(mut response: Response, most: usize) -> Result<Vec<u8>, Spoiled> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(network_fault)? {
        if body.len() + chunk.len() > most {
            return Err(too_big(most).into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub(super) fn too_big(most: usize) -> Fault {
    Fault::bad_reply(format!("the reply is longer than {most} bytes"))
}

/// Reads the beginning of a body, whatever happens.
pub(super) async fn read_up_to(mut response: Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < most {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(most);
    body
}

/// The fault of a request that nothing came back for. A kept connection that the server closed in the
/// same moment looks like this, so it says nothing about the server's health.
pub(super) fn unanswered(error: reqwest::Error) -> Fault {
    let stale = !error.is_connect() && !error.is_timeout();
    Fault { stale, ..network_fault(error) }
}

pub(super) fn network_fault(error: reqwest::Error) -> Fault {
    let cause = root_cause(&error);
    if error.is_connect() {
        return Fault::new(
            ModelErrorKind::Unreachable,
            format!("nobody answers there ({cause}); is the server running, and is the base URL right?"),
        );
    }
    Fault::new(
        ModelErrorKind::Server,
        format!("the connection broke before the reply was complete ({cause})"),
    )
}

/// The innermost error, which is the one that says something. Never holds the URL.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    match error.url() {
        Some(url) => text.replace(url.as_str(), "(the base URL)"),
        None => text,
    }
}
