//! What must never happen at a write that lands, by the names of `docs`' invariants; and what has to happen somewhere,
//! so that a model in which nothing happens proves nothing.

use modelrollout::api::Color;
use modelrollout::api::reasons::{Cause, Phase, Reason, Step};

use super::engine::{Answered, STAGES};
use super::state::{Attempt, Canary, Ghost, Mode, Oracle, State, Status, Turn, View, Write};

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The share of a color rises only if it has the Pods; for a way back one ready Pod is enough.
    S1,
    /// No write of ours takes the Pods of a color that gets traffic.
    S2,
    /// The old color is kept until `bufferEndsAt`, which never moves to an earlier instant.
    S3,
    /// Shares come from the schedule, in order, none is left out; the only way down is to nothing.
    S4,
    /// Each raise comes after a PASS of the stage before it, and a silent source says no PASS.
    S5,
    /// A raise lands only if it is what the status on record wants; one raise for each.
    S9,
    /// A status is replaced only by what was made from it: an attempt that has ended stays ended.
    S10,
    /// After a FAIL the traffic goes back before anything else is written, and the same revision is never raised again.
    S12,
    /// The way back leads to the color that served before.
    S13,
    /// The old color keeps its replicas while the target has a share, and through the buffer.
    S14,
    /// A new process goes on with the clock of the stage.
    L3,
    /// What stands still is at its goal, or says why not.
    L1,
    /// When nothing is left to write, traffic is where the status says, and its Pods are wanted: what a write that came late
    /// did is put right as soon as it is known, by the next turns of the leader.
    Healed,
}

/// Something that has to happen in a step; what can be seen in a state is a property of its own ([`possible`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    LostConflict,
    StillServing,
    LateWrite,
    /// A write that came late has broken a rule.
    LateRaise,
    LateSwitch,
    LateReturn,
    LateScale,
    /// The next leader has, before it knew: it took Pods from a late share, or gave a share to Pods that were taken late.
    AfterLateRaise,
    AfterLateScale,
    /// A color that the operator itself had scaled to nothing was needed after all.
    StartedAgain,
    CrashBeforeScale,
    CrashBeforeCanary,
    CrashBeforeAnchor,
    CrashBeforeStatus,
    CrashBeforeSwitch,
    CrashBeforeRemovingAct,
    PlaneBehind,
    StoodStill,
}

impl Event {
    pub const ALL: [Event; 18] = [
        Event::LostConflict,
        Event::StillServing,
        Event::LateWrite,
        Event::LateRaise,
        Event::LateSwitch,
        Event::LateReturn,
        Event::LateScale,
        Event::AfterLateRaise,
        Event::AfterLateScale,
        Event::StartedAgain,
        Event::CrashBeforeScale,
        Event::CrashBeforeCanary,
        Event::CrashBeforeAnchor,
        Event::CrashBeforeStatus,
        Event::CrashBeforeSwitch,
        Event::CrashBeforeRemovingAct,
        Event::PlaneBehind,
        Event::StoodStill,
    ];
}

impl Ghost {
    pub fn see(&mut self, event: Event) {
        self.seen |= 1 << event as u32;
    }

    pub fn broke(&mut self, rule: Rule) {
        self.broken |= 1 << rule as u32;
    }

    pub fn has_broken(&self, rule: Rule) -> bool {
        self.broken & 1 << rule as u32 != 0
    }

    fn check(&mut self, rule: Rule, holds: bool) {
        if !holds {
            self.broke(rule);
        }
    }
}

fn needed(weight: u8, active: u8) -> u8 {
    (u16::from(weight) * u16::from(active)).div_ceil(100).max(1) as u8
}

/// Holds a write that has just landed against the rules. `before`: the objects as they were.
pub fn landed(state: &mut State, before: &View, plane: (Color, Option<Canary>), turn: &Turn, write: Write, who: usize) {
    let mut ghost = state.ghost;
    let late = matches!(state.operators[who].mode, Mode::Late(_));
    if late {
        ghost.see(Event::LateWrite);
        ghost.late = match write {
            Write::Canary { to, .. } | Write::Switch { to, .. } => Some(to),
            Write::Scale { color, .. } => Some(color),
            _ => ghost.late,
        };
    }
    if turn.basis.failed && turn.basis.said == Some(Oracle::Fail) {
        ghost.failed = turn.basis.revision;
    }
    let status = &before.rollout.status;
    match write {
        Write::Status => committed(&mut ghost, status, turn),
        Write::Canary { to, weight, .. } => {
            let there = before.canary.map_or(0, |canary| canary.weight);
            raised(&mut ghost, before, turn, to, weight);
            let on_record = status.open().is_some_and(|it| {
                it.id == turn.basis.attempt && it.to == to && it.weight == weight && it.step != Step::RollingBack
            });
            ghost.check(Rule::S9, on_record);
            let number_of = |weight: u8| STAGES.iter().position(|one| *one == weight);
            let number = number_of(weight);
            // a share that came late, before this attempt began, is one all the same
            let reached = usize::from(ghost.reached).max(number_of(there).map_or(0, |it| it + 1));
            ghost.check(Rule::S4, weight >= there && number.is_some_and(|it| it <= reached));
            let number = number.unwrap_or_default();
            let passed = (1 << number) - 1;
            ghost.check(Rule::S5, ghost.passed & passed == passed);
            ghost.reached = ghost.reached.max(number as u8 + 1);
        }
        Write::Switch { to, guarded: true } => {
            let it = status.open().filter(|it| it.id == turn.basis.attempt && it.to == to);
            let on_record = it.is_some_and(|it| matches!(it.step, Step::Promoting | Step::Restoring));
            ghost.check(Rule::S9, on_record);
            if turn.basis.restore {
                let ready = |color| alive(state, before, color);
                let active = it.map_or(1, |it| it.active_replicas);
                let enough = ready(to) >= needed(100, active) || ready(to) > 0 && ready(to) >= ready(to.other());
                ghost.check(Rule::S1, enough);
            } else {
                raised(&mut ghost, before, turn, to, 100);
                ghost.check(Rule::S4, usize::from(ghost.reached) == STAGES.len());
                ghost.check(Rule::S5, ghost.passed == (1 << STAGES.len()) - 1);
            }
        }
        Write::Switch { to, guarded: false } => {
            let home = status.open().map(|it| it.to.other()).or(status.active);
            // after the promotion a backend that was taken away is put right
            let promoted = status.open().filter(|it| it.step == Step::Buffering).map(|it| it.to);
            ghost.check(Rule::S13, home == Some(to) || promoted == Some(to));
            let ready = |color| alive(state, before, color);
            ghost.check(Rule::S1, ready(to) > 0 || ready(to.other()) == 0);
        }
        Write::Scale { color, replicas, .. } if replicas < before.deployments.get(color).desired => {
            let canary = |canary: Option<Canary>| canary.is_some_and(|canary| canary.to == color && canary.weight > 0);
            ghost.check(Rule::S2, before.main != color && !canary(before.canary));
            // who sends to a color without Pods loses nothing by it
            let answers = before.deployments.get(color).ready > 0;
            ghost.check(Rule::S2, !answers || plane.0 != color && !canary(plane.1));
            if let Some(it) = &status.attempt {
                let old = it.to != color;
                ghost.check(Rule::S3, !old || ghost.buffer_ends.is_none_or(|ends| ends <= 0));
                ghost.check(Rule::S14, !old || !it.open || it.step == Step::Buffering);
            }
        }
        Write::Scale { color, .. } => {
            let there = before.deployments.get(color);
            if there.by_us && there.desired == 0 && status.open().is_none_or(|it| it.to != color) {
                ghost.see(Event::StartedAgain);
            }
        }
        _ => {}
    }
    state.ghost = excused(&state.ghost, ghost, status, write, late);
}

/// A leader that was paused between its look at the lease and its request may do what the next one has decided against: a
/// create and a switch have no version that such a decision changes, a decision that waits for Pods changes no version at
/// all, and a scale-down takes Pods that the next one counts on. That moment is allowed, as is what the next one does before
/// it knows, and all of it must be put right.
fn excused(last: &Ghost, ghost: Ghost, status: &Status, write: Write, late: bool) -> Ghost {
    let only = |rule: Rule| ghost.broken & !last.broken == 1 << rule as u32;
    let blocked = status.open().is_some_and(|it| it.step == Step::RollingBack);
    let event = match write {
        _ if ghost.broken == last.broken => return ghost,
        Write::Canary { replaces, .. } if late && (!replaces || blocked) => Event::LateRaise,
        Write::Switch { guarded: true, .. } if late => Event::LateSwitch,
        Write::Switch { .. } if late => Event::LateReturn,
        Write::Scale { .. } if late && blocked && only(Rule::S14) => Event::LateScale,
        Write::Scale { color, .. } if !late && ghost.late == Some(color) && only(Rule::S2) => Event::AfterLateRaise,
        Write::Canary { to, .. } | Write::Switch { to, .. } if ghost.late == Some(to) && only(Rule::S1) => {
            Event::AfterLateScale
        }
        _ => return ghost,
    };
    let mut out = if late {
        Ghost { late: ghost.late, reached: ghost.reached, seen: ghost.seen, ..*last }
    } else {
        Ghost { broken: last.broken, ..ghost }
    };
    out.see(event);
    out.harm = true;
    out
}

/// Pods that are ready, or that were until the environment took them: nobody can know that at once.
fn alive(state: &State, before: &View, color: Color) -> u8 {
    before.deployments.get(color).ready + state.ghost.lost.get(color)
}

fn raised(ghost: &mut Ghost, before: &View, turn: &Turn, to: Color, weight: u8) {
    let ready = before.deployments.get(to).ready + ghost.lost.get(to);
    let active = before.rollout.status.attempt.map_or(1, |it| it.active_replicas);
    let rises = before.canary.is_none_or(|canary| canary.weight < weight) || before.main != to && weight == 100;
    ghost.check(Rule::S1, !rises || ready >= needed(weight, active));
    ghost.check(Rule::S12, ghost.failed.is_none() || ghost.failed != turn.basis.revision);
}

/// The window in which requests are judged.
pub fn window(it: &Attempt) -> (u8, Step, u8, Option<i16>, Option<i16>) {
    (it.id, it.step, it.stage, it.clock, it.buffer_started)
}

fn committed(ghost: &mut Ghost, before: &Status, turn: &Turn) {
    let after = &turn.status;
    let (old, new) = (before.attempt, after.attempt);
    if let Some(old) = old {
        let back = new.is_none_or(|new| new.id < old.id || new.id == old.id && new.open && !old.open);
        ghost.check(Rule::S10, !back);
    }
    let Some(new) = new else { return };
    if ghost.attempt != new.id {
        *ghost = Ghost { attempt: new.id, reached: 0, passed: 0, window_failed: false, buffer_ends: None, ..*ghost };
    } else if let Some(old) = old.filter(|old| old.open) {
        if old.step == Step::Stage && turn.basis.said == Some(Oracle::Pass) {
            ghost.passed |= 1 << old.stage;
        }
        if new.step == Step::Stage && (old.stage, old.step) == (new.stage, new.step) && old.clock != new.clock {
            ghost.passed &= !(1 << old.stage);
            // the window that begins anew voids what was counted
            ghost.check(Rule::S12, !ghost.window_failed);
        }
        if window(&old) != window(&new) {
            ghost.window_failed = false;
        }
    }
    if let Some(ends) = new.buffer_ends.filter(|_| new.open) {
        ghost.check(Rule::S3, ghost.buffer_ends.is_none_or(|promised| ends >= promised));
        ghost.buffer_ends = ghost.buffer_ends.or(Some(ends));
    }
}

/// A name, and whether a status says that it is so.
type Possible = (&'static str, fn(&Status) -> bool);

/// What has to be possible.
pub const POSSIBLE: [Possible; 17] = [
    ("promoted", |it| step(it, Step::Buffering, false)),
    ("completed", |it| ended(it, |it| it.cause.is_none() && it.restore.is_none())),
    ("gate failed", |it| by(it, Cause::GateFailed)),
    ("act", |it| by(it, Cause::RollbackRequested)),
    ("target back", |it| by(it, Cause::TargetTurnedBack)),
    ("readiness lost", |it| by(it, Cause::ReadinessLost)),
    ("superseded", |it| by(it, Cause::RevisionChanged)),
    ("deadline", |it| by(it, Cause::ProgressDeadlineExceeded)),
    ("held in silence", |it| it.phase == Some(Phase::Holding) && it.reason == Some(Reason::QueryFailed)),
    ("capacity short", |it| it.reason == Some(Reason::CapacityShort)),
    ("rollback blocked", |it| it.reason == Some(Reason::RollbackBlocked)),
    ("canary put back", |it| it.drift[0][0].is_some()),
    ("backend put back", |it| it.drift[1][0].is_some()),
    ("restoring", |it| step(it, Step::Restoring, true)),
    ("restored", |it| ended(it, |it| it.cause.is_none() && it.restore.is_some())),
    ("live color down", |it| it.reason == Some(Reason::LiveNotReady)),
    ("second attempt", |it| it.attempt.is_some_and(|it| it.id > 1)),
];

fn step(status: &Status, step: Step, restore: bool) -> bool {
    status.open().is_some_and(|it| it.step == step && it.restore.is_some() == restore)
}

fn ended(status: &Status, how: fn(&Attempt) -> bool) -> bool {
    status.attempt.as_ref().is_some_and(|it| !it.open && how(it))
}

fn by(status: &Status, cause: Cause) -> bool {
    status.attempt.is_some_and(|it| !it.open && it.cause == Some(cause))
}

/// Holds a plan against what it was made from. `view` is what the operator believes.
pub fn planned(ghost: &mut Ghost, view: &View, answered: &Answered) {
    let Some(it) = view.rollout.status.open() else { return };
    let todo = || answered.todo.iter().flatten();
    if answered.basis.said == Some(Oracle::Fail) && it.restore.is_none() {
        let place = |wanted: fn(&Write) -> bool| todo().position(wanted);
        let status = place(|write| *write == Write::Status);
        let traffic = place(|write| matches!(write, Write::Switch { .. }))
            .or_else(|| place(|write| *write == Write::DeleteCanary));
        let back = answered.status.open().is_none() && traffic.is_none_or(|traffic| Some(traffic) < status);
        let idle = view.canary.is_none() && view.main != it.to;
        ghost.check(Rule::S12, answered.blocked || back && (traffic.is_some() || idle));
    }
    if let Some(new) = answered.status.open() {
        let same = it.step == Step::Stage && (it.id, it.step, it.stage) == (new.id, new.step, new.stage);
        let in_place = view.canary == Some(Canary { to: it.to, weight: it.weight });
        ghost.check(Rule::L3, !(same && in_place && it.clock != new.clock));
    }
}

/// The process dies with this turn unfinished.
pub fn died(ghost: &mut Ghost, turn: &Turn) {
    let Some(next) = turn.todo[0].filter(|_| turn.begun) else { return };
    ghost.see(match next {
        Write::Scale { .. } => Event::CrashBeforeScale,
        Write::Canary { .. } => Event::CrashBeforeCanary,
        Write::Anchor { .. } => Event::CrashBeforeAnchor,
        Write::Switch { .. } => Event::CrashBeforeSwitch,
        Write::RemoveAct => Event::CrashBeforeRemovingAct,
        _ => Event::CrashBeforeStatus,
    });
}

/// Whether everything that the API server has is known to the operator that leads, and nothing is under way.
pub fn is_still(state: &State) -> bool {
    let leads = state.operators[0].mode == Mode::Leads;
    let known = state.operators[0].cache.behind == [0; 6];
    let idle = state.operators.iter().all(|operator| operator.turn.is_none());
    let pods = [Color::Blue, Color::Green].into_iter().all(|color| {
        let it = state.api.deployments.get(color);
        it.observed && it.ready == it.desired
    });
    leads && known && idle && pods && state.plane_due.is_none()
}

/// Whether traffic is where the status says, and its Pods are wanted.
pub fn is_right(state: &State) -> bool {
    let View { rollout, main, canary, deployments, .. } = &state.api;
    let in_place = match rollout.status.open() {
        None => rollout.status.active == Some(*main) && canary.is_none(),
        Some(it) => match it.step {
            Step::Preparing | Step::Restoring => *main == it.to.other() && canary.is_none(),
            Step::Stage => *main == it.to.other() && canary.is_none_or(|canary| canary.to == it.to),
            Step::Promoting | Step::Buffering | Step::RollingBack => canary.is_none_or(|canary| canary.to == it.to),
        },
    };
    let wanted = |color| deployments.get(color).desired > 0;
    in_place && wanted(*main) && canary.is_none_or(|canary| wanted(canary.to))
}

/// Whether a state in which nothing moves is one that may last.
pub fn may_last(state: &State) -> bool {
    let View { rollout, main, canary, anchor, .. } = &state.api;
    let status = &rollout.status;
    let clean = canary.is_none() && anchor.is_none() && !rollout.finalizer;
    match (status.phase, status.open()) {
        (Some(Phase::Stable), None) => clean && status.active == Some(rollout.target) && *main == rollout.target,
        (Some(Phase::RolledBack), None) => clean && status.active == Some(*main),
        (Some(Phase::Holding), Some(it)) => {
            let known = matches!(status.reason, Some(Reason::QueryFailed | Reason::NoTraffic | Reason::NoData));
            // what the share lacks it may lack because a gate failed: nobody can be asked
            let lacks = canary.is_none_or(|canary| canary.to == it.to && canary.weight < it.weight);
            let in_place = lacks && status.reason != Some(Reason::NoTraffic)
                || *canary == Some(Canary { to: it.to, weight: it.weight });
            known && in_place && *main == it.to.other()
        }
        _ => false,
    }
}
