//! Before traffic moves: the target is scaled up, becomes ready, and is bound to its model and prompt.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{capacity, live_dead, obstacle, own, promote, rollback, stage};
use crate::api::names::MANAGER_SCALE;
use crate::api::reasons::{Cause, Phase, Reason};
use crate::api::{Attempt, Color};
use crate::engine::draft::{Draft, Scene};
use crate::engine::observed::{DeploymentSeen, ReplicasBy, Written};
use crate::engine::plan::Action;
use crate::engine::preflight;
use crate::engine::readiness;
use crate::engine::rollout::Dialect;
use crate::engine::time;

/// The least time between two scale-ups of a Deployment that somebody else sets back.
const PACE: Duration = Duration::from_secs(30);

/// Prepares the target, or starts the first stage.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt) {
    let Scene { rollout, seen, now } = scene;
    scale_up(scene, draft, &attempt);
    let readiness = readiness::of(seen.colors.get(attempt.to));
    // `Leave` goes on with what there is, as far as the shares of the stages allow.
    let some = readiness.rolled_out && readiness.ready.is_some_and(|ready| ready > 0);
    let ready = readiness.complete || (!rollout.match_active && some);
    if !ready {
        let why =
            format!("{}{}", readiness.why, if readiness.desired == 0 { hint(scene, &attempt) } else { String::new() });
        if let Some(message) = overdue(scene, &attempt, &why) {
            rollback::go_back(scene, draft, attempt, Cause::ProgressDeadlineExceeded, &message);
            return;
        }
        let deadline = deadline(scene, &attempt);
        draft.wake_at(deadline);
        let ends = if now < deadline {
            format!("; the attempt ends at {deadline} if it is not ready by then")
        } else {
            String::new()
        };
        draft.stand(Phase::Preparing, Reason::WaitingForReadiness, format!("{}: {why}{ends}", attempt.to));
    } else if let Some((phase, reason, message)) = waits_for(scene, draft, &attempt) {
        draft.stand(phase, reason, message);
    } else if attempt.promote_requested || rollout.dialect == Dialect::Plain {
        promote::enter(scene, draft, &mut attempt);
    } else {
        stage::enter(scene, draft, &mut attempt, 0);
    }
    draft.status.attempt = Some(attempt);
}

/// What the first share waits for, now that the target is ready.
fn waits_for(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) -> Option<(Phase, Reason, String)> {
    let Scene { rollout, seen, .. } = scene;
    if let Some((reason, message)) = obstacle(scene, attempt) {
        return Some((Phase::Holding, reason, message));
    }
    if let Err(problem) = preflight::own_names(rollout, seen) {
        return Some((Phase::Holding, problem.reason, problem.message));
    }
    // An anchor of an earlier attempt names the canary's Service: while it exists the canary would silently get 0 %.
    if let Some(anchor) = own(scene, &seen.anchor) {
        // The controller may still be following the last switch.
        let ended =
            draft.status.history.first().map(|last| time::after(last.ended_at.0, seen.settle + Duration::from_secs(1)));
        match ended.filter(|settled| scene.now < *settled).max(seen.follows_until(scene.now)) {
            Some(settled) => draft.wake_at(settled),
            None => draft.delete(anchor, false),
        }
        let keeps = if anchor.deleting { ": a finalizer of somebody keeps it" } else { "" };
        let message = format!("the Ingress {} of the last attempt is removed first{keeps}", anchor.name);
        return Some((Phase::Preparing, Reason::WaitingForReadiness, message));
    }
    if let Some(message) = live_dead(scene, attempt).filter(|_| !attempt.promote_requested) {
        return Some((Phase::Holding, Reason::LiveNotReady, message));
    }
    if rollout.paused && rollout.manual_weight.is_none() {
        let message = format!("{} is ready; spec.paused keeps it from getting traffic", attempt.to);
        return Some((Phase::Paused, Reason::Paused, message));
    }
    let whole = attempt.promote_requested || rollout.dialect == Dialect::Plain;
    let first = rollout.stages.first().map_or(100, |stage| rollout.manual_weight.unwrap_or(stage.weight));
    let why = capacity(scene, attempt, if whole { 100 } else { first }).err()?;
    Some((Phase::Holding, Reason::CapacityShort, why))
}

/// When the color that is being started has to be ready.
pub fn deadline(scene: Scene<'_>, attempt: &Attempt) -> Timestamp {
    time::after(attempt.started_at.0, scene.rollout.progress_deadline)
}

/// Says that the color was not ready in time, because of `why`. Who has been away until now has not seen that.
pub fn overdue(scene: Scene<'_>, attempt: &Attempt, why: &str) -> Option<String> {
    let known = readiness::of(scene.seen.colors.get(attempt.to)).ready.is_some();
    (known && scene.now >= deadline(scene, attempt))
        .then(|| format!("{} was not ready within {}: {why}", attempt.to, time::show(scene.rollout.progress_deadline)))
}

/// Scales the target up to the active color's replicas, if that is ours to do.
pub fn scale_up(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) {
    let replicas = |color| scene.seen.colors.get(color).deployment.found();
    let Some(to) = replicas(attempt.to) else { return };
    // Not fewer than its shares are held for, although the active color was scaled down since the attempt began.
    let active = replicas(attempt.from).map_or(0, |from| from.desired).max(attempt.active_replicas);
    let wanted = active.max(to.desired).max(1);
    // Somebody who keeps setting it back is answered at a pace.
    let again = set_by_others(scene, attempt);
    if let Some(until) = again.map(|written| time::after(written.at, PACE)).filter(|until| scene.now < *until) {
        draft.wake_at(until);
        return;
    }
    if scene.rollout.match_active && scene.autoscaler(attempt.to).is_none() && to.desired < wanted {
        draft.actions.push(Action::Scale {
            deployment: scene.rollout.side(attempt.to).deployment.clone(),
            replicas: wanted,
            resource_version: to.resource_version.clone(),
            unless_serving: None,
        });
    }
}

/// The Deployment of a color that wants no Pods, if it is the operator's to start. `unknown` says whether that goes for a 0
/// that nobody is on record for.
pub fn ours_to_start(scene: Scene<'_>, color: Color, unknown: bool) -> Option<&DeploymentSeen> {
    let ours = |by| match by {
        ReplicasBy::Operator => true,
        ReplicasBy::Unknown => unknown && scene.rollout.scale_to_zero,
        ReplicasBy::Others => false,
    };
    let deployment = scene.seen.colors.get(color).deployment.found();
    deployment.filter(|it| it.desired == 0 && ours(it.replicas_by) && scene.autoscaler(color).is_none())
}

/// Starts a color that is needed after all, if it is [ours to start](ours_to_start). Gives whether it does.
pub fn start_again(scene: Scene<'_>, draft: &mut Draft, color: Color, replicas: i32, unknown: bool) -> bool {
    let Some(it) = ours_to_start(scene, color, unknown) else { return false };
    draft.actions.push(Action::Scale {
        deployment: scene.rollout.side(color).deployment.clone(),
        replicas: replicas.max(1),
        resource_version: it.resource_version.clone(),
        unless_serving: None,
    });
    true
}

/// Who has to give the target the Pods that it lacks, if it is not us.
pub fn hint(scene: Scene<'_>, attempt: &Attempt) -> String {
    let command = command(scene, attempt.to, attempt.active_replicas);
    match scene.autoscaler(attempt.to) {
        Some(autoscaler) => format!(
            "; HorizontalPodAutoscaler {autoscaler} sets its replicas, so the operator does not: raise its minReplicas, and scale a Deployment at 0 up once{command}"
        ),
        None if !scene.rollout.match_active => {
            format!("; spec.prepare.replicas is Leave, so the operator scales nothing{command}")
        }
        None => set_by_others(scene, attempt)
            .map(|written| format!("; {} set its replicas", written.manager))
            .unwrap_or_default(),
    }
}

/// `: ` and the command that scales `color` by hand.
pub fn command(scene: Scene<'_>, color: Color, replicas: i32) -> String {
    let (namespace, deployment) = (&scene.rollout.namespace, &scene.rollout.side(color).deployment);
    format!(": kubectl scale -n {namespace} deployment {deployment} --replicas={}", replicas.max(1))
}

/// Who else has set the target's replicas since the attempt began.
fn set_by_others<'a>(scene: Scene<'a>, attempt: &Attempt) -> Option<&'a Written> {
    let written = scene.seen.colors.get(attempt.to).deployment.found()?.replicas_written.as_ref();
    written.filter(|written| written.manager != MANAGER_SCALE && written.at > attempt.started_at.0)
}
