//! The Jobs that judge: one per `job` gate and stage, made when the warm-up is over, and ended when nobody waits for it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::draft::{Draft, Scene};
use super::gate::JobState;
use super::judging::Window;
use super::observed::{Labels, Lookup, NOT_YET, Observed};
use super::plan::{Action, JobWant};
use super::rollout::{Gate, Rollout, Rule, Stage};
use super::time;
use crate::api::names::job_name;
use crate::api::reasons::Step;
use crate::api::{Attempt, Color, JobRecord};

/// A Job that could not be made is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// The PodTemplates of all `job` gates.
pub fn templates(rollout: &Rollout) -> BTreeSet<String> {
    let template = |gate: &Gate| match &gate.rule {
        Rule::Job { template, .. } => Some(template.clone()),
        _ => None,
    };
    rollout.gates.iter().filter_map(template).collect()
}

/// Whether a Service of ours would send requests to the Pods of a Job; if so, what to do.
pub fn serves(rollout: &Rollout, seen: &Observed, template: &str, labels: &Labels) -> Option<String> {
    let selects = |color: &Color| seen.colors.get(*color).service.found().is_some_and(|it| it.selects(labels));
    let service = &rollout.side(Color::BOTH.into_iter().find(selects)?).service;
    Some(format!(
        "the Service {service} selects the Pods of PodTemplate {template}, and would send them requests: give that template other labels"
    ))
}

/// Looks after the Job of `gate` for the stage of `window`: asks for it, and puts on record how it ended.
pub fn state(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, window: &Window<'_>, gate: &Gate) -> JobState {
    let (Rule::Job { template, deadline }, Some(stage)) = (&gate.rule, window.stage) else { return JobState::NotYet };
    let name = job_name(&scene.rollout.name, &gate.name, &window.key(scene.rollout, attempt));
    let known = attempt.jobs.iter().find(|job| job.gate == gate.name && job.name == name);
    if let Some(outcome) = known.and_then(|job| job.outcome) {
        return JobState::Ended(name, outcome);
    }
    if scene.now < window.counts_from(gate) {
        return JobState::NotYet;
    }
    let jobs = match &scene.seen.jobs {
        Lookup::Found(jobs) => jobs,
        Lookup::Missing => return JobState::Unreadable("Jobs are not watched".to_owned()),
        Lookup::Unreadable(why) => return JobState::Unreadable(format!("its Jobs: {why}")),
    };
    let outcome = jobs.get(&name).and_then(|job| job.outcome);
    attempt.jobs.retain(|job| job.gate != gate.name);
    attempt.jobs.push(JobRecord { gate: gate.name.clone(), name: name.clone(), outcome });
    if let Some(outcome) = outcome {
        return JobState::Ended(name, outcome);
    }
    if jobs.contains_key(&name) {
        return JobState::Running(name);
    }
    match scene.seen.job_templates.get(template) {
        Some(Lookup::Found(labels)) => {
            if let Some(message) = serves(scene.rollout, scene.seen, template, labels) {
                return JobState::Refused(message);
            }
        }
        Some(Lookup::Missing) => return JobState::NoTemplate(template.clone()),
        Some(Lookup::Unreadable(why)) => return JobState::Unreadable(format!("PodTemplate {template}: {why}")),
        None => return JobState::Unreadable(format!("PodTemplate {template}: {NOT_YET}")),
    }
    let refused = scene.seen.job_refusals.get(&name);
    if let Some((why, at)) = refused {
        let again = time::after(*at, AGAIN);
        draft.wake_at(again);
        if scene.now < again {
            return JobState::Refused(why.clone());
        }
    }
    draft.after.push(Action::CreateJob(JobWant {
        env: env(scene.rollout, attempt, stage),
        name,
        template: template.clone(),
        deadline: *deadline,
    }));
    // that it is tried again is no news
    refused.map_or(JobState::Wanted, |(why, _)| JobState::Refused(why.clone()))
}

/// What the Job is told of what it shall judge.
fn env(rollout: &Rollout, attempt: &Attempt, stage: &Stage) -> Vec<(String, String)> {
    let side = rollout.side(attempt.to);
    let number = rollout.stages.iter().position(|one| one.weight == stage.weight).map_or(0, |index| index + 1);
    let prompt = side.prompt.as_ref().map(|prompt| prompt.version.clone()).unwrap_or_default();
    [
        ("ROLLOUT", rollout.name.clone()),
        ("COLOR", attempt.to.to_string()),
        ("SERVICE", side.service.clone()),
        ("STAGE", number.to_string()),
        ("PROMPT_VERSION", prompt),
        ("MODEL", side.model.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Ends the Jobs that nobody waits for any more: of an earlier stage, or of an attempt that goes back or is over.
pub fn clean(scene: Scene<'_>, draft: &mut Draft) {
    let Some(attempt) = draft.status.attempt.as_mut() else { return };
    if !(attempt.open && matches!(attempt.step, Step::Stage | Step::Promoting)) {
        attempt.jobs.clear();
    }
    // A stage that was judged twice in one plan, or began anew in it, asks for each Job once, and for none of before.
    let mut asked = BTreeSet::new();
    draft.after.retain(|action| match action {
        Action::CreateJob(want) => {
            attempt.jobs.iter().any(|job| job.name == want.name) && asked.insert(want.name.clone())
        }
        _ => true,
    });
    let Lookup::Found(jobs) = &scene.seen.jobs else { return };
    for (name, job) in jobs.iter().filter(|(_, job)| job.outcome.is_none()) {
        if attempt.jobs.iter().all(|wanted| wanted.name != *name) {
            draft.after.push(Action::DeleteJob { name: name.clone(), uid: job.uid.clone() });
        }
    }
}
