//! Whole rollouts, each with everything that was decided in it: the writes, the Events, every field of the status, what was
//! watched and asked, and when. A change of any of it shows in `stories/`, to be read and agreed to in the same commit:
//! `STORIES=write cargo test -p modelrollout --test timeline stories` writes them anew.

use std::path::Path;

use modelrollout::api::reasons::{JobOutcome, Phase};
use modelrollout::api::{Approval, Color, ControllerDialect, names};
use modelrollout::engine::observed::{Lookup, PodsSeen};

use super::gates::{gates, judge_template};
use super::story::Story;
use super::world::{World, color_mut};
use super::{SPEC, buffering, in_stage, world};

/// Compares what happens in `act` with the file of that name.
fn tells(name: &str, mut world: World, act: impl Fn(&mut World)) {
    world.story = Some(Story::new());
    act(&mut world);
    let text = world.story.unwrap().lines.join("\n") + "\n";
    // the crates that have these tests are in different folders
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|one| one.join("tests/timeline/stories"));
    let file = folder.into_iter().find(|one| one.is_dir()).unwrap().join(format!("{name}.txt"));
    if std::env::var_os("STORIES").is_some() {
        return std::fs::write(file, text).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = known.lines().zip(text.lines()).position(|(one, other)| one != other);
    let at = differs.unwrap_or_else(|| known.lines().count().min(text.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(nothing)").to_owned();
    assert!(known == text, "{name}, line {}: it was\n{}\nand is\n{}", at + 1, line(&known), line(&text));
}

/// Stages are few and looks are rare, so that the story is short.
fn short() -> World {
    let mut world = world();
    world.tick = 5;
    world.edit(|object| {
        object.spec.stages.drain(1..4);
    });
    world
}

/// The same, which has come to this.
fn after(what: impl Fn(&World) -> bool) -> World {
    let mut world = short();
    world.run_to("where the story begins", what);
    world
}

fn done(world: &World) -> bool {
    world.phase() == Phase::Stable && world.replicas(Color::Blue) == 0
}

#[test]
fn a_promotion() {
    tells("promotion", short(), |world| {
        world.run_to("the end", done);
        world.run(60);
    });
}

#[test]
fn two_ingresses() {
    tells("two-ingresses", short(), |world| {
        world.add_second_ingress();
        world.run_to("the buffer", buffering);
        world.behavior.green.error_share = 0.3;
        world.run(600);
    });
}

#[test]
fn errors_and_another_try() {
    tells("errors", after(in_stage(5)), |world| {
        world.behavior.green.error_share = 0.3;
        world.run(600);
        world.annotate(names::ANNOTATION_RETRY, "once");
        world.behavior.green.error_share = 0.0;
        world.run_to("the end", done);
    });
}

#[test]
fn slow_answers() {
    tells("slow", short(), |world| {
        world.edit(|object| drop(object.spec.stages.remove(0)));
        gates(
            world,
            r#"[{name: errors, minSamples: 100, errorRate: {bad: 'b{service="{{service}}"}', total: 't{service="{{service}}"}', maxIncrease: 20%}},
                {name: p99, minSamples: 200, latency: {histogram: 'h{service="{{service}}"}', quantile: "0.9", max: 5s, maxRatio: 2}}]"#,
        );
        world.run_to("the last stage", in_stage(100));
        world.behavior.green.slow_share = 0.4;
        world.run(600);
    });
}

#[test]
fn few_requests_and_acts() {
    tells("few", short(), |world| {
        world.edit(|object| {
            object.spec.stages[0].approval = Some(Approval::Required);
            object.spec.gates[1].max_hold = Some("10m".into());
        });
        world.rate = 3.0;
        world.run_to("a stage", in_stage(5));
        world.annotate(names::ANNOTATION_APPROVE, "1/7");
        world.run(100);
        world.annotate(names::ANNOTATION_APPROVE, "1/1");
        world.run_to("the last stage", in_stage(100));
        world.annotate("modelrollout.dev/aprove", "1/2");
        world.run(100);
        world.annotate(names::ANNOTATION_PROMOTE, "1");
        world.run_to("the buffer", buffering);
        world.annotate(names::ANNOTATION_ROLLBACK, "they complain");
        world.run(600);
    });
}

#[test]
fn prometheus_is_away() {
    tells("away", after(in_stage(5)), |world| {
        world.edit(|object| object.spec.gates[1].max_hold = Some("3m".into()));
        world.run(20);
        world.metrics_up = false;
        world.run(120);
        world.metrics_up = true;
        world.run_to("the last stage", in_stage(100));
        world.metrics_up = false;
        world.run(600);
    });
}

#[test]
fn capacity_and_readiness() {
    tells("capacity", after(in_stage(5)), |world| {
        world.edit(|object| object.spec.stages.insert(1, serde_yaml::from_str("{weight: 50, hold: 1m}").unwrap()));
        world.set_ready(Color::Green, 1);
        world.run(200);
        world.set_ready(Color::Green, 4);
        world.run_to("half", in_stage(50));
        world.set_ready(Color::Green, 1);
        world.run(100);
        world.set_ready(Color::Blue, 0);
        world.run(60);
    });
}

#[test]
fn never_ready() {
    tells("never-ready", short(), |world| {
        world.never_ready = true;
        world.edit(|object| object.spec.prepare.progress_deadline = "3m".into());
        world.run(600);
        color_mut(&mut world.seen.colors, Color::Green).pods =
            Lookup::Found(PodsSeen { ready: 0, reasons: vec!["ImagePullBackOff: no such image".into()] });
        world.run(60);
    });
}

#[test]
fn pauses_and_a_weight_by_hand() {
    tells("paused", after(in_stage(5)), |world| {
        world.edit(|object| object.spec.paused = true);
        world.run(100);
        world.edit(|object| object.spec.manual_weight = Some(40));
        world.run(30);
        world.edit(|object| object.spec.manual_weight = Some(10));
        world.run(30);
        world.edit(|object| {
            object.spec.paused = false;
            object.spec.manual_weight = None;
        });
        world.run_to("the buffer", buffering);
    });
}

#[test]
fn hands_in_the_ingresses() {
    tells("drift", after(in_stage(5)), |world| {
        for _ in 0..4 {
            world.set_weight_by("kubectl-edit", "90");
            world.run(5);
        }
        world.seen.canary = Lookup::Missing;
        world.run(20);
        for _ in 0..4 {
            world.main().paths[0].service = Some("bot-green".into());
            world.set_ready(Color::Green, 0);
            world.run(5);
            world.set_ready(Color::Green, 4);
        }
        world.run(900);
    });
}

#[test]
fn back_after_the_buffer_by_the_target() {
    tells("restored", after(done), |world| {
        world.edit(|object| object.spec.target = Color::Blue);
        world.run(900);
    });
}

#[test]
fn back_after_the_buffer_by_an_act() {
    tells("restored-by-act", after(done), |world| {
        world.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
        world.run(900);
    });
}

#[test]
fn without_shares() {
    tells("plain", short(), |world| {
        world.edit(|object| {
            object.spec.traffic.ingress.controller = ControllerDialect::None;
            object.spec.stages.remove(0);
            object.spec.gates[0].error_rate.as_mut().unwrap().max_increase = None;
        });
        world.run_to("its stage", in_stage(100));
        world.run_to("the buffer", buffering);
        world.behavior.green.error_share = 0.3;
        world.run(600);
    });
}

#[test]
fn changes_on_the_way() {
    tells("changes", after(in_stage(5)), |world| {
        world.edit(|object| object.spec.gates[0].error_rate.as_mut().unwrap().max = Some("7%".into()));
        world.run(30);
        world.seen.elder = Some("elder".into());
        world.run(60);
        world.seen.elder = None;
        world.deployment(Color::Green).model = Some("llama@1".into());
        world.run(60);
        world.deployment(Color::Green).model = None;
        world.deployment(Color::Green).template_revision = "2".into();
        world.deployment(Color::Green).template_hash = "t2".into();
        world.run(30);
        world.edit(|object| object.spec.target = Color::Blue);
        world.run(900);
    });
}

#[test]
fn named_users_and_judges_of_all_kinds() {
    tells("users", short(), |world| {
        world.edit(|object| {
            object.spec.stages[0] =
                serde_yaml::from_str("{weight: 0, hold: 1m, users: {header: X-User-Id, values: [alice, bob]}}")
                    .unwrap();
            object.spec.stages.insert(1, serde_yaml::from_str("{weight: 50, hold: 1m}").unwrap());
        });
        gates(
            world,
            "[{name: score, dryRun: true, value: {query: score, max: 0.5}}, {name: judge, job: {podTemplateName: judge, deadline: 2m}}]",
        );
        judge_template(world);
        world.named_users = true;
        for number in 1..=3 {
            world.run_to("the Job", |world| world.jobs.len() == number);
            let name = world.jobs[number - 1].name.clone();
            world.run(20);
            world.end_job(&name, if number < 3 { JobOutcome::Succeeded } else { JobOutcome::Failed });
            world.run(60);
        }
        world.run(600);
    });
}

#[test]
fn deletions() {
    for (name, weight) in [("deleted", 5), ("deleted-late", 100)] {
        tells(name, after(in_stage(weight)), |world| {
            world.run(if weight == 100 { 100 } else { 0 });
            world.delete();
            world.run(60);
        });
    }
}

#[test]
fn misfits_at_rest() {
    tells("misfits", World::new(SPEC), |world| {
        world.seen.colors.green.selected.clear();
        world.run(5);
        world.seen.colors.green.selected.insert("bot-green".into());
        world.seen.colors.green.service = Lookup::Missing;
        world.run(5);
        world.main().paths[0].service = Some("else".into());
        world.run(5);
        world.seen.ingresses.insert("bot".into(), Lookup::Missing);
        world.run(5);
    });
}
