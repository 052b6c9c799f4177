//! Before traffic moves: the target is scaled up, becomes ready, and is bound to its model and prompt.

use super::{bound, capacity, own, stage};
use crate::api::Attempt;
use crate::api::reasons::{Cause, Phase, Reason};
use crate::engine::draft::{Draft, Scene};
use crate::engine::observed::IngressSeen;
use crate::engine::plan::Action;
use crate::engine::preflight;
use crate::engine::readiness;
use crate::engine::time;
use crate::engine::traffic::nginx;

/// Prepares the target, or starts the first stage.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, main: &IngressSeen) {
    let Scene { rollout, seen, now } = scene;
    scale_up(scene, draft, &attempt);
    let readiness = readiness::of(seen.colors.get(attempt.to));
    // `Leave` goes on with what there is, as far as the shares of the stages allow.
    let some = readiness.rolled_out && readiness.ready.is_some_and(|ready| ready > 0);
    let ready = readiness.complete || (!rollout.match_active && some);
    let deadline = time::after(attempt.started_at.0, rollout.progress_deadline);
    if !ready {
        if now >= deadline {
            let message = format!(
                "{} was not ready within {}: {}",
                attempt.to,
                time::show(rollout.progress_deadline),
                readiness.why
            );
            super::rollback::go_back(scene, draft, attempt, Some(main), Cause::ProgressDeadlineExceeded, &message);
            return;
        }
        draft.wake_at(deadline);
        let message =
            format!("{}: {}; the attempt ends at {deadline} if it is not ready by then", attempt.to, readiness.why);
        draft.stand(Phase::Preparing, Reason::WaitingForReadiness, message);
        draft.status.attempt = Some(attempt);
        return;
    }
    if let Err((reason, message)) = bound(scene, attempt.to) {
        draft.stand(Phase::Holding, reason, message);
        draft.status.attempt = Some(attempt);
        return;
    }
    if let Err(problem) = preflight::own_names(rollout, seen) {
        draft.stand(Phase::Holding, problem.reason, problem.message);
        draft.status.attempt = Some(attempt);
        return;
    }
    // An anchor of an earlier attempt names the canary's Service: while it exists the canary would silently get 0 %.
    if let Some(anchor) = own(scene, &seen.anchor) {
        draft.actions.push(nginx::remove(anchor, false));
        draft.stand(
            Phase::Preparing,
            Reason::WaitingForReadiness,
            "the anchor Ingress of the last attempt is removed first",
        );
        draft.status.attempt = Some(attempt);
        return;
    }
    let Some((index, first)) = rollout.stage_above(0) else { return };
    if let Err(why) = capacity(scene, &attempt, first.weight) {
        draft.stand(Phase::Holding, Reason::CapacityShort, why);
        draft.status.attempt = Some(attempt);
        return;
    }
    stage::enter(scene, draft, &mut attempt, main, index);
    draft.status.attempt = Some(attempt);
}

fn scale_up(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) {
    let replicas = |color| scene.seen.colors.get(color).deployment.found();
    let (Some(from), Some(to)) = (replicas(attempt.from), replicas(attempt.to)) else { return };
    let wanted = from.desired.max(to.desired).max(1);
    if scene.rollout.match_active && to.desired < wanted {
        draft.actions.push(Action::Scale {
            deployment: scene.rollout.side(attempt.to).deployment.clone(),
            replicas: wanted,
            resource_version: to.resource_version.clone(),
            unless_serving: None,
        });
    }
}
