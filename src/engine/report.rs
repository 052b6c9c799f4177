//! The status for people: phase, columns, colors, conditions. Derived from what was decided; decides nothing.

use super::binding;
use super::conditions::{Conditions, Truth};
use super::draft::{Draft, Scene};
use super::preflight::Problem;
use super::readiness;
use crate::api::reasons::{ConditionType, Phase, Reason, Role, Step, Verdict};
use crate::api::{Attempt, Color, ColorStatus, GateStatus, Summary};

/// Fills in everything that is for people.
pub fn fill(scene: Scene<'_>, draft: &mut Draft, problem: Option<&Problem>) {
    if let Some(problem) = problem.filter(|_| !problem_is_harmless(scene, draft)) {
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

/// At the target, a missing standby matters only to the next rollout.
fn problem_is_harmless(scene: Scene<'_>, draft: &Draft) -> bool {
    draft.stand.reason == Reason::AtTarget && draft.status.active_color == Some(scene.rollout.target)
}

fn colors(scene: Scene<'_>, attempt: &Attempt) -> Vec<ColorStatus> {
    let buffering = attempt.step == Step::Buffering;
    let weight = if buffering { 100 } else { attempt.weight_intended };
    Color::BOTH
        .into_iter()
        .map(|color| {
            let (side, seen) = (scene.rollout.side(color), scene.seen.colors.get(color));
            let readiness = readiness::of(seen);
            let role = match (color == attempt.to, buffering) {
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
            Some(attempt) if attempt.step != Step::Buffering => attempt.weight_intended,
            _ => i32::from(active == rollout.target) * 100,
        }),
        gates: if attempt.is_some() { tally(&draft.status.gates) } else { String::new() },
        model: active.map(|active| rollout.side(active).model.clone()).unwrap_or_default(),
        prompt: active.map(prompt).unwrap_or_default(),
        target_model: rollout.side(rollout.target).model.clone(),
        target_prompt: prompt(rollout.target),
        message: draft.stand.message.chars().take(1024).collect(),
    }
}

/// `1/2 passing: p99 …` for the column.
fn tally(gates: &[GateStatus]) -> String {
    let judged: Vec<_> = gates.iter().filter(|gate| gate.reason != Reason::NotInThisStage.as_str()).collect();
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
        Phase::Preparing | Phase::Progressing | Phase::Promoting | Phase::Buffering => Truth::Unknown,
        _ => Truth::False,
    };
    out.set(ConditionType::Ready, ready, stand.reason, stand.message.clone());
    match problem {
        Some(problem) => out.set(ConditionType::Preflight, Truth::False, problem.reason, problem.message.clone()),
        None => out.set(
            ConditionType::Preflight,
            Truth::True,
            Reason::Passed,
            "everything that the rollout refers to is there and fits together",
        ),
    }
    let progressing = match stand.phase {
        Phase::Preparing | Phase::Progressing | Phase::Promoting | Phase::Buffering | Phase::RollingBack => Truth::True,
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

fn gates(scene: Scene<'_>, draft: &Draft, out: &mut Conditions<'_>) {
    let kind = ConditionType::GatesPassing;
    if scene.rollout.gates.is_empty() {
        out.set(
            kind,
            Truth::Unknown,
            Reason::NoGates,
            "there are no gates: stages pass by time and readiness alone; add spec.gates to have them judged",
        );
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
    let judged = || draft.status.gates.iter().filter(|gate| gate.reason != Reason::NotInThisStage.as_str());
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
    let wanted = open.is_some() || draft.need.prompts;
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
    if wanted {
        set(ConditionType::ModelBound, binding::model(color, side, seen));
        set(ConditionType::PromptBound, binding::prompt(color, side, seen));
    } else {
        out.keep(ConditionType::ModelBound);
        out.keep(ConditionType::PromptBound);
    }
}

fn rollback(scene: Scene<'_>, draft: &Draft, out: &mut Conditions<'_>) {
    let kind = ConditionType::RollbackReady;
    let attempt = draft.status.attempt.as_ref();
    match attempt {
        Some(attempt) if attempt.open && attempt.step == Step::RollingBack => {
            out.set(kind, Truth::False, Reason::RollbackBlocked, draft.stand.message.clone());
        }
        Some(attempt) if attempt.open && attempt.step == Step::Buffering => {
            let ready = readiness::at_least_known(scene.seen.colors.get(attempt.from)).unwrap_or(0);
            let truth = if ready > 0 { Truth::True } else { Truth::False };
            let until = attempt.buffer_ends_at.as_ref().map(|ends| ends.0.to_string()).unwrap_or_default();
            let message = format!(
                "one write goes back to {} until {until}: set spec.target to {} or annotate rollback=<reason>",
                attempt.from, attempt.from
            );
            out.set(kind, truth, Reason::Buffered, message);
        }
        Some(attempt) if attempt.open => {
            out.set(
                kind,
                Truth::True,
                Reason::OneWrite,
                format!("one write takes all traffic back to {}", attempt.from),
            );
        }
        Some(attempt) if attempt.cause.is_none() => out.set(
            kind,
            Truth::False,
            Reason::NotKept,
            format!(
                "{} is no longer kept for a rollback; setting spec.target to it starts a rollout in stages",
                attempt.from
            ),
        ),
        _ => out.set(kind, Truth::Unknown, Reason::NothingToRollBackTo, "no promotion is there to go back from"),
    }
    let back =
        attempt.filter(|attempt| !attempt.open && draft.status.failed_revision.is_some() && attempt.cause.is_some());
    match back {
        Some(attempt) => {
            let cause = attempt.cause_message.clone().unwrap_or_default();
            out.set(
                ConditionType::RolledBack,
                Truth::True,
                Reason::RolledBack,
                format!("attempt {}: {cause}", attempt.id),
            );
        }
        None => {
            out.set(ConditionType::RolledBack, Truth::False, Reason::Completed, "the last attempt was not rolled back");
        }
    }
}
