//! Each way in which a server can behave, and the exact counts that must come of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use modelrollout_load::{FailureKind, Load, LoadConfig, LoadError, Pair, Report};
use support::{Act, Script, blue, brisk, green};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// A run against a server that goes through these acts in turn.
async fn run(acts: &[Act], change: impl FnOnce(&mut LoadConfig)) -> (Report, Arc<Script>) {
    let script = Script::start(acts).await;
    let mut config = brisk(&script.url);
    change(&mut config);
    let mut handle = Load::start(config).await.unwrap();
    handle.finished().await;
    (handle.stop().await, script)
}

fn adds_up(report: &Report) {
    assert!(report.total >= 10, "{report}");
    assert_eq!(report.sent, report.total, "{report}");
    assert_eq!(report.total, report.whole + report.injected + report.failed, "{report}");
    assert_eq!(report.total, report.plain + report.streamed, "{report}");
    assert_eq!(report.failed, report.failures.values().sum::<u64>(), "{report}");
}

/// A run in which every other answer is whole and the others fail in one way.
async fn half_fail(act: Act, kind: FailureKind, change: impl FnOnce(&mut LoadConfig)) -> Report {
    let (report, script) = run(&[Act::Whole, act], change).await;
    adds_up(&report);
    assert_eq!(report.whole, script.count(Act::Whole), "{report}");
    assert_eq!(report.failures_of(kind), script.count(act), "{kind:?}\n{report}");
    assert_eq!(report.failed, script.count(act), "{report}");
    report
}

fn streams_only(config: &mut LoadConfig) {
    (config.connections, config.fresh) = (0, 0);
}

fn plain_only(config: &mut LoadConfig) {
    config.streams = 0;
}

fn fresh_only(config: &mut LoadConfig) {
    (config.connections, config.fresh, config.streams) = (0, 3, 0);
}

fn one_kept(config: &mut LoadConfig) {
    (config.connections, config.fresh, config.streams) = (1, 0, 0);
}

#[tokio::test]
async fn whole_answers_are_all_that_a_good_server_gives() {
    let (report, script) = run(&[Act::Whole], |_| {}).await;
    adds_up(&report);
    assert_eq!((report.whole, report.failed, report.injected), (script.count(Act::Whole), 0, 0), "{report}");
    assert!(report.streamed > 0 && report.fresh > 0 && report.plain > report.fresh, "{report}");
    // Four kept connections, and one for each of the others.
    assert_eq!((report.connections_opened, report.reconnects), (4 + report.fresh, 0), "{report}");
    let pair = report.pair(&blue()).unwrap();
    assert_eq!((pair.answers, pair.streamed, pair.mismatched), (report.whole, report.streamed, 0));
    assert_eq!(report.latency.plain.count, report.plain);
    assert_eq!((report.latency.stream.count, report.latency.first_token.count), (report.streamed, report.streamed));
    assert!(report.latency.plain.max_ms > 0.0 && report.latency.plain.p50_ms <= report.latency.plain.p99_ms);
    assert!(report.total <= 62, "the rate is the limit\n{report}");
}

#[tokio::test]
async fn injected_errors_are_counted_apart() {
    let (report, script) = run(&[Act::Whole, Act::Injected, Act::Whole], |_| {}).await;
    adds_up(&report);
    assert_eq!((report.injected, report.failed), (script.count(Act::Injected), 0), "{report}");
    assert_eq!(report.pair(&blue()).unwrap().injected, report.injected);
    let (first, last) = (report.first_injected.unwrap(), report.last_injected.unwrap());
    assert!(report.began.at < first.at && first.at < last.at && first.unix_ms <= last.unix_ms);
}

#[tokio::test]
async fn each_failure_has_its_kind() {
    half_fail(Act::Status503, FailureKind::Status, |_| {}).await;
    half_fail(Act::NoJson, FailureKind::InvalidJson, |_| {}).await;
    half_fail(Act::WrongAnswer, FailureKind::WrongContent, |_| {}).await;
    half_fail(Act::Garbage, FailureKind::Protocol, |_| {}).await;
    half_fail(Act::Reset, FailureKind::Reset, fresh_only).await;
    half_fail(Act::Close, FailureKind::Closed, fresh_only).await;
    half_fail(Act::CutBody, FailureKind::Closed, plain_only).await;
}

#[tokio::test]
async fn the_first_errors_are_kept_with_their_messages() {
    let report = half_fail(Act::Status503, FailureKind::Status, |_| {}).await;
    assert_eq!(report.first_errors.len() as u64, report.failed.min(20));
    assert!(report.first_errors[0].message.contains("503"), "{report}");
    assert!(report.first_errors[0].message.contains("no upstream"), "{report}");
}

#[tokio::test]
async fn a_time_out_is_a_failure() {
    let short = |config: &mut LoadConfig| {
        config.connections = 40;
        (config.timeout, config.stream_timeout) = (Duration::from_millis(300), Duration::from_millis(300));
    };
    let (report, script) = run(&[Act::Silent], short).await;
    adds_up(&report);
    assert_eq!(report.failures_of(FailureKind::Timeout), script.count(Act::Silent), "{report}");
    assert_eq!(report.cut_streams, 0, "{report}");
}

#[tokio::test]
async fn streams_that_end_early_or_stall_are_cut() {
    let report = half_fail(Act::CutBody, FailureKind::CutStream, streams_only).await;
    assert_eq!(report.cut_streams, report.failed);
    let (report, script) = run(&[Act::Stall], |config| {
        streams_only(config);
        config.streams = 40;
        config.stream_timeout = Duration::from_millis(300);
    })
    .await;
    adds_up(&report);
    assert_eq!(report.cut_streams, script.count(Act::Stall), "{report}");
}

#[tokio::test]
async fn a_model_and_a_prompt_that_disagree_are_a_mismatch() {
    let report = half_fail(Act::HeadersDisagree, FailureKind::MismatchedPair, |_| {}).await;
    assert_eq!(report.mismatched_pairs, report.failed);
    let report = half_fail(Act::ChunksDisagree, FailureKind::MismatchedPair, streams_only).await;
    assert_eq!(report.mismatched_pairs, report.failed);
}

#[tokio::test]
async fn a_pair_that_is_not_expected_is_a_mismatch() {
    let mixed = Pair::new("bot@1", "v2");
    let script = Script::start(&[Act::Whole, Act::Injected]).await;
    script.switch_to(mixed.clone());
    let mut handle = Load::start(brisk(&script.url)).await.unwrap();
    handle.finished().await;
    let report = handle.snapshot();
    adds_up(&report);
    assert_eq!((report.mismatched_pairs, report.whole, report.injected), (report.total, 0, 0), "{report}");
    assert_eq!(report.pair(&mixed).unwrap().mismatched, report.total);
    assert!(report.first_errors[0].message.contains("bot@1 with prompt v2"), "{report}");
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_while_idle_is_replaced() {
    let (report, script) = run(&[Act::WholeThenClose], |config| {
        one_kept(config);
        config.rate = 30.0;
    })
    .await;
    adds_up(&report);
    assert_eq!((report.whole, report.failed), (script.count(Act::WholeThenClose), 0), "{report}");
    assert_eq!((report.reconnects, report.connections_opened), (report.total - 1, report.total), "{report}");
}

#[tokio::test]
async fn a_request_that_may_have_been_seen_is_never_sent_again() {
    for act in [Act::Close, Act::Reset] {
        let report = half_fail(act, FailureKind::ReusedConnectionClosed, one_kept).await;
        assert_eq!(report.reconnects, 0, "{report}");
    }
}

#[tokio::test]
async fn refused_connections_are_failures_within_the_rate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let mut handle = Load::start(brisk(&url)).await.unwrap();
    handle.finished().await;
    let report = handle.snapshot();
    adds_up(&report);
    assert_eq!((report.failures_of(FailureKind::Refused), report.whole), (report.total, 0), "{report}");
    assert!(report.total <= 62, "{report}");
}

#[tokio::test]
async fn public_addresses_and_too_much_load_are_refused() {
    let refused = Load::start(LoadConfig::new("http://192.0.2.1/", "bot.example")).await;
    assert!(matches!(refused.err(), Some(LoadError::Public(_))));
    let limits: [fn(&mut LoadConfig); 4] = [
        |config| config.rate = 0.0,
        |config| config.rate = 1e9,
        |config| config.streams = 100_000,
        |config| config.max_duration = Duration::from_hours(24),
    ];
    for change in limits {
        let mut config = LoadConfig::new("http://127.0.0.1:1/", "bot.example");
        change(&mut config);
        assert!(matches!(Load::start(config).await.err(), Some(LoadError::Limit(_))));
    }
}

#[tokio::test]
async fn a_switch_of_pairs_can_be_told_by_time() {
    let script = Script::start(&[Act::Whole]).await;
    let config = LoadConfig { max_duration: Duration::from_mins(1), ..brisk(&script.url) };
    let mut handle = Load::start(config).await.unwrap();
    sleep(Duration::from_millis(250)).await;
    script.switch_to(green());
    sleep(Duration::from_millis(50)).await;
    let switched = Instant::now();
    sleep(Duration::from_millis(250)).await;
    assert!(handle.snapshot().whole > 0, "a snapshot can be had while it runs");
    let report = handle.stop().await;

    adds_up(&report);
    assert_eq!(report.failed, 0, "{report}");
    let (blue_report, green_report) = (report.pair(&blue()).unwrap(), report.pair(&green()).unwrap());
    assert_eq!(blue_report.answers + green_report.answers, report.whole);
    assert!(blue_report.last.at < switched && green_report.first.at > blue_report.first.at, "{report}");
    assert!(blue_report.last_sent.at <= blue_report.last.at);

    for since in [handle.answers_since(switched), handle.sent_since(switched)] {
        assert_eq!(since.iter().map(|count| &count.pair).collect::<Vec<_>>(), [&green()]);
        assert!(since[0].answers > 10 && since[0].answers < green_report.answers);
    }
    let all = handle.answers_since(report.began.at);
    assert_eq!(all.iter().map(|count| count.answers).sum::<u64>(), report.whole);

    let timeline = handle.timeline(Duration::from_millis(100));
    assert!(timeline.windows(2).all(|pair| pair[0].offset_ms < pair[1].offset_ms));
    let pairs = || timeline.iter().flat_map(|bucket| &bucket.pairs);
    assert_eq!(pairs().map(|pair| pair.answers).sum::<u64>(), report.whole);
    assert_eq!(pairs().map(|pair| pair.sent).sum::<u64>(), report.whole);
    let last_blue = timeline.iter().rfind(|bucket| bucket.pairs.iter().any(|pair| pair.pair == blue())).unwrap();
    assert_eq!(last_blue.offset_ms, blue_report.last.offset_ms / 100 * 100);
}
