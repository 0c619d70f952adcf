//! Logs and traces of a process.

mod sdk;
mod spans;
mod trace_context;

pub use spans::{ActiveSpan, Processed, Spans};
pub use trace_context::TraceContext;

use crate::settings::{LogFormat, TelemetrySettings};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanProcessor};
use std::{io::IsTerminal as _, time::Duration};
use tracing_subscriber::{EnvFilter, fmt::format::FmtSpan};

/// The client reports an error whenever a consumer that belongs to no group is dropped, as it should be.
const QUIET: &str = "rdkafka::consumer::base_consumer=off";

/// Keeps telemetry running; tells the exporter to finish when it is shut down or dropped.
#[derive(Debug)]
#[must_use = "spans that wait for export are lost when nobody holds the guard"]
pub struct TelemetryGuard {
    spans: Spans,
    provider: Option<SdkTracerProvider>,
    patience: Duration,
}

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be exported to {endpoint}: {reason}")]
pub struct TelemetryError {
    endpoint: String,
    reason: String,
}

/// Sets up logs (once in a process; a second call leaves them as they are) and traces. Must be called
/// within a tokio runtime.
///
/// # Errors
/// The endpoint for traces is no address.
pub fn init(
    settings: &TelemetrySettings,
    service: &str,
    process: &str,
) -> Result<TelemetryGuard, TelemetryError> {
    init_logs(settings);
    let Some(endpoint) = &settings.otlp_endpoint else {
        return Ok(TelemetryGuard::off());
    };
    // The client is built without a built-in choice of cryptography; another part may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let export = sdk::Export {
        endpoint: endpoint.clone(),
        service: format!("starling-{service}"),
        process: process.to_owned(),
        ratio: settings.sample_ratio,
        queue: settings.queue,
        batch: settings.batch,
        delay: settings.delay,
        timeout: settings.timeout,
    };
    let provider = sdk::provider(&export)
        .map_err(|error| TelemetryError { endpoint: endpoint.clone(), reason: error.to_string() })?;
    Ok(TelemetryGuard {
        spans: Spans::recorded_by(sdk::Tracer::of(&provider)),
        provider: Some(provider),
        patience: settings.timeout,
    })
}

impl TelemetryGuard {
    /// No traces.
    pub fn off() -> Self {
        Self { spans: Spans::off(), provider: None, patience: Duration::ZERO }
    }

    /// Spans that go to a processor of the caller's, such as one that collects them for a test.
    pub fn exporting_to(processor: impl SpanProcessor + 'static, patience: Duration) -> Self {
        let provider = sdk::provider_with(processor);
        Self { spans: Spans::recorded_by(sdk::Tracer::of(&provider)), provider: Some(provider), patience }
    }

    /// Starts spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// Exports what waits, within the time limit of one export. The exporter blocks, so it does so on a
    /// thread of its own.
    pub async fn shutdown(mut self) {
        if let Some(provider) = self.provider.take() {
            let patience = self.patience;
            let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(patience));
            match tokio::time::timeout(patience, ended).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => tracing::warn!(%error, "the last spans may not be exported"),
                Ok(Err(_)) | Err(_) => tracing::warn!("the last spans were not exported in time"),
            }
        }
    }
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            let patience = self.patience;
            // Shutting down waits for an export that may need this very thread to go on.
            std::thread::spawn(move || provider.shutdown_with_timeout(patience));
        }
    }
}

fn init_logs(settings: &TelemetrySettings) {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", settings.log_level))
        .unwrap_or_else(|_| EnvFilter::new(format!("{QUIET},info")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .log_internal_errors(false); // it would tell them on the very stream that fails, and panic
    // A second service in the same process finds logs set up already: that is as it should be.
    let _ = match settings.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
}
