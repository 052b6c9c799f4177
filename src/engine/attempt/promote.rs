//! The switch: anchor, wait, one JSON Patch of each production Ingress, in the order of their names.

use std::time::Duration;

use super::{Attempt, buffer, capacity, judge, obstacle, share, stage};
use crate::api::Color;
use crate::api::reasons::{Phase, Reason, Step};
use crate::engine::binding;
use crate::engine::draft::{Draft, Scene};
use crate::engine::plan::Action;
use crate::engine::preflight;
use crate::engine::rollout::Dialect;
use crate::engine::time;
use crate::engine::traffic::{self, Backend, nginx};

/// Starts the switch: intent first, then the anchor.
pub fn enter(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) {
    stage::keep_baseline(scene, attempt);
    attempt.step = Step::Promoting;
    let why = match (scene.rollout.dialect, attempt.promote_requested) {
        (_, true) => "asked for by the annotation promote",
        (Dialect::Plain, _) => "the target is ready",
        (Dialect::Nginx, _) => "all stages passed",
    };
    let message =
        format!("{why}; the backend of Ingress {} is switched to {}", scene.rollout.ingress_names(), attempt.to);
    draft.tell(Reason::Switching, format!("PromoteAttempt{}", attempt.id), message.clone());
    draft.stand(Phase::Promoting, Reason::Switching, message);
    match scene.rollout.dialect {
        Dialect::Nginx => drop(anchor(scene, draft, &[attempt.from])),
        Dialect::Plain => switch(scene, draft, attempt),
    }
}

/// Goes on with the switch, from wherever it was interrupted.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt) {
    let message = format!("the backend of Ingress {} is switched to {}", scene.rollout.ingress_names(), attempt.to);
    draft.stand(Phase::Promoting, Reason::Switching, message);
    if scene.position() == Backend::One(attempt.to) {
        match scene.rollout.dialect {
            Dialect::Nginx => switched(scene, draft, attempt),
            Dialect::Plain => switched_plainly(scene, draft, attempt),
        }
        return;
    }
    // Without the remaining stages the share stays what it is until everything is switched.
    let free = attempt.promote_requested || scene.position() == Backend::Mixed;
    let in_place = free || share::keep(scene, draft, &mut attempt, false);
    if in_place {
        switch(scene, draft, &mut attempt);
    }
    draft.status.attempt = Some(attempt);
}

fn switch(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) {
    // A switch that is half done is brought to its end: two models must not serve one product for long.
    let begun = scene.position() == Backend::Mixed;
    if !begun {
        if scene.rollout.paused {
            let message = "the switch waits: spec.paused is set; going back still works";
            draft.stand(Phase::Paused, Reason::Paused, message);
            return;
        }
        if let Some((reason, message)) = obstacle(scene, attempt) {
            draft.stand(Phase::Holding, reason, message);
            return;
        }
        if let Some((reason, why)) = share::unread(scene, draft).filter(|_| !attempt.promote_requested) {
            // A process that has just begun does not know whether a gate has failed since.
            let message = format!("the switch waits until the gates have been read once more: {why}");
            draft.stand(Phase::Holding, reason, message);
            return;
        }
        if let Err(why) = capacity(scene, attempt, 100) {
            draft.stand(Phase::Holding, Reason::CapacityShort, why);
            return;
        }
    }
    if followed(scene, draft, attempt) || begun {
        draft.actions.extend(traffic::switch(scene.rollout, &scene.mains(), attempt.from, true));
    }
}

/// Whether the controllers can follow a switch from the attempt's color without losing a request. With an anchor the outgoing
/// Service stays named. Without one all traffic goes at once to Pods that may just have become ready, and Traefik answers for
/// a moment that there is no server: it is given time to learn of them.
pub fn followed(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) -> bool {
    if scene.rollout.dialect == Dialect::Nginx {
        return anchored(scene, draft, attempt.from);
    }
    // Pods that were ready when the attempt began are known.
    let fresh = time::between(attempt.started_at.0, scene.now) >= Duration::from_secs(1);
    let settle = if fresh { scene.seen.settle } else { Duration::ZERO };
    let from = attempt.stage_started_at.get_or_insert_with(|| time::ceil(time::after(scene.now, settle))).0;
    draft.wake_at(from);
    scene.now >= from || !fresh
}

/// Whether the outgoing Service stays named while the controllers follow a switch: the anchor is there, and was seen.
fn anchored(scene: Scene<'_>, draft: &mut Draft, outgoing: Color) -> bool {
    if !anchor(scene, draft, &[outgoing]) {
        return false;
    }
    let Some(anchor) = scene.seen.anchor.found() else { return false };
    // The creation time has whole seconds, rounded down.
    let settled = time::after(time::after(anchor.created, scene.seen.settle), Duration::from_secs(1));
    if scene.now < settled {
        draft.wake_at(settled);
    }
    scene.now >= settled
}

/// Without shares, the one stage begins when the backend is switched.
fn switched_plainly(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt) {
    let Some(first) = scene.rollout.stages.first() else { return };
    attempt.step = Step::Stage;
    attempt.stage_index = 0;
    attempt.weight_intended = 100;
    stage::start_clock(scene, &mut attempt);
    attempt.gates_hash = Some(scene.rollout.gates_hash());
    let message = format!(
        "stage 1/1: {} has all traffic, for at least {} before {} counts as promoted",
        attempt.to,
        time::show(first.hold),
        attempt.to
    );
    draft.tell(Reason::StageStarted, "StartStage1", message.clone());
    draft.stand(Phase::Progressing, Reason::StageRunning, message);
    stage::wake_at_end(draft, &attempt, first);
    judge(scene, draft, &mut attempt);
    draft.status.attempt = Some(attempt);
}

/// The backend names the target: it is promoted, and the buffer begins.
pub fn switched(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt) {
    begin_buffer(scene, draft, &mut attempt);
    draft.status.attempt = Some(attempt);
}

/// The target carries all traffic and is what serves from now on.
pub fn begin_buffer(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) {
    let (from, to) = (attempt.from, attempt.to);
    let start = time::ceil(scene.now);
    attempt.step = Step::Buffering;
    attempt.weight_intended = 100;
    attempt.manual_weight = None;
    attempt.buffer_ends_at = Some(time::ceil(time::after(start.0, scene.rollout.buffer)));
    attempt.buffer_started_at = Some(start);
    stage::void(attempt);
    attempt.short_since = None;
    draft.set_active(to);
    let kept = format!("{from} is kept for {} and one write goes back to it", time::show(scene.rollout.buffer));
    if attempt.restore.is_some() {
        // What was left does not start again by itself.
        draft.status.failed_revision = attempt
            .from_revision
            .clone()
            .or_else(|| binding::revision(from, scene.rollout.side(from), scene.seen.colors.get(from)))
            .or_else(|| Some(binding::unknown(from)));
        draft.warn(
            Reason::Restored,
            format!("RestoredAttempt{}", attempt.id),
            format!("{to} carries all traffic again; {kept}"),
        );
    } else {
        draft.tell(
            Reason::Promoted,
            format!("PromotedAttempt{}", attempt.id),
            format!("{to} carries all traffic; {kept}"),
        );
    }
    let judged = judge(scene, draft, attempt);
    buffer::keep(scene, draft, attempt, &judged);
}

/// Keeps the anchor naming the Services of `colors`. True if it is in place.
pub fn anchor(scene: Scene<'_>, draft: &mut Draft, colors: &[Color]) -> bool {
    let there = scene.seen.anchor.found();
    let want = nginx::anchor(scene.rollout, &scene.mains(), there, colors);
    if there.is_some_and(|there| want.matches(there)) {
        return true;
    }
    match there {
        Some(there) if !there.is_owned_by(&scene.rollout.uid) => {
            let taken = preflight::taken(there);
            draft.stand(draft.stand.phase, taken.reason, taken.message);
        }
        Some(there) if there.deleting => {
            let message = format!("the Ingress {} is being deleted: a finalizer of somebody keeps it", there.name);
            draft.stand(draft.stand.phase, Reason::WaitingForReadiness, message);
        }
        _ => draft.actions.push(Action::WriteIngress(want)),
    }
    false
}
