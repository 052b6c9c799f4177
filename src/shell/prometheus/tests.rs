//! The client and the pollers against a small server that speaks like Prometheus.

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::post;
use serde_json::{Value, json};

use super::*;
use crate::api::reasons::Reason;
use crate::shell::testing::rollout;

/// Serves `answer(query)`; gives the base URL.
async fn serve(answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let handler = move |form: String| {
        let query = form.split('&').find_map(|pair| pair.strip_prefix("query=")).map(decoded).unwrap();
        let response = answer(&query);
        async move { response }
    };
    let router = Router::new().route("/api/v1/query", post(handler));
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
    assert_eq!(value(|_| success("scalar", &json!([1.0, "NaN"]))).await, Err(Reason::InvalidData));
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
    let query = GateQuery { gate: "errors".into(), source: "default".into(), candidate: Color::Green, ask };
    GateNeed { key: key.into(), since, queries: vec![query], resume: Vec::new() }
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
    let baseline = baseline.as_ref().unwrap();
    assert_eq!((baseline.now.total, baseline.now.bad), (70, 1));
    assert_eq!(readings["errors"].key, "one");
    pollers.follow(&bot, None);
    assert!(pollers.readings("uid-bot").is_empty());
}
