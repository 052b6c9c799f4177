//! The switch: anchor, wait, one JSON Patch of the production Ingress.

use std::time::Duration;

use super::{Attempt, buffer, capacity, judge, keep_canary, own, position};
use crate::api::reasons::{Phase, Reason, Step};
use crate::api::{Color, Promoted};
use crate::engine::draft::{Draft, Scene};
use crate::engine::observed::IngressSeen;
use crate::engine::plan::Action;
use crate::engine::time;
use crate::engine::traffic::{Backend, nginx};

/// Starts the switch: intent first, then the anchor.
pub fn enter(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, main: &IngressSeen) {
    attempt.step = Step::Promoting;
    let message = format!("all stages passed; the backend of Ingress {} is switched to {}", main.name, attempt.to);
    draft.tell(Reason::Switching, format!("PromoteAttempt{}", attempt.id), message.clone());
    draft.stand(Phase::Promoting, Reason::Switching, message);
    anchor(scene, draft, main, &[attempt.from]);
}

/// Goes on with the switch, from wherever it was interrupted.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, main: &IngressSeen) {
    draft.stand(
        Phase::Promoting,
        Reason::Switching,
        format!("the backend of Ingress {} is switched to {}", main.name, attempt.to),
    );
    if position(scene, main) == Backend::One(attempt.to) {
        switched(scene, draft, attempt, main);
        return;
    }
    let in_place = keep_canary(scene, draft, &mut attempt, main, false);
    if in_place && anchor(scene, draft, main, &[attempt.from]) {
        switch(scene, draft, &attempt, main);
    }
    draft.status.attempt = Some(attempt);
}

fn switch(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, main: &IngressSeen) {
    let Some(anchor) = scene.seen.anchor.found() else { return };
    // The creation time has whole seconds, rounded down.
    let settled = time::after(time::after(anchor.created, scene.seen.settle), Duration::from_secs(1));
    if scene.now < settled {
        draft.wake_at(settled);
    } else if let Err(why) = capacity(scene, attempt, 100) {
        draft.stand(Phase::Holding, Reason::CapacityShort, why);
    } else {
        draft.actions.push(nginx::switch(scene.rollout, main, attempt.from, true));
    }
}

/// The backend names the target: it is promoted, and the buffer begins.
fn switched(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, main: &IngressSeen) {
    let (from, to) = (attempt.from, attempt.to);
    let start = time::ceil(scene.now);
    attempt.step = Step::Buffering;
    attempt.buffer_ends_at = Some(time::ceil(time::after(start.0, scene.rollout.buffer)));
    attempt.buffer_started_at = Some(start.clone());
    attempt.evidence.clear();
    attempt.short_since = None;
    draft.set_active(to);
    draft.status.last_promoted = Some(Promoted { color: to, revision: attempt.revision.clone(), time: start });
    draft.tell(
        Reason::Promoted,
        format!("PromotedAttempt{}", attempt.id),
        format!(
            "{to} carries all traffic; {from} is kept for {} and one write goes back to it",
            time::show(scene.rollout.buffer)
        ),
    );
    let judged = judge(scene, draft, &mut attempt);
    buffer::run(scene, draft, attempt, main, &judged);
}

/// Keeps the anchor naming the Services of `colors`. True if it is in place.
pub fn anchor(scene: Scene<'_>, draft: &mut Draft, main: &IngressSeen, colors: &[Color]) -> bool {
    let there = scene.seen.anchor.found();
    let want = nginx::anchor(scene.rollout, main, there, colors);
    if there.is_some_and(|there| want.matches(there)) {
        return true;
    }
    if there.is_none() || own(scene, &scene.seen.anchor).is_some_and(|there| !there.deleting) {
        draft.actions.push(Action::WriteIngress(want));
    }
    false
}
