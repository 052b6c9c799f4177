//! The HTTP port: `/metrics`, `/healthz` and `/readyz`. Read only; it knows nothing of rollouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the probes answer.
#[derive(Debug, Default)]
pub struct Health {
    ended: AtomicBool,
    synced: AtomicBool,
}

impl Health {
    /// The reconcile loop has ended: the process is of no use any more.
    pub fn set_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The caches hold everything. A standby is ready too: it must be able to take over at once.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Relaxed);
    }

    /// Whether the reconcile loop runs, or has not started yet.
    pub fn alive(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// Whether the caches are full and the process is alive.
    pub fn ready(&self) -> bool {
        self.alive() && self.synced.load(Ordering::Relaxed)
    }
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let probe =
        |check: fn(&Health) -> bool| move |State(health): State<Arc<Health>>| async move { answer(check(&health)) };
    let router = Router::new()
        .route("/healthz", get(probe(Health::alive)))
        .route("/readyz", get(probe(Health::ready)))
        .with_state(health)
        .route("/metrics", get(move || async move { scrape(&metrics) }));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn answer(good: bool) -> (StatusCode, &'static str) {
    if good { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ok\n") }
}

fn scrape(metrics: &Metrics) -> impl IntoResponse + use<> {
    match metrics.encode() {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_needs_caches_and_life() {
        let health = Health::default();
        assert!(health.alive() && !health.ready());
        health.set_synced();
        assert!(health.ready());
        health.set_ended();
        assert!(!health.alive() && !health.ready());
    }
}
