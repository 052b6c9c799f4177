//! What single comparisons decide. Each of these tests was written for a small mutant that lived (`cargo mutants`).

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use modelrollout::api::reasons::{Cause, ConditionType, JobOutcome, Outcome, Phase, Reason, Step, Verdict};
use modelrollout::api::{AfterBuffer, Approval, Attempt, Color, ModelRollout, PrepareReplicas, names};
use modelrollout::engine::observed::*;
use modelrollout::engine::plan::IngressWant;

use super::edges::{change_template, promoted};
use super::world::{World, color_mut, main_ingress};
use super::{buffering, in_stage, world};

#[test]
fn a_rollback_after_a_switch_by_hand_is_recorded_as_what_it_is() {
    let mut world = promoted();
    world.scale_by("kubectl", Color::Blue, 4);
    world.main().paths[0].service = Some("bot-blue".into());
    world.annotate(names::ANNOTATION_ROLLBACK, "the operator was dead");
    world.settle();
    let effect = world.status().acts[0].effect.clone();
    assert!(effect.contains("the backend names blue already"), "{effect}");
}

#[test]
fn a_canary_that_goes_in_the_first_stage_was_deleted_by_somebody() {
    let mut world = world();
    world.run_to("evidence on record", |world| {
        world.status().attempt.is_some_and(|attempt| attempt.evidence.iter().any(|evidence| evidence.total > 0))
    });
    assert_eq!((world.attempt().step, world.attempt().stage_index), (Step::Stage, 0));
    world.seen.canary = Lookup::Missing;
    world.run(5);
    assert_eq!((world.told(Reason::CanaryRestored), world.green_share()), (1, 5));
}

/// What somebody may change of an Ingress of ours.
const TAMPERED: [fn(&mut IngressSeen); 12] = [
    |seen| seen.class = None,
    |seen| drop(seen.annotations.insert("more".into(), "of it".into())),
    |seen| drop(seen.annotations.insert(names::NGINX_CANARY_WEIGHT.into(), "100".into())),
    |seen| {
        seen.annotations.remove(names::NGINX_CANARY);
        seen.annotations.insert("more".into(), "of it".into());
    },
    |seen| seen.tls.clear(),
    |seen| seen.default_backend = Some("else".into()),
    |seen| seen.paths.push(seen.paths[0].clone()),
    |seen| seen.paths[0].host = None,
    |seen| seen.paths[0].path = Some("/v1".into()),
    |seen| seen.paths[0].path_type = "Exact".into(),
    |seen| seen.paths[0].service = Some("else".into()),
    |seen| seen.paths[0].port = Some(PortSeen::Number(81)),
];

#[test]
fn whatever_is_changed_of_an_ingress_of_ours_is_seen() {
    let mut world = world();
    world.add_second_ingress();
    world.run_to("25 %", in_stage(25));
    let seen = world.seen.canary.found().unwrap().clone();
    let want = IngressWant {
        name: seen.name.clone(),
        replaces: None,
        class: None,
        annotations: seen.annotations.clone().into_iter().collect(),
        paths: Vec::new(),
        tls: Vec::new(),
        required: true,
    };
    let want = want.with_paths_of(&seen);
    assert!(want.matches(&seen));
    for (index, tamper) in TAMPERED.iter().enumerate() {
        let mut other = seen.clone();
        tamper(&mut other);
        assert!(!want.matches(&other), "number {index} goes unseen");
    }
}

#[test]
fn an_approval_whose_removal_is_lost_counts_once_and_passes_over_nothing() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(Approval::Required));
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.fail_at = Some(world.writes + 2);
    world.run_to("25 %", in_stage(25));
    assert!(world.log.iter().any(|line| line.starts_with("RemoveAct") && line.ends_with("FAILED")), "{:?}", world.log);
    assert_eq!(world.object.metadata.annotations, Some([].into()));
    assert_eq!(world.told(Reason::ApprovedWithoutEvidence), 0);
    let effects: Vec<_> = world.status().acts.into_iter().map(|act| act.effect).collect();
    assert_eq!(effects, ["ActApplied: stage 1 may be left when its hold is over and its gates pass"]);
}

#[test]
fn a_target_that_somebody_else_has_to_start_is_waited_for_with_the_command() {
    let mut world = world();
    world.edit(|object| object.spec.prepare.replicas = PrepareReplicas::Leave);
    world.run(60);
    assert_eq!(world.condition("Progressing").1, "WaitingForReadiness");
    assert!(world.message().contains("kubectl"), "{}", world.message());
    assert_eq!(world.replicas(Color::Green), 0);
}

#[test]
fn who_serves_may_be_unknown_from_the_start_and_who_comes_may_not() {
    let mut world = world();
    world.deployment(Color::Blue).generation += 1;
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.attempt().from_revision, None);
    world.deployment(Color::Green).generation += 1;
    world.run(600);
    assert_eq!((world.green_share(), world.condition("Progressing").1), (5, "WaitingForReadiness".into()));
    world.deployment(Color::Green).observed_generation += 1;
    world.run_to("25 %", in_stage(25));
}

#[test]
fn a_mere_change_of_the_target_goes_back_when_the_old_color_is_whole_and_not_before() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.set_ready(Color::Blue, 1);
    change_template(&mut world, Color::Green, 7);
    world.run(60);
    assert_eq!(world.backend(), "bot-green");
    assert!(world.message().contains("1 ready Pods"), "{}", world.message());
    world.set_ready(Color::Blue, 4);
    world.run(5);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn a_canary_with_its_weight_is_put_right_although_nobody_can_be_asked() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(30);
    world.metrics_up = false;
    world.run(5);
    let Lookup::Found(canary) = &mut world.seen.canary else { panic!("no canary") };
    canary.paths[0].path = Some("/v1".into());
    canary.managers.insert(0, "kubectl-edit".into());
    world.run(5);
    assert_eq!(world.seen.canary.found().unwrap().paths[0].path.as_deref(), Some("/"));
    assert_eq!(world.told(Reason::CanaryRestored), 1);
}

#[test]
fn an_approval_of_a_stage_that_is_over_is_refused_with_the_command_however_late() {
    let mut world = world();
    world.edit(|object| {
        object.spec.stages[0].approval = Some(Approval::Required);
        object.spec.stages[1].hold = "30m".into();
    });
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run_to("25 %", in_stage(25));
    world.run(300);
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.settle();
    let effect = world.status().acts[0].effect.clone();
    assert!(effect.starts_with("ActIgnored") && effect.contains("modelrollout.dev/approve=1/2"), "{effect}");
    assert_eq!(world.object.metadata.annotations, Some([].into()));
}

#[test]
fn where_nobody_answers_on_either_side_the_old_color_that_lost_its_pods_gets_the_traffic() {
    for ours in [ReplicasBy::Others, ReplicasBy::Operator, ReplicasBy::Unknown] {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        world.deployment(Color::Blue).replicas_by = ours;
        world.set_ready(Color::Blue, 0);
        world.set_ready(Color::Green, 0);
        world.run(5);
        assert_eq!((world.green_share(), world.phase()), (0, Phase::RolledBack), "{}", world.message());
    }
}

#[test]
fn a_rollback_whose_removal_fails_for_long_is_no_word_on_the_next_attempt() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "they complain");
    world.run(300);
    // it could not be removed until now, and cannot be again
    world.annotate(names::ANNOTATION_ROLLBACK, "they complain");
    world.annotate(names::ANNOTATION_RETRY, "again");
    world.fail_at = Some(world.writes + 3);
    world.run_to("the next attempt", in_stage(5));
    let failed = world.log.iter().filter(|line| line.ends_with("FAILED")).cloned().collect::<Vec<_>>();
    assert!(matches!(&failed[..], [line] if line.contains("dev/rollback")), "{failed:?}");
    assert_eq!((world.attempt().id, world.object.metadata.annotations.clone()), (2, Some([].into())));
}

/// The Pods of `color` as somebody sees them who was away until after every deadline.
fn away(world: &mut World, color: Color) {
    let side = color_mut(&mut world.seen.colors, color);
    (side.pods, side.endpoints) = (Lookup::Unreadable(NOT_YET.into()), Lookup::Unreadable(NOT_YET.into()));
    world.never_ready = true;
    world.now += SignedDuration::from_hours(1);
    world.settle();
    assert!(world.message().contains("its Pods are not read yet"), "{}", world.message());
}

#[test]
fn who_was_away_until_the_deadline_looks_before_it_says_that_a_color_was_not_ready() {
    let started = |ready: i32| {
        let mut world = world();
        world.run(5);
        away(&mut world, Color::Green);
        assert_eq!((world.phase(), world.attempt().open), (Phase::Preparing, true));
        world.set_ready(Color::Green, ready);
        world
    };
    started(4).run_to("a stage", in_stage(5));
    let mut late = started(0);
    late.run_to("the end", |world| !world.attempt().open);
    assert_eq!(late.attempt().cause, Some(Cause::ProgressDeadlineExceeded));

    let mut world = promoted();
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.run(5);
    away(&mut world, Color::Blue);
    assert_eq!((world.phase(), world.attempt().open), (Phase::Restoring, true));
    world.set_ready(Color::Blue, 4);
    world.run_to("the switch back", |world| world.backend() == "bot-blue");
}

#[test]
fn a_target_gets_as_many_replicas_as_its_shares_are_held_for() {
    let mut world = world();
    world.settle();
    // the scale-up is lost, and somebody scales the active color down meanwhile
    world.scale_by(names::MANAGER_SCALE, Color::Green, 0);
    world.scale_by("kubectl", Color::Blue, 2);
    world.run_to("the buffer", buffering);
    assert_eq!(world.replicas(Color::Green), 4);
}

#[test]
fn what_was_left_by_hand_counts_as_rolled_back() {
    let mut world = promoted();
    world.scale_by("kubectl", Color::Blue, 4);
    world.main().paths[0].service = Some("bot-blue".into());
    world.run(60);
    assert_eq!(world.phase(), Phase::RolledBack);
    assert_eq!(world.condition("RolledBack"), ("True".into(), "RolledBack".into()));
}

#[test]
fn a_rollback_that_is_under_way_is_not_refused_when_its_removal_was_lost() {
    let mut world = promoted();
    world.never_ready = true;
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.run(120);
    assert_eq!(world.phase(), Phase::Restoring);
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.settle();
    assert_eq!((world.told(Reason::ActIgnored), world.status().acts.len()), (0, 1));
    assert_eq!(world.object.metadata.annotations, Some([].into()));
}

#[test]
fn a_canary_that_is_still_to_come_in_the_first_stage_is_nobodys_doing_and_in_a_later_one_it_is() {
    for (weight, told) in [(5, 0), (25, 1)] {
        let mut world = world();
        world.run_to("the stage", in_stage(weight));
        world.rate = 0.0;
        world.seen.canary = Lookup::Missing;
        world.now += SignedDuration::from_secs(100);
        if let Some(status) = &mut world.object.status {
            status.attempt.as_mut().unwrap().evidence.clear();
        }
        world.run(5);
        assert_eq!((world.told(Reason::CanaryRestored), world.green_share()), (told, weight));
    }
}

#[test]
fn with_less_than_all_that_it_wants_a_target_goes_as_far_as_that_carries() {
    let mut world = world();
    world.edit(|object| object.spec.prepare.replicas = PrepareReplicas::Leave);
    world.scale_by("kubectl", Color::Green, 4);
    world.set_ready(Color::Green, 2);
    world.run_to("50 %", in_stage(50));
    world.run(300);
    assert_eq!((world.green_share(), world.condition("Progressing").1), (50, "CapacityShort".into()));
}

#[test]
fn streams_need_45_seconds_between_the_sleep_and_the_end_of_the_grace_period() {
    for (grace, told) in [(55, 0), (54, 1)] {
        let mut world = world();
        world.deployment(Color::Green).shutdown = Shutdown { grace_seconds: grace, pre_stop: true, sleep_seconds: 10 };
        world.run(60);
        assert_eq!(world.told(Reason::ShutdownTooShort), told, "{grace} s");
    }
}

#[test]
fn an_ingress_for_the_same_paths_that_is_no_canary_is_nobodys_problem() {
    for (canary, path, told) in [
        (None, "/", "True"),
        (Some("false"), "/", "True"),
        (Some("true"), "/docs", "True"),
        (Some("true"), "/", "False"),
    ] {
        let mut world = world();
        let mut other = main_ingress("something");
        other.name = "theirs".into();
        other.paths[0].path = Some(path.into());
        other.annotations.extend(canary.map(|value| (names::NGINX_CANARY.into(), value.into())));
        world.seen.others.push(other);
        world.run(60);
        assert_eq!(world.condition("Preflight").0, told, "{canary:?} {path}");
    }
}

#[test]
fn who_is_switched_to_by_hand_in_a_stage_was_promoted() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.main().paths[0].service = Some("bot-green".into());
    world.run(5);
    let last = world.status().history[0].clone();
    assert_eq!((last.outcome, last.cause), (Outcome::Promoted, Some(Cause::ExternalSwitch)));
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Stable));
}

#[test]
fn a_switch_by_hand_back_to_the_color_that_was_kept_needs_one_pod_and_one_forward_all() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.set_ready(Color::Blue, 1);
    world.main().paths[0].service = Some("bot-blue".into());
    world.run(60);
    assert_eq!((world.backend().as_str(), world.told(Reason::ExternalSwitch)), ("bot-blue", 1));

    let mut world = super::world();
    world.run_to("25 %", in_stage(25));
    world.set_ready(Color::Green, 1);
    world.main().paths[0].service = Some("bot-green".into());
    world.run(2);
    assert_eq!((world.backend().as_str(), world.told(Reason::ExternalSwitch)), ("bot-blue", 0));
}

#[test]
fn one_pod_of_a_color_that_is_restored_is_enough_when_the_other_one_has_none() {
    let mut world = promoted();
    world.load_time = Duration::from_hours(1);
    world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
    world.run(60);
    world.set_ready(Color::Blue, 1);
    world.run(60);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::Restoring));
    world.set_ready(Color::Green, 0);
    world.run(30);
    assert_eq!(world.backend(), "bot-blue", "{}", world.message());
}

#[test]
fn samples_that_were_passed_over_end_no_stage_at_the_longest_hold() {
    for passed_over in [false, true] {
        let mut world = world();
        world.rate = 4.0;
        world.edit(|object| {
            object.spec.prepare.replicas = PrepareReplicas::Leave;
            object.spec.gates[0].max_hold = Some("10m".into());
            object.spec.stages[0].approval = Some(Approval::Required);
            object.spec.stages.remove(1);
        });
        // the share of the next stage needs two Pods, so the stage stays all the same
        world.scale_by("kubectl", Color::Green, 1);
        world.run_to("5 %", in_stage(5));
        world.run(300);
        if passed_over {
            world.annotate(names::ANNOTATION_APPROVE, "1/1");
            world.run(5);
            assert_eq!(world.told(Reason::ApprovedWithoutEvidence), 1, "{}", world.message());
        }
        world.run(900);
        let cause = world.attempt().cause;
        assert_eq!(cause == Some(Cause::MaxHoldExceeded), !passed_over, "{cause:?} {}", world.message());
        assert_eq!(in_stage(5)(&world), passed_over);
    }
}

#[test]
fn no_job_is_on_record_once_all_traffic_has_moved() {
    let mut world = super::gates::with_job();
    world.run_to("the Job", |world| !world.jobs.is_empty());
    let name = world.jobs[0].name.clone();
    assert!(!world.attempt().jobs.is_empty());
    world.end_job(&name, JobOutcome::Succeeded);
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run_to("the buffer", buffering);
    world.run(5);
    assert_eq!(world.attempt().jobs, []);
}

#[test]
fn an_old_color_that_somebody_scales_when_the_buffer_is_over_stays_as_they_want_it() {
    for (late, manager, replicas) in [(-60, "kubectl-edit", 0), (5, "kubectl-edit", 6), (5, names::MANAGER_SCALE, 0)] {
        let mut world = world();
        world.run_to("the buffer", buffering);
        // nobody has looked since the end
        world.now = world.attempt().buffer_ends_at.unwrap().0 + SignedDuration::from_secs(late);
        world.scale_by(manager, Color::Blue, 6);
        let now = world.now;
        world.deployment(Color::Blue).replicas_written = Some(Written { manager: manager.into(), at: now });
        world.run(600);
        assert_eq!(world.replicas(Color::Blue), replicas, "{manager} {late} s after the end");
        assert_eq!(world.phase(), Phase::Stable);
    }
}

#[test]
fn pods_that_a_scale_down_may_take_away_are_not_gone_back_to() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(60);
    world.scale_by("kubectl-scale", Color::Blue, 0);
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run(1);
    assert_eq!((world.phase(), world.replicas(Color::Blue)), (Phase::RollingBack, 4));
    // the Pods of before are still there, and its controller has yet to look
    world.deployment(Color::Blue).generation += 1;
    world.set_ready(Color::Blue, 4);
    world.run(5);
    assert_eq!(world.backend(), "bot-green");
    world.deployment(Color::Blue).observed_generation += 1;
    world.run(1);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn whoever_is_scaled_by_somebody_else_is_gone_back_to_as_soon_as_pods_are_ready() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.set_ready(Color::Blue, 0);
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run(1);
    assert_eq!(world.phase(), Phase::RollingBack);
    world.scale_by("argocd", Color::Blue, 4);
    world.deployment(Color::Blue).generation += 1;
    world.run(1);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn where_nobody_answers_a_changed_target_waits_for_the_color_that_is_being_started() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.scale_by("kubectl-scale", Color::Blue, 0);
    world.set_ready(Color::Green, 0);
    change_template(&mut world, Color::Green, 7);
    world.run(5);
    assert_eq!((world.backend().as_str(), world.attempt().cause), ("bot-green", Some(Cause::RevisionChanged)));
    world.run(30);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn that_other_ingresses_follow_is_said_where_there_are_others() {
    for others in [false, true] {
        let mut world = world();
        if others {
            world.add_second_ingress();
        }
        world.run_to("the buffer", buffering);
        world.run(20);
        world.main().paths[0].service = Some("bot-blue".into());
        world.settle();
        let told = world.notes.iter().find(|note| note.reason == Reason::ExternalSwitch).unwrap();
        assert_eq!(told.message.contains("the other Ingresses follow"), others, "{}", told.message);
    }
}

#[test]
fn a_job_is_ended_as_soon_as_its_attempt_goes_back() {
    let mut world = super::gates::with_job();
    world.run_to("the Job", |world| !world.jobs.is_empty());
    world.set_ready(Color::Blue, 0);
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.run(5);
    assert_eq!(world.phase(), Phase::RollingBack);
    assert_eq!((world.attempt().jobs, world.seen.jobs.clone()), (vec![], Lookup::Found([].into())));
}

#[test]
fn of_two_gates_that_fail_at_once_the_first_is_the_cause() {
    let mut world = world();
    super::gates::gates(
        &mut world,
        "[{name: score, value: {query: a, max: 0.5}}, {name: drift, value: {query: b, max: 0.5}}]",
    );
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    let failed = world.status().history[0].gates.iter().filter(|gate| gate.verdict == Verdict::Fail).count();
    let message = world.attempt().cause_message.unwrap();
    assert!(failed == 2 && message.starts_with("gate score: "), "{failed} {message}");
}

#[test]
fn a_cause_of_any_length_fits_into_the_status_with_the_time_that_belongs_to_it() {
    let mut world = world();
    super::gates::set(&mut world, 0, "maxHold: 10m");
    world.metrics_error = "too much ".repeat(300);
    world.run_to("25 %", in_stage(25));
    world.metrics_up = false;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    let message = world.attempt().cause_message.unwrap();
    assert!(message.contains(": rolled back at ") && message.ends_with(" UTC"), "{message}");
    assert!(message.chars().count() <= 1024, "{}", message.chars().count());
}

#[test]
fn a_target_that_was_not_scaled_up_is_not_drained() {
    let mut world = world();
    world.scale_by("kubectl", Color::Green, 4);
    world.run_to("25 %", in_stage(25));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    assert_eq!(world.attempt().drain_until, None);
    world.run(900);
    assert_eq!(world.replicas(Color::Green), 4);
}

#[test]
fn a_template_whose_number_is_not_there_for_a_moment_has_not_changed() {
    let mut world = promoted();
    let number = std::mem::take(&mut world.deployment(Color::Green).template_revision);
    world.run(30);
    world.deployment(Color::Green).template_revision = number;
    world.run(30);
    assert_eq!(world.told(Reason::ActiveTemplateChanged), 0);
}

#[test]
fn that_nobody_answers_is_told_at_rest_although_an_attempt_has_waited_for_the_same() {
    let mut world = world();
    world.run(5);
    world.set_ready(Color::Blue, 0);
    world.run(60);
    assert_eq!((world.phase(), world.condition("Progressing").1), (Phase::Holding, "LiveNotReady".into()));
    let told = world.told(Reason::LiveNotReady);
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(60);
    assert!(!world.attempt().open);
    assert_eq!((world.condition("Ready").1, world.told(Reason::LiveNotReady) - told), ("LiveNotReady".into(), 1));
}

#[test]
fn what_was_counted_of_the_other_color_stays_while_it_cannot_be_asked() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(30);
    let of = |attempt: &Attempt| {
        let one = attempt.evidence.iter().filter(|evidence| evidence.gate == "errors");
        one.map(|evidence| (evidence.color, evidence.total)).collect::<Vec<_>>()
    };
    let [(Color::Green, _), (Color::Blue, counted)] = of(&world.attempt())[..] else { panic!("both colors") };
    let Answer::Counted { baseline, .. } = &mut world.seen.readings.get_mut("errors").unwrap().answer else {
        panic!("counts")
    };
    *baseline = Some(Err((Reason::QueryFailed, "too large".into())));
    world.now += SignedDuration::from_secs(10);
    let now = of(&world.look().attempt.unwrap());
    assert!(matches!(now[..], [(Color::Green, _), (Color::Blue, total)] if total == counted), "{now:?} {counted}");
}

#[test]
fn what_cannot_be_read_in_a_stage_is_a_condition() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.seen.colors.green.deployment = Lookup::Unreadable("forbidden".into());
    world.run(5);
    assert_eq!(world.condition("ModelBound"), ("Unknown".into(), "Unreadable".into()));
}

#[test]
fn no_attempt_begins_while_the_prompt_to_come_back_to_cannot_be_read() {
    let mut world = world();
    world.seen.colors.blue.prompt = Lookup::Unreadable("forbidden".into());
    world.run(60);
    assert!(world.status().attempt.is_none() && world.message().contains("forbidden"), "{}", world.message());
    world.seen.colors.blue.prompt = Lookup::Found(PromptSeen { hash: "bluehash".into() });
    world.run_to("5 %", in_stage(5));
}

#[test]
fn a_class_that_is_given_by_the_annotation_goes_for_ours_too() {
    let mut world = world();
    let main = world.main();
    main.class = None;
    main.annotations.insert(names::ANNOTATION_INGRESS_CLASS.into(), "nginx".into());
    world.run_to("5 %", in_stage(5));
    let canary = world.seen.canary.found().unwrap();
    assert_eq!(
        (canary.class.as_deref(), canary.annotations[names::ANNOTATION_INGRESS_CLASS].as_str()),
        (None, "nginx")
    );
}

#[test]
fn who_scaled_the_target_before_the_attempt_is_not_contesting_it() {
    let mut world = world();
    world.scale_by("argocd", Color::Green, 0);
    world.now += SignedDuration::from_secs(5);
    world.settle();
    assert_eq!(world.replicas(Color::Green), 4);
    world.now += SignedDuration::from_secs(5);
    world.scale_by("argocd", Color::Green, 0);
    world.run(20);
    assert!(
        world.replicas(Color::Green) == 0 && world.message().contains("argocd set its replicas"),
        "{}",
        world.message()
    );
    world.run(40);
    assert_eq!(world.replicas(Color::Green), 4);
}

#[test]
fn a_switch_of_the_backend_is_put_right_beside_what_does_not_fit() {
    for service in [Lookup::Missing, Lookup::Unreadable("forbidden".into())] {
        let mut world = promoted();
        let unreadable = matches!(service, Lookup::Unreadable(_));
        world.seen.colors.blue.service = service;
        world.edit(|object| object.spec.target = Color::Blue);
        world.main().paths[0].service = Some("bot-blue".into());
        world.settle();
        assert_eq!((world.backend().as_str(), world.told(Reason::BackendRestored)), ("bot-green", 1));
        assert!(unreadable || world.condition("Preflight").0 == "False");
    }
}

#[test]
fn while_an_ingress_of_ours_cannot_be_read_a_stage_holds_and_says_which() {
    let hides: [fn(&mut World) -> &mut Lookup<IngressSeen>; 2] =
        [|world| &mut world.seen.canary, |world| &mut world.seen.anchor];
    for hide in hides {
        let mut world = world();
        world.run_to("25 %", in_stage(25));
        let before = world.log.len();
        *hide(&mut world) = Lookup::Unreadable("forbidden".into());
        world.run(300);
        assert_eq!(world.condition("Progressing"), ("False".into(), "Unreadable".into()));
        assert!(
            world.message().starts_with("Ingress ") && world.message().contains("forbidden"),
            "{}",
            world.message()
        );
        assert!(world.log[before..].iter().all(|line| line.contains(" status ")), "{:?}", &world.log[before..]);
    }
}

#[test]
fn colors_that_share_a_deployment_or_a_service_are_invalid_each() {
    let shares: [fn(&mut ModelRollout); 2] = [
        |object| object.spec.green.deployment_name = "bot-blue".into(),
        |object| object.spec.green.service_name = "bot-blue".into(),
    ];
    for (index, share) in shares.into_iter().enumerate() {
        let mut world = world();
        world.edit(share);
        world.run(30);
        assert_eq!(world.phase(), Phase::Invalid, "number {index}");
        assert!(world.message().contains("another Deployment and another Service"), "{}", world.message());
    }
}

#[test]
fn a_live_color_that_answers_nobody_holds_the_first_share_unless_all_is_asked_for() {
    let mut world = world();
    world.set_ready(Color::Blue, 0);
    world.run(60);
    assert_eq!((world.condition("Progressing").1.as_str(), world.green_share()), ("LiveNotReady", 0));
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run_to("the switch", |world| world.backend() == "bot-green");
}

#[test]
fn all_traffic_at_once_needs_all_pods() {
    let mut world = world();
    world.edit(|object| object.spec.prepare.replicas = PrepareReplicas::Leave);
    world.scale_by("kubectl", Color::Green, 2);
    world.set_ready(Color::Green, 0);
    world.run(5);
    world.annotate(names::ANNOTATION_PROMOTE, "1");
    world.run(5);
    world.set_ready(Color::Green, 2);
    world.run(60);
    assert_eq!((world.backend().as_str(), world.condition("Progressing").1), ("bot-blue", "CapacityShort".into()));
    assert!(world.seen.canary.is_missing() && world.seen.anchor.is_missing());
}

#[test]
fn an_old_color_that_is_not_the_operators_to_scale_is_not_contested() {
    let theirs: [fn(&mut World); 2] = [
        |world| world.seen.colors.blue.autoscaler = Some("bot-blue".into()),
        |world| world.edit(|object| object.spec.rollback.after_buffer = AfterBuffer::Leave),
    ];
    for (index, theirs) in theirs.into_iter().enumerate() {
        let mut world = world();
        theirs(&mut world);
        world.run_to("the end", |world| world.phase() == Phase::Stable);
        world.run(60);
        assert_eq!(
            (world.replicas(Color::Blue), world.condition("Ready").1.as_str()),
            (4, "AtTarget"),
            "number {index}"
        );
    }
}

#[test]
fn every_condition_is_of_the_generation_that_was_looked_at() {
    let mut world = promoted();
    world.edit(|object| object.spec.rollback.buffer = "6m".into());
    world.run(30);
    let generation = world.object.metadata.generation;
    for condition in world.status().conditions {
        assert_eq!(condition.observed_generation, generation, "{}", condition.type_);
    }
    let kinds: Vec<_> = world.status().conditions.into_iter().map(|condition| condition.type_).collect();
    let order: Vec<_> =
        ConditionType::ALL.iter().map(|kind| kind.as_str()).filter(|kind| kinds.iter().any(|it| it == kind)).collect();
    assert_eq!(kinds, order);
}

#[test]
fn a_stage_that_runs_keeps_its_settings_when_another_one_is_put_before_it() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.edit(|object| {
        object.spec.stages[1].approval = Some(Approval::Required);
        object.spec.stages.insert(1, serde_yaml::from_str("{weight: 10, hold: 1m}").unwrap());
    });
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    assert_eq!(world.green_share(), 25);
}

#[test]
fn a_week_is_a_duration_and_so_are_99999_seconds() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].hold = "99999s".into());
    world.run(5);
    assert_eq!(world.phase(), Phase::Preparing, "{}", world.message());
    world.edit(|object| object.spec.stages[0].hold = "168h".into());
    world.run_to("5 %", in_stage(5));
    world.edit(|object| object.spec.stages[0].hold = "168h1s".into());
    world.run(5);
    assert!(world.message().contains("168h"), "{}", world.message());
}

#[test]
fn a_port_that_is_missing_is_told_with_the_path_that_needs_it() {
    let mut world = world();
    let Lookup::Found(service) = &mut world.seen.colors.green.service else { panic!("a Service") };
    service.ports[0].number = 8080;
    world.run(30);
    assert_eq!(world.condition("Preflight").1, "PortMismatch");
    let place = "has no port 80, which path \"/\" of host \"bot.example\" in Ingress bot names";
    assert!(world.message().contains(place), "{}", world.message());
}

#[test]
fn a_color_that_has_no_share_left_holds_nothing_when_it_dies() {
    let mut world = world();
    world.run_to("100 %", in_stage(100));
    world.set_ready(Color::Blue, 0);
    world.run_to("the buffer", buffering);
    assert_eq!(world.backend(), "bot-green");
}

#[test]
fn a_gate_that_counts_no_requests_is_not_told_that_it_needs_more() {
    let mut world = world();
    super::gates::gates(&mut world, "[{name: score, value: {query: score, max: 5}}]");
    world.run_to("5 %", in_stage(5));
    assert_eq!(world.condition("Preflight"), ("True".into(), "Passed".into()));
}
