//! The judge against servers on loopback: good answers, broken ones, and no server at all.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::net::SocketAddr;
use std::process::Output;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::post;
use clap::Parser;
use modelrollout_model_server::{Config, Judge, JudgeConfig, Prompt, Server, Verdict};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::sleep;

const PATH: &str = "/v1/chat/completions";

async fn model_server(port: u16, flags: &[&str]) -> SocketAddr {
    let base = ["server", "--model-name=bot", "--model-version=2", "--address=127.0.0.1", "--load-seconds=0"];
    let quick = ["--answer-milliseconds=1", "--token-milliseconds=0", &format!("--port={port}")];
    let config = Config::parse_from(base.iter().chain(&quick).chain(flags));
    let server = Server::bind_with(config, Prompt::new("v7", "Be kind.")).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(server.run(std::future::pending()));
    address
}

/// A server of anything else.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    address
}

/// A port where nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn judge(address: SocketAddr, flags: &[&str]) -> Verdict {
    let port = format!("--port={}", address.port());
    // What a test expects of the model must not clash with the usual one.
    let usual = flags.iter().all(|flag| !flag.starts_with("--model=")).then_some("--model=bot@2");
    let base = ["judge", "--service=127.0.0.1", &port];
    let config = JudgeConfig::parse_from(base.into_iter().chain(usual).chain(flags.iter().copied()));
    Judge::new(&config).unwrap().run().await
}

async fn lines(address: SocketAddr, flags: &[&str]) -> Vec<String> {
    judge(address, flags).await.to_string().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn good_answers_pass() {
    let server = model_server(0, &[]).await;
    for flags in [["--prompt-version=v7", "--questions=20"], ["--prompt-version=", "--questions=3"]] {
        let verdict = judge(server, &flags).await;
        assert!(verdict.passed(), "{verdict}");
    }
}

#[tokio::test]
async fn another_model_or_prompt_fails_each_answer() {
    let server = model_server(0, &[]).await;
    let found = lines(server, &["--prompt-version=v8", "--questions=2"]).await;
    let wrong = r#"prompt_version is "v7", not "v8""#;
    let expected = [format!("answer 1 (plain): {wrong}"), format!("answer 2 (streamed): chunk 1: {wrong}")];
    assert_eq!(found[..2], expected);
    assert_eq!(found[2], "0 of 2 answers have the schema");
    let found = lines(server, &["--questions=1", "--model=bot@3"]).await;
    assert_eq!(found[0], r#"answer 1 (plain): model is "bot@2", not "bot@3""#);
}

#[tokio::test]
async fn broken_and_failed_answers_are_counted() {
    let server = model_server(0, &["--break-schema-percent=25"]).await;
    let found = lines(server, &["--questions=40"]).await;
    assert!(found.iter().any(|line| line.ends_with("(plain): choices is missing")), "{found:#?}");
    assert!(found.iter().any(|line| line.ends_with("(streamed): chunk 1: choices is missing")), "{found:#?}");
    let last = found.last().unwrap();
    let right: u32 = last.strip_suffix(" of 40 answers have the schema").unwrap().parse().unwrap();
    assert!((28..=32).contains(&right), "{last}");

    let server = model_server(0, &["--fail-percent=100"]).await;
    let found = lines(server, &["--questions=2"]).await;
    assert!(found[1].starts_with(r#"answer 2 (streamed): status 500: "{\"error\""#), "{found:#?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let good = model_server(0, &[]).await;
    let target = format!("http://{good}{PATH}");
    let server = serve(Router::new().route(PATH, post(async move || Redirect::temporary(&target)))).await;
    let found = lines(server, &["--questions=1"]).await;
    assert_eq!(found, [r#"answer 1 (plain): status 307: """#, "0 of 1 answers have the schema"]);
}

#[tokio::test]
async fn late_large_and_senseless_answers_are_wrong() {
    let late = post(async || sleep(Duration::from_mins(1)).await);
    let large = post(async || "x".repeat(2 << 20));
    let senseless = post(async || (StatusCode::OK, "<html>"));
    let bytes = post(async || vec![0xFF_u8, 0xFE]);
    for (route, wrong) in [
        (late, "no whole answer within 300ms"),
        (large, "the answer is larger than 1048576 bytes"),
        (senseless, r#"not JSON: "<html>""#),
        (bytes, "the answer is not UTF-8"),
    ] {
        let server = serve(Router::new().route(PATH, route)).await;
        let found = lines(server, &["--questions=1", "--timeout-seconds=0.3"]).await;
        assert_eq!(found[0], format!("answer 1 (plain): {wrong}"));
    }
}

#[tokio::test]
async fn a_server_may_need_a_moment_to_begin() {
    let address = nobody().await;
    let server = tokio::spawn(async move {
        sleep(Duration::from_millis(600)).await;
        model_server(address.port(), &[]).await
    });
    let verdict = judge(address, &["--questions=4"]).await;
    assert!(verdict.passed(), "{verdict}");
    server.await.unwrap();
}

#[tokio::test]
async fn the_patience_ends_and_is_only_for_the_start() {
    let since = Instant::now();
    let found = lines(nobody().await, &["--questions=4", "--start-seconds=0.6"]).await;
    assert_eq!(found[3], "answer 4 (streamed): the connection was refused");
    assert!((Duration::from_millis(500)..Duration::from_secs(2)).contains(&since.elapsed()), "{:?}", since.elapsed());
}

async fn program(address: SocketAddr, model: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_answer-judge"));
    command.env("SERVICE", "127.0.0.1").env("PORT", address.port().to_string());
    // What the operator gives to a Job without a prompt, and a proxy that must not matter.
    command.env("MODEL", model).env("PROMPT_VERSION", "").env("HTTP_PROXY", "http://127.0.0.1:9");
    command.env("QUESTIONS", "12").output().await.unwrap()
}

#[tokio::test]
async fn the_program_ends_with_the_verdict() {
    let server = model_server(0, &[]).await;
    let good = program(server, "bot@2").await;
    assert_eq!(
        (good.status.code(), good.stdout.as_slice()),
        (Some(0), b"12 of 12 answers have the schema\n".as_slice())
    );
    let bad = program(server, "bot@3").await;
    let told = String::from_utf8(bad.stdout).unwrap();
    assert_eq!((bad.status.code(), told.lines().count()), (Some(1), 11));
    assert_eq!(told.lines().last(), Some("0 of 12 answers have the schema"));
    assert_eq!(program(server, "").await.status.code(), Some(2));
}
