//! Asks one Prometheus. Whatever it answers becomes samples, a number, or a problem in our own words: nothing that a
//! remote server says ends in a status, an Event or a log line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request, Response, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::api::reasons::Reason;
use crate::engine::count::{NativeSample, Series, native};
use crate::engine::observed::Answer;

/// The longest that one query may take.
pub const DEADLINE: Duration = Duration::from_secs(3);
/// The largest answer that is read.
const LARGEST: usize = 4 << 20;

/// How many questions one source is asked at once.
const AT_ONCE: usize = 4;

/// Why there is no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble(pub Reason, pub String);

impl Trouble {
    /// Whether the answer was larger than what is read: less may be asked for.
    pub fn is_too_large(&self) -> bool {
        self.1 == too_large()
    }
}

fn too_large() -> String {
    format!("the answer of the metrics source is larger than {} MiB: select fewer series", LARGEST >> 20)
}

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

/// How a request comes to a source: over the network, or in a simulation to what stands for it. No answer has no reason:
/// the words of an error may hold the URL.
pub type Transport = Arc<dyn Fn(Request) -> BoxFuture<'static, Option<Response>> + Send + Sync>;

fn network(client: reqwest::Client) -> Transport {
    Arc::new(move |request| {
        let answer = client.execute(request);
        Box::pin(async { answer.await.ok() })
    })
}

/// The metrics sources by name.
#[derive(Clone, Default)]
pub struct Sources(BTreeMap<String, Source>);

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
            let source = Source::new(url, network(http));
            sources
                .insert(name.clone(), source.ok_or_else(|| format!("metric source {name}: its URL cannot be read"))?);
        }
        Ok(Self(sources))
    }

    /// One source, `default`, at the other end of `transport`.
    pub fn simulated(transport: Transport) -> Self {
        Self(
            Source::new("http://simulated", transport)
                .map(|source| ("default".to_owned(), source))
                .into_iter()
                .collect(),
        )
    }

    /// The source of that name.
    pub fn get(&self, name: &str) -> Result<Source, Trouble> {
        self.0.get(name).cloned().ok_or_else(|| {
            let text = format!("the operator was started without a metric source named {name}");
            Trouble(Reason::UnknownSource, text)
        })
    }
}

/// One metrics source.
#[derive(Clone)]
pub struct Source {
    /// Its path ends with a slash.
    base: Url,
    transport: Transport,
    permits: Arc<Semaphore>,
}

#[derive(Deserialize)]
struct Envelope {
    status: String,
    /// Read by whoever knows what it must be: a tree of all of it would take several times its size.
    data: Option<Box<RawValue>>,
}

fn no_samples() -> Trouble {
    Trouble(Reason::InvalidData, "the answer has no samples: is it a plain selector?".to_owned())
}

/// A comment at the end must not swallow what comes after it.
fn ended(selector: &str) -> Cow<'_, str> {
    if selector.contains('#') { Cow::Owned(format!("{selector}\n")) } else { Cow::Borrowed(selector) }
}

/// The samples of a range, as the API gives them: of a series either values or native histograms.
#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Ranges {
    Matrix(Vec<Range>),
}

/// What may come where one number is wanted.
#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Numbers {
    Scalar((f64, String)),
    Vector(Vec<Number>),
    Matrix(IgnoredAny),
}

#[derive(Deserialize)]
struct Number {
    value: (f64, String),
}

#[derive(Deserialize)]
struct Range {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Vec<(f64, Histogram)>,
}

/// The samples of one instant.
#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Instants {
    Vector(Vec<Instant>),
}

#[derive(Deserialize)]
struct Instant {
    metric: BTreeMap<String, String>,
    value: Option<(f64, String)>,
    histogram: Option<(f64, Histogram)>,
}

#[derive(Deserialize)]
struct Histogram {
    count: String,
    /// Boundary rule, lower bound, upper bound, observations.
    #[serde(default)]
    buckets: Vec<(i64, String, String, String)>,
}

/// As series of counters; native histograms become classic ones. None if a number cannot be read.
fn counters(ranges: Vec<Range>) -> Option<Vec<Series>> {
    let (mut series, mut natives) = (Vec::new(), Vec::new());
    for Range { metric, values, histograms } in ranges {
        if histograms.is_empty() {
            let samples = values.into_iter().map(|(at, value)| Some((at, value.parse().ok()?)));
            series.push(Series::new(metric, samples.collect::<Option<_>>()?));
        } else {
            let samples = histograms.into_iter().map(|(at, histogram)| histogram.sample(at));
            natives.push((metric, samples.collect::<Option<_>>()?));
        }
    }
    series.extend(native(&natives));
    Some(series)
}

impl Histogram {
    fn sample(&self, at: f64) -> Option<NativeSample> {
        let number = |text: &String| text.parse::<f64>().ok();
        let bucket = |(_, lower, upper, count): &(i64, String, String, String)| {
            Some((number(lower)?, number(upper)?, number(count)?))
        };
        let buckets = self.buckets.iter().map(bucket).collect::<Option<_>>()?;
        Some(NativeSample { at, count: number(&self.count)?, buckets })
    }
}

/// What a source says that a metric is.
#[derive(Deserialize)]
struct Described {
    #[serde(rename = "type")]
    kind: String,
}

impl Source {
    fn new(url: &str, transport: Transport) -> Option<Self> {
        let mut base = Url::parse(url).ok()?;
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Some(Self { base, transport, permits: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// A request with `fields`: as a form, or as a query if it only gets.
    fn request(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Option<Request> {
        let mut url = self.base.join(path).ok()?;
        url.query_pairs_mut().extend_pairs(fields);
        if method == Method::GET {
            return Some(Request::new(method, url));
        }
        let form = url.query().unwrap_or_default().to_owned();
        url.set_query(None);
        let mut request = Request::new(method, url);
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        *request.body_mut() = Some(form.into());
        Some(request)
    }

    /// The raw samples of `selector` in the `seconds` before `end` (unix time; now if there is none).
    pub async fn samples(&self, selector: &str, seconds: u64, end: Option<f64>) -> Result<Vec<Series>, Trouble> {
        let data = self.ask(&format!("{}[{seconds}s]", ended(selector)), end).await?;
        let Ok(Ranges::Matrix(all)) = serde_json::from_str::<Ranges>(data.get()) else { return Err(no_samples()) };
        counters(all).ok_or_else(no_samples)
    }

    /// The last value of each series of `selector` in the hour before `end` (unix time).
    pub async fn before(&self, selector: &str, end: f64) -> Result<Vec<Series>, Trouble> {
        let data = self.ask(&format!("last_over_time({}[1h])", ended(selector)), Some(end)).await?;
        let Ok(Instants::Vector(all)) = serde_json::from_str::<Instants>(data.get()) else { return Err(no_samples()) };
        let ranges = all.into_iter().map(|Instant { metric, value, histogram }| Range {
            metric,
            values: value.into_iter().collect(),
            histograms: histogram.into_iter().collect(),
        });
        counters(ranges.collect()).ok_or_else(no_samples)
    }

    /// The time between two samples of `selector`, in seconds, as far as the last `seconds` tell.
    pub async fn interval(&self, selector: &str, seconds: f64) -> Result<Option<f64>, Trouble> {
        let count = self.value(&format!("max(count_over_time({}[{seconds}s]))", ended(selector))).await?;
        Ok((count >= 2.0).then(|| seconds / count))
    }

    /// What is wrong with counting `metric`, by what the source knows of it. Sources that know nothing are believed.
    pub async fn not_a_counter(&self, metric: &str) -> Option<Trouble> {
        let request = self.request(Method::GET, "api/v1/metadata", &[("metric", metric)])?;
        let answer = async {
            let body = read((self.transport)(request).await?).await.ok()?;
            serde_json::from_slice::<Envelope>(&body).ok()?.data
        };
        let data = tokio::time::timeout(DEADLINE, answer).await.ok()??;
        let described: BTreeMap<String, Vec<Described>> = serde_json::from_str(data.get()).ok()?;
        // the same name may be a counter elsewhere
        let kinds = described.get(metric)?;
        let kind = kinds.first()?.kind.as_str();
        kinds.iter().all(|one| ["gauge", "gaugehistogram", "info", "stateset"].contains(&one.kind.as_str())).then(|| {
            let text = format!("{metric} is not a counter but a {kind}: select a counter, which only rises and counts requests one by one");
            Trouble(Reason::NotACounter, text)
        })
    }

    /// The one number that `query` gives.
    pub async fn value(&self, query: &str) -> Result<f64, Trouble> {
        let invalid = |text: &str| Trouble(Reason::InvalidData, text.to_owned());
        let data = self.ask(query, None).await?;
        let text = match serde_json::from_str::<Numbers>(data.get()) {
            Ok(Numbers::Scalar((_, text))) => text,
            Ok(Numbers::Vector(all)) => match all.as_slice() {
                [] => return Err(Trouble(Reason::NoData, "the query gives no series".to_owned())),
                [one] => one.value.1.clone(),
                many => return Err(invalid(&format!("the query gives {} series, not one", many.len()))),
            },
            Ok(Numbers::Matrix(_)) => return Err(invalid("the query gives a range of samples, not one number")),
            Err(_) => return Err(invalid("the query gives no number")),
        };
        let Ok(value) = text.parse::<f64>() else { return Err(invalid("the query gives no number")) };
        if value.is_nan() {
            return Err(Trouble(
                Reason::NoTraffic,
                "the query gives no number (NaN): is there any traffic yet?".to_owned(),
            ));
        }
        if value.is_finite() { Ok(value) } else { Err(invalid("the query gives a number that is not finite")) }
    }

    async fn ask(&self, query: &str, at: Option<f64>) -> Result<Box<RawValue>, Trouble> {
        // No more at once than fit into memory, of each source by itself: one that hangs holds up nobody else.
        let _permit = self.permits.acquire().await;
        let (timeout, at) = (format!("{}ms", DEADLINE.as_millis()), at.map(|at| at.to_string()));
        let mut fields = vec![("query", query), ("timeout", &timeout)];
        fields.extend(at.as_deref().map(|at| ("time", at)));
        let unreachable = || failed("the metrics source cannot be reached");
        let request = self.request(Method::POST, "api/v1/query", &fields).ok_or_else(unreachable)?;
        let answer = async {
            let response = (self.transport)(request).await.ok_or_else(unreachable)?;
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

async fn read(mut response: Response) -> Result<Vec<u8>, Trouble> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| failed("the answer of the metrics source broke off"))? {
        if body.len() + chunk.len() > LARGEST {
            return Err(failed(too_large()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
