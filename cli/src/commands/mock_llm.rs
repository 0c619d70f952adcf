//! `starling mock-llm`: serves until it is told to stop, then says what came of it.

use crate::{
    exit::CliError,
    mock_llm::{MockLlmArgs, summary},
};
use starling_llm::mock::MockServer;
use std::{
    io::{Write as _, stdout},
    process::ExitCode,
};
use tokio::signal::unix::{SignalKind, signal};

pub(super) async fn mock_llm(args: &MockLlmArgs) -> Result<ExitCode, CliError> {
    let options = args.options()?;
    let failed = |error: std::io::Error| CliError::Failed(error.to_string());
    // Before anybody can know where it listens, and stop it.
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let server = MockServer::bind((args.host.as_str(), args.port), options).map_err(|error| {
        CliError::Failed(format!("{} cannot be listened on, port {}: {error}", args.host, args.port))
    })?;
    print(&server.base_url());
    eprintln!(
        "a mock endpoint, not an LLM; from another terminal: OPENAI_BASE_URL={} starling run \"...\"",
        server.base_url()
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    print(&summary(&server.stats(), &server.marks(), args.json));
    Ok(ExitCode::SUCCESS)
}

/// A line on stdout, at once also where that is a pipe. Whoever has closed it does not want to know.
fn print(line: &str) {
    let mut out = stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
