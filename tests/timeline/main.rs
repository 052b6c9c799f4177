//! Whole rollouts under virtual time, in milliseconds: what a user sees, and what must never happen at any write.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::type_complexity
)]

mod acts;
mod details;
mod edges;
mod evidence;
mod faults;
mod gates;
mod kept;
mod recovery;
mod stories;
mod story;
mod world;

use k8s_openapi::jiff::SignedDuration;
use modelrollout::api::reasons::{Cause, Outcome, Phase, Reason, Step};
use modelrollout::api::{Color, names};
use modelrollout::engine::observed::{Lookup, PromptSeen};
use world::{World, at, main_ingress};

pub const SPEC: &str = r#"
  blue: {deploymentName: bot-blue, serviceName: bot-blue, model: {name: llama, version: "1"}, promptTemplate: {configMapName: prompt-blue, version: v7}}
  green: {deploymentName: bot-green, serviceName: bot-green, model: {name: llama, version: "2"}, promptTemplate: {configMapName: prompt-green, version: v8}}
  target: green
  traffic: {ingress: {names: [bot], controller: nginx}}
  stages:
  - {weight: 5, hold: 1m}
  - {weight: 25, hold: 1m}
  - {weight: 50, hold: 1m}
  - {weight: 75, hold: 1m}
  - {weight: 100, hold: 1m}
  gates:
  - name: errors
    errorRate: {bad: 'b{service="{{service}}"}', total: 't{service="{{service}}"}', max: 5%, maxIncrease: 3%}
  - name: p99
    latency: {histogram: 'h{service="{{service}}"}', quantile: "0.99", max: 5s}
    minSamples: 100
  rollback: {buffer: 5m}
"#;

fn world() -> World {
    World::new(SPEC)
}

fn in_stage(weight: i32) -> impl Fn(&World) -> bool {
    move |world| {
        world.status().attempt.is_some_and(|attempt| attempt.step == Step::Stage && attempt.weight_intended == weight)
    }
}

fn buffering(world: &World) -> bool {
    world.phase() == Phase::Buffering
}

#[test]
fn a_healthy_target_is_promoted_and_the_old_color_is_scaled_to_zero() {
    let mut world = world();
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.run(30);
    assert_eq!(world.backend(), "bot-green");
    assert!(world.seen.canary.is_missing() && world.seen.anchor.is_missing());
    assert_eq!(world.object.metadata.finalizers, None);
    let status = world.status();
    assert_eq!(status.active_color, Some(Color::Green));
    assert_eq!(status.history[0].outcome, Outcome::Promoted);
    assert_eq!(status.summary.model, "llama@2");
    assert_eq!(status.summary.prompt, "v8");
    assert_eq!(world.condition("Ready"), ("True".into(), "AtTarget".into()));
    assert_eq!(world.told(Reason::StageStarted), 5);
    assert_eq!(world.told(Reason::Promoted), 1);
}

#[test]
fn a_promotion_of_five_stages_keeps_the_budget_of_writes() {
    let mut world = World::new(SPEC.split("  gates:").next().expect("a spec"));
    world.edit(|object| object.spec.rollback.buffer = "5m".into());
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.run(60);
    assert!(world.writes <= 24, "{} writes:\n{}", world.writes, world.log.join("\n"));
}

#[test]
fn weights_rise_in_order_and_each_stage_lasts_its_hold() {
    let mut world = world();
    for (weight, next) in [(5, 25), (25, 50), (50, 75), (75, 100)] {
        world.run_to("the stage", in_stage(weight));
        let began = world.now;
        world.run_to("the next stage", in_stage(next));
        assert!(world.now.duration_since(began).as_secs() >= 60 + 5);
    }
}

#[test]
fn errors_send_traffic_back_in_the_same_pass() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.behavior.green.error_share = 0.2;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    assert_eq!(world.green_share(), 0);
    assert_eq!(world.attempt().cause, Some(Cause::GateFailed));
    let delete = world.log.iter().position(|line| line.contains("delete bot-canary")).expect("the delete");
    assert!(world.log[delete + 1].contains("RollingBack"), "traffic first, then status");
    world.run(3600);
    assert_eq!(world.green_share(), 0, "nothing starts again by itself");
    assert_eq!(world.replicas(Color::Green), 0, "green is back to the replicas it had");
    assert_eq!(world.object.metadata.finalizers, None);
    assert_eq!(world.condition("RolledBack").0, "True");
}

#[test]
fn one_rollback_takes_at_most_five_writes() {
    let mut world = world();
    world.run_to("50 %", in_stage(50));
    let before = world.log.len();
    world.behavior.green.slow_share = 0.5;
    world.edit(|object| {
        object.spec.gates[1].latency.as_mut().expect("latency").max = Some(modelrollout::api::LatencyText("1s".into()));
    });
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    world.run(3600);
    let after = world.log.iter().skip(before).position(|line| line.contains("delete bot-canary")).expect("the delete");
    let writes = &world.log[before + after..];
    assert!(writes.len() <= 5, "{writes:#?}");
}

#[test]
fn a_rollback_in_the_buffer_is_one_write_of_the_ingress() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(30);
    assert!(world.seen.canary.is_missing());
    world.behavior.green.error_share = 0.5;
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    assert_eq!(world.backend(), "bot-blue");
    assert_eq!(world.status().active_color, Some(Color::Blue));
    assert_eq!(world.replicas(Color::Blue), 4, "the old color was kept");
    world.run(600);
    assert!(world.seen.anchor.is_missing());
}

#[test]
fn no_data_holds_and_goes_on_when_it_is_back() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.metrics_up = false;
    world.run(600);
    assert_eq!(world.phase(), Phase::Holding);
    assert_eq!(world.condition("Progressing"), ("False".into(), "QueryFailed".into()));
    assert_eq!(world.green_share(), 25);
    world.metrics_up = true;
    world.run(5);
    assert!(in_stage(50)(&world) || in_stage(25)(&world));
    world.run_to("50 %", in_stage(50));
}

#[test]
fn too_few_samples_hold_and_say_how_many_are_missing() {
    let mut world = world();
    // about one request a second at 5 %
    world.rate = 12.0;
    world.run(200);
    assert_eq!(world.phase(), Phase::Holding);
    let message = world.message();
    assert!(message.contains("of 500 requests so far; at this rate about "), "{message}");
    let gate = &world.status().gates[0];
    let left = gate.eta.as_ref().expect("an ETA").0.duration_since(world.now).as_secs();
    assert!((250..400).contains(&left), "{left} s for {:?} of 500", gate.samples);
}

#[test]
fn the_last_stage_compares_with_all_that_was_counted_of_the_other_color() {
    let mut world = world();
    world.edit(|object| {
        object.spec.stages.drain(..2);
        object.spec.stages.remove(1);
    });
    // just enough for a verdict, but half of it is not settled when the stage ends
    world.rate = 4.0;
    world.unsettled = 60;
    world.run_to("50 %", in_stage(50));
    let settled = |world: &World| {
        let evidence = world.attempt().evidence.into_iter().find(|it| it.gate == "errors" && it.color == Color::Blue);
        evidence.map_or(0, |it| it.total)
    };
    let (mut before, end) = (0, world.now + SignedDuration::from_mins(10));
    while in_stage(50)(&world) {
        assert!(world.now < end, "the stage does not end");
        before = settled(&world);
        world.run(1);
    }
    let kept = world.attempt().baseline.iter().find(|it| it.gate == "errors").expect("a baseline").total;
    assert!(kept >= before + 60, "{kept} kept, {before} settled");
    world.run_to("the last stage", in_stage(100));
    world.run(160);
    assert_eq!(world.phase(), Phase::Buffering, "{}", world.message());
}

#[test]
fn a_comparison_that_can_never_be_had_does_not_hold_for_ever() {
    let mut world = world();
    world.run_to("75 %", in_stage(75));
    world.run(60);
    world.edit(|object| object.spec.stages[3].hold = "1s".into());
    world.run_to("the last stage", in_stage(100));
    let kept = world.attempt().baseline[0].total;
    world.edit(|object| object.spec.gates[0].min_samples = Some(kept + 1));
    world.run_to("the buffer", buffering);
}

#[test]
fn a_target_that_is_never_ready_ends_the_attempt_and_no_traffic_moves() {
    let mut world = world();
    world.never_ready = true;
    world.run(1000);
    assert_eq!(world.phase(), Phase::Preparing);
    world.run_to("the deadline", |world| world.phase() == Phase::RolledBack);
    assert_eq!(world.attempt().cause, Some(Cause::ProgressDeadlineExceeded));
    assert!(!world.log.iter().any(|line| line.contains("canary") || line.contains("switch")));
    assert_eq!(world.status().history[0].outcome, Outcome::Aborted);
    world.run(3000);
    assert_eq!(world.replicas(Color::Green), 0);
}

#[test]
fn zero_ready_pods_send_traffic_back_at_once_and_too_few_after_30_seconds() {
    let mut world = world();
    world.run_to("50 %", in_stage(50));
    world.set_ready(Color::Green, 0);
    world.settle();
    assert_eq!((world.green_share(), world.attempt().cause), (0, Some(Cause::ReadinessLost)));

    let mut world = self::world();
    world.run_to("50 %", in_stage(50));
    world.set_ready(Color::Green, 1);
    world.run(28);
    assert_eq!((world.green_share(), world.phase()), (50, Phase::Holding));
    world.run(4);
    assert_eq!(world.green_share(), 0);
}

#[test]
fn a_short_dip_of_readiness_only_holds() {
    let mut world = world();
    world.run_to("50 %", in_stage(50));
    world.set_ready(Color::Green, 1);
    world.run(20);
    world.set_ready(Color::Green, 4);
    world.run(60);
    assert!(world.attempt().open && world.attempt().short_since.is_none());
}

#[test]
fn one_drained_node_does_not_undo_a_promotion() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.set_ready(Color::Green, 2);
    world.run(100);
    assert_eq!(world.backend(), "bot-green");
    world.set_ready(Color::Green, 1);
    world.run(40);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn going_back_waits_for_a_color_that_can_carry_the_traffic() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(20);
    world.set_ready(Color::Blue, 0);
    world.annotate(names::ANNOTATION_ROLLBACK, "bad answers");
    world.run(60);
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-green", Phase::RollingBack));
    assert_eq!(world.told(Reason::RollbackBlocked), 1);
    world.set_ready(Color::Blue, 4);
    world.settle();
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::RolledBack));
}

#[test]
fn an_approval_is_waited_for_and_a_stale_one_does_nothing() {
    let mut world = world();
    world.edit(|object| object.spec.stages[1].approval = Some(modelrollout::api::Approval::Required));
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    assert!(world.message().contains("modelrollout.dev/approve=1/2"), "{}", world.message());
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run(120);
    assert_eq!(world.phase(), Phase::AwaitingApproval);
    assert_eq!(world.told(Reason::ActIgnored), 1);
    assert_eq!(world.object.metadata.annotations, Some([].into()), "an act is removed");
    world.annotate(names::ANNOTATION_APPROVE, "1/2");
    world.settle();
    assert!(in_stage(50)(&world), "{}", world.message());
    assert_eq!(world.status().acts.len(), 2);
}

#[test]
fn an_approval_that_came_a_stage_too_early_works_when_it_is_given_again() {
    let mut world = world();
    world.edit(|object| object.spec.stages[1].approval = Some(modelrollout::api::Approval::Required));
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/2");
    world.run_to("the approval", |world| world.phase() == Phase::AwaitingApproval);
    assert_eq!(world.told(Reason::ActIgnored), 1);
    world.annotate(names::ANNOTATION_APPROVE, "1/2");
    world.settle();
    assert!(in_stage(50)(&world));
}

#[test]
fn a_rollback_whose_status_could_not_be_written_is_not_forgotten() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.behavior.green.error_share = 0.5;
    world.fail_after = Some("delete bot-canary");
    world.run_to("the rollback", |world| world.phase() == Phase::RolledBack);
    let delete = world.log.iter().position(|line| line.contains("delete bot-canary")).expect("the delete");
    assert!(world.log[delete + 1].contains("FAILED"), "{:?}", world.log);
    assert!(world.log[delete..].iter().all(|line| !line.contains("write bot-canary")), "{:#?}", &world.log[delete..]);
    assert_eq!(world.attempt().cause, Some(Cause::GateFailed));
}

#[test]
fn a_canary_that_is_gone_after_a_restart_comes_back_only_when_the_gates_were_read() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.seen.canary = Lookup::Missing;
    world.seen.readings.clear();
    let plan = modelrollout::engine::plan(&world.object, &world.seen, world.now);
    assert!(plan.actions.is_empty() && plan.need.gates.is_some());
    world.settle();
    assert_eq!(world.green_share(), 25);
}

#[test]
fn a_rollback_that_is_asked_for_does_not_wait_for_the_last_pod() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(20);
    world.set_ready(Color::Blue, 1);
    world.annotate(names::ANNOTATION_ROLLBACK, "bad answers");
    world.settle();
    assert_eq!((world.backend().as_str(), world.phase()), ("bot-blue", Phase::RolledBack));
}

#[test]
fn a_way_back_that_could_not_be_recorded_is_blamed_on_nobody_else() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(10);
    // the write of the traffic went through, that of the status did not, and what was judged is forgotten
    let now = world.now;
    let main = world.main();
    main.paths[0].service = Some("bot-blue".into());
    main.rules_by_us = Some(now);
    world.settle();
    assert_eq!(world.attempt().cause, Some(Cause::ExternalSwitch));
    assert!(world.message().contains("the operator itself, which went back"), "{}", world.message());
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn a_switch_back_by_hand_in_the_buffer_sticks_with_any_ready_pod() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.run(20);
    world.set_ready(Color::Blue, 3);
    world.main().paths[0].service = Some("bot-blue".into());
    world.run(600);
    assert_eq!(world.backend(), "bot-blue");
    assert_eq!(world.attempt().cause, Some(Cause::ExternalSwitch));
}

#[test]
fn a_gate_that_a_stage_leaves_out_keeps_what_it_is_compared_with() {
    let mut world = world();
    world.edit(|object| object.spec.stages[3].gates = Some(vec!["p99".into()]));
    world.run_to("the last stage", in_stage(100));
    assert!(world.attempt().baseline.iter().any(|kept| kept.gate == "errors" && kept.total > 100));
}

#[test]
fn a_gate_that_is_added_to_the_running_stage_is_asked_for() {
    let mut world = world();
    world.edit(|object| object.spec.stages[1].gates = Some(vec!["p99".into()]));
    world.run_to("25 %", in_stage(25));
    let key = |world: &mut World| world.settle().need.gates.expect("gates").key;
    let before = key(&mut world);
    world.edit(|object| object.spec.stages[1].gates = None);
    assert_ne!(key(&mut world), before);
}

#[test]
fn scaling_what_was_rolled_back_is_not_taken_for_something_new() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(400);
    let writes = world.writes;
    world.deployment(Color::Green).generation += 1;
    world.settle();
    assert_eq!((world.phase(), world.writes), (Phase::RolledBack, writes));
}

#[test]
fn an_approval_may_come_before_the_hold_ends() {
    let mut world = world();
    world.edit(|object| object.spec.stages[0].approval = Some(modelrollout::api::Approval::Required));
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_APPROVE, "1/1");
    world.run(30);
    assert!(in_stage(5)(&world), "the hold is kept");
    world.run_to("25 %", in_stage(25));
}

#[test]
fn the_act_rollback_works_in_a_stage_and_in_the_buffer() {
    for stop in [5, 75] {
        let mut world = world();
        world.run_to("the stage", in_stage(stop));
        world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
        world.settle();
        assert_eq!((world.green_share(), world.attempt().cause), (0, Some(Cause::RollbackRequested)));
        world.run(1000);
        assert_eq!(world.green_share(), 0);
    }
    let mut world = world();
    world.run_to("the buffer", buffering);
    world.annotate(names::ANNOTATION_ROLLBACK, "complaints");
    world.settle();
    assert_eq!(world.backend(), "bot-blue");
    world.run(1000);
    assert_eq!(world.backend(), "bot-blue");
}

#[test]
fn retry_tries_the_same_revision_again_once_and_tells_of_a_used_token() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(60);
    world.annotate(names::ANNOTATION_RETRY, "t1");
    world.run_to("the second attempt", |world| world.attempt().id == 2 && in_stage(5)(world));
    world.annotate(names::ANNOTATION_ROLLBACK, "y");
    world.run(60);
    world.annotate(names::ANNOTATION_RETRY, "t1");
    world.run(60);
    assert_eq!(world.attempt().id, 2, "the same token runs once");
    assert_eq!(world.told(Reason::ActIgnored), 1, "and that is told");
}

#[test]
fn target_turned_back_before_promotion_and_in_the_buffer() {
    for stop in ["stage", "buffer"] {
        let mut world = world();
        if stop == "stage" {
            world.run_to("50 %", in_stage(50));
        } else {
            world.run_to("the buffer", buffering);
        }
        world.edit(|object| object.spec.target = Color::Blue);
        world.settle();
        assert_eq!((world.backend().as_str(), world.green_share()), ("bot-blue", 0));
        assert_eq!(world.attempt().cause, Some(Cause::TargetTurnedBack));
        world.run(900);
        assert_eq!(world.phase(), Phase::Stable);
        assert_eq!(world.status().failed_revision, None);
        world.edit(|object| object.spec.target = Color::Green);
        world.run_to("target left and came back", |world| world.attempt().id == 2 && in_stage(5)(world));
    }
}

#[test]
fn a_changed_revision_ends_the_attempt_and_starts_a_new_one() {
    let mut world = world();
    world.run_to("50 %", in_stage(50));
    world.seen.colors.green.prompt = Lookup::Found(PromptSeen { hash: "edited".into() });
    world.settle();
    assert_eq!(world.green_share(), 5, "back to all on blue, then the first stage of the next attempt");
    assert_eq!(world.attempt().id, 2);
    assert!(world.log.iter().any(|line| line.contains("delete bot-canary")));
    assert_eq!(world.status().history[0].cause, Some(Cause::RevisionChanged));
}

#[test]
fn a_failed_revision_is_not_tried_again_by_edits_of_the_schedule() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(60);
    world.edit(|object| object.spec.stages[0].hold = "2m".into());
    world.run(600);
    assert_eq!(world.attempt().id, 1);
}

#[test]
fn model_and_prompt_must_agree_before_anything_moves() {
    let mut world = world();
    world.deployment(Color::Green).model = Some("llama@1".into());
    world.run(120);
    assert_eq!((world.phase(), world.green_share()), (Phase::Holding, 0));
    assert_eq!(world.condition("ModelBound"), ("False".into(), "TemplateDisagrees".into()));
    world.deployment(Color::Green).model = Some("llama@2".into());
    world.deployment(Color::Green).config_maps.clear();
    world.run(300);
    assert_eq!((world.phase(), world.replicas(Color::Green), world.green_share()), (Phase::Holding, 0, 0));
    assert_eq!(world.condition("PromptBound"), ("False".into(), "PromptNotReferenced".into()));
    world.deployment(Color::Green).config_maps = ["prompt-green".to_owned()].into();
    world.run_to("5 %", in_stage(5));
}

#[test]
fn a_missing_prompt_waits_and_says_so() {
    let mut world = world();
    world.seen.colors.green.prompt = Lookup::Missing;
    world.run(300);
    assert_eq!((world.phase(), world.green_share()), (Phase::Holding, 0));
    assert_eq!(world.condition("PromptBound"), ("False".into(), "PromptMissing".into()));
    assert_eq!(world.writes, 1, "only the status: {:?}", world.log);
}

#[test]
fn a_changed_and_a_deleted_canary_are_put_back() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(20);
    world.set_weight_by("kubectl-edit", "90");
    world.settle();
    assert_eq!(world.green_share(), 25);
    world.run(20);
    world.seen.canary = Lookup::Missing;
    world.settle();
    assert_eq!(world.green_share(), 25);
    assert_eq!(world.told(Reason::CanaryRestored), 2);
    world.run_to("50 %", in_stage(50));
}

#[test]
fn what_is_missing_becomes_a_condition_and_no_write() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 7] = [
        ("ServiceMissing", |world| world.seen.colors.green.service = Lookup::Missing),
        ("DeploymentMissing", |world| world.seen.colors.green.deployment = Lookup::Missing),
        ("IngressMissing", |world| drop(world.seen.ingresses.insert("bot".into(), Lookup::Missing))),
        ("BackendMismatch", |world| *world.main() = main_ingress("other")),
        ("Conflict", |world| world.seen.elder = Some("elder".into())),
        ("UnsupportedPath", |world| world.main().paths[0].path_type = "ImplementationSpecific".into()),
        ("UnsupportedPath", |world| world.main().paths[0].path = Some("/a;return 200".into())),
    ];
    for (reason, change) in cases {
        let mut world = world();
        change(&mut world);
        world.run(120);
        assert_eq!(world.condition("Preflight"), ("False".into(), reason.into()));
        assert_eq!(world.phase(), Phase::Invalid, "{reason}");
        assert_eq!(world.writes, 1, "{reason}: only the status: {:?}", world.log);
        assert!(world.message().len() > 20);
    }
}

#[test]
fn what_cannot_be_read_is_no_finding() {
    let mut world = world();
    world.seen.ingresses.insert("bot".into(), Lookup::Unreadable("not synced yet".into()));
    world.run(60);
    assert_eq!((world.writes, world.notes.len()), (0, 0));
    let mut world = self::world();
    world.run_to("25 %", in_stage(25));
    world.seen.colors.green.pods = Lookup::Unreadable("watch lost".into());
    world.run(3600);
    assert_eq!(world.green_share(), 25, "held: neither raised nor sent back");
}

#[test]
fn what_was_rolled_back_stays_that_while_the_prompt_is_not_read_yet() {
    let mut world = world();
    world.run_to("5 %", in_stage(5));
    world.annotate(names::ANNOTATION_ROLLBACK, "x");
    world.run(600);
    let (writes, prompt) = (world.writes, world.seen.colors.green.prompt.clone());
    world.seen.colors.green.prompt = Lookup::Unreadable("not synced yet".into());
    world.run(10);
    world.seen.colors.green.prompt = prompt;
    world.run(10);
    assert_eq!((world.phase(), world.writes), (Phase::RolledBack, writes), "{:?}", world.log);
}

#[test]
fn an_object_whose_target_serves_already_writes_nothing_but_its_status() {
    let mut world = world();
    world.edit(|object| object.spec.target = Color::Blue);
    world.run(3600);
    assert_eq!((world.writes, world.phase()), (1, Phase::Stable));
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn a_missing_standby_matters_only_to_the_next_rollout() {
    let mut world = world();
    world.edit(|object| object.spec.target = Color::Blue);
    world.seen.colors.green.deployment = Lookup::Missing;
    world.run(60);
    assert_eq!((world.phase(), world.condition("Ready").0), (Phase::Stable, "True".into()));
    assert_eq!(world.condition("Preflight"), ("False".into(), "StandbyMissing".into()));
}

#[test]
fn at_rest_nothing_is_written_for_ten_hours() {
    let mut world = world();
    world.run_to("the end", |world| world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0);
    world.run(60);
    let writes = world.writes;
    for _ in 0..600 {
        world.now += SignedDuration::from_secs(60);
        let plan = world.settle();
        // the prompts are watched, so that `RollbackReady` is true at all times
        let need = modelrollout::engine::plan::Need { prompts: Color::BOTH.into(), ..Default::default() };
        assert_eq!((plan.wake, plan.need), (None, need));
    }
    assert_eq!(world.writes, writes);
}

#[test]
fn deletion_at_every_moment_leaves_traffic_whole() {
    for seconds in (0..1100).step_by(7) {
        let mut world = world();
        world.tick = 11;
        world.run(seconds);
        let backend = world.backend();
        world.delete();
        if world.object.metadata.finalizers.is_none() {
            continue;
        }
        world.run(60);
        assert!(world.gone, "the finalizer ends, at {seconds}");
        assert_eq!(world.backend(), backend, "the backend stays where it was");
        assert!(world.seen.canary.is_missing() && world.seen.anchor.is_missing());
        assert!(world.green_share() == 0 || backend == "bot-green");
    }
}

#[test]
fn a_switch_by_hand_sticks_if_the_color_can_carry_the_traffic() {
    let mut world = world();
    world.run_to("75 %", in_stage(75));
    world.main().paths[0].service = Some("bot-green".into());
    world.settle();
    assert_eq!(world.status().active_color, Some(Color::Green));
    world.run(600);
    assert_eq!(world.backend(), "bot-green");
    assert_eq!(world.replicas(Color::Blue), 4, "nothing is scaled down");

    let mut world = self::world();
    world.run_to("5 %", in_stage(5));
    world.set_ready(Color::Green, 1);
    world.main().paths[0].service = Some("bot-green".into());
    world.settle();
    assert_eq!(world.backend(), "bot-blue", "one Pod cannot carry what four did");
    assert_eq!(world.told(Reason::BackendRestored), 1);
}

#[test]
fn edits_of_stages_and_gates_in_mid_attempt_keep_the_share() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.edit(|object| {
        object.spec.stages.remove(1);
        object.spec.stages[1].weight = 60;
    });
    world.run(10);
    assert_eq!(world.green_share(), 25);
    world.run_to("the smallest new share above it", in_stage(60));
    let began = world.attempt().stage_started_at.expect("a clock").0;
    world.run(20);
    world.edit(|object| object.spec.gates[0].min_samples = Some(50));
    world.settle();
    assert!(world.attempt().stage_started_at.expect("a clock").0 > began, "evidence by other settings is void");
    assert_eq!(world.green_share(), 60);
}

#[test]
fn the_buffer_can_be_made_longer_while_it_runs() {
    let mut world = world();
    world.run_to("the buffer", buffering);
    let start = world.attempt().buffer_started_at.expect("a start").0;
    world.edit(|object| object.spec.rollback.buffer = "20m".into());
    world.run(600);
    assert_eq!((world.phase(), world.replicas(Color::Blue)), (Phase::Buffering, 4));
    assert_eq!(world.attempt().buffer_ends_at.expect("an end").0.duration_since(start).as_secs(), 1200);
}

#[test]
fn a_clock_that_goes_back_raises_nothing() {
    let mut world = world();
    world.run_to("25 %", in_stage(25));
    world.run(30);
    world.now = at(0);
    let plan = modelrollout::engine::plan(&world.object, &world.seen, world.now);
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
}
