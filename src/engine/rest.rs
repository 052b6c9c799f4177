//! No attempt is open: clean up after the last one, follow what others did, and start an attempt if one is due.

use super::attempt;
use super::binding;
use super::draft::{Draft, Scene};
use super::observed::{IngressSeen, Lookup};
use super::plan::{Action, Order};
use super::preflight::{self, Problem};
use super::readiness;
use super::time;
use super::traffic::nginx;
use crate::api::Color;
use crate::api::reasons::{Phase, Reason};

/// Decides what to do while no attempt is open.
pub fn run(scene: Scene<'_>, draft: &mut Draft) -> Result<(), Problem> {
    let clean = clean_up(scene, draft);
    let serving = preflight::ingress(scene.rollout, scene.seen)?;
    let active = match draft.status.active_color {
        Some(active) => follow(scene, draft, active, serving),
        None => adopt(scene, draft, serving),
    };
    let target = scene.rollout.target;
    preflight::side(scene.rollout, scene.seen, active)?;
    let standby = preflight::side(scene.rollout, scene.seen, active.other());
    drain(scene, draft, active);
    if active == target {
        // Setting the target back is how a person says that the failure was seen.
        draft.status.failed_revision = None;
        attempt::at_target(draft, active);
        if clean && scene.rollout.has_finalizer {
            draft.actions.push(Action::RemoveFinalizer);
        }
        return standby;
    }
    standby?;
    preflight::own_names(scene.rollout, scene.seen)?;
    draft.need.prompts = true;
    start_if_due(scene, draft, active, clean);
    Ok(())
}

fn adopt(scene: Scene<'_>, draft: &mut Draft, serving: Color) -> Color {
    draft.set_active(serving);
    let message = format!("{serving} carries the traffic of Ingress {}", scene.rollout.ingress);
    draft.tell(Reason::Adopted, "Adopt", message);
    serving
}

/// `status.activeColor` is the truth. A backend that somebody switched to a color that can carry the traffic is accepted, so
/// that a switch by hand at night sticks; to one that cannot, it is written back at once.
fn follow(scene: Scene<'_>, draft: &mut Draft, active: Color, serving: Color) -> Color {
    let Some(main) = scene.seen.ingress.found().filter(|_| serving != active) else { return active };
    if readiness::at_least_known(scene.seen.colors.get(serving)).unwrap_or(0) > 0 {
        attempt::external_switch(scene, draft, main, serving);
        let (side, seen) = (scene.rollout.side(active), scene.seen.colors.get(active));
        let left = draft.status.last_promoted.as_ref().filter(|promoted| promoted.color == active);
        draft.status.failed_revision =
            binding::revision(active, side, seen).or_else(|| left.map(|promoted| promoted.revision.clone()));
        draft.set_active(serving);
        return serving;
    }
    draft.order = Order::TrafficFirst;
    draft.actions.push(nginx::switch(scene.rollout, main, serving, false));
    draft.warn(
        Reason::BackendRestored,
        "RestoreBackend",
        format!("the backend of Ingress {} was changed to {serving}, which has no ready Pod; it is written back to {active}", main.name),
    );
    active
}

/// Removes objects of ours that nothing needs any more. True if none is left.
fn clean_up(scene: Scene<'_>, draft: &mut Draft) -> bool {
    let uid = &scene.rollout.uid;
    let ours = |object: &Lookup<IngressSeen>| object.found().filter(|found| found.is_owned_by(uid)).cloned();
    let known = |object: &Lookup<IngressSeen>| !matches!(object, Lookup::Unreadable(_));
    let mut clean = known(&scene.seen.canary) && known(&scene.seen.anchor);
    if let Some(canary) = ours(&scene.seen.canary) {
        clean = false;
        if !canary.deleting {
            draft.actions.push(nginx::remove(&canary, true));
            draft.order = Order::TrafficFirst;
        }
    }
    if let Some(anchor) = ours(&scene.seen.anchor) {
        clean = false;
        let ended = draft.status.attempt.as_ref().and_then(|attempt| attempt.ended_at.as_ref()).map(|time| time.0);
        let settled = time::after(ended.unwrap_or(scene.now), scene.seen.settle);
        if ended.is_some() && scene.now < settled {
            draft.wake_at(settled);
        } else if !anchor.deleting {
            draft.actions.push(nginx::remove(&anchor, false));
        }
    }
    clean
}

/// After a rollback the target keeps its Pods for the length of the buffer, so that its streams can end.
fn drain(scene: Scene<'_>, draft: &mut Draft, active: Color) {
    let Some(mut attempt) = draft.status.attempt.clone() else { return };
    let Some(until) = attempt.drain_until.as_ref().map(|time| time.0) else { return };
    let color = attempt.to;
    let deployment = scene.seen.colors.get(color).deployment.found();
    if scene.now < until && color != active {
        draft.wake_at(until);
        return;
    }
    if let Some(deployment) = deployment.filter(|it| color != active && it.desired > attempt.replicas_before) {
        draft.actions.push(attempt::scale_down(scene, color, attempt.replicas_before, deployment));
    } else {
        attempt.drain_until = None;
        draft.status.attempt = Some(attempt);
    }
}

/// Opens an attempt if the target is another color and its revision was not rolled back.
fn start_if_due(scene: Scene<'_>, draft: &mut Draft, active: Color, clean: bool) {
    let target = scene.rollout.target;
    let (side, seen) = (scene.rollout.side(target), scene.seen.colors.get(target));
    let Some(revision) = binding::revision(target, side, seen) else {
        let missing = matches!(binding::prompt(target, side, seen), Err((Reason::PromptMissing, _)));
        if !missing && draft.status.failed_revision.is_some() {
            // Not read yet, or just scaled: what was rolled back is still that until the contrary is seen.
            rolled_back(scene, draft, active);
            return;
        }
        let (reason, message) = binding::prompt(target, side, seen).err().unwrap_or_else(|| {
            (Reason::WaitingForReadiness, format!("the Deployment {} is not observed yet", side.deployment))
        });
        draft.stand(Phase::Preparing, reason, message);
        return;
    };
    if draft.status.failed_revision.as_deref() == Some(revision.as_str()) {
        rolled_back(scene, draft, active);
        if clean && scene.rollout.has_finalizer {
            draft.actions.push(Action::RemoveFinalizer);
        }
        return;
    }
    draft.stand(Phase::Preparing, Reason::AttemptStarted, format!("an attempt to move to {target} begins"));
    if scene.seen.canary.found().is_some() {
        // A canary of an earlier attempt goes first.
        return;
    }
    // The attempt removes the anchor itself and scales as it needs: what the last one left to do is void.
    draft.actions.clear();
    if !scene.rollout.has_finalizer {
        draft.actions.push(Action::AddFinalizer);
        return;
    }
    draft.order = Order::StatusFirst;
    attempt::open(scene, draft, active, revision);
}

fn rolled_back(scene: Scene<'_>, draft: &mut Draft, active: Color) {
    let attempt =
        draft.status.attempt.clone().filter(|attempt| attempt.to == scene.rollout.target && attempt.cause.is_some());
    let message = match &attempt {
        Some(attempt) => attempt::what_next(scene, attempt, attempt.cause_message.as_deref().unwrap_or_default()),
        None => format!(
            "{active} carries all traffic; this revision of {} was left and is not tried again by itself",
            scene.rollout.target
        ),
    };
    draft.stand(Phase::RolledBack, Reason::RevisionFailed, message);
}
