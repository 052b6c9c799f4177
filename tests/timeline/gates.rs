//! What the settings of a gate do to a whole rollout.

use modelrollout::api::reasons::{Cause, JobOutcome, Outcome, Phase, Reason, Verdict};
use modelrollout::api::{Evidence, GateSpec, names};
use modelrollout::engine::gate::reckon;
use modelrollout::engine::observed::{Counts, Lookup};

use super::world::{World, at};
use super::{SPEC, buffering, in_stage, world};

/// The gate of that number, with further settings in YAML.
pub fn set(world: &mut World, index: usize, settings: &str) {
    world.edit(|object| {
        let mut gate = serde_yaml::to_value(&object.spec.gates[index]).unwrap();
        let more: serde_yaml::Mapping = serde_yaml::from_str(settings).unwrap();
        gate.as_mapping_mut().unwrap().extend(more);
        object.spec.gates[index] = serde_yaml::from_value(gate).unwrap();
    });
}

pub fn gates(world: &mut World, yaml: &str) {
    let gates: Vec<GateSpec> = serde_yaml::from_str(yaml).unwrap();
    world.edit(|object| object.spec.gates = gates);
}

/// Every verdict of an attempt that has ended follows from the numbers that are on record.
fn recheck(world: &World) {
    for entry in &world.status().history {
        for gate in entry.gates.iter().filter(|gate| gate.verdict != Verdict::Hold && !gate.evidence.is_empty()) {
            let needed = u64::try_from(gate.needed.unwrap_or(0)).unwrap();
            assert_eq!(reckon(&gate.evidence, needed), Some(gate.verdict), "{gate:?}");
        }
    }
}

#[test]
fn a_target_that_fails_everything_is_gone_after_ten_of_its_requests() {
    let mut world = world();
    // one request a second for green
    world.rate = 20.0;
    world.behavior.green.error_share = 1.0;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    let entry = &world.status().history[0];
    let gate = entry.gates.iter().find(|gate| gate.name == "errors").unwrap();
    assert_eq!((gate.evidence[0].samples, gate.evidence[0].bad), (10, 10));
    let message = entry.message.clone().unwrap();
    assert!(
        message.starts_with("gate errors: 10 of 10 requests failed (100 %), limit 5 %: rolled back at "),
        "{message}"
    );
    recheck(&world);
}

#[test]
fn who_is_over_the_limit_when_the_hold_is_over_has_had_its_second_look() {
    let mut world = world();
    // the 500 answers are there 40 seconds after the hold
    world.rate = 100.0;
    world.behavior.green.error_share = 0.07;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    let entry = &world.status().history[0];
    let gate = entry.gates.iter().find(|gate| gate.name == "errors").unwrap();
    assert_eq!((gate.evidence[0].samples, gate.evidence[0].bad), (500, 35));
    recheck(&world);
}

#[test]
fn counts_of_a_histogram_go_on_with_the_bounds_that_stayed() {
    let counts = |bounds: &[f64], at_most: &[u64], total| Counts {
        total,
        bad: 0,
        bounds: bounds.to_vec(),
        at_most: at_most.to_vec(),
        seen: true,
    };
    let before = counts(&[1.0, 2.0, 5.0], &[10, 20, 30], 40);
    let after = counts(&[1.0, 3.0, 5.0], &[11, 22, 33], 50);
    assert_eq!(before.and(&after), counts(&[1.0, 5.0], &[21, 63], 90));
    assert_eq!(after.since(&before), counts(&[1.0, 5.0], &[1, 3], 10));
    assert_eq!(Counts::default().and(&after), after);
    let quiet = counts(&[1.0, 7.0], &[0, 0], 0);
    assert_eq!(quiet.and(&after), counts(&[1.0], &[11], 50));
    assert_eq!(after.and(&quiet), counts(&[1.0], &[11], 50));
    assert_eq!(after.and(&Counts::default()), after);
}

#[test]
fn what_is_on_record_tells_the_warm_up_apart() {
    let record =
        "{gate: g, color: green, through: 2026-11-30T00:00:00Z, total: 10, bad: 3, warmupTotal: 4, warmupBad: 2}";
    let record: Evidence = serde_yaml::from_str(record).unwrap();
    let counts = |total, bad| Counts { total, bad, seen: true, ..Counts::default() };
    assert_eq!(Counts::on_record(&record), (counts(10, 3), counts(4, 2)));
}

#[test]
fn what_was_counted_is_kept_while_the_source_is_away() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(30);
    let counted = world.attempt().evidence;
    assert_eq!(counted.len(), 3, "green of both gates, and blue of the one that compares");
    world.metrics_up = false;
    world.run(60);
    assert_eq!(world.attempt().evidence.len(), 3);
    assert!(world.attempt().evidence.iter().zip(&counted).all(|(now, then)| now.total >= then.total));
}

#[test]
fn the_first_request_that_fails_rolls_nothing_back() {
    let mut world = world();
    world.rate = 20.0;
    world.run_to("5 %", in_stage(5));
    world.behavior.green.error_share = 1.0;
    world.run(8);
    assert!(in_stage(5)(&world), "{}", world.message());
    world.behavior.green.error_share = 0.01;
    world.run_to("the end", |world| world.phase() == Phase::Stable);
    assert_eq!(world.status().history[0].outcome, Outcome::Promoted);
    recheck(&world);
}

#[test]
fn what_comes_in_the_warm_up_is_not_counted_unless_it_is_plainly_bad() {
    let mut world = world();
    set(&mut world, 0, "warmup: 30s");
    world.run_to("5 %", in_stage(5));
    world.behavior.green.error_share = 0.10;
    world.run(33);
    assert_eq!(world.status().gates[0].reason, "WarmingUp");
    world.behavior.green.error_share = 0.0;
    // the tallies of the world keep the share of all: 10 % of the warm-up has to be put on it
    world.run(1);
    assert!(in_stage(5)(&world), "{}", world.message());
    let mut world = super::world();
    set(&mut world, 0, "warmup: 30s");
    world.run_to("5 %", in_stage(5));
    world.behavior.green.error_share = 1.0;
    world.run(25);
    assert_eq!(world.phase(), Phase::RolledBack);
    recheck(&world);
}

#[test]
fn the_warm_up_that_nobody_sets_is_a_fifth_of_the_hold_and_at_most_a_minute() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    // 5 s settle, then 12 of 60 s
    world.run(16);
    assert_eq!(world.status().gates[0].reason, "WarmingUp");
    // numbers are written every ten seconds
    world.run(11);
    assert_ne!(world.status().gates[0].reason, "WarmingUp");
}

#[test]
fn a_gate_that_waits_longer_than_it_may_sends_traffic_back() {
    let mut world = world();
    set(&mut world, 0, "maxHold: 10m");
    world.rate = 12.0;
    world.metrics_up = false;
    world.run_to("5 %", in_stage(5));
    world.run(60 + 590);
    assert_eq!(world.phase(), Phase::Holding);
    world.run(20);
    assert_eq!((world.phase(), world.attempt().cause), (Phase::RolledBack, Some(Cause::MaxHoldExceeded)));
    let message = world.attempt().cause_message.unwrap();
    assert!(message.contains("no verdict for 10m although the hold is over (QueryFailed)"), "{message}");
    // without it the stage waits for ever, and a person who holds it is not overruled
    let mut world = super::world();
    world.metrics_up = false;
    world.run_to("5 %", in_stage(5));
    world.run(3000);
    assert_eq!(world.phase(), Phase::Holding);
    set(&mut world, 0, "maxHold: 10m");
    world.edit(|object| object.spec.paused = true);
    world.run(2000);
    assert_eq!(world.phase(), Phase::Paused);
}

#[test]
fn a_healthy_target_is_not_sent_back_by_one_moment_without_a_verdict() {
    let mut world = world();
    set(&mut world, 0, "maxHold: 10m");
    world.edit(|object| object.spec.stages[1].approval = Some(modelrollout::api::Approval::Required));
    world.run_to("25 %", in_stage(25));
    world.run(2000);
    assert_eq!(world.phase(), Phase::AwaitingApproval);
    // the operator starts again, and nothing was read yet
    world.seen.readings.clear();
    let plan = modelrollout::engine::plan(&world.object, &world.seen, world.now);
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    // the source is away for a while
    world.metrics_up = false;
    world.run(500);
    world.metrics_up = true;
    world.run(60);
    assert_eq!(world.phase(), Phase::AwaitingApproval);
    world.metrics_up = false;
    world.run(300);
    // the operator was away for long, and its first plan knows nothing yet
    let later = world.now + k8s_openapi::jiff::SignedDuration::from_secs(2000);
    let seen = modelrollout::engine::observed::Observed { readings: [].into(), ..world.seen.clone() };
    let plan = modelrollout::engine::plan(&world.object, &seen, later);
    assert!(plan.actions.is_empty() && plan.status.attempt.unwrap().open);
    world.run(320);
    assert_eq!(world.attempt().cause, Some(Cause::MaxHoldExceeded));
}

#[test]
fn a_dry_run_is_shown_and_does_nothing() {
    let mut world = world();
    set(&mut world, 0, "dryRun: true");
    world.behavior.green.error_share = 0.5;
    world.run_to("50 %", in_stage(50));
    world.run(30);
    let gate = &world.status().gates[0];
    assert_eq!((gate.verdict, gate.dry_run), (Verdict::Fail, true));
    assert!(gate.message.starts_with("dry run: "), "{}", gate.message);
    assert_eq!(world.condition("GatesPassing"), ("True".into(), "AllPassing".into()));
    assert_eq!(world.status().summary.gates, "1/1 passing");
    world.run_to("the end", |world| world.phase() == Phase::Stable);
    assert_eq!(world.status().history[0].gates[0].verdict, Verdict::Fail);
    // a source that is down holds nothing either
    let mut world = super::world();
    set(&mut world, 0, "dryRun: true");
    set(&mut world, 1, "dryRun: true");
    world.metrics_up = false;
    world.run_to("50 %", in_stage(50));
    world.run(60);
    world.annotate(names::ANNOTATION_APPROVE, "1/3");
    world.run_to("the end", |world| world.phase() == Phase::Stable);
    assert_eq!(world.backend(), "bot-green");
    assert_eq!(world.told(Reason::ApprovedWithoutEvidence), 0, "nothing waited for it");
}

#[test]
fn what_was_over_its_limit_in_a_stage_begins_anew_in_the_buffer() {
    let mut world = world();
    gates(&mut world, "[{name: score, value: {query: score, max: 0.5}}]");
    world.run_to("5 %", in_stage(5));
    world.run(20);
    assert_eq!(world.attempt().breaches.len(), 1);
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run_to("the buffer", buffering);
    assert!(world.attempt().breaches.is_empty());
}

#[test]
fn a_selector_that_cannot_be_used_is_told_at_rest_and_gets_no_write() {
    let mut world = world();
    world.edit(|object| object.spec.gates[0].error_rate.as_mut().unwrap().total = "sum(rate(t[5m]))".into());
    world.run(60);
    assert_eq!(world.condition("Preflight"), ("False".into(), "InvalidQuery".into()));
    assert!(world.message().starts_with("gate errors: total: "), "{}", world.message());
    assert!(world.log.iter().all(|line| line.contains("status")), "{:?}", world.log);
    // in a stage it holds
    let mut world = super::world();
    world.run_to("25 %", in_stage(25));
    world.edit(|object| object.spec.gates[0].error_rate.as_mut().unwrap().total = "t offset 5m".into());
    world.run(300);
    assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "InvalidQuery".into()));
    assert!(in_stage(25)(&world));
}

#[test]
fn so_few_samples_that_chance_decides_are_obeyed_and_told() {
    let mut world = world();
    set(&mut world, 1, "minSamples: 499");
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.condition("Preflight"), ("True".into(), "GateUnderpowered".into()));
    assert_eq!(world.told(Reason::GateUnderpowered), 1);
    // a dry run decides nothing, and a value is not counted
    for spec in ["{minSamples: 499, dryRun: true}", "{minSamples: 1, latency: null, value: {query: up, max: 2}}"] {
        let mut world = super::world();
        set(&mut world, 1, spec);
        world.run_to("5 %", in_stage(5));
        assert_eq!((world.told(Reason::GateUnderpowered), world.condition("Preflight").1), (0, "Passed".into()));
    }
    let mut world = super::world();
    set(&mut world, 1, "minSamples: 500");
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.condition("Preflight").1, "Passed");
    let mut world = World::new(&SPEC.replace("    minSamples: 100\n", ""));
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.condition("Preflight"), ("True".into(), "Passed".into()));
    assert_eq!(world.status().gates[1].needed, Some(1500));
}

#[test]
fn the_other_colors_counts_of_long_ago_are_no_baseline() {
    let half_and_an_hour = || {
        let mut world = world();
        world.edit(|object| {
            object.spec.stages.drain(..4);
            object.spec.stages.insert(0, serde_yaml::from_str("{weight: 50, hold: 1m}").unwrap());
            object.spec.stages[1].hold = "1h".into();
        });
        world
    };
    let mut world = half_and_an_hour();
    world.edit(|object| {
        object.spec.gates[0].error_rate.as_mut().unwrap().max = None;
        object.spec.gates.truncate(1);
    });
    world.run_to("100 %", in_stage(100));
    world.run(1800);
    assert_eq!(world.status().gates[0].verdict, Verdict::Pass, "the stage that has just ended");
    world.run_to("the buffer", buffering);
    world.run(30);
    assert_eq!(world.status().gates[0].reason, "NoBaseline", "an hour ago");
    // a gate with a limit of its own goes by that, and says so
    let mut world = half_and_an_hour();
    world.run_to("100 %", in_stage(100));
    world.run(2400);
    let gate = world.status().gates[0].clone();
    assert_eq!(gate.verdict, Verdict::Pass);
    assert!(gate.message.contains("there is no traffic of the other color to compare with"), "{}", gate.message);
}

const JOB: &str = "[{name: schema, job: {podTemplateName: judge, deadline: 2m}}]";

pub fn with_job() -> World {
    let mut world = world();
    gates(&mut world, JOB);
    judge_template(&mut world);
    world
}

/// The PodTemplate that Jobs are made from.
pub fn judge_template(world: &mut World) {
    world.seen.job_templates.insert("judge".into(), Lookup::Found([("app".to_owned(), "judge".to_owned())].into()));
}

#[test]
fn a_job_judges_each_stage_once() {
    let mut world = with_job();
    for (number, weight) in [(1, 5), (2, 25), (3, 50), (4, 75), (5, 100)] {
        world.run_to("the Job", |world| world.jobs.len() == number);
        assert!(in_stage(weight)(&world));
        let job = world.jobs.last().unwrap().clone();
        let env = |name: &str| job.env.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str());
        assert_eq!(env("ROLLOUT"), Some("bot"));
        assert_eq!((env("COLOR"), env("SERVICE")), (Some("green"), Some("bot-green")));
        assert_eq!(env("STAGE"), Some(number.to_string().as_str()));
        assert_eq!((env("PROMPT_VERSION"), env("MODEL")), (Some("v8"), Some("llama@2")));
        assert_eq!((job.template.as_str(), job.deadline.as_secs()), ("judge", 120));
        world.run(100);
        assert!(in_stage(weight)(&world), "it waits for the Job");
        assert_eq!(world.status().gates[0].reason, "JobRunning");
        world.end_job(&job.name, JobOutcome::Succeeded);
        world.run(1);
        // its word stays when it is gone
        if let Lookup::Found(jobs) = &mut world.seen.jobs {
            jobs.clear();
        }
    }
    world.run_to("the end", |world| world.phase() == Phase::Stable);
    assert_eq!((world.jobs.len(), world.backend()), (5, "bot-green".into()));
}

#[test]
fn a_job_that_fails_sends_back_and_one_that_is_late_holds() {
    let mut world = with_job();
    world.run_to("the Job", |world| !world.jobs.is_empty());
    let name = world.jobs[0].name.clone();
    world.end_job(&name, JobOutcome::Failed);
    world.run(2);
    assert_eq!((world.phase(), world.attempt().cause), (Phase::RolledBack, Some(Cause::GateFailed)));
    let mut world = with_job();
    world.run_to("the Job", |world| !world.jobs.is_empty());
    let name = world.jobs[0].name.clone();
    world.end_job(&name, JobOutcome::DeadlineExceeded);
    world.run(300);
    assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "JobDeadlineExceeded".into()));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run_to("25 %", in_stage(25));
    assert_eq!(world.told(Reason::ApprovedWithoutEvidence), 1);
}

#[test]
fn a_job_that_nobody_waits_for_is_ended() {
    let mut world = with_job();
    world.run_to("the Job", |world| !world.jobs.is_empty());
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run(5);
    assert_eq!(world.phase(), Phase::RolledBack);
    assert_eq!(world.seen.jobs, Lookup::Found([].into()));
    assert_eq!(world.jobs.len(), 1);
}

#[test]
fn a_job_that_cannot_be_made_is_tried_again_and_says_why() {
    let mut world = with_job();
    world.seen.job_templates.insert("judge".into(), Lookup::Missing);
    world.run(120);
    assert_eq!(world.condition("Preflight").1, "JobTemplateMissing");
    assert_eq!(world.green_share(), 0);
    let labels = [("color".to_owned(), "green".to_owned())].into();
    world.seen.job_templates.insert("judge".into(), Lookup::Found(labels));
    world.run(60);
    assert_eq!((world.green_share(), world.condition("Preflight").1), (0, "ServicesOverlap".into()));
    world.seen.job_templates.insert("judge".into(), Lookup::Found([].into()));
    world.run_to("5 %", in_stage(5));
    let key = |world: &World| world.attempt().jobs.first().map(|job| job.name.clone());
    world.run_to("the Job", |world| key(world).is_some());
    let name = key(&world).unwrap();
    if let Lookup::Found(jobs) = &mut world.seen.jobs {
        jobs.clear();
    }
    world.seen.job_refusals.insert(name, ("exceeded quota".into(), world.now));
    world.run(5);
    let gate = world.status().gates[0].clone();
    assert_eq!((gate.verdict, gate.reason.as_str()), (Verdict::Hold, "JobNotCreated"));
    assert!(gate.message.contains("exceeded quota"), "{}", gate.message);
    let made = world.jobs.len();
    world.run(10);
    assert_eq!(world.jobs.len(), made + 1);
}

#[test]
fn a_share_over_the_limit_fails_with_newer_samples_and_not_by_looking_again() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.run(35);
    // 6 of 100 is over 5 % and far from plain
    let counts = |bad: u64, total: u64| {
        move |world: &mut World| {
            let candidate = world.candidate("errors");
            (candidate.now.bad, candidate.now.total) = (bad, total);
            candidate.warmup = Counts::default();
        }
    };
    counts(36, 600)(&mut world);
    let look = |world: &World| {
        let status = world.look();
        (status.gates[0].verdict, status)
    };
    let (verdict, status) = look(&world);
    assert_eq!(verdict, Verdict::Hold);
    world.object.status = Some(status);
    assert_eq!(look(&world).0, Verdict::Hold, "nothing new was seen");
    counts(37, 601)(&mut world);
    assert_eq!(look(&world).0, Verdict::Fail);
    counts(8, 602)(&mut world);
    let (verdict, status) = look(&world);
    assert_eq!(verdict, Verdict::Pass, "{:?}", status.gates[0]);
    world.object.status = Some(status);
    counts(37, 603)(&mut world);
    assert_eq!(look(&world).0, Verdict::Hold, "two in a row are needed");
    assert!(world.now > at(0));
}
