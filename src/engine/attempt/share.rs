//! The target's share of traffic: kept as the stage wants it, whoever changes it.

use std::time::Duration;

use super::{capacity, own, stage};
use crate::api::Attempt;
use crate::api::names::MANAGER_TRAFFIC;
use crate::api::reasons::{Phase, Reason, Step};
use crate::engine::draft::{Draft, Scene};
use crate::engine::drift;
use crate::engine::observed::Answer;
use crate::engine::plan::Action;
use crate::engine::preflight;
use crate::engine::rollout::Dialect;
use crate::engine::time;
use crate::engine::traffic::nginx;

/// So long after the target had to be ready a canary that is not there may never have been written.
const FIRST: Duration = Duration::from_mins(10);

/// Puts a changed or deleted canary back. True if it is in place.
///
/// The clock of the stage starts with the write. A write that comes later than intended (a failed try, somebody else's
/// change) starts it again, before the write.
pub fn keep(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, entering: bool) -> bool {
    if scene.rollout.dialect == Dialect::Plain {
        return true;
    }
    let there = scene.seen.canary.found();
    let users = scene.rollout.users_at(usize::try_from(attempt.stage_index).unwrap_or(0));
    let share = nginx::Share { to: attempt.to, weight: attempt.share(), users: users.as_ref() };
    let want = nginx::canary(scene.rollout, &scene.mains(), there, share);
    // A path that no canary can carry is not copied into ours: the raise is held for it, and only a lower share is written.
    let want = if preflight::backends(scene.rollout, scene.seen).is_ok() {
        want
    } else {
        let Some(there) = there.filter(|there| nginx::weight(there) >= attempt.share()) else { return true };
        want.with_paths_of(there)
    };
    if there.is_some_and(|there| want.matches(there)) {
        return true;
    }
    if let Some(foreign) = there.filter(|_| own(scene, &scene.seen.canary).is_none()) {
        let message = format!("the Ingress {} is not ours: delete or rename it", foreign.name);
        draft.stand(Phase::Holding, Reason::NameTaken, message);
        return false;
    }
    if there.is_some_and(|there| there.deleting) {
        return false;
    }
    let raise = there.map_or(0, nginx::weight) < attempt.share();
    if raise
        && !entering
        && !attempt.promote_requested
        && let Some((reason, why)) = unread(scene, draft)
    {
        // It may be gone, or less, because a gate failed and that could not be recorded: ask again before it is put back.
        let message =
            format!("the share of our canary is too low, and is written when the gates have been read: {why}");
        draft.stand(Phase::Holding, reason, message);
        return false;
    }
    if raise && let Err(why) = capacity(scene, attempt, attempt.share()) {
        draft.stand(Phase::Holding, Reason::CapacityShort, why);
        return false;
    }
    let intended = time::after(scene.now, scene.seen.settle);
    let late = attempt
        .stage_started_at
        .as_ref()
        .is_none_or(|start| start.0 < intended && time::between(start.0, intended).as_secs() >= 1);
    let ours = entering || pending(scene, attempt);
    if late && !ours && !changed_by_others(scene, draft, attempt, &want.name) {
        return false;
    }
    if late && attempt.step == Step::Stage {
        attempt.stage_started_at = Some(time::ceil(intended));
        stage::void(attempt);
    }
    draft.actions.push(Action::WriteIngress(want));
    false
}

/// Whether what is there is what we left: then a write of ours is still to come (it failed, or we died before it), or an
/// Ingress that the canary follows was edited. Nobody has touched it.
fn pending(scene: Scene<'_>, attempt: &Attempt) -> bool {
    if let Some(there) = scene.seen.canary.found() {
        // With the right weight our write has landed: what else differs was changed by others.
        let ours = there.managers.first().is_some_and(|newest| newest == MANAGER_TRAFFIC);
        return ours && nginx::weight(there) != attempt.share();
    }
    let counted = attempt.evidence.iter().any(|evidence| evidence.color == attempt.to && evidence.total > 0);
    attempt.stage_index == 0
        && !counted
        && scene.now < time::after(attempt.started_at.0, scene.rollout.progress_deadline + FIRST)
}

/// Tells that the canary was changed, and by whom. False while somebody keeps changing it: then it is not written.
fn changed_by_others(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, canary: &str) -> bool {
    let manager = scene.seen.canary.found().map_or("somebody", drift::manager);
    if let Err(message) = drift::write_back(draft, scene.now, canary, manager) {
        draft.stand(Phase::Holding, Reason::FieldConflict, message);
        return false;
    }
    let message = format!(
        "the canary Ingress was not as this stage needs it ({manager} changed or deleted it, or an Ingress that it follows was edited); weight {} is written again and the stage's clock starts again",
        attempt.share()
    );
    draft.warn(Reason::CanaryRestored, format!("RestoreCanary{}", attempt.stage_index), message);
    true
}

/// The first gate that can send the target back and whose verdict is not known now, with the reason: this process has not
/// read it yet, or nobody can be asked. That says nothing: a verdict of before may still stand.
pub fn unread(scene: Scene<'_>, draft: &Draft) -> Option<(Reason, String)> {
    let need = draft.need.gates.as_ref()?;
    let acts = |gate: &str| scene.rollout.gates.iter().any(|it| it.name == gate && !it.dry_run);
    need.queries.iter().map(|query| &query.gate).filter(|gate| acts(gate)).find_map(|gate| {
        let reading = scene.seen.readings.get(gate).filter(|reading| reading.key == need.key);
        match reading.map(|reading| &reading.answer) {
            None => Some((Reason::NoData, format!("gate {gate} is being asked"))),
            Some(Answer::Problem(reason @ (Reason::QueryFailed | Reason::UnknownSource), why)) => {
                Some((*reason, format!("gate {gate}: {why}")))
            }
            Some(_) => None,
        }
    })
}
