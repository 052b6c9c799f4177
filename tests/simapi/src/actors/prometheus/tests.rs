//! Scrapes: what is counted, when, and what of it is seen.

use serde_json::{Value, json};

use super::*;
use crate::actors::users::{Kind, Outcome};

/// A round number of seconds since 1970.
pub const EPOCH: u64 = 1_700_000_000_000;

/// One that scrapes every 10 s at once as it finds a target.
pub fn prometheus() -> Prometheus {
    prometheus_with(Config { epoch_ms: EPOCH, interval_ms: 10_000, discovery_ms: 0, ..Config::default() })
}

/// One whose every target is scraped at the round multiples of the interval.
pub fn prometheus_with(config: Config) -> Prometheus {
    Prometheus::new(config, hash("blue-0"))
}

pub fn pod(name: &str, incarnation: u64) -> Pod {
    let service = name.split('-').next().unwrap_or_default();
    Pod { name: name.into(), service: service.into(), incarnation, up: true }
}

pub fn finished(pod: &str, incarnation: u64, status: u16, milliseconds: u64) -> Finished {
    let outcome = match status {
        200 => Outcome::Answered,
        499 => Outcome::Abandoned,
        _ => Outcome::ModelError,
    };
    Finished {
        kind: Kind::Plain,
        outcome,
        status,
        why: "",
        started_ms: 1_000,
        ended_ms: 1_000 + milliseconds,
        service: pod.split('-').next().unwrap_or_default().into(),
        pod: pod.into(),
        incarnation,
        version: "m@1".into(),
    }
}

/// The `data.result` of a query, at `now`.
pub fn ask(prometheus: &Prometheus, query: &str, now: u64) -> Value {
    let (status, body) = prometheus.answer("/api/v1/query", &[("query".into(), query.into())], now);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 200, "{body}");
    body["data"]["result"].clone()
}

/// The values of the only series of a range, with their seconds since the epoch.
pub fn values(prometheus: &Prometheus, query: &str, now: u64) -> Vec<(f64, String)> {
    let result = ask(prometheus, query, now);
    let series = result.as_array().unwrap();
    assert!(series.len() <= 1, "{result}");
    let values = series.first().map(|one| one["values"].as_array().unwrap().clone()).unwrap_or_default();
    let value = |pair: Value| (pair[0].as_f64().unwrap() - (EPOCH / 1000) as f64, pair[1].as_str().unwrap().to_owned());
    values.into_iter().map(value).collect()
}

fn pairs(expected: &[(f64, &str)]) -> Vec<(f64, String)> {
    expected.iter().map(|(at, value)| (*at, (*value).to_owned())).collect()
}

const OK: &str = "http_requests_total{code=\"200\"}";

#[test]
fn a_scrape_shows_what_was_counted_before_it() {
    let mut prometheus = prometheus();
    prometheus.targets(&[pod("blue-0", 0)], 0);
    assert_eq!(prometheus.wake(), 10_000);
    for _ in 0..3 {
        prometheus.count(&finished("blue-0", 0, 200, 100));
    }
    prometheus.advance(10_000);
    prometheus.count(&finished("blue-0", 0, 500, 100));
    prometheus.count(&finished("blue-0", 0, 200, 100));
    prometheus.advance(25_000);
    let expected = pairs(&[(0.0, "0"), (10.0, "3"), (20.0, "4")]);
    assert_eq!(values(&prometheus, &format!("{OK}[1m]"), 25_000), expected);
    let expected = pairs(&[(0.0, "0"), (10.0, "0"), (20.0, "1")]);
    assert_eq!(values(&prometheus, "http_requests_total{code=~\"5..\"}[1m]", 25_000), expected);
    let labels = json!({
        "__name__": "http_requests_total", "code": "200", "handler": "/v1/chat/completions", "method": "POST",
        "instance": "10.0.0.1:8080", "job": "pods", "namespace": "ml", "pod": "blue-0", "service": "blue",
    });
    let now = json!([{ "metric": labels, "value": [EPOCH / 1000 + 25, "4"] }]);
    assert_eq!(ask(&prometheus, OK, 25_000), now);
}

#[test]
fn a_histogram_has_the_buckets_of_the_model_server() {
    let mut prometheus = prometheus();
    for milliseconds in [5, 6, 250, 251, 10_000, 60_000] {
        prometheus.count(&finished("blue-0", 0, 200, milliseconds));
    }
    prometheus.targets(&[pod("blue-0", 0)], 0);
    let result = ask(&prometheus, "http_request_duration_seconds_bucket{code=\"200\"}", 0);
    let buckets: Vec<_> = result
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {}", one["metric"]["le"].as_str().unwrap(), one["value"][1].as_str().unwrap()))
        .collect();
    let expected = [
        "0.005 1", "0.01 2", "0.025 2", "0.05 2", "0.1 2", "0.25 3", "0.5 4", "1.0 4", "2.5 4", "5.0 4", "10.0 5",
        "+Inf 6",
    ];
    assert_eq!(buckets, expected);
    let value = |query: &str| ask(&prometheus, query, 0)[0]["value"][1].clone();
    assert_eq!(value("http_request_duration_seconds_sum{code=\"200\"}"), "70.512");
    assert_eq!(value("http_request_duration_seconds_count{code=\"200\"}"), "6");
    assert_eq!(value("chat_requests_finished_total{finish_reason=\"stop\"}"), "6");
    // all series that a server shows before any request, and no others
    assert_eq!(ask(&prometheus, "count({pod=\"blue-0\"})", 0)[0]["value"][1], "33");
}

#[test]
fn a_restarted_pod_counts_from_zero_in_the_same_series() {
    let mut prometheus = prometheus();
    prometheus.targets(&[pod("blue-0", 0)], 0);
    for status in [200, 200, 499] {
        prometheus.count(&finished("blue-0", 0, status, 100));
    }
    prometheus.advance(10_000);
    prometheus.targets(&[Pod { up: false, ..pod("blue-0", 0) }], 12_000);
    prometheus.advance(20_000);
    prometheus.targets(&[pod("blue-0", 1)], 24_000);
    prometheus.count(&finished("blue-0", 0, 200, 100));
    prometheus.count(&finished("blue-0", 1, 200, 100));
    prometheus.advance(40_000);
    let expected = pairs(&[(0.0, "0"), (10.0, "2"), (30.0, "1"), (40.0, "1")]);
    assert_eq!(values(&prometheus, &format!("{OK}[1h]"), 45_000), expected);
    // the code that nobody has had since has ended
    let gone = "http_requests_total{code=\"499\"}";
    assert_eq!(values(&prometheus, &format!("{gone}[1h]"), 45_000), pairs(&[(10.0, "1")]));
    assert_eq!(ask(&prometheus, gone, 45_000), json!([]));
    assert_eq!(ask(&prometheus, gone, 15_000)[0]["value"][1], "1");
    assert_eq!(ask(&prometheus, OK, 25_000), json!([]));
}

#[test]
fn a_vanished_pods_series_end_with_its_next_scrape() {
    let mut prometheus = prometheus();
    prometheus.targets(&[pod("blue-0", 0)], 0);
    prometheus.count(&finished("blue-0", 0, 200, 100));
    prometheus.advance(12_000);
    prometheus.targets(&[], 12_000);
    prometheus.advance(19_999);
    assert_eq!(ask(&prometheus, OK, 19_999)[0]["value"][1], "1");
    prometheus.advance(60_000);
    assert_eq!(prometheus.wake(), u64::MAX);
    assert_eq!(ask(&prometheus, OK, 20_000), json!([]));
    assert_eq!(values(&prometheus, &format!("{OK}[1h]"), 60_000), pairs(&[(0.0, "0"), (10.0, "1")]));
    assert_eq!(ask(&prometheus, &format!("last_over_time({OK}[1h])"), 60_000)[0]["value"][1], "1");
    // and is there again, as it was
    prometheus.targets(&[pod("blue-0", 0)], 65_000);
    prometheus.advance(70_000);
    assert_eq!(ask(&prometheus, OK, 70_000)[0]["value"][1], "1");
}

#[test]
fn each_target_has_a_phase_of_its_own() {
    let mut prometheus = prometheus();
    prometheus.targets(&[pod("blue-0", 0), pod("blue-1", 0), pod("green-2", 0)], 0);
    let mut at = Vec::new();
    while prometheus.wake() <= 40_000 {
        let now = prometheus.wake();
        at.push(now % 10_000);
        prometheus.advance(now);
    }
    at.sort_unstable();
    at.dedup();
    assert_eq!(at.len(), 3, "{at:?}");
    assert_eq!(
        ask(&prometheus, "count(count_over_time(http_requests_total{code=\"200\"}[1h]))", 40_000)[0]["value"][1],
        "3"
    );
}

#[test]
fn discovery_takes_its_time() {
    let mut late = 0;
    for seed in 0..50 {
        let config = Config { interval_ms: 100, discovery_ms: 5_000, ..Config::default() };
        let mut prometheus = Prometheus::new(config, seed);
        prometheus.targets(&[pod("blue-0", 0)], 1_000);
        let first = prometheus.wake();
        assert!((1_000..=6_000).contains(&first));
        late += u32::from(first > 3_500);
        prometheus.targets(&[pod("blue-0", 0), pod("blue-1", 0)], 1_000);
        assert_eq!(prometheus.wake(), first);
        prometheus.advance(7_000);
        assert_eq!(ask(&prometheus, "count(http_requests_total{code=\"200\"})", 7_000)[0]["value"][1], "2");
        // the same again is no change
        prometheus.targets(&[pod("blue-0", 3), pod("blue-1", 0)], 7_000);
        assert!(prometheus.found.is_none());
    }
    assert!((10..40).contains(&late));
}

#[test]
fn outages_skipped_and_timed_out_scrapes_leave_gaps() {
    let mut prometheus = prometheus();
    prometheus.outage(15_000, 35_000);
    prometheus.targets(&[pod("blue-0", 0)], 0);
    prometheus.advance(50_000);
    let expected = pairs(&[(0.0, "0"), (10.0, "0"), (40.0, "0"), (50.0, "0")]);
    assert_eq!(values(&prometheus, &format!("{OK}[1h]"), 50_000), expected);
    assert_eq!(prometheus.answer("/api/v1/query", &[("query".into(), "1".into())], 20_000).0, 503);
    assert!(!prometheus.is_up(15_000) && prometheus.is_up(35_000));
    // the outage ended nothing
    assert_eq!(ask(&prometheus, &format!("{OK} offset 20s"), 50_000)[0]["value"][1], "0");
    for (skipped, timed_out, ends) in [(0.3, 0.0, false), (0.0, 0.3, true)] {
        let config = Config { epoch_ms: EPOCH, discovery_ms: 0, skipped, timed_out, ..Config::default() };
        let mut prometheus = prometheus_with(config);
        prometheus.targets(&[pod("blue-0", 0)], 0);
        prometheus.advance(1_000_000);
        let count = values(&prometheus, &format!("{OK}[1h]"), 1_000_000).len();
        assert!((600..800).contains(&count), "{count}");
        let there = (500..1000).filter(|at| ask(&prometheus, OK, at * 1000) != json!([])).count();
        assert_eq!(there < 500, ends, "{there}");
    }
}

#[test]
fn what_is_older_than_the_retention_is_forgotten() {
    let mut prometheus =
        prometheus_with(Config { epoch_ms: EPOCH, retention_ms: 60_000, discovery_ms: 0, ..Config::default() });
    prometheus.targets(&[pod("blue-0", 0)], 0);
    prometheus.advance(30_000);
    prometheus.count(&finished("blue-0", 0, 499, 5));
    prometheus.advance(200_000);
    for code in ["200", "499"] {
        let found = values(&prometheus, &format!("http_requests_total{{code=\"{code}\"}}[1h]"), 200_000);
        assert_eq!((found.len(), found[0].0), (61, 140.0));
        assert_eq!(found[60].1, if code == "200" { "0" } else { "1" });
    }
}

#[test]
fn requests_that_never_got_to_a_model_are_not_counted() {
    let mut prometheus = prometheus();
    for outcome in [Outcome::Cut, Outcome::Refused, Outcome::NotRouted] {
        prometheus.count(&Finished { outcome, ..finished("blue-0", 0, 200, 5) });
    }
    prometheus.targets(&[pod("blue-0", 0)], 0);
    assert_eq!(ask(&prometheus, "sum(http_requests_total)", 0)[0]["value"][1], "0");
}

#[test]
fn metadata_has_the_names_of_families() {
    let mut prometheus = prometheus();
    let metadata = |prometheus: &Prometheus, metric: &str| {
        let (status, body) = prometheus.answer("/api/v1/metadata", &[("metric".into(), metric.into())], 0);
        assert_eq!(status, 200);
        serde_json::from_slice::<Value>(&body).unwrap()
    };
    assert_eq!(metadata(&prometheus, "http_requests"), json!({ "status": "success", "data": {} }));
    prometheus.targets(&[pod("blue-0", 0)], 0);
    let known = json!([{ "type": "counter", "unit": "", "help": "Chat requests that ended, by status code" }]);
    assert_eq!(metadata(&prometheus, "http_requests")["data"]["http_requests"], known);
    assert_eq!(metadata(&prometheus, "http_requests_total")["data"], json!({}));
    assert_eq!(metadata(&prometheus, "")["data"].as_object().unwrap().len(), 3);
    assert_eq!(prometheus.answer("/api/v1/rules", &[], 0).0, 404);
}
