//! The collector of traces, and the address of metrics and health.

use super::finding::{Finding, Remark};
use reqwest::{Client, StatusCode, Url, redirect::Policy};
use std::time::Duration;
use tokio::net::TcpListener;

pub(super) const TRACES: &str = "traces";
pub(super) const HEALTH: &str = "health";

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);

fn client(plain: bool) -> Result<Client, String> {
    // An error means that another part of the process has installed one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().timeout(REQUEST).redirect(Policy::none());
    // Plain HTTP must not fail for want of root certificates on the machine.
    let builder = if plain { builder.tls_certs_only([]) } else { builder };
    builder.build().map_err(|error| root_cause(&error))
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// What came of an empty export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Export {
    /// There is nowhere to export to.
    NotSet,
    /// The collector said this.
    Answered(u16),
    /// It did not.
    Failed(String),
}

pub(super) async fn check_traces(endpoint: Option<&str>) -> Finding {
    let Some(endpoint) = endpoint else { return judge_traces("", &Export::NotSet) };
    let shown = without_secrets(endpoint);
    let export = match export_nothing(endpoint).await {
        Ok(status) => Export::Answered(status.as_u16()),
        Err(reason) => Export::Failed(reason),
    };
    judge_traces(&shown, &export)
}

/// An export without spans: an empty message is a valid one.
async fn export_nothing(endpoint: &str) -> Result<StatusCode, String> {
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let mut request = client(endpoint.starts_with("http://"))?
        .post(url)
        .header("content-type", "application/x-protobuf")
        .body(Vec::new());
    // As the exporter itself does.
    let headers = std::env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    for (name, value) in headers.split(',').filter_map(|header| header.split_once('=')) {
        request = request.header(name.trim(), value.trim());
    }
    let response = request.send().await.map_err(|error| root_cause(&error))?;
    Ok(response.status())
}

fn without_secrets(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "(no address)".to_owned() };
    // Both fail only for addresses without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.as_str().trim_end_matches('/').to_owned()
}

pub(super) fn judge_traces(endpoint: &str, export: &Export) -> Finding {
    let advice = "correct telemetry.otlp_endpoint (OTEL_EXPORTER_OTLP_ENDPOINT), or start a collector \
                  (`scripts/jaeger start`); without one the swarm works, but its traces are lost";
    let problem = match export {
        Export::NotSet => {
            return Finding::ok(TRACES, "not exported: telemetry.otlp_endpoint is empty");
        }
        Export::Answered(200..300) => return Finding::ok(TRACES, format!("{endpoint} takes exports")),
        Export::Answered(401 | 403) => {
            let found = format!("{endpoint} refuses exports: not allowed");
            return Finding::of(TRACES, Remark::warning(found, "set OTEL_EXPORTER_OTLP_HEADERS"));
        }
        Export::Answered(404 | 405) => format!("{endpoint} answers, but is no OTLP collector"),
        Export::Answered(status) => format!("{endpoint} answers an empty export with {status}"),
        Export::Failed(reason) => format!("{endpoint} does not answer: {reason}"),
    };
    Finding::of(TRACES, Remark::warning(problem, advice))
}

/// What is at the address of metrics and health, as seen from this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    /// No address is set.
    NotSet,
    /// Any free port is taken: nobody can know which.
    AnyPort,
    /// A service that is ready.
    Ready,
    /// A service that is not.
    NotReady(String),
    /// Somebody else.
    Stranger(String),
    /// Nobody; a service could listen there.
    Free,
    /// Nobody answers, and a service could not listen there.
    Impossible(String),
}

pub(super) async fn check_health(listen: Option<&str>) -> Finding {
    let Some(listen) = listen else { return judge_health("", &Listening::NotSet) };
    judge_health(listen, &look(listen).await)
}

async fn look(listen: &str) -> Listening {
    let Some((host, port)) = listen.rsplit_once(':') else {
        return Listening::Impossible("an address is HOST:PORT".to_owned());
    };
    if port == "0" {
        return Listening::AnyPort;
    }
    let host = match host {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        other => other,
    };
    let asked = match client(true) {
        Ok(client) => client.get(format!("http://{host}:{port}/readyz")).send().await,
        Err(reason) => return Listening::Impossible(reason),
    };
    match asked {
        Ok(response) => {
            let status = response.status();
            let text = response.text().await.unwrap_or_default();
            let text: String = text.trim().chars().take(200).collect();
            match status {
                StatusCode::OK if text == "ready" => Listening::Ready,
                StatusCode::SERVICE_UNAVAILABLE if text.starts_with("waiting for") => {
                    Listening::NotReady(text)
                }
                status => Listening::Stranger(format!("answers with {}", status.as_u16())),
            }
        }
        Err(error) if error.is_connect() => match TcpListener::bind(listen).await {
            Ok(_) => Listening::Free,
            Err(error) => Listening::Impossible(error.to_string()),
        },
        Err(error) => Listening::Stranger(root_cause(&error)),
    }
}

pub(super) fn judge_health(listen: &str, found: &Listening) -> Finding {
    let other = "choose another http.listen for the services of this machine";
    match found {
        Listening::NotSet => Finding::ok(HEALTH, "not served: http.listen is empty"),
        Listening::AnyPort => {
            Finding::ok(HEALTH, format!("{listen}: each service takes a free port and logs which"))
        }
        Listening::Ready => Finding::ok(HEALTH, format!("a service at {listen} is ready")),
        Listening::Free => Finding::ok(HEALTH, format!("{listen} is free: no service runs on this machine")),
        Listening::NotReady(what) => Finding::of(
            HEALTH,
            Remark::warning(
                format!("a service at {listen} is {what}"),
                "look again in a moment, then at its log",
            ),
        ),
        Listening::Stranger(what) => {
            Finding::of(HEALTH, Remark::fault(format!("another program at {listen} {what}"), other))
        }
        Listening::Impossible(why) => {
            Finding::of(HEALTH, Remark::fault(format!("no service can listen on {listen}: {why}"), other))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doctor::finding::Status;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn collectors_and_addresses_are_judged() {
        let failed = |why: &str| Export::Failed(why.to_owned());
        for (export, status, found) in [
            (Export::NotSet, Status::Ok, "not exported"),
            (Export::Answered(200), Status::Ok, "http://c takes exports"),
            (Export::Answered(404), Status::Warning, "is no OTLP collector"),
            (Export::Answered(401), Status::Warning, "not allowed"),
            (Export::Answered(500), Status::Warning, "with 500"),
            (failed("refused"), Status::Warning, "does not answer: refused"),
        ] {
            let finding = judge_traces("http://c", &export);
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
        }
        for (listening, status) in [
            (Listening::NotSet, Status::Ok),
            (Listening::AnyPort, Status::Ok),
            (Listening::Ready, Status::Ok),
            (Listening::Free, Status::Ok),
            (Listening::NotReady("waiting for x".into()), Status::Warning),
            (Listening::Stranger("answers with 404".into()), Status::Fault),
            (Listening::Impossible("in use".into()), Status::Fault),
        ] {
            assert_eq!(judge_health("a:1", &listening).status, status, "{listening:?}");
        }
        assert_eq!(without_secrets("http://me:hunter2@c:4318/?key=k"), "http://c:4318");
    }

    /// A server that answers everything with this.
    async fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _ = socket.read(&mut buffer).await;
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn what_listens_is_told_apart() {
        let ready = server("HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nready\n").await;
        assert_eq!(look(&ready).await, Listening::Ready);
        let other = server("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        assert_eq!(look(&other).await, Listening::Stranger("answers with 404".into()));
        assert_eq!(look("0.0.0.0:0").await, Listening::AnyPort);
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        assert_eq!(look(&free).await, Listening::Free);
        assert_eq!(check_traces(Some(&format!("http://{free}"))).await.status, Status::Warning);
        assert_eq!(check_traces(Some(&format!("http://{other}"))).await.status, Status::Warning);
        assert_eq!(check_traces(Some(&format!("http://{ready}"))).await.status, Status::Ok);
    }
}
