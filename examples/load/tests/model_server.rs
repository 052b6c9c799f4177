//! The load generator against the real model server, through its injected errors and its drain.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use clap::Parser;
use modelrollout_load::{Load, LoadConfig, Pair};
use modelrollout_model_server::{Config, Prompt, Server};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

const FLAGS: [&str; 13] = [
    "server",
    "--model-name=bot",
    "--model-version=2",
    "--address=127.0.0.1",
    "--port=0",
    "--load-seconds=0",
    "--fail-percent=10",
    "--slow-percent=10",
    "--slow-seconds=0.1",
    "--answer-milliseconds=5",
    "--stream-tokens=10",
    "--token-milliseconds=20",
    "--drain-seconds=1",
];

#[tokio::test]
async fn nothing_fails_while_the_server_drains() {
    let server = Server::bind_with(Config::parse_from(FLAGS), Prompt::new("v7", "Be kind.")).await.unwrap();
    let url = format!("http://{}/", server.local_addr());
    let (terminate, terminated) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run(async move { drop(terminated.await) }));
    let pair = Pair::new("bot@2", "v7");
    let config = LoadConfig { rate: 100.0, expected_pairs: vec![pair.clone()], ..LoadConfig::new(&url, "bot.example") };
    let mut handle = Load::start(config).await.unwrap();
    sleep(Duration::from_millis(800)).await;
    assert_eq!(handle.snapshot().reconnects, 0);
    terminate.send(()).unwrap();
    sleep(Duration::from_millis(600)).await;
    let report = handle.stop().await;
    timeout(Duration::from_secs(5), server).await.unwrap().unwrap().unwrap();

    assert_eq!((report.failed, report.total), (0, report.sent), "{report}");
    assert!(report.total > 60 && report.streamed > 10 && report.fresh > 5, "{report}");
    let share = report.injected as f64 / report.total as f64;
    assert!((0.05..0.15).contains(&share), "{share}\n{report}");
    assert_eq!(report.pair(&pair).unwrap().answers, report.whole);
    assert!(report.reconnects > 0, "the answers of a drain end their connections\n{report}");
    assert!(report.latency.stream.p50_ms >= 200.0, "{report}");
    assert!(report.latency.first_token.p50_ms < report.latency.stream.p50_ms, "{report}");
}
