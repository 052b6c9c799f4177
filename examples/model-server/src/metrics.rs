//! The metrics of the chat endpoint, in the text format that Prometheus scrapes.
//!
//! - `http_requests_total{code,method,handler}`
//! - `http_request_duration_seconds{code,method,handler}`, the time to the end of the whole
//!   answer, so to the last event of a streamed one
//!
//! A request whose client went away before its answer was whole has the code 499.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of what [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const CLIENT_WENT_AWAY: u32 = 499;

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    code: u32,
    method: &'static str,
    handler: &'static str,
}

impl Labels {
    fn chat(code: u32) -> Self {
        Self { code, method: "POST", handler: "/v1/chat/completions" }
    }
}

type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The registry and what is in it.
pub struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    durations: Durations,
}

impl Metrics {
    /// Makes a registry whose usual series already exist, so that a first error is an increase.
    pub fn new() -> Self {
        let requests = Family::<Labels, Counter>::default();
        let durations = Durations::new_with_constructor(|| Histogram::new(BUCKETS));
        let mut registry = Registry::default();
        registry.register("http_requests", "Chat requests that ended, by status code", requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Time to the end of the whole answer, in seconds",
            durations.clone(),
        );
        for code in [200, 500] {
            drop(requests.get_or_create(&Labels::chat(code)));
            drop(durations.get_or_create(&Labels::chat(code)));
        }
        Self { registry, requests, durations }
    }

    /// The text of all metrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn observe(&self, code: u32, started: Instant) {
        let labels = Labels::chat(code);
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(started.elapsed().as_secs_f64());
    }
}

/// One chat request that runs; it is counted once, when it ends in whatever way.
pub struct Running {
    metrics: Arc<Metrics>,
    started: Instant,
    code: u32,
}

impl Running {
    /// Starts the clock of one request.
    pub fn start(metrics: &Arc<Metrics>) -> Self {
        Self { metrics: Arc::clone(metrics), started: Instant::now(), code: CLIENT_WENT_AWAY }
    }

    /// Ends the request with a status code.
    pub fn end(mut self, code: u16) {
        self.code = u32::from(code);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.observe(self.code, self.started);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_that_queries_rely_on() {
        let metrics = Arc::new(Metrics::new());
        Running::start(&metrics).end(200);
        drop(Running::start(&metrics));
        let text = metrics.encode().unwrap();
        let labels = r#"method="POST",handler="/v1/chat/completions""#;
        for line in [
            format!("http_requests_total{{code=\"200\",{labels}}} 1"),
            format!("http_requests_total{{code=\"499\",{labels}}} 1"),
            format!("http_requests_total{{code=\"500\",{labels}}} 0"),
            format!("http_request_duration_seconds_count{{code=\"200\",{labels}}} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        for bound in ["0.005", "10.0", "+Inf"] {
            assert!(text.contains(&format!("le=\"{bound}\"")), "{bound}\n{text}");
        }
    }
}
