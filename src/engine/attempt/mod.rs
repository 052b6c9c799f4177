//! One attempt to move traffic: from the first look at the target to the end of the buffer, or back.
//!
//! `advance` first asks whether there is a reason to go back, from anywhere; only then the step that runs goes on.

mod buffer;
mod leave;
mod prepare;
mod promote;
pub mod restore;
mod rollback;
mod share;
mod stage;

use std::time::Duration;

use super::acts::Asked;
use super::binding;
use super::draft::{Draft, Scene};
use super::jobs;
use super::judging::{self, Judged, Window};
use super::observed::{ColorSeen, IngressSeen, Lookup};
use super::plan::Order;
use super::preflight;
use super::readiness;
use super::rollout::{Dialect, Gate, Side};
use super::time;
use super::traffic::Backend;
use crate::api::names::ANNOTATION_PROMOTE;
use crate::api::reasons::{Cause, Outcome, Phase, Reason, Step};
use crate::api::{Attempt, Color, GateRecord, HistoryEntry, Promoted};

pub use buffer::{at_target, scale_down};
pub use prepare::start_again;
pub use rollback::{external_switch, keep_named, what_next};
pub use stage::{current as current_stage, hold_ends};

/// So long the write of a plan may take: two tries.
const LONGEST_WRITE: Duration = Duration::from_secs(6);

/// Opens an attempt for `revision` and takes its first step. `restore`: an earlier color gets everything back at once.
pub fn open(scene: Scene<'_>, draft: &mut Draft, from: Color, revision: String, restore: Option<Cause>) {
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
        from_revision: binding::revision(from, scene.rollout.side(from), scene.seen.colors.get(from)),
        from_content: binding::content(scene.rollout.side(from), scene.seen.colors.get(from)),
        deployment_uid: scene.seen.colors.get(to).deployment.found().map(|deployment| deployment.uid.clone()),
        ingresses: identities(scene),
        restore,
        step: if restore.is_some() { Step::Restoring } else { Step::Preparing },
        stage_index: 0,
        weight_intended: 0,
        started_at: time::floor(scene.now),
        stage_started_at: None,
        approved_stage: None,
        waived_stage: None,
        promote_requested: false,
        manual_weight: None,
        gates_hash: None,
        evidence: Vec::new(),
        baseline: Vec::new(),
        breaches: Vec::new(),
        waiting: Vec::new(),
        jobs: Vec::new(),
        replicas_before: draining.unwrap_or_else(|| replicas(to)),
        // A live color whose Deployment is gone had as many as the last attempt saw.
        active_replicas: match &scene.seen.colors.get(from).deployment {
            Lookup::Found(deployment) => deployment.desired,
            _ => past.map_or(1, |past| past.active_replicas),
        },
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
    let (reason, back) = if restore.is_some() { (Reason::Restoring, " back") } else { (Reason::AttemptStarted, "") };
    draft.tell(
        reason,
        format!("StartAttempt{}", attempt.id),
        format!("attempt {}: {from}{back} to {to}, {}{prompt}, revision {}", attempt.id, side.model, attempt.revision),
    );
    for (number, advice) in preflight::advice(scene.rollout, scene.seen).into_iter().enumerate() {
        draft.warn(advice.reason, format!("Advise{number}"), advice.message);
    }
    draft.status.gates.clear();
    draft.status.attempt = Some(attempt);
    advance(scene, draft, &Asked::default());
}

/// Takes the next step of the open attempt.
pub fn advance(scene: Scene<'_>, draft: &mut Draft, asked: &Asked) {
    let Some(mut attempt) = draft.open_attempt() else { return };
    draft.need.pods = true;
    draft.need.prompts.extend(Color::BOTH);
    draft.need.job_templates = jobs::templates(scene.rollout);
    draft.need.jobs = !draft.need.job_templates.is_empty() || !attempt.jobs.is_empty();
    if let Some(why) = unreadable(scene) {
        draft.stand(Phase::Holding, Reason::Unreadable, why);
        return;
    }
    if attempt.restore == Some(Cause::RollbackRequested) && scene.rollout.target == attempt.to {
        // From now on the target says where traffic shall be, and can be turned again.
        attempt.restore = Some(Cause::TargetTurnedBack);
    }
    stage::restart_if_gates_changed(scene, &mut attempt);
    let judged = judge(scene, draft, &mut attempt);
    if let Some((cause, message)) = leave::cause(scene, draft, &mut attempt, asked, &judged) {
        rollback::go_back(scene, draft, attempt, cause, &message);
        return;
    }
    if scene.position() != Backend::Neither && rollback::external(scene, draft, &attempt) {
        return;
    }
    if let Some((reason, message)) = leave::gone_ingress(scene) {
        if attempt.step != Step::Restoring || !restore::too_early(scene, draft, &attempt) {
            draft.stand(Phase::Holding, reason, message);
        }
        draft.status.attempt = Some(attempt);
        return;
    }
    attempt.ingresses = identities(scene);
    if (restore::untouched(attempt.step) || attempt.restore.is_some())
        && let Some(late) = own(scene, &scene.seen.canary)
    {
        // No canary is wanted before the first stage, nor while a color is restored: a leader that stood still wrote it late.
        draft.delete(late, true);
        if scene.position() == Backend::One(attempt.to) {
            // It has traffic already, of the color that was just left.
            draft.order = Order::TrafficFirst;
        }
    }
    match attempt.step {
        Step::Preparing => prepare::run(scene, draft, attempt),
        Step::Stage => stage::run(scene, draft, attempt, &judged),
        Step::Promoting => promote::run(scene, draft, attempt),
        Step::Buffering => buffer::run(scene, draft, attempt, &judged),
        Step::Restoring => restore::run(scene, draft, attempt),
        // `leave::cause` repeats the cause of an attempt that goes back, so this is not reached.
        Step::RollingBack => {}
    }
}

/// What must be known before anything is decided, and cannot be read.
pub fn unreadable(scene: Scene<'_>) -> Option<String> {
    let mains = scene.seen.ingresses.iter().map(|(name, ingress)| (name.as_str(), ingress));
    mains.chain([("canary", &scene.seen.canary), ("anchor", &scene.seen.anchor)]).find_map(|(name, ingress)| {
        match ingress {
            Lookup::Unreadable(why) => Some(format!("Ingress {name}: {why}")),
            _ => None,
        }
    })
}

/// The named Ingresses, each with its uid.
fn identities(scene: Scene<'_>) -> Vec<String> {
    scene.mains().iter().map(|main| format!("{}/{}", main.name, main.uid)).collect()
}

/// Our canary, if it is there and ours.
fn own<'a>(scene: Scene<'a>, object: &'a Lookup<IngressSeen>) -> Option<&'a IngressSeen> {
    object.found().filter(|seen| seen.is_owned_by(&scene.rollout.uid))
}

/// The window in which requests are judged now; none before the first stage.
fn window<'a>(scene: Scene<'a>, attempt: &Attempt) -> Option<Window<'a>> {
    match attempt.step {
        // Without shares nothing is judged before the switch.
        Step::Promoting if scene.rollout.dialect == Dialect::Plain => None,
        Step::Stage | Step::Promoting => {
            let stage = stage::current(scene.rollout, attempt);
            let since = attempt.stage_started_at.as_ref()?.0;
            let concurrent = attempt.step == Step::Stage && attempt.share() < 100;
            Some(Window { stage, since, concurrent })
        }
        Step::Buffering => {
            let since = time::ceil(time::after(attempt.buffer_started_at.as_ref()?.0, scene.seen.settle)).0;
            Some(Window { stage: None, since, concurrent: false })
        }
        Step::Preparing | Step::RollingBack | Step::Restoring => None,
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
            "{ready} Pods of {} are ready, {weight} % of {}'s {} replicas needs {needed}{}{}",
            attempt.to,
            attempt.from,
            attempt.active_replicas,
            if readiness.why.is_empty() { String::new() } else { format!(": {}", readiness.why) },
            if readiness.desired < needed { prepare::hint(scene, attempt) } else { String::new() }
        )),
        None => Err(format!("the Pods of {} are not read yet", attempt.to)),
    }
}

/// What keeps the share from being raised, apart from time and evidence: something that does not fit, another rollout on the
/// same objects, or a changed color to go back to.
fn obstacle(scene: Scene<'_>, attempt: &Attempt) -> Option<(Reason, String)> {
    let elder = scene.seen.elder.as_ref().map(|elder| preflight::conflict(elder));
    if attempt.promote_requested && readiness::at_least_known(scene.seen.colors.get(attempt.from)) == Some(0) {
        // The way out when the live color is dead does not hang on what is wrong with it.
        let fits = preflight::backends(scene.rollout, scene.seen)
            .and_then(|_| preflight::side(scene.rollout, scene.seen, attempt.to));
        let problem = elder.or_else(|| fits.err()).map(|problem| (problem.reason, problem.message));
        return problem.or_else(|| bound(scene, attempt.to).err());
    }
    let problem = elder
        .or_else(|| preflight::backends(scene.rollout, scene.seen).err())
        .or_else(|| preflight::fit(scene.rollout, scene.seen).err());
    if let Some(problem) = problem {
        return Some((problem.reason, problem.message));
    }
    bound(scene, attempt.to).err().or_else(|| old_changed(scene, attempt)).or_else(|| unobserved(scene, attempt))
}

/// What cannot be told is not unchanged: a Deployment that its controller has not looked at yet holds the raise.
fn unobserved(scene: Scene<'_>, attempt: &Attempt) -> Option<(Reason, String)> {
    let known = |color| binding::revision(color, scene.rollout.side(color), scene.seen.colors.get(color)).is_some();
    let unknown = Color::BOTH.into_iter().find(|color| {
        let matters = *color == attempt.to || attempt.from_revision.is_some();
        matters && !known(*color)
    })?;
    let deployment = &scene.rollout.side(unknown).deployment;
    Some((Reason::WaitingForReadiness, format!("the Deployment {deployment} of {unknown} is not observed yet")))
}

/// Whether the color that a rollback goes to is still what served before.
pub fn old_changed(scene: Scene<'_>, attempt: &Attempt) -> Option<(Reason, String)> {
    let color = attempt.from;
    let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
    if let Err((Reason::PromptMissing, message)) = binding::prompt(color, side, seen) {
        let message = format!("{color} could not be started again for a rollback: {message}");
        return Some((Reason::PromptMissing, message));
    }
    let (then, now) = (attempt.from_revision.as_ref()?, binding::revision(color, side, seen)?);
    (*then != now && !same_content(attempt, side, seen)).then(|| {
        let message = format!(
            "the Deployment, model or prompt of {color} changed (revision {now} instead of {then}), so a rollback would not go back to what served before: undo that change, or set spec.target to {color}"
        );
        (Reason::RollbackTargetChanged, message)
    })
}

/// Whether the color that was left is by content what it was: a change was undone.
pub fn same_content(attempt: &Attempt, side: &Side, seen: &ColorSeen) -> bool {
    attempt.from_content.is_some() && attempt.from_content == binding::content(side, seen)
}

/// Whether the live color answers nobody while the target could.
fn live_dead(scene: Scene<'_>, attempt: &Attempt) -> Option<String> {
    let ready = |color| readiness::at_least_known(scene.seen.colors.get(color));
    let dead = ready(attempt.from) == Some(0) && readiness::of(scene.seen.colors.get(attempt.to)).complete;
    dead.then(|| {
        format!(
            "{}, which carries the traffic, has no ready Pod, and {} is ready: to switch now, run: {}",
            attempt.from,
            attempt.to,
            scene.command(ANNOTATION_PROMOTE, &attempt.id.to_string())
        )
    })
}

/// Whether model and prompt of the target are bound; if not, why.
pub fn bound(scene: Scene<'_>, color: Color) -> Result<(), (Reason, String)> {
    let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
    binding::model(color, side, seen)?;
    binding::prompt(color, side, seen)?;
    Ok(())
}

/// Ends the attempt with `cause`, whatever was written for it. `active` carries the traffic.
fn end(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, active: Color, cause: Option<(Cause, &str)>) {
    let Scene { rollout, seen, now } = scene;
    let outcome = match (cause, attempt.step) {
        (None, _) if attempt.restore.is_some() => Outcome::Restored,
        (None, _) => Outcome::Promoted,
        (Some(_), _) if active == attempt.to => Outcome::Promoted,
        (Some(_), Step::Preparing | Step::Restoring) => Outcome::Aborted,
        (Some(_), _) => Outcome::RolledBack,
    };
    let clip = |text: &str, longest: usize| text.chars().take(longest).collect::<String>();
    if let Some((cause, message)) = cause {
        attempt.cause = Some(cause);
        let when = if outcome == Outcome::RolledBack {
            format!(": rolled back at {} UTC", time::clock(now))
        } else {
            String::new()
        };
        attempt.cause_message = Some(clip(message, 1024 - when.len()) + &when);
        draft.status.failed_revision = Some(attempt.revision.clone());
        let scaled = seen
            .colors
            .get(attempt.to)
            .deployment
            .found()
            .is_some_and(|target| target.desired > attempt.replicas_before);
        attempt.drain_until = (rollout.match_active && scaled && active != attempt.to)
            // the controller has to follow what is yet to be written, however short the buffer is
            .then(|| time::ceil(time::after(now, rollout.buffer.max(seen.settle + LONGEST_WRITE))));
    } else if attempt.restore.is_none() {
        draft.status.failed_revision = None;
    }
    if active == attempt.to {
        let time = time::floor(now);
        draft.status.last_promoted = Some(Promoted { color: active, revision: attempt.revision.clone(), time });
    }
    let side = rollout.side(attempt.to);
    let gates = draft.gates.as_ref().unwrap_or(&draft.status.gates);
    let limit = |name: &str| rollout.gates.iter().find(|gate| gate.name == name).map(Gate::limit).unwrap_or_default();
    let acts = draft.status.acts.iter().rev().filter(|act| act.attempt == attempt.id);
    let target = seen.colors.get(attempt.to);
    let entry = HistoryEntry {
        attempt: attempt.id,
        from: attempt.from,
        to: attempt.to,
        outcome,
        cause: attempt.cause.or(attempt.restore),
        message: attempt.cause_message.clone(),
        revision: attempt.revision.clone(),
        from_revision: attempt.from_revision.clone(),
        model: side.model.clone(),
        prompt: side.prompt.as_ref().map(|prompt| prompt.version.clone()),
        prompt_hash: target.prompt.found().map(|prompt| prompt.hash.clone()),
        images: target
            .deployment
            .found()
            .map(|deployment| deployment.images.iter().take(8).map(|image| clip(image, 256)).collect())
            .unwrap_or_default(),
        weight: if restore::untouched(attempt.step) { 0 } else { attempt.weight_intended },
        started_at: attempt.started_at.clone(),
        ended_at: time::floor(now),
        gates: gates
            .iter()
            .map(|gate| GateRecord {
                name: gate.name.clone(),
                verdict: gate.verdict,
                reason: gate.reason.clone(),
                limit: clip(&limit(&gate.name), 128),
                message: clip(&gate.message, 256),
                needed: gate.needed,
                evidence: gate.evidence.clone(),
                dry_run: gate.dry_run,
            })
            .collect(),
        acts: acts.map(|act| clip(&format!("{}={}: {}", act.act, act.value, act.effect), 256)).collect(),
    };
    record(&mut draft.status.history, entry);
    attempt.open = false;
    attempt.ended_at = Some(time::ceil(now));
    attempt.short_since = None;
    draft.set_active(active);
}

/// Most entries, and most bytes as JSON, of the history.
const HISTORY: (usize, usize) = (10, 16 * 1024);

/// Puts `entry` first, and drops the oldest until what is left is within its bounds.
fn record(history: &mut Vec<HistoryEntry>, entry: HistoryEntry) {
    history.insert(0, entry);
    history.truncate(HISTORY.0);
    while history.len() > 1 && serde_json::to_vec(history).map_or(0, |bytes| bytes.len()) > HISTORY.1 {
        history.pop();
    }
}
