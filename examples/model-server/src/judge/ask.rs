//! Asks one question over HTTP and reads the whole answer.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, retry};
use serde_json::json;

use super::check::quote;
use super::config::JudgeConfig;

/// No answer of a chat API is larger.
const LARGEST: usize = 1 << 20;

/// Why there is no answer to check.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody listens there, or not yet.
    #[error("the connection was refused")]
    Refused,
    /// It took too long.
    #[error("no whole answer within {0:?}")]
    Late(Duration),
    /// Something else than a chat completion came.
    #[error("status {}: {}", .0.as_u16(), quote(.1))]
    Status(StatusCode, String),
    /// The body never ends.
    #[error("the answer is larger than {LARGEST} bytes")]
    Large,
    /// The body is not text.
    #[error("the answer is not UTF-8")]
    Encoding,
    /// The connection failed in another way.
    #[error("{0}")]
    Failed(String),
}

/// Asks one server.
pub struct Asker {
    client: Client,
    url: String,
    model: String,
    timeout: Duration,
}

impl Asker {
    /// Prepares the client. It goes nowhere else than to the Service: no redirects, no proxies, no
    /// TLS and so no certificates, which an image from scratch does not have. Each question has a
    /// connection of its own, so that all Pods of the Service have their turn.
    pub fn new(config: &JudgeConfig) -> reqwest::Result<Self> {
        let client = Client::builder()
            .redirect(Policy::none())
            .retry(retry::never())
            .no_proxy()
            .tls_certs_only([])
            .pool_max_idle_per_host(0)
            .timeout(config.timeout_seconds)
            .build()?;
        let url = format!("http://{}:{}/v1/chat/completions", config.service, config.port);
        Ok(Self { client, url, model: config.model.clone(), timeout: config.timeout_seconds })
    }

    /// The body of the answer to one question.
    pub async fn ask(&self, question: &str, stream: bool) -> Result<String, NoAnswer> {
        let messages = [json!({ "role": "user", "content": question })];
        let body = json!({ "model": self.model, "stream": stream, "messages": messages });
        let response = self.client.post(&self.url).json(&body).send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let body = self.read(response).await?;
        if status == StatusCode::OK { Ok(body) } else { Err(NoAnswer::Status(status, body)) }
    }

    async fn read(&self, mut response: Response) -> Result<String, NoAnswer> {
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.failed(&error))? {
            if body.len() + part.len() > LARGEST {
                return Err(NoAnswer::Large);
            }
            body.extend_from_slice(&part);
        }
        String::from_utf8(body).map_err(|_| NoAnswer::Encoding)
    }

    fn failed(&self, error: &reqwest::Error) -> NoAnswer {
        if error.is_timeout() {
            return NoAnswer::Late(self.timeout);
        }
        let causes = || successors(error.source(), |&cause| cause.source());
        let refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
        if causes().filter_map(|cause| cause.downcast_ref()).any(refused) {
            return NoAnswer::Refused;
        }
        let cause = causes().last().map_or_else(|| error.to_string(), ToString::to_string);
        let what = if error.is_connect() { "no connection" } else { "the answer broke off" };
        NoAnswer::Failed(format!("{what}: {}", quote(&cause)))
    }
}
