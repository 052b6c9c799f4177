//! Several Ingresses of one rollout: another host each, ports by name and by number, TLS, and a path of somebody else.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Cause, Phase, Reason};
use serde_json::{Value, json};

use crate::harness::{LONG, SHORT, Scenario, eventually, measured, scenario, status_if};
use crate::history::IngressState;
use crate::http::get;
use crate::manifests::{NAME, Setup, ingress};

const API: &str = "bot-api";

fn several() -> Setup {
    let docs = json!({ "path": "/docs", "pathType": "Prefix",
        "backend": { "service": { "name": "docs", "port": { "number": 80 } } } });
    let mut site = ingress(NAME, "{{host}}", "bot-blue");
    let mut paths = site["spec"]["rules"][0]["http"]["paths"].as_array().unwrap().clone();
    paths.insert(0, docs);
    site["spec"]["rules"][0]["http"]["paths"] = json!(paths);
    let mut api = ingress(API, "api.{{host}}", "bot-blue");
    api["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] = json!({ "number": 80 });
    api["metadata"]["annotations"]["nginx.ingress.kubernetes.io/ssl-redirect"] = json!("false");
    api["spec"]["tls"] = json!([{ "hosts": ["api.{{host}}"], "secretName": "api-certificate" }]);
    let selector = json!({ "app": "bot", "color": "blue" });
    let mut setup = Setup::default()
        .edit("Ingress/bot", "/spec", site["spec"].clone())
        .with("/traffic/ingress/names", json!([NAME, API]))
        .and(api)
        .and(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "docs" },
            "spec": { "selector": selector, "ports": [{ "port": 80, "targetPort": "http" }] } }));
    setup.hosts.push("api.{{host}}");
    setup
}

async fn specs(it: &Scenario) -> Vec<Value> {
    let mut all = Vec::new();
    for name in [NAME, API] {
        let object = it.api::<Ingress>().get(name).await.unwrap();
        all.push(json!([object.spec, object.metadata.annotations, object.metadata.labels]));
    }
    all
}

/// The same with green's Service where blue's was.
fn switched(specs: &[Value]) -> Vec<Value> {
    let text = json!(specs).to_string().replace("\"bot-blue\"", "\"bot-green\"");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn two_ingresses_move_together_and_nothing_else_in_them_changes() {
    let setup = several().with("/stages", json!([{ "weight": 50, "hold": "2s" }, { "weight": 100, "hold": "3s" }]));
    scenario("ingresses", setup.with("/rollback/buffer", json!("30s")), async |it| {
        let before = specs(it).await;
        it.create_rollout().await;
        it.stage(50).await;
        let canary = it.api::<Ingress>().get("bot-canary").await.unwrap().spec.unwrap();
        assert_eq!(
            json!(canary.tls),
            json!([{ "hosts": [format!("api.{}", it.host)], "secretName": "api-certificate" }])
        );
        let rules = serde_json::to_value(canary.rules.unwrap()).unwrap();
        let service = |port: Value| json!({ "service": { "name": "bot-green", "port": port } });
        let ports = [service(json!({ "name": "http" })), service(json!({ "number": 80 }))];
        let hosts = [it.host.clone(), format!("api.{}", it.host)];
        for (place, (host, backend)) in hosts.iter().zip(&ports).enumerate() {
            assert_eq!(rules[place]["host"], json!(host));
            assert_eq!(
                rules[place]["http"]["paths"],
                json!([{ "path": "/", "pathType": "Prefix", "backend": backend }])
            );
        }
        assert_eq!(specs(it).await, before, "a share of traffic changes none of them");
        it.stage(100).await;
        let docs = async || get(&it.host, "/docs/index.html", &[]).await.unwrap();
        eventually("green has all of the first host", SHORT, async || {
            let answer = get(&it.host, "/v1/models", &[]).await?;
            if answer.model == "llama@2" { Ok(()) } else { Err(answer.model) }
        })
        .await;
        assert_eq!(docs().await.model, "llama@1", "a path of another Service stays where it is");
        it.phase(Phase::Buffering).await;
        assert_eq!(specs(it).await, switched(&before), "only the Service's name is another");
        it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
        assert_eq!(docs().await.model, "llama@1");
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let status = it.rolled_back().await;
        assert_eq!(status.attempt.unwrap().cause, Some(Cause::RollbackRequested));
        assert_eq!(specs(it).await, before, "as they were");
        assert_eq!(it.ingresses.history().iter().filter(|line| line.contains("bot-api names bot-green")).count(), 1);
        // requests that follow the switch back are part of the scenario
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
}

/// Three more Ingresses, so that a switch of all takes a while.
fn many() -> Setup {
    let names = ["bot-more-1", "bot-more-2", "bot-more-3"];
    let setup = several().with("/traffic/ingress/names", json!([NAME, API, names[0], names[1], names[2]]));
    let more = |setup: Setup, name: &&str| setup.and(ingress(name, &format!("{name}.{{{{host}}}}"), "bot-blue"));
    names.iter().fold(setup, more).stages(&[(100, "1s")]).with("/rollback/buffer", json!("60s"))
}

impl Scenario {
    /// How many Ingresses of the rollout name `service`, as the API server has them now.
    async fn count_naming(&self, service: &str) -> usize {
        let all = self.api::<Ingress>().list(&ListParams::default()).await.unwrap();
        let theirs = all.iter().filter(|ingress| ingress.owner_references().is_empty());
        theirs.filter(|ingress| json!(ingress.spec).to_string().contains(&format!("\"{service}\""))).count()
    }

    /// Waits until the first of five Ingresses has left `from`, and kills the operator a little later. Gives whether the
    /// switch was half done then.
    async fn kill_in_the_switch(&mut self, from: &str, wait: u64) -> bool {
        let first = |all: &BTreeMap<String, IngressState>| {
            all.get(NAME).is_none_or(|state| !state.services.contains(&from.into()))
        };
        self.ingresses.until("the first switch", LONG, first).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.operator.take().unwrap().kill().await;
        (1..5).contains(&self.count_naming(from).await)
    }

    /// Starts the operator again. Users meet a half-done switch for as long as nobody ends it.
    async fn start_again(&mut self) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.operator = Some(self.launcher.start("operator-1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_operator_that_is_killed_in_the_middle_of_a_switch_ends_it_on_one_color() {
    scenario("killed-switch", many(), async |it| {
        it.create_rollout().await;
        let mut half = [0, 0];
        for (number, wait) in [(1, 0), (2, 15), (3, 40), (4, 80)] {
            half[0] += u32::from(it.kill_in_the_switch("bot-blue", wait).await);
            it.start_again().await;
            let buffering = |object: &ModelRollout| {
                status_if(object, |status| status.phase == Some(Phase::Buffering))
                    .filter(|status| status.attempt.as_ref().is_some_and(|attempt| attempt.id == number))
            };
            it.until("the promotion goes on", LONG, buffering).await;
            it.ingresses.until("all are on green", SHORT, |all| it.all_name(all, "bot-green")).await;
            it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
            it.annotate("modelrollout.dev/rollback", &format!("reason {number}")).await;
            half[1] += u32::from(it.kill_in_the_switch("bot-green", wait).await);
            it.start_again().await;
            let status = it.rolled_back().await;
            let attempt = status.attempt.unwrap();
            assert_eq!((attempt.id, attempt.open, status.history.len()), (number, false, number as usize));
            assert_eq!(attempt.cause, Some(Cause::RollbackRequested));
            it.annotate("modelrollout.dev/retry", &format!("again {number}")).await;
        }
        let [forward, back] = half;
        measured(&format!("killed-switch: of 4 kills each, {forward} forward and {back} back met a half-done switch"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_rollout_that_is_deleted_in_the_middle_of_a_switch_ends_on_one_color() {
    scenario("deleted-switch", many(), async |it| {
        it.create_rollout().await;
        let half = it.kill_in_the_switch("bot-blue", 20).await;
        it.api::<ModelRollout>().delete(NAME, &DeleteParams::default()).await.unwrap();
        it.start_again().await;
        it.rollouts.gone(LONG).await;
        let color = if half { "bot-blue" } else { "bot-green" };
        it.ingresses
            .until(&format!("all are on {color}"), SHORT, |all| it.all_name(all, color) && all.len() == 5)
            .await;
        measured(&format!("deleted-switch: half done when it was deleted: {half}"));
        // requests that follow the deletion are part of the scenario
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn one_ingress_that_is_switched_by_hand_in_a_stage_takes_the_others_along() {
    let setup = several().stages(&[(50, "5m"), (100, "1s")]);
    scenario("one-by-hand", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.switch_by_hand(API, "bot-green").await;
        let told = it
            .event_with(Reason::ExternalSwitch, "kubectl-edit switched the backend of Ingress bot-api to green")
            .await;
        assert!(told.contains("the other Ingresses follow"), "{told}");
        it.at_rest("bot-green").await;
        let status = it.phase(Phase::Stable).await;
        assert_eq!(status.history[0].cause, Some(Cause::ExternalSwitch));
        // requests that follow are part of the scenario
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}
