//! Queries: edges of ranges, staleness, functions, errors; and corruption.

use serde_json::{Value, json};

use super::corrupt::Corruption;
use super::tests::{EPOCH, ask, finished, pod, prometheus, values};
use super::*;

/// `blue-0` counts 2 each 10 s and starts again after 30 s; `green-1`, half as fast, is there from 20 s on,
/// and its last scrape is before its last count.
fn world() -> Prometheus {
    let mut prometheus = prometheus();
    for step in 0..=6_u64 {
        let now = step * 10_000;
        let incarnation = u64::from(step > 3);
        let mut pods = vec![pod("blue-0", incarnation)];
        if step >= 2 {
            pods.push(pod("green-1", 0));
        }
        prometheus.targets(&pods, now.saturating_sub(1));
        if step > 0 {
            prometheus.count(&finished("blue-0", incarnation, 200, 100));
            prometheus.count(&finished("blue-0", incarnation, 200, 2_000));
        }
        if step >= 2 {
            prometheus.count(&finished("green-1", 0, 200, 100));
        }
        prometheus.advance(now);
    }
    prometheus
}

const BLUE: &str = "http_requests_total{service=\"blue\",code=\"200\"}";

fn number(prometheus: &Prometheus, query: &str, now: u64) -> f64 {
    let result = ask(prometheus, query, now);
    let value = if result[0].is_number() { &result[1] } else { &result[0]["value"][1] };
    value.as_str().unwrap_or_else(|| panic!("{query}: {result}")).parse().unwrap()
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

#[test]
fn a_range_is_open_at_its_left_end_and_closed_at_its_right() {
    let prometheus = world();
    let times = |query: &str, now| values(&prometheus, query, now).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(times(&format!("{BLUE}[30s]"), 40_000), [20.0, 30.0, 40.0]);
    assert_eq!(times(&format!("{BLUE}[30001ms]"), 40_000), [10.0, 20.0, 30.0, 40.0]);
    assert_eq!(times(&format!("{BLUE}[30s]"), 39_999), [10.0, 20.0, 30.0]);
    assert_eq!(times(&format!("{BLUE}[10s]"), 39_999), [30.0]);
    assert_eq!(times(&format!("{BLUE}[9s]"), 39_999), Vec::<f64>::new());
    assert_eq!(times(&format!("{BLUE}[30s] offset 10s"), 50_000), [20.0, 30.0, 40.0]);
    let all: Vec<_> = values(&prometheus, &format!("{BLUE}[1h]"), 60_000).into_iter().map(|(_, value)| value).collect();
    assert_eq!(all, ["0", "2", "4", "6", "2", "4", "6"]);
}

#[test]
fn time_is_that_of_the_question_if_it_names_one() {
    let prometheus = world();
    let at = |time: &str| {
        let params =
            [("query".to_owned(), format!("last_over_time({BLUE}[1h])")), ("time".to_owned(), time.to_owned())];
        let (status, body) = prometheus.answer("/api/v1/query", &params, 60_000);
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, answer) = at("1700000030.5");
    assert_eq!(status, 200);
    assert_eq!(answer["data"]["result"][0]["value"], json!([1_700_000_030.5, "6"]));
    assert_eq!(answer["data"]["result"][0]["metric"]["__name__"], "http_requests_total");
    assert_eq!(at("1699999999").1["data"]["result"], json!([]));
    assert_eq!(at("now").0, 400);
}

#[test]
fn an_instant_looks_back_five_minutes() {
    let prometheus = world();
    assert_eq!(ask(&prometheus, BLUE, 60_000)[0]["value"], json!([EPOCH / 1000 + 60, "6"]));
    assert_eq!(ask(&prometheus, BLUE, 359_999)[0]["value"][1], "6");
    assert_eq!(ask(&prometheus, BLUE, 360_000), json!([]));
}

#[test]
fn the_pace_of_scrapes_is_known() {
    let prometheus = world();
    assert!(near(number(&prometheus, "max(count_over_time(http_requests_total[60s]))", 60_000), 6.0));
    assert_eq!(ask(&prometheus, "max(count_over_time(nothing[60s]))", 60_000), json!([]));
    assert_eq!(ask(&prometheus, "max(count_over_time(http_requests_total[60s]))", 60_000)[0]["metric"], json!({}));
}

#[test]
fn increase_is_stretched_as_prometheus_stretches_it() {
    let prometheus = world();
    // samples at 30, 40, 50, 60 s: 6 2 4 6, a reset, 6 in 30 s; the range begins 5 s before them
    assert!(near(number(&prometheus, &format!("increase({BLUE}[35s])"), 60_000), 6.0 * 35.0 / 30.0));
    assert!(near(number(&prometheus, &format!("rate({BLUE}[35s])"), 60_000), 6.0 / 30.0));
    // 12 s are more than 11: only half an interval is added at the end
    assert!(near(number(&prometheus, &format!("increase({BLUE}[42s])"), 72_000), 6.0 * (30.0 + 0.0 + 5.0) / 30.0));
    // not to below zero: from 0 s on there is nothing to add before
    assert!(near(number(&prometheus, &format!("increase({BLUE}[25s])"), 20_000), 4.0));
    // one sample is not enough
    assert_eq!(ask(&prometheus, &format!("rate({BLUE}[10s])"), 60_000), json!([]));
}

#[test]
fn series_are_added_up_and_divided() {
    let prometheus = world();
    let all = "http_requests_total{code=\"200\"}";
    let cases = [
        (format!("sum({all})"), 10.0),
        (format!("max({all})"), 6.0),
        (format!("min by (job) ({all})"), 4.0),
        (format!("avg({all})"), 5.0),
        ("count(http_requests_total) by (namespace)".to_owned(), 4.0),
        (format!("sum without (pod, instance, service) ({all})"), 10.0),
        (format!("sum({BLUE}) / sum({all})"), 0.6),
        (format!("1 - sum({BLUE}) / sum({all}) * 2"), -0.2),
        (format!("-(2 + {BLUE})"), -8.0),
        ("(1 + 2) * 3 - 4 / 2".to_owned(), 7.0),
        (format!("sum(max_over_time({all}[1m]))"), 10.0),
        (format!("sum(min_over_time({all}[1m]))"), 3.0),
        (format!("sum_over_time({BLUE}[30s])"), 12.0),
        (format!("avg_over_time({BLUE}[30s])"), 4.0),
        ("sum(http_request_duration_seconds_sum) / sum(http_request_duration_seconds_count)".to_owned(), 0.67),
    ];
    for (query, wanted) in cases {
        assert!(near(number(&prometheus, &query, 60_000), wanted), "{query}");
    }
    let by = ask(&prometheus, &format!("sum by (service) ({all})"), 60_000);
    assert_eq!((&by[1]["metric"], &by[1]["value"][1]), (&json!({ "service": "green" }), &json!("4")));
    assert!(number(&prometheus, &format!("sum({all}) * 0 / 0"), 60_000).is_nan());
    assert_eq!(ask(&prometheus, "1 / 0", 0)[1], "+Inf");
    // no partner, no result
    assert_eq!(ask(&prometheus, &format!("{all} / sum({all})"), 60_000), json!([]));
}

#[test]
fn selectors_are_read_with_all_that_may_stand_in_them() {
    let prometheus = world();
    let cases = [
        ("http_requests_total", 4),
        ("http_requests_total{}", 4),
        ("{__name__=~'http_requests.*',code!=\"500\",}", 2),
        ("http_requests_total{code=~\"5..|429\"}", 2),
        ("http_requests_total{code!~\"5..\"}", 2),
        ("http_requests_total{nothing=\"\"}", 4),
        ("http_requests_total{nothing!=\"\"}", 0),
        ("http_requests_total # all\n{ service = `blue` } # of blue\n", 2),
        ("http_requests_total{code=\"20\"}", 0),
    ];
    for (query, count) in cases {
        assert_eq!(ask(&prometheus, query, 60_000).as_array().unwrap().len(), count, "{query}");
    }
}

#[test]
fn anything_else_is_a_bad_request() {
    let prometheus = world();
    for query in [
        "",
        "sum(",
        "http_requests_total{",
        "http_requests_total{code=}",
        "http_requests_total{code=\"2\" service=\"a\"}",
        "{}",
        "{code=~\".*\"}",
        "rate(http_requests_total)",
        "sum(http_requests_total[1m])",
        "nothing(x)",
        "x[1m] + 1",
        "http_requests_total[0s]",
        "http_requests_total[]",
        "http_requests_total[1x]",
        "x[1m:5s]",
        "x @ 5",
        "histogram_quantile(0.9, x)",
        "a > b",
        "x{code=~\"(\"}",
        "1 2",
        "sum(1)",
        "x{code=\"\\q\"}",
        "x{code=\"a}",
        "topk(1, x)",
    ] {
        let (status, body) = prometheus.answer("/api/v1/query", &[("query".into(), query.into())], 60_000);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (status, &body["status"], &body["errorType"]),
            (400, &json!("error"), &json!("bad_data")),
            "{query}"
        );
    }
    let twice = "rate({pod=\"blue-0\",code=\"200\",__name__!~\".*(sum|bucket)\"}[1m])";
    let (status, body) = prometheus.answer("/api/v1/query", &[("query".into(), twice.into())], 60_000);
    assert_eq!(
        (status, serde_json::from_slice::<Value>(&body).unwrap()["errorType"].clone()),
        (422, json!("execution"))
    );
}

#[test]
fn good_answers_are_corrupted_in_ten_ways() {
    let prometheus = world();
    let good = |query: &str| prometheus.answer("/api/v1/query", &[("query".into(), query.into())], 60_000);
    let apply = |corruption: Corruption, query: &str| {
        let (status, body) = corruption.apply(200, good(query).1);
        (status, serde_json::from_slice::<Value>(&body).unwrap()["data"]["result"].clone())
    };
    let range = format!("{BLUE}[1h]");
    let of = |corruption, place: usize| {
        let result = apply(corruption, &range).1[0]["values"].clone();
        result.as_array().unwrap().iter().map(|pair| pair[place].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(Corruption::NotANumber, 1)[6], "NaN");
    assert_eq!(of(Corruption::Infinite, 1)[0], "+Inf");
    assert_eq!(of(Corruption::Falls, 1), ["0", "1", "4", "4", "2", "3", "6"]);
    assert_eq!(of(Corruption::Old, 0)[6], json!((EPOCH / 1000 + 60 - 600) as f64));
    assert_eq!(apply(Corruption::Infinite, "1 + 1").1[1], "+Inf");
    assert_eq!(apply(Corruption::NotANumber, "sum(http_requests_total)").1[0]["value"][1], "NaN");
    let two = apply(Corruption::TwoSeries, "sum(http_requests_total)").1;
    assert_eq!((two.as_array().unwrap().len(), &two[1]["metric"]), (2, &json!({ "replica": "b" })));
    assert_eq!(apply(Corruption::Empty, &range).1, json!([]));
    assert_eq!(apply(Corruption::WrongType, &range).1[1], "all is well");
    assert_eq!(apply(Corruption::Refused, &range), (200, Value::Null));
    let (_, large) = Corruption::Large.apply(200, good(&range).1);
    assert!(large.len() > 5 << 20 && serde_json::from_slice::<Value>(&large).is_ok());
    assert!(serde_json::from_slice::<Value>(&Corruption::Html.apply(200, good(&range).1).1).is_err());
    // what is no good answer is left alone
    for corruption in Corruption::ALL {
        assert_eq!(corruption.apply(503, b"down".to_vec()), (503, b"down".to_vec()));
        assert_eq!(corruption.apply(400, good("").1), (400, good("").1));
    }
}
