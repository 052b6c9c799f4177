//! A stage: the target has a share of traffic, for a while, and its gates are judged.

use k8s_openapi::jiff::Timestamp;

use super::{bound, capacity, judge, keep_canary, promote, window};
use crate::api::Attempt;
use crate::api::reasons::{Phase, Reason, Step};
use crate::engine::acts;
use crate::engine::draft::{Draft, Scene};
use crate::engine::judging::{self, Judged};
use crate::engine::observed::IngressSeen;
use crate::engine::rollout::{Rollout, Stage};
use crate::engine::time;

/// The stage that runs. After an edit of the schedule the share stays until the hold ends, under the nearest settings.
pub fn current<'a>(rollout: &'a Rollout, attempt: &Attempt) -> Option<&'a Stage> {
    rollout.stage_at(attempt.weight_intended).or_else(|| {
        let index = usize::try_from(attempt.stage_index).unwrap_or(0);
        rollout.stages.get(index).or_else(|| rollout.stages.last())
    })
}

/// Starts the stage at `index`: intent and clock first, then the write of the share.
pub fn enter(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, main: &IngressSeen, index: usize) {
    let Some(stage) = scene.rollout.stages.get(index) else { return };
    if attempt.step == Step::Stage
        && attempt.weight_intended < 100
        && let Some(ending) = window(scene, attempt)
    {
        attempt.baseline = judging::baseline(scene, attempt, &ending);
    }
    attempt.step = Step::Stage;
    attempt.stage_index = i32::try_from(index).unwrap_or(i32::MAX);
    attempt.weight_intended = stage.weight;
    attempt.stage_started_at = Some(time::ceil(time::after(scene.now, scene.seen.settle)));
    attempt.approved_stage = None;
    attempt.gates_hash = Some(scene.rollout.gates_hash());
    attempt.evidence.clear();
    let (number, of) = (index + 1, scene.rollout.stages.len());
    let message =
        format!("stage {number}/{of}: {} gets {} % for at least {}", attempt.to, stage.weight, time::show(stage.hold));
    draft.tell(Reason::StageStarted, format!("StartStage{number}"), message);
    running(scene, draft, attempt, stage);
    judge(scene, draft, attempt);
    wake_at_end(draft, attempt, stage);
    keep_canary(scene, draft, attempt, main, true);
}

/// Keeps the share, judges, and goes on when time, gates and people agree.
pub fn run(scene: Scene<'_>, draft: &mut Draft, mut attempt: Attempt, main: &IngressSeen, judged: &Judged) {
    if keep_canary(scene, draft, &mut attempt, main, false) {
        hold(scene, draft, &mut attempt, main, judged);
    } else {
        // The clock may have started again: what was judged before is void then.
        judge(scene, draft, &mut attempt);
        if let Some(stage) = current(scene.rollout, &attempt).filter(|_| draft.stand.phase != Phase::Holding) {
            running(scene, draft, &attempt, stage);
        }
    }
    draft.status.attempt = Some(attempt);
}

fn hold(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, main: &IngressSeen, judged: &Judged) {
    let Some(stage) = current(scene.rollout, attempt) else { return };
    let place = place(scene, attempt);
    if attempt.short_since.is_some() {
        let why = capacity(scene, attempt, attempt.weight_intended).err().unwrap_or_default();
        draft.stand(Phase::Holding, Reason::CapacityShort, format!("{place}: {why}"));
        return;
    }
    if wake_at_end(draft, attempt, stage) > scene.now {
        running(scene, draft, attempt, stage);
        return;
    }
    if let Some((gate, reason, message)) = &judged.waiting {
        draft.stand(Phase::Holding, *reason, format!("{place}: gate {gate}: {message}"));
        return;
    }
    if stage.approval && attempt.approved_stage != Some(attempt.stage_index + 1) {
        let command = acts::approve_command(scene, attempt);
        draft.stand(
            Phase::AwaitingApproval,
            Reason::ApprovalRequired,
            format!("{place}: waits for approval; {command}"),
        );
        return;
    }
    if let Err((reason, message)) = bound(scene, attempt.to) {
        draft.stand(Phase::Holding, reason, format!("{place}: {message}"));
        return;
    }
    let next = scene.rollout.stage_above(attempt.weight_intended);
    if let Err(why) = capacity(scene, attempt, next.map_or(100, |(_, stage)| stage.weight)) {
        draft.stand(Phase::Holding, Reason::CapacityShort, format!("{place}: {why}"));
        return;
    }
    match next {
        Some((index, _)) => enter(scene, draft, attempt, main, index),
        None => promote::enter(scene, draft, attempt, main),
    }
}

/// Says that the stage runs, with the instant at which its hold is over: a text that does not change by itself.
fn running(scene: Scene<'_>, draft: &mut Draft, attempt: &Attempt, stage: &Stage) {
    let ends = attempt.stage_started_at.as_ref().map(|start| format!(" until {}", time::after(start.0, stage.hold)));
    let message =
        format!("{} for at least {}{}", place(scene, attempt), time::show(stage.hold), ends.unwrap_or_default());
    draft.stand(Phase::Progressing, Reason::StageRunning, message);
}

fn place(scene: Scene<'_>, attempt: &Attempt) -> String {
    format!("stage {}/{}, {} %", attempt.stage_index + 1, scene.rollout.stages.len(), attempt.weight_intended)
}

/// When the hold is over; the plan is looked at again then.
fn wake_at_end(draft: &mut Draft, attempt: &Attempt, stage: &Stage) -> Timestamp {
    let start = attempt.stage_started_at.as_ref().map_or(Timestamp::MAX, |start| start.0);
    let end = time::after(start, stage.hold);
    draft.wake_at(end);
    end
}

/// Evidence that was judged by other settings is void; the share stays and the clock starts again.
pub fn restart_if_gates_changed(scene: Scene<'_>, attempt: &mut Attempt) {
    let hash = scene.rollout.gates_hash();
    if attempt.gates_hash.as_deref() != Some(hash.as_str()) {
        attempt.gates_hash = Some(hash);
        attempt.evidence.clear();
        attempt.stage_started_at = Some(time::ceil(scene.now));
    }
}
