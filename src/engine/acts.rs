//! Acts: annotations by which a person tells a running rollout something. Each runs once, is recorded with its effect, and
//! is removed when that is on record. A stale one does nothing but tell the right command.

use super::draft::{Draft, Scene};
use super::plan::Action;
use super::time;
use crate::api::names::{ANNOTATION_APPROVE, ANNOTATION_RETRY, ANNOTATION_ROLLBACK};
use crate::api::reasons::{Reason, Step};
use crate::api::{ActRecord, Attempt};

/// How many acts are kept on record.
const KEPT: usize = 10;
/// Longest value that is recorded.
const LONGEST: usize = 256;

/// What was asked for and is to be done in this plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Go back, for this reason.
    pub rollback: Option<String>,
}

/// Reads the acts, records them, and applies those that only change the record.
pub fn read(scene: Scene<'_>, draft: &mut Draft) -> Asked {
    let mut asked = Asked::default();
    for (annotation, act) in
        [(ANNOTATION_APPROVE, "approve"), (ANNOTATION_ROLLBACK, "rollback"), (ANNOTATION_RETRY, "retry")]
    {
        let Some(value) = scene.rollout.annotations.get(annotation) else { continue };
        draft.after.push(Action::RemoveAct { annotation, value: value.clone() });
        let attempt = draft.status.attempt.as_ref().map_or(0, |attempt| attempt.id);
        if recorded(&draft.stored.acts, act, value, attempt) {
            continue;
        }
        let effect = match act {
            "approve" => approve(scene, draft, value),
            "rollback" => rollback(draft, value, &mut asked),
            _ => retry(scene, draft),
        };
        record(scene, draft, act, value, attempt, &effect);
    }
    asked
}

type Effect = Result<String, String>;

fn recorded(acts: &[ActRecord], act: &str, value: &str, attempt: i64) -> bool {
    let value = clip(value);
    // One that was ignored may be right later: an approval of a stage that has not begun yet.
    let applied = |past: &&ActRecord| past.effect.starts_with(Reason::ActApplied.as_str());
    let same = |past: &ActRecord| past.act == act && past.value == value && (past.attempt == attempt || act == "retry");
    acts.iter().filter(applied).any(same)
}

fn record(scene: Scene<'_>, draft: &mut Draft, act: &str, value: &str, attempt: i64, effect: &Effect) {
    let (reason, text) = match effect {
        Ok(text) => (Reason::ActApplied, text),
        Err(text) => (Reason::ActIgnored, text),
    };
    let message = format!("{act}={}: {text}", clip(value));
    match reason {
        Reason::ActApplied => draft.tell(reason, format!("Act{act}"), message),
        _ => draft.warn(reason, format!("Act{act}"), message),
    }
    let (act, value, effect) = (act.to_owned(), clip(value), format!("{reason}: {text}"));
    draft.status.acts.insert(0, ActRecord { act, attempt, value, effect, time: time::floor(scene.now) });
    draft.status.acts.truncate(KEPT);
}

fn approve(scene: Scene<'_>, draft: &mut Draft, value: &str) -> Effect {
    let Some(mut attempt) = draft.open_attempt() else {
        return Err("no attempt is open, nothing waits for an approval".to_owned());
    };
    let stage = attempt.stage_index + 1;
    let waits = attempt.step == Step::Stage
        && scene.rollout.stage_at(attempt.weight_intended).is_some_and(|stage| stage.approval);
    if !waits {
        return Err(format!("stage {stage} of attempt {} needs no approval", attempt.id));
    }
    if value.trim() != format!("{}/{stage}", attempt.id) {
        return Err(format!(
            "this is stage {stage} of attempt {}: to approve it, {}",
            attempt.id,
            approve_command(scene, &attempt)
        ));
    }
    attempt.approved_stage = Some(stage);
    draft.tell(
        Reason::StageApproved,
        format!("ApproveStage{stage}"),
        format!("stage {stage} of attempt {} was approved", attempt.id),
    );
    draft.status.attempt = Some(attempt);
    Ok(format!("stage {stage} may be left when its hold is over and its gates pass"))
}

fn rollback(draft: &Draft, value: &str, asked: &mut Asked) -> Effect {
    if draft.open_attempt().is_none() {
        return Err(
            "no attempt is open and the old color is no longer kept: to go back, set spec.target to the other color"
                .to_owned(),
        );
    }
    asked.rollback = Some(clip(value));
    Ok("traffic goes back".to_owned())
}

fn retry(scene: Scene<'_>, draft: &mut Draft) -> Effect {
    if draft.open_attempt().is_some() {
        return Err("an attempt is open already".to_owned());
    }
    if draft.status.failed_revision.is_none() || draft.status.active_color == Some(scene.rollout.target) {
        return Err("no revision of the target was rolled back, there is nothing to try again".to_owned());
    }
    draft.status.failed_revision = None;
    Ok("the same revision is tried again".to_owned())
}

/// The command that approves the stage that runs.
pub fn approve_command(scene: Scene<'_>, attempt: &Attempt) -> String {
    format!(
        "run: kubectl annotate -n {} modelrollout {} {ANNOTATION_APPROVE}={}/{}",
        scene.rollout.namespace,
        scene.rollout.name,
        attempt.id,
        attempt.stage_index + 1
    )
}

fn clip(value: &str) -> String {
    value.chars().take(LONGEST).collect()
}
