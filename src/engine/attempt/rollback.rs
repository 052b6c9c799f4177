//! Going back: traffic first, then status, Events and clean-up.

use super::{end, own, position};
use crate::api::reasons::{Cause, Phase, Reason, Step};
use crate::api::{Attempt, Color};
use crate::engine::draft::{Draft, Scene};
use crate::engine::observed::IngressSeen;
use crate::engine::plan::{Action, IngressWant, Order};
use crate::engine::preflight;
use crate::engine::readiness;
use crate::engine::traffic::{Backend, nginx};

/// Takes all traffic back to the color that had it, and ends the attempt.
pub fn go_back(
    scene: Scene<'_>,
    draft: &mut Draft,
    mut attempt: Attempt,
    main: Option<&IngressSeen>,
    cause: Cause,
    message: &str,
) {
    let canary = own(scene, &scene.seen.canary);
    let switched = main.is_some_and(|main| {
        matches!(position(scene, main), Backend::Mixed) || position(scene, main) == Backend::One(attempt.to)
    });
    if (canary.is_some() || switched) && blocked(scene, draft, &mut attempt, cause, message) {
        return;
    }
    // The canary first: while it exists it would send the old Service's traffic to the color that is being left.
    draft.actions.extend(canary.map(|canary| nginx::remove(canary, true)));
    if let Some(main) = main.filter(|_| switched) {
        // The color that is left stays named while the controller follows; this early the anchor may not name it yet.
        let want = nginx::anchor(scene.rollout, main, scene.seen.anchor.found(), &[attempt.from, attempt.to]);
        let named = own(scene, &scene.seen.anchor).is_some_and(|anchor| want.matches(anchor));
        if !named && preflight::own_names(scene.rollout, scene.seen).is_ok() {
            draft.actions.push(Action::WriteIngress(IngressWant { required: false, ..want }));
        }
        draft.actions.push(nginx::switch(scene.rollout, main, attempt.to, false));
    }
    draft.order = Order::TrafficFirst;
    // The gates stay asked for: if the status cannot be written after the traffic, the verdict is there to be repeated.
    let (from, to) = (attempt.from, attempt.to);
    let moved = attempt.step != Step::Preparing;
    end(scene, draft, &mut attempt, from, Some((cause, message)));
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
    draft.stand(Phase::RolledBack, Reason::RevisionFailed, what_next(scene, &attempt, message));
    draft.status.attempt = Some(attempt);
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
    // Whoever asks, and whatever failed, is served by any ready Pod. A mere change of the target needs full capacity.
    let full = from >= to || from >= attempt.active_replicas;
    let enough = to == 0 || if cause == Cause::RevisionChanged { from > 0 && full } else { from > 0 };
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
    draft.stand(
        Phase::RollingBack,
        Reason::RollbackBlocked,
        format!(
            "{} has {from} ready Pods and cannot take the traffic back yet: start its Pods. Cause: {message}",
            attempt.from
        ),
    );
    draft.status.attempt = Some(attempt.clone());
    true
}

/// Deals with a backend that somebody else changed while an attempt is open. True if that is all there is to do now.
pub fn external(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, main: &IngressSeen) -> bool {
    let expected = match attempt.step {
        Step::Preparing | Step::Stage => attempt.from,
        Step::Buffering => attempt.to,
        // With the canary gone and the backend as it was, somebody (or a rollback of ours that could not be recorded) has
        // taken everything back.
        Step::Promoting if scene.seen.canary.is_missing() && position(scene, main) == Backend::One(attempt.from) => {
            accept(scene, draft, attempt, main, attempt.from);
            return true;
        }
        // Otherwise a change of the backend is our own in these two steps.
        Step::Promoting | Step::RollingBack => return false,
    };
    match position(scene, main) {
        Backend::One(color) if color == expected => false,
        Backend::One(color) if carries(scene, attempt, color) => {
            accept(scene, draft, attempt, main, color);
            true
        }
        _ => {
            draft.order = Order::TrafficFirst;
            draft.actions.push(nginx::switch(scene.rollout, main, expected.other(), false));
            let message = format!(
                "{} changed the backend of Ingress {} to Pods that cannot carry the traffic; it is written back to {expected}",
                manager(main),
                main.name
            );
            draft.warn(Reason::BackendRestored, "RestoreBackend", message.clone());
            draft.stand(Phase::Holding, Reason::BackendRestored, message);
            true
        }
    }
}

/// Ends the attempt where somebody else has put the traffic.
fn accept(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, main: &IngressSeen, color: Color) {
    let mut attempt = attempt.clone();
    draft.actions.extend(own(scene, &scene.seen.canary).map(|canary| nginx::remove(canary, true)));
    draft.order = Order::TrafficFirst;
    draft.need.gates = None;
    let message = external_switch(scene, draft, main, color);
    end(scene, draft, &mut attempt, color, Some((Cause::ExternalSwitch, &message)));
    attempt.weight_intended = 0;
    draft.stand(Phase::Stable, Reason::ExternalSwitch, message);
    draft.status.attempt = Some(attempt);
}

/// Tells that somebody else switched the backend to `color`.
pub fn external_switch(scene: Scene<'_>, draft: &mut Draft, main: &IngressSeen, color: Color) -> String {
    let message = format!(
        "{} switched the backend of Ingress {} to {color}; that is accepted, and {} stays up as it is",
        manager(main),
        scene.rollout.ingress,
        color.other()
    );
    draft.warn(Reason::ExternalSwitch, format!("SwitchTo{color}"), message.clone());
    message
}

fn carries(scene: Scene<'_>, attempt: &Attempt, color: Color) -> bool {
    let ready = readiness::at_least_known(scene.seen.colors.get(color)).unwrap_or(0);
    // Back to the color that was kept: whoever switches there by hand has a reason.
    let back = attempt.step == Step::Buffering && color == attempt.from && ready > 0;
    back || ready >= readiness::needed(100, attempt.active_replicas)
}

fn manager(main: &IngressSeen) -> &str {
    main.managers
        .iter()
        .map(String::as_str)
        .find(|name| *name != crate::api::names::MANAGER_TRAFFIC)
        .unwrap_or("somebody")
}
