//! THE PURE CORE: `plan(&ModelRollout, &Observed, now) -> Plan`.
//!
//! No client, no tokio, no clock, no randomness, no iteration over hash maps. Every decision is made in here, and
//! nowhere else: [`preflight`] looks, [`rest`] starts, [`attempt`] moves and goes back, [`gate`] judges, [`report`] tells.

mod acts;
mod attempt;
mod binding;
mod conditions;
pub mod count;
mod deletion;
mod draft;
mod drift;
pub mod gate;
mod jobs;
mod judging;
pub mod observed;
pub mod plan;
mod preflight;
pub mod promql;
pub mod readiness;
mod refresh;
mod report;
mod rest;
pub mod rollout;
pub mod stats;
pub mod time;
pub mod traffic;

use k8s_openapi::jiff::Timestamp;

use crate::api::ModelRollout;
use crate::api::reasons::{Phase, Reason};
use draft::{Draft, Scene};
use observed::Observed;
use plan::Plan;
use rollout::Rollout;

pub use preflight::elder;

/// Decides everything: what to write, what to say, when to look again.
pub fn plan(object: &ModelRollout, seen: &Observed, now: Timestamp) -> Plan {
    let mut draft = Draft::new(object.status.clone().unwrap_or_default(), now);
    if let Some(deleted) = rollout::deleted_at(object) {
        deletion::run(object, deleted, seen, now, &mut draft);
        return finish(draft);
    }
    match Rollout::parse(object) {
        Ok(rollout) => decide(Scene { rollout: &rollout, seen, now }, &mut draft),
        Err(error) => invalid(object, &mut draft, &error),
    }
    refresh::throttle(&mut draft, now);
    finish(draft)
}

fn decide(scene: Scene<'_>, draft: &mut Draft) {
    if let Some(elder) = scene.seen.elder.as_ref().filter(|_| draft.open_attempt().is_none()) {
        report::fill(scene, draft, Some(&preflight::conflict(elder)));
        return;
    }
    // An act that cannot be carried out now stays until it can.
    let blind = draft.open_attempt().is_some() && attempt::unreadable(scene).is_some();
    let asked = if blind { acts::Asked::default() } else { acts::read(scene, draft) };
    let problem = if draft.open_attempt().is_some() {
        attempt::advance(scene, draft, &asked);
        jobs::clean(scene, draft);
        None
    } else {
        rest::run(scene, draft, &asked).err()
    };
    let repairs = |action: &plan::Action| {
        matches!(action, plan::Action::DeleteIngress { .. } | plan::Action::SwitchBackend { .. })
    };
    let unreadable = problem.as_ref().is_some_and(|problem| problem.reason == Reason::Unreadable);
    let problem = problem.filter(|_| !unreadable || !draft.actions.iter().any(repairs));
    if unreadable && problem.is_some() {
        // What could not be read is no finding: say and do nothing until it can be.
        draft.status = draft.stored.clone();
        draft.actions.clear();
        draft.after.clear();
        draft.notes.clear();
        return;
    }
    if draft.actions == [plan::Action::AddFinalizer] {
        // The attempt is opened by the next plan; everything else is written with it, in one write.
        draft.status = draft.stored.clone();
        draft.after.clear();
        draft.notes.clear();
        return;
    }
    if problem.is_some() && !at_target(scene, draft) {
        // What does not fit together gets no write, but a backend that somebody changed is put right all the same: at rest
        // nothing else switches one.
        let tidies = |action: &plan::Action| *action == plan::Action::RemoveFinalizer;
        draft.actions.retain(|action| repairs(action) || tidies(action));
    }
    report::template(scene, draft);
    // While an attempt is open what does not fit holds the raises; the attempt says so itself.
    let misfit = draft.open_attempt().and_then(|_| {
        preflight::fit(scene.rollout, scene.seen).and_then(|()| preflight::own_names(scene.rollout, scene.seen)).err()
    });
    let problem = problem.or(misfit.filter(|misfit| misfit.reason != Reason::Unreadable));
    report::fill(scene, draft, problem.as_ref());
}

fn at_target(scene: Scene<'_>, draft: &Draft) -> bool {
    draft.status.active_color == Some(scene.rollout.target)
}

/// The schema refuses such a spec at apply time; an object stored before a rule existed is the only way to get here.
fn invalid(object: &ModelRollout, draft: &mut Draft, error: &rollout::SpecError) {
    draft.stand(Phase::Invalid, Reason::InvalidSpec, error.to_string());
    draft.status.phase = Some(Phase::Invalid);
    draft.status.observed_generation = object.metadata.generation;
    draft.status.summary.message = error.to_string();
}

fn finish(draft: Draft) -> Plan {
    let Draft { status, order, actions, after, notes, wake, need, .. } = draft;
    Plan { order, actions, status, after, notes, wake, need }
}
