//! Acts: annotations by which a person tells a running rollout something. Each runs once, is recorded with its effect, and
//! is removed when that is on record. A stale or unknown one does nothing but tell the right command.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::attempt::{current_stage, hold_ends, restore};
use super::draft::{Draft, Scene};
use super::judging::{reason_of, waivable};
use super::observed::NOT_YET;
use super::plan::Action;
use super::readiness;
use super::time;
use super::traffic::Backend;
use crate::api::names::{ANNOTATION_APPROVE, ANNOTATION_PROMOTE, ANNOTATION_RETRY, ANNOTATION_ROLLBACK, DOMAIN};
use crate::api::reasons::{Reason, Step, Verdict};
use crate::api::{ActRecord, Attempt};

/// How many acts are kept on record.
const KEPT: usize = 10;
/// Longest value that is recorded.
const LONGEST: usize = 256;
/// Longest name of an act that is recorded.
const LONGEST_NAME: usize = 64;

/// An act that is seen again within this is the same one: its removal may have failed.
const AGAIN: Duration = Duration::from_mins(1);

/// What was asked for and is to be done in this plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Go back, for this reason.
    pub rollback: Option<String>,
    /// Start the old color, which is no longer kept, and go back to it.
    pub restore: bool,
}

/// What an act did, or why it did nothing. `InForce`: what it asks for is on record. `Later`: it cannot be carried out yet,
/// and the act stays.
enum Effect {
    InForce,
    Done(String),
    Ignored(String),
    Later,
}

/// Reads the acts, records them, and applies those that only change the record.
pub fn read(scene: Scene<'_>, draft: &mut Draft) -> Asked {
    let mut asked = Asked::default();
    let prefix = format!("{DOMAIN}/");
    for (annotation, value) in &scene.rollout.annotations {
        let Some(act) = annotation.strip_prefix(&prefix) else { continue };
        let attempt = draft.status.attempt.as_ref().map_or(0, |attempt| attempt.id);
        let remove = Action::RemoveAct { annotation: annotation.clone(), value: value.clone() };
        if carried_out(scene, draft, annotation, act, value, attempt) {
            draft.after.push(remove);
            continue;
        }
        let effect = match annotation.as_str() {
            ANNOTATION_APPROVE => approve(scene, draft, value),
            ANNOTATION_PROMOTE => promote(scene, draft, value),
            ANNOTATION_ROLLBACK => rollback(scene, draft, value, &mut asked),
            ANNOTATION_RETRY => retry(scene, draft, value),
            _ => Effect::Ignored("this act is not known: there are approve, promote, rollback and retry".to_owned()),
        };
        if !matches!(effect, Effect::Later) {
            draft.after.push(remove);
        }
        // What restores the old color is on record under the attempt that it opens.
        let attempt = attempt + i64::from(annotation == ANNOTATION_ROLLBACK && asked.restore);
        record(scene, draft, act, value, attempt, effect);
    }
    asked
}

/// Whether the act is on record and only its removal is still to come. An approval says itself whether it is in force.
fn carried_out(scene: Scene<'_>, draft: &Draft, annotation: &str, act: &str, value: &str, attempt: i64) -> bool {
    let mut past = applied(&draft.stored.acts, act, value);
    match annotation {
        ANNOTATION_APPROVE => false,
        // It opens another attempt.
        ANNOTATION_RETRY => past.any(|past| fresh(past, scene.now)),
        _ => {
            let restoring = draft.open_attempt().is_some_and(|attempt| attempt.step == Step::Restoring);
            past.any(|past| past.attempt == attempt && (restoring || fresh(past, scene.now)))
        }
    }
}

/// The records of `act` with just this value that had an effect. One that was ignored may be right later: an approval of a
/// stage that has not begun yet.
fn applied<'a>(acts: &'a [ActRecord], act: &str, value: &str) -> impl Iterator<Item = &'a ActRecord> {
    let (act, value) = (act.to_owned(), clip(value, LONGEST));
    acts.iter()
        .filter(|past| past.effect.starts_with(Reason::ActApplied.as_str()))
        .filter(move |past| past.act == act && past.value == value)
}

/// After a crash between the record and its removal an act is there once more; later than that somebody has set it again.
fn fresh(past: &ActRecord, now: Timestamp) -> bool {
    now < time::after(past.time.0, AGAIN)
}

fn record(scene: Scene<'_>, draft: &mut Draft, act: &str, value: &str, attempt: i64, effect: Effect) {
    let (reason, text) = match effect {
        Effect::Done(text) => (Reason::ActApplied, text),
        Effect::Ignored(text) => (Reason::ActIgnored, text),
        Effect::InForce | Effect::Later => return,
    };
    let (act, value) = (clip(act, LONGEST_NAME), clip(value, LONGEST));
    let message = format!("{act}={value}: {text}");
    match reason {
        Reason::ActApplied => draft.tell(reason, format!("Act{act}"), message),
        _ => draft.warn(reason, format!("Act{act}"), message),
    }
    let effect = clip(&format!("{reason}: {text}"), 512);
    draft.status.acts.insert(0, ActRecord { act, attempt, value, effect, time: time::floor(scene.now) });
    draft.status.acts.truncate(KEPT);
}

/// Passes the approval of the stage that runs, and, once its hold is over, its missing samples.
fn approve(scene: Scene<'_>, draft: &mut Draft, value: &str) -> Effect {
    let Some(mut attempt) = draft.open_attempt() else {
        return Effect::Ignored("no attempt is open, nothing waits for an approval".to_owned());
    };
    let number = attempt.stage_index + 1;
    if attempt.step != Step::Stage {
        return Effect::Ignored(format!(
            "attempt {} is in step {}, no stage waits for an approval",
            attempt.id, attempt.step
        ));
    }
    let wanted = format!("{}/{number}", attempt.id);
    if value.trim() != wanted {
        let same = |past: &ActRecord| past.attempt == attempt.id && fresh(past, scene.now);
        if applied(&draft.stored.acts, "approve", value).any(same) {
            return Effect::InForce;
        }
        let command = approve_command(scene, &attempt);
        return Effect::Ignored(format!("this is stage {number} of attempt {}: to approve it, {command}", attempt.id));
    }
    let required = current_stage(scene.rollout, &attempt).is_some_and(|stage| stage.approval);
    let over = hold_ends(scene.rollout, &attempt).is_some_and(|end| end <= scene.now);
    let missing: Vec<String> = draft
        .stored
        .gates
        .iter()
        .filter(|gate| over && !gate.dry_run && gate.verdict == Verdict::Hold && waivable(reason_of(gate)))
        .map(|gate| format!("{}: {}", gate.name, gate.message))
        .collect();
    let approved = !required || attempt.approved_stage == Some(number);
    let passed = missing.is_empty() || attempt.waived_stage == Some(number);
    if approved && passed && (required || !missing.is_empty()) {
        return Effect::InForce;
    }
    if !required && missing.is_empty() {
        return Effect::Ignored(format!(
            "stage {number} of attempt {} needs no approval; samples that are missing can be passed over when its hold is over",
            attempt.id
        ));
    }
    if !approved {
        attempt.approved_stage = Some(number);
        let message = format!("stage {number} of attempt {} was approved", attempt.id);
        draft.tell(Reason::StageApproved, format!("ApproveStage{number}"), message);
    }
    let mut text = format!("stage {number} may be left when its hold is over and its gates pass");
    if !missing.is_empty() {
        attempt.waived_stage = Some(number);
        let what = missing.join("; ");
        text = format!(
            "{}: stage {number} may be left although samples are missing ({what})",
            Reason::ApprovedWithoutEvidence
        );
        let message =
            format!("stage {number} of attempt {} may be left although samples are missing ({what})", attempt.id);
        draft.warn(Reason::ApprovedWithoutEvidence, format!("WaiveStage{number}"), message);
    }
    draft.status.attempt = Some(attempt);
    Effect::Done(text)
}

/// Skips the remaining stages and missing samples; never a failed gate, readiness, capacity or binding.
fn promote(scene: Scene<'_>, draft: &mut Draft, value: &str) -> Effect {
    let Some(mut attempt) = draft.open_attempt() else {
        return Effect::Ignored("no attempt is open, there is nothing to promote".to_owned());
    };
    if !matches!(attempt.step, Step::Preparing | Step::Stage) {
        return Effect::Ignored(format!("attempt {} is in step {} already", attempt.id, attempt.step));
    }
    if value.trim() != attempt.id.to_string() {
        let command = scene.command(ANNOTATION_PROMOTE, &attempt.id.to_string());
        return Effect::Ignored(format!("this is attempt {}: to promote it, run: {command}", attempt.id));
    }
    attempt.promote_requested = true;
    let when = if scene.rollout.paused { "when spec.paused is false again" } else { "as soon as it is ready for it" };
    let text = format!(
        "{} gets all traffic {when}, without the remaining stages; a gate that fails still sends it back",
        attempt.to
    );
    draft.warn(
        Reason::PromoteRequested,
        format!("PromoteNow{}", attempt.id),
        format!("attempt {}: {text}", attempt.id),
    );
    draft.status.attempt = Some(attempt);
    Effect::Done(text)
}

fn rollback(scene: Scene<'_>, draft: &Draft, value: &str, asked: &mut Asked) -> Effect {
    if let Some(attempt) = draft.open_attempt().filter(|attempt| attempt.restore.is_some()) {
        // The second of two people who were paged must not send traffic forward again.
        let (from, to) = (attempt.from, attempt.to);
        return Effect::Ignored(format!(
            "attempt {} goes back to {to} already; to have {from} again, set spec.target to {to} and then to {from}",
            attempt.id
        ));
    }
    if draft.open_attempt().is_some() {
        asked.rollback = Some(clip(value, LONGEST));
        return Effect::Done("traffic goes back".to_owned());
    }
    let Some(active) = draft.status.active_color else { return Effect::Later };
    let answers = readiness::at_least_known(scene.seen.colors.get(active.other())).unwrap_or(0) > 0;
    if scene.position() == Backend::One(active.other()) && answers {
        // The same person has switched the backend by hand, as the runbook says for a dead operator.
        return Effect::Done(format!("the backend names {} already", active.other()));
    }
    match restore::possible(scene, draft, active) {
        Ok(_) if !restore::at_once(scene) => {
            asked.restore = true;
            Effect::Later
        }
        Ok(color) => {
            asked.restore = true;
            Effect::Done(format!(
                "{color} is started, and gets all traffic back when it is ready: {}",
                clip(value, LONGEST)
            ))
        }
        Err((Reason::Unreadable, why)) if why.ends_with(NOT_YET) => Effect::Later,
        Err((_, why)) => Effect::Ignored(why),
    }
}

fn retry(scene: Scene<'_>, draft: &mut Draft, value: &str) -> Effect {
    if applied(&draft.stored.acts, "retry", value).next().is_some() {
        return Effect::Ignored("this token was used: give it another one".to_owned());
    }
    if draft.open_attempt().is_some() {
        return Effect::Ignored("an attempt is open already".to_owned());
    }
    if draft.status.failed_revision.is_none() || draft.status.active_color == Some(scene.rollout.target) {
        return Effect::Ignored("no revision of the target was rolled back, there is nothing to try again".to_owned());
    }
    draft.status.failed_revision = None;
    Effect::Done("the same revision is tried again".to_owned())
}

/// The command that approves the stage that runs.
pub fn approve_command(scene: Scene<'_>, attempt: &Attempt) -> String {
    format!("run: {}", scene.command(ANNOTATION_APPROVE, &format!("{}/{}", attempt.id, attempt.stage_index + 1)))
}

fn clip(value: &str, longest: usize) -> String {
    value.chars().take(longest).collect()
}
