//! Back to a color that is no longer kept: its Pods are started, and when they can carry the traffic it is switched back in
//! one step, without stages. Only to what was left by the last promotion, unchanged; anything else is a new rollout.

use super::{bound, open as open_attempt, prepare, promote, same_content};
use crate::api::reasons::{Cause, Phase, Reason, Step};
use crate::api::{Attempt, Color};
use crate::engine::acts::Asked;
use crate::engine::binding;
use crate::engine::draft::{Draft, Scene};
use crate::engine::observed::{Lookup, NOT_YET};
use crate::engine::preflight;
use crate::engine::readiness;
use crate::engine::rest;
use crate::engine::rollout::Dialect;
use crate::engine::traffic::{self, Backend};

/// The last attempt, if its promotion stands and its old color is no longer kept.
pub fn candidate(draft: &Draft, active: Color) -> Option<&Attempt> {
    let last = draft.status.attempt.as_ref()?;
    (!last.open && last.to == active && last.cause.is_none() && last.restore.is_none()).then_some(last)
}

/// Whether the old color is still what it was when it was left; if not, what changed. `Unreadable`: it cannot be told now.
pub fn possible(scene: Scene<'_>, draft: &Draft, active: Color) -> Result<Color, (Reason, String)> {
    let Some(last) = candidate(draft, active) else {
        let why = match &draft.status.attempt {
            Some(_) => {
                format!("{active} serves; what was before it is not kept, and the last attempt did not replace it")
            }
            None => "nothing was promoted yet".to_owned(),
        };
        return Err((Reason::NothingToRollBackTo, why));
    };
    let color = last.from;
    let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
    preflight::side(scene.rollout, scene.seen, color)
        .and_then(|()| preflight::own_names(scene.rollout, scene.seen))
        .map_err(|problem| (problem.reason, problem.message))?;
    if let Err((reason @ (Reason::PromptMissing | Reason::Unreadable), message)) = binding::prompt(color, side, seen) {
        return Err((reason, message));
    }
    let Some(now) = binding::revision(color, side, seen) else {
        return Err((Reason::Unreadable, format!("Deployment {}: {NOT_YET}", side.deployment)));
    };
    match &last.from_revision {
        Some(then) if *then == now || same_content(last, side, seen) => Ok(color),
        Some(then) => Err((
            Reason::RollbackTargetChanged,
            format!(
                "the Deployment, model or prompt of {color} changed since it was left (revision {now} instead of {then}): going there is a rollout in stages, by spec.target"
            ),
        )),
        None => Err((
            Reason::NothingToRollBackTo,
            format!(
                "what {color} was when it was left is not on record: going there is a rollout in stages, by spec.target"
            ),
        )),
    }
}

/// Why the old color is to be restored, if it is.
pub fn due(scene: Scene<'_>, draft: &Draft, active: Color, asked: &Asked) -> Option<Cause> {
    if asked.restore {
        return Some(Cause::RollbackRequested);
    }
    let back = candidate(draft, active).is_some_and(|last| last.from == scene.rollout.target);
    (back && possible(scene, draft, active).is_ok()).then_some(Cause::TargetTurnedBack)
}

/// Whether nothing has to be written before the attempt that restores can be opened.
pub fn at_once(scene: Scene<'_>) -> bool {
    let free = scene.rollout.dialect == Dialect::Plain || scene.seen.canary.is_missing();
    free && scene.rollout.has_finalizer
}

/// Opens the attempt that restores the other color.
pub fn open(scene: Scene<'_>, draft: &mut Draft, active: Color, cause: Cause) {
    let color = active.other();
    let Some(revision) = binding::revision(color, scene.rollout.side(color), scene.seen.colors.get(color)) else {
        return;
    };
    open_attempt(scene, draft, active, revision, Some(cause));
}

/// Starts the old color, and switches to it when it can carry the traffic.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt) {
    let (from, to) = (attempt.from, attempt.to);
    let position = scene.position();
    let mains = scene.mains();
    if too_early(scene, draft, &attempt) {
        prepare::scale_up(scene, draft, &attempt);
        draft.status.attempt = Some(attempt);
        return;
    }
    if position == Backend::One(to) {
        promote::switched(scene, draft, attempt);
        return;
    }
    // A switch that is half done is brought to its end.
    let begun = position == Backend::Mixed;
    match waits_for(scene, draft, &attempt).filter(|_| !begun) {
        None => {
            let message = format!("{to} is ready; the backend is switched back to it");
            draft.stand(Phase::Restoring, Reason::Restoring, message);
            if promote::followed(scene, draft, &mut attempt) || begun {
                draft.actions.extend(traffic::switch(scene.rollout, &mains, from, true));
            }
        }
        Some((reason, why)) => {
            attempt.stage_started_at = None;
            let overdue = prepare::overdue(scene, &attempt, &why).filter(|_| reason == Reason::WaitingForReadiness);
            if let Some(message) = overdue {
                super::rollback::go_back(scene, draft, attempt, Cause::ProgressDeadlineExceeded, &message);
                return;
            }
            draft.wake_at(prepare::deadline(scene, &attempt));
            draft.stand(Phase::Restoring, reason, format!("{to} is started to take all traffic back: {why}"));
        }
    }
    draft.status.attempt = Some(attempt);
}

/// Writes a backend back that somebody switched to the color that is being started, before anybody answers there.
pub fn too_early(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) -> bool {
    let answers = readiness::at_least_known(scene.seen.colors.get(attempt.to)).unwrap_or(0) > 0;
    let Some(changed) = scene.first_naming(attempt.to).filter(|_| !answers) else { return false };
    rest::write_back(scene, draft, attempt.from, changed, &format!("{}, which has no ready Pod yet", attempt.to));
    true
}

/// What the switch back waits for.
fn waits_for(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) -> Option<(Reason, String)> {
    prepare::scale_up(scene, draft, attempt);
    let ready = |color: Color| readiness::at_least_known(scene.seen.colors.get(color));
    let (Some(from), Some(to)) = (ready(attempt.from), ready(attempt.to)) else {
        return Some((Reason::Unreadable, "its Pods are not read yet".to_owned()));
    };
    // One ready Pod is enough only when the color that is left has fewer.
    let enough = to >= readiness::needed(100, attempt.active_replicas) || (to > 0 && to >= from);
    let reachable = matches!(scene.seen.colors.get(attempt.to).endpoints, Lookup::Found(ready) if ready > 0);
    if !enough || !reachable || readiness::restarting(scene.seen.colors.get(attempt.to)) {
        let readiness = readiness::of(scene.seen.colors.get(attempt.to));
        let why = if readiness.why.is_empty() {
            format!("{to} of {} Pods are ready", attempt.active_replicas)
        } else {
            readiness.why
        };
        return Some((Reason::WaitingForReadiness, format!("{why}{}", prepare::hint(scene, attempt))));
    }
    if let Err((reason, message)) = bound(scene, attempt.to) {
        return Some((reason, message));
    }
    let side = preflight::side(scene.rollout, scene.seen, attempt.to);
    let fits = side.and_then(|()| preflight::own_names(scene.rollout, scene.seen));
    fits.err().map(|problem| (problem.reason, problem.message))
}

/// Whether the attempt that stands at `step` has moved any traffic yet.
pub fn untouched(step: Step) -> bool {
    matches!(step, Step::Preparing | Step::Restoring)
}
