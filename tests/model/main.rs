//! Every order of events of a small world, none left out: two operators with caches that lag, a user, Pods, an ingress
//! controller that follows late and metrics that say what they like, around the engine's own `plan`, explored with
//! stateright.
//!
//! What it is: the decision core and the preconditions of its writes, under every interleaving of a bounded world. The
//! plan is the product's; carrying it out ([`cluster`]) is a copy of `src/shell/apply` in the small, taking the lease and
//! reading everything anew after it ([`leader`]) one of `src/shell/fresh.rs`, and the rules ([`rules`]) are looked at
//! whenever a write lands.
//!
//! What it isn't: the shell itself (tasks, watches, deadlines), texts, Prometheus queries, more than one Ingress, or the
//! dialect `none`. One clock for all; Pods are always watched; numbers go to the status without being held back; prompts,
//! Jobs, pauses, approvals and hand-made switches don't occur. The read before a scale-down and the scale-down are one
//! step. Time moves from one thing that comes due to the next. Instants that can decide nothing any more are forgotten
//! ([`status`]), and a drift of the canary does not lapse after ten minutes.
//!
//! A leader that was paused between its look at the lease and its request may break rules with it for a moment. That is
//! allowed where the next leader puts it right by its next turns ([`leader`] tries it every time), and nowhere else.
//!
//! Faults of the product that the model has found and that are not mended are named in [`scope::Known`]: the worlds leave
//! them out, and a test goes into each of them. When one is mended, that test fails, and the name goes.
//!
//! `tests/README.md` says how it is run and how long it takes.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cluster;
mod engine;
mod leader;
mod rules;
mod scope;
mod state;
mod status;
mod system;
mod walk;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rules::{Event, Rule};
use scope::{Broken, Known, Scope};
use state::{Both, Left};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use system::System;

/// What came of an exploration.
struct Found {
    broken: Vec<&'static str>,
    /// What never happened although it has to be possible.
    missing: Vec<&'static str>,
    seen: Vec<Event>,
    unique: usize,
    /// How each broken rule came to be so.
    traces: String,
}

impl Found {
    /// No rule was broken, all of `possible` was seen, and each of `events` has happened.
    fn is_sound(&self, possible: &[&str], events: &[Event]) {
        assert!(self.broken.is_empty(), "{}", self.traces);
        let unseen: Vec<_> = possible.iter().filter(|name| self.missing.contains(name)).collect();
        assert!(unseen.is_empty(), "never seen: {unseen:?}");
        let unseen: Vec<_> = events.iter().filter(|event| !self.seen.contains(event)).collect();
        assert!(unseen.is_empty(), "never seen: {unseen:?}");
    }
}

/// Looks at every state.
fn explore(name: &str, scope: Scope) -> Found {
    explore_until(name, scope, HasDiscoveries::All)
}

/// Looks at states until one of `rules` is broken.
fn breaks(name: &str, scope: Scope, rules: &[Rule]) {
    let expected: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
    let properties = System::new(Scope::calm()).properties();
    let names = properties.iter().map(|property| property.name);
    let until = names.filter(|name| expected.iter().any(|rule| rule == name)).collect();
    let found = explore_until(name, scope, HasDiscoveries::AnyOf(until));
    let broken = found.broken.iter().any(|name| expected.iter().any(|rule| rule == name));
    assert!(broken, "none of {expected:?} was broken, but {:?}", found.broken);
}

fn explore_until(name: &str, scope: Scope, until: HasDiscoveries) -> Found {
    let began = Instant::now();
    let checker = System::new(scope).checker().threads(2).finish_when(until).spawn_bfs().join();
    let took = began.elapsed();
    let (unique, asked) = (checker.unique_state_count(), checker.model().engine.asked());
    println!(
        "{name}: {} states, {unique} unique, depth {}, {took:.1?}, {:.0} unique/s, {asked} different plans",
        checker.state_count(),
        checker.max_depth(),
        unique as f64 / took.as_secs_f64(),
    );
    let found = checker.discoveries();
    let mut traces = String::new();
    let (mut broken, mut missing) = (Vec::new(), Vec::new());
    for property in checker.model().properties() {
        match (property.expectation, found.get(property.name)) {
            (Expectation::Always, Some(path)) => {
                broken.push(property.name);
                _ = writeln!(traces, "{name}: {} is broken by", property.name);
                for (state, action) in path.clone().into_vec() {
                    let todo = state.operators.map(|operator| operator.turn.map(|turn| turn.todo));
                    let todo: Vec<_> = todo.iter().flatten().flatten().flatten().collect();
                    _ = writeln!(traces, "  to do {todo:?}\n  {action:?}");
                }
                _ = writeln!(traces, "  at the end: {:?}", path.last_state().api);
            }
            (Expectation::Sometimes, None) => missing.push(property.name),
            _ => {}
        }
    }
    let seen = checker.model().seen();
    println!("  broken {broken:?}, never {missing:?}, seen {seen:?}");
    Found { broken, missing, seen, unique, traces }
}

const NOTHING: Left =
    Left { crashes: 0, takeovers: 0, errors: 0, losses: Both(0, 0), supersedes: 0, turns: 0, acts: 0 };

/// Two operators, of which the first may be paused and lose the lease to the second.
fn two(lag: u8, left: Left) -> Scope {
    Scope { left: Left { takeovers: 1, ..left }, standby: true, lag, late: 1, ..Scope::calm() }
}

fn one(left: Left) -> Scope {
    Scope { left, ..Scope::calm() }
}

const CRASHES: [Event; 5] = [
    Event::CrashBeforeScale,
    Event::CrashBeforeCanary,
    Event::CrashBeforeAnchor,
    Event::CrashBeforeStatus,
    Event::CrashBeforeSwitch,
];

/// What a paused leader may do, and what may come of it before the next one knows.
const LATE: [Event; 6] = [
    Event::LateWrite,
    Event::LateRaise,
    Event::LateSwitch,
    Event::LateReturn,
    Event::AfterLateRaise,
    Event::AfterLateScale,
];

#[test]
fn nothing_goes_wrong_but_what_the_metrics_say() {
    let found = explore("calm", one(NOTHING));
    found.is_sound(&["promoted", "completed", "gate failed", "held in silence", "deadline"], &[Event::StoodStill]);
}

#[test]
fn a_crash_in_the_middle_of_everything_and_an_act() {
    let found = explore("crash and act", one(Left { crashes: 1, acts: 1, ..NOTHING }));
    let possible = ["promoted", "completed", "gate failed", "act", "restoring", "restored", "canary put back"];
    found.is_sound(&possible, &CRASHES);
    found.is_sound(&[], &[Event::CrashBeforeRemovingAct, Event::LostConflict, Event::PlaneBehind]);
}

#[test]
fn the_target_turns_twice_and_the_process_dies() {
    let found = explore("crash and turns", one(Left { crashes: 1, turns: 2, ..NOTHING }));
    found.is_sound(&["promoted", "target back", "restoring", "restored", "second attempt"], &CRASHES);
}

#[test]
fn the_target_is_superseded_while_its_pods_come_and_go() {
    let left = Left { supersedes: 1, losses: Both(0, 1), errors: 1, ..NOTHING };
    let found = explore("supersede", Scope { silence: false, ..one(left) });
    found.is_sound(&["superseded", "readiness lost", "capacity short", "second attempt", "completed"], &[]);
}

#[test]
fn the_live_color_loses_its_pods() {
    let left = Left { losses: Both(1, 0), acts: 1, ..NOTHING };
    let found = explore("live color", one(left));
    found.is_sound(&["rollback blocked", "live color down", "act", "backend put back"], &[Event::StartedAgain]);
}

#[test]
fn a_leader_is_paused_and_another_one_dies() {
    let found = explore("two operators", two(0, Left { crashes: 1, ..NOTHING }));
    found.is_sound(&["promoted", "completed", "gate failed", "backend put back"], &CRASHES);
    found.is_sound(&[], &[Event::LostConflict, Event::StillServing]);
    found.is_sound(&[], &LATE);
}

/// The other worlds have a buffer that is longer than the time that the controller needs.
#[test]
fn a_buffer_shorter_than_the_controller_needs_takes_no_pods_early() {
    let scope = Scope { buffer: Duration::from_secs(2), ..one(Left { crashes: 1, ..NOTHING }) };
    let found = explore("short buffer", scope);
    found.is_sound(&["promoted", "completed", "gate failed"], &[Event::PlaneBehind]);
}

#[test]
fn caches_lag_and_the_process_dies() {
    let found = explore("lag", Scope { lag: 1, ..one(Left { crashes: 1, acts: 1, ..NOTHING }) });
    found.is_sound(&["promoted", "completed", "gate failed", "act", "restored"], &CRASHES);
}

/// Two operators with caches that lag: the numbers are in `tests/README.md`.
#[test]
#[ignore = "takes minutes and gigabytes"]
fn the_big_world() {
    let found = explore("the big world", two(1, Left { crashes: 1, errors: 1, ..NOTHING }));
    found.is_sound(&["promoted", "completed", "gate failed", "held in silence", "deadline"], &CRASHES);
    found.is_sound(&[], &[Event::LostConflict, Event::PlaneBehind, Event::StoodStill]);
    found.is_sound(&[], &LATE);
    assert!(found.unique >= 10_000_000, "{}", found.unique);
}

#[test]
#[ignore = "takes minutes"]
fn a_late_write_meets_another_attempt_or_lost_pods() {
    let worlds = [
        ("late, superseded", Left { supersedes: 1, ..NOTHING }, "superseded"),
        ("late, turned", Left { turns: 1, ..NOTHING }, "target back"),
        ("late, act", Left { acts: 1, ..NOTHING }, "act"),
        ("late, blue lost", Left { losses: Both(1, 0), ..NOTHING }, "rollback blocked"),
        ("late, green lost", Left { losses: Both(0, 1), ..NOTHING }, "readiness lost"),
    ];
    for (name, left, possible) in worlds {
        explore(name, two(0, left)).is_sound(&["completed", "gate failed", possible], &LATE);
    }
}

/// A world from the environment: `MODEL=crashes,takeovers,errors,blue,green,supersedes,turns,acts,standby,lag,late,buffer`.
#[test]
#[ignore = "by hand"]
fn the_given_world() {
    let text = std::env::var("MODEL").unwrap();
    let n: Vec<u8> = text.split(',').map(|n| n.parse().unwrap()).collect();
    let left = Left {
        crashes: n[0],
        takeovers: n[1],
        errors: n[2],
        losses: Both(n[3], n[4]),
        supersedes: n[5],
        turns: n[6],
        acts: n[7],
    };
    let buffer = Duration::from_secs(u64::from(n[11]));
    let scope = Scope { left, standby: n[8] > 0, lag: n[9], late: n[10], buffer, ..Scope::calm() };
    let found = explore(&text, scope);
    println!("{}", found.traces);
}

#[test]
fn each_way_to_break_the_operator_is_found() {
    let crash = one(Left { crashes: 1, ..NOTHING });
    let late = two(0, NOTHING);
    let status = Scope { into: Some(Known::LateStatus), ..late.clone() };
    let behind = Scope { late: 0, ..two(1, NOTHING) };
    let cases: [(Broken, &[Rule], Scope); 13] = [
        (Broken::RaisesIgnoreVersions, &[Rule::S4, Rule::S9, Rule::S12], late.clone()),
        (Broken::StatusIgnoresVersions, &[Rule::S10], status),
        (Broken::NoFreshRead, &[Rule::S2], late.clone()),
        (Broken::NoReadAtTakeover, &[Rule::S1, Rule::S2, Rule::S13], behind),
        (Broken::NothingPutRight, &[Rule::Healed], late),
        (Broken::TrafficBeforeIntent, &[Rule::S9], one(NOTHING)),
        (Broken::StatusBeforeGoingBack, &[Rule::S12], one(NOTHING)),
        (Broken::FreshClock, &[Rule::L3], crash.clone()),
        (Broken::FreshBuffer, &[Rule::S3], crash),
        (Broken::SilentPasses, &[Rule::S5], one(NOTHING)),
        (Broken::FailureForgotten, &[Rule::S12], one(NOTHING)),
        (Broken::EarlyScaleDown, &[Rule::S3], one(NOTHING)),
        (Broken::Unjudged, &[Rule::S5], one(NOTHING)),
    ];
    for (broken, rules, scope) in cases {
        breaks(&format!("{broken:?}"), Scope { broken, ..scope }, rules);
    }
}

/// The other way round: when this fails, something was mended, and its name can go.
#[test]
fn a_known_fault_is_still_there() {
    breaks("LateStatus", Scope { into: Some(Known::LateStatus), ..two(0, NOTHING) }, &[Rule::S12]);
}

/// The same for one that takes a second attempt.
#[test]
#[ignore = "takes a minute"]
fn a_known_fault_of_two_attempts_is_still_there() {
    let again = two(0, Left { supersedes: 1, ..NOTHING });
    let scope = Scope { silence: false, into: Some(Known::LateScale), ..again };
    breaks("LateScale", scope, &[Rule::S2, Rule::S3, Rule::S14]);
}
