//! A `kube::Client` that talks to the model, and the hooks where faults and observers sit.
//!
//! Every request and every event of a watch passes [`Hooks`]: they decide what becomes of it, and are told of each change
//! in the moment it is committed. Waits are tokio's, so that they cost nothing in paused time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, future};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::server::{Answer, Change, Event, Request, Server, Watch};

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts all requests, from 1.
    pub number: u64,
    /// Whose client it is.
    pub who: Arc<str>,
    /// The request.
    pub request: Request,
    /// When it came.
    pub at: Timestamp,
}

impl Call {
    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        self.request.method != "GET"
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// It comes so much later.
    pub before: Duration,
    /// The server gets it.
    pub apply: bool,
    /// The reply is held back for so long.
    pub after: Duration,
    /// What the client gets.
    pub reply: Reply,
}

impl Fate {
    /// Nothing special.
    pub const REAL: Self = Self { before: Duration::ZERO, apply: true, after: Duration::ZERO, reply: Reply::Real };

    /// The server does not get it, and this is the reply.
    pub fn refused(reply: Reply) -> Self {
        Self { apply: false, reply, ..Self::REAL }
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// What the server answers.
    Real,
    /// This status, with a body of that reason and message.
    Status {
        /// HTTP status.
        code: u16,
        /// `reason` of the body.
        reason: &'static str,
        /// `Retry-After`, in seconds.
        retry_after: Option<u32>,
    },
    /// The connection breaks.
    Broken,
    /// None, ever.
    Never,
    /// A list as it was so many changes ago; anything else is answered as ever.
    Stale(u64),
}

/// What becomes of one event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is told.
    Now,
    /// It and what follows on this watch is told later.
    After(Duration),
    /// It is told only if no later change of the same object comes within this time.
    Overtaken(Duration),
    /// The connection ends before it.
    Cut,
    /// The watch is told that its version is gone.
    Gone,
    /// The connection stays open and tells nothing more.
    Silence,
}

/// A watch that is open.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Number of its request.
    pub number: u64,
    /// Whose client it is.
    pub who: Arc<str>,
    /// What it watches.
    pub watch: Watch,
}

/// Where faults and observers sit. Called with the model locked: none of them may talk to [`Sim`].
pub trait Hooks: Send {
    /// It is so many milliseconds since the start. Called before anything else is.
    fn time(&mut self, _millis: u64) {}
    /// A request comes in.
    fn request(&mut self, call: &Call, server: &mut Server) -> Fate;
    /// A change was committed; by a request, or by a part of the cluster.
    fn committed(&mut self, call: Option<&Call>, change: &Change, server: &Server);
    /// An event is about to be told.
    fn deliver(&mut self, stream: &Stream, event: &Event) -> Delivery;
}

/// Neither faults nor observers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn request(&mut self, _: &Call, _: &mut Server) -> Fate {
        Fate::REAL
    }
    fn committed(&mut self, _: Option<&Call>, _: &Change, _: &Server) {}
    fn deliver(&mut self, _: &Stream, _: &Event) -> Delivery {
        Delivery::Now
    }
}

struct Shared<H> {
    server: Server,
    hooks: H,
    calls: u64,
}

/// The model with its hooks. A handle: clones are the same model.
pub struct Sim<H> {
    shared: Arc<Mutex<Shared<H>>>,
    newest: Arc<Newest>,
    base: Timestamp,
    start: Instant,
}

/// The newest version, and who waits for the next.
///
/// They are told in the order in which they began to wait. tokio's channel for this (`watch`) tells them in a random one:
/// then a watch may be told before another or after it, and no run comes again as it was.
struct Newest {
    version: AtomicU64,
    told: Notify,
}

impl Newest {
    fn set(&self, version: u64) {
        if self.version.swap(version, Ordering::SeqCst) != version {
            self.told.notify_waiters();
        }
    }
}

/// Waits for versions that were not seen yet.
pub struct Versions {
    newest: Arc<Newest>,
    seen: u64,
}

impl Versions {
    /// All versions until now are seen.
    pub fn mark_seen(&mut self) {
        self.seen = self.newest.version.load(Ordering::SeqCst);
    }

    /// Waits until there is a version that was not seen.
    pub async fn changed(&self) {
        // counts from here: what comes between the look and the wait is not missed
        let told = self.newest.told.notified();
        if self.newest.version.load(Ordering::SeqCst) == self.seen {
            told.await;
        }
    }
}

impl<H> Clone for Sim<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), newest: Arc::clone(&self.newest), base: self.base, start: self.start }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a response.
type Reading = UnsyncBoxBody<Bytes, BoxError>;

/// Why a request failed without an answer.
#[derive(Debug)]
struct ConnectionBroken;

impl std::fmt::Display for ConnectionBroken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection closed before the answer was complete")
    }
}

impl std::error::Error for ConnectionBroken {}

impl<H: Hooks + 'static> Sim<H> {
    /// A model whose time of day is `base` now, and moves on with tokio's clock.
    pub fn new(server: Server, hooks: H, base: Timestamp) -> Self {
        let newest = Arc::new(Newest { version: AtomicU64::new(server.version()), told: Notify::new() });
        let shared = Arc::new(Mutex::new(Shared { server, hooks, calls: 0 }));
        Self { shared, newest, base, start: Instant::now() }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::ZERO);
        self.base.checked_add(passed).unwrap_or(self.base)
    }

    /// Milliseconds since the start.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When the model began.
    pub fn start(&self) -> Instant {
        self.start
    }

    fn lock(&self) -> MutexGuard<'_, Shared<H>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the model and its hooks.
    pub fn with<T>(&self, look: impl FnOnce(&mut Server, &mut H) -> T) -> T {
        let mut shared = self.lock();
        let Shared { server, hooks, .. } = &mut *shared;
        hooks.time(self.millis());
        look(server, hooks)
    }

    /// Waits for versions that are newer than the one of now.
    pub fn versions(&self) -> Versions {
        let newest = Arc::clone(&self.newest);
        Versions { seen: newest.version.load(Ordering::SeqCst), newest }
    }

    /// A client of `who`.
    pub fn client(&self, who: &str, namespace: &str) -> kube::Client {
        let (sim, who): (Self, Arc<str>) = (self.clone(), who.into());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (sim, who) = (sim.clone(), Arc::clone(&who));
            async move { sim.serve(who, request).await }
        });
        kube::Client::new(service, namespace)
    }

    /// A request of a part of the cluster, which no fault meets. Gives the HTTP status and the body.
    pub fn request(&self, who: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: decode_query(query),
            content_type: match (method, body) {
                ("PATCH", Value::Array(_)) => "application/json-patch+json".to_owned(),
                ("PATCH", _) => "application/merge-patch+json".to_owned(),
                _ => "application/json".to_owned(),
            },
            user_agent: who.to_owned(),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            ..Request::default()
        };
        let now = self.now();
        let answer = self.commit(None, &request, now);
        match answer {
            Answer::Done { status, body } => (status, body),
            Answer::Watch(_) => (400, Value::Null),
        }
    }

    /// Changes the model in any other way, such as by collecting garbage; the hooks are told.
    pub fn change<T>(&self, change: impl FnOnce(&mut Server, Timestamp) -> T) -> T {
        let now = self.now();
        let mut shared = self.lock();
        let result = change(&mut shared.server, now);
        self.tell(&mut shared, None);
        result
    }

    fn commit(&self, call: Option<&Call>, request: &Request, now: Timestamp) -> Answer {
        let mut shared = self.lock();
        let answer = shared.server.handle(request, now);
        self.tell(&mut shared, call);
        answer
    }

    fn tell(&self, shared: &mut Shared<H>, call: Option<&Call>) {
        shared.hooks.time(self.millis());
        for change in shared.server.take_changes() {
            shared.hooks.committed(call, &change, &shared.server);
        }
        let newest = shared.server.version();
        self.newest.set(newest);
    }

    async fn serve(self, who: Arc<str>, request: http::Request<Body>) -> Result<Response<Reading>, BoxError> {
        let request = read(request).await?;
        let (call, fate) = {
            let mut shared = self.lock();
            shared.calls += 1;
            let call = Call { number: shared.calls, who, request, at: self.now() };
            let Shared { server, hooks, .. } = &mut *shared;
            hooks.time(self.millis());
            let fate = hooks.request(&call, server);
            // a fault may come with a change by somebody else
            self.tell(&mut shared, None);
            (call, fate)
        };
        pause(fate.before).await;
        let answer = fate.apply.then(|| self.commit(Some(&call), &call.request, self.now()));
        pause(fate.after).await;
        match (fate.reply, answer) {
            (Reply::Never, _) => future::pending().await,
            (Reply::Broken, _) | (Reply::Real | Reply::Stale(_), None) => Err(ConnectionBroken.into()),
            (Reply::Status { code, reason, retry_after }, _) => Ok(refusal(code, reason, retry_after)),
            (Reply::Stale(back), Some(Answer::Done { status, body })) => {
                Ok(whole(status, &self.as_it_was(&call.request, body, back)))
            }
            (_, Some(Answer::Done { status, body })) => Ok(whole(status, &body)),
            (_, Some(Answer::Watch(watch))) => {
                let stream = Stream { number: call.number, who: call.who, watch };
                Ok(Response::new(UnsyncBoxBody::new(StreamBody::new(self.events(stream)))))
            }
        }
    }

    /// A list as it was `back` changes ago.
    fn as_it_was(&self, request: &Request, mut body: Value, back: u64) -> Value {
        let place = |name: &str| request.path.split('/').skip_while(|part| *part != name).nth(1).map(str::to_owned);
        let namespace = place("namespaces");
        let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        let plural = parts.last().copied().unwrap_or_default();
        let resource = match parts.as_slice() {
            ["api", version, ..] => format!("{version}/{plural}"),
            ["apis", group, version, ..] => format!("{group}/{version}/{plural}"),
            _ => return body,
        };
        let selects = ["labelSelector", "fieldSelector"].iter().any(|name| request.query.contains_key(*name));
        let shared = self.lock();
        let version = shared.server.version().saturating_sub(back);
        let Some(list) = shared.server.history_list(&resource, namespace.as_deref(), version) else { return body };
        if selects || body.get("items").is_none() {
            return body;
        }
        body["items"] = list.iter().map(|object| Value::clone(object)).collect();
        body["metadata"] = json!({ "resourceVersion": version.to_string() });
        body
    }

    /// The events of a watch, as lines.
    fn events(self, stream: Stream) -> BoxStream<'static, Result<http_body::Frame<Bytes>, BoxError>> {
        let end = stream.watch.timeout_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let after = stream.watch.after;
        let versions = self.versions();
        let state =
            Telling { sim: self, stream, versions, after, end, queue: Vec::new(), held: BTreeMap::new(), ends: false };
        stream::unfold(Some(state), |state| async move {
            let mut state = state?;
            match state.next().await {
                Told::Event(event) => Some((Ok(line(&event.body)), Some(state))),
                Told::Gone => Some((Ok(line(&gone())), None)),
                Told::End => None,
            }
        })
        .boxed()
    }
}

/// One watch that tells.
struct Telling<H> {
    sim: Sim<H>,
    stream: Stream,
    versions: Versions,
    /// All changes up to this version were looked at.
    after: u64,
    end: Option<Instant>,
    /// To be told, the next one last.
    queue: Vec<Event>,
    /// Told only if nothing later comes about the same object, and when.
    held: BTreeMap<String, (Event, Instant)>,
    /// The connection ends as soon as nothing is held any more.
    ends: bool,
}

enum Told {
    Event(Event),
    Gone,
    End,
}

fn object_key(event: &Event) -> String {
    let text = |place: &str| event.body.pointer(place).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/object/metadata/namespace"), text("/object/metadata/name"))
}

impl<H: Hooks + 'static> Telling<H> {
    async fn next(&mut self) -> Told {
        loop {
            if self.ends {
                // what nothing has overtaken is told: who watches on from here would never hear of it
                return self.held.pop_first().map_or(Told::End, |(_, (event, _))| Told::Event(event));
            }
            if let Some(event) = self.queue.pop() {
                match self.sim.with(|_, hooks| hooks.deliver(&self.stream, &event)) {
                    Delivery::Now => {}
                    Delivery::After(wait) => sleep(wait).await,
                    Delivery::Overtaken(wait) => {
                        self.held.insert(object_key(&event), (event, Instant::now() + wait));
                        continue;
                    }
                    Delivery::Cut => {
                        self.ends = true;
                        continue;
                    }
                    Delivery::Gone => return Told::Gone,
                    Delivery::Silence => future::pending().await,
                }
                return match self.held.remove(&object_key(&event)) {
                    // an object whose first state was never told is new
                    Some((old, _)) if kind(&old) == "ADDED" && kind(&event) == "MODIFIED" => {
                        let mut body = Value::clone(&event.body);
                        body["type"] = "ADDED".into();
                        Told::Event(Event { body: Arc::new(body), ..event })
                    }
                    _ => Told::Event(event),
                };
            }
            self.versions.mark_seen();
            let events = self.sim.with(|server, _| {
                let events = server.events(&self.stream.watch, self.after);
                (events, server.version())
            });
            let (Ok(mut events), version) = events else { return Told::Gone };
            self.after = version;
            events.reverse();
            self.queue = events;
            if !self.queue.is_empty() {
                continue;
            }
            let due = self.held.iter().map(|(key, held)| (held.1, key.clone())).min();
            tokio::select! {
                biased;
                () = self.versions.changed() => {}
                () = until(due.as_ref().map(|due| due.0)) => {
                    if let Some((event, _)) = due.and_then(|due| self.held.remove(&due.1)) {
                        return Told::Event(event);
                    }
                }
                () = until(self.end) => {
                    // the last bookmark must not hide what was held back
                    if let Some((_, (event, _))) = self.held.pop_first() {
                        return Told::Event(event);
                    }
                    self.end = None;
                    if !self.stream.watch.bookmarks {
                        return Told::End;
                    }
                    // as the real server: a last bookmark, so that the next watch goes on from here
                    let bookmark = self.sim.with(|server, _| server.bookmark(&self.stream.watch));
                    self.end = Some(Instant::now());
                    self.stream.watch.bookmarks = false;
                    return Told::Event(bookmark);
                }
            }
        }
    }
}

fn kind(event: &Event) -> &str {
    event.body.get("type").and_then(Value::as_str).unwrap_or_default()
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn line(body: &Value) -> http_body::Frame<Bytes> {
    let mut bytes = body.to_string().into_bytes();
    bytes.push(b'\n');
    http_body::Frame::data(bytes.into())
}

fn status_body(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("simulated: {reason}"), "reason": reason, "code": code })
}

fn gone() -> Value {
    json!({ "type": "ERROR", "object": status_body(410, "Expired") })
}

fn whole(status: u16, body: &Value) -> Response<Reading> {
    let bytes = Full::new(Bytes::from(body.to_string().into_bytes()));
    let mut response = Response::new(UnsyncBoxBody::new(bytes.map_err(|never| match never {})));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn refusal(code: u16, reason: &str, retry_after: Option<u32>) -> Response<Reading> {
    let mut response = whole(code, &status_body(code, reason));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}

async fn read(request: http::Request<Body>) -> Result<Request, BoxError> {
    let (parts, body) = request.into_parts();
    let text = |name: http::HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    Ok(Request {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: decode_query(parts.uri.query().unwrap_or_default()),
        content_type: text(http::header::CONTENT_TYPE),
        accept: text(http::header::ACCEPT),
        user_agent: text(http::header::USER_AGENT),
        body: body.collect().await?.to_bytes().to_vec(),
    })
}

fn decode_query(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

/// Undoes the encoding of a query.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                std::str::from_utf8(&digits).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(b'?')
            }
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
