//! A server on loopback that spoils its answers as it is told, and counts what it did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use modelrollout_load::{LoadConfig, Pair};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// What the server does with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Whole,
    /// A whole answer, and then the connection is closed without a word.
    WholeThenClose,
    Injected,
    Status503,
    NoJson,
    WrongAnswer,
    HeadersDisagree,
    ChunksDisagree,
    /// The head and a part of the body, then the end.
    CutBody,
    /// No answer, and the end of the connection.
    Close,
    /// No answer, and the connection is reset.
    Reset,
    /// Not HTTP.
    Garbage,
    /// No answer at all, for longer than anybody waits.
    Silent,
    /// The head and a chunk of a stream, and then nothing more.
    Stall,
}

/// The server; it numbers its requests and goes through its acts in turn.
pub struct Script {
    pub url: String,
    acts: Vec<Act>,
    served: AtomicU64,
    pair: Mutex<Pair>,
}

pub fn blue() -> Pair {
    Pair::new("bot@1", "v1")
}

pub fn green() -> Pair {
    Pair::new("bot@2", "v2")
}

/// A short and brisk run against a base URL.
pub fn brisk(url: &str) -> LoadConfig {
    LoadConfig {
        rate: 150.0,
        connections: 2,
        fresh: 1,
        streams: 2,
        timeout: Duration::from_secs(5),
        stream_timeout: Duration::from_secs(5),
        max_duration: Duration::from_millis(400),
        expected_pairs: vec![blue(), green()],
        ..LoadConfig::new(url, "bot.example")
    }
}

impl Script {
    pub async fn start(acts: &[Act]) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (acts, pair) = (acts.to_vec(), Mutex::new(blue()));
        let script = Arc::new(Self { url, acts, served: AtomicU64::new(0), pair });
        let server = Arc::clone(&script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Arc::clone(&server);
                tokio::spawn(async move { server.connection(stream).await });
            }
        });
        script
    }

    /// How often the server got a request for which it did this.
    pub fn count(&self, act: Act) -> u64 {
        let served = self.served.load(Ordering::SeqCst);
        (0..served).filter(|number| self.act(*number) == act).count() as u64
    }

    /// From now on another pair answers.
    pub fn switch_to(&self, pair: Pair) {
        *self.pair.lock().unwrap() = pair;
    }

    fn act(&self, number: u64) -> Act {
        self.acts[number as usize % self.acts.len()]
    }

    async fn connection(&self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream).await {
            let act = self.act(self.served.fetch_add(1, Ordering::SeqCst));
            match act {
                Act::Close => return,
                Act::Reset => return stream.get_ref().set_zero_linger().unwrap(),
                Act::Silent => sleep(Duration::from_mins(1)).await,
                _ => {}
            }
            let pair = self.pair.lock().unwrap().clone();
            let answer = answer(act, &pair, &request);
            let sent = stream.get_mut().write_all(answer.as_bytes()).await;
            if act == Act::Stall {
                sleep(Duration::from_mins(1)).await;
            }
            if sent.is_err() || matches!(act, Act::WholeThenClose | Act::CutBody | Act::Garbage) {
                return;
            }
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Value> {
    let (mut length, mut host) = (0, false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        host |= line == "host: bot.example";
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    assert!(host, "the Host header is missing");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(serde_json::from_slice(&body).unwrap())
}

fn answer(act: Act, pair: &Pair, request: &Value) -> String {
    let question = request["messages"][0]["content"].as_str().unwrap();
    let content = if act == Act::WrongAnswer { "something else" } else { question };
    let streamed = request["stream"] == true;
    let body = if streamed { events(act, pair, content) } else { completion(pair, content).to_string() };
    match act {
        Act::Garbage => "this is not HTTP\r\n\r\n".to_owned(),
        Act::Status503 => whole("503 Service Unavailable", pair, "", "no upstream"),
        Act::Injected => whole("500 Internal Server Error", pair, "x-injected-error: true\r\n", "{}"),
        Act::NoJson if streamed => whole("200 OK", pair, "", "data: {\"half\":\n\ndata: [DONE]\n\n"),
        Act::NoJson => whole("200 OK", pair, "", "{\"half\":"),
        Act::HeadersDisagree => whole("200 OK", &Pair::new(&pair.model, "v9"), "", &body),
        Act::CutBody | Act::Stall => {
            let answer = whole("200 OK", pair, "", &body);
            answer[..answer.len() - 10].to_owned()
        }
        _ => whole("200 OK", pair, "", &body),
    }
}

fn whole(status: &str, pair: &Pair, extra: &str, body: &str) -> String {
    let Pair { model, prompt_version } = pair;
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nx-model: {model}\r\nx-prompt-version: {prompt_version}\r\n{extra}content-length: {length}\r\n\r\n{body}"
    )
}

fn completion(pair: &Pair, content: &str) -> Value {
    json!({
        "object": "chat.completion",
        "model": pair.model,
        "prompt_version": pair.prompt_version,
        "choices": [{ "message": { "content": content } }],
    })
}

/// Two chunks and the end mark.
fn events(act: Act, pair: &Pair, content: &str) -> String {
    let chunk = |pair: &Pair, content: &str| {
        let chunk = json!({
            "object": "chat.completion.chunk",
            "model": pair.model,
            "prompt_version": pair.prompt_version,
            "choices": [{ "delta": { "content": content } }],
        });
        format!("data: {chunk}\n\n")
    };
    let (first, second) = content.split_at(content.len() / 2);
    let other = if act == Act::ChunksDisagree { green() } else { pair.clone() };
    format!("{}{}data: [DONE]\n\n", chunk(pair, first), chunk(&other, second))
}
