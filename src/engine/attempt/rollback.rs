//! Going back: traffic first, then status, Events and clean-up.

use super::{end, own, prepare, restore, share, stage};
use crate::api::reasons::{Cause, Phase, Reason, Step};
use crate::api::{Attempt, Color};
use crate::engine::draft::{Draft, Scene};
use crate::engine::drift;
use crate::engine::observed::{DeploymentSeen, IngressSeen};
use crate::engine::plan::{Action, IngressWant, Order};
use crate::engine::preflight;
use crate::engine::readiness;
use crate::engine::rest;
use crate::engine::rollout::Dialect;
use crate::engine::time;
use crate::engine::traffic::{self, Backend, nginx};

/// Takes all traffic back to the color that had it, and ends the attempt.
pub fn go_back(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, cause: Cause, message: &str) {
    // What a step on the way forward wanted is void.
    draft.actions.clear();
    let canary = own(scene, &scene.seen.canary);
    let switched = matches!(scene.position(), Backend::Mixed) || scene.position() == Backend::One(attempt.to);
    if let Some(late) = canary.filter(|_| attempt.restore.is_some()) {
        // It is no color's only way to answer, and goes even if the way back is blocked.
        draft.delete(late, true);
    }
    if (canary.is_some() || switched) && blocked(scene, draft, &mut attempt, cause, message) {
        return;
    }
    // The canary first: while it exists it would send the old Service's traffic to the color that is being left.
    if let Some(canary) = canary {
        draft.delete(canary, true);
    }
    if switched {
        draft.actions.extend(keep_named(scene, &attempt));
        draft.actions.extend(traffic::switch(scene.rollout, &scene.mains(), attempt.to, false));
    }
    draft.order = Order::TrafficFirst;
    // The gates stay asked for: if the status cannot be written after the traffic, the verdict is there to be repeated.
    let (from, to) = (attempt.from, attempt.to);
    let moved = !restore::untouched(attempt.step) || switched;
    end(scene, draft, &mut attempt, from, Some((cause, message)));
    let message = attempt.cause_message.clone().unwrap_or_default();
    let message = message.as_str();
    if moved {
        attempt.step = Step::RollingBack;
        let action = format!("RollBackAttempt{}", attempt.id);
        draft.warn(Reason::RolledBack, action, format!("all traffic is back on {from}, {to} was left: {message}"));
    } else {
        let action = format!("AbortAttempt{}", attempt.id);
        draft.warn(
            Reason::AttemptAborted,
            action,
            format!("the attempt ended before any traffic had moved: {message}"),
        );
    }
    attempt.weight_intended = 0;
    attempt.manual_weight = None;
    draft.stand(Phase::RolledBack, Reason::RevisionFailed, what_next(scene, &attempt, message));
    draft.status.attempt = Some(attempt);
}

/// Keeps the color that is left named while the controller follows the switch back: this early the anchor may not do so yet.
/// Going back does not depend on it.
pub fn keep_named(scene: Scene<'_>, attempt: &Attempt) -> Option<Action> {
    if scene.rollout.dialect == Dialect::Plain || preflight::own_names(scene.rollout, scene.seen).is_err() {
        return None;
    }
    let want = nginx::anchor(scene.rollout, &scene.mains(), scene.seen.anchor.found(), &[attempt.from, attempt.to]);
    let named = own(scene, &scene.seen.anchor).is_some_and(|anchor| want.matches(anchor));
    (!named).then_some(Action::WriteIngress(IngressWant { required: false, ..want }))
}

/// What a person can do about an attempt that went back.
pub fn what_next(scene: Scene<'_>, attempt: &Attempt, message: &str) -> String {
    format!(
        "attempt {} went back to {}: {message}. It is not tried again by itself: change {}, or run: kubectl annotate -n {} modelrollout {} {}=again-{}",
        attempt.id,
        attempt.from,
        attempt.to,
        scene.rollout.namespace,
        scene.rollout.name,
        crate::api::names::ANNOTATION_RETRY,
        attempt.id
    )
}

/// Going back needs a color to go back to: with no ready Pod there, waiting is better than an outage, unless the color that
/// is being left has none either.
fn blocked(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, cause: Cause, message: &str) -> bool {
    let ready = |color: Color| readiness::at_least_known(scene.seen.colors.get(color));
    let (Some(from), Some(to)) = (ready(attempt.from), ready(attempt.to)) else { return false };
    let deployment = scene.seen.colors.get(attempt.from).deployment.found();
    // From the end of the buffer on we may have scaled it down and up again a moment ago, and while this waits, up.
    let ends = attempt.buffer_started_at.as_ref().map(|start| time::after(start.0, scene.rollout.buffer));
    let ours = attempt.step == Step::RollingBack || ends.is_some_and(|ends| scene.now >= ends);
    let restarts = ours && readiness::restarting(scene.seen.colors.get(attempt.from));
    // Pods that nobody wants any more are about to go.
    let from = if restarts || deployment.is_some_and(|it| it.desired == 0) { 0 } else { from };
    // Whoever asks, and whatever failed, is served by any ready Pod. A mere change of the target needs full capacity.
    // What somebody scaled down on purpose is full with less.
    let complete = readiness::of(scene.seen.colors.get(attempt.from)).complete;
    let full = from >= to || from >= attempt.active_replicas || complete;
    // Who is being started has not lost its Pods: whoever is ready first serves.
    let starts = |it: &DeploymentSeen| ours && it.replicas_by.may_be_ours() && it.ready < it.desired;
    let going = prepare::ours_to_start(scene, attempt.from, true).is_some() || deployment.is_some_and(starts);
    let enough = to == 0 && !going || if cause == Cause::RevisionChanged { from > 0 && full } else { from > 0 };
    if enough {
        return false;
    }
    if attempt.cause.is_none() {
        draft.warn(
            Reason::RollbackBlocked,
            format!("BlockRollback{}", attempt.id),
            format!("traffic shall go back to {}, which has {from} ready Pods; it goes back as soon as they are up. Cause: {message}", attempt.from),
        );
    }
    // What it goes back from still says what has to be undone, so the step alone changes.
    attempt.step = Step::RollingBack;
    attempt.cause = Some(cause);
    attempt.cause_message = Some(message.chars().take(1024).collect());
    // It is kept to go back to: a 0 that nobody is on record for is our own, of the end of the buffer, or a slip.
    let side = readiness::of(scene.seen.colors.get(attempt.from));
    let what_to_do = if prepare::start_again(scene, draft, attempt.from, attempt.active_replicas, true) {
        "its Pods are being started again".to_owned()
    } else if side.desired == 0 {
        format!("start its Pods{}", prepare::command(scene, attempt.from, attempt.active_replicas))
    } else {
        format!("it goes back as soon as they are up: {}", side.why)
    };
    draft.stand(
        Phase::RollingBack,
        Reason::RollbackBlocked,
        format!(
            "{} has {from} ready Pods and cannot take the traffic back yet: {what_to_do}. Cause: {message}",
            attempt.from
        ),
    );
    draft.status.attempt = Some(attempt.clone());
    true
}

/// Deals with a backend that somebody else changed while an attempt is open. True if that is all there is to do now.
pub fn external(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) -> bool {
    let position = scene.position();
    let nginx = scene.rollout.dialect == Dialect::Nginx;
    let expected = match attempt.step {
        Step::Preparing => attempt.from,
        Step::Stage if nginx => attempt.from,
        Step::Stage | Step::Buffering => attempt.to,
        // A change of the backend is our own in these steps. A canary that is missing is put back when the gates were read.
        Step::Promoting | Step::RollingBack | Step::Restoring => return false,
    };
    if position == Backend::One(expected) {
        return false;
    }
    let other = expected.other();
    if expected == attempt.to && awaits_cause(scene, draft, attempt) {
        return true;
    }
    let answers = readiness::at_least_known(scene.seen.colors.get(expected)).unwrap_or(0) > 0;
    let late = expected == attempt.from && answers && scene.came_late(other, attempt.started_at.0);
    if !late && carries(scene, attempt, other) {
        accept(scene, draft, attempt, other);
        return true;
    }
    draft.status.attempt = Some(attempt.clone());
    if let Some(changed) = scene.first_naming(other) {
        let why = if late { rest::LATE } else { "has no Pods that can carry the traffic" };
        rest::write_back(scene, draft, expected, changed, why);
    }
    true
}

/// The operator itself took traffic back, and why is not on record: a process that ended in between had a reason. The gates
/// are asked again before somebody else is taken for it; that is not waited for beyond the end of the buffer or the stage.
fn awaits_cause(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt) -> bool {
    let ours = scene.mains().iter().all(|main| main.rules_by_us.is_some());
    if !ours || scene.position() != Backend::One(attempt.from) || !carries(scene, attempt, attempt.from) {
        return false;
    }
    let buffer = attempt.buffer_ends_at.as_ref().map(|ends| ends.0);
    let Some(ends) = buffer.or_else(|| stage::hold_ends(scene.rollout, attempt)).filter(|ends| scene.now < *ends)
    else {
        return false;
    };
    let Some((reason, why)) = share::unread(scene, draft) else { return false };
    draft.wake_at(ends);
    let message =
        format!("{} carries all traffic again; what for is known when the gates have been read: {why}", attempt.from);
    draft.stand(Phase::Holding, reason, message);
    draft.status.attempt = Some(attempt.clone());
    true
}

/// Ends the attempt where somebody else has put the traffic. Of several Ingresses the others follow.
fn accept(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, color: Color) {
    let mut attempt = attempt.clone();
    if let Some(canary) = own(scene, &scene.seen.canary) {
        draft.delete(canary, true);
    }
    draft.actions.extend(traffic::switch(scene.rollout, &scene.mains(), color.other(), false));
    draft.order = Order::TrafficFirst;
    draft.need.gates = None;
    let Some(changed) = scene.first_naming(color) else { return };
    let message = external_switch(scene, draft, changed, color);
    end(scene, draft, &mut attempt, color, Some((Cause::ExternalSwitch, &message)));
    attempt.weight_intended = 0;
    attempt.manual_weight = None;
    draft.stand(Phase::Stable, Reason::ExternalSwitch, message);
    draft.status.attempt = Some(attempt);
}

/// Tells that somebody else switched the backend to `color`.
pub fn external_switch(scene: Scene<'_>, draft: &mut Draft, changed: &IngressSeen, color: Color) -> String {
    let others = if scene.rollout.ingresses.len() > 1 { ", the other Ingresses follow" } else { "" };
    let message = format!(
        "{} switched the backend of Ingress {} to {color}; that is accepted{others}, and {} stays up as it is",
        drift::switcher(changed),
        changed.name,
        color.other()
    );
    draft.warn(Reason::ExternalSwitch, format!("SwitchTo{color}"), message.clone());
    message
}

fn carries(scene: Scene<'_>, attempt: &Attempt, color: Color) -> bool {
    let ready = readiness::at_least_known(scene.seen.colors.get(color)).unwrap_or(0);
    // Back to the color that was kept: whoever switches there by hand has a reason.
    let switched =
        attempt.step == Step::Buffering || attempt.step == Step::Stage && scene.rollout.dialect == Dialect::Plain;
    let back = switched && color == attempt.from && ready > 0;
    back || ready >= readiness::needed(100, attempt.active_replicas)
}
