//! Acts: what a person asks for by an annotation, what it changes, and what they are told.

use modelrollout::api::reasons::{Phase, Reason};
use modelrollout::api::{Approval, Color, names};
use modelrollout::engine::observed::Lookup;

use super::edges::promoted;
use super::world::World;
use super::{SPEC, in_stage, world};

/// Sets an act; gives the effect of the newest one on record.
fn ask(world: &mut World, annotation: &str, value: &str) -> String {
    world.annotate(annotation, value);
    world.settle();
    world.status().acts[0].effect.clone()
}

#[test]
fn an_approval_that_led_to_the_next_stage_is_no_fault_when_its_removal_was_lost() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.fail_at = Some(world.writes + 3);
    world.settle();
    assert!(world.log.iter().any(|line| line.starts_with("RemoveAct") && line.ends_with("FAILED")), "{:#?}", world.log);
    assert!(in_stage(25)(&world), "{}", world.message());
    assert_eq!((world.told(Reason::ActIgnored), world.status().acts.len()), (0, 1));
    assert_eq!(world.object.metadata.annotations, Some([].into()));
}

#[test]
fn samples_are_passed_over_once_more_when_the_stage_has_begun_anew() {
    let mut world = World::new(SPEC.split("  - name: p99").next().unwrap());
    world.rate = 4.0;
    // so that the stage stays: the next share needs two Pods
    world.edit(|object| {
        object.spec.stages.drain(1..3);
        object.spec.stages[0].hold = "10s".into();
    });
    world.run_to("5 %", in_stage(5));
    world.run(20);
    world.set_ready(Color::Green, 2);
    for told in [1, 2] {
        world.annotate(names::ANNOTATION_APPROVE, "1/1");
        world.run(1);
        assert_eq!(world.told(Reason::ApprovedWithoutEvidence), told, "{}", world.message());
        assert!(in_stage(5)(&world), "{}", world.message());
        world.edit(|object| object.spec.gates[0].min_samples = Some(600));
        world.run(16);
    }
}

#[test]
fn an_approval_names_just_the_samples_that_it_passes_over() {
    let mut world = world();
    world.rate = 12.0;
    super::gates::set(&mut world, 0, "minSamples: 10");
    let mut trial = world.object.spec.gates[1].clone();
    (trial.name, trial.dry_run) = ("trial".into(), true);
    world.edit(|object| object.spec.gates.push(trial));
    world.run_to("5 %", in_stage(5));
    world.run(90);
    let effect = ask(&mut world, names::ANNOTATION_APPROVE, "1/1");
    assert!(effect.starts_with("ActApplied") && effect.contains("p99: "), "{effect}");
    assert!(!effect.contains("errors") && !effect.contains("trial"), "{effect}");
}

#[test]
fn a_retry_has_something_to_try_again_or_is_refused() {
    // nothing has failed, and the target is not there
    let mut world = world();
    world.seen.colors.green.deployment = Lookup::Missing;
    world.run(10);
    let effect = ask(&mut world, names::ANNOTATION_RETRY, "1");
    assert!(effect.contains("nothing to try again"), "{effect}");
    // it has failed, and nobody wants it any more
    let mut world = super::world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(60);
    world.edit(|object| object.spec.target = Color::Blue);
    let effect = ask(&mut world, names::ANNOTATION_RETRY, "1");
    assert!(effect.contains("nothing to try again"), "{effect}");
}

#[test]
fn a_retry_whose_removal_was_lost_is_not_refused_as_used() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(120);
    world.annotate(names::ANNOTATION_RETRY, "1");
    world.run(5);
    assert_eq!(world.attempt().id, 2);
    ask(&mut world, names::ANNOTATION_RETRY, "1");
    assert_eq!((world.told(Reason::ActIgnored), world.object.metadata.annotations.clone()), (0, Some([].into())));
    world.run(120);
    let effect = ask(&mut world, names::ANNOTATION_RETRY, "1");
    assert!(effect.contains("token was used"), "{effect}");
}

#[test]
fn a_rollback_at_rest_to_what_cannot_be_read_says_why_it_does_nothing() {
    let mut world = promoted();
    world.seen.colors.blue.prompt = Lookup::Unreadable("forbidden".into());
    let effect = ask(&mut world, names::ANNOTATION_ROLLBACK, "3 a.m.");
    assert!(effect.starts_with("ActIgnored") && effect.contains("forbidden"), "{effect}");
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Stable));
}
