//! The server on loopback: its answers, its readiness, what it injects, and its drain.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Parser;
use modelrollout_model_server::{Config, Prompt, Server};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

struct Running {
    address: SocketAddr,
    client: Client,
    terminate: Option<oneshot::Sender<()>>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Running {
    async fn start(flags: &[&str]) -> Self {
        let base = ["server", "--model-name", "bot", "--model-version", "2", "--address", "127.0.0.1", "--port", "0"];
        let quick = ["--load-seconds=0", "--drain-seconds=0.3", "--answer-milliseconds=1", "--token-milliseconds=1"];
        // A flag that the test gives must not clash with the quick default of the same name.
        let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
        let quick = quick.iter().filter(|it| !flags.iter().any(|flag| name(flag) == name(it)));
        let config = Config::parse_from(base.iter().chain(quick).chain(flags));
        let prompt = Prompt::new("v7", "Be kind to {{message}}.");
        let server = Server::bind_with(config, prompt).await.unwrap();
        let address = server.local_addr();
        let (terminate, terminated) = oneshot::channel::<()>();
        let server = tokio::spawn(server.run(async move { drop(terminated.await) }));
        Self { address, client: Client::new(), terminate: Some(terminate), server }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn get(&self, path: &str) -> Response {
        self.client.get(self.url(path)).send().await.unwrap()
    }

    async fn chat(&self, stream: bool) -> Response {
        let body = json!({ "model": "bot", "stream": stream, "messages": [{ "role": "user", "content": "Ada" }] });
        self.client.post(self.url("/v1/chat/completions")).json(&body).send().await.unwrap()
    }

    fn terminate(&mut self) {
        self.terminate.take().unwrap().send(()).unwrap();
    }

    /// Waits for the end of the server and says how long that took.
    async fn ended(self) -> Duration {
        let since = Instant::now();
        timeout(Duration::from_secs(5), self.server).await.unwrap().unwrap().unwrap();
        since.elapsed()
    }
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

fn events(text: &str) -> Vec<String> {
    text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_plain_answer_names_its_pair() {
    let server = Running::start(&[]).await;
    let response = server.chat(false).await;
    assert_eq!(response.status(), 200);
    assert_eq!((header(&response, "x-model"), header(&response, "x-prompt-version")), (Some("bot@2"), Some("v7")));
    let body: Value = response.json().await.unwrap();
    assert_eq!((&body["model"], &body["prompt_version"]), (&json!("bot@2"), &json!("v7")));
    assert_eq!(body["object"], "chat.completion");
    let content = body["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(content, "bot@2 with prompt v7 was asked: Be kind to Ada.");

    let models: Value = server.get("/v1/models").await.json().await.unwrap();
    assert_eq!(models["data"][0]["id"], "bot@2");
}

#[tokio::test]
async fn a_streamed_answer_names_its_pair_in_each_chunk() {
    let server = Running::start(&["--stream-tokens=7"]).await;
    let response = server.chat(true).await;
    assert_eq!(header(&response, "content-type"), Some("text/event-stream"));
    let events = events(&response.text().await.unwrap());
    // The role, seven tokens, the finish, and the end mark.
    assert_eq!(events.len(), 10);
    assert_eq!(events[9], "[DONE]");
    let mut content = String::new();
    for event in &events[..9] {
        let chunk: Value = serde_json::from_str(event).unwrap();
        assert_eq!((&chunk["model"], &chunk["prompt_version"]), (&json!("bot@2"), &json!("v7")));
        assert_eq!(chunk["object"], "chat.completion.chunk");
        content.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
    }
    assert_eq!(content, "bot@2 with prompt v7 was asked: Be kind to Ada.");
}

#[tokio::test]
async fn it_is_ready_only_when_loaded() {
    let server = Running::start(&["--load-seconds=0.4"]).await;
    assert_eq!(server.get("/healthz").await.status(), 200);
    assert_eq!(server.get("/readyz").await.status(), 503);
    let early = server.chat(false).await;
    assert_eq!((early.status().as_u16(), header(&early, "x-injected-error")), (503, None));
    sleep(Duration::from_millis(500)).await;
    assert_eq!(server.get("/readyz").await.status(), 200);
    assert_eq!(server.chat(false).await.status(), 200);
}

#[tokio::test]
async fn injected_errors_carry_their_mark_and_are_counted() {
    let server = Running::start(&["--fail-percent=25"]).await;
    let mut injected = 0;
    for n in 0..40 {
        let response = server.chat(n % 2 == 0).await;
        if response.status() == 500 {
            assert_eq!(header(&response, "x-injected-error"), Some("true"));
            assert_eq!(header(&response, "x-model"), Some("bot@2"));
            injected += 1;
        } else {
            assert_eq!(response.status(), 200);
            assert_eq!(header(&response, "x-injected-error"), None);
            drop(response.bytes().await.unwrap());
        }
    }
    assert!((8..=12).contains(&injected), "{injected}");
    let metrics = server.get("/metrics").await.text().await.unwrap();
    for (code, count) in [(500, injected), (200, 40 - injected)] {
        let labels = format!("{{code=\"{code}\",method=\"POST\",handler=\"/v1/chat/completions\"}} {count}");
        for name in ["http_requests_total", "http_request_duration_seconds_count"] {
            assert!(metrics.contains(&format!("{name}{labels}")), "{name}{labels}\n{metrics}");
        }
    }
}

#[tokio::test]
async fn slowed_answers_take_longer() {
    let server = Running::start(&["--slow-percent=100", "--slow-seconds=0.3"]).await;
    let since = Instant::now();
    assert_eq!(server.chat(false).await.status(), 200);
    assert!(since.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_form_of_the_api() {
    let server = Running::start(&[]).await;
    for body in ["no json", r#"{"messages":[]}"#, r#"{"messages":[{"role":"user"}]}"#] {
        let request = server.client.post(server.url("/v1/chat/completions")).header("content-type", "application/json");
        let response = request.body(body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
        assert_eq!(response.json::<Value>().await.unwrap()["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn a_drain_answers_new_requests_and_lets_streams_finish() {
    let mut server = Running::start(&["--stream-tokens=20", "--token-milliseconds=40"]).await;
    let stream = server.chat(true).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let since = Instant::now();
    server.terminate();
    sleep(Duration::from_millis(50)).await;

    let readiness = server.get("/readyz").await;
    assert_eq!((readiness.status().as_u16(), header(&readiness, "connection")), (503, Some("close")));
    let response = server.chat(false).await;
    assert_eq!((response.status().as_u16(), header(&response, "connection")), (200, Some("close")));

    // The drain of 0.3 s is over long before the stream is.
    let text = stream.text().await.unwrap();
    assert!(since.elapsed() > Duration::from_millis(600));
    assert_eq!(events(&text).last().map(String::as_str), Some("[DONE]"));
    assert_eq!(silent.read(&mut [0; 8]).await.unwrap(), 0, "a connection that never asked is closed");
    assert!(server.ended().await < Duration::from_millis(200), "it ends with its last stream");
}

#[tokio::test]
async fn a_drain_with_nothing_running_ends_on_time_and_closes_idle_connections() {
    let mut server = Running::start(&[]).await;
    assert_eq!(server.chat(false).await.status(), 200);
    // The client keeps its idle connection open for much longer than this.
    server.terminate();
    let took = server.ended().await;
    assert!((Duration::from_millis(250)..Duration::from_millis(900)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_client_that_goes_away_is_counted_as_such() {
    let server = Running::start(&["--token-milliseconds=20"]).await;
    drop(server.chat(true).await);
    sleep(Duration::from_millis(200)).await;
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("http_requests_total{code=\"499\""), "{metrics}");
    assert!(metrics.contains("chat_requests_finished_total{finish_reason=\"abort\"} 1\n"), "{metrics}");
    assert!(metrics.contains("time_per_output_token_seconds_count 0\n"), "{metrics}");
}

#[tokio::test]
async fn broken_answers_have_status_200_and_no_choices() {
    let server = Running::start(&["--break-schema-percent=25"]).await;
    let mut broken = 0;
    for n in 0..40 {
        let response = server.chat(n % 2 == 0).await;
        assert_eq!(response.status(), 200);
        let marked = header(&response, "x-injected-error") == Some("true");
        let text = response.text().await.unwrap();
        assert_eq!(marked, !text.contains("\"choices\""), "{text}");
        broken += u32::from(marked);
    }
    assert!((8..=12).contains(&broken), "{broken}");
}

#[tokio::test]
async fn tokens_are_timed() {
    let server = Running::start(&["--stream-tokens=5", "--token-milliseconds=30", "--answer-milliseconds=60"]).await;
    for stream in [false, true, true] {
        drop(server.chat(stream).await.bytes().await.unwrap());
    }
    let metrics = server.get("/metrics").await.text().await.unwrap();
    for line in [
        "chat_requests_finished_total{finish_reason=\"stop\"} 3",
        "chat_requests_finished_total{finish_reason=\"error\"} 0",
        "chat_requests_finished_total{finish_reason=\"abort\"} 0",
        // No first token comes before the latency of an answer, and none is as late as the end of a stream.
        "time_to_first_token_seconds_bucket{le=\"0.05\"} 0",
        "time_to_first_token_seconds_count 3",
        "time_per_output_token_seconds_bucket{le=\"0.025\"} 0",
        "time_per_output_token_seconds_count 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    let sum = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    // 60, 90 and 90 ms, against 60, 210 and 210 ms to the end.
    let first = sum("time_to_first_token_seconds_sum");
    assert!((0.24..0.48).contains(&first), "{first}");
}
