//! The mock endpoint alone: how much processor time its one thread takes for a request.
//!
//! Clients and server share this machine, so the wall clock says little about the server. Its thread is therefore looked at
//! by itself: what it takes, in user and system together, is all that one core needs for a request.

use super::measure::{Figures, mock_cpu_time, rss_mb};
use crate::{args::BenchMockArgs, exit::CliError};
use starling_llm::mock::{MockOptions, MockServer, Rehearsal, load};
use std::time::Instant;

/// Share of the requests that come beforehand: connections are opened, memory is got from the system.
const WARM: usize = 20;
pub(super) async fn run(args: &BenchMockArgs) -> Result<Figures, CliError> {
    let script = Rehearsal::new(0).script().map_err(|error| CliError::Usage(error.to_string()))?;
    let server = MockServer::start(MockOptions::new(script))
        .map_err(|error| CliError::Failed(format!("the mock endpoint: {error}")))?;
    ask(&server, args, args.requests / WARM + 1).await?;
    let cpu = mock_cpu_time();
    let start = Instant::now();
    let bytes = ask(&server, args, args.requests).await?;
    let wall = start.elapsed();
    let taken = cpu.zip(mock_cpu_time()).map(|(before, after)| after.saturating_sub(before));
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
    let bytes = load(&server.base_url(), requests, args.connections, args.prompt).await;
    bytes.map_err(|error| CliError::Failed(format!("a client of the mock endpoint: {error}")))
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
