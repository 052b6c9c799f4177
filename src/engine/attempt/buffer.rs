//! The rollback buffer: the target carries all traffic, the old color stays up untouched, gates go on, and going back is
//! one write. Then the old color goes.

use k8s_openapi::jiff::Timestamp;

use super::{Attempt, end, own, promote};
use crate::api::Color;
use crate::api::reasons::{Phase, Reason};
use crate::engine::draft::{Draft, Scene};
use crate::engine::judging::Judged;
use crate::engine::observed::{DeploymentSeen, IngressSeen};
use crate::engine::plan::{Action, ServingCheck};
use crate::engine::time;
use crate::engine::traffic::nginx;

/// Keeps the old color, and ends the attempt when the buffer is over.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, main: &IngressSeen, judged: &Judged) {
    let Some(started) = attempt.buffer_started_at.as_ref().map(|time| time.0) else { return };
    // An edit of the buffer counts from its start.
    let ends = time::ceil(time::after(started, scene.rollout.buffer));
    attempt.buffer_ends_at = Some(ends.clone());
    draft.stand(
        Phase::Buffering,
        Reason::BufferRunning,
        format!(
            "{} carries all traffic; {} is kept until {} and one write goes back to it",
            attempt.to, attempt.from, ends.0
        ),
    );
    let clean = remove_canary(scene, draft, &attempt, main, started);
    if scene.now < ends.0 {
        draft.wake_at(ends.0);
    } else if clean && gone(scene, draft, &attempt) {
        if let Some((gate, _, message)) = &judged.waiting {
            let action = format!("EndBuffer{}", attempt.id);
            draft.warn(
                Reason::BufferEndedUnjudged,
                action,
                format!("the buffer ended as planned although gate {gate} had no verdict: {message}"),
            );
        }
        finish(scene, draft, &mut attempt);
    }
    draft.status.attempt = Some(attempt);
}

/// The canary has nothing left to do once the controller follows the switch. True if it is gone and the anchor names both.
fn remove_canary(
    scene: Scene<'_>,
    draft: &mut Draft,
    attempt: &Attempt,
    main: &IngressSeen,
    started: Timestamp,
) -> bool {
    let settled = time::after(started, scene.seen.settle);
    match own(scene, &scene.seen.canary) {
        Some(_) if scene.now < settled => draft.wake_at(settled),
        Some(canary) if !canary.deleting => draft.actions.push(nginx::remove(canary, false)),
        Some(_) => {}
        None => return promote::anchor(scene, draft, main, &[attempt.from, attempt.to]),
    }
    false
}

/// Whether the old color is as `spec.rollback.afterBuffer` wants it; if not, it is scaled down.
fn gone(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) -> bool {
    let Some(old) = scene.seen.colors.get(attempt.from).deployment.found() else { return true };
    if !scene.rollout.scale_to_zero || old.desired == 0 {
        return true;
    }
    draft.actions.push(scale_down(scene, attempt.from, 0, old));
    false
}

/// The scale-down of a color without traffic. The Ingress is read once more before it: it must not name the color.
pub fn scale_down(scene: Scene<'_>, color: Color, replicas: i32, deployment: &DeploymentSeen) -> Action {
    let side = scene.rollout.side(color);
    Action::Scale {
        deployment: side.deployment.clone(),
        replicas,
        resource_version: deployment.resource_version.clone(),
        unless_serving: Some(ServingCheck { ingress: scene.rollout.ingress.clone(), service: side.service.clone() }),
    }
}

/// Says that nothing is left to do.
pub fn at_target(draft: &mut Draft, active: Color) {
    draft.stand(Phase::Stable, Reason::AtTarget, format!("{active} carries all traffic, as spec.target wants"));
}

fn finish(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) {
    let (from, to) = (attempt.from, attempt.to);
    end(scene, draft, attempt, to, None);
    let kept = if scene.rollout.scale_to_zero { "was scaled to zero" } else { "stays up" };
    let message =
        format!("attempt {} is complete: {to} serves {}, {from} {kept}", attempt.id, scene.rollout.side(to).model);
    draft.tell(Reason::Completed, format!("CompleteAttempt{}", attempt.id), message);
    at_target(draft, to);
    draft.need.gates = None;
}
