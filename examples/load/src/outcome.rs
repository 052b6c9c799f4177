//! How one request can end.

use std::fmt;
use std::time::Instant;

use serde::Serialize;

/// A model and the version of the prompt that it answers with: a "color" of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Pair {
    /// `<name>@<version>`.
    pub model: String,
    /// The version of the prompt.
    pub prompt_version: String,
}

impl Pair {
    /// Puts a model and a prompt version together.
    pub fn new(model: &str, prompt_version: &str) -> Self {
        Self { model: model.to_owned(), prompt_version: prompt_version.to_owned() }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with prompt {}", self.model, self.prompt_version)
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// Plain, on a kept connection.
    KeepAlive,
    /// Plain, on a new connection.
    Fresh,
    /// Streamed, on a kept connection.
    Streamed,
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The connection was refused.
    Refused,
    /// It could not be opened for another reason.
    Connect,
    /// It was reset before the answer was whole.
    Reset,
    /// It was closed before the answer was whole.
    Closed,
    /// A kept connection ended after the request was sent and before any answer; see the crate.
    ReusedConnectionClosed,
    /// The answer was not whole in time.
    Timeout,
    /// A status other than 200, without `x-injected-error`.
    Status,
    /// What came back was not HTTP.
    Protocol,
    /// The body, or an event of a stream, was not JSON.
    InvalidJson,
    /// It was JSON, but not the answer to the question.
    WrongContent,
    /// The model and the prompt version do not belong together, or contradict one another.
    MismatchedPair,
    /// A stream with status 200 ended before its `[DONE]`, or in an error.
    CutStream,
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A whole valid answer by this pair.
    Whole(Pair),
    /// An injected error, by this pair if the answer names one.
    Injected(Option<Pair>),
    /// Anything else.
    Failed(Failure),
}

/// One request that ended.
#[derive(Debug)]
pub struct Finished {
    pub flow: Flow,
    /// When it was sent; for a new connection, when connecting began.
    pub sent: Instant,
    /// When the answer was whole; of a stream, also when its first token came.
    pub first_token: Option<Instant>,
    pub verdict: Verdict,
}
