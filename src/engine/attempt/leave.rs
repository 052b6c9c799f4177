//! Is there a reason to go back? Asked before anything else, in every step.

use std::time::Duration;

use super::{restore, stage};
use crate::api::Attempt;
use crate::api::reasons::{Cause, Reason, Step};
use crate::engine::acts::Asked;
use crate::engine::binding;
use crate::engine::draft::{Draft, Scene};
use crate::engine::judging::{Judged, Waiting, waivable};
use crate::engine::readiness;
use crate::engine::rollout::Dialect;
use crate::engine::time;
use crate::engine::traffic::{self, Backend};

/// How long a color may be short of the Pods that its share needs.
const SHORT: Duration = Duration::from_secs(30);

/// The reason to go back, in the order in which they are told if there are several.
pub fn cause(
    scene: Scene<'_>,
    draft: &mut Draft,
    attempt: &mut Attempt,
    asked: &Asked,
    judged: &Judged,
) -> Option<(Cause, String)> {
    if attempt.step == Step::RollingBack {
        let cause = attempt.cause.unwrap_or(Cause::RollbackRequested);
        return Some((cause, attempt.cause_message.clone().unwrap_or_default()));
    }
    if let Some(reason) = &asked.rollback {
        return Some((Cause::RollbackRequested, format!("asked for by an annotation: {reason}")));
    }
    // The act `rollback` restores a color that the target does not name.
    if scene.rollout.target != attempt.to && attempt.restore != Some(Cause::RollbackRequested) {
        return Some((Cause::TargetTurnedBack, format!("spec.target was set back to {}", attempt.from)));
    }
    // A restored color served before, and what was left for it is known to be bad: gates are shown but do not act.
    let failed = judged.failed.as_ref().filter(|_| attempt.restore.is_none());
    ingress_lost(scene, attempt)
        .or_else(|| revision_changed(scene, attempt))
        .or_else(|| readiness_lost(scene, draft, attempt))
        .or_else(|| failed.map(|(gate, message)| (Cause::GateFailed, format!("gate {gate}: {message}"))))
        .or_else(|| held_too_long(scene, draft, attempt, judged))
}

/// A gate whose user does not want to wait for its verdict any longer. While a person holds the stage, or has passed over
/// what is missing, nobody waits for it.
fn held_too_long(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, judged: &Judged) -> Option<(Cause, String)> {
    if attempt.step != Step::Stage || scene.rollout.paused || attempt.promote_requested {
        return None;
    }
    let end = stage::hold_ends(scene.rollout, attempt)?;
    let waived = attempt.waived_stage == Some(attempt.stage_index + 1);
    let waits = |one: &&Waiting| one.read && !(waived && waivable(one.reason));
    for Waiting { gate: name, reason, message, .. } in judged.waiting.iter().filter(waits) {
        let gate = scene.rollout.gates.iter().find(|gate| gate.name == *name);
        let since = attempt.waiting.iter().find(|waiting| waiting.gate == *name).map(|waiting| waiting.since.0);
        let Some((longest, since)) = gate.and_then(|gate| gate.max_hold).zip(since) else { continue };
        let last = time::after(end.max(since), longest);
        if scene.now >= last {
            let longest = time::show(longest);
            let message =
                format!("gate {name}: no verdict for {longest} although the hold is over ({reason}): {message}");
            return Some((Cause::MaxHoldExceeded, message));
        }
        draft.wake_at(last);
    }
    None
}

fn ingress_lost(scene: Scene<'_>, attempt: &Attempt) -> Option<(Cause, String)> {
    // Without a share of traffic there is nothing to take away at once: it is waited for.
    let shared = scene.rollout.dialect == Dialect::Nginx && matches!(attempt.step, Step::Stage | Step::Promoting);
    for (name, ingress) in scene.seen.ingresses.iter().filter(|_| shared) {
        let Some(main) = ingress.found() else {
            return Some((Cause::IngressLost, format!("the Ingress {name} was deleted")));
        };
        if traffic::backend(scene.rollout, [main]) == Backend::Neither {
            let message = format!("no path of Ingress {name} names either Service any more");
            return Some((Cause::IngressLost, message));
        }
        // A canary that is older than the Ingress it belongs to can take that Ingress' place in ingress-nginx (#8004).
        let same = format!("{name}/{}", main.uid);
        if !attempt.ingresses.is_empty() && !attempt.ingresses.contains(&same) {
            return Some((Cause::IngressLost, format!("the Ingress {name} was deleted and created anew")));
        }
    }
    None
}

/// A named Ingress that is not there, or names neither color: nothing can be done until it is put right.
pub fn gone_ingress(scene: Scene<'_>) -> Option<(Reason, String)> {
    for (name, ingress) in &scene.seen.ingresses {
        let Some(main) = ingress.found() else {
            return Some((Reason::IngressMissing, format!("the Ingress {name} is missing: create it again")));
        };
        if traffic::backend(scene.rollout, [main]) == Backend::Neither {
            let message =
                format!("no path of Ingress {name} names either Service: let its backend name the one that serves");
            return Some((Reason::BackendMismatch, message));
        }
    }
    None
}

fn revision_changed(scene: Scene<'_>, attempt: &Attempt) -> Option<(Cause, String)> {
    let now = binding::revision(attempt.to, scene.rollout.side(attempt.to), scene.seen.colors.get(attempt.to))?;
    (now != attempt.revision).then(|| {
        let what = format!("the Deployment, model or prompt of {} changed", attempt.to);
        (Cause::RevisionChanged, format!("{what}: revision {now} instead of {}", attempt.revision))
    })
}

/// Zero ready Pods send traffic back at once, too few after 30 seconds. In the buffer half of what it wants is enough: one
/// drained node must not undo a promotion.
fn readiness_lost(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) -> Option<(Cause, String)> {
    if restore::untouched(attempt.step) {
        return None;
    }
    let readiness = readiness::of(scene.seen.colors.get(attempt.to));
    let ready = readiness.ready?;
    let needed = match attempt.step {
        Step::Buffering => readiness::needed(50, readiness.desired),
        _ => readiness::needed(attempt.share(), attempt.active_replicas),
    };
    if ready >= needed {
        attempt.short_since = None;
        return None;
    }
    let message = format!("{ready} Pods of {} are ready, {needed} are needed: {}", attempt.to, readiness.why);
    if ready == 0 {
        return Some((Cause::ReadinessLost, message));
    }
    let since = attempt.short_since.get_or_insert_with(|| time::ceil(scene.now)).0;
    let end = time::after(since, SHORT);
    if scene.now >= end {
        return Some((Cause::ReadinessLost, message));
    }
    draft.wake_at(end);
    None
}
