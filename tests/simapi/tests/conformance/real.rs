//! A real API server, by `KUBECONFIG`.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use modelrollout_simapi::server::Request;
use serde_json::{Value, json};

use super::model::events;
use super::play::{self, Reply};

/// A controller has so long to do its part.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client of it.
pub struct Real {
    client: Client,
    last_write: u64,
}

impl Real {
    /// Just a client.
    pub fn of(client: &Client) -> Self {
        Self { client: client.clone(), last_write: 0 }
    }

    /// One with a namespace, which is made here.
    pub async fn new(client: &Client, namespace: &str) -> Self {
        let mut real = Self::of(client);
        let made = real.ask("POST", "/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await;
        assert_eq!(made.status, 201, "{}", made.body);
        // without it no Pod is let in
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        real.wait("GET", &account, 200).await;
        real
    }

    /// Asks for the end of the namespace.
    pub async fn end(&mut self, namespace: &str) {
        let reply = self.ask("DELETE", &format!("/api/v1/namespaces/{namespace}"), &Value::Null).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }

    /// Waits until it is gone.
    pub async fn ended(&mut self, namespace: &str) {
        self.wait("GET", &format!("/api/v1/namespaces/{namespace}"), 404).await;
    }

    async fn wait(&mut self, method: &str, path: &str, status: u16) {
        let began = Instant::now();
        loop {
            let reply = self.ask(method, path, &Value::Null).await;
            if reply.status == status {
                return;
            }
            assert!(began.elapsed() < PATIENCE * 5, "{method} {path}: {}", reply.body);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Reply {
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            content_type: "application/json".to_owned(),
            accept: "application/json".to_owned(),
            user_agent: "conformance/1.0".to_owned(),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            ..Request::default()
        };
        play::Server::answer(self, &request).await
    }
}

impl play::Server for Real {
    async fn answer(&mut self, request: &Request) -> Reply {
        let query: Vec<String> =
            request.query.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
        let path: Vec<String> = request.path.split('/').map(escape).collect();
        let uri = format!("{}?{}", path.join("/"), query.join("&"));
        let mut builder = http::Request::builder().method(request.method.as_str()).uri(uri);
        builder = builder.header("Accept", &request.accept);
        if !request.user_agent.is_empty() {
            builder = builder.header("User-Agent", &request.user_agent);
        }
        if !request.body.is_empty() {
            builder = builder.header("Content-Type", &request.content_type);
        }
        let sent = builder.body(Body::from(request.body.clone())).expect("a request");
        let answer = self.client.send(sent).await.expect("an answer");
        if request.method != "GET" {
            self.last_write = seconds();
        }
        let status = answer.status().as_u16();
        let warnings = answer.headers().get_all("Warning").iter();
        let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).collect();
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        let watched = request.query.get("watch").is_some_and(|it| matches!(it.as_str(), "1" | "true"));
        let body = if watched && status == 200 {
            events(text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect())
        } else {
            serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()))
        };
        Reply { status, body, warnings, ..Reply::default() }
    }

    async fn next_second(&mut self) {
        while seconds() <= self.last_write {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until(&mut self, request: &Request, fits: &(dyn Fn(&Reply) -> bool + Sync)) -> Reply {
        let began = Instant::now();
        loop {
            let reply = self.answer(request).await;
            let late = began.elapsed() > PATIENCE;
            if late {
                println!("{} {}: nobody did what was waited for", request.method, request.path);
            }
            if late || fits(&reply) {
                self.last_write = seconds();
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_model(&self) -> bool {
        false
    }
}

#[allow(clippy::disallowed_methods)] // a name of its own for each run
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
