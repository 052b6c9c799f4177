//! What one state of the model is made of: small, `Copy`, hashable, and with every instant relative to now, so that
//! states that differ by the time of day only are one state.

use modelrollout::api::Color;
use modelrollout::api::reasons::{Cause, Phase, Reason, Step, Verdict};

/// Seconds from now; negative: past.
pub type Sec = i16;

/// A revision of a color, by the number of its Pod template; 0 stands for one that could not be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rev {
    pub color: Color,
    pub template: u8,
}

/// What the engine remembers of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub id: u8,
    pub open: bool,
    pub to: Color,
    pub revision: Rev,
    pub from_revision: Option<Rev>,
    /// First byte of the hash of what `from` was by content.
    pub from_content: Option<u8>,
    pub restore: Option<Cause>,
    pub step: Step,
    pub stage: u8,
    pub weight: u8,
    pub started: Sec,
    pub clock: Option<Sec>,
    pub counted: bool,
    pub judged_by: bool,
    pub replicas_before: u8,
    pub active_replicas: u8,
    pub short_since: Option<Sec>,
    pub buffer_started: Option<Sec>,
    pub buffer_ends: Option<Sec>,
    pub cause: Option<Cause>,
    pub ended: Option<Sec>,
    pub drain_until: Option<Sec>,
}

/// That the act `rollback` is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Act {
    pub attempt: u8,
    pub applied: bool,
    pub at: Sec,
}

/// What the engine reads of a status, and the words by which a person would tell it from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    pub active: Option<Color>,
    pub failed: Option<Rev>,
    pub phase: Option<Phase>,
    pub reason: Option<Reason>,
    pub verdict: Option<(Verdict, Reason)>,
    pub attempt: Option<Attempt>,
    /// When the newest attempt of the history ended.
    pub last_ended: Option<Sec>,
    pub act: Option<Act>,
    /// When the canary and the production Ingress were written back, newest first.
    pub drift: [[Option<Sec>; 3]; 2],
}

/// The `ModelRollout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rollout {
    pub target: Color,
    pub finalizer: bool,
    /// The annotation of the act `rollback` is set.
    pub act: bool,
    pub status: Status,
}

/// Our canary Ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Canary {
    pub to: Color,
    pub weight: u8,
}

/// Our anchor Ingress: the color that it names first, and whether it names the other one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Anchor {
    pub first: Color,
    pub both: bool,
    pub created: Sec,
}

/// A Deployment with its Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deployment {
    pub desired: u8,
    pub ready: u8,
    /// Its controller has seen its newest generation.
    pub observed: bool,
    /// The operator was the last to set its replicas.
    pub by_us: bool,
    /// Number of its Pod template.
    pub template: u8,
    /// Number of the template that its controller has seen.
    pub revision: u8,
}

/// One value for each color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Both<T>(pub T, pub T);

impl<T> Both<T> {
    pub fn get(&self, color: Color) -> &T {
        if color == Color::Blue { &self.0 } else { &self.1 }
    }

    pub fn get_mut(&mut self, color: Color) -> &mut T {
        if color == Color::Blue { &mut self.0 } else { &mut self.1 }
    }
}

/// Everything that a plan reads, as the API server has it or as a cache remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub rollout: Rollout,
    /// The backend of the production Ingress.
    pub main: Color,
    /// When the operator wrote it, if it was the last to do so.
    pub main_by_us: Option<Sec>,
    pub canary: Option<Canary>,
    pub anchor: Option<Anchor>,
    pub deployments: Both<Deployment>,
}

/// The objects, each with its own resourceVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Rollout,
    Main,
    Canary,
    Anchor,
    Deployment(Color),
}

/// Kinds have a watch each: what one of them tells comes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Rollouts,
    Ingresses,
    Deployments,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Rollouts, Kind::Ingresses, Kind::Deployments];

    pub fn objects(self) -> &'static [Object] {
        match self {
            Kind::Rollouts => &[Object::Rollout],
            Kind::Ingresses => &[Object::Main, Object::Canary, Object::Anchor],
            Kind::Deployments => &[Object::Deployment(Color::Blue), Object::Deployment(Color::Green)],
        }
    }
}

impl Object {
    pub fn index(self) -> usize {
        match self {
            Object::Rollout => 0,
            Object::Main => 1,
            Object::Canary => 2,
            Object::Anchor => 3,
            Object::Deployment(Color::Blue) => 4,
            Object::Deployment(Color::Green) => 5,
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Object::Rollout => Kind::Rollouts,
            Object::Main | Object::Canary | Object::Anchor => Kind::Ingresses,
            Object::Deployment(_) => Kind::Deployments,
        }
    }
}

/// What one operator believes: a snapshot of each object, and how many versions each is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    pub view: View,
    pub behind: [u8; 6],
    /// The canary or the anchor of the snapshot is gone or another one.
    pub replaced: [bool; 2],
}

/// One write of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    Status,
    AddFinalizer,
    RemoveFinalizer,
    RemoveAct,
    Canary { replaces: bool, to: Color, weight: u8 },
    DeleteCanary,
    Anchor { replaces: bool, first: Color, both: bool, required: bool },
    DeleteAnchor,
    Switch { to: Color, guarded: bool },
    Scale { color: Color, replicas: u8, checked: bool },
}

/// What the metrics say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Oracle {
    /// Nobody has asked yet.
    Unread,
    /// Prometheus does not answer.
    Silent,
    Pass,
    Fail,
}

/// What a plan was made from, to hold its writes against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Basis {
    /// The attempt that the writes are for, and its revision.
    pub attempt: u8,
    pub revision: Option<Rev>,
    pub restore: bool,
    /// What the metrics said of the window that was open, if one was.
    pub said: Option<Oracle>,
    /// It goes back, for whatever cause.
    pub cause: bool,
    /// It goes back because a gate failed.
    pub failed: bool,
}

/// The most writes that one plan has.
pub const WRITES: usize = 6;

/// A plan that is being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    pub todo: [Option<Write>; WRITES],
    pub status: Status,
    pub basis: Basis,
    /// By [`Object::index`]: the object has changed since the plan looked at it.
    pub changed: [bool; 6],
    /// The canary or the anchor is gone or another one.
    pub replaced: [bool; 2],
    /// A write of it has landed.
    pub begun: bool,
    /// Since when it is carried out.
    pub age: Sec,
}

/// Whether an operator may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    Standby,
    /// It has taken the lease, and has yet to read everything anew.
    Reads,
    Leads,
    /// It was paused and has lost the lease, but does not know: so many writes may still land.
    Late(u8),
}

impl Mode {
    /// Whether it holds the lease.
    pub fn leads(self) -> bool {
        matches!(self, Mode::Reads | Mode::Leads)
    }
}

/// One operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operator {
    pub mode: Mode,
    pub cache: Cache,
    pub turn: Option<Turn>,
    /// It has just started, with the clock of a stage that it must go on with.
    pub fresh: bool,
}

/// What may still happen, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub crashes: u8,
    pub takeovers: u8,
    pub errors: u8,
    pub losses: Both<u8>,
    pub supersedes: u8,
    pub turns: u8,
    pub acts: u8,
}

/// What the rules have to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// The attempt that the following is about.
    pub attempt: u8,
    /// The number of stages (from 1) whose share has landed.
    pub reached: u8,
    /// By stage: left on a PASS of that very stage.
    pub passed: u8,
    /// The metrics have said FAIL in the window that is open: what was counted stays counted.
    pub window_failed: bool,
    /// A gate failed this revision and that was acted upon.
    pub failed: Option<Rev>,
    /// The first promise of how long the old color is kept.
    pub buffer_ends: Option<Sec>,
    /// Pods that the environment took away.
    pub lost: Both<u8>,
    /// A late write has given this color a share or has taken its Pods.
    pub late: Option<Color>,
    /// A rule was broken by a write that came late: it must be put right. Taken out before the state is kept.
    pub harm: bool,
    /// Rules that were broken, as bits of [`super::rules::Rule`].
    pub broken: u32,
    /// What this one step did, as bits of [`super::rules::Event`]; taken out before the state is kept.
    pub seen: u32,
}

/// One state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub api: View,
    /// What the ingress controller does now: the backend and the canary.
    pub plane: (Color, Option<Canary>),
    /// When it will have followed at the latest.
    pub plane_due: Option<Sec>,
    /// The one that leads comes first.
    pub operators: [Operator; 2],
    pub left: Left,
    pub ghost: Ghost,
}
