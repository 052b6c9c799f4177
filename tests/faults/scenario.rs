//! The rollouts that faults are tried on: what the user asks for, what happens on the way, and how it ends undisturbed.

use modelrollout::api::Color;
use modelrollout::api::reasons::Step;
use serde_json::{Value, json};

/// When something is done.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// So many milliseconds after an attempt is at this step for the first time.
    At(Step, u64),
    /// So many milliseconds after the clock of the stage of this weight has started.
    InStage(i32, u64),
    /// So many milliseconds after an attempt has ended.
    Ended(u64),
    /// So many milliseconds after the step before.
    After(u64),
    /// So many milliseconds after nothing moves by itself any more.
    Rest(u64),
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Do {
    /// An annotation is set; `{attempt}` and `{stage}` stand for those of the moment.
    Annotate(&'static str, &'static str),
    /// The whole spec is replaced, if the API server accepts it.
    Spec(Value),
    /// A field of the spec is set, by JSON pointer.
    Set(&'static str, Value),
    /// The Pod template of a color gets another image.
    Template(Color),
    /// From now on so many percent of the answers of a color are errors.
    Errors(Color, u32),
    /// All Pods of a color stop being ready, for ever.
    Unready(Color),
    /// The ModelRollout is deleted.
    Delete,
}

/// One rollout.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub spec: Value,
    /// Whether there is a second Ingress, `chat`.
    pub two: bool,
    /// New Pods of green never become ready.
    pub stuck: bool,
    /// In this order; each waits for the one before.
    pub script: Vec<(When, Do)>,
    /// Which color serves in the end.
    pub serves: Color,
}

fn spec() -> Value {
    let color = |color: &str, version: &str, prompt: &str| {
        json!({ "deploymentName": format!("bot-{color}"), "serviceName": format!("bot-{color}"),
            "model": { "name": "llama", "version": version },
            "promptTemplate": { "configMapName": format!("prompt-{color}"), "version": prompt } })
    };
    json!({
        "blue": color("blue", "1", "v7"), "green": color("green", "2", "v8"), "target": "green",
        "traffic": { "ingress": { "names": ["bot"], "controller": "nginx" } },
        "stages": [
            { "weight": 20, "hold": "12s" }, { "weight": 50, "hold": "12s" }, { "weight": 100, "hold": "12s" },
        ],
        "gates": [{ "name": "errors", "minSamples": 20, "errorRate": {
            "bad": r#"http_requests_total{namespace="{{namespace}}",service="{{service}}",code=~"5.."}"#,
            "total": r#"http_requests_total{namespace="{{namespace}}",service="{{service}}"}"#, "max": "10%" } }],
        "rollback": { "buffer": "20s" },
        // longer than some outages one after the other
        "prepare": { "progressDeadline": "20m" },
    })
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    let plain =
        Scenario { name: "promotion", spec: spec(), two: false, stuck: false, script: vec![], serves: Color::Green };
    let with =
        |name: &'static str, serves: Color, script: Vec<(When, Do)>| Scenario { name, serves, script, ..plain.clone() };
    let set = |scenario: Scenario, place: &str, value: Value| {
        let mut scenario = scenario;
        let (parent, field) = place.rsplit_once('/').unwrap_or_default();
        scenario.spec.pointer_mut(parent).expect("a field of the spec")[field] = value;
        scenario
    };
    let (blue, green) = (Color::Blue, Color::Green);
    let act = |name: &'static str, value: &'static str| Do::Annotate(name, value);
    let rollback = || act("modelrollout.dev/rollback", "they complain");
    let two = Scenario { two: true, ..with("promotion-two", green, vec![]) };
    let approval = set(
        with("approve", green, vec![(When::InStage(50, 14_000), act("modelrollout.dev/approve", "{attempt}/{stage}"))]),
        "/stages/1/approval",
        json!("Required"),
    );
    let none = set(with("plain", green, vec![]), "/traffic/ingress/controller", json!("none"));
    vec![
        plain.clone(),
        set(two.clone(), "/traffic/ingress/names", json!(["bot", "chat"])),
        with("rollback-errors", blue, vec![(When::InStage(50, 1_000), Do::Errors(green, 60))]),
        with("rollback-unready", blue, vec![(When::InStage(20, 4_000), Do::Unready(green))]),
        with("rollback-act", blue, vec![(When::InStage(50, 4_000), rollback())]),
        with("rollback-target", blue, vec![(When::InStage(20, 4_000), Do::Set("/target", json!("blue")))]),
        // longer than any outage: a buffer that ends meanwhile ends as planned
        set(
            with("rollback-buffer", blue, vec![(When::At(Step::Buffering, 3_000), Do::Errors(green, 60))]),
            "/rollback/buffer",
            json!("6m"),
        ),
        set(
            with("rollback-two", blue, vec![(When::At(Step::Buffering, 3_000), rollback())]).two(),
            "/traffic/ingress/names",
            json!(["bot", "chat"]),
        ),
        Scenario { stuck: true, ..set(with("deadline", blue, vec![]), "/prepare/progressDeadline", json!("20s")) },
        with("restoring", blue, vec![(When::Ended(12_000), Do::Set("/target", json!("blue")))]),
        approval,
        with("act-promote", green, vec![(When::InStage(20, 4_000), act("modelrollout.dev/promote", "{attempt}"))]),
        with(
            "act-retry",
            green,
            vec![(When::InStage(20, 3_000), rollback()), (When::Ended(8_000), act("modelrollout.dev/retry", "again"))],
        ),
        with("supersede", green, vec![(When::InStage(50, 4_000), Do::Template(green))]),
        with("deletion", blue, vec![(When::InStage(50, 4_000), Do::Delete)]),
        with("deletion-buffer", green, vec![(When::At(Step::Buffering, 3_000), Do::Delete)]),
        set(none.clone(), "/stages", json!([{ "weight": 100, "hold": "12s" }])),
    ]
}

impl Scenario {
    fn two(self) -> Self {
        Self { two: true, ..self }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        all().into_iter().find(|one| one.name == name)
    }
}
