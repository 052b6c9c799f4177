//! Where faults meet requests and events, and where every committed change is looked at. Runs inside the model of the API
//! server: nothing in here waits, and nothing may ask the model through its handle.

use std::collections::BTreeMap;
use std::time::Duration;

use modelrollout_simapi::client::{Call, Delivery, Fate, Reply, Stream};
use modelrollout_simapi::server::{Change, Event, Request, Server};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::fault::{Class, Fault, Kind, Point};
use crate::invariants::Invariants;

/// What the world must do, since a hook cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The operator dies now, and starts again after so long, on a machine whose clock is so many seconds ahead.
    Crash { down: Duration, skew: i64 },
    /// Another operator runs beside ours for a while.
    Rival,
}

/// A run has a few hundred places of a class. So many are a busy loop.
const MANY: u64 = 6_000;

/// Who our operator is. Another one has another name.
pub const OPERATOR: &str = "operator";
/// Who the rival is.
pub const RIVAL: &str = "rival";

/// Faults and observers.
pub struct Hooks {
    faults: BTreeMap<Point, Kind>,
    counts: BTreeMap<Class, u64>,
    commands: UnboundedSender<Command>,
    /// Faults that happened.
    pub happened: Vec<Fault>,
    /// Committed changes that the cluster has not looked at yet.
    pub pending: Vec<Change>,
    /// What must always hold.
    pub invariants: Invariants,
    /// A line for each place where a fault can happen, if it is wanted.
    pub trace: Option<Vec<String>>,
    /// Until when everything is answered with 503, and until when the operator stands still; in milliseconds.
    pub outage_until: u64,
    pub frozen_until: u64,
    /// Until then, in milliseconds, the lease cannot be read or written.
    lease_outage_until: u64,
    /// Until when Prometheus cannot be reached.
    pub source_down_until: u64,
    /// Until when lists are old, and first events late.
    behind_until: u64,
    /// Until then, in milliseconds, no watch tells of an Ingress.
    pub unseen_until: u64,
    /// Milliseconds since the start.
    now: u64,
}

impl Hooks {
    /// With these faults.
    pub fn new(faults: &[Fault], commands: UnboundedSender<Command>, invariants: Invariants, trace: bool) -> Self {
        Self {
            faults: faults.iter().map(|fault| (fault.at, fault.kind)).collect(),
            counts: BTreeMap::new(),
            commands,
            happened: Vec::new(),
            pending: Vec::new(),
            invariants,
            trace: trace.then(Vec::new),
            outage_until: 0,
            lease_outage_until: 0,
            frozen_until: 0,
            source_down_until: 0,
            behind_until: 0,
            unseen_until: 0,
            now: 0,
        }
    }

    /// How many places of a class there were.
    pub fn count(&self, class: Class) -> u64 {
        self.counts.get(&class).copied().unwrap_or(0)
    }

    /// The next place of a class; gives the fault that happens there.
    pub fn reach(&mut self, class: Class, what: impl FnOnce() -> String) -> Option<Kind> {
        let count = self.counts.entry(class).or_insert(0);
        *count += 1;
        if *count >= MANY {
            // whoever does it may be nobody that the run waits for: the panic alone would not be seen
            let text = format!("so many in one run are a busy loop: {class:?}");
            self.invariants.broken("L1", self.now, text);
            assert!(*count < MANY + 100, "a busy loop that does not end: {}", what());
        }
        let at = Point(class, *count);
        if let Some(trace) = &mut self.trace {
            let letter = format!("{class:?}").to_lowercase();
            trace.push(format!("{:>8.3} {letter:>7} {:>3}  {}", self.now as f64 / 1000.0, at.1, what()));
        }
        let kind = self.faults.remove(&at)?;
        self.happen(Fault { at, kind });
        Some(kind)
    }

    /// When the API server answers everything again, in milliseconds.
    pub fn answers_from(&self) -> u64 {
        self.outage_until.max(self.lease_outage_until)
    }

    /// Those that happen at a moment.
    pub fn instants(&mut self, now: u64) -> Vec<Kind> {
        let is_due = |at: &Point| at.0 == Class::Instant && at.1 <= now;
        let due: Vec<Fault> =
            self.faults.extract_if(.., |at, _| is_due(at)).map(|(at, kind)| Fault { at, kind }).collect();
        for fault in &due {
            self.happen(*fault);
        }
        due.iter().map(|fault| fault.kind).collect()
    }

    /// When the next of them happens.
    pub fn next_instant(&self) -> Option<u64> {
        self.faults.keys().filter(|at| at.0 == Class::Instant).map(|at| at.1).min()
    }

    fn happen(&mut self, fault: Fault) {
        self.note(|| format!("*** {fault}"));
        self.invariants.fault(fault.kind, self.now);
        self.happened.push(fault);
    }

    /// A line for the trace.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>8.3}              {}", self.now as f64 / 1000.0, what()));
        }
    }

    fn crash(&mut self, down: u64) {
        let _ = self.commands.send(Command::Crash { down: Duration::from_secs(down), skew: 0 });
    }

    /// What a fault makes of a request.
    fn meet(&mut self, kind: Kind, call: &Call, server: &mut Server) -> Fate {
        let status = |code, reason, retry_after| Fate::refused(Reply::Status { code, reason, retry_after });
        let lost = |reply| Fate { reply, ..Fate::REAL };
        match kind {
            Kind::CrashBefore | Kind::CrashBefore5 | Kind::CrashBefore60 => {
                self.crash(match kind {
                    Kind::CrashBefore5 => 5,
                    Kind::CrashBefore60 => 60,
                    _ => 0,
                });
                Fate::refused(Reply::Never)
            }
            Kind::CrashAfter | Kind::CrashAfter5 | Kind::CrashAfter60 => {
                self.crash(match kind {
                    Kind::CrashAfter5 => 5,
                    Kind::CrashAfter60 => 60,
                    _ => 0,
                });
                lost(Reply::Never)
            }
            Kind::LostReply => lost(Reply::Status { code: 504, reason: "Timeout", retry_after: None }),
            Kind::CutReply => lost(Reply::Broken),
            Kind::Refused => Fate::refused(Reply::Broken),
            Kind::Conflict => {
                touch(&call.request, call, server);
                Fate::REAL
            }
            Kind::TooMany => status(429, "TooManyRequests", Some(1)),
            Kind::TooMany30 => status(429, "TooManyRequests", Some(30)),
            Kind::Internal => status(500, "InternalError", None),
            Kind::Outage1 | Kind::Outage30 | Kind::Outage300 => {
                let seconds = match kind {
                    Kind::Outage1 => 1,
                    Kind::Outage30 => 30,
                    _ => 300,
                };
                self.outage_until = self.now + seconds * 1000;
                status(503, "ServiceUnavailable", None)
            }
            Kind::LeaseOutage30 => {
                self.lease_outage_until = self.now + 30_000;
                status(503, "ServiceUnavailable", None)
            }
            Kind::Hang => Fate::refused(Reply::Never),
            Kind::HangApplied => lost(Reply::Never),
            Kind::Forbidden => status(403, "Forbidden", None),
            Kind::Invalid => status(422, "Invalid", None),
            Kind::Deleted => {
                delete(&call.request, call, server);
                Fate::REAL
            }
            Kind::Slow => Fate { after: Duration::from_secs(7), ..Fate::REAL },
            Kind::Rival => {
                let _ = self.commands.send(Command::Rival);
                Fate { before: Duration::from_millis(1), ..Fate::REAL }
            }
            _ => Fate::REAL,
        }
    }
}

/// The object that a request is about, without a subresource.
fn place(request: &Request) -> &str {
    request.path.trim_end_matches("/status").trim_end_matches("/scale")
}

/// Somebody else changes the object of a request, harmlessly, just before.
fn touch(request: &Request, call: &Call, server: &mut Server) {
    let body = json!({ "metadata": { "annotations": { "example.com/touched": call.number.to_string() } } });
    other(server, "PATCH", request, "application/merge-patch+json", body.to_string(), call);
}

/// Somebody else deletes it, if it is one of those that the operator makes.
fn delete(request: &Request, call: &Call, server: &mut Server) {
    let path = place(request);
    if path.ends_with("-canary") || path.ends_with("-anchor") || path.contains("/jobs/") {
        other(server, "DELETE", request, "application/json", String::new(), call);
    }
}

fn other(server: &mut Server, method: &str, request: &Request, content_type: &str, body: String, call: &Call) {
    let request = Request {
        method: method.to_owned(),
        path: place(request).to_owned(),
        content_type: content_type.to_owned(),
        user_agent: "somebody".to_owned(),
        body: body.into_bytes(),
        ..Request::default()
    };
    server.handle(&request, call.at);
}

/// Class of a request.
pub fn class(call: &Call) -> Class {
    let path = &call.request.path;
    if !call.writes() {
        Class::Read
    } else if path.contains("/leases") {
        Class::Lease
    } else if path.contains("/events") {
        Class::Note
    } else {
        Class::Write
    }
}

fn describe(call: &Call) -> String {
    let request = &call.request;
    let watch = if request.query.contains_key("watch") { "WATCH" } else { &request.method };
    let place = request.path.splitn(4, '/').last().unwrap_or_default();
    format!("{watch} {place} ({})", call.who)
}

impl modelrollout_simapi::client::Hooks for Hooks {
    fn time(&mut self, millis: u64) {
        self.now = millis;
    }

    fn request(&mut self, call: &Call, server: &mut Server) -> Fate {
        if !(&*call.who == OPERATOR || &*call.who == RIVAL) {
            return Fate::REAL;
        }
        let leaseless = call.request.path.contains("/leases") && self.now < self.lease_outage_until;
        if leaseless || self.now < self.outage_until {
            return Fate::refused(Reply::Status { code: 503, reason: "ServiceUnavailable", retry_after: None });
        }
        self.invariants.requested(call, server);
        if &*call.who == RIVAL {
            return Fate::REAL;
        }
        let kind = self.reach(class(call), || describe(call));
        if let Some(kind) = kind {
            return self.meet(kind, call, server);
        }
        let mut fate = Fate::REAL;
        if self.now < self.frozen_until {
            fate.before = Duration::from_millis(self.frozen_until - self.now);
        }
        if self.now < self.behind_until && call.request.method == "GET" {
            fate.reply = Reply::Stale(8);
        }
        fate
    }

    fn committed(&mut self, call: Option<&Call>, change: &Change, server: &Server) {
        self.invariants.committed(call, change, server, self.now);
        // the name of an Event holds the machine's time
        let name = if change.resource.contains("events") { "" } else { &change.name };
        self.note(|| format!("{:?} {}/{name} {} by {}", change.verb, change.resource, change.subresource, change.by));
        self.pending.push(change.clone());
    }

    fn deliver(&mut self, stream: &Stream, event: &Event) -> Delivery {
        if &*stream.who != OPERATOR {
            return Delivery::Now;
        }
        let text = |place: &str| event.body.pointer(place).and_then(serde_json::Value::as_str).unwrap_or_default();
        if text("/type") == "BOOKMARK" {
            return Delivery::Now;
        }
        let kind = self.reach(Class::Event, || {
            format!("{} {} {}", text("/type"), stream.watch.resource, text("/object/metadata/name"))
        });
        match kind {
            Some(Kind::Reorder) => Delivery::After(Duration::from_secs(1)),
            Some(Kind::Stale5) => Delivery::After(Duration::from_secs(5)),
            Some(Kind::Stale60) => Delivery::After(Duration::from_mins(1)),
            Some(Kind::Skip) => Delivery::Overtaken(Duration::from_secs(30)),
            Some(Kind::Cut) => Delivery::Cut,
            Some(Kind::Gone) => Delivery::Gone,
            Some(Kind::Silence) => Delivery::Silence,
            Some(Kind::TimeTravel) => {
                self.crash(0);
                self.behind_until = self.now + 5_000;
                Delivery::Cut
            }
            _ if self.now < self.behind_until => Delivery::After(Duration::from_millis(self.behind_until - self.now)),
            _ if self.now < self.unseen_until && stream.watch.resource.ends_with("/ingresses") => {
                Delivery::After(Duration::from_millis(self.unseen_until - self.now))
            }
            _ if self.now < self.frozen_until => Delivery::After(Duration::from_millis(self.frozen_until - self.now)),
            _ => Delivery::Now,
        }
    }
}
