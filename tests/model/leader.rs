//! The operator that leads: how it comes to lead, what it plans, and whether it puts right what came too late.

use modelrollout::api::Color;
use modelrollout::api::reasons::Step;

use super::engine::Engine;
use super::rules::{self, Event};
use super::scope::Broken;
use super::state::{Kind, Mode, Oracle, Sec, State, Turn, View, Write};
use super::system::System;

/// So many turns the leader may take to put right what a late write did.
const TURNS: usize = 3;

impl System {
    /// What the metrics may say to the leader now.
    pub fn oracles(&self, state: &State, view: &View) -> impl Iterator<Item = Oracle> {
        let window = Engine::window(&view.rollout.status);
        let judged = window && {
            let settle = self.scope.settle.as_secs() as Sec;
            view.rollout.status.open().is_some_and(|it| match it.step {
                Step::Buffering => it.buffer_started.is_some_and(|at| at + settle <= 0),
                _ => it.clock.is_some_and(|clock| clock <= 0),
            })
        };
        let sticky = state.ghost.window_failed && same_window(state, view);
        [
            Some(Oracle::Unread),
            (window && self.scope.silence).then_some(Oracle::Silent),
            (judged && !sticky).then_some(Oracle::Pass),
            judged.then_some(Oracle::Fail),
        ]
        .into_iter()
        .flatten()
    }

    /// The leader looks at what it believes; nothing if that gives it nothing to do.
    pub fn plan(&self, state: &mut State, oracle: Oracle) -> Option<()> {
        let cache = state.operators[0].cache;
        let mut view = cache.view;
        let fresh = state.operators[0].fresh;
        if fresh && let Some(it) = view.rollout.status.attempt.as_mut().filter(|it| it.open) {
            match (self.scope.broken, it.step) {
                (Broken::FreshClock, Step::Stage) => it.clock = Some(self.scope.settle.as_secs() as Sec),
                (Broken::FreshBuffer, Step::Buffering) => {
                    it.buffer_started = Some(-(self.scope.buffer.as_secs() as Sec));
                    it.buffer_ends = Some(0);
                }
                _ => {}
            }
        }
        let mut answered = self.engine.ask(&view, oracle);
        if answered.status != cache.view.rollout.status && !answered.todo.contains(&Some(Write::Status)) {
            answered.todo.rotate_right(1);
            answered.todo[0] = Some(Write::Status);
        }
        if answered.is_quiet() {
            return None;
        }
        rules::planned(&mut state.ghost, &cache.view, &answered);
        if oracle == Oracle::Fail && same_window(state, &cache.view) {
            state.ghost.window_failed = true;
        }
        if state.plane_due.is_some() {
            state.ghost.see(Event::PlaneBehind);
        }
        let changed = cache.behind.map(|behind| behind > 0);
        let operator = &mut state.operators[0];
        operator.fresh = false;
        operator.turn = Some(Turn {
            todo: answered.todo,
            status: answered.status,
            basis: answered.basis,
            changed,
            replaced: cache.replaced,
            begun: false,
            age: 0,
        });
        Some(())
    }

    /// `who` takes the lease. It plans nothing before it has read everything anew.
    pub fn lead(&self, state: &mut State, who: usize) {
        if state.operators[0].mode.leads() {
            state.left.takeovers -= 1;
            if self.scope.late > 0 && state.operators[0].turn.is_some() {
                state.operators[0].mode = Mode::Late(self.scope.late);
            } else {
                state.restart(0);
            }
        }
        let reads = self.scope.broken != Broken::NoReadAtTakeover;
        state.operators[who].mode = if reads { Mode::Reads } else { Mode::Leads };
        if who == 1 {
            state.operators.swap(0, 1);
        }
    }

    /// The leader reads everything anew, and goes on with that.
    pub fn read(state: &mut State) {
        for kind in Kind::ALL {
            state.deliver(0, kind);
        }
        assert_eq!(state.operators[0].cache.view, state.api, "something is never read");
        state.operators[0].mode = Mode::Leads;
    }

    /// Whether the leader puts everything right by its next turns when nothing else happens: its writes land, its watches and
    /// the Pods follow, and the metrics need not say anything.
    pub fn heals(&self, state: &State) -> bool {
        let mut state = *state;
        for _ in 0..=TURNS {
            while state.operators[0].turn.is_some() {
                state.land(0, &self.scope);
            }
            for color in Color::BOTH {
                state.pods_follow(color, &self.scope);
            }
            Self::read(&mut state);
            if rules::is_right(&state) {
                return true;
            }
            if self.plan(&mut state, Oracle::Unread).is_none() {
                return false;
            }
        }
        false
    }
}

/// Whether the window that the operator judges is the one on record: what was counted in it stays counted.
fn same_window(state: &State, view: &View) -> bool {
    let window = |view: &View| view.rollout.status.open().map(rules::window);
    window(view) == window(&state.api)
}
