//! Reads one answer to its end and judges it.

use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::response::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use crate::client::failure_of;
use crate::outcome::{Failure, FailureKind, Pair, Verdict};
use crate::sse::Events;

/// No answer of a chat API is larger.
const MAX_BODY: usize = 1 << 20;
/// How much of an unexpected body a message quotes.
const QUOTED: usize = 120;

/// What is known of an answer that is still being read.
#[derive(Debug, Default)]
pub struct Progress {
    /// When the first token of a stream came.
    pub first_token: Option<Instant>,
    /// Whether a stream has begun, with status 200.
    pub streaming: bool,
}

/// Reads an answer and says whether it is whole and answers the question.
pub async fn judge(response: Response<Incoming>, question: &str, streamed: bool, progress: &mut Progress) -> Verdict {
    let (head, body) = response.into_parts();
    let verdict = if head.headers.contains_key("x-injected-error") {
        collect(body).await.map(|_| Verdict::Injected(pair_of_headers(&head.headers)))
    } else if head.status != StatusCode::OK {
        Err(unexpected_status(&head, body).await)
    } else if streamed {
        stream(&head, body, question, progress).await.map(Verdict::Whole)
    } else {
        plain(&head, body, question).await.map(Verdict::Whole)
    };
    verdict.unwrap_or_else(Verdict::Failed)
}

async fn unexpected_status(head: &Parts, body: Incoming) -> Failure {
    let body = collect(body).await.unwrap_or_default();
    Failure::new(FailureKind::Status, format!("status {}: {}", head.status, quote(&String::from_utf8_lossy(&body))))
}

async fn plain(head: &Parts, body: Incoming, question: &str) -> Result<Pair, Failure> {
    let body = collect(body).await?;
    let value = json(&body)?;
    object_is(&value, "chat.completion")?;
    let content = value.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap_or_default();
    answers(content, question)?;
    same_pair(pair_of_headers(&head.headers), pair_of_body(&value)?)
}

async fn stream(head: &Parts, body: Incoming, question: &str, progress: &mut Progress) -> Result<Pair, Failure> {
    progress.streaming = true;
    let mut reader = StreamReader::default();
    let mut body = body;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| reader.cut(&failure_of(&error).message))?;
        reader.read(frame.data_ref().map_or(&[], |data| data), progress)?;
    }
    let pair = reader.finish(question)?;
    same_pair(pair_of_headers(&head.headers), pair)
}

/// Puts the chunks of one stream together.
#[derive(Debug, Default)]
struct StreamReader {
    events: Events,
    pair: Option<Pair>,
    content: String,
    chunks: usize,
    done: bool,
}

impl StreamReader {
    fn read(&mut self, bytes: &[u8], progress: &mut Progress) -> Result<(), Failure> {
        for data in self.events.feed(bytes) {
            self.event(&data)?;
        }
        if progress.first_token.is_none() && !self.content.is_empty() {
            progress.first_token = Some(Instant::now());
        }
        match self.events.pending().max(self.content.len()) {
            0..MAX_BODY => Ok(()),
            _ => Err(wrong("the stream is too large")),
        }
    }

    fn event(&mut self, data: &str) -> Result<(), Failure> {
        if self.done {
            return Err(wrong("there are events after [DONE]"));
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk = json(data.as_bytes())?;
        object_is(&chunk, "chat.completion.chunk")?;
        let pair = pair_of_body(&chunk)?;
        self.pair = Some(match self.pair.take() {
            Some(earlier) => same_pair(Some(earlier), pair)?,
            None => pair,
        });
        self.content.push_str(chunk.pointer("/choices/0/delta/content").and_then(Value::as_str).unwrap_or_default());
        self.chunks += 1;
        Ok(())
    }

    fn cut(&self, why: &str) -> Failure {
        Failure::new(FailureKind::CutStream, format!("cut after {} chunks: {why}", self.chunks))
    }

    fn finish(self, question: &str) -> Result<Pair, Failure> {
        if !self.done {
            return Err(self.cut("it ended without [DONE]"));
        }
        answers(&self.content, question)?;
        self.pair.ok_or_else(|| wrong("the stream has no chunks"))
    }
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure_of(&error))?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if bytes.len() > MAX_BODY {
            return Err(wrong("the body is too large"));
        }
    }
    Ok(bytes)
}

fn json(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(bytes);
        Failure::new(FailureKind::InvalidJson, format!("{error}: {}", quote(&text)))
    })
}

fn object_is(value: &Value, object: &str) -> Result<(), Failure> {
    match value.get("object").and_then(Value::as_str) {
        Some(found) if found == object => Ok(()),
        _ => Err(wrong(&format!("not a {object}: {}", quote(&value.to_string())))),
    }
}

fn answers(content: &str, question: &str) -> Result<(), Failure> {
    if content.contains(question) {
        return Ok(());
    }
    Err(wrong(&format!("not the answer to {question:?}: {}", quote(content))))
}

fn pair_of_body(value: &Value) -> Result<Pair, Failure> {
    let field = |name| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (field("model"), field("prompt_version")) {
        (Some(model), Some(prompt)) => Ok(Pair::new(model, prompt)),
        _ => Err(wrong("the body does not name its model and its prompt version")),
    }
}

fn pair_of_headers(headers: &HeaderMap) -> Option<Pair> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    Some(Pair::new(header("x-model")?, header("x-prompt-version")?))
}

fn same_pair(earlier: Option<Pair>, pair: Pair) -> Result<Pair, Failure> {
    match earlier {
        Some(earlier) if earlier == pair => Ok(pair),
        Some(earlier) => {
            Err(Failure::new(FailureKind::MismatchedPair, format!("one answer names {earlier}, and also {pair}")))
        }
        None => Err(Failure::new(FailureKind::MismatchedPair, format!("the body names {pair}, the headers name none"))),
    }
}

fn wrong(message: &str) -> Failure {
    Failure::new(FailureKind::WrongContent, message)
}

fn quote(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED).collect::<String>())
}
