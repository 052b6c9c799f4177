//! The operator dies after any write, or any write fails: it ends where an undisturbed rollout would have ended.

use modelrollout::api::Color;
use modelrollout::api::reasons::Phase;

use super::{SPEC, World};

fn run(change: impl Fn(&mut World)) -> World {
    let mut world = World::new(SPEC);
    world.tick = 7;
    change(&mut world);
    world.run(2400);
    world
}

fn finish(world: &World) -> (Phase, String, i32, i32, bool) {
    let clean =
        world.seen.canary.is_missing() && world.seen.anchor.is_missing() && world.object.metadata.finalizers.is_none();
    (world.phase(), world.backend(), world.replicas(Color::Blue), world.replicas(Color::Green), clean)
}

fn every_fault(prepare: impl Fn(&mut World) + Copy) {
    let reference = run(prepare);
    assert!(reference.writes > 10);
    for k in 1..=reference.writes {
        let died = run(|world| {
            prepare(world);
            world.die_after = Some(k);
        });
        assert_eq!(finish(&died), finish(&reference), "died after write {k}:\n{}", died.log.join("\n"));
        let failed = run(|world| {
            prepare(world);
            world.fail_at = Some(k);
        });
        assert_eq!(finish(&failed), finish(&reference), "write {k} failed:\n{}", failed.log.join("\n"));
    }
}

#[test]
fn a_promotion_survives_a_fault_at_every_write() {
    every_fault(|_| {});
}

#[test]
fn a_rollback_survives_a_fault_at_every_write() {
    every_fault(|world| world.behavior.green.error_share = 0.3);
}

#[test]
fn a_promotion_of_two_ingresses_survives_a_fault_at_every_write() {
    every_fault(World::add_second_ingress);
}

#[test]
fn a_rollback_of_two_ingresses_in_the_buffer_survives_a_fault_at_every_write() {
    every_fault(|world| {
        world.add_second_ingress();
        world.breaks_in_buffer = true;
    });
}

#[test]
fn a_plain_switch_and_its_rollback_survive_a_fault_at_every_write() {
    let plain = |world: &mut World| {
        world.edit(|object| {
            object.spec.traffic.ingress.controller = modelrollout::api::ControllerDialect::None;
            object.spec.stages.drain(..4);
        });
    };
    every_fault(plain);
    every_fault(|world| {
        plain(world);
        world.breaks_in_buffer = true;
    });
}

#[test]
fn restoring_survives_a_fault_at_every_write() {
    every_fault(|world| {
        world.add_second_ingress();
        world.restores = true;
    });
}

#[test]
fn restoring_by_an_act_survives_a_fault_at_every_write() {
    every_fault(|world| world.restores_by_act = true);
}
