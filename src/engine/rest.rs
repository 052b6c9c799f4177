//! No attempt is open: clean up after the last one, follow what others did, and start an attempt if one is due.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::acts::Asked;
use super::attempt::{self, restore};
use super::binding;
use super::draft::{Draft, Scene};
use super::drift;
use super::observed::{IngressSeen, Lookup, NOT_YET, Written};
use super::plan::{Action, Order};
use super::preflight::{self, Problem};
use super::readiness;
use super::rollout::Dialect;
use super::time;
use super::traffic::{self, Backend};
use crate::api::names::ANNOTATION_ROLLBACK;
use crate::api::reasons::{Cause, ConditionType, Phase, Reason};
use crate::api::{Attempt, Color};

/// So long after the end of an attempt the color that it started from may lose its Pods through a scale-down of the operator,
/// although it serves again.
const UNDONE: Duration = Duration::from_mins(10);

/// Decides what to do while no attempt is open.
pub fn run(scene: Scene<'_>, draft: &mut Draft, asked: &Asked) -> Result<(), Problem> {
    let clean = clean_up(scene, draft);
    let result = decide(scene, draft, asked, clean);
    silence(scene, draft);
    // What is missing may stay missing: an object without anything of ours in the cluster needs no finalizer.
    let missing = |problem: &Problem| problem.reason != Reason::Unreadable;
    let free = clean && scene.rollout.has_finalizer && !draft.actions.contains(&Action::RemoveFinalizer);
    if free && result.as_ref().is_err_and(missing) {
        draft.actions.push(Action::RemoveFinalizer);
    }
    result
}

fn decide(scene: Scene<'_>, draft: &mut Draft, asked: &Asked, clean: bool) -> Result<(), Problem> {
    // Traffic on a color without Pods is put right before anything else is found fault with.
    // Whoever asks for the other color gets it started first; its attempt deals with the backend.
    let known = draft.status.active_color;
    let known = known.map(|active| if asked.restore { active } else { follow(scene, draft, active) });
    let active = match (known, preflight::backends(scene.rollout, scene.seen)?) {
        (Some(active), _) => active,
        (None, Backend::One(serving)) => adopt(scene, draft, serving),
        (None, _) => return Err(preflight::ambiguous(scene.rollout)),
    };
    if revive(scene, draft, active) {
        return Ok(());
    }
    if restore::candidate(draft, active).is_some() {
        // Whether one can go back hangs on the other color's prompt.
        draft.need.prompts.extend(Color::BOTH);
    }
    let target = scene.rollout.target;
    if let Some(cause) = restore::due(scene, draft, active, asked) {
        draft.stand(Phase::Preparing, Reason::Restoring, format!("{} is about to be restored", active.other()));
        if (asked.restore || scene.position() == Backend::One(active)) && ready_to_open(scene, draft) {
            restore::open(scene, draft, active, cause);
        }
        return Ok(());
    }
    preflight::present(scene.rollout, scene.seen, active)?;
    drain(scene, draft, active);
    if active == target {
        // Setting the target back is how a person says that the failure was seen.
        draft.status.failed_revision = None;
        at_target(scene, draft, active);
        if clean && scene.rollout.has_finalizer {
            draft.actions.push(Action::RemoveFinalizer);
        }
        return standby(scene, active.other()).and_then(|()| preflight::fit(scene.rollout, scene.seen));
    }
    preflight::fit(scene.rollout, scene.seen)?;
    preflight::own_names(scene.rollout, scene.seen)?;
    draft.need.prompts.extend(Color::BOTH);
    start_if_due(scene, draft, active, clean)
}

/// The color that stands by may be missing while the target serves: it matters only to the next rollout.
fn standby(scene: Scene<'_>, color: Color) -> Result<(), Problem> {
    preflight::present(scene.rollout, scene.seen, color).map_err(|problem| match problem.reason {
        Reason::DeploymentMissing | Reason::ServiceMissing => Problem {
            reason: Reason::StandbyMissing,
            message: format!("{}; until then there is nothing to roll out, and nothing to go back to", problem.message),
        },
        _ => problem,
    })
}

/// Nobody scales the color that serves to nothing through us: if it came to that (a scale-down that a leader sent before it
/// stood still, a switch by hand right after one), its Pods are started again, and nothing else is done before.
fn revive(scene: Scene<'_>, draft: &mut Draft, active: Color) -> bool {
    let Some(last) = draft.status.attempt.as_ref() else { return false };
    let replicas = last.active_replicas;
    let unknown = last.from == active && taken_at_the_end(last).is_some_and(|until| scene.now < until);
    let revives =
        scene.position() == Backend::One(active) && attempt::start_again(scene, draft, active, replicas, unknown);
    if revives {
        let message =
            format!("{active} carries the traffic and was scaled to 0 as an attempt ended: it is started again");
        draft.warn(Reason::LiveNotReady, format!("StartAgain{active}"), message.clone());
        draft.stand(Phase::Holding, Reason::LiveNotReady, message);
    }
    revives
}

/// Until when a 0 of the color that an attempt started from may be the operator's: it scales that color to nothing once its
/// buffer is over. Whoever does so long after that, or after a buffer that was cut short, means it.
fn taken_at_the_end(last: &Attempt) -> Option<Timestamp> {
    let (ended, over) = (last.ended_at.as_ref()?.0, last.buffer_ends_at.as_ref()?.0);
    (ended >= over).then(|| time::after(ended, UNDONE))
}

/// Nothing is left to do, and nobody answers: that is not ours to mend, but whoever is woken by it looks here first.
fn silence(scene: Scene<'_>, draft: &mut Draft) {
    let (Some(active), Phase::Stable | Phase::RolledBack) = (draft.status.active_color, draft.stand.phase) else {
        return;
    };
    let seen = scene.seen.colors.get(active);
    if draft.stand.reason == Reason::NotChecked || readiness::at_least_known(seen) != Some(0) {
        return;
    }
    let deployment = &scene.rollout.side(active).deployment;
    // Pods are not watched at rest, so the Deployment has to say it. Whoever wants none of them is told, and not warned.
    let wanted = readiness::of(seen).desired;
    if wanted == 0 {
        draft.stand.message =
            format!("{}; its Deployment {deployment} wants 0 replicas, so nobody answers", draft.stand.message);
        return;
    }
    let way = match restore::candidate(draft, active) {
        Some(last) => format!("; to go back to {}, run: {}", last.from, scene.command(ANNOTATION_ROLLBACK, "down")),
        None => String::new(),
    };
    let message = format!(
        "no Pod of {active}, which carries all traffic, is ready (0 of {wanted}): mend its Deployment {deployment}{way}"
    );
    if !draft.said(ConditionType::Ready, Reason::LiveNotReady) {
        draft.warn(Reason::LiveNotReady, format!("Silence{active}"), message.clone());
    }
    let phase = if draft.stand.phase == Phase::Stable { Phase::Holding } else { draft.stand.phase };
    draft.stand(phase, Reason::LiveNotReady, message);
}

fn adopt(scene: Scene<'_>, draft: &mut Draft, serving: Color) -> Color {
    draft.set_active(serving);
    let message = format!("{serving} carries the traffic of Ingress {}", scene.rollout.ingress_names());
    draft.tell(Reason::Adopted, "Adopt", message);
    serving
}

/// `status.activeColor` is the truth. A backend that somebody switched to a color that can carry the traffic is accepted, so
/// that a switch by hand at night sticks; to one that cannot, it is written back at once.
///
/// Of several Ingresses one changed by hand is enough: the others follow it, so that one model and prompt serve all of them.
fn follow(scene: Scene<'_>, draft: &mut Draft, active: Color) -> Color {
    let other = active.other();
    let Some(changed) = scene.first_naming(other) else { return active };
    draft.order = Order::TrafficFirst;
    let answers = |color| readiness::at_least_known(scene.seen.colors.get(color)).unwrap_or(0) > 0;
    let ended = draft.status.attempt.as_ref().and_then(|last| last.ended_at.as_ref()).map(|ended| ended.0);
    if ended.is_some_and(|ended| scene.came_late(other, ended)) && answers(active) {
        // A leader that stood still for longer than its lease lasted has written what another one had decided against.
        write_back(scene, draft, active, changed, LATE);
        return active;
    }
    if answers(other) {
        attempt::external_switch(scene, draft, changed, other);
        draft.actions.extend(traffic::switch(scene.rollout, &scene.mains(), active, false));
        let (side, seen) = (scene.rollout.side(active), scene.seen.colors.get(active));
        // What was left does not start again by itself, whether its revision can be told now or only later.
        let left = binding::revision(active, side, seen).unwrap_or_else(|| binding::unknown(active));
        draft.status.failed_revision = Some(left);
        draft.set_active(other);
        return other;
    }
    write_back(scene, draft, active, changed, "has no ready Pod");
    active
}

/// Why a write of our own is taken back.
pub const LATE: &str = "was decided against meanwhile";

/// Writes the backend back to `to`, unless somebody keeps changing it. `why`: what is wrong with the other color.
pub fn write_back(scene: Scene<'_>, draft: &mut Draft, to: Color, changed: &IngressSeen, why: &str) {
    let ours = changed.rules_by_us.is_some();
    let who = if ours { "a late write of the operator itself" } else { drift::manager(changed) }.to_owned();
    let what = format!("{}, which {why}", to.other());
    match drift::write_back(draft, scene.now, &changed.name, &who) {
        Ok(()) => {
            // A write that fails is not on record, and so is tried again at once.
            draft.order = Order::TrafficFirst;
            draft.actions.extend(traffic::switch(scene.rollout, &scene.mains(), to.other(), false));
            let name = &changed.name;
            let advice =
                if ours { String::new() } else { format!(". If {who} is a Git tool, let it ignore {BACKENDS}") };
            let message =
                format!("{who} changed the backend of Ingress {name} to {what}; it is written back to {to}{advice}");
            draft.warn(Reason::BackendRestored, "RestoreBackend", message.clone());
            draft.stand(Phase::Holding, Reason::BackendRestored, message);
        }
        Err(message) => {
            let message = format!("{message}; until then the traffic of Ingress {} goes to {what}", changed.name);
            draft.stand(Phase::Holding, Reason::FieldConflict, message);
        }
    }
}

/// Where the backends of an Ingress are, as Git tools name it.
const BACKENDS: &str = ".spec.rules[].http?.paths[]?.backend.service.name";

/// Nothing is left to do; what is worth knowing is told.
fn at_target(scene: Scene<'_>, draft: &mut Draft, active: Color) {
    if draft.stand.phase == Phase::Holding {
        return;
    }
    attempt::at_target(draft, active);
    if let Some(message) = drift::lasting(draft, scene.now) {
        draft.stand(Phase::Stable, Reason::FieldConflict, message);
        return;
    }
    let last = draft.status.attempt.clone().filter(|last| last.to == active && last.cause.is_none());
    if let Some(message) = last.and_then(|last| contested(scene, &last)) {
        if !draft.said(ConditionType::Ready, Reason::ScaleContested) {
            draft.warn(Reason::ScaleContested, "ContestScale", message.clone());
        }
        draft.stand(Phase::Stable, Reason::ScaleContested, message);
    }
}

/// The old color was scaled to zero and somebody scaled it up again. That is reported and not fought.
fn contested(scene: Scene<'_>, last: &Attempt) -> Option<String> {
    let deployment = scene.seen.colors.get(last.from).deployment.found()?;
    let ours = scene.rollout.scale_to_zero && scene.autoscaler(last.from).is_none();
    (ours && deployment.desired > 0).then(|| {
        // A write through the scale subresource leaves no trace of who it was.
        let after = |written: &&Written| last.ended_at.as_ref().is_some_and(|ended| written.at >= ended.0);
        let who = deployment.replicas_written.as_ref().filter(after);
        let who = who.map_or(String::new(), |written| format!(" (set by {})", written.manager));
        format!(
            "{} carries all traffic, as spec.target wants; {} has {} replicas although its rollback buffer is over{who}: scale it to 0, or set spec.rollback.afterBuffer to Leave",
            last.to, last.from, deployment.desired
        )
    })
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
            draft.delete(&canary, true);
            draft.order = Order::TrafficFirst;
        }
    }
    if let Some(anchor) = ours(&scene.seen.anchor) {
        clean = false;
        let ended = draft.status.attempt.as_ref().and_then(|attempt| attempt.ended_at.as_ref()).map(|time| time.0);
        let settled = ended.map(|ended| time::after(ended, scene.seen.settle)).filter(|settled| scene.now < *settled);
        if let Some(settled) = settled.max(scene.seen.follows_until(scene.now)) {
            draft.wake_at(settled);
        } else {
            draft.delete(&anchor, false);
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
    // A spec that names another Deployment now, or Services that serve from this one, are no reason to scale anything.
    let same = deployment.is_some_and(|it| attempt.deployment_uid.as_ref().is_none_or(|uid| *uid == it.uid));
    let apart = preflight::side(scene.rollout, scene.seen, active).is_ok();
    let scales = apart && scene.autoscaler(color).is_none();
    let more = deployment.filter(|it| same && color != active && it.desired > attempt.replicas_before);
    let Some(deployment) = more else {
        attempt.drain_until = None;
        draft.status.attempt = Some(attempt);
        return;
    };
    if let Some(until) = scene.seen.follows_until(scene.now) {
        draft.wake_at(until);
        return;
    }
    if scales && !scene.rollout.paused && drift::lasting(draft, scene.now).is_none() {
        draft.actions.push(attempt::scale_down(scene, color, attempt.replicas_before, deployment));
    }
}

/// Opens an attempt if the target is another color and its revision was not rolled back.
fn start_if_due(scene: Scene<'_>, draft: &mut Draft, active: Color, clean: bool) -> Result<(), Problem> {
    let target = scene.rollout.target;
    let (side, seen) = (scene.rollout.side(target), scene.seen.colors.get(target));
    let Some(revision) = binding::revision(target, side, seen) else {
        let missing = matches!(binding::prompt(target, side, seen), Err((Reason::PromptMissing, _)));
        if !missing && draft.status.failed_revision.is_some() {
            // Not read yet, or just scaled: what was rolled back is still that until the contrary is seen.
            rolled_back(scene, draft, active);
            return Ok(());
        }
        let (reason, message) = binding::prompt(target, side, seen).err().unwrap_or_else(|| {
            (Reason::WaitingForReadiness, format!("the Deployment {} is not observed yet", side.deployment))
        });
        return waits(scene, draft, reason, message);
    };
    if draft.status.failed_revision == Some(binding::unknown(target)) {
        draft.status.failed_revision = Some(revision.clone());
    }
    if draft.status.failed_revision.as_deref() == Some(revision.as_str()) {
        rolled_back(scene, draft, active);
        if clean && scene.rollout.has_finalizer {
            draft.actions.push(Action::RemoveFinalizer);
        }
        return Ok(());
    }
    // What disagrees is waited for before anything is scaled: so the order in which files are applied does not matter.
    if let Err((reason, message)) = attempt::bound(scene, target).and_then(|()| old_prompt(scene, active)) {
        return waits(scene, draft, reason, message);
    }
    draft.stand(Phase::Preparing, Reason::AttemptStarted, format!("an attempt to move to {target} begins"));
    // What was asked of the last attempt must not be taken for a word on this one.
    let leaves =
        |action: &Action| matches!(action, Action::RemoveAct { annotation, .. } if annotation == ANNOTATION_ROLLBACK);
    if draft.after.iter().any(leaves) {
        let message =
            format!("the annotation {ANNOTATION_ROLLBACK}, which was meant for the last attempt, is removed first");
        draft.stand(Phase::Preparing, Reason::WaitingForReadiness, message);
        return Ok(());
    }
    // A backend that somebody changed goes first.
    if scene.position() == Backend::One(active) && ready_to_open(scene, draft) {
        attempt::open(scene, draft, active, revision, None);
    }
    Ok(())
}

/// Says what an attempt waits for before it begins. A watch that has just begun is no news: it is looked at again soon.
fn waits(scene: Scene<'_>, draft: &mut Draft, reason: Reason, message: String) -> Result<(), Problem> {
    if reason == Reason::Unreadable && message.ends_with(NOT_YET) {
        draft.wake_at(time::after(scene.now, Duration::from_secs(5)));
        draft.stand(Phase::Preparing, reason, message.clone());
        return Err(Problem { reason, message });
    }
    let phase = if reason == Reason::WaitingForReadiness { Phase::Preparing } else { Phase::Holding };
    draft.stand(phase, reason, message);
    Ok(())
}

/// A color whose prompt is gone cannot start a Pod any more: nobody should leave it with the hope to come back.
fn old_prompt(scene: Scene<'_>, active: Color) -> Result<(), (Reason, String)> {
    let (side, seen) = (scene.rollout.side(active), scene.seen.colors.get(active));
    match binding::prompt(active, side, seen) {
        Err((Reason::PromptMissing, message)) => {
            let message = format!(
                "{active} serves, and its Pods cannot be started again without their prompt: {message}, or remove spec.{active}.promptTemplate"
            );
            Err((Reason::PromptMissing, message))
        }
        Err((Reason::Unreadable, message)) => Err((Reason::Unreadable, message)),
        _ => Ok(()),
    }
}

/// Clears the way for a new attempt. True if it can be opened in this plan.
fn ready_to_open(scene: Scene<'_>, draft: &mut Draft) -> bool {
    if let Some(canary) = scene.seen.canary.found().filter(|_| scene.rollout.dialect == Dialect::Nginx) {
        // A canary of an earlier attempt goes first.
        let keeps = if canary.deleting { ": a finalizer of somebody keeps it" } else { "" };
        let message = format!("the Ingress {} of an earlier attempt has to go first{keeps}", canary.name);
        draft.stand(Phase::Preparing, Reason::WaitingForReadiness, message);
        return false;
    }
    // The attempt removes the anchor itself and scales as it needs: what the last one left to do is void.
    draft.actions.clear();
    if !scene.rollout.has_finalizer {
        draft.actions.push(Action::AddFinalizer);
        return false;
    }
    draft.order = Order::StatusFirst;
    true
}

fn rolled_back(scene: Scene<'_>, draft: &mut Draft, active: Color) {
    let target = scene.rollout.target;
    let last = draft.status.attempt.clone();
    let tried = last.as_ref().filter(|attempt| attempt.to == target && attempt.cause.is_some());
    let message = match (tried, last.as_ref().filter(|last| last.restore == Some(Cause::RollbackRequested))) {
        (Some(attempt), _) => attempt::what_next(scene, attempt, attempt.cause_message.as_deref().unwrap_or_default()),
        (None, restored) => format!(
            "{active} carries all traffic{}; this revision of {target} was left and is not tried again by itself: change {target}, or set spec.target to {active}",
            if restored.is_some() { " again, as the act rollback asked" } else { "" }
        ),
    };
    if draft.stand.phase != Phase::Holding {
        draft.stand(Phase::RolledBack, Reason::RevisionFailed, message);
    }
}
