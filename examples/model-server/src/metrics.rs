//! The metrics of the chat endpoint, in the text format that Prometheus scrapes.
//!
//! - `http_requests_total{code,method,handler}`
//! - `http_request_duration_seconds{code,method,handler}`, the time to the end of the whole
//!   answer, so to the last event of a streamed one
//! - `chat_requests_finished_total{finish_reason}`: every request once, as `stop` when its answer
//!   was whole, `abort` when the client went away before that, and `error` otherwise
//! - `time_to_first_token_seconds`: the time to the first token of a streamed answer, and to the
//!   whole of a plain one; of answers that failed nothing
//! - `time_per_output_token_seconds`: of a streamed answer that came to its end, the mean time of
//!   a token, those after the first
//!
//! A request whose client went away before its answer was whole has the code 499.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of what [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// A single token takes less than an answer.
const TOKEN_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5];
const OK: u32 = 200;
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

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Finish {
    finish_reason: &'static str,
}

impl Finish {
    const STOP: Self = Self { finish_reason: "stop" };
    const ERROR: Self = Self { finish_reason: "error" };
    const ABORT: Self = Self { finish_reason: "abort" };

    fn of(code: u32) -> Self {
        match code {
            OK => Self::STOP,
            CLIENT_WENT_AWAY => Self::ABORT,
            _ => Self::ERROR,
        }
    }
}

type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The registry and what is in it.
pub struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    durations: Durations,
    finished: Family<Finish, Counter>,
    first_token: Histogram,
    per_token: Histogram,
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
        let finished = Family::<Finish, Counter>::default();
        let (first_token, per_token) = (Histogram::new(BUCKETS), Histogram::new(TOKEN_BUCKETS));
        registry.register("chat_requests_finished", "Chat requests that ended, by how", finished.clone());
        registry.register(
            "time_to_first_token_seconds",
            "Time to the first token of an answer, in seconds",
            first_token.clone(),
        );
        registry.register(
            "time_per_output_token_seconds",
            "Mean time of a token of a streamed answer after its first, in seconds",
            per_token.clone(),
        );
        for finish in [Finish::STOP, Finish::ERROR, Finish::ABORT] {
            drop(finished.get_or_create(&finish));
        }
        for code in [OK, 500] {
            drop(requests.get_or_create(&Labels::chat(code)));
            drop(durations.get_or_create(&Labels::chat(code)));
        }
        Self { registry, requests, durations, finished, first_token, per_token }
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
        self.finished.get_or_create(&Finish::of(code)).inc();
    }
}

/// One chat request that runs; it is counted once, when it ends in whatever way.
pub struct Running {
    metrics: Arc<Metrics>,
    started: Instant,
    tokens: Tokens,
    code: u32,
}

/// What has been sent of an answer.
#[derive(Default)]
struct Tokens {
    count: u32,
    /// When the first and the last token went out.
    span: Option<(Instant, Instant)>,
}

impl Tokens {
    /// The time of one token after the first; none if there is only one.
    fn mean(&self) -> Option<Duration> {
        let (first, last) = self.span?;
        last.duration_since(first).checked_div(self.count.saturating_sub(1))
    }
}

impl Running {
    /// Starts the clock of one request.
    pub fn start(metrics: &Arc<Metrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            started: Instant::now(),
            tokens: Tokens::default(),
            code: CLIENT_WENT_AWAY,
        }
    }

    /// Notes that a token is sent; a plain answer is one.
    pub fn token(&mut self) {
        let now = Instant::now();
        if self.tokens.span.is_none() {
            self.metrics.first_token.observe(now.duration_since(self.started).as_secs_f64());
        }
        let first = self.tokens.span.map_or(now, |span| span.0);
        self.tokens.span = Some((first, now));
        self.tokens.count += 1;
    }

    /// Ends the request with a status code.
    pub fn end(mut self, code: u16) {
        if let Some(mean) = self.tokens.mean() {
            self.metrics.per_token.observe(mean.as_secs_f64());
        }
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

    fn assert_lines(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.encode().unwrap();
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn every_request_finishes_once_in_one_way() {
        let metrics = Arc::new(Metrics::new());
        assert_lines(&metrics, &[r#"chat_requests_finished_total{finish_reason="error"} 0"#]);
        for code in [200, 200, 200, 500, 503] {
            Running::start(&metrics).end(code);
        }
        drop(Running::start(&metrics));
        assert_lines(
            &metrics,
            &[
                "# TYPE chat_requests_finished counter",
                r#"chat_requests_finished_total{finish_reason="stop"} 3"#,
                r#"chat_requests_finished_total{finish_reason="error"} 2"#,
                r#"chat_requests_finished_total{finish_reason="abort"} 1"#,
            ],
        );
    }

    #[test]
    fn tokens_are_timed_from_the_first_and_means_only_at_the_end() {
        let metrics = Arc::new(Metrics::new());
        let sent = |tokens: usize| {
            let mut running = Running::start(&metrics);
            (0..tokens).for_each(|_| running.token());
            running
        };
        sent(0).end(500);
        sent(1).end(200);
        sent(5).end(200);
        drop(sent(5));
        assert_lines(
            &metrics,
            &[
                "# TYPE time_to_first_token_seconds histogram",
                "time_to_first_token_seconds_count 3",
                r#"time_to_first_token_seconds_bucket{le="10.0"} 3"#,
                "# TYPE time_per_output_token_seconds histogram",
                "time_per_output_token_seconds_count 1",
                r#"time_per_output_token_seconds_bucket{le="2.5"} 1"#,
            ],
        );
    }

    #[test]
    fn the_mean_is_that_of_the_tokens_after_the_first() {
        let first = Instant::now();
        let tokens =
            |count, milliseconds| Tokens { count, span: Some((first, first + Duration::from_millis(milliseconds))) };
        assert_eq!(tokens(5, 200).mean(), Some(Duration::from_millis(50)));
        assert_eq!(tokens(1, 0).mean(), None);
        assert_eq!(Tokens::default().mean(), None);
    }

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
