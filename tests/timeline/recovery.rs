//! What no single process leaves behind: a crash between two writes, or a write that comes after another leader's.

use std::time::Duration;

use modelrollout::api::reasons::{Cause, Phase, Reason, Step};
use modelrollout::api::{AfterBuffer, Color, names};
use modelrollout::engine::observed::Lookup;

use super::world::World;
use super::{SPEC, buffering, in_stage};

fn world() -> World {
    World::new(SPEC)
}

fn rolled_back(world: &World) -> bool {
    world.phase() == Phase::RolledBack
}

#[test]
fn a_color_that_was_just_scaled_to_nothing_is_started_before_traffic_goes_back_to_it() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(200);
    // the buffer is over and the scale-down is written; the Pods are still listed
    world.edit(|object| object.spec.rollback.buffer = "100s".into());
    world.scale_by(names::MANAGER_SCALE, Color::Blue, 0);
    world.set_ready(Color::Blue, 4);
    world.deployment(Color::Blue).generation += 1;
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.settle();
    assert_eq!((world.backend().as_str(), world.replicas(Color::Blue)), ("bot-green", 4));
    assert!(world.message().contains("its Pods are being started again"), "{}", world.message());
    // its controller has seen the scale-down, and the Pods go
    world.deployment(Color::Blue).observed_generation += 1;
    world.set_ready(Color::Blue, 0);
    world.run(10);
    assert_eq!(world.backend(), "bot-green");
    world.run_to("the way back", rolled_back);
    assert_eq!((world.backend().as_str(), world.attempt().cause), ("bot-blue", Some(Cause::RollbackRequested)));
}

#[test]
fn a_restored_color_waits_for_its_controller_to_see_that_it_is_wanted_again() {
    let mut world = world();
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.edit(|object| object.spec.target = Color::Blue);
    world.settle();
    // scaled up, and the Pods that the scale-down takes are still listed
    world.set_ready(Color::Blue, 4);
    world.deployment(Color::Blue).generation = 2;
    world.run(5);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Restoring));
    world.deployment(Color::Blue).observed_generation = 2;
    world.run_to("the switch back", |world| world.backend() == "bot-blue");
}

#[test]
fn a_color_that_serves_is_started_again_if_the_end_of_its_buffer_can_have_taken_it_down() {
    // Who scaled to 0 through the subresource is not on record.
    for (manager, over, wait, expected) in [
        (names::MANAGER_SCALE, true, 0, (4, 1)),
        ("kubectl-scale", true, 599, (4, 1)),
        ("kubectl-scale", true, 601, (0, 0)),
        ("kubectl-edit", true, 0, (0, 0)),
        // a person's emergency stop, right after a way back that cut the buffer short
        ("kubectl-scale", false, 0, (0, 0)),
    ] {
        let mut world = world();
        world.run_to("the buffer", buffering);
        if over {
            // what keeps the old color up at the end of its buffer
            world.edit(|object| object.spec.paused = true);
            world.run(301);
        }
        world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
        world.run_to("the way back", rolled_back);
        world.run(wait);
        world.scale_by(manager, Color::Blue, 0);
        world.run(60);
        let now = (world.replicas(Color::Blue), world.told(Reason::LiveNotReady));
        assert_eq!(now, expected, "{manager} {over} {wait}: {}", world.message());
        if expected.0 == 0 {
            assert!(world.message().ends_with("wants 0 replicas, so nobody answers"), "{}", world.message());
        }
    }
}

#[test]
fn what_was_promoted_and_is_scaled_to_nothing_by_a_person_stays_so() {
    let mut world = world();
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.scale_by("kubectl-scale", Color::Green, 0);
    world.run(60);
    assert_eq!((world.replicas(Color::Green), world.told(Reason::LiveNotReady)), (0, 0));
}

#[test]
fn a_process_that_died_after_the_scale_down_starts_the_color_again_when_it_is_wanted_back() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.die_after = Some(world.writes + 1);
    world.run_to("the scale-down", |world| world.replicas(Color::Blue) == 0);
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(60);
    assert_eq!((world.backend().as_str(), world.replicas(Color::Blue)), ("bot-blue", 4), "{}", world.message());
}

#[test]
fn a_color_to_go_back_to_is_started_unless_somebody_is_on_record_who_wants_none_of_it() {
    // what is kept to go back to, and an autoscaler's, is nobody else's to start
    let starts = |manager: &str, leave: bool, scaler: bool| {
        let mut world = world();
        if leave {
            world.edit(|object| object.spec.rollback.after_buffer = AfterBuffer::Leave);
        }
        world.run_to("the buffer", buffering);
        world.scale_by(manager, Color::Blue, 0);
        world.seen.colors.blue.autoscaler = scaler.then(|| "keda".to_owned());
        // its Pods are still listed, and its controller has yet to look
        world.set_ready(Color::Blue, 4);
        world.deployment(Color::Blue).generation += 1;
        world.edit(|object| object.spec.target = Color::Blue);
        world.run(5);
        assert_eq!(world.backend(), "bot-green", "to Pods that are about to go");
        world.set_ready(Color::Blue, 0);
        world.deployment(Color::Blue).observed_generation += 1;
        world.run(60);
        let started = world.replicas(Color::Blue) == 4;
        let told = world.message().contains("start its Pods: kubectl scale -n ml deployment bot-blue --replicas=4");
        assert_ne!(started, told, "{}", world.message());
        assert_eq!(world.backend(), if started { "bot-blue" } else { "bot-green" });
        started
    };
    assert!(starts("kubectl-scale", false, false));
    assert!(!starts("kubectl-scale", true, false));
    assert!(!starts("kubectl-scale", false, true));
    assert!(!starts("kubectl-edit", false, false));
}

#[test]
fn a_missing_canary_is_not_put_back_while_nobody_can_be_asked() {
    let mut world = world();
    world.run_to("a stage", in_stage(25));
    world.run(10);
    // it may have been us, for a verdict that died with us
    world.seen.canary = Lookup::Missing;
    world.seen.readings.clear();
    world.metrics_up = false;
    world.run(90);
    assert_eq!((world.green_share(), world.phase()), (0, Phase::Holding));
    world.metrics_up = true;
    world.run(2);
    assert_eq!(world.green_share(), 25);
}

#[test]
fn a_new_process_switches_when_it_has_read_the_gates_and_not_before() {
    let mut world = world();
    world.run_to("the switch", |world| world.status().attempt.is_some_and(|it| it.step == Step::Promoting));
    world.seen.readings.clear();
    world.metrics_up = false;
    world.run(60);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::Holding));
    world.metrics_up = true;
    world.run_to("the buffer", buffering);
}

#[test]
fn a_way_back_that_was_not_recorded_is_recorded_with_its_cause() {
    for bad in ["errors", "nothing"] {
        let mut world = world();
        world.run_to("the buffer", buffering);
        world.run(10);
        world.die_after = Some(world.writes + 1);
        world.behavior.green.error_share = 0.5;
        world.run_to("the switch back", |world| world.backend() == "bot-blue");
        if bad == "nothing" {
            // and there is nobody to ask why, until the end of the buffer
            world.seen.readings.clear();
            world.metrics_up = false;
        }
        world.run(400);
        let (cause, expected) = (world.attempt().cause, Some(Cause::GateFailed));
        assert!(cause == expected || bad == "nothing" && cause.is_some(), "{cause:?}");
        assert_eq!((world.backend().as_str(), world.attempt().open), ("bot-blue", false));
    }
}

#[test]
fn a_late_switch_of_a_leader_that_stood_still_is_undone() {
    let mut world = world();
    world.run_to("the last stage", in_stage(100));
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run_to("the way back", rolled_back);
    let late = |world: &mut World| {
        let now = world.now;
        let main = world.main();
        main.paths[0].service = Some("bot-green".into());
        main.rules_by_us = Some(now);
        world.settle();
        assert_eq!((world.backend().as_str(), world.told(Reason::ExternalSwitch)), ("bot-blue", 0));
    };
    late(&mut world);
    assert!(world.phase() != Phase::Stable && world.told(Reason::BackendRestored) == 1);
    // and while another attempt is under way
    world.annotate(names::ANNOTATION_RETRY, "again");
    world.run_to("a stage", in_stage(5));
    late(&mut world);
    assert!(world.attempt().open);
}

#[test]
fn a_buffer_that_is_shorter_than_the_controller_needs_takes_no_pods_from_under_it() {
    let mut world = world();
    world.edit(|object| object.spec.rollback.buffer = "1s".into());
    world.run_to("a stage", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run_to("the way back", rolled_back);
    world.run(10);
    assert_eq!(world.replicas(Color::Green), 4);
    world.run(5);
    assert_eq!(world.replicas(Color::Green), 0);
}

#[test]
fn nothing_is_scaled_down_while_the_controller_follows_a_backend_that_was_put_back() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    let ends = world.attempt().buffer_ends_at.expect("a buffer").0;
    world.set_ready(Color::Blue, 0);
    world.now = ends - Duration::from_secs(2);
    world.main().paths[0].service = Some("bot-blue".into());
    world.settle();
    assert_eq!((world.backend().as_str(), world.told(Reason::BackendRestored)), ("bot-green", 1));
    world.run(5);
    assert_eq!(world.replicas(Color::Blue), 4, "the controller may still send to it");
    world.run(3);
    assert_eq!(world.replicas(Color::Blue), 0);
}

#[test]
fn a_canary_that_somebody_deletes_during_the_switch_ends_no_attempt() {
    let mut world = world();
    world.run_to("the switch", |world| world.status().attempt.is_some_and(|it| it.step == Step::Promoting));
    world.seen.canary = Lookup::Missing;
    world.settle();
    assert_eq!((world.green_share(), world.told(Reason::CanaryRestored)), (100, 1));
    world.run_to("the buffer", buffering);
}

#[test]
fn what_is_left_of_a_color_is_gone_back_to_when_somebody_scaled_it_down_on_purpose() {
    let mut world = world();
    world.run_to("a stage", in_stage(25));
    world.scale_by("kubectl-scale", Color::Blue, 2);
    world.deployment(Color::Green).template_hash = "t2".into();
    world.deployment(Color::Green).template_revision = "2".into();
    world.settle();
    let status = world.status();
    assert_eq!((status.history[0].cause, world.attempt().id), (Some(Cause::RevisionChanged), 2));
}

#[test]
fn a_finalizer_does_not_stay_because_something_is_missing() {
    let mut world = world();
    world.run_to("a stage", in_stage(25));
    world.set_ready(Color::Green, 0);
    world.seen.colors.green.deployment = Lookup::Missing;
    world.run(60);
    assert_eq!(world.status().phase, Some(Phase::Invalid));
    assert!(world.object.metadata.finalizers.is_none());
}

#[test]
fn a_switch_by_hand_stays_one_when_the_others_that_follow_are_not_on_record() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("the buffer", buffering);
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.scale_by("kubectl-scale", Color::Blue, 4);
    world.run(300);
    // the second Ingress follows, and the process dies before that is on record
    world.named("bot").paths[0].service = Some("bot-blue".into());
    world.die_after = Some(world.writes + 1);
    world.run(30);
    assert_eq!((world.backend().as_str(), world.told(Reason::ExternalSwitch)), ("bot-blue", 1));
    assert_eq!(world.told(Reason::BackendRestored), 0);
}

#[test]
fn a_way_back_that_is_half_done_or_leads_to_no_pods_is_not_waited_with() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("the buffer", buffering);
    world.run(10);
    world.metrics_up = false;
    world.seen.readings.clear();
    let now = world.now;
    let main = world.named("bot");
    main.paths[0].service = Some("bot-blue".into());
    main.rules_by_us = Some(now);
    world.run(2);
    assert_eq!(world.backend(), "bot-blue", "the other one follows");

    let mut world = World::new(SPEC);
    world.run_to("the buffer", buffering);
    world.run(10);
    world.metrics_up = false;
    world.seen.readings.clear();
    world.set_ready(Color::Blue, 0);
    let now = world.now;
    let main = world.main();
    main.paths[0].service = Some("bot-blue".into());
    main.rules_by_us = Some(now);
    world.run(2);
    assert_eq!(world.backend(), "bot-green", "nobody answers on blue");
}

#[test]
fn a_blip_of_the_target_after_the_scale_down_sends_nobody_to_a_color_without_pods() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(200);
    world.edit(|object| object.spec.rollback.buffer = "100s".into());
    world.scale_by(names::MANAGER_SCALE, Color::Blue, 0);
    world.set_ready(Color::Green, 0);
    world.settle();
    assert_eq!((world.backend().as_str(), world.replicas(Color::Blue)), ("bot-green", 4));
    world.run_to("the way back", rolled_back);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn a_raise_that_is_caught_up_on_waits_for_the_gates_too() {
    let mut world = world();
    world.run_to("a stage", in_stage(50));
    // on record, and refused: the share is still that of the stage before, and what was judged died with its process
    world.set_weight_by(names::MANAGER_TRAFFIC, "25");
    world.seen.readings.clear();
    world.metrics_up = false;
    world.run(60);
    assert_eq!((world.green_share(), world.phase()), (25, Phase::Holding));
    world.metrics_up = true;
    world.run(3);
    assert_eq!(world.green_share(), 50);
}

#[test]
fn a_canary_of_an_earlier_attempt_that_comes_late_is_removed_before_the_first_stage() {
    let mut world = world();
    world.run_to("a stage", in_stage(25));
    let late = world.seen.canary.clone();
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run_to("the way back", rolled_back);
    world.run(700);
    world.annotate(names::ANNOTATION_RETRY, "again");
    world.run_to("another attempt", |world| world.attempt().open && world.attempt().step == Step::Preparing);
    world.seen.canary = late;
    world.settle();
    assert_eq!(world.green_share(), 0);
    world.run_to("a stage", in_stage(5));
}
