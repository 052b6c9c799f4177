//! One attempt to move traffic: from the first look at the target to the end of the buffer, or back.
//!
//! `advance` first asks whether there is a reason to go back, from anywhere; only then the step that runs goes on.

mod buffer;
mod leave;
mod prepare;
mod promote;
mod rollback;
mod stage;

use super::acts::Asked;
use super::binding;
use super::draft::{Draft, Scene};
use super::judging::{self, Judged, Window};
use super::observed::{IngressSeen, Lookup};
use super::plan::Action;
use super::readiness;
use super::time;
use super::traffic::{self, nginx};
use crate::api::reasons::{Cause, Outcome, Phase, Reason, Step};
use crate::api::{Attempt, Color, GateRecord, HistoryEntry};

pub use buffer::{at_target, scale_down};
pub use rollback::{external_switch, what_next};

/// Opens an attempt for `revision` and takes its first step.
pub fn open(scene: Scene<'_>, draft: &mut Draft, from: Color, revision: String) {
    let to = from.other();
    let replicas = |color| scene.seen.colors.get(color).deployment.found().map_or(0, |deployment| deployment.desired);
    let past = draft.status.attempt.as_ref();
    // A target that still drains from its last attempt has more replicas than it had before that one.
    let draining = past.filter(|past| past.to == to && past.drain_until.is_some()).map(|past| past.replicas_before);
    let attempt = Attempt {
        id: past.map_or(0, |past| past.id) + 1,
        open: true,
        from,
        to,
        revision,
        step: Step::Preparing,
        stage_index: 0,
        weight_intended: 0,
        started_at: time::floor(scene.now),
        stage_started_at: None,
        approved_stage: None,
        gates_hash: None,
        evidence: Vec::new(),
        baseline: Vec::new(),
        replicas_before: draining.unwrap_or_else(|| replicas(to)),
        active_replicas: replicas(from),
        short_since: None,
        buffer_started_at: None,
        buffer_ends_at: None,
        cause: None,
        cause_message: None,
        ended_at: None,
        drain_until: None,
    };
    let side = scene.rollout.side(to);
    let prompt = side.prompt.as_ref().map(|prompt| format!(" with prompt {}", prompt.version)).unwrap_or_default();
    draft.tell(
        Reason::AttemptStarted,
        format!("StartAttempt{}", attempt.id),
        format!("attempt {}: {from} to {to}, {}{prompt}, revision {}", attempt.id, side.model, attempt.revision),
    );
    draft.status.gates.clear();
    draft.status.attempt = Some(attempt);
    advance(scene, draft, &Asked::default());
}

/// Takes the next step of the open attempt.
pub fn advance(scene: Scene<'_>, draft: &mut Draft, asked: &Asked) {
    let Some(mut attempt) = draft.open_attempt() else { return };
    draft.need.pods = true;
    draft.need.prompts = true;
    let main = match &scene.seen.ingress {
        Lookup::Found(main) => Some(main),
        Lookup::Missing => None,
        Lookup::Unreadable(why) => {
            draft.stand(Phase::Holding, Reason::Unreadable, format!("Ingress {}: {why}", scene.rollout.ingress));
            return;
        }
    };
    if let Lookup::Unreadable(why) = &scene.seen.canary {
        draft.stand(Phase::Holding, Reason::Unreadable, format!("our canary Ingress: {why}"));
        return;
    }
    if attempt.step == Step::Stage {
        stage::restart_if_gates_changed(scene, &mut attempt);
    }
    let judged = judge(scene, draft, &mut attempt);
    if let Some((cause, message)) = leave::cause(scene, draft, &mut attempt, main, asked, &judged) {
        rollback::go_back(scene, draft, attempt, main, cause, &message);
        return;
    }
    let Some(main) = main else { return };
    if rollback::external(scene, draft, &attempt, main) {
        return;
    }
    match attempt.step {
        Step::Preparing => prepare::run(scene, draft, attempt, main),
        Step::Stage => stage::run(scene, draft, attempt, main, &judged),
        Step::Promoting => promote::run(scene, draft, attempt, main),
        Step::Buffering => buffer::run(scene, draft, attempt, main, &judged),
        // `leave::cause` repeats the cause of an attempt that goes back, so this is not reached.
        Step::RollingBack => {}
    }
}

/// Our canary, if it is there and ours.
fn own<'a>(scene: Scene<'a>, object: &'a Lookup<IngressSeen>) -> Option<&'a IngressSeen> {
    object.found().filter(|seen| seen.is_owned_by(&scene.rollout.uid))
}

/// The window in which requests are judged now; none before the first stage.
fn window<'a>(scene: Scene<'a>, attempt: &Attempt) -> Option<Window<'a>> {
    match attempt.step {
        Step::Stage | Step::Promoting => {
            let stage = stage::current(scene.rollout, attempt);
            let since = attempt.stage_started_at.as_ref()?.0;
            let concurrent = attempt.step == Step::Stage && attempt.weight_intended < 100;
            Some(Window { stage, since, concurrent })
        }
        Step::Buffering => {
            let since = time::ceil(time::after(attempt.buffer_started_at.as_ref()?.0, scene.seen.settle)).0;
            Some(Window { stage: None, since, concurrent: false })
        }
        Step::Preparing | Step::RollingBack => None,
    }
}

/// Judges the gates of the window in which requests are judged now.
fn judge(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt) -> Judged {
    window(scene, attempt).map(|window| judging::run(scene, draft, attempt, &window)).unwrap_or_default()
}

/// Whether the target has the Pods that `weight` needs; if not, what is missing.
fn capacity(scene: Scene<'_>, attempt: &Attempt, weight: i32) -> Result<(), String> {
    let readiness = readiness::of(scene.seen.colors.get(attempt.to));
    let needed = readiness::needed(weight, attempt.active_replicas);
    match readiness.ready {
        Some(ready) if ready >= needed => Ok(()),
        Some(ready) => Err(format!(
            "{ready} Pods of {} are ready, {weight} % of {}'s {} replicas needs {needed}{}",
            attempt.to,
            attempt.from,
            attempt.active_replicas,
            if readiness.why.is_empty() { String::new() } else { format!(": {}", readiness.why) }
        )),
        None => Err(format!("the Pods of {} are not read yet", attempt.to)),
    }
}

/// Whether model and prompt of the target are bound; if not, why.
fn bound(scene: Scene<'_>, color: Color) -> Result<(), (Reason, String)> {
    let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
    binding::model(color, side, seen)?;
    binding::prompt(color, side, seen)?;
    Ok(())
}

/// Puts a changed or deleted canary back. True if it is in place.
///
/// The clock of the stage starts with the write. A write that comes later than intended (a failed try, somebody else's
/// change) starts it again, before the write.
fn keep_canary(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, main: &IngressSeen, entering: bool) -> bool {
    let there = scene.seen.canary.found();
    let want = nginx::canary(scene.rollout, main, there, attempt.from, attempt.weight_intended);
    if there.is_some_and(|there| want.matches(there)) {
        return true;
    }
    if let Some(foreign) = there.filter(|_| own(scene, &scene.seen.canary).is_none()) {
        draft.stand(
            Phase::Holding,
            Reason::NameTaken,
            format!("the Ingress {} is not ours: delete or rename it", foreign.name),
        );
        return false;
    }
    if there.is_some_and(|there| there.deleting) {
        return false;
    }
    if there.is_none() && !entering && unread(scene, draft) {
        // It may be gone because a gate failed and that could not be recorded: ask again before it is put back.
        draft.stand(
            Phase::Holding,
            Reason::NoData,
            "our canary Ingress is missing; it is put back when the gates have been read",
        );
        return false;
    }
    let raise = there.map_or(0, nginx::weight) < attempt.weight_intended;
    if raise && let Err(why) = capacity(scene, attempt, attempt.weight_intended) {
        draft.stand(Phase::Holding, Reason::CapacityShort, why);
        return false;
    }
    let intended = time::after(scene.now, scene.seen.settle);
    let late = attempt
        .stage_started_at
        .as_ref()
        .is_none_or(|start| start.0 < intended && time::between(start.0, intended).as_secs() >= 1);
    if late && attempt.step == Step::Stage {
        attempt.stage_started_at = Some(time::ceil(intended));
        attempt.evidence.clear();
    }
    if late && !entering {
        draft.warn(
            Reason::CanaryRestored,
            format!("RestoreCanary{}", attempt.stage_index),
            format!(
                "the canary Ingress was not as this stage needs it (changed or deleted, or its Ingress was edited); weight {} is written again and the stage's clock starts again",
                attempt.weight_intended
            ),
        );
    }
    draft.actions.push(Action::WriteIngress(want));
    false
}

/// Whether a gate that is asked for has had no answer at all yet.
fn unread(scene: Scene<'_>, draft: &Draft) -> bool {
    let need = draft.need.gates.as_ref();
    let answered = |key: &str, gate: &str| scene.seen.readings.get(gate).is_some_and(|reading| reading.key == key);
    need.is_some_and(|need| need.queries.iter().any(|query| !answered(&need.key, &query.gate)))
}

/// Ends the attempt with `cause`, whatever was written for it. `active` carries the traffic.
fn end(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, active: Color, cause: Option<(Cause, &str)>) {
    let Scene { rollout, seen, now } = scene;
    let outcome = match (cause, attempt.step) {
        (None, _) => Outcome::Promoted,
        (Some(_), _) if active == attempt.to => Outcome::Promoted,
        (Some(_), Step::Preparing) => Outcome::Aborted,
        (Some(_), _) => Outcome::RolledBack,
    };
    let clip = |text: &str, longest: usize| text.chars().take(longest).collect::<String>();
    if let Some((cause, message)) = cause {
        attempt.cause = Some(cause);
        attempt.cause_message = Some(clip(message, 1024));
        draft.status.failed_revision = Some(attempt.revision.clone());
        let scaled = seen
            .colors
            .get(attempt.to)
            .deployment
            .found()
            .is_some_and(|target| target.desired > attempt.replicas_before);
        attempt.drain_until = (rollout.match_active && scaled && active != attempt.to)
            .then(|| time::ceil(time::after(now, rollout.buffer)));
    } else {
        draft.status.failed_revision = None;
    }
    let side = rollout.side(attempt.to);
    let gates = draft.gates.as_ref().unwrap_or(&draft.status.gates);
    let entry = HistoryEntry {
        attempt: attempt.id,
        from: attempt.from,
        to: attempt.to,
        outcome,
        cause: attempt.cause,
        message: attempt.cause_message.clone(),
        revision: attempt.revision.clone(),
        model: side.model.clone(),
        prompt: side.prompt.as_ref().map(|prompt| prompt.version.clone()),
        weight: if attempt.step == Step::Preparing { 0 } else { attempt.weight_intended },
        started_at: attempt.started_at.clone(),
        ended_at: time::floor(now),
        gates: gates
            .iter()
            .map(|gate| GateRecord {
                name: gate.name.clone(),
                verdict: gate.verdict,
                message: clip(&gate.message, 256),
            })
            .collect(),
    };
    draft.status.history.insert(0, entry);
    draft.status.history.truncate(10);
    attempt.open = false;
    attempt.ended_at = Some(time::ceil(now));
    attempt.short_since = None;
    draft.set_active(active);
}

/// Which color the production Ingress names.
fn position(scene: Scene<'_>, main: &IngressSeen) -> traffic::Backend {
    traffic::backend(scene.rollout, main)
}
