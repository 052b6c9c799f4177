//! What real clusters, Git tools, autoscalers and people do to a rollout. One test for each decision.

use modelrollout::api::reasons::{Cause, Outcome, Phase, Reason, Role, Step};
use modelrollout::api::{Approval, Color, ControllerDialect, UsersSpec, names};
use modelrollout::engine::observed::*;
use modelrollout::engine::traffic::nginx;

use super::world::{World, color_mut, main_ingress};
use super::{SPEC, buffering, in_stage};

fn world() -> World {
    World::new(SPEC)
}

/// Blue was left for good: green serves, blue is at zero.
pub fn promoted() -> World {
    let mut world = world();
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.run(60);
    world
}

pub fn plain() -> World {
    let mut world = world();
    world.edit(|object| {
        object.spec.traffic.ingress.controller = ControllerDialect::None;
        object.spec.stages.drain(..4);
        object.spec.gates[0].error_rate.as_mut().expect("errors").max_increase = None;
    });
    world
}

fn messages(world: &World, kind: &str) -> String {
    let found = world.status().conditions.into_iter().find(|condition| condition.type_ == kind);
    found.expect("the condition").message
}

fn other_ingress(name: &str, service: &str) -> IngressSeen {
    let mut other = main_ingress(service);
    other.name = name.into();
    other.uid = name.into();
    other.paths[0].host = Some("preview.example".into());
    other
}

fn foreign_canary() -> IngressSeen {
    let mut canary = main_ingress("something");
    canary.name = "theirs".into();
    canary.annotations.insert(names::NGINX_CANARY.into(), "true".into());
    canary
}

/// A new template; `content` tells it from others.
pub fn change_template(world: &mut World, color: Color, content: u32) {
    let deployment = world.deployment(color);
    let counted: u32 = deployment.template_revision.parse().expect("a number");
    deployment.template_revision = (counted + 1).to_string();
    deployment.template_hash = format!("t{content}");
}

fn service(world: &mut World, color: Color) -> &mut ServiceSeen {
    match &mut color_mut(&mut world.seen.colors, color).service {
        Lookup::Found(service) => service,
        _ => panic!("no Service"),
    }
}

/// An Ingress with a name that we need, of somebody else.
fn owned_by(owner: Option<&str>, name: &str) -> Lookup<IngressSeen> {
    let owner_uid = owner.map(str::to_owned);
    Lookup::Found(IngressSeen { owner_uid, ..other_ingress(name, "else") })
}

type Change = fn(&mut World);

const MISFITS: [(&str, Change); 11] = [
    ("ServicesOverlap", |world| world.seen.colors.blue.selected.extend(["bot-green".to_owned()])),
    ("ServiceMissesDeployment", |world| world.seen.colors.green.selected.clear()),
    ("ServiceMissesDeployment", |world| service(world, Color::Green).selector.clear()),
    ("PortMismatch", |world| service(world, Color::Green).ports[0].number = 8080),
    ("PortMismatch", |world| {
        world.main().paths[0].port = Some(PortSeen::Name("http".into()));
        service(world, Color::Green).ports[0].name = Some("web".into());
    }),
    ("PublishesNotReady", |world| service(world, Color::Green).publishes_not_ready = true),
    ("UnlistedIngress", |world| world.seen.others.push(other_ingress("preview", "bot-green"))),
    ("UnlistedIngress", |world| {
        let mut other = other_ingress("fallback", "else");
        other.default_backend = Some("bot-blue".into());
        world.seen.others.push(other);
    }),
    ("ForeignCanary", |world| world.seen.others.push(foreign_canary())),
    ("NameTaken", |world| world.seen.canary = owned_by(None, "bot-canary")),
    // of a rollout of the same name that was deleted, or of somebody else's controller
    ("NameTaken", |world| world.seen.canary = owned_by(Some("another"), "bot-canary")),
];

#[test]
fn what_does_not_fit_is_told_at_rest_with_what_to_do_and_no_write() {
    for (reason, change) in MISFITS {
        let mut world = world();
        change(&mut world);
        world.run(120);
        assert_eq!(world.condition("Preflight"), ("False".into(), reason.into()));
        assert_eq!((world.phase(), world.writes), (Phase::Invalid, 1), "{reason}: only the status: {:?}", world.log);
        assert!(messages(&world, "Preflight").len() > 40);
    }
}

#[test]
fn what_stops_to_fit_in_a_stage_holds_the_raise_and_nothing_else() {
    for (reason, change) in MISFITS.into_iter().take(9) {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        change(&mut world);
        // a port that a path names is part of the canary
        world.run(200);
        assert_eq!((world.phase(), world.green_share()), (Phase::Holding, 25), "{reason}: {}", world.message());
        assert_eq!(world.condition("Progressing").1, reason);
        assert_eq!(world.condition("Preflight"), ("False".into(), reason.into()));
        world.annotate(names::ANNOTATION_ROLLBACK, "x");
        world.settle();
        assert_eq!(world.green_share(), 0, "going back still works");
    }
}

#[test]
fn at_the_target_what_does_not_fit_matters_only_to_the_next_rollout() {
    for (reason, change) in MISFITS.into_iter().take(9) {
        let mut world = world();
        world.edit(|object| object.spec.target = Color::Blue);
        change(&mut world);
        world.run(60);
        assert_eq!((world.phase(), world.condition("Preflight").1), (Phase::Stable, reason.to_owned()));
    }
}

#[test]
fn what_was_rolled_back_is_scaled_down_when_all_fits_or_the_target_is_set_back() {
    let fits: Change = |world| world.seen.others.clear();
    let back: Change = |world| world.edit(|object| object.spec.target = Color::Blue);
    for (change, phase) in [(fits, Phase::RolledBack), (back, Phase::Stable)] {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        world.annotate(names::ANNOTATION_ROLLBACK, "x");
        world.run(60);
        world.seen.others.push(other_ingress("preview", "bot-green"));
        world.run(1200);
        assert_eq!(
            (world.phase(), world.replicas(Color::Green)),
            (Phase::Invalid, 4),
            "something else may serve from it"
        );
        change(&mut world);
        world.run(60);
        assert_eq!((world.phase(), world.replicas(Color::Green)), (phase, 0));
    }
}

#[test]
fn replicas_that_somebody_else_decides_stay_after_a_rollback() {
    let mut world = world();
    world.edit(|object| object.spec.prepare.replicas = modelrollout::api::PrepareReplicas::Leave);
    world.scale_by("kubectl", Color::Green, 1);
    world.run(5);
    world.scale_by("kubectl", Color::Green, 4);
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(1200);
    assert_eq!((world.phase(), world.replicas(Color::Green)), (Phase::RolledBack, 4));
}

#[test]
fn changes_ten_minutes_apart_are_no_conflict() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.edit(|object| object.spec.paused = true);
    let start = world.now;
    // just when the first one is forgotten
    for seconds in [0, 5, 600] {
        world.run((start.as_second() - world.now.as_second()) + seconds);
        world.main().paths[0].service = Some("bot-green".into());
        world.set_ready(Color::Green, 0);
        world.settle();
        world.set_ready(Color::Green, 4);
        assert_eq!(world.backend(), "bot-blue", "after {seconds} s");
    }
    assert_eq!(world.told(Reason::FieldConflict), 0);
}

#[test]
fn ingresses_of_two_classes_are_refused() {
    let mut world = world();
    world.add_second_ingress();
    world.named("chat").class = Some("other".into());
    world.run(60);
    assert_eq!(world.condition("Preflight"), ("False".into(), "IngressClassMismatch".into()));
    assert_eq!(world.writes, 1);
}

#[test]
fn of_two_rollouts_with_one_object_in_common_the_older_goes_on() {
    type Shared = fn(&mut modelrollout::api::ModelRolloutSpec);
    let named = |name: &str, seconds: i64| {
        let mut object = world().object;
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(name.to_owned());
        object.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(super::world::at(seconds)));
        for (side, color) in [(&mut object.spec.blue, "blue"), (&mut object.spec.green, "green")] {
            side.deployment_name = format!("{name}-{color}");
            side.service_name = format!("{name}-{color}");
        }
        object.spec.traffic.ingress.names = vec![name.to_owned()];
        object
    };
    let elder = |me, other: &_| modelrollout::engine::elder(&me, [other].into_iter());
    let shared: [Shared; 3] = [
        |spec| spec.green.deployment_name = "a-blue".into(),
        |spec| spec.blue.service_name = "a-green".into(),
        |spec| spec.traffic.ingress.names.push("a".into()),
    ];
    for share in shared {
        let mut other = named("b", 10);
        share(&mut other.spec);
        assert_eq!(elder(named("a", 20), &other).as_deref(), Some("b"));
        assert_eq!(elder(named("a", 10), &other), None, "of the same second, by name");
        assert_eq!(elder(named("a", 0), &other), None, "it is the older one itself");
    }
    assert_eq!(elder(named("a", 20), &named("b", 10)), None, "nothing in common");
    assert_eq!(elder(named("a", 20), &named("a", 10)), None, "it is itself");
    let mut before = named("a", 10);
    before.metadata.uid = Some("before".to_owned());
    assert_eq!(elder(named("a", 10), &before), None, "it was created anew, and the old one is not gone from view yet");
}

#[test]
fn a_newcomer_never_blocks_the_rollback_of_another() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.seen.elder = Some("elder".into());
    world.run(300);
    assert_eq!((world.phase(), world.green_share()), (Phase::Holding, 25));
    assert_eq!(world.condition("Progressing").1, "Conflict");
    world.behavior.green.error_share = 0.5;
    world.run_to("the rollback", |world| world.green_share() == 0);
}

#[test]
fn what_may_hurt_later_is_told_and_stops_nothing() {
    type Advice = (&'static str, &'static str, Change);
    let cases: [Advice; 4] = [
        ("AutoscalerPresent", "minReplicas", |world| world.seen.colors.green.autoscaler = Some("green-hpa".into())),
        ("ReplicasDeclaredElsewhere", "/spec/replicas", |world| {
            world.deployment(Color::Blue).replicas_declared_by = Some("argocd-controller".into());
        }),
        ("ShutdownTooShort", "preStop", |world| world.deployment(Color::Blue).shutdown.pre_stop = false),
        ("ShutdownTooShort", "20 s", |world| {
            world.deployment(Color::Green).shutdown = Shutdown { grace_seconds: 30, pre_stop: true, sleep_seconds: 10 };
        }),
    ];
    for (reason, text, change) in cases {
        let mut world = world();
        change(&mut world);
        world.run(1);
        assert_eq!(world.condition("Preflight"), ("True".into(), reason.into()));
        assert!(messages(&world, "Preflight").contains(text), "{}", messages(&world, "Preflight"));
        assert!(world.attempt().open);
        world.run(30);
        let told = world.notes.iter().filter(|note| note.reason.as_str() == reason).count();
        assert_eq!(told, 1, "one Event for each attempt");
    }
}

#[test]
fn two_ingresses_move_with_one_canary_and_one_switch_each() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("25 %", in_stage(25));
    let canary = world.seen.canary.found().expect("a canary").clone();
    let paths: Vec<_> = canary.paths.iter().map(|path| (path.host.clone(), path.port.clone())).collect();
    let named = |host: &str, port| (Some(host.to_owned()), Some(port));
    assert_eq!(
        paths,
        [named("bot.example", PortSeen::Number(80)), named("chat.example", PortSeen::Name("http".into()))],
        "the path of somebody else is not in it"
    );
    assert_eq!(canary.tls.len(), 1);
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    assert_eq!(world.backend(), "bot-green");
    assert_eq!(world.named("chat").paths[1].service.as_deref(), Some("docs"));
    let switches: Vec<_> = world.log.iter().filter(|line| line.contains("switch")).cloned().collect();
    assert_eq!(switches.len(), 2, "{switches:?}");
    assert!(switches[0].contains("bot to") && switches[1].contains("chat to"), "in the order of their names");
}

#[test]
fn a_half_done_switch_is_finished_forward_in_promoting() {
    let mut world = world();
    world.add_second_ingress();
    world.fail_after = Some("switch bot to bot-green");
    world.run_to("the buffer", buffering);
    assert!(world.log.iter().any(|line| line.contains("switch chat to bot-green FAILED")));
    assert_eq!(world.backend(), "bot-green");
    assert_eq!(world.status().history.len(), 0, "the same attempt");
    // even when the target loses a Pod in between
    let mut world = self::world();
    world.add_second_ingress();
    world.fail_after = Some("switch bot to bot-green");
    world.run_to("half of it", |world| world.backend() == "mixed" || buffering(world));
    world.set_ready(Color::Green, 3);
    world.run(10);
    assert_eq!(world.backend(), "bot-green");
}

#[test]
fn a_half_done_switch_is_finished_backward_in_a_rollback() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("the buffer", buffering);
    world.run(20);
    world.fail_after = Some("switch bot to bot-blue");
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(10);
    assert!(world.log.iter().any(|line| line.contains("switch chat to bot-blue FAILED")));
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::RolledBack));
    world.run(600);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn a_deletion_in_a_half_done_switch_takes_it_back() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("75 %", in_stage(75));
    world.run_to("the switch", |world| world.status().attempt.is_some_and(|it| it.step == Step::Promoting));
    world.run(8);
    world.named("bot").paths[0].service = Some("bot-green".into());
    world.named("chat").paths[0].service = Some("bot-blue".into());
    world.delete();
    world.run(60);
    assert!(world.gone);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn a_switch_of_one_ingress_by_hand_takes_the_others_along() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("the buffer", buffering);
    world.run(20);
    world.named("chat").paths[0].service = Some("bot-blue".into());
    world.settle();
    assert_eq!((world.backend().as_str(), world.attempt().cause), ("bot-blue", Some(Cause::ExternalSwitch)));
    let mut world = promoted();
    world.add_second_ingress();
    world.named("chat").paths[0].service = Some("bot-green".into());
    world.run(5);
    world.scale_by("kubectl", Color::Blue, 4);
    world.named("chat").paths[0].service = Some("bot-blue".into());
    world.run(600);
    assert_eq!((world.backend().as_str(), world.status().active_color), ("bot-blue", Some(Color::Blue)));
    assert_eq!(world.attempt().id, 1, "nothing starts by itself");
}

#[test]
fn an_ingress_that_is_created_anew_in_a_stage_loses_its_canary_at_once() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.main().uid = "another".into();
    world.settle();
    assert_eq!((world.green_share(), world.attempt().cause), (0, Some(Cause::IngressLost)));
}

#[test]
fn two_of_eight_replicas_go_as_far_as_they_carry() {
    let mut world = world();
    world.edit(|object| object.spec.prepare.replicas = modelrollout::api::PrepareReplicas::Leave);
    world.scale_by("kubectl", Color::Blue, 8);
    world.scale_by("kubectl", Color::Green, 2);
    world.run_to("25 %", in_stage(25));
    world.run(200);
    assert_eq!((world.phase(), world.green_share()), (Phase::Holding, 25));
    assert_eq!(world.condition("Progressing").1, "CapacityShort");
    let message = world.message();
    assert!(message.contains("2 Pods of green are ready, 50 % of blue's 8 replicas needs 4"), "{message}");
    assert!(message.contains("kubectl scale -n ml deployment bot-green --replicas=8"), "{message}");
    world.scale_by("kubectl", Color::Green, 4);
    world.settle();
    assert!(in_stage(50)(&world), "raising goes on as Pods come: {}", world.message());
    assert!(!world.log.iter().any(|line| line.contains("scale bot-green")), "Leave never scales");
}

#[test]
fn a_short_capacity_has_the_reason_of_the_pods() {
    let mut world = world();
    world.never_ready = true;
    world.run(30);
    world.set_ready(Color::Green, 1);
    world.run(5);
    assert!(world.message().contains("1 of 4 Pods are ready (Unschedulable: no GPU)"), "{}", world.message());
}

#[test]
fn an_active_color_that_wants_nothing_needs_one_pod_of_the_target() {
    let mut world = world();
    world.scale_by("kubectl", Color::Blue, 0);
    world.run_to("a hold", |world| world.phase() == Phase::Holding);
    assert_eq!((world.replicas(Color::Green), world.condition("Progressing").1), (1, "LiveNotReady".into()));
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run_to("the switch", |world| world.backend() == "bot-green");
}

#[test]
fn a_live_color_without_a_pod_holds_and_promote_is_the_way_out() {
    for stop in [0, 25] {
        let mut world = world();
        if stop > 0 {
            world.run_to("the stage", in_stage(stop));
        } else {
            world.run(5);
        }
        world.set_ready(Color::Blue, 0);
        world.run(120);
        assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "LiveNotReady".into()));
        assert!(world.message().contains("modelrollout.dev/promote=1"), "{}", world.message());
        world.annotate(names::ANNOTATION_PROMOTE, "1");
        world.run(60);
        assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Buffering), "from {stop}");
        assert_eq!(world.condition("RollbackReady"), ("False".into(), "OldColorDown".into()));
    }
}

#[test]
fn promote_skips_stages_and_samples_but_no_failed_gate_and_no_capacity() {
    let mut world = world();
    world.rate = 0.1;
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run_to("the buffer", buffering);
    let shares: Vec<_> = world.log.iter().filter(|line| line.contains("write bot-canary")).collect();
    assert_eq!(shares.len(), 1, "no further stage: {shares:?}");
    assert_eq!(world.told(Reason::PromoteRequested), 1);

    let mut world = self::world();
    world.run_to("5 %", in_stage(5));
    world.set_ready(Color::Green, 2);
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run(100);
    assert_eq!((world.green_share(), world.condition("Progressing").1), (5, "CapacityShort".into()));
    world.behavior.green.error_share = 0.5;
    world.rate = 500.0;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    assert_eq!(world.attempt().cause, Some(Cause::GateFailed));
}

#[test]
fn promote_passes_over_nothing_that_does_not_fit_while_the_old_color_answers() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.seen.others.push(other_ingress("preview", "bot-green"));
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run(600);
    assert_eq!((world.green_share(), world.condition("Progressing").1), (25, "UnlistedIngress".into()));
    world.seen.others.clear();
    world.run_to("the buffer", buffering);
}

#[test]
fn a_change_that_its_controller_has_not_looked_at_yet_holds_the_raise() {
    for color in Color::BOTH {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        world.deployment(color).generation += 1;
        world.run(600);
        assert_eq!((world.green_share(), world.condition("Progressing").1), (25, "WaitingForReadiness".into()));
        // it was no change of the template
        world.deployment(color).observed_generation += 1;
        world.run_to("50 %", in_stage(50));
    }
}

#[test]
fn a_deletion_right_after_the_switch_leaves_the_anchor_until_the_controller_follows() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.delete();
    world.run(4);
    assert!(world.seen.canary.is_missing() && !world.seen.anchor.is_missing() && !world.gone);
    world.run(2);
    assert!(world.gone);
    assert_eq!(world.backend(), "bot-green");
}

#[test]
fn a_promote_of_another_attempt_does_nothing_but_tell_the_command() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_PROMOTE, "7");
    world.settle();
    assert!(in_stage(5)(&world) && !world.attempt().promote_requested);
    let told = world.notes.iter().find(|note| note.reason == Reason::ActIgnored).expect("an Event");
    assert!(told.message.contains("modelrollout.dev/promote=1"), "{}", told.message);
    assert_eq!(world.object.metadata.annotations, Some([].into()));
}

#[test]
fn missing_samples_can_be_passed_over_by_a_person_and_that_is_on_record() {
    let mut world = world();
    world.rate = 0.5;
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run(10);
    assert_eq!(world.told(Reason::ActIgnored), 1, "not before the hold is over");
    world.run_to("a hold", |world| world.phase() == Phase::Holding);
    assert!(world.message().contains("modelrollout.dev/approve=1/1"), "{}", world.message());
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.settle();
    assert!(in_stage(25)(&world), "{}", world.message());
    assert_eq!(world.told(Reason::ApprovedWithoutEvidence), 1);
    assert!(world.status().acts[0].effect.contains("ApprovedWithoutEvidence"));
    world.run(200);
    assert!(in_stage(25)(&world), "for this stage only");
}

#[test]
fn an_approval_never_passes_a_source_that_is_down() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.metrics_up = false;
    world.run(100);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run(100);
    assert!(in_stage(5)(&world));
    assert_eq!(world.told(Reason::ActIgnored), 1);
}

#[test]
fn an_early_approval_does_not_pass_over_samples_that_are_missing_later() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.rate = 12.0;
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run(200);
    assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "InsufficientSamples".into()));
}

#[test]
fn an_early_approval_never_passes_a_gate_that_fails_later() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.settle();
    world.behavior.green.error_share = 0.5;
    world.rate = 500.0;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    let entry = &world.status().history[0];
    assert_eq!((entry.weight, entry.cause), (5, Some(Cause::GateFailed)), "in this stage, not in the next");
}

#[test]
fn an_unknown_act_is_removed_and_told_once() {
    let mut world = world();
    world.annotate("modelrollout.dev/aprove", "1/1");
    world.annotate("example.com/approve", "1/1");
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.told(Reason::ActIgnored), 1);
    assert_eq!(world.object.metadata.annotations, Some([("example.com/approve".into(), "1/1".into())].into()));
}

#[test]
fn an_act_that_is_seen_again_at_once_is_the_same_and_later_a_new_one() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.settle();
    let told = |world: &World| (world.told(Reason::ActApplied), world.told(Reason::ActIgnored));
    let applied = world.notes.iter().find(|note| note.reason == Reason::ActApplied);
    assert!(applied.is_some_and(|note| !note.warning), "that an act worked is no warning");
    // its removal was lost
    world.run(30);
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(1);
    assert_eq!((told(&world), world.object.metadata.annotations.clone()), ((1, 0), Some([].into())));
    // somebody sets it once more
    world.run(60);
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(1);
    assert_eq!(told(&world), (1, 1), "that there is nothing to go back from is said");
}

#[test]
fn paused_stops_raises_and_never_going_back() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.edit(|object| object.spec.paused = true);
    world.run(600);
    assert_eq!((world.phase(), world.green_share()), (Phase::Paused, 25));
    world.set_weight_by("kubectl-edit", "90");
    world.settle();
    assert_eq!(world.green_share(), 25, "drift is repaired");
    world.run(30);
    world.behavior.green.error_share = 0.5;
    world.run(20);
    assert_eq!((world.phase(), world.green_share()), (Phase::RolledBack, 0), "judging goes on");
}

#[test]
fn paused_prepares_but_gives_no_traffic_and_resumes() {
    let mut world = world();
    world.edit(|object| object.spec.paused = true);
    world.run(300);
    assert_eq!((world.phase(), world.replicas(Color::Green), world.green_share()), (Phase::Paused, 4, 0));
    world.edit(|object| object.spec.paused = false);
    world.run_to("5 %", in_stage(5));
}

#[test]
fn paused_stops_the_switch_and_the_scale_down() {
    let mut world = world();
    world.run_to("100 %", in_stage(100));
    world.run_to("the switch", |world| world.status().attempt.is_some_and(|it| it.step == Step::Promoting));
    world.edit(|object| object.spec.paused = true);
    world.run(300);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::Paused));
    world.edit(|object| object.spec.paused = false);
    world.run_to("the buffer", buffering);
    world.edit(|object| object.spec.paused = true);
    world.run(1000);
    assert_eq!((world.replicas(Color::Blue), world.phase()), (4, Phase::Paused));
    assert_eq!(world.condition("RollbackReady"), ("True".into(), "Buffered".into()));
    world.edit(|object| object.spec.paused = false);
    world.run(60);
    assert_eq!(world.replicas(Color::Blue), 0);
}

#[test]
fn a_weight_set_by_hand_obeys_capacity_and_ends_with_the_pause() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.edit(|object| {
        object.spec.paused = true;
        object.spec.manual_weight = Some(60);
    });
    world.settle();
    assert_eq!((world.green_share(), world.status().summary.weight), (60, Some(60)));
    world.set_ready(Color::Green, 3);
    world.edit(|object| object.spec.manual_weight = Some(90));
    world.run(100);
    assert_eq!((world.green_share(), world.condition("Progressing").1), (60, "CapacityShort".into()));
    assert!(world.attempt().open, "what cannot be had is no reason to go back");
    world.set_ready(Color::Green, 4);
    world.edit(|object| object.spec.manual_weight = Some(0));
    world.settle();
    assert_eq!(world.green_share(), 0);
    world.run(30);
    let before = world.attempt().stage_started_at.expect("a clock").0;
    world.edit(|object| {
        object.spec.paused = false;
        object.spec.manual_weight = None;
    });
    world.settle();
    assert_eq!(world.green_share(), 25, "the stage's own weight");
    assert!(world.attempt().stage_started_at.expect("a clock").0 > before, "its clock begins anew");
    assert!(world.attempt().evidence.iter().all(|evidence| evidence.total == 0));
    world.run_to("50 %", in_stage(50));
}

fn named(values: &[&str]) -> UsersSpec {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    UsersSpec { header: "x-user-id".into(), values }
}

#[test]
fn named_users_come_first_and_stay() {
    let mut world = world();
    world.edit(|object| {
        object.spec.stages[0].weight = 0;
        object.spec.stages[0].users = Some(named(&["alice", "bob.b"]));
        object.spec.stages[1].users = Some(named(&["carol"]));
    });
    world.named_users = true;
    world.run_to("0 %", in_stage(0));
    let header = |world: &World| {
        let canary = world.seen.canary.found().expect("a canary");
        assert_eq!(canary.annotations[names::NGINX_CANARY_HEADER], "x-user-id");
        canary.annotations[names::NGINX_CANARY_HEADER_PATTERN].clone()
    };
    assert_eq!((header(&world).as_str(), world.green_share()), (r"^(alice|bob\.b)$", 0));
    world.run_to("25 %", in_stage(25));
    assert_eq!(header(&world), r"^(alice|bob\.b|carol)$");
    world.run_to("50 %", in_stage(50));
    assert_eq!(header(&world), r"^(alice|bob\.b|carol)$", "they stay");
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.settle();
    assert!(world.seen.canary.is_missing(), "named users are back too");
}

#[test]
fn after_the_buffer_a_rollback_starts_the_old_color_and_switches_once() {
    let mut world = promoted();
    assert_eq!(world.condition("RollbackReady"), ("True".into(), "ColdStart".into()));
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.settle();
    assert_eq!((world.phase(), world.replicas(Color::Blue)), (Phase::Restoring, 4));
    let before = world.log.len();
    // its gates would fail it if they could act
    world.behavior.blue.error_share = 0.9;
    world.run_to("the switch", |world| world.backend() == "bot-blue");
    let switches = world.log[before..].iter().filter(|line| line.contains("switch")).count();
    assert_eq!(switches, 1);
    assert!(!world.log[before..].iter().any(|line| line.contains("write bot-canary")), "no stages");
    world.run(1200);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::RolledBack));
    assert_eq!(world.replicas(Color::Green), 0, "what was left is kept through the buffer, then goes");
    assert_eq!(world.attempt().id, 2, "nothing starts again by itself");
    assert_eq!(world.status().history[0].outcome, Outcome::Restored);
    assert_eq!(world.condition("RolledBack").0, "True");
    assert_eq!(world.status().summary.model, "llama@1");
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(60);
    assert_eq!(world.phase(), Phase::Stable);
}

#[test]
fn after_the_buffer_a_target_that_is_turned_back_restores_too() {
    let mut world = promoted();
    world.edit(|object| object.spec.target = Color::Blue);
    world.settle();
    assert_eq!(world.phase(), Phase::Restoring);
    world.run(1200);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::Stable));
    world.edit(|object| object.spec.target = Color::Green);
    world.run_to("what was left once is tried in stages", in_stage(5));
}

#[test]
fn restoring_can_be_called_off_and_ends_at_its_deadline() {
    let mut world = promoted();
    world.never_ready = true;
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(60);
    world.edit(|object| object.spec.target = Color::Green);
    world.run(60);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Stable));

    let mut world = promoted();
    world.never_ready = true;
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(3600);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Stable));
    assert_eq!(world.status().history[0].cause, Some(Cause::ProgressDeadlineExceeded));
    assert_eq!(world.replicas(Color::Blue), 0);
}

#[test]
fn a_second_rollback_never_sends_traffic_forward_again() {
    let mut world = promoted();
    world.annotate(names::ANNOTATION_ROLLBACK, "first");
    world.run(5);
    world.annotate(names::ANNOTATION_ROLLBACK, "second, while it starts");
    world.run_to("the buffer", buffering);
    assert_eq!(world.condition("RolledBack"), ("True".into(), "Restored".into()));
    world.run(20);
    world.annotate(names::ANNOTATION_ROLLBACK, "third, in its buffer");
    world.run(100);
    assert_eq!((world.backend().as_str(), world.told(Reason::ActIgnored)), ("bot-blue", 2));
    assert!(messages(&world, "RollbackReady").contains("set spec.target to blue and then to green"));
    // who really wants the other one says so by the target
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(5);
    world.edit(|object| object.spec.target = Color::Green);
    world.settle();
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Stable));
}

#[test]
fn what_changed_since_it_was_left_is_not_restored_but_rolled_out() {
    type Case = (&'static str, Change);
    let cases: [Case; 4] = [
        ("RollbackTargetChanged", |world| change_template(world, Color::Blue, 2)),
        ("RollbackTargetChanged", |world| {
            world.seen.colors.blue.prompt = Lookup::Found(PromptSeen { hash: "edited".into() });
        }),
        ("PromptMissing", |world| world.seen.colors.blue.prompt = Lookup::Missing),
        ("DeploymentMissing", |world| world.seen.colors.blue.deployment = Lookup::Missing),
    ];
    for (reason, change) in cases {
        let mut world = promoted();
        change(&mut world);
        world.settle();
        assert_eq!(world.condition("RollbackReady"), ("False".into(), reason.into()), "told at once, at rest");
        world.annotate(names::ANNOTATION_ROLLBACK, "x");
        world.run(120);
        assert_eq!((world.phase(), world.attempt().id), (Phase::Stable, 1), "{reason}: refused");
        assert_eq!(world.told(Reason::ActIgnored), 1);
        if reason == "RollbackTargetChanged" {
            world.edit(|object| object.spec.target = Color::Blue);
            world.run_to("an ordinary rollout in stages", |world| {
                world.status().attempt.is_some_and(|attempt| attempt.step == Step::Stage && attempt.id == 2)
            });
        }
    }
}

#[test]
fn a_switch_by_hand_and_the_act_together_end_where_the_person_put_the_traffic() {
    let mut world = promoted();
    world.scale_by("kubectl", Color::Blue, 4);
    world.main().paths[0].service = Some("bot-blue".into());
    world.annotate(names::ANNOTATION_ROLLBACK, "the operator was dead");
    world.run(1200);
    assert_eq!((world.backend().as_str(), world.status().active_color), ("bot-blue", Some(Color::Blue)));
    assert_eq!(world.object.metadata.annotations, Some([].into()));
}

#[test]
fn rollback_ready_is_true_to_the_minute() {
    let mut world = world();
    let ready = |world: &World| world.condition("RollbackReady");
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(5);
    assert_eq!(ready(&world), ("Unknown".into(), "NothingToRollBackTo".into()));
    world.edit(|object| object.spec.target = Color::Green);
    world.run_to("25 %", in_stage(25));
    assert_eq!(ready(&world), ("True".into(), "OneWrite".into()));
    world.run_to("the buffer", buffering);
    assert_eq!(ready(&world), ("True".into(), "Buffered".into()));
    world.set_ready(Color::Blue, 0);
    world.settle();
    assert_eq!(ready(&world), ("False".into(), "OldColorDown".into()));
    world.set_ready(Color::Blue, 1);
    world.run(12);
    assert_eq!(ready(&world).0, "True");
    assert!(messages(&world, "RollbackReady").contains("only 1 of 4"), "{}", messages(&world, "RollbackReady"));
    world.seen.colors.blue.prompt = Lookup::Missing;
    world.settle();
    assert_eq!(ready(&world), ("False".into(), "PromptMissing".into()));
}

#[test]
fn a_changed_color_to_go_back_to_holds_the_raise() {
    type Case = (&'static str, Change);
    let cases: [Case; 3] = [
        ("RollbackTargetChanged", |world| change_template(world, Color::Blue, 2)),
        ("RollbackTargetChanged", |world| world.deployment(Color::Blue).uid = "created anew".into()),
        ("PromptMissing", |world| world.seen.colors.blue.prompt = Lookup::Missing),
    ];
    for (reason, change) in cases {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        change(&mut world);
        world.run(200);
        assert_eq!((world.phase(), world.green_share()), (Phase::Holding, 25));
        assert_eq!(world.condition("Progressing").1, reason);
        assert_eq!(world.condition("RollbackReady"), ("False".into(), reason.into()));
    }
}

#[test]
fn a_changed_template_of_the_color_that_serves_is_told_once_and_nothing_is_written() {
    let mut world = promoted();
    let log = world.log.len();
    world.deployment(Color::Green).template_revision = "9".into();
    world.run(600);
    assert_eq!(world.told(Reason::ActiveTemplateChanged), 1);
    assert!(world.log[log..].iter().all(|line| line.contains("status")), "{:?}", &world.log[log..]);
    assert_eq!(world.log.len(), log + 1);
}

#[test]
fn a_deployment_that_is_created_anew_is_another_revision() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.deployment(Color::Green).uid = "created anew".into();
    world.settle();
    assert_eq!(world.status().history[0].cause, Some(Cause::RevisionChanged));
    assert_eq!(world.attempt().id, 2);
}

#[test]
fn a_field_that_somebody_keeps_changing_is_a_conflict_with_a_pace() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.set_ready(Color::Green, 1);
    let mut writes = vec![];
    let log = world.log.len();
    // a Git tool every three seconds, for six minutes
    for _ in 0..120 {
        world.main().paths[0].service = Some("bot-green".into());
        let before = world.log.len();
        world.settle();
        if world.log[before..].iter().any(|line| line.contains("switch")) {
            writes.push(world.now.as_second());
        }
        world.run(3);
    }
    assert!(writes[1] - writes[0] <= 6, "the first two are written back at once");
    assert!(writes.windows(2).skip(1).all(|pair| pair[1] - pair[0] >= 29), "{writes:?}");
    assert_eq!(world.told(Reason::FieldConflict), 1, "told once");
    assert!(
        world.message().contains("kubectl-edit") && world.message().contains("ignoreDifferences"),
        "{}",
        world.message()
    );
    assert_eq!(world.attempt().id, 1);
    // each round: the backend, its record, and the hold before and after
    assert!(world.log.len() - log < 80, "{} writes in six minutes", world.log.len() - log);
}

#[test]
fn nothing_is_scaled_down_while_a_conflict_lasts() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(10);
    for _ in 0..3 {
        world.set_ready(Color::Blue, 0);
        world.main().paths[0].service = Some("bot-blue".into());
        world.run(31);
        assert_eq!(world.backend(), "bot-green");
    }
    world.set_ready(Color::Blue, 4);
    let last = world.now;
    world.run(400);
    assert_eq!(world.replicas(Color::Blue), 4);
    assert!(world.message().contains("within 10 minutes"), "{}", world.message());
    world.run_to("the end", |world| world.replicas(Color::Blue) == 0);
    assert!(world.now.duration_since(last).as_secs() >= 500);
}

#[test]
fn a_switch_to_a_color_that_cannot_carry_is_undone_in_one_write() {
    let mut world = promoted();
    world.main().paths[0].service = Some("bot-blue".into());
    let log = world.log.len();
    world.settle();
    assert_eq!(world.backend(), "bot-green");
    let writes: Vec<_> = world.log[log..].iter().filter(|line| !line.contains("status")).collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!((world.told(Reason::BackendRestored), world.told(Reason::ExternalSwitch)), (1, 0));
    world.run(100);
    assert_eq!((world.phase(), world.status().active_color), (Phase::Stable, Some(Color::Green)));
}

#[test]
fn a_switch_by_hand_at_rest_to_a_color_that_can_carry_sticks() {
    let mut world = promoted();
    world.scale_by("kubectl", Color::Blue, 2);
    world.run(5);
    world.main().paths[0].service = Some("bot-blue".into());
    world.run(3600);
    assert_eq!((world.backend().as_str(), world.status().active_color), ("bot-blue", Some(Color::Blue)));
    assert_eq!((world.attempt().id, world.told(Reason::ExternalSwitch)), (1, 1));
}

#[test]
fn a_color_with_an_autoscaler_is_never_scaled_by_us() {
    let mut world = world();
    world.seen.colors.green.autoscaler = Some("green-hpa".into());
    world.seen.colors.blue.autoscaler = Some("blue-hpa".into());
    world.run(60);
    assert_eq!((world.phase(), world.replicas(Color::Green)), (Phase::Preparing, 0));
    assert!(world.message().contains("HorizontalPodAutoscaler green-hpa"), "{}", world.message());
    world.scale_by("hpa", Color::Green, 4);
    world
        .run_to("the end", |world| world.phase() == Phase::Stable && world.status().active_color == Some(Color::Green));
    world.run(60);
    assert!(!world.log.iter().any(|line| line.contains("scale")), "{:?}", world.log);
    assert_eq!(world.replicas(Color::Blue), 4);
}

#[test]
fn rollback_ready_says_who_has_to_start_the_old_color_if_it_is_not_us() {
    let mut world = promoted();
    world.seen.colors.blue.autoscaler = Some("blue-hpa".into());
    world.settle();
    assert_eq!(world.condition("RollbackReady"), ("False".into(), "OldColorDown".into()));
    assert!(messages(&world, "RollbackReady").contains("blue-hpa"));
    world.scale_by("hpa", Color::Blue, 1);
    world.settle();
    assert_eq!(world.condition("RollbackReady"), ("True".into(), "StillUp".into()));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(300);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Restoring), "one Pod cannot carry it");
    world.scale_by("hpa", Color::Blue, 4);
    world.run_to("the end", |world| world.backend() == "bot-blue");
}

#[test]
fn a_scale_down_that_somebody_undoes_is_told_once_and_not_fought() {
    let mut world = promoted();
    world.scale_by("argocd-controller", Color::Blue, 2);
    world.run(600);
    assert_eq!(world.replicas(Color::Blue), 2);
    assert_eq!(world.told(Reason::ScaleContested), 1);
    assert_eq!((world.phase(), world.condition("Ready").1), (Phase::Stable, "ScaleContested".into()));
    assert!(world.message().contains("argocd-controller"));
    world.scale_by("kubectl", Color::Blue, 0);
    world.settle();
    assert_eq!(world.condition("Ready").1, "AtTarget");
}

#[test]
fn without_shares_the_backend_is_switched_once_the_target_is_ready() {
    let mut world = plain();
    world.run_to("ready Pods", |world| world.seen.colors.green.pods.found().is_some_and(|pods| pods.ready == 4));
    let ready = world.now;
    world.run_to("the stage", in_stage(100));
    assert!(world.now.duration_since(ready).as_secs() >= 5, "the controller is given time to learn of them");
    assert_eq!(world.backend(), "bot-green");
    let began = world.now;
    world.run_to("the buffer", buffering);
    assert!(world.now.duration_since(began).as_secs() >= 60, "the stage lasts its hold");
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    assert!(world.log.iter().all(|line| !line.contains("canary") && !line.contains("anchor")), "{:?}", world.log);
}

#[test]
fn without_shares_bad_evidence_switches_back() {
    for stop in ["stage", "buffer"] {
        let mut world = plain();
        if stop == "stage" {
            world.run_to("the stage", in_stage(100));
        } else {
            world.run_to("the buffer", buffering);
        }
        world.behavior.green.error_share = 0.5;
        world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
        assert_eq!((world.backend().as_str(), world.attempt().cause), ("bot-blue", Some(Cause::GateFailed)));
        world.run(1000);
        assert_eq!(world.replicas(Color::Green), 0);
    }
}

#[test]
fn without_shares_an_approval_is_waited_for_after_the_switch() {
    let mut world = plain();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run_to("the buffer", buffering);
}

#[test]
fn without_shares_a_switch_back_by_hand_sticks() {
    let mut world = plain();
    world.run_to("the stage", in_stage(100));
    world.main().paths[0].service = Some("bot-blue".into());
    world.run(600);
    assert_eq!((world.backend().as_str(), world.attempt().cause), ("bot-blue", Some(Cause::ExternalSwitch)));
}

#[test]
fn a_declared_prompt_needs_no_reference_in_the_template() {
    let mut world = world();
    world.deployment(Color::Green).config_maps.clear();
    world.edit(|object| {
        object.spec.green.prompt_template.as_mut().expect("a prompt").binding =
            modelrollout::api::PromptBinding::Declared;
    });
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.condition("PromptBound"), ("True".into(), "Declared".into()));
    world.seen.colors.green.prompt = Lookup::Found(PromptSeen { hash: "edited".into() });
    world.settle();
    assert_eq!(world.status().history[0].cause, Some(Cause::RevisionChanged), "its content is pinned all the same");
}

#[test]
fn files_may_be_applied_in_any_order_and_nothing_is_scaled_before_they_agree() {
    let mut world = world();
    world.deployment(Color::Green).model = Some("llama@1".into());
    world.run(60);
    assert_eq!((world.phase(), world.replicas(Color::Green)), (Phase::Holding, 0));
    assert_eq!(world.condition("ModelBound"), ("False".into(), "TemplateDisagrees".into()));
    assert!(world.status().attempt.is_none());
    let green = world.deployment(Color::Green);
    green.model = Some("llama@2".into());
    green.template_revision = "2".into();
    world.run_to("the first attempt", |world| in_stage(5)(world) && world.attempt().id == 1);
}

#[test]
fn a_pruned_prompt_of_the_color_that_serves_is_told_before_it_is_left() {
    let mut world = world();
    world.seen.colors.blue.prompt = Lookup::Missing;
    world.run(60);
    assert_eq!((world.phase(), world.replicas(Color::Green)), (Phase::Holding, 0));
    assert!(world.message().contains("prompt-blue"), "{}", world.message());
}

#[test]
fn the_history_tells_the_whole_attempt_and_stays_small() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.settle();
    let entry = world.status().history[0].clone();
    assert_eq!(entry.images, ["registry.example/llama:green"]);
    assert_eq!(entry.prompt_hash.as_deref(), Some("greenhash"));
    assert!(entry.from_revision.is_some());
    assert_eq!(entry.acts.len(), 2, "{:?}", entry.acts);
    assert!(entry.gates[0].limit.contains("max 5 %") && entry.gates[0].limit.contains("3 points"), "{:?}", entry.gates);
    for n in 0..30 {
        world.run(20);
        world.deployment(Color::Green).images = (0..8).map(|i| format!("{}{n}{i}", "x".repeat(240))).collect();
        world.annotate(names::ANNOTATION_RETRY, &n.to_string());
        world.run(60);
        world.annotate(names::ANNOTATION_ROLLBACK, &"long ".repeat(60));
        world.settle();
    }
    let history = world.status().history;
    let bytes = serde_json::to_vec(&history).expect("JSON").len();
    assert!(history.len() > 2 && bytes <= 16 * 1024, "{} entries, {bytes} bytes", history.len());
}

#[test]
fn columns_and_colors_show_who_serves() {
    let mut world = world();
    world.run(5);
    assert_eq!(world.status().colors[1].role, Role::Idle);
    world.run_to("25 %", in_stage(25));
    let status = world.status();
    assert_eq!((status.summary.model.as_str(), status.summary.prompt.as_str()), ("llama@1", "v7"));
    assert_eq!((status.summary.target_model.as_str(), status.summary.stage.as_str()), ("llama@2", "2/5"));
    assert_eq!((status.colors[1].role, status.colors[1].weight, status.colors[0].weight), (Role::Canary, 25, 75));
    assert_eq!(status.idle_color, Some(Color::Green));
    world.run_to("the buffer", buffering);
    let status = world.status();
    assert_eq!((status.summary.model.as_str(), status.summary.prompt.as_str()), ("llama@2", "v8"));
}

#[test]
fn long_names_give_names_that_kubernetes_takes() {
    let mut world = world();
    let long = "b".repeat(63);
    world.object.metadata.name = Some(long.clone());
    let share = nginx::Share { to: Color::Green, weight: 5, users: None };
    let rollout = modelrollout::engine::rollout::Rollout::parse(&world.object).expect("readable");
    let want = nginx::canary(&rollout, &[world.main()], None, share);
    assert!(want.name.len() <= 253 && want.name.starts_with(&long));
}

#[test]
fn nothing_is_scaled_back_that_the_attempt_did_not_scale() {
    // the names are swapped while the target of a rollback drains
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(30);
    let colors = &mut world.seen.colors;
    std::mem::swap(&mut colors.blue.deployment, &mut colors.green.deployment);
    std::mem::swap(&mut colors.blue.pods, &mut colors.green.pods);
    world.edit(|object| {
        let spec = &mut object.spec;
        std::mem::swap(&mut spec.blue.deployment_name, &mut spec.green.deployment_name);
    });
    world.run(1200);
    assert!(!world.log.iter().any(|line| line.contains("scale") && line.ends_with(" 0")), "{:?}", world.log);
}

#[test]
fn the_old_color_is_kept_until_it_is_known_that_the_new_one_is_still_the_same() {
    let unread: Change = |world| world.seen.colors.green.prompt = Lookup::Unreadable("it is not watched yet".into());
    let unobserved: Change = |world| world.deployment(Color::Green).generation = 2;
    for (change, reason) in [(unread, "Unreadable"), (unobserved, "WaitingForReadiness")] {
        let mut world = world();
        world.run_to("the buffer", buffering);
        change(&mut world);
        world.run(3600);
        assert_eq!((world.phase(), world.replicas(Color::Blue)), (Phase::Buffering, 4));
        assert_eq!(world.condition("Progressing").1, reason, "{}", world.message());
        // it was changed meanwhile: one write goes back
        world.seen.colors.green.prompt = Lookup::Found(PromptSeen { hash: "greenhash".into() });
        world.deployment(Color::Green).generation = 2;
        world.deployment(Color::Green).observed_generation = 2;
        change_template(&mut world, Color::Green, 2);
        world.settle();
        let cause = world.status().history[0].cause;
        assert_eq!((world.backend().as_str(), cause), ("bot-blue", Some(Cause::RevisionChanged)));
        assert!(!world.log.iter().any(|line| line.contains("scale bot-blue")), "{:?}", world.log);
    }
}

#[test]
fn at_rest_it_says_that_the_color_that_serves_does_not_answer() {
    let mut world = promoted();
    let writes = world.writes;
    world.set_ready(Color::Green, 0);
    world.run(60);
    assert_eq!((world.phase(), world.condition("Ready")), (Phase::Holding, ("False".into(), "LiveNotReady".into())));
    assert!(world.message().contains("is ready (0 of 4)"), "{}", world.message());
    assert!(world.message().contains("; to go back to blue, run: kubectl annotate"), "{}", world.message());
    assert_eq!((world.writes - writes, world.told(Reason::LiveNotReady)), (1, 1), "once, and traffic is left alone");
    world.set_ready(Color::Green, 1);
    world.run(60);
    assert_eq!((world.phase(), world.condition("Ready").1), (Phase::Stable, "AtTarget".into()));

    // after a rollback, with nothing to go back to
    let mut world = self::world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(60);
    world.set_ready(Color::Blue, 0);
    world.run(1);
    assert_eq!((world.phase(), world.condition("Ready").1), (Phase::RolledBack, "LiveNotReady".into()));
    assert!(world.message().ends_with("mend its Deployment bot-blue"), "{}", world.message());
    assert_eq!(world.condition("RolledBack").0, "True");

    // taken over with a backend that names a color without Pods
    let mut world = self::world();
    world.main().paths[0].service = Some("bot-green".into());
    world.run(60);
    assert_eq!((world.phase(), world.writes), (Phase::Stable, 1), "whoever wants no Pods is told, and not warned");
    assert!(
        world.message().ends_with("its Deployment bot-green wants 0 replicas, so nobody answers"),
        "{}",
        world.message()
    );
}

#[test]
fn a_backend_is_put_right_whatever_else_does_not_fit() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(1200);
    assert_eq!((world.phase(), world.replicas(Color::Green)), (Phase::RolledBack, 0));
    world.seen.others.push(other_ingress("preview", "bot-green"));
    world.main().paths[0].service = Some("bot-green".into());
    world.settle();
    assert_eq!(world.backend(), "bot-blue", "{:?}", world.log.last());

    let mut world = promoted();
    world.add_second_ingress();
    world.named("chat").paths[0].service = Some("bot-green".into());
    world.run(5);
    world.scale_by("kubectl", Color::Blue, 4);
    world.seen.others.push(other_ingress("preview", "bot-green"));
    world.named("chat").paths[0].service = Some("bot-blue".into());
    world.run(60);
    assert_eq!((world.backend().as_str(), world.status().active_color), ("bot-blue", Some(Color::Blue)));
}

#[test]
fn a_switch_by_hand_starts_nothing_although_what_was_left_is_not_known() {
    let mut world = world();
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(60);
    world.scale_by("kubectl", Color::Green, 4);
    let prompt = std::mem::replace(&mut world.seen.colors.blue.prompt, Lookup::Unreadable("not watched".into()));
    world.main().paths[0].service = Some("bot-green".into());
    world.settle();
    world.seen.colors.blue.prompt = prompt;
    world.run(3600);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::RolledBack));
    assert!(world.status().attempt.is_none(), "nothing starts by itself");
    world.deployment(Color::Blue).template_revision = "2".into();
    world.run_to("a new version starts", |world| world.status().attempt.is_some());
}

#[test]
fn a_rollback_that_cannot_be_had_is_refused_and_can_be_asked_for_again() {
    let mut world = promoted();
    service(&mut world, Color::Blue).ports[0].number = 8080;
    world.settle();
    assert_eq!(world.condition("RollbackReady"), ("False".into(), "PortMismatch".into()));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(10);
    assert_eq!((world.told(Reason::ActIgnored), world.phase()), (1, Phase::Stable));
    service(&mut world, Color::Blue).ports[0].number = 80;
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run_to("the end", |world| world.backend() == "bot-blue");
}

#[test]
fn a_rollback_works_in_the_middle_of_a_conflict() {
    let mut world = promoted();
    for _ in 0..4 {
        world.main().paths[0].service = Some("bot-blue".into());
        world.run(5);
    }
    assert_eq!(world.condition("Ready").1, "FieldConflict");
    world.main().paths[0].service = Some("bot-blue".into());
    world.run(1);
    assert!(world.message().contains("goes to blue, which has no ready Pod"), "{}", world.message());
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.settle();
    assert_eq!(world.replicas(Color::Blue), 4, "it is started at once, whatever the pace of the conflict");
    world.run_to("the end", |world| world.backend() == "bot-blue" && world.replicas(Color::Blue) == 4);
}

#[test]
fn a_backend_that_is_switched_before_a_restored_color_answers_is_put_back() {
    for two in [false, true] {
        let mut world = promoted();
        if two {
            world.add_second_ingress();
            world.named("chat").paths[0].service = Some("bot-green".into());
        }
        world.annotate(names::ANNOTATION_ROLLBACK, "x");
        world.run(5);
        world.main().paths[0].service = Some("bot-blue".into());
        world.settle();
        assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Restoring));
        assert_eq!(world.told(Reason::BackendRestored), 1);
        world.run_to("the end", |world| world.backend() == "bot-blue");
        assert_eq!(world.attempt().id, 2);
    }
}

#[test]
fn without_shares_a_rollback_that_was_not_recorded_is_not_undone() {
    let mut world = plain();
    world.run_to("the stage", in_stage(100));
    world.set_ready(Color::Blue, 3);
    world.behavior.green.error_share = 0.5;
    world.fail_after = Some("switch bot to bot-blue");
    world.run_to("the rollback", |world| world.log.iter().any(|line| line.contains("FAILED")));
    world.seen.readings.clear();
    world.behavior.green.error_share = 0.0;
    world.run(600);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn the_command_that_a_hold_prints_works() {
    // approved early, samples still missing when the hold is over
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.rate = 0.5;
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run_to("a hold", |world| world.phase() == Phase::Holding);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.settle();
    assert!(in_stage(25)(&world), "{}", world.message());
    // a stage whose weight was edited while it ran
    let mut world = self::world();
    world.edit(|object| object.spec.stages[1].approval = Some(Approval::Required));
    world.run_to("25 %", in_stage(25));
    world.edit(|object| object.spec.stages[1].weight = 30);
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    world.annotate(names::ANNOTATION_APPROVE, "1/2");
    world.settle();
    assert!(in_stage(30)(&world), "{}", world.message());
}

#[test]
fn a_write_of_ours_that_fails_for_long_is_nobodys_drift() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    for _ in 0..6 {
        world.fail_after = Some("weight Some(25)");
        world.run_to("the failure", |world| {
            world.log.last().is_some_and(|line| line.contains("FAILED")) || in_stage(25)(world)
        });
        world.now += k8s_openapi::jiff::SignedDuration::from_secs(5);
    }
    world.run_to("50 %", in_stage(50));
    assert_eq!((world.told(Reason::CanaryRestored), world.told(Reason::FieldConflict)), (0, 0));
    assert!(world.status().drift.is_empty());
}

#[test]
fn evidence_of_other_gates_is_void_in_the_buffer_too() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(30);
    assert!(world.attempt().evidence.iter().any(|evidence| evidence.total > 0));
    world.edit(|object| object.spec.gates[0].error_rate.as_mut().expect("errors").total = "other".into());
    let plan = modelrollout::engine::plan(&world.object, &world.seen, world.now);
    assert!(plan.need.gates.expect("gates").resume.is_empty());
}

#[test]
fn an_ingress_that_is_created_anew_in_the_buffer_undoes_no_promotion() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(30);
    let main = world.seen.ingresses.insert("bot".into(), Lookup::Missing);
    world.run(20);
    assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "IngressMissing".into()));
    world.seen.ingresses.insert("bot".into(), main.expect("it was there"));
    world.main().uid = "another".into();
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    assert_eq!(world.backend(), "bot-green");
}

#[test]
fn a_target_is_scaled_back_once_what_hinders_it_is_over() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(10);
    world.seen.colors.green.autoscaler = Some("hpa".into());
    world.run(1200);
    assert_eq!(world.replicas(Color::Green), 4);
    world.seen.colors.green.autoscaler = None;
    world.run(10);
    assert_eq!(world.replicas(Color::Green), 0);
}

#[test]
fn a_foreign_anchor_is_told_and_waited_for() {
    let mut world = world();
    world.run_to("100 %", in_stage(100));
    world.run(30);
    world.seen.anchor = owned_by(None, "bot-anchor");
    world.run(300);
    assert_eq!((world.backend().as_str(), world.condition("Progressing").1.as_str()), ("bot-blue", "NameTaken"));
    assert!(world.message().contains("bot-anchor"), "{}", world.message());
    world.seen.anchor = Lookup::Missing;
    world.run_to("the buffer", buffering);
}

#[test]
fn a_path_that_no_canary_can_carry_holds_the_raise() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.main().paths[0].path_type = "ImplementationSpecific".into();
    world.run(200);
    assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "UnsupportedPath".into()));
    let canary = world.seen.canary.found().expect("a canary");
    assert_eq!(canary.paths[0].path_type, "Prefix", "it is not copied into ours");
}

#[test]
fn a_git_tool_that_sets_the_target_to_zero_is_answered_at_a_pace() {
    let mut world = world();
    world.never_ready = true;
    world.run(5);
    let before = world.log.len();
    for _ in 0..40 {
        world.scale_by("argocd-controller", Color::Green, 0);
        world.run(3);
    }
    let scales = world.log[before..].iter().filter(|line| line.contains("scale bot-green")).count();
    assert!(scales <= 5, "{scales} in two minutes");
}

#[test]
fn a_change_of_the_old_color_that_is_undone_holds_no_longer() {
    let mut world = world();
    world.run_to("50 %", in_stage(50));
    change_template(&mut world, Color::Blue, 2);
    world.run(200);
    assert_eq!(world.condition("Progressing").1, "RollbackTargetChanged");
    // somebody merely scales it: what is not observed is not unchanged
    world.deployment(Color::Blue).generation += 1;
    world.run(60);
    assert!(in_stage(50)(&world), "{}", world.message());
    world.deployment(Color::Blue).observed_generation += 1;
    world.run(20);
    assert!(in_stage(50)(&world));
    change_template(&mut world, Color::Blue, 1);
    world.run_to("the raise", in_stage(75));

    let mut world = promoted();
    change_template(&mut world, Color::Blue, 2);
    world.settle();
    assert_eq!(world.condition("RollbackReady"), ("False".into(), "RollbackTargetChanged".into()));
    change_template(&mut world, Color::Blue, 1);
    world.settle();
    assert_eq!(world.condition("RollbackReady"), ("True".into(), "ColdStart".into()));
}

#[test]
fn a_watch_that_has_just_begun_is_no_news_but_one_that_never_answers_is() {
    let mut world = world();
    world.seen.colors.green.prompt = Lookup::Unreadable(NOT_YET.into());
    world.run(4);
    assert_eq!(world.writes, 0, "{:?}", world.log);
    world.seen.colors.green.prompt = Lookup::Unreadable("a right is missing".into());
    world.run(10);
    assert_eq!((world.phase(), world.condition("Ready").1), (Phase::Holding, "Unreadable".into()));
}

#[test]
fn a_live_color_whose_deployment_is_gone_can_be_left() {
    // at rest
    let mut world = promoted();
    world.seen.colors.green.deployment = Lookup::Missing;
    world.seen.colors.green.pods = Lookup::Missing;
    world.seen.colors.green.endpoints = Lookup::Found(0);
    world.annotate(names::ANNOTATION_ROLLBACK, "somebody deleted it");
    world.run_to("blue serves", |world| world.backend() == "bot-blue");
    assert_eq!(world.replicas(Color::Blue), 4, "as many as the color that is gone had");
    // in a stage
    let mut world = self::world();
    world.run_to("25 %", in_stage(25));
    world.seen.colors.blue.deployment = Lookup::Missing;
    world.seen.colors.blue.pods = Lookup::Missing;
    world.seen.colors.blue.endpoints = Lookup::Found(0);
    world.run(100);
    assert_eq!(world.condition("Progressing").1, "LiveNotReady");
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run_to("the buffer", buffering);
}

#[test]
fn traffic_on_a_dead_color_is_put_right_although_an_ingress_is_broken_too() {
    let mut world = promoted();
    world.main().paths[0].service = Some("bot-blue".into());
    world.main().paths[0].path_type = "ImplementationSpecific".into();
    world.settle();
    assert_eq!(world.backend(), "bot-green");
    let mut world = self::world();
    world.add_second_ingress();
    world.never_ready = true;
    world.run(5);
    world.seen.ingresses.insert("chat".into(), Lookup::Missing);
    world.main().paths[0].service = Some("bot-green".into());
    world.settle();
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn a_share_is_lowered_by_hand_whatever_path_no_canary_can_carry() {
    let mut world = world();
    world.run_to("50 %", in_stage(50));
    world.main().paths[0].path_type = "ImplementationSpecific".into();
    world.edit(|object| {
        object.spec.paused = true;
        object.spec.manual_weight = Some(0);
    });
    world.settle();
    assert_eq!(world.green_share(), 0);
    assert_eq!(world.seen.canary.found().expect("a canary").paths[0].path_type, "Prefix");
}

#[test]
fn a_share_is_lowered_by_hand_on_the_controller_that_has_it() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("50 %", in_stage(50));
    let before = world.seen.canary.found().expect("a canary").clone();
    // of two classes: no canary can be right for both
    world.main().class = Some("another".into());
    world.main().tls.push(TlsSeen { hosts: vec!["new.example".into()], secret_name: None });
    world.edit(|object| {
        object.spec.paused = true;
        object.spec.manual_weight = Some(10);
    });
    world.settle();
    let canary = world.seen.canary.found().expect("a canary");
    assert_eq!((world.green_share(), canary.class.as_deref()), (10, Some("nginx")));
    assert_eq!((&canary.tls, &canary.paths), (&before.tls, &before.paths));
}

#[test]
fn a_webhook_that_changes_our_canary_is_a_conflict_and_no_busy_loop() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    let before = world.writes;
    for _ in 0..40 {
        if let Lookup::Found(canary) = &mut world.seen.canary {
            canary.annotations.insert("nginx.ingress.kubernetes.io/added".into(), "true".into());
        }
        world.run(1);
    }
    assert!(world.writes - before < 20, "{} writes in 40 s", world.writes - before);
    assert_eq!(world.condition("Progressing").1, "FieldConflict");
}

#[test]
fn what_a_restore_left_stays_left_although_it_was_not_known() {
    let mut world = promoted();
    let prompt = std::mem::replace(&mut world.seen.colors.green.prompt, Lookup::Missing);
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run_to("blue serves", |world| world.backend() == "bot-blue");
    world.run(1200);
    world.seen.colors.green.prompt = prompt;
    world.run(600);
    assert_eq!((world.backend().as_str(), world.attempt().id), ("bot-blue", 2));
}

/// A Service that is the backend of an older Ingress gets 0 % as a canary, and says nothing (kubernetes/ingress-nginx#9458).
#[test]
fn the_anchor_never_names_the_service_of_the_canary() {
    let mut world = world();
    let mut both = 0;
    for _ in 0..3600 {
        world.run(1);
        let services = |seen: &Lookup<IngressSeen>| -> Vec<String> {
            seen.found().into_iter().flat_map(|it| &it.paths).filter_map(|path| path.service.clone()).collect()
        };
        let (canary, anchor) = (services(&world.seen.canary), services(&world.seen.anchor));
        both += usize::from(!canary.is_empty() && !anchor.is_empty());
        assert!(canary.iter().all(|service| !anchor.contains(service)), "{canary:?} {anchor:?}");
        if buffering(&world) {
            break;
        }
    }
    assert!(both > 0, "both were there at once: {both}");
}
