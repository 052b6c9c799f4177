//! The status for people: phase, columns, colors, conditions. Derived from what was decided; decides nothing.

use super::attempt::{self, restore};
use super::binding;
use super::conditions::{Conditions, Truth};
use super::draft::{Draft, Scene};
use super::observed::NOT_YET;
use super::preflight::{self, Problem};
use super::readiness;
use crate::api::names::ANNOTATION_ROLLBACK;
use crate::api::reasons::{ConditionType, Phase, Reason, Role, Step, Verdict};
use crate::api::{Attempt, Color, ColorStatus, GateStatus, Summary};

/// Remembers which template serves, and tells when it changes outside of a rollout.
pub fn template(scene: Scene<'_>, draft: &mut Draft) {
    let Some(active) = draft.status.active_color else { return };
    let Some(now) = binding::template(active, scene.seen.colors.get(active)) else { return };
    let before = draft.stored.active_template.clone().filter(|_| draft.stored.active_color == Some(active));
    // While an attempt is open the change is a reason to hold, and is told as that.
    let at_rest = draft.open_attempt().is_none();
    if at_rest && before.is_some_and(|before| before != now) {
        let message = format!(
            "the Deployment {} of {active}, which serves, changed outside of a rollout: its Pods are replaced without stages and without judging",
            scene.rollout.side(active).deployment
        );
        draft.warn(Reason::ActiveTemplateChanged, "ChangeActiveTemplate", message);
    }
    if at_rest || draft.status.active_template.is_none() || draft.stored.active_color != Some(active) {
        draft.status.active_template = Some(now);
    }
}

/// Fills in everything that is for people.
pub fn fill(scene: Scene<'_>, draft: &mut Draft, problem: Option<&Problem>) {
    let stops = draft.open_attempt().is_none() && !problem_is_harmless(scene, draft);
    if let Some(problem) = problem.filter(|_| stops) {
        draft.stand(Phase::Invalid, problem.reason, problem.message.clone());
    }
    draft.status.observed_generation = Some(scene.rollout.generation);
    draft.status.phase = Some(draft.stand.phase);
    if let Some(gates) = draft.gates.clone() {
        draft.status.gates = gates;
    }
    draft.status.colors = draft.open_attempt().map(|attempt| colors(scene, &attempt)).unwrap_or_default();
    draft.status.summary = summary(scene, draft);
    draft.status.conditions = conditions(scene, draft, problem);
}

/// At the target, what does not fit matters only to the next rollout.
fn problem_is_harmless(scene: Scene<'_>, draft: &Draft) -> bool {
    let moved = matches!(draft.stand.phase, Phase::Stable | Phase::Holding) && draft.stand.reason != Reason::NotChecked;
    moved && draft.status.active_color == Some(scene.rollout.target)
}

fn colors(scene: Scene<'_>, attempt: &Attempt) -> Vec<ColorStatus> {
    let buffering = attempt.step == Step::Buffering;
    let weight = if buffering { 100 } else { attempt.share() };
    Color::BOTH
        .into_iter()
        .map(|color| {
            let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
            let readiness = readiness::of(seen);
            let role = match (color == attempt.to, buffering) {
                (true, false) if restore::untouched(attempt.step) => Role::Idle,
                (true, false) => Role::Canary,
                (true, true) | (false, false) => Role::Stable,
                (false, true) => Role::Draining,
            };
            ColorStatus {
                color,
                role,
                ready: readiness::at_least_known(seen).unwrap_or(0),
                desired: readiness.desired,
                weight: if color == attempt.to { weight } else { 100 - weight },
                model: side.model.clone(),
                prompt: side.prompt.as_ref().map(|prompt| prompt.version.clone()),
                prompt_hash: seen.prompt.found().map(|prompt| prompt.hash.clone()),
            }
        })
        .collect()
}

fn summary(scene: Scene<'_>, draft: &Draft) -> Summary {
    let rollout = scene.rollout;
    let attempt = draft.open_attempt();
    let staged = attempt.as_ref().filter(|attempt| attempt.step == Step::Stage || attempt.step == Step::Promoting);
    let active = draft.status.active_color;
    let prompt = |color| rollout.side(color).prompt.as_ref().map(|prompt| prompt.version.clone()).unwrap_or_default();
    Summary {
        stage: staged
            .map(|attempt| format!("{}/{}", attempt.stage_index + 1, rollout.stages.len()))
            .unwrap_or_default(),
        weight: active.map(|active| match &attempt {
            Some(attempt) if attempt.to != rollout.target => 100 - in_force(attempt),
            Some(attempt) => in_force(attempt),
            None => i32::from(active == rollout.target) * 100,
        }),
        gates: if attempt.is_some() { tally(&draft.status.gates) } else { String::new() },
        model: active.map(|active| serving_model(scene, active)).unwrap_or_default(),
        prompt: active.map(prompt).unwrap_or_default(),
        target_model: rollout.side(rollout.target).model.clone(),
        target_prompt: prompt(rollout.target),
        message: draft.stand.message.chars().take(1024).collect(),
    }
}

/// The model that a color's Pods say they serve, or that the spec says.
fn serving_model(scene: Scene<'_>, color: Color) -> String {
    let declared = scene.seen.colors.get(color).deployment.found().and_then(|deployment| deployment.model.clone());
    declared.unwrap_or_else(|| scene.rollout.side(color).model.clone()).chars().take(256).collect()
}

/// The share that the attempt's target has.
fn in_force(attempt: &Attempt) -> i32 {
    if attempt.step == Step::Buffering { 100 } else { attempt.share() }
}

/// The gates that have a say in this stage.
fn acting(gates: &[GateStatus]) -> impl Iterator<Item = &GateStatus> {
    gates.iter().filter(|gate| gate.reason != Reason::NotInThisStage.as_str() && !gate.dry_run)
}

/// `1/2 passing: p99 …` for the column.
fn tally(gates: &[GateStatus]) -> String {
    let judged: Vec<_> = acting(gates).collect();
    if judged.is_empty() {
        return String::new();
    }
    let passing = judged.iter().filter(|gate| gate.verdict == Verdict::Pass).count();
    let worst = judged
        .iter()
        .find(|gate| gate.verdict == Verdict::Fail)
        .or_else(|| judged.iter().find(|gate| gate.verdict == Verdict::Hold))
        .map(|gate| format!(": {} {}", gate.name, gate.reason))
        .unwrap_or_default();
    format!("{passing}/{} passing{worst}", judged.len())
}

fn conditions(
    scene: Scene<'_>,
    draft: &Draft,
    problem: Option<&Problem>,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let mut out = Conditions::new(&draft.stored.conditions, scene.rollout.generation, scene.now);
    let stand = &draft.stand;
    let ready = match stand.phase {
        Phase::Stable => Truth::True,
        Phase::Preparing | Phase::Progressing | Phase::Promoting | Phase::Buffering | Phase::Restoring => {
            Truth::Unknown
        }
        _ => Truth::False,
    };
    out.set(ConditionType::Ready, ready, stand.reason, stand.message.clone());
    let (fits, reason, message) = match problem {
        Some(problem) => (Truth::False, problem.reason, problem.message.clone()),
        None => advice(scene),
    };
    out.set(ConditionType::Preflight, fits, reason, message);
    let progressing = match stand.phase {
        Phase::Preparing
        | Phase::Progressing
        | Phase::Promoting
        | Phase::Buffering
        | Phase::RollingBack
        | Phase::Restoring => Truth::True,
        _ => Truth::False,
    };
    out.set(ConditionType::Progressing, progressing, stand.reason, stand.message.clone());
    gates(scene, draft, &mut out);
    bindings(scene, draft, &mut out);
    let (reason, message) = if draft.open_attempt().is_some() {
        (Reason::NotProbed, "each write was read back and given time; no request was sent to prove it")
    } else {
        (Reason::AtRest, "no traffic is being moved")
    };
    out.set(ConditionType::TrafficVerified, Truth::Unknown, reason, message);
    rollback(scene, draft, &mut out);
    out.finish()
}

/// What does not stand in the way but may hurt later.
fn advice(scene: Scene<'_>) -> (Truth, Reason, String) {
    let all = preflight::advice(scene.rollout, scene.seen);
    let Some(first) = all.first() else {
        let message = "everything that the rollout refers to is there and fits together";
        return (Truth::True, Reason::Passed, message.to_owned());
    };
    let text: Vec<&str> = all.iter().map(|one| one.message.as_str()).collect();
    (Truth::True, first.reason, format!("nothing stands in the way, but: {}", text.join("; ")))
}

fn gates(scene: Scene<'_>, draft: &Draft, out: &mut Conditions<'_>) {
    let kind = ConditionType::GatesPassing;
    if scene.rollout.gates.iter().all(|gate| gate.dry_run) {
        let message = if scene.rollout.gates.is_empty() {
            "there are no gates: stages pass by time and readiness alone; add spec.gates to have them judged"
        } else {
            "every gate is a dry run: stages pass by time and readiness alone; status.gates shows what they would have said"
        };
        out.set(kind, Truth::Unknown, Reason::NoGates, message);
        return;
    }
    if draft.gates.is_none() {
        let seen = draft.stand.reason == Reason::AtTarget;
        if seen && draft.status.attempt.as_ref().is_some_and(|attempt| attempt.cause.is_some()) {
            // Somebody has set the target back: the failure is history.
            out.set(
                kind,
                Truth::Unknown,
                Reason::AtRest,
                "no attempt is open; the last verdicts are in status.history",
            );
        } else {
            out.keep(kind);
        }
        return;
    }
    let judged = || acting(&draft.status.gates);
    let told = |gate: &GateStatus| format!("{}: {}", gate.name, gate.message);
    if let Some(failed) = judged().find(|gate| gate.verdict == Verdict::Fail) {
        out.set(kind, Truth::False, Reason::GateFailed, told(failed));
    } else if let Some(waiting) = judged().find(|gate| gate.verdict == Verdict::Hold) {
        out.set(kind, Truth::Unknown, Reason::Judging, told(waiting));
    } else {
        out.set(kind, Truth::True, Reason::AllPassing, judged().map(told).collect::<Vec<_>>().join("; "));
    }
}

fn bindings(scene: Scene<'_>, draft: &Draft, out: &mut Conditions<'_>) {
    let open = draft.open_attempt();
    // Prompts are looked at while a rollout is wanted; at rest nothing is watched for them.
    let wanted = open.is_some() || draft.need.prompts.contains(&scene.rollout.target);
    let at_rest = open.is_none();
    let color = open.map_or(scene.rollout.target, |attempt| attempt.to);
    let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
    let mut set = |kind, bound: binding::Bound| match bound {
        Ok((reason @ (Reason::NotDeclared | Reason::NoPrompt), message)) => {
            out.set(kind, Truth::Unknown, reason, message);
        }
        Ok((reason, message)) => out.set(kind, Truth::True, reason, message),
        // at rest nothing hangs on it: a watch that has just begun is no news
        Err((Reason::Unreadable, _)) if at_rest => out.keep(kind),
        Err((Reason::Unreadable, message)) => out.set(kind, Truth::Unknown, Reason::Unreadable, message),
        Err((reason, message)) => out.set(kind, Truth::False, reason, message),
    };
    set(ConditionType::ModelBound, binding::model(color, side, seen));
    if wanted {
        set(ConditionType::PromptBound, binding::prompt(color, side, seen));
    } else {
        out.keep(ConditionType::PromptBound);
    }
}

/// Whether, and how fast, one could go back now.
fn rollback(scene: Scene<'_>, draft: &Draft, out: &mut Conditions<'_>) {
    let kind = ConditionType::RollbackReady;
    match draft.open_attempt() {
        Some(attempt) => {
            let (truth, reason, message) = while_open(scene, draft, &attempt);
            out.set(kind, truth, reason, message);
        }
        None => match draft.status.active_color.map(|active| at_rest(scene, draft, active)) {
            Some(Ok((reason, message))) => out.set(kind, Truth::True, reason, message),
            Some(Err((Reason::NothingToRollBackTo, message))) => {
                out.set(kind, Truth::Unknown, Reason::NothingToRollBackTo, message);
            }
            // A watch that has just begun is no news.
            None => out.keep(kind),
            Some(Err((Reason::Unreadable, message))) if message.ends_with(NOT_YET) => out.keep(kind),
            Some(Err((Reason::Unreadable, message))) => out.set(kind, Truth::Unknown, Reason::Unreadable, message),
            Some(Err((reason, message))) => out.set(kind, Truth::False, reason, message),
        },
    }
    let last = draft.status.attempt.as_ref().filter(|last| !last.open && draft.status.failed_revision.is_some());
    let back = last.filter(|last| last.cause.is_some() || last.restore.is_some());
    match back {
        Some(attempt) => {
            let cause = attempt.cause_message.clone().unwrap_or_else(|| format!("{} was restored", attempt.to));
            let message = format!("attempt {}: {cause}", attempt.id);
            out.set(ConditionType::RolledBack, Truth::True, Reason::RolledBack, message);
        }
        None if draft.open_attempt().is_some_and(|it| it.restore.is_some() && it.step == Step::Buffering) => {
            let message = format!("traffic is back: {}", draft.stand.message);
            out.set(ConditionType::RolledBack, Truth::True, Reason::Restored, message);
        }
        None if draft.stand.phase == Phase::RolledBack => {
            out.set(ConditionType::RolledBack, Truth::True, Reason::RolledBack, draft.stand.message.clone());
        }
        None => {
            out.set(ConditionType::RolledBack, Truth::False, Reason::Completed, "the last attempt was not rolled back");
        }
    }
}

fn while_open(scene: Scene<'_>, draft: &Draft, attempt: &Attempt) -> (Truth, Reason, String) {
    let from = attempt.from;
    let ready = readiness::at_least_known(scene.seen.colors.get(from)).unwrap_or(0);
    let down = format!("{from} has no ready Pod to go back to: start its Pods");
    if attempt.step == Step::RollingBack {
        return (Truth::False, Reason::RollbackBlocked, draft.stand.message.clone());
    }
    if attempt.step == Step::Restoring {
        let message = format!("{} is being restored; until it is switched to, {from} carries the traffic", attempt.to);
        return (Truth::True, Reason::Restoring, message);
    }
    if attempt.step == Step::Preparing {
        let message = format!("{from} carries all traffic; setting spec.target back ends the attempt");
        return (Truth::True, Reason::OneWrite, message);
    }
    if ready == 0 {
        return (Truth::False, Reason::OldColorDown, down);
    }
    if let Some((reason, message)) = attempt::old_changed(scene, attempt) {
        return (Truth::False, reason, message);
    }
    if attempt.step != Step::Buffering {
        return (Truth::True, Reason::OneWrite, format!("one write takes all traffic back to {from}"));
    }
    let until = match (scene.rollout.paused, &attempt.buffer_ends_at) {
        (false, Some(ends)) => format!(" until {}", ends.0),
        _ => String::new(),
    };
    let few = if ready < attempt.active_replicas {
        format!("; only {ready} of {} Pods are ready there", attempt.active_replicas)
    } else {
        String::new()
    };
    let how = match (&attempt.restore, scene.rollout.target == from) {
        (None, _) => format!("set spec.target to {from}, or run: {}", scene.command(ANNOTATION_ROLLBACK, "REASON")),
        (Some(_), false) => format!("set spec.target to {from}"),
        (Some(_), true) => format!("set spec.target to {} and then to {from}", attempt.to),
    };
    let message = format!("one write for each Ingress goes back to {from}{until}: {how}{few}");
    (Truth::True, Reason::Buffered, message)
}

fn at_rest(scene: Scene<'_>, draft: &Draft, active: Color) -> Result<(Reason, String), (Reason, String)> {
    let color = restore::possible(scene, draft, active)?;
    let desired = |color| scene.seen.colors.get(color).deployment.found().map_or(0, |deployment| deployment.desired);
    let (old, needed) = (desired(color), desired(active).max(1));
    let command = scene.command(ANNOTATION_ROLLBACK, "REASON");
    if old >= needed {
        let message =
            format!("{color} is still up; one switch goes back to it when its Pods are seen to be ready: {command}");
        return Ok((Reason::StillUp, message));
    }
    if let Some(who) = scaled_by_others(scene, color) {
        let message = format!(
            "{color} has {old} of {needed} replicas, and {who}: give it its Pods, then one switch goes back to it: {command}"
        );
        return if old > 0 { Ok((Reason::StillUp, message)) } else { Err((Reason::OldColorDown, message)) };
    }
    let message = format!(
        "{color} is what it was when it was left; its Pods are started first ({old} of {needed} replicas now), then one switch goes back to it: {command}"
    );
    Ok((Reason::ColdStart, message))
}

/// Who gives a color its Pods, if it is not us.
fn scaled_by_others(scene: Scene<'_>, color: Color) -> Option<String> {
    let autoscaler = scene.autoscaler(color).map(|name| format!("HorizontalPodAutoscaler {name} sets them"));
    autoscaler.or_else(|| (!scene.rollout.match_active).then(|| "spec.prepare.replicas is Leave".to_owned()))
}
