//! An HTTP proxy between an operator and the real API server that does by plan what networks, API servers and machines do
//! by chance: it dies before or after a write, loses the reply, refuses, hangs, is slow, breaks a watch or lets it be silent.
//!
//! The plan is written as in the simulation (`tests/faults/fault.rs`): `w7=lost-reply` is the seventh write. Classes are `w`
//! (writes, leases and Events excepted), `r` (reads, and the start of a watch), `l` (writes of a lease) and `e` (events of
//! watches). What a real API server does must not hang on what we think it does: so the same faults are tried on one.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Where a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Write,
    Read,
    Lease,
    Event,
}

const CLASSES: [(Class, char); 4] = [(Class::Write, 'w'), (Class::Read, 'r'), (Class::Lease, 'l'), (Class::Event, 'e')];

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SIGKILL before the request is applied; it is started again after so many seconds.
    CrashBefore(u64),
    /// SIGKILL when it is applied and not answered.
    CrashAfter(u64),
    /// Applied; the answer is HTTP 504.
    LostReply,
    /// Applied; the connection breaks.
    CutReply,
    /// The connection breaks before it is applied.
    Refused,
    /// Somebody else really changes the object first.
    Conflict,
    /// Not applied; the answer is this HTTP status.
    Code(u16),
    /// From here on all requests get HTTP 503, and all watches break, for so many seconds.
    Outage(u64),
    /// Never answered, not applied.
    Hang,
    /// Never answered, applied.
    HangApplied,
    /// Applied, and answered when the lease is over.
    Slow,
    /// The watch breaks; what it was about to tell is lost with it.
    Cut,
    /// The watch stays open and silent, and then breaks.
    Silence,
    /// The event, and all after it on that watch, comes later.
    Stale,
}

/// The words, and which of them are for requests.
const WORDS: [(&str, Kind, bool); 21] = [
    ("crash-before", Kind::CrashBefore(0), true),
    ("crash-before-5s", Kind::CrashBefore(5), true),
    ("crash-after", Kind::CrashAfter(0), true),
    ("crash-after-5s", Kind::CrashAfter(5), true),
    ("lost-reply", Kind::LostReply, true),
    ("cut-reply", Kind::CutReply, true),
    ("refused", Kind::Refused, true),
    ("conflict", Kind::Conflict, true),
    ("409", Kind::Code(409), true),
    ("429", Kind::Code(429), true),
    ("500", Kind::Code(500), true),
    ("403", Kind::Code(403), true),
    ("422", Kind::Code(422), true),
    ("503-1s", Kind::Outage(1), true),
    ("503-10s", Kind::Outage(10), true),
    ("hang", Kind::Hang, true),
    ("hang-applied", Kind::HangApplied, true),
    ("slow", Kind::Slow, true),
    ("cut", Kind::Cut, false),
    ("silence", Kind::Silence, false),
    ("stale-2s", Kind::Stale, false),
];

/// Longer than a lease.
const SLOW: Duration = Duration::from_secs(7);
const SILENCE: Duration = Duration::from_secs(5);
const STALE: Duration = Duration::from_secs(2);

/// One fault: the n-th (from 1) of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub class: Class,
    pub number: u64,
    pub kind: Kind,
}

impl Kind {
    /// What is tried at each place of a class.
    pub fn table(class: Class) -> Vec<Self> {
        let fits = |kind: &Kind, request: bool| match class {
            Class::Event => !request,
            // a read applies nothing
            Class::Read => request && !matches!(kind, Kind::Conflict | Kind::Code(409 | 422) | Kind::HangApplied),
            Class::Write | Class::Lease => request,
        };
        WORDS.iter().filter(|(_, kind, request)| fits(kind, *request)).map(|(_, kind, _)| *kind).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = CLASSES.iter().find(|one| one.0 == self.class).map_or('?', |one| one.1);
        let word = WORDS.iter().find(|one| one.1 == self.kind).map_or("?", |one| one.0);
        write!(f, "{letter}{}={word}", self.number)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: a fault is written like w7=lost-reply");
        let (at, word) = text.split_once('=').ok_or_else(wrong)?;
        let letter = at.chars().next().ok_or_else(wrong)?;
        let class = CLASSES.iter().find(|one| one.1 == letter).ok_or_else(wrong)?.0;
        let number = at[1..].parse().map_err(|_| wrong())?;
        let kind = WORDS.iter().find(|one| one.0 == word).map(|one| one.1);
        let kind = kind.filter(|kind| Kind::table(class).contains(kind));
        Ok(Self { class, number, kind: kind.ok_or_else(|| format!("{text}: {word} does not happen there"))? })
    }
}

#[test]
fn faults_are_written_as_they_are_read() {
    for (class, _) in CLASSES {
        for kind in Kind::table(class) {
            let fault = Fault { class, number: 7, kind };
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
    }
    assert!("w7=cut".parse::<Fault>().is_err() && "e7=500".parse::<Fault>().is_err());
    assert!("w=500".parse::<Fault>().is_err());
}

/// The proxy. It ends with this.
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    crashes: mpsc::UnboundedReceiver<Duration>,
    task: JoinHandle<()>,
}

struct Shared {
    upstream: reqwest::Client,
    base: String,
    admin: Client,
    faults: Mutex<Vec<Fault>>,
    counts: Mutex<BTreeMap<Class, u64>>,
    /// The operator is dead, or about to be: nothing passes.
    frozen: AtomicBool,
    outage: Mutex<Option<Instant>>,
    /// Every change breaks all watches.
    cut: watch::Sender<u64>,
    crash: mpsc::UnboundedSender<Duration>,
    began: Instant,
    log: Mutex<Vec<Seen>>,
}

/// A write that came by.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    /// `w7 PATCH ingresses/bot`, what was done to it, and the answer.
    pub line: String,
    /// Whether the API server said that it was done.
    pub done: bool,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FaultProxy {
    /// A proxy of the API server of `KUBECONFIG`, which does `faults`.
    pub async fn start(admin: &Client, faults: &[Fault]) -> Self {
        let config = Config::infer().await.unwrap();
        let roots = config.root_cert.iter().flatten().map(|der| reqwest::Certificate::from_der(der).unwrap());
        let upstream = reqwest::Client::builder().no_proxy().http1_only().tls_certs_only(roots).build().unwrap();
        let (crash, crashes) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            upstream,
            base: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            admin: admin.clone(),
            faults: Mutex::new(faults.to_vec()),
            counts: Mutex::default(),
            frozen: AtomicBool::new(false),
            outage: Mutex::default(),
            cut: watch::Sender::new(0),
            crash,
            began: Instant::now(),
            log: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = axum::Router::new().fallback(handle).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { port, shared, crashes, task }
    }

    /// Writes a kubeconfig into `folder` that leads here instead of to the API server that the one in `from` names.
    pub fn lead_here(&self, from: &Path, folder: &Path) {
        let text = std::fs::read_to_string(from.join("kubeconfig")).unwrap();
        let mut config: Value = serde_yaml::from_str(&text).unwrap();
        for cluster in config["clusters"].as_array_mut().unwrap() {
            // The operator's token goes over the loopback device in plain text, as it does in any proxy of kubectl.
            cluster["cluster"] = json!({ "server": format!("http://127.0.0.1:{}", self.port) });
        }
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("kubeconfig"), serde_yaml::to_string(&config).unwrap()).unwrap();
    }

    /// Waits for the next moment at which the operator has to be killed; it is to be started again after what is given. Until
    /// [`Self::thaw`] nothing passes.
    pub async fn crashed(&mut self) -> Duration {
        self.crashes.recv().await.unwrap()
    }

    /// A new operator is about to start.
    pub fn thaw(&self) {
        self.shared.frozen.store(false, Ordering::SeqCst);
    }

    /// Faults that have not happened: the run was over before.
    pub fn left(&self) -> usize {
        self.shared.faults.lock().unwrap().len()
    }

    /// The writes that came by, without leases and Events.
    pub fn writes(&self) -> Vec<Seen> {
        self.shared.log.lock().unwrap().clone()
    }
}

impl Shared {
    /// The number of this one in its class, and what is to happen to it.
    fn next(&self, class: Class) -> (u64, Option<Kind>) {
        let number = {
            let mut counts = self.counts.lock().unwrap();
            let number = counts.entry(class).or_default();
            *number += 1;
            *number
        };
        let mut faults = self.faults.lock().unwrap();
        let place = faults.iter().position(|fault| fault.class == class && fault.number == number);
        (number, place.map(|place| faults.remove(place).kind))
    }

    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    fn is_down(&self) -> bool {
        self.outage.lock().unwrap().is_some_and(|end| Instant::now() < end)
    }

    async fn crash(&self, seconds: u64) -> Response {
        self.frozen.store(true, Ordering::SeqCst);
        let _ = self.crash.send(Duration::from_secs(seconds));
        pending().await
    }

    /// Somebody else changes the object that a request is about.
    async fn change_first(&self, path: &str) {
        let object = path.strip_suffix("/status").or_else(|| path.strip_suffix("/scale")).unwrap_or(path);
        let now = self.began.elapsed().as_millis().to_string();
        let change = json!({ "metadata": { "annotations": { "e2e/somebody": now } } });
        let request = axum::http::Request::patch(object)
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(change.to_string().into_bytes());
        // what is only being created is nobody's yet
        let _ = self.admin.request::<Value>(request.unwrap()).await;
    }

    async fn forward(
        &self,
        method: Method,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Option<reqwest::Response> {
        let request = self.upstream.request(method, format!("{}{target}", self.base)).headers(passed_on(headers));
        request.body(body).send().await.ok()
    }
}

/// Headers that are not about one connection only.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let local: [HeaderName; 4] = [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    let kept = headers.iter().filter(|(name, _)| !local.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The class of a request; none: nothing happens to it (Events).
fn class_of(method: &Method, path: &str) -> Option<Class> {
    let about = |kind: &str| path.contains(&format!("/{kind}/")) || path.ends_with(&format!("/{kind}"));
    match *method {
        Method::GET => Some(Class::Read),
        _ if about("leases") => Some(Class::Lease),
        _ if about("events") => None,
        _ => Some(Class::Write),
    }
}

/// `ingresses/bot`, of a path of the API.
fn object_of(path: &str) -> &str {
    let after = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
    after.map_or(path, |(_, object)| object)
}

/// A refusal by us. Its words are not those of a real one, so that a log tells the two apart.
fn refuse(code: u16) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Planned",
        "message": "a planned fault", "metadata": {},
    });
    let code = StatusCode::from_u16(code).unwrap();
    let mut answer = (code, [(header::CONTENT_TYPE, "application/json")], status.to_string()).into_response();
    if code == StatusCode::TOO_MANY_REQUESTS {
        answer.headers_mut().insert(header::RETRY_AFTER, "1".parse().unwrap());
    }
    answer
}

fn broken() -> io::Error {
    io::Error::other("a planned fault")
}

/// An answer whose connection breaks before anything of it can be read.
fn cut() -> Response {
    Body::from_stream(stream::iter([Err::<Bytes, _>(broken())])).into_response()
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    if shared.is_frozen() {
        return pending().await;
    }
    if shared.is_down() {
        return refuse(503);
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 16 << 20).await.unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let class = class_of(&parts.method, &path);
    let (number, kind) = class.map_or((0, None), |class| shared.next(class));
    let seen = (class == Some(Class::Write)).then(|| {
        let fate = kind.map(|kind| Fault { class: Class::Write, number, kind }.to_string());
        let line = format!("w{number} {} {} {}", parts.method, object_of(&path), fate.unwrap_or_default());
        let line = format!("{:7.2} {}", shared.began.elapsed().as_secs_f64(), line.trim_end());
        let mut log = shared.log.lock().unwrap();
        log.push(Seen { at: Instant::now(), line, done: false });
        log.len() - 1
    });
    match kind {
        Some(Kind::CrashBefore(seconds)) => return shared.crash(seconds).await,
        Some(Kind::Refused) => return cut(),
        Some(Kind::Code(code)) => return refuse(code),
        Some(Kind::Hang) => return pending().await,
        Some(Kind::Outage(seconds)) => {
            *shared.outage.lock().unwrap() = Some(Instant::now() + Duration::from_secs(seconds));
            shared.cut.send_modify(|cuts| *cuts += 1);
            return refuse(503);
        }
        Some(Kind::Conflict) => shared.change_first(&path).await,
        _ => {}
    }
    let target = parts.uri.path_and_query().map_or(path.as_str(), |target| target.as_str());
    // Whoever asked may be gone before the answer is there: what is applied is applied all the same.
    let answer = shared.forward(parts.method.clone(), target, &parts.headers, body).await;
    let Some(answer) = answer else { return refuse(502) };
    let status = answer.status();
    if let Some(place) = seen {
        let entry = &mut shared.log.lock().unwrap()[place];
        entry.done = status.is_success();
        entry.line = format!("{} -> {}", entry.line, status.as_u16());
    }
    match kind {
        Some(Kind::CrashAfter(seconds)) => return shared.crash(seconds).await,
        Some(Kind::LostReply) => return refuse(504),
        Some(Kind::CutReply) => return cut(),
        Some(Kind::HangApplied) => return pending().await,
        Some(Kind::Slow) => sleep(SLOW).await,
        _ => {}
    }
    let headers = passed_on(answer.headers());
    let is_watch = parts.uri.query().is_some_and(|query| query.split('&').any(|one| one == "watch=true"));
    let body = if is_watch && status.is_success() {
        watched(Arc::clone(&shared), answer)
    } else {
        Body::from(answer.bytes().await.unwrap_or_default())
    };
    if shared.is_frozen() {
        return pending().await;
    }
    (status, headers, body).into_response()
}

/// What a watch tells, as it tells it.
fn watched(shared: Arc<Shared>, answer: reqwest::Response) -> Body {
    let cuts = shared.cut.subscribe();
    let pieces = stream::unfold(Some((shared, answer, cuts)), |state| async move {
        let (shared, mut answer, mut cuts) = state?;
        let piece = tokio::select! {
            piece = answer.chunk() => piece,
            _ = cuts.changed() => return Some((Err(broken()), None)),
        };
        let Ok(Some(piece)) = piece else {
            return piece.is_err().then(|| (Err(broken()), None));
        };
        for _ in piece.iter().filter(|byte| **byte == b'\n') {
            match shared.next(Class::Event).1 {
                Some(Kind::Cut) => return Some((Err(broken()), None)),
                Some(Kind::Silence) => {
                    sleep(SILENCE).await;
                    return Some((Err(broken()), None));
                }
                Some(_) => sleep(STALE).await,
                None => {}
            }
        }
        if shared.is_frozen() {
            pending::<()>().await;
        }
        Some((Ok(piece), Some((shared, answer, cuts))))
    });
    Body::from_stream(pieces)
}
