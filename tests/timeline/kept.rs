//! What is ours and does not go at once: Ingresses that a finalizer of somebody keeps, and the deletion of the ModelRollout.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use modelrollout::api::reasons::{Phase, Reason, Step};
use modelrollout::api::{Color, names};
use modelrollout::engine::observed::*;

use super::edges::{change_template, plain, promoted};
use super::world::{SETTLE, World, main_ingress};
use super::{buffering, in_stage, world};

/// An Ingress of ours that is being deleted, and that a finalizer of somebody keeps.
fn kept(name: String) -> Lookup<IngressSeen> {
    let owner_uid = Some("u1".to_owned());
    Lookup::Found(IngressSeen { uid: name.clone(), name, owner_uid, deleting: true, ..main_ingress("bot-green") })
}

/// A canary of ours that nobody wants: a leader that stood still wrote it late.
fn late() -> Lookup<IngressSeen> {
    let Lookup::Found(canary) = kept(names::canary_name("bot")) else { panic!("no canary") };
    Lookup::Found(IngressSeen { deleting: false, ..canary })
}

/// Lets time pass, in which nothing is deleted: what is kept is being deleted already.
fn deletes_nothing(world: &mut World, seconds: i64) {
    let before = world.log.len();
    world.run(seconds);
    let deleted = world.log[before..].iter().filter(|line| line.contains("delete")).collect::<Vec<_>>();
    assert!(deleted.is_empty(), "{deleted:?}");
}

fn waits(world: &mut World, name: &str) {
    deletes_nothing(world, 60);
    let message = world.message();
    assert!(message.contains(name) && message.contains("a finalizer of somebody keeps it"), "{message}");
}

/// An attempt that has just gone back, with its anchor, and when. Who has edited the Ingress is not known to be us any more.
fn just_ended() -> (World, Timestamp) {
    let mut world = world();
    world.run_to("the buffer", buffering);
    let anchor = world.seen.anchor.clone();
    assert!(anchor.found().is_some());
    world.run(60);
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run_to("the way back", |world| world.phase() == Phase::RolledBack);
    let ended = world.now;
    world.main().rules_by_us = None;
    world.seen.anchor = anchor;
    (world, ended)
}

#[test]
fn a_canary_that_a_finalizer_keeps_is_waited_for_before_an_attempt_begins() {
    let mut world = world();
    world.seen.canary = kept(names::canary_name("bot"));
    waits(&mut world, "bot-canary");
    assert!(world.status().attempt.is_none());
    world.seen.canary = Lookup::Missing;
    world.run_to("the attempt", |world| world.status().attempt.is_some_and(|attempt| attempt.open));
}

#[test]
fn a_rollback_that_waits_for_such_a_canary_is_not_forgotten() {
    let mut world = promoted();
    world.seen.canary = kept(names::canary_name("bot"));
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    waits(&mut world, "bot-canary");
    assert!(world.object.metadata.annotations.as_ref().unwrap().contains_key(names::ANNOTATION_ROLLBACK));
    world.seen.canary = Lookup::Missing;
    world.settle();
    assert_eq!((world.phase(), world.object.metadata.annotations.clone()), (Phase::Restoring, Some([].into())));
}

#[test]
fn without_shares_a_canary_that_a_finalizer_keeps_holds_nothing_up() {
    let mut world = plain();
    world.seen.canary = kept(names::canary_name("bot"));
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.settle();
    assert_eq!(world.phase(), Phase::Restoring);
}

#[test]
fn an_anchor_that_a_finalizer_keeps_is_waited_for_before_the_first_share() {
    let mut world = world();
    world.seen.anchor = kept(names::anchor_name("bot"));
    waits(&mut world, "bot-anchor");
    assert_eq!(world.green_share(), 0);
    world.seen.anchor = Lookup::Missing;
    world.run_to("5 %", in_stage(5));
}

#[test]
fn a_canary_that_a_finalizer_keeps_in_the_buffer_is_not_deleted_again() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.seen.canary = kept(names::canary_name("bot"));
    deletes_nothing(&mut world, 60);
}

#[test]
fn a_canary_of_a_late_write_is_deleted_before_it_can_get_a_share_and_once() {
    let mut world = world();
    deletes_nothing(&mut world, 5);
    assert_eq!(world.phase(), Phase::Preparing);
    world.seen.canary = kept(names::canary_name("bot"));
    deletes_nothing(&mut world, 5);
    world.seen.canary = late();
    world.settle();
    assert!(world.seen.canary.is_missing());
}

#[test]
fn a_canary_of_a_late_write_beside_a_color_that_was_restored_is_deleted_at_once() {
    // before the pass that sees the switch, after it, and when the controller has settled
    for after in [None, Some(0), Some(10)] {
        let mut world = promoted();
        world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
        if let Some(seconds) = after {
            world.run_to("the switch back", |world| world.backend() == "bot-blue");
            world.run(seconds);
        } else {
            world.run_to("the anchor", |world| world.seen.anchor.found().is_some());
            for path in &mut world.main().paths {
                path.service = Some("bot-blue".into());
            }
            world.main().rules_by_us = Some(world.now);
        }
        assert_eq!(buffering(&world), after.is_some());
        world.seen.canary = late();
        let before = world.log.len();
        world.settle();
        assert!(world.seen.canary.is_missing() && buffering(&world), "{:#?}", world.log);
        let deletes = world.log[before..].iter().filter(|line| line.contains("delete bot-canary")).count();
        assert_eq!(deletes, 1, "{:#?}", world.log);
        assert!(world.log[before].contains("delete bot-canary"), "before the status: {:#?}", world.log);
        world.run_to("the end", |world| world.phase() == Phase::Stable || world.phase() == Phase::RolledBack);
        assert_eq!(world.backend(), "bot-blue");
    }
}

#[test]
fn a_canary_of_a_late_write_goes_although_the_way_back_from_a_restored_color_is_blocked() {
    let mut world = promoted();
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.run_to("the switch back", |world| world.backend() == "bot-blue");
    world.set_ready(Color::Green, 0);
    change_template(&mut world, Color::Blue, 2);
    world.run(5);
    assert_eq!((world.phase(), world.told(Reason::RollbackBlocked)), (Phase::RollingBack, 1));
    world.seen.canary = late();
    world.run(1);
    assert!(world.seen.canary.is_missing(), "{:#?}", world.log);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn an_anchor_that_a_finalizer_keeps_holds_the_switch_and_is_not_written() {
    let mut world = world();
    world.run_to("100 %", in_stage(100));
    world.run(30);
    let mut anchor = kept(names::anchor_name("bot"));
    if let Lookup::Found(anchor) = &mut anchor {
        anchor.paths[0].service = Some("else".into());
    }
    world.seen.anchor = anchor;
    let before = world.log.len();
    world.run(120);
    assert!(world.message().contains("bot-anchor is being deleted: a finalizer"), "{}", world.message());
    assert!(!world.log[before..].iter().any(|line| line.contains("bot-anchor")), "{:?}", &world.log[before..]);
    assert_eq!((world.backend().as_str(), world.green_share()), ("bot-blue", 100));
    world.seen.anchor = Lookup::Missing;
    world.run_to("the buffer", buffering);
}

#[test]
fn the_anchor_of_an_attempt_that_has_just_ended_stays_while_the_controller_follows() {
    let (mut world, ended) = just_ended();
    world.annotate(names::ANNOTATION_RETRY, "again");
    world.run_to("no anchor", |world| world.seen.anchor.is_missing());
    let took = world.now.duration_since(ended).as_secs();
    assert!((4..=8).contains(&took), "{took} s");
}

#[test]
fn a_deletion_waits_until_each_thing_that_may_be_ours_can_be_read() {
    let hides: [fn(&mut World) -> &mut Lookup<IngressSeen>; 3] = [
        |world| &mut world.seen.canary,
        |world| &mut world.seen.anchor,
        |world| world.seen.ingresses.get_mut("bot").unwrap(),
    ];
    for (index, hide) in hides.into_iter().enumerate() {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        let before = std::mem::replace(hide(&mut world), Lookup::Unreadable("forbidden".into()));
        world.delete();
        world.run(60);
        assert!(!world.gone, "number {index}");
        *hide(&mut world) = before;
        world.run(60);
        assert!(world.gone && world.seen.canary.is_missing(), "number {index}");
    }
}

#[test]
fn a_deletion_asks_for_no_ingress_of_ours_again() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(60);
    world.seen.canary = kept(names::canary_name("bot"));
    world.seen.anchor = kept(names::anchor_name("bot"));
    world.delete();
    deletes_nothing(&mut world, 60);
    assert!(!world.gone);
    (world.seen.canary, world.seen.anchor) = (Lookup::Missing, Lookup::Missing);
    world.run(10);
    assert!(world.gone);
}

#[test]
fn a_deletion_right_after_an_attempt_has_ended_waits_for_the_controller_from_that_end_on() {
    let (mut world, ended) = just_ended();
    world.now += SignedDuration::from_secs(3);
    world.delete();
    world.run(20);
    assert!(world.gone);
    let took = world.log.iter().rev().find(|line| line.contains("delete bot-anchor")).unwrap().trim_start();
    let took = took.split(' ').next().unwrap().parse::<i64>().unwrap() - (ended.as_second() - super::at(0).as_second());
    assert_eq!(u64::try_from(took), Ok(SETTLE.as_secs()));
}

#[test]
fn a_deletion_in_a_half_done_switch_keeps_the_anchor_until_all_is_taken_back() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("the buffer", buffering);
    // the second switch is still to come
    world.named("chat").paths[0].service = Some("bot-blue".into());
    if let Some(status) = &mut world.object.status {
        status.attempt.as_mut().unwrap().step = Step::Promoting;
    }
    assert!(world.seen.anchor.found().is_some());
    world.delete();
    world.run(60);
    assert!(world.gone, "{:?}", world.log);
    let place = |word: &str| world.log.iter().rposition(|line| line.contains(word)).unwrap();
    assert!(place("switch bot to bot-blue") < place("delete bot-anchor"), "{:#?}", world.log);
    assert_eq!((world.told(Reason::ExternalSwitch), world.replicas(Color::Blue)), (0, 4));
}
