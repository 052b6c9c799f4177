//! The transition system: what may happen next, and what becomes of it.

use std::sync::atomic::{AtomicU32, Ordering};

use modelrollout::api::Color;
use stateright::{Model, Property};

use super::engine::{Answered, Engine};
use super::rules::{self, Event, Rule};
use super::scope::{Broken, Scope};
use super::state::{Both, Deployment, Ghost, Kind, Mode, Object, Operator, Oracle, Rollout, Sec, State, Status, View};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The leader looks at what it believes and at the metrics, and plans.
    Plan(Oracle),
    /// The next write of an operator reaches the API server.
    Land(usize),
    /// The leader's next write is refused for no reason of its own.
    Refuse,
    /// A watch of an operator catches up.
    Deliver(usize, Kind),
    /// The leader's process dies, and a new one starts.
    Crash,
    /// The process that has lost its lease ends.
    Exit,
    /// An operator takes the lease.
    Lead(usize),
    /// Who has just taken the lease reads everything anew.
    Read,
    /// Time passes until the next thing comes due.
    Wait,
    /// A Deployment's controller and its Pods follow.
    Pods(Color),
    /// Pods become unready: one, or all.
    Lose(Color, bool),
    /// The ingress controller follows.
    Plane,
    /// The user changes green's Pod template.
    Supersede,
    /// The user turns the target.
    Turn,
    /// The user sets the act `rollback`.
    Act,
}

/// Each call has a deadline of 3 seconds; so long a turn of a process that is not paused may take.
const LONGEST_TURN: Sec = 6;

/// The system.
#[derive(Debug)]
pub struct System {
    pub scope: Scope,
    pub engine: Engine,
    /// Bits of [`Event`]: what has happened in any step so far.
    seen: AtomicU32,
    /// Bits of [`Rule`]: what was broken before, so that the first and shortest way there is the one that is shown.
    told: AtomicU32,
}

impl System {
    pub fn new(scope: Scope) -> Self {
        Self { engine: Engine::new(scope.clone()), scope, seen: AtomicU32::new(0), told: AtomicU32::new(0) }
    }

    /// What has happened so far.
    pub fn seen(&self) -> Vec<Event> {
        let seen = self.seen.load(Ordering::Relaxed);
        Event::ALL.into_iter().filter(|event| seen & 1 << *event as u32 != 0).collect()
    }

    /// When the next thing comes due.
    pub fn next_due(&self, state: &State) -> Option<Sec> {
        let written = [state.api.anchor.map(|anchor| anchor.created), state.api.main_by_us];
        // what has a time of whole seconds may be one second younger
        let followed = written.into_iter().flatten().map(|at| at + self.scope.settle.as_secs() as Sec + 1);
        state.api.rollout.status.timers(&self.scope).chain(followed.filter(|at| *at > 0)).min()
    }

    fn wait(&self, state: &mut State) -> Option<()> {
        let span = self.next_due(state)?;
        for operator in &mut state.operators {
            let leads = operator.mode.leads();
            if let Some(turn) = &mut operator.turn {
                turn.age = (turn.age + span).min(LONGEST_TURN + 1);
                if leads && turn.age > LONGEST_TURN {
                    return None;
                }
            }
        }
        if let Some(due) = &mut state.plane_due {
            *due -= span;
            if *due <= 0 {
                state.plane_follows();
            }
        }
        let oldest = -(self.scope.settle.as_secs() as Sec) - 1;
        let age = |view: &mut View| {
            view.rollout.status.age(&self.scope, span);
            if let Some(anchor) = &mut view.anchor {
                anchor.created = (anchor.created - span).max(oldest);
            }
            view.main_by_us = view.main_by_us.map(|at| (at - span).max(oldest));
        };
        age(&mut state.api);
        for operator in &mut state.operators {
            age(&mut operator.cache.view);
            if let Some(turn) = &mut operator.turn {
                turn.status.age(&self.scope, span);
            }
        }
        if let Some(ends) = &mut state.ghost.buffer_ends {
            *ends = (*ends - span).max(0);
        }
        Some(())
    }

    /// Whether a rule holds, or was found broken before.
    fn holds(&self, rule: Rule, holds: impl FnOnce() -> bool) -> bool {
        holds() || self.told.fetch_or(1 << rule as u32, Ordering::Relaxed) & 1 << rule as u32 != 0
    }

    /// Whether the leader knows everything and has nothing to write now, whether or not it has asked the metrics.
    fn has_nothing_to_do(&self, state: &State) -> bool {
        let quiet = |oracle| self.engine.with(&state.api, oracle, Answered::is_quiet);
        rules::is_still(state) && (quiet(Oracle::Unread) || self.scope.silence && quiet(Oracle::Silent))
    }

    /// Whether nothing moves any more unless the environment does something of its own.
    fn stands_still(&self, state: &State) -> bool {
        if !rules::is_still(state) || self.next_due(state).is_some() {
            return false;
        }
        self.seen.fetch_or(1 << Event::StoodStill as u32, Ordering::Relaxed);
        let quiet = |oracle| self.engine.with(&state.api, oracle, |it| it.is_quiet() && it.wake.is_none());
        quiet(Oracle::Unread) && (!Engine::window(&state.api.rollout.status) || quiet(Oracle::Silent))
            || quiet(Oracle::Silent) && self.scope.silence
    }
}

impl Model for System {
    type State = State;
    type Action = Happening;

    fn init_states(&self) -> Vec<State> {
        let pods =
            |count| Deployment { desired: count, ready: count, observed: true, by_us: false, template: 1, revision: 1 };
        let api = View {
            rollout: Rollout { target: Color::Green, finalizer: false, act: false, status: Status::default() },
            main: Color::Blue,
            main_by_us: None,
            canary: None,
            anchor: None,
            deployments: Both(pods(2), pods(0)),
        };
        let ghost = Ghost {
            attempt: 0,
            reached: 0,
            passed: 0,
            window_failed: false,
            failed: None,
            buffer_ends: None,
            lost: Both(0, 0),
            late: None,
            harm: false,
            broken: 0,
            seen: 0,
        };
        let mut operators = [Operator::new(&api); 2];
        operators[0].mode = Mode::Leads;
        let plane = (Color::Blue, None);
        vec![State { api, plane, plane_due: None, operators, left: self.scope.left, ghost }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Happening>) {
        if state.ghost.broken != 0 {
            return;
        }
        let left = &state.left;
        let [first, second] = &state.operators;
        let leads = first.mode.leads();
        if first.mode == Mode::Reads {
            actions.push(Happening::Read);
        }
        if first.mode == Mode::Leads && first.turn.is_none() {
            actions.extend(self.oracles(state, &first.cache.view).map(Happening::Plan));
        }
        for who in 0..2 {
            if state.operators[who].turn.is_some() {
                actions.push(Happening::Land(who));
            }
            for kind in Kind::ALL {
                if kind.objects().iter().any(|object| state.operators[who].cache.behind[object.index()] > 0) {
                    actions.push(Happening::Deliver(who, kind));
                }
            }
        }
        if leads && first.turn.is_some() && left.errors > 0 {
            actions.push(Happening::Refuse);
        }
        if leads && left.crashes > 0 {
            actions.push(Happening::Crash);
        }
        if matches!(second.mode, Mode::Late(_)) {
            actions.push(Happening::Exit);
        }
        if !leads {
            actions.push(Happening::Lead(0));
        }
        if self.scope.standby && second.mode == Mode::Standby && (!leads || left.takeovers > 0) {
            actions.push(Happening::Lead(1));
        }
        if self.next_due(state).is_some() {
            actions.push(Happening::Wait);
        }
        for color in Color::BOTH {
            let it = state.api.deployments.get(color);
            if !it.observed || it.ready != it.desired {
                actions.push(Happening::Pods(color));
            }
            if *left.losses.get(color) > 0 && it.ready > 0 {
                actions.push(Happening::Lose(color, true));
                if it.ready > 1 {
                    actions.push(Happening::Lose(color, false));
                }
            }
        }
        if state.plane_due.is_some() {
            actions.push(Happening::Plane);
        }
        if left.supersedes > 0 {
            actions.push(Happening::Supersede);
        }
        if left.turns > 0 {
            actions.push(Happening::Turn);
        }
        if left.acts > 0 && state.api.rollout.status.attempt.is_some() {
            actions.push(Happening::Act);
        }
    }

    fn next_state(&self, last: &State, action: Happening) -> Option<State> {
        let mut state = *last;
        let scope = &self.scope;
        match action {
            Happening::Plan(oracle) => self.plan(&mut state, oracle)?,
            Happening::Land(who) => state.land(who, scope),
            Happening::Refuse => {
                state.left.errors -= 1;
                state.end_turn(0);
            }
            Happening::Deliver(who, kind) => state.deliver(who, kind),
            Happening::Crash => {
                state.left.crashes -= 1;
                if let Some(turn) = &state.operators[0].turn {
                    rules::died(&mut state.ghost, turn);
                }
                state.restart(0);
                let marks = matches!(scope.broken, Broken::FreshClock | Broken::FreshBuffer);
                state.operators[0].fresh = marks;
            }
            Happening::Exit => state.restart(1),
            Happening::Lead(who) => self.lead(&mut state, who),
            Happening::Read => Self::read(&mut state),
            Happening::Wait => self.wait(&mut state)?,
            Happening::Pods(color) => state.pods_follow(color, scope),
            Happening::Lose(color, all) => {
                *state.left.losses.get_mut(color) -= 1;
                let deployment = state.api.deployments.get_mut(color);
                let gone = if all { deployment.ready } else { 1 };
                deployment.ready -= gone;
                *state.ghost.lost.get_mut(color) += gone;
                state.touched(Object::Deployment(color), None, scope);
            }
            Happening::Plane => state.plane_follows(),
            Happening::Supersede => {
                state.left.supersedes -= 1;
                let green = &mut state.api.deployments.1;
                green.template += 1;
                green.observed = false;
                state.touched(Object::Deployment(Color::Green), None, scope);
            }
            Happening::Turn => {
                state.left.turns -= 1;
                state.api.rollout.target = state.api.rollout.target.other();
                // that is how a person says that the failure was seen
                state.ghost.failed = None;
                let turns = state.operators.iter_mut().filter_map(|operator| operator.turn.as_mut());
                turns.for_each(|turn| turn.basis.failed = false);
                state.touched(Object::Rollout, None, scope);
            }
            Happening::Act => {
                state.left.acts -= 1;
                state.api.rollout.act = true;
                state.touched(Object::Rollout, None, scope);
            }
        }
        if std::mem::take(&mut state.ghost.harm) && !self.heals(&state) {
            state.ghost.broke(Rule::Healed);
        }
        let seen = std::mem::take(&mut state.ghost.seen);
        if seen & !self.seen.load(Ordering::Relaxed) != 0 {
            self.seen.fetch_or(seen, Ordering::Relaxed);
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! rules {
            ($($rule:ident),+) => {
                vec![$(Property::always(stringify!($rule), |system: &System, state: &State| {
                    system.holds(Rule::$rule, || !state.ghost.has_broken(Rule::$rule))
                })),+]
            };
        }
        let mut all = rules!(S1, S2, S3, S4, S5, S9, S10, S12, S13, S14, L3);
        all.push(Property::always("L1", |system: &System, state: &State| {
            system.holds(Rule::L1, || !system.stands_still(state) || rules::may_last(state))
        }));
        all.push(Property::always("Healed", |system: &System, state: &State| {
            let broken =
                state.ghost.has_broken(Rule::Healed) || !rules::is_right(state) && system.has_nothing_to_do(state);
            system.holds(Rule::Healed, || !broken)
        }));
        macro_rules! possible {
            ($($number:literal)+) => {
                $(all.push(Property::sometimes(rules::POSSIBLE[$number].0, |_: &System, state: &State| {
                    (rules::POSSIBLE[$number].1)(&state.api.rollout.status)
                }));)+
            };
        }
        possible!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        all
    }
}
