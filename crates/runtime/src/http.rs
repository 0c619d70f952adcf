//! `/metrics`, `/healthz` and `/readyz`.

use crate::{health::Health, metrics::Metrics};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Shared {
    health: Health,
    metrics: Arc<Metrics>,
    stalled_after: Duration,
}

/// Serves until `stop`, and says where.
///
/// # Errors
/// The address is none, or is taken.
pub async fn serve(
    listen: &str,
    health: Health,
    metrics: Arc<Metrics>,
    stalled_after: Duration,
    stop: CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let app = Router::new()
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Shared { health, metrics, stalled_after });
    tokio::spawn(async move {
        let served = axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "metrics and health are not served any more");
        }
    });
    Ok(address)
}

async fn metrics_text(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], shared.metrics.encode())
}

async fn healthz(State(shared): State<Shared>) -> impl IntoResponse {
    answer("alive", "stalled", &shared.health.stalled(shared.stalled_after))
}

async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    answer("ready", "waiting for", &shared.health.waiting_for())
}

fn answer(good: &str, bad: &str, faults: &[String]) -> (StatusCode, String) {
    if faults.is_empty() {
        (StatusCode::OK, format!("{good}\n"))
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{bad}: {}\n", faults.join(", ")))
    }
}
