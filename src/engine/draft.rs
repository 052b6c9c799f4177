//! The plan while it is being made: what every step of the engine reads (`Scene`) and adds to (`Draft`).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::observed::{IngressSeen, Lookup, Observed};
use super::plan::{Action, Need, Note, Order};
use super::rollout::Rollout;
use super::time;
use super::traffic::{self, Backend};
use crate::api::reasons::{ConditionType, Phase, Reason};
use crate::api::{Attempt, Color, GateStatus, ModelRolloutStatus};

/// A leader that stood still for longer than this is taken for somebody else.
const LATE: Duration = Duration::from_mins(1);

/// What is given: the settings, the facts and the time.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The settings.
    pub rollout: &'a Rollout,
    /// The facts.
    pub seen: &'a Observed,
    /// The time.
    pub now: Timestamp,
}

impl<'a> Scene<'a> {
    /// The named Ingresses that are there, by name.
    pub fn mains(self) -> Vec<&'a IngressSeen> {
        self.seen.ingresses.values().filter_map(Lookup::found).collect()
    }

    /// Which color they name, taken together.
    pub fn position(self) -> Backend {
        traffic::backend(self.rollout, self.mains())
    }

    /// The first named Ingress that has a path with `color`'s Service.
    pub fn first_naming(self, color: Color) -> Option<&'a IngressSeen> {
        self.mains().into_iter().find(|main| traffic::backend(self.rollout, [*main]).names(color))
    }

    /// Whether it was the operator that moved traffic to `color`, so shortly after `decided` that it may have been a leader
    /// that stood still meanwhile. Every Ingress has to say so: one that is changed by hand takes the others along.
    pub fn came_late(self, color: Color, decided: Timestamp) -> bool {
        let mut naming = self.mains().into_iter().filter(|main| traffic::backend(self.rollout, [*main]).names(color));
        naming.all(|main| main.rules_by_us.is_some_and(|at| at <= time::after(decided, LATE)))
    }

    /// Who sets the replicas of `color`'s Deployment instead of us.
    pub fn autoscaler(self, color: Color) -> Option<&'a str> {
        self.seen.colors.get(color).autoscaler.as_deref()
    }

    /// A command that sets an act.
    pub fn command(self, annotation: &str, value: &str) -> String {
        let Rollout { namespace, name, .. } = self.rollout;
        format!("kubectl annotate -n {namespace} modelrollout {name} {annotation}={value}")
    }
}

/// Where the rollout stands, for people: becomes the phase, the message and most conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// One word.
    pub phase: Phase,
    /// A word for why.
    pub reason: Reason,
    /// One sentence: what it waits for, and what the user can do.
    pub message: String,
}

/// What is decided so far.
pub struct Draft {
    /// The time.
    now: Timestamp,
    /// The status as it was found.
    pub stored: ModelRolloutStatus,
    /// The status as it shall be.
    pub status: ModelRolloutStatus,
    /// What is written first.
    pub order: Order,
    /// The writes.
    pub actions: Vec<Action>,
    /// The writes that come last.
    pub after: Vec<Action>,
    /// What to tell.
    pub notes: Vec<Note>,
    /// When to look again at the latest.
    pub wake: Option<Timestamp>,
    /// What to watch and ask.
    pub need: Need,
    /// Where it stands.
    pub stand: Stand,
    /// The verdicts of this plan; none outside an attempt.
    pub gates: Option<Vec<GateStatus>>,
}

impl Draft {
    /// Nothing decided yet.
    pub fn new(stored: ModelRolloutStatus, now: Timestamp) -> Self {
        Self {
            now,
            status: stored.clone(),
            stored,
            order: Order::StatusFirst,
            actions: Vec::new(),
            after: Vec::new(),
            notes: Vec::new(),
            wake: None,
            need: Need::default(),
            stand: Stand { phase: Phase::Stable, reason: Reason::NotChecked, message: String::new() },
            gates: None,
        }
    }

    /// Looks again at `at` or earlier. What is past has been looked at.
    pub fn wake_at(&mut self, at: Timestamp) {
        if at <= self.now {
            return;
        }
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Says where it stands.
    pub fn stand(&mut self, phase: Phase, reason: Reason, message: impl Into<String>) {
        self.stand = Stand { phase, reason, message: message.into() };
    }

    /// Tells of something that went as it should.
    pub fn tell(&mut self, reason: Reason, action: impl Into<String>, message: impl Into<String>) {
        self.notes.push(Note { warning: false, reason, action: action.into(), message: message.into() });
    }

    /// Tells of something that a person should look at.
    pub fn warn(&mut self, reason: Reason, action: impl Into<String>, message: impl Into<String>) {
        self.notes.push(Note { warning: true, reason, action: action.into(), message: message.into() });
    }

    /// Deletes an Ingress of ours: once, however many steps of this plan want it gone, and not if it is being deleted already.
    /// A canary too goes as a whole: with weight 0 it would keep sticky and named users. Who is first says whether it is urgent.
    pub fn delete(&mut self, ingress: &IngressSeen, urgent: bool) {
        let goes = |action: &Action| matches!(action, Action::DeleteIngress { uid, .. } if *uid == ingress.uid);
        if !ingress.deleting && !self.actions.iter().any(goes) {
            let (name, uid) = (ingress.name.clone(), ingress.uid.clone());
            self.actions.push(Action::DeleteIngress { name, uid, urgent });
        }
    }

    /// The attempt under way.
    pub fn open_attempt(&self) -> Option<Attempt> {
        self.status.attempt.clone().filter(|attempt| attempt.open)
    }

    /// Whether the status as it was found has `reason` on `kind`. Only to tell a thing once, never to decide.
    pub fn said(&self, kind: ConditionType, reason: Reason) -> bool {
        self.stored.conditions.iter().any(|one| one.type_ == kind.as_str() && one.reason == reason.as_str())
    }

    /// Sets the color that carries traffic.
    pub fn set_active(&mut self, color: Color) {
        self.status.active_color = Some(color);
        self.status.idle_color = Some(color.other());
    }
}
