//! A stage: the target has a share of traffic, for a while, and its gates are judged.

use k8s_openapi::jiff::Timestamp;

use super::{capacity, judge, live_dead, obstacle, promote, share, window};
use crate::api::Attempt;
use crate::api::reasons::{Phase, Reason, Step};
use crate::engine::acts;
use crate::engine::draft::{Draft, Scene};
use crate::engine::drift;
use crate::engine::judging::{self, Judged, Waiting, waivable};
use crate::engine::rollout::{Dialect, Rollout, Stage};
use crate::engine::time;

/// The stage that runs. After an edit of the schedule the share stays until the hold ends, under the nearest settings.
pub fn current<'a>(rollout: &'a Rollout, attempt: &Attempt) -> Option<&'a Stage> {
    rollout.stage_at(attempt.weight_intended).or_else(|| {
        let index = usize::try_from(attempt.stage_index).unwrap_or(0);
        rollout.stages.get(index).or_else(|| rollout.stages.last())
    })
}

/// Starts the stage at `index`: intent and clock first, then the write of the share.
pub fn enter(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, index: usize) {
    let Some(stage) = scene.rollout.stages.get(index) else { return };
    keep_baseline(scene, attempt);
    attempt.step = Step::Stage;
    attempt.stage_index = i32::try_from(index).unwrap_or(i32::MAX);
    attempt.weight_intended = stage.weight;
    attempt.manual_weight = scene.rollout.manual_weight;
    attempt.approved_stage = None;
    attempt.gates_hash = Some(scene.rollout.gates_hash());
    start_clock(scene, attempt);
    let (number, of) = (index + 1, scene.rollout.stages.len());
    let users =
        stage.users.as_ref().map(|users| format!(" and {} named users", users.values.len())).unwrap_or_default();
    let message = format!(
        "stage {number}/{of}: {} gets {} %{users} for at least {}",
        attempt.to,
        stage.weight,
        time::show(stage.hold)
    );
    draft.tell(Reason::StageStarted, format!("StartStage{number}"), message);
    running(scene, draft, attempt, stage);
    judge(scene, draft, attempt);
    wake_at_end(draft, attempt, stage);
    share::keep(scene, draft, attempt, true);
}

/// Keeps what was counted of the other color in the stage that ends, to compare with when it has no traffic.
pub fn keep_baseline(scene: Scene<'_>, attempt: &mut Attempt) {
    if attempt.step == Step::Stage
        && attempt.share() < 100
        && let Some(ending) = window(scene, attempt)
    {
        attempt.baseline = judging::baseline(scene, attempt, &ending);
    }
}

/// Starts the clock of the stage, and voids what was counted before.
pub fn start_clock(scene: Scene<'_>, attempt: &mut Attempt) {
    attempt.stage_started_at = Some(time::ceil(time::after(scene.now, scene.seen.settle)));
    attempt.waived_stage = None;
    void(attempt);
}

/// What was counted and seen of the stage is void.
pub fn void(attempt: &mut Attempt) {
    attempt.evidence.clear();
    attempt.breaches.clear();
    attempt.waiting.clear();
    attempt.jobs.clear();
}

/// Keeps the share, judges, and goes on when time, gates and people agree.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, judged: &Judged) {
    let by_hand = follow_manual_weight(scene, draft, &mut attempt);
    if share::keep(scene, draft, &mut attempt, by_hand == ByHand::Changed) {
        hold(scene, draft, &mut attempt, judged);
    } else {
        // The clock may have started again: what was judged before is void then.
        judge(scene, draft, &mut attempt);
        if let Some(stage) = current(scene.rollout, &attempt).filter(|_| draft.stand.phase != Phase::Holding) {
            running(scene, draft, &attempt, stage);
        }
    }
    if let ByHand::Short(why) = by_hand {
        draft.stand(Phase::Holding, Reason::CapacityShort, why);
    }
    draft.status.attempt = Some(attempt);
}

/// What became of `spec.manualWeight`.
#[derive(PartialEq, Eq)]
enum ByHand {
    /// Nothing is new.
    Same,
    /// The share changes in this plan.
    Changed,
    /// It cannot be had; this is missing.
    Short(String),
}

/// Takes over the share that a person sets while paused, and takes the stage's own back when it is resumed.
fn follow_manual_weight(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) -> ByHand {
    let wanted = scene.rollout.manual_weight.filter(|_| scene.rollout.dialect == Dialect::Nginx);
    if attempt.manual_weight == wanted {
        return ByHand::Same;
    }
    let share = wanted.unwrap_or(attempt.weight_intended);
    if share > attempt.share()
        && let Err(why) = capacity(scene, attempt, share)
    {
        return ByHand::Short(format!("the share of {share} % has to wait: {why}"));
    }
    attempt.manual_weight = wanted;
    start_clock(scene, attempt);
    let message = match wanted {
        Some(weight) => format!("spec.manualWeight: {} gets {weight} %", attempt.to),
        None => format!(
            "{} gets the {share} % of stage {} again, whose hold begins anew",
            attempt.to,
            attempt.stage_index + 1
        ),
    };
    draft.tell(
        if wanted.is_some() { Reason::ManualWeight } else { Reason::Resumed },
        format!("Weight{share}"),
        message,
    );
    ByHand::Changed
}

fn hold(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, judged: &Judged) {
    let Some(stage) = current(scene.rollout, attempt) else { return };
    let place = place(scene, attempt);
    if let Some(message) = drift::lasting(draft, scene.now).filter(|_| !attempt.promote_requested) {
        return draft.stand(Phase::Holding, Reason::FieldConflict, format!("{place}: {message}"));
    }
    let mut wait = |phase, reason, why: &str| draft.stand(phase, reason, format!("{place}: {why}"));
    if attempt.short_since.is_some() {
        let why = capacity(scene, attempt, attempt.share()).err().unwrap_or_default();
        return wait(Phase::Holding, Reason::CapacityShort, &why);
    }
    if let Some(why) = live_dead(scene, attempt).filter(|_| !attempt.promote_requested && attempt.share() < 100) {
        return wait(Phase::Holding, Reason::LiveNotReady, &why);
    }
    if scene.rollout.paused {
        let why = match (attempt.manual_weight, attempt.promote_requested) {
            (_, true) => "spec.paused keeps it there; it is promoted when that is false again",
            (Some(_), _) => "spec.paused keeps it there, at the share of spec.manualWeight; going back still works",
            (None, _) => "spec.paused keeps it there; going back still works",
        };
        return wait(Phase::Paused, Reason::Paused, why);
    }
    let end = wake_at_end(draft, attempt, stage);
    if let Some((phase, reason, why)) = waits_for(scene, attempt, stage, judged, end) {
        if reason == Reason::StageRunning {
            return running(scene, draft, attempt, stage);
        }
        return draft.stand(phase, reason, format!("{place}: {why}"));
    }
    match scene.rollout.stage_above(attempt.weight_intended).filter(|_| !attempt.promote_requested) {
        Some((index, _)) => enter(scene, draft, attempt, index),
        None if scene.rollout.dialect == Dialect::Plain => {
            // All traffic is on the target already.
            promote::begin_buffer(scene, draft, attempt);
        }
        None => promote::enter(scene, draft, attempt),
    }
}

/// What the end of the stage waits for: time, evidence, a person, or what the next share needs.
fn waits_for(
    scene: Scene<'_>,
    attempt: &Attempt,
    stage: &Stage,
    judged: &Judged,
    end: Timestamp,
) -> Option<(Phase, Reason, String)> {
    let number = attempt.stage_index + 1;
    if !attempt.promote_requested {
        if end > scene.now {
            return Some((Phase::Progressing, Reason::StageRunning, String::new()));
        }
        let waived = |reason: Reason| waivable(reason) && attempt.waived_stage == Some(number);
        if let Some(Waiting { gate, reason, message, .. }) = judged.waiting.iter().find(|one| !waived(one.reason)) {
            let way_out = if waivable(*reason) {
                let approved = if attempt.approved_stage == Some(number) { "; it is approved" } else { "" };
                format!("{approved}; to go on without these samples, {}", acts::approve_command(scene, attempt))
            } else {
                String::new()
            };
            return Some((Phase::Holding, *reason, format!("gate {gate}: {message}{way_out}")));
        }
        if stage.approval && attempt.approved_stage != Some(number) {
            let command = acts::approve_command(scene, attempt);
            return Some((Phase::AwaitingApproval, Reason::ApprovalRequired, format!("waits for approval; {command}")));
        }
    }
    if let Some((reason, message)) = obstacle(scene, attempt) {
        return Some((Phase::Holding, reason, message));
    }
    let next = scene.rollout.stage_above(attempt.weight_intended).filter(|_| !attempt.promote_requested);
    let why = capacity(scene, attempt, next.map_or(100, |(_, stage)| stage.weight)).err()?;
    Some((Phase::Holding, Reason::CapacityShort, why))
}

/// Says that the stage runs, with the instant at which its hold is over: a text that does not change by itself.
fn running(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, stage: &Stage) {
    let ends = attempt.stage_started_at.as_ref().map(|start| format!(" until {}", time::after(start.0, stage.hold)));
    let message =
        format!("{} for at least {}{}", place(scene, attempt), time::show(stage.hold), ends.unwrap_or_default());
    draft.stand(Phase::Progressing, Reason::StageRunning, message);
}

fn place(scene: Scene<'_>, attempt: &Attempt) -> String {
    format!("stage {}/{}, {} %", attempt.stage_index + 1, scene.rollout.stages.len(), attempt.share())
}

/// When the hold is over; the plan is looked at again then.
pub fn wake_at_end(draft: &mut Draft, attempt: &Attempt, stage: &Stage) -> Timestamp {
    let start = attempt.stage_started_at.as_ref().map_or(Timestamp::MAX, |start| start.0);
    let end = time::after(start, stage.hold);
    draft.wake_at(end);
    end
}

/// When the hold of the stage that runs is over.
pub fn hold_ends(rollout: &Rollout, attempt: &Attempt) -> Option<Timestamp> {
    let stage = current(rollout, attempt)?;
    Some(time::after(attempt.stage_started_at.as_ref()?.0, stage.hold))
}

/// Evidence that was counted or judged by other settings is void, in every step; in a stage the share stays and the clock
/// starts again.
pub fn restart_if_gates_changed(scene: Scene<'_>, attempt: &mut Attempt) {
    let hash = scene.rollout.gates_hash();
    if attempt.gates_hash.is_none() || attempt.gates_hash.as_deref() == Some(hash.as_str()) {
        return;
    }
    attempt.gates_hash = Some(hash);
    void(attempt);
    attempt.baseline.clear();
    if attempt.step == Step::Stage {
        attempt.waived_stage = None;
        attempt.stage_started_at = Some(time::ceil(scene.now));
    }
}
