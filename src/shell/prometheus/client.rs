//! Asks one Prometheus. Whatever it answers becomes samples, a number, or a problem in our own words: nothing that a
//! remote server says ends in a status, an Event or a log line.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_http_query::response::{Data, PromqlResult};
use serde::Deserialize;

use crate::api::reasons::Reason;
use crate::engine::count::Series;
use crate::engine::observed::Answer;

/// The longest that one query may take.
pub const DEADLINE: Duration = Duration::from_secs(3);
/// The largest answer that is read.
const LARGEST: usize = 8 << 20;

/// Why there is no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble(pub Reason, pub String);

impl From<Trouble> for Answer {
    fn from(trouble: Trouble) -> Self {
        Answer::Problem(trouble.0, trouble.1)
    }
}

fn failed(text: impl Into<String>) -> Trouble {
    Trouble(Reason::QueryFailed, text.into())
}

/// A client without redirects and proxies: a source is where the operator's admin said, and nowhere else. Certificates of
/// the system are loaded only if they are needed: an image from scratch has none, and loading them would fail.
fn http(secure: bool) -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(DEADLINE)
        .connect_timeout(Duration::from_secs(1));
    let builder = if secure { builder } else { builder.tls_certs_only([]) };
    builder.build().map_err(|_| {
        "no certificates are there to check the server by: mount them and name the file in SSL_CERT_FILE".to_owned()
    })
}

/// The metrics sources by name.
#[derive(Clone, Default)]
pub struct Sources(BTreeMap<String, prometheus_http_query::Client>);

/// Names only: a URL may hold a password.
impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Sources {
    /// From pairs of a name and a base URL.
    pub fn new(urls: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut sources = BTreeMap::new();
        for (name, url) in urls {
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return Err(format!("metric source {name}: its URL must begin with http:// or https://"));
            }
            let http = http(url.starts_with("https://")).map_err(|error| format!("metric source {name}: {error}"))?;
            let client = prometheus_http_query::Client::from(http, url)
                .map_err(|_| format!("metric source {name}: its URL cannot be read"))?;
            sources.insert(name.clone(), client);
        }
        Ok(Self(sources))
    }

    /// The source of that name.
    pub fn get(&self, name: &str) -> Result<Source, Trouble> {
        let client = self.0.get(name).cloned();
        client.map(Source).ok_or_else(|| {
            let text = format!("the operator was started without a metric source named {name}");
            Trouble(Reason::UnknownSource, text)
        })
    }
}

/// One metrics source.
#[derive(Clone)]
pub struct Source(prometheus_http_query::Client);

#[derive(Deserialize)]
struct Envelope {
    status: String,
    data: Option<serde_json::Value>,
}

impl Source {
    /// The raw samples of `selector` in the last `seconds`.
    pub async fn samples(&self, selector: &str, seconds: u64) -> Result<Vec<Series>, Trouble> {
        let wrong = || Trouble(Reason::InvalidData, "the answer has no samples: is it a plain selector?".to_owned());
        let data = self.ask(&format!("{selector}[{seconds}s]")).await?;
        let Some(Data::Matrix(all)) = parse(data) else { return Err(wrong()) };
        let series = all.into_iter().map(|one| {
            let (labels, samples) = one.into_inner();
            let samples = samples.iter().map(|sample| (sample.timestamp(), sample.value())).collect();
            Series { labels: labels.into_iter().collect(), samples }
        });
        Ok(series.collect())
    }

    /// The one number that `query` gives.
    pub async fn value(&self, query: &str) -> Result<f64, Trouble> {
        let invalid = |text: &str| Trouble(Reason::InvalidData, text.to_owned());
        let value = match parse(self.ask(query).await?) {
            Some(Data::Scalar(sample)) => sample.value(),
            Some(Data::Vector(all)) => match all.as_slice() {
                [] => return Err(Trouble(Reason::NoData, "the query gives no series".to_owned())),
                [one] => one.sample().value(),
                many => return Err(invalid(&format!("the query gives {} series, not one", many.len()))),
            },
            Some(Data::Matrix(_)) => return Err(invalid("the query gives a range of samples, not one number")),
            None => return Err(invalid("the query gives no number")),
        };
        if value.is_finite() { Ok(value) } else { Err(invalid("the query gives a number that is not finite")) }
    }

    async fn ask(&self, query: &str) -> Result<serde_json::Value, Trouble> {
        let request = self.0.query(query).timeout(DEADLINE.as_millis() as i64).post_raw();
        let answer = async {
            let response = request.await.map_err(|_| failed("the metrics source cannot be reached"))?;
            let code = response.status();
            let body = read(response).await?;
            let Ok(envelope) = serde_json::from_slice::<Envelope>(&body) else {
                return Err(failed(format!("the metrics source answered with HTTP status {}", code.as_u16())));
            };
            match envelope.data {
                Some(data) if envelope.status == "success" && code.is_success() => Ok(data),
                _ => Err(failed(format!("the metrics source refused the query (HTTP status {})", code.as_u16()))),
            }
        };
        let late = || failed(format!("the metrics source gave no answer within {} seconds", DEADLINE.as_secs()));
        tokio::time::timeout(DEADLINE, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, Trouble> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| failed("the answer of the metrics source broke off"))? {
        if body.len() + chunk.len() > LARGEST {
            return Err(failed(format!("the answer of the metrics source is larger than {} MiB", LARGEST >> 20)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn parse(data: serde_json::Value) -> Option<Data> {
    serde_json::from_value::<PromqlResult>(data).ok().map(|result| result.into_inner().0)
}
