//! What must always hold, looked at in the moment of every committed write and of every user's request. Each rule has the
//! id by which `tests/README.md` lists it. TO ADD ONE: a function in one of these files, called from
//! [`Invariants::committed`], [`Invariants::requested`] or [`Invariants::finished`].

mod record;
mod traffic;
mod writes;

use std::ops::Range;

use modelrollout::api::{Color, ModelRollout};
use modelrollout_simapi::actors::users::Finished;
use modelrollout_simapi::client::Call;
use modelrollout_simapi::server::{Change, Server, Verb};
use serde_json::Value;

use self::traffic::replicas;
use crate::fault::Kind;
use crate::names::{NAME, NAMESPACE, service};

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `S1` to `S17`, `L1` to `L8`, or `O1` to `O5`.
    pub rule: &'static str,
    /// Milliseconds since the start.
    pub at: u64,
    /// What it was.
    pub text: String,
}

/// One value of each color.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair<T> {
    pub blue: T,
    pub green: T,
}

impl<T> Pair<T> {
    /// That of a color.
    pub fn of(&self, color: Color) -> &T {
        match color {
            Color::Blue => &self.blue,
            Color::Green => &self.green,
        }
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, color: Color) -> &mut T {
        match color {
            Color::Blue => &mut self.blue,
            Color::Green => &mut self.green,
        }
    }
}

/// A value and since when it has been that.
type Since<T> = Vec<(u64, T)>;

/// So long after a process began beside a server that is behind, in milliseconds, it may have seen an older state.
const OLD: u64 = 10_000;

/// What is remembered to look at the next write.
#[derive(Default)]
pub struct Invariants {
    /// What was found.
    pub violations: Vec<Violation>,
    /// The rollout as it is stored.
    rollout: Option<ModelRollout>,
    /// Shares in percent that the objects ask for, newest last.
    weights: Since<Pair<i32>>,
    /// Ready endpoints, newest last.
    ready: Since<Pair<i32>>,
    /// Shares in percent that the ingress controller's workers have in force.
    pub in_force: Pair<f64>,
    /// The operator's view may be old.
    blind: bool,
    /// Somebody but the operator has moved traffic, or changed what runs.
    disturbed: bool,
    /// Somebody has switched a backend by hand, and nobody could see it at once.
    unseen: bool,
    /// When somebody has last switched a backend by hand.
    by_hand: Option<u64>,
    /// The replicas that each Deployment wants.
    wanted: Pair<i64>,
    /// Until when the API server may have told of an older state than it had told of before.
    old_until: u64,
    /// A process died in the middle of what it did.
    died: bool,
    /// One did, and the metrics answered with something else to the next: what was not on record is asked again, and believed.
    lied_to: bool,
    /// Two operators take themselves for leaders.
    rival: bool,
    /// The operator's clock was wrong: what it wrote then looks too far away, or long past, when it is right again.
    clock_wrong: bool,
    record: record::Record,
    /// When the last fault and what it leads to is over.
    pub over_at: u64,
    /// When the target of an attempt first answered with an error, and when it had no share any more after that.
    pub bad: (Option<u64>, Option<u64>),
    /// When users may meet what others did, in milliseconds.
    excused: Vec<(Range<u64>, Range<u64>)>,
    /// Whom attempts tried, newest last.
    tried: Since<Color>,
    /// How often the operator made and deleted each object of its own.
    pub made: std::collections::BTreeMap<String, u64>,
    /// Answers of Prometheus that no fault has touched.
    pub good_answers: u64,
}

impl Invariants {
    /// A rule is broken.
    pub fn broken(&mut self, rule: &'static str, at: u64, text: impl Into<String>) {
        // one that is broken again and again is told once
        if self.violations.iter().filter(|known| known.rule == rule).count() < 3 {
            self.violations.push(Violation { rule, at, text: text.into() });
        }
    }

    /// A fault happens.
    pub fn fault(&mut self, kind: Kind, now: u64) {
        let over_at = now + kind.seconds() * 1000;
        self.hold_up(now, over_at);
        self.excuse(kind, now);
        self.over_at = self.over_at.max(over_at);
        self.blind |= kind.makes_blind();
        self.unseen |= kind == Kind::SwitchedUnseen;
        if kind == Kind::Switched {
            self.by_hand = Some(now);
        }
        self.rival |= kind == Kind::Rival;
        if kind == Kind::TimeTravel {
            self.old_until = now + OLD;
        }
        self.died |= kind.kills();
        self.lied_to |= self.died && kind == Kind::Old;
        self.clock_wrong |= matches!(kind, Kind::ClockAhead | Kind::ClockBehind);
        self.disturbed |=
            kind.changes_the_end() || matches!(kind, Kind::CanaryDeleted | Kind::CanaryEdited | Kind::Deleted);
    }

    /// The operator makes a request.
    pub fn requested(&mut self, call: &Call, server: &Server) {
        self.namespace(call);
        self.margin(call, server);
        self.precondition(call);
    }

    /// A change was committed.
    pub fn committed(&mut self, call: Option<&Call>, change: &Change, server: &Server, now: u64) {
        let operator = call.filter(|call| &*call.who != "user");
        if let Some(call) = operator {
            self.lease(call, server, now);
            self.foreign(change, now);
            let ours = ["networking.k8s.io/v1/ingresses", "batch/v1/jobs"].contains(&change.resource.as_str());
            if ours && change.verb != Verb::Update {
                *self.made.entry(format!("{:?} {}", change.verb, change.name)).or_default() += 1;
            }
        }
        match change.resource.as_str() {
            "discovery.k8s.io/v1/endpointslices" => self.endpoints(server, now),
            "networking.k8s.io/v1/ingresses" => self.moved(operator, server, now),
            "apps/v1/deployments" => {
                if operator.is_some() {
                    self.scaled(change, now);
                }
                if let Some(color) = color_of(&change.name) {
                    *self.wanted.of_mut(color) = replicas(&change.new);
                }
            }
            "modelrollout.dev/v1alpha1/modelrollouts" if change.name == NAME => {
                let old = self.rollout.take();
                if change.verb != Verb::Delete {
                    self.rollout = serde_json::from_value(Value::clone(&change.new)).ok();
                }
                self.recorded(old.as_ref(), operator.is_some(), now);
            }
            _ => {}
        }
    }

    /// A user's request has come to its end; excused is one that a fault took with its Pod.
    pub fn finished(&mut self, request: &Finished, excused: bool, now: u64) {
        if !excused {
            self.answered(request, now);
        }
    }

    /// What the API objects ask for now.
    pub fn share(&self) -> Pair<i32> {
        self.weights.last().map_or(Pair::default(), |last| last.1)
    }

    fn ready_now(&self) -> Pair<i32> {
        self.ready.last().map_or(Pair::default(), |last| last.1)
    }
}

/// The color whose Service has this name.
pub fn color_of(name: &str) -> Option<Color> {
    [Color::Blue, Color::Green].into_iter().find(|color| service(*color) == name)
}

/// The objects of a resource in our namespace.
pub fn objects(server: &Server, resource: &str) -> Vec<std::sync::Arc<Value>> {
    server.list(resource, Some(NAMESPACE))
}

/// A text in an object.
pub fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    object.pointer(place).and_then(Value::as_str).unwrap_or_default()
}
