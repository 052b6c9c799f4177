//! What is counted, on record and shown of the gates: what single comparisons decide. Each of these tests was written for a
//! small mutant that lived (`cargo mutants`).

use k8s_openapi::jiff::SignedDuration;
use modelrollout::api::reasons::{JobOutcome, Phase, Reason, Verdict};
use modelrollout::api::{Approval, Color, names};
use modelrollout::engine::observed::*;

use super::gates::{set, with_job};
use super::world::World;
use super::{SPEC, buffering, in_stage, world};

#[test]
fn a_template_of_jobs_that_may_not_be_read_says_what_to_install() {
    let mut world = with_job();
    world.seen.job_templates.insert("judge".into(), Lookup::Unreadable("podtemplates is forbidden".into()));
    world.run(60);
    assert_eq!(world.condition("Preflight"), ("False".into(), "JobTemplateMissing".into()));
    assert!(world.message().contains("jobGates.enabled"), "{}", world.message());
    assert_eq!(world.green_share(), 0);
}

#[test]
fn a_judge_that_has_passed_is_shown_in_the_buffer_beside_the_gates_that_still_count() {
    let mut world = with_job();
    world.edit(|object| object.spec.gates.insert(0, World::new(SPEC).object.spec.gates.remove(0)));
    for number in 1..=5 {
        world.run_to("the Job", |world| world.jobs.len() == number);
        let name = world.jobs.last().unwrap().name.clone();
        world.end_job(&name, JobOutcome::Succeeded);
    }
    world.run_to("the buffer", buffering);
    world.run(30);
    let gates: Vec<_> = world.status().gates.into_iter().map(|gate| (gate.name, gate.verdict)).collect();
    assert_eq!(gates, [("errors".to_owned(), Verdict::Pass), ("schema".to_owned(), Verdict::Pass)]);
}

#[test]
fn a_source_that_has_lost_samples_holds_and_says_so() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(40);
    let on_record = world.attempt().evidence.iter().find(|one| one.color == Color::Green).unwrap().total;
    world.candidate("errors").now.total = u64::try_from(on_record).unwrap() - 1;
    let status = world.look();
    let gate = &status.gates[0];
    assert_eq!((gate.verdict, gate.reason.as_str()), (Verdict::Hold, "InvalidData"));
    assert!(gate.message.contains("the source has lost samples"), "{}", gate.message);
}

#[test]
fn nothing_on_record_is_no_series_that_was_seen() {
    let of = |total: i64| {
        let text = format!("{{gate: g, color: green, through: 2026-01-01T00:00:00Z, total: {total}}}");
        Counts::on_record(&serde_yaml::from_str(&text).unwrap()).0
    };
    assert_eq!([of(-1), of(0), of(1)].map(|counts| (counts.seen, counts.total)), [(false, 0), (false, 0), (true, 1)]);
}

#[test]
fn missing_samples_are_passed_over_by_name() {
    let mut world = world();
    world.edit(|object| {
        object.spec.gates[0].min_samples = Some(100);
        object.spec.gates[1].min_samples = Some(1_000_000);
        object.spec.stages[0].approval = Some(Approval::Required);
    });
    world.run_to("5 %", in_stage(5));
    world.run(100);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.settle();
    let effect = world.status().acts[0].effect.clone();
    assert!(effect.contains("samples are missing (p99:") && !effect.contains("errors:"), "{effect}");
}

/// The message of a spec that the schema would have refused, with this for the gate of that number.
fn refusal(gate: usize, path: &[&str], value: &str) -> Option<String> {
    let mut world = world();
    world.edit(|object| {
        let mut yaml = serde_yaml::to_value(&object.spec.gates[gate]).unwrap();
        let place = path.iter().fold(&mut yaml, |yaml, key| &mut yaml[*key]);
        *place = value.into();
        object.spec.gates[gate] = serde_yaml::from_value(yaml).unwrap();
    });
    world.settle();
    (world.phase() == Phase::Invalid).then(|| world.message())
}

#[test]
fn the_limits_of_limits_hold_for_objects_that_were_stored_before_the_schema_had_them() {
    let cases: [(usize, &[&str], &[&str], &[&str]); 6] = [
        (0, &["errorRate", "max"], &["0.1%", "99.9%"], &["0%", "100%", "-1%", "5"]),
        (0, &["confidence"], &["90%", "99.9999%"], &["89.9%", "100%"]),
        (0, &["warmup"], &["0s", "1h"], &["1h1s"]),
        (1, &["latency", "quantile"], &["0.001", "0.999"], &["0", "1", "-0.5", "NaN"]),
        (1, &["latency", "max"], &["1ms"], &["0s"]),
        (1, &["maxHold"], &["1s"], &["soon"]),
    ];
    for (gate, path, good, bad) in cases {
        for value in good {
            assert_eq!(refusal(gate, path, value), None, "{path:?} {value}");
        }
        for value in bad {
            let said = refusal(gate, path, value).unwrap_or_else(|| panic!("{path:?} {value} is taken"));
            assert!(said.contains("spec.gates[") && said.contains("must"), "{said}");
        }
    }
}

#[test]
fn what_was_counted_of_the_other_color_stays_on_record_while_it_cannot_be_counted() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(40);
    let of = |status: &modelrollout::api::ModelRolloutStatus, color: Color| {
        let evidence = status.attempt.clone().unwrap().evidence.into_iter();
        evidence.filter(|one| one.gate == "errors" && one.color == color).map(|one| one.total).collect::<Vec<_>>()
    };
    let before = of(&world.status(), Color::Blue);
    assert!(matches!(before[..], [total] if total > 0), "{before:?}");
    let reading = world.seen.readings.get_mut("errors").unwrap();
    let Answer::Counted { baseline, .. } = &mut reading.answer else { panic!("no counts") };
    *baseline = Some(Err((Reason::NotACounter, "a gauge".into())));
    let status = world.look();
    assert_eq!((of(&status, Color::Blue), of(&status, Color::Green).len()), (before, 1));
}

#[test]
fn a_confidence_leaves_the_rest_to_chance() {
    for (confidence, alpha) in [(None, 0.001), (Some("90%"), 0.1), (Some("99%"), 0.01), (Some("99.9999%"), 0.000_001)] {
        let mut world = world();
        if let Some(confidence) = confidence {
            set(&mut world, 0, &format!("confidence: {confidence}"));
        }
        let got = modelrollout::engine::rollout::Rollout::parse(&world.object).unwrap().gates[0].alpha;
        assert!((got - alpha).abs() < 1e-12, "{confidence:?}: {got}");
    }
}

#[test]
fn what_was_read_long_ago_is_no_evidence() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(40);
    // the samples come once a second
    for (seconds, verdict) in [(30, Verdict::Fail), (31, Verdict::Hold)] {
        world.seen.readings.get_mut("errors").unwrap().at = world.now - SignedDuration::from_secs(seconds);
        let candidate = world.candidate("errors");
        candidate.now.bad = candidate.now.total;
        let status = world.look();
        assert_eq!(status.gates[0].verdict, verdict, "{:?}", status.gates[0]);
    }
}
