//! The rollback buffer: the target carries all traffic, the old color stays up untouched, gates go on, and going back is
//! one write. Then the old color goes.

use k8s_openapi::jiff::Timestamp;

use super::{Attempt, end, own, promote};
use crate::api::Color;
use crate::api::names::MANAGER_SCALE;
use crate::api::reasons::{Phase, Reason};
use crate::engine::binding;
use crate::engine::draft::{Draft, Scene};
use crate::engine::drift;
use crate::engine::judging::{Judged, Waiting};
use crate::engine::observed::{DeploymentSeen, Lookup};
use crate::engine::plan::{Action, ServingCheck};
use crate::engine::rollout::Dialect;
use crate::engine::time;

/// Keeps the old color, and ends the attempt when the buffer is over.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, judged: &Judged) {
    keep(scene, draft, &mut attempt, judged);
    draft.status.attempt = Some(attempt);
}

/// The same, for an attempt that is put on record by the caller.
pub fn keep(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, judged: &Judged) {
    let Some(started) = attempt.buffer_started_at.as_ref().map(|time| time.0) else { return };
    // An edit of the buffer counts from its start.
    let ends = time::ceil(time::after(started, scene.rollout.buffer));
    attempt.buffer_ends_at = Some(ends.clone());
    let message = format!(
        "{} carries all traffic; {} is kept until {} and one write goes back to it",
        attempt.to, attempt.from, ends.0
    );
    draft.stand(Phase::Buffering, Reason::BufferRunning, message);
    let clean = remove_canary(scene, draft, attempt, started);
    if scene.now < ends.0 {
        draft.wake_at(ends.0);
        return;
    }
    if scene.rollout.paused {
        let message =
            format!("the buffer is over, and spec.paused keeps {} up; one write goes back to it", attempt.from);
        draft.stand(Phase::Paused, Reason::Paused, message);
        return;
    }
    if let Some(message) = drift::lasting(draft, scene.now) {
        draft.stand(Phase::Buffering, Reason::FieldConflict, format!("{message}; {} stays up meanwhile", attempt.from));
        return;
    }
    if !clean {
        return;
    }
    if let Some(until) = scene.seen.follows_until(scene.now) {
        draft.wake_at(until);
        return;
    }
    if let Lookup::Unreadable(why) = &scene.seen.colors.get(attempt.from).deployment {
        draft.stand(Phase::Buffering, Reason::Unreadable, format!("the Deployment of {}: {why}", attempt.from));
        return;
    }
    if let Some((reason, why)) = untold(scene, attempt) {
        let message = format!(
            "the buffer is over, and {} stays up until it is known that {} is still the same: {why}",
            attempt.from, attempt.to
        );
        draft.stand(Phase::Buffering, reason, message);
        return;
    }
    if let Some(old) = goes(scene, attempt, ends.0) {
        draft.actions.push(scale_down(scene, attempt.from, 0, old));
        return;
    }
    if let Some(Waiting { gate, message, .. }) = judged.waiting.first() {
        let action = format!("EndBuffer{}", attempt.id);
        let message = format!("the buffer ended as planned although gate {gate} had no verdict: {message}");
        draft.warn(Reason::BufferEndedUnjudged, action, message);
    }
    finish(scene, draft, attempt);
}

/// Why it cannot be told yet whether the target is still what was judged: a change of it goes back, and to Pods that are there.
fn untold(scene: Scene<'_>, attempt: &Attempt) -> Option<(Reason, String)> {
    let (side, seen) = (scene.rollout.side(attempt.to), scene.seen.colors.get(attempt.to));
    if let Err((Reason::Unreadable, why)) = binding::prompt(attempt.to, side, seen) {
        return Some((Reason::Unreadable, why));
    }
    let changing = seen.deployment.found().is_some_and(|it| it.observed_generation < it.generation);
    changing.then(|| {
        let why =
            format!("the newest change of the Deployment {} was not looked at by its controller yet", side.deployment);
        (Reason::WaitingForReadiness, why)
    })
}

/// The canary has nothing left to do once the controller follows the switch. True if it is gone and the anchor names both.
fn remove_canary(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, started: Timestamp) -> bool {
    if scene.rollout.dialect == Dialect::Plain {
        return true;
    }
    let settled = time::after(started, scene.seen.settle);
    match own(scene, &scene.seen.canary) {
        Some(_) if scene.now < settled => draft.wake_at(settled),
        Some(canary) => draft.delete(canary, false),
        None => return promote::anchor(scene, draft, &[attempt.from, attempt.to]),
    }
    false
}

/// The old Deployment, if it has yet to be scaled to zero. An autoscaler's replicas are not ours, and somebody who scaled
/// it after the end of the buffer has undone our scale-down: that is told (`ScaleContested`), not fought.
fn goes<'a>(scene: Scene<'a>, attempt: &Attempt, ends: Timestamp) -> Option<&'a DeploymentSeen> {
    let old = scene.seen.colors.get(attempt.from).deployment.found()?;
    let contested =
        old.replicas_written.as_ref().is_some_and(|written| written.manager != MANAGER_SCALE && written.at > ends);
    let ours = scene.rollout.scale_to_zero && scene.autoscaler(attempt.from).is_none() && !contested;
    (ours && old.desired > 0).then_some(old)
}

/// The scale-down of a color without traffic. The Ingress is read once more before it: it must not name the color.
pub fn scale_down(scene: Scene<'_>, color: Color, replicas: i32, deployment: &DeploymentSeen) -> Action {
    let side = scene.rollout.side(color);
    Action::Scale {
        deployment: side.deployment.clone(),
        replicas,
        resource_version: deployment.resource_version.clone(),
        unless_serving: Some(ServingCheck {
            ingresses: scene.rollout.ingresses.clone(),
            service: side.service.clone(),
        }),
    }
}

/// Says that nothing is left to do.
pub fn at_target(draft: &mut Draft, active: Color) {
    draft.stand(Phase::Stable, Reason::AtTarget, format!("{active} carries all traffic, as spec.target wants"));
}

fn finish(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) {
    let (from, to) = (attempt.from, attempt.to);
    end(scene, draft, attempt, to, None);
    let gone = scene.seen.colors.get(from).deployment.found().is_none_or(|old| old.desired == 0);
    let kept = if gone { "is scaled to zero" } else { "stays up" };
    let message =
        format!("attempt {} is complete: {to} serves {}, {from} {kept}", attempt.id, scene.rollout.side(to).model);
    draft.tell(Reason::Completed, format!("CompleteAttempt{}", attempt.id), message);
    draft.need.gates = None;
    if to == scene.rollout.target {
        at_target(draft, to);
    } else {
        let message = format!("{to} carries all traffic again, as the act rollback asked; spec.target is still {from}");
        draft.stand(Phase::RolledBack, Reason::RevisionFailed, message);
    }
}
