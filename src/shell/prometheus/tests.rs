//! The client and the pollers against a small server that speaks like Prometheus.

use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::Color;
use crate::api::reasons::Reason;
use crate::engine::plan::{Ask, BadAndTotal, GateQuery};
use crate::shell::clock::unix;
use crate::shell::testing::rollout;

/// Serves `answer(query)`; gives the base URL.
async fn serve(answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> String {
    serve_typed("counter", answer).await
}

/// The same, where every metric is said to be of type `kind`.
async fn serve_typed(kind: &'static str, answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let handler = move |form: String| {
        let query = form.split('&').find_map(|pair| pair.strip_prefix("query=")).map(decoded).unwrap();
        // unless a test says otherwise, nothing was there before
        let before = query.starts_with("last_over_time(") && !query.contains("old_");
        let response = if before { success("vector", &json!([])) } else { answer(&query) };
        async move { response }
    };
    let metadata = move |RawQuery(query): RawQuery| async move {
        let query = query.unwrap_or_default();
        let metric = query.split('&').find_map(|pair| pair.strip_prefix("metric=")).map(decoded).unwrap();
        let data = json!({ metric: [{ "type": kind, "help": "", "unit": "" }] });
        json!({ "status": "success", "data": data }).to_string()
    };
    let router = Router::new().route("/prefix/api/v1/query", post(handler.clone()));
    let router = router.route("/api/v1/query", post(handler)).route("/api/v1/metadata", get(metadata));
    let router = router.route("/prefix/api/v1/metadata", get(metadata));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Undoes the percent encoding of a form.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut all = parts.next().unwrap().to_owned();
    for part in parts {
        all.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
        all.push_str(&part[2..]);
    }
    all
}

fn success(kind: &str, result: &Value) -> Response {
    let body = json!({ "status": "success", "data": { "resultType": kind, "result": result } });
    body.to_string().into_response()
}

fn sources(url: &str) -> Sources {
    Sources::new(&BTreeMap::from([("default".to_owned(), url.to_owned())])).unwrap()
}

async fn value(answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> Result<f64, Reason> {
    let url = serve(answer).await;
    sources(&url).get("default").unwrap().value("q").await.map_err(|trouble| {
        assert!(!trouble.1.contains("secret"), "nothing of the remote body: {}", trouble.1);
        trouble.0
    })
}

#[tokio::test]
async fn a_value_is_exactly_one_finite_number() {
    assert_eq!(value(|_| success("scalar", &json!([1.0, "2.5"]))).await, Ok(2.5));
    let one = json!({ "metric": {}, "value": [1.0, "3"] });
    assert_eq!(value(|_| success("vector", &json!([{ "metric": {}, "value": [1.0, "3"] }]))).await, Ok(3.0));
    assert_eq!(value(|_| success("vector", &json!([]))).await, Err(Reason::NoData));
    assert_eq!(value(move |_| success("vector", &json!([one, one]))).await, Err(Reason::InvalidData));
    assert_eq!(value(|_| success("scalar", &json!([1.0, "NaN"]))).await, Err(Reason::NoTraffic));
    assert_eq!(value(|_| success("scalar", &json!([1.0, "+Inf"]))).await, Err(Reason::InvalidData));
    assert_eq!(value(|_| success("string", &json!([1.0, "secret"]))).await, Err(Reason::InvalidData));
    assert_eq!(value(|_| success("matrix", &json!([]))).await, Err(Reason::InvalidData));
}

#[tokio::test]
async fn a_source_that_fails_says_so_in_our_words() {
    let error = json!({ "status": "error", "errorType": "bad_data", "error": "secret" }).to_string();
    let refused = value(move |_| (StatusCode::BAD_REQUEST, error.clone()).into_response()).await;
    assert_eq!(refused, Err(Reason::QueryFailed));
    assert_eq!(value(|_| (StatusCode::BAD_GATEWAY, "secret").into_response()).await, Err(Reason::QueryFailed));
    assert_eq!(value(|_| Redirect::temporary("http://127.0.0.1:1/").into_response()).await, Err(Reason::QueryFailed));
    let nobody = sources("http://127.0.0.1:1").get("default").unwrap().value("q").await;
    assert_eq!(nobody.unwrap_err().0, Reason::QueryFailed);
    assert_eq!(sources("http://127.0.0.1:1").get("other").err().unwrap().0, Reason::UnknownSource);
}

#[test]
fn a_source_has_a_usable_url() {
    for url in ["ftp://x", "nonsense", "http://"] {
        let error = Sources::new(&BTreeMap::from([("x".to_owned(), url.to_owned())])).unwrap_err();
        assert!(error.starts_with("metric source x: "), "{error}");
    }
}

fn need(key: &str, since: Timestamp) -> GateNeed {
    let selectors = |color: &str| BadAndTotal { bad: format!("bad_{color}"), total: format!("total_{color}") };
    let ask = Ask::ErrorRate { candidate: selectors("green"), baseline: Some(selectors("blue")) };
    let query = GateQuery {
        gate: "errors".into(),
        source: "default".into(),
        candidate: Color::Green,
        since,
        warm_until: since,
        metrics: vec!["total".into()],
        ask,
    };
    GateNeed { key: key.into(), queries: vec![query], resume: Vec::new() }
}

#[tokio::test]
async fn a_poller_counts_both_colors_and_triggers() {
    let now = unix(Clock::System.precise());
    let url = serve(move |query| {
        let (count, seconds) = match query {
            _ if query.starts_with("total_green[") => (7.0, 1.0),
            _ if query.starts_with("total_blue[") => (70.0, 1.0),
            _ if query.starts_with("bad_blue[") => (1.0, 1.0),
            _ => return success("matrix", &json!([])),
        };
        let values = json!([[now - 20.0, "0"], [now - seconds, count.to_string()]]);
        success("matrix", &json!([{ "metric": { "__name__": "x" }, "values": values }]))
    })
    .await;
    let (triggers, mut queue) = Triggers::new();
    let pollers = Pollers::new(sources(&url), Clock::System, triggers, Arc::new(Metrics::new()));
    let since = crate::shell::clock::from_unix(now - 10.0);
    let bot = rollout("bot");
    pollers.follow(&bot, Some(&need("one", since)));
    let key = tokio::time::timeout(Duration::from_secs(5), futures::StreamExt::next(&mut queue)).await.unwrap();
    assert_eq!(key, Some(Key::new("ml", "bot")));
    let readings = pollers.readings("uid-bot");
    let Answer::Counted { candidate, baseline } = &readings["errors"].answer else { panic!("{readings:?}") };
    assert_eq!((candidate.now.total, candidate.now.bad, candidate.now.seen), (7, 0, true));
    let baseline = baseline.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((baseline.now.total, baseline.now.bad), (70, 1));
    assert_eq!(readings["errors"].key, "one");
    pollers.follow(&bot, None);
    assert!(pollers.readings("uid-bot").is_empty());
}

/// Asks once for `ask`, of which `metric` must be a counter.
async fn once(url: &str, ask: Ask, metric: &str, started: f64) -> Result<Answer, Reason> {
    let since = crate::shell::clock::from_unix(started);
    let query = GateQuery {
        gate: "g".into(),
        source: "default".into(),
        candidate: Color::Green,
        since,
        warm_until: since,
        metrics: vec![metric.to_owned()],
        ask,
    };
    let need = GateNeed { key: "k".into(), queries: vec![query.clone()], resume: Vec::new() };
    let mut gate = Gate::new(&query, &need);
    gate.ask(&sources(url), Clock::System.precise()).await.map_err(|trouble| trouble.0)
}

fn rate(bad: &str, total: &str) -> Ask {
    Ask::ErrorRate { candidate: BadAndTotal { bad: bad.into(), total: total.into() }, baseline: None }
}

/// A matrix of one series with these counts, one a second, the last one just now.
fn counts(now: f64, values: &[f64]) -> Response {
    let first = now - values.len() as f64;
    let values: Vec<_> =
        values.iter().enumerate().map(|(at, value)| json!([first + at as f64, value.to_string()])).collect();
    success("matrix", &json!([{ "metric": { "__name__": "x" }, "values": values }]))
}

#[tokio::test]
async fn a_gauge_is_refused_whatever_its_numbers_look_like() {
    let now = unix(Clock::System.precise());
    let rising = move |_: &str| counts(now, &[1.0, 2.0, 3.0]);
    let url = serve_typed("gauge", rising).await;
    assert_eq!(once(&url, rate("b", "t"), "running", now - 30.0).await, Err(Reason::NotACounter));
    // a path before the API, as behind a proxy
    assert_eq!(once(&format!("{url}/prefix"), rate("b", "t"), "running", now - 30.0).await, Err(Reason::NotACounter));
    // a source that does not know: the samples themselves tell
    let url = serve_typed("unknown", move |_| counts(now, &[3.0, 2.0, 4.0, 3.0, 5.0, 4.0, 6.0, 5.0, 7.0, 6.0])).await;
    assert_eq!(once(&url, rate("b", "t"), "running", now - 30.0).await, Err(Reason::NotACounter));
    let url = serve(rising).await;
    assert!(once(&url, rate("b", "t"), "requests_total", now - 30.0).await.is_ok());
}

#[tokio::test]
async fn bad_requests_are_never_more_than_all_although_a_scrape_comes_in_between() {
    let now = unix(Clock::System.precise());
    // whoever is asked second knows one more scrape
    let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let url = serve(move |_| {
        let more = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        counts(now, if more == 0 { &[0.0, 10.0] } else { &[0.0, 10.0, 20.0] })
    })
    .await;
    let Ok(Answer::Counted { candidate, .. }) = once(&url, rate("b", "t"), "t", now - 30.0).await else { panic!() };
    assert_eq!((candidate.now.bad, candidate.now.total), (10, 20));
}

#[tokio::test]
async fn a_native_histogram_is_counted_like_a_classic_one() {
    let now = unix(Clock::System.precise());
    let url = serve(move |query| {
        assert_eq!(query, format!("h[{}s]", 330));
        let histogram = |count: u32, fast: u32, slow: u32| {
            let buckets = json!([
                [0, "0.5", "0.5946035575013605", fast.to_string()],
                [0, "4", "4.756828460010884", slow.to_string()]
            ]);
            json!({ "count": count.to_string(), "sum": "1", "buckets": buckets })
        };
        let samples = json!([[now - 20.0, histogram(10, 10, 0)], [now - 5.0, histogram(115, 110, 5)]]);
        success("matrix", &json!([{ "metric": { "__name__": "h" }, "histograms": samples }]))
    })
    .await;
    let ask = Ask::Histogram { candidate: "h".into(), baseline: None };
    let answer = once(&url, ask, "h", now.floor() - 29.0).await;
    let Ok(Answer::Counted { candidate, .. }) = answer else { panic!("{answer:?}") };
    let counts = candidate.now;
    let at = |bound: f64| counts.at_most[counts.bounds.iter().position(|one| (one - bound).abs() < 1e-9).unwrap()];
    assert_eq!((counts.total, at(0.5), at(0.594_603_557_501_360_5), at(4.0)), (115, 0, 110, 110));
}

#[tokio::test]
async fn an_answer_that_is_no_answer_holds() {
    for (body, reason) in [
        ("<html>sign in</html>".to_owned(), Reason::QueryFailed),
        (json!({ "status": "error", "errorType": "x", "error": "y" }).to_string(), Reason::QueryFailed),
        (format!(r#"{{"status":"success","data":"{}"}}"#, "x".repeat(5 << 20)), Reason::QueryFailed),
        (
            json!({ "status": "success", "data": { "resultType": "vector", "result": [] } }).to_string(),
            Reason::InvalidData,
        ),
        (
            json!({ "status": "success", "data": { "resultType": "string", "result": [1, "x"] } }).to_string(),
            Reason::InvalidData,
        ),
    ] {
        let url = serve(move |_| body.clone().into_response()).await;
        assert_eq!(once(&url, rate("b", "t"), "t", 0.0).await, Err(reason));
    }
    let url = serve(|_| success("matrix", &json!([]))).await;
    let Ok(Answer::Counted { candidate, .. }) = once(&url, rate("b", "t"), "t", unix(Clock::System.precise())).await
    else {
        panic!()
    };
    assert!(!candidate.now.seen, "no series is no data, and not zero requests");
}

#[tokio::test]
async fn more_samples_than_can_be_read_are_asked_for_in_a_shorter_time() {
    let now = unix(Clock::System.precise());
    let url = serve(move |query| {
        if query.starts_with("max(count_over_time(t[300s]))") {
            return success("scalar", &json!([now, "300"]));
        }
        let seconds: u64 = query.split_once('[').unwrap().1.strip_suffix("s]").unwrap().parse().unwrap();
        if seconds > 60 { "x".repeat(5 << 20).into_response() } else { counts(now, &[5.0, 6.0, 7.0]) }
    })
    .await;
    let Ok(Answer::Counted { candidate, .. }) = once(&url, rate("b", "t"), "t", now - 2.5).await else { panic!() };
    assert_eq!(candidate.now.total, 2);
}

#[tokio::test]
async fn a_source_that_hangs_delays_nobody_else() {
    let now = unix(Clock::System.precise());
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = serve(move |_| counts(now, &[1.0, 2.0])).await;
    let urls = [("default", good), ("slow", format!("http://{}", hanging.local_addr().unwrap()))];
    let sources = Sources::new(&urls.map(|(name, url)| (name.to_owned(), url)).into()).unwrap();
    let (triggers, _queue) = Triggers::new();
    let pollers = Pollers::new(sources, Clock::System, triggers, Arc::new(Metrics::new()));
    let query = |gate: &str, source: &str| GateQuery {
        gate: gate.into(),
        source: source.into(),
        candidate: Color::Green,
        since: Timestamp::UNIX_EPOCH,
        warm_until: Timestamp::UNIX_EPOCH,
        metrics: Vec::new(),
        ask: Ask::Value { query: "q".into() },
    };
    let need = |queries| GateNeed { key: "k".into(), queries, resume: Vec::new() };
    pollers.follow(&rollout("stuck"), Some(&need(vec![query("a", "slow")])));
    pollers.follow(&rollout("bot"), Some(&need(vec![query("a", "slow"), query("b", "default")])));
    let answered = async {
        while !pollers.readings("uid-bot").contains_key("b") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), answered).await.expect("the gate with a good source is answered");
    assert!(!pollers.readings("uid-bot").contains_key("a"));
}

#[tokio::test]
async fn a_counter_that_was_not_scraped_for_long_was_not_born_in_the_window() {
    let now = unix(Clock::System.precise());
    let url = serve(move |query| {
        if query.starts_with("last_over_time(old_") {
            let one = json!({ "metric": { "__name__": "x" }, "value": [now - 330.0, "1000000"] });
            return success("vector", &json!([one]));
        }
        counts(now, &[1_000_010.0, 1_000_020.0])
    })
    .await;
    let total = |answer| match answer {
        Ok(Answer::Counted { candidate, .. }) => candidate.now.total,
        other => panic!("{other:?}"),
    };
    assert_eq!(total(once(&url, rate("old_b", "old_t"), "t", now - 30.0).await), 20);
    assert_eq!(total(once(&url, rate("b", "t"), "t", now - 30.0).await), 1_000_020, "one that was not there was");
}
