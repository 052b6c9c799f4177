//! One HTTP/1.1 connection: it opens, sends, and says plainly what went wrong.
//!
//! There is no pool here and no retry. A request that the server provably never saw comes back
//! unsent, and the caller decides.

use std::error::Error;
use std::io;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::guard::Target;
use crate::outcome::{Failure, FailureKind, Flow};

/// A request with its whole body.
pub type Outgoing = Request<Full<Bytes>>;

/// Why there is no answer.
pub enum SendFailure {
    /// Not a byte was sent, and here is the request again.
    Unsent(Box<Outgoing>),
    /// It was sent, at least in part.
    Failed(Failure),
}

impl SendFailure {
    /// The failure, when the request will not be sent again.
    pub fn give_up(self) -> Failure {
        match self {
            Self::Unsent(_) => Failure::new(FailureKind::Closed, "closed before the request was sent"),
            Self::Failed(failure) => failure,
        }
    }
}

/// An open connection, which carries one request at a time.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    used: bool,
}

impl Connection {
    /// Connects to the target.
    pub async fn open(target: &Target) -> Result<Self, Failure> {
        let stream = TcpStream::connect(target.address).await.map_err(|error| connect_failure(&error))?;
        stream.set_nodelay(true).map_err(|error| connect_failure(&error))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| failure_of(&error))?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, driver, used: false })
    }

    /// Whether the connection, after an answer that was read to its end, is still open.
    pub async fn reusable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends one request and waits for the head of its answer.
    pub async fn send(&mut self, request: Outgoing) -> Result<Response<Incoming>, SendFailure> {
        let reused = std::mem::replace(&mut self.used, true);
        let mut failed = match self.sender.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        // The request comes back only if its serialization never began.
        if let Some(request) = failed.take_message() {
            return Err(SendFailure::Unsent(Box::new(request)));
        }
        let mut failure = failure_of(failed.error());
        if reused && matches!(failure.kind, FailureKind::Reset | FailureKind::Closed) {
            failure.kind = FailureKind::ReusedConnectionClosed;
        }
        Err(SendFailure::Failed(failure))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The request that asks a question.
pub fn request(target: &Target, model: &str, question: &str, flow: Flow) -> Outgoing {
    let body = json!({
        "model": model,
        "stream": flow == Flow::Streamed,
        "messages": [{ "role": "user", "content": question }],
    });
    let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.path.clone();
    let headers = request.headers_mut();
    headers.insert(HOST, target.host.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if flow == Flow::Fresh {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    request
}

fn connect_failure(error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused => FailureKind::Refused,
        io::ErrorKind::ConnectionReset => FailureKind::Reset,
        _ => FailureKind::Connect,
    };
    Failure::new(kind, error.to_string())
}

/// What an error of the connection means.
pub fn failure_of(error: &hyper::Error) -> Failure {
    let (mut message, mut io_kind) = (error.to_string(), None);
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        io_kind = io_kind.or(cause.downcast_ref::<io::Error>().map(io::Error::kind));
        source = cause.source();
    }
    let kind = match io_kind {
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe) => {
            FailureKind::Reset
        }
        _ if error.is_parse() => FailureKind::Protocol,
        _ => FailureKind::Closed,
    };
    Failure::new(kind, message)
}
