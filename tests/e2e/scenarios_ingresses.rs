//! Several Ingresses of one rollout: another host each, ports by name and by number, TLS, and a path of somebody else.

use std::time::Duration;

use k8s_openapi::api::networking::v1::Ingress;
use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Cause, Phase};
use serde_json::{Value, json};

use crate::harness::{LONG, SHORT, Scenario, eventually, measured, scenario, status_if};
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

impl Scenario {
    /// Waits until the first Ingress has left `from`, and kills the operator a little later. Gives whether only one of the
    /// two was switched then.
    async fn kill_in_the_switch(&mut self, from: &str, wait: u64) -> bool {
        let names = |all: &std::collections::BTreeMap<String, crate::history::IngressState>, name: &str| {
            all.get(name).is_some_and(|state| state.services.iter().any(|service| service == from))
        };
        self.ingresses.until("the first switch", LONG, |all| !(names(all, NAME) && names(all, API))).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.operator.take().unwrap().kill().await;
        let now = specs(self).await;
        let left = now.iter().filter(|spec| spec.to_string().contains(&format!("\"{from}\""))).count();
        // users meet a half-done switch for as long as nobody ends it
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.operator = Some(self.launcher.start("operator-1"));
        left == 1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_operator_that_is_killed_between_two_switches_ends_them_on_one_color() {
    let setup = several().stages(&[(100, "1s")]).with("/rollback/buffer", json!("60s"));
    scenario("killed-switch", setup, async |it| {
        it.create_rollout().await;
        let mut half = [0, 0];
        for (number, wait) in [(1, 0), (2, 3), (3, 10), (4, 30)] {
            half[0] += u32::from(it.kill_in_the_switch("bot-blue", wait).await);
            let buffering = |object: &ModelRollout| {
                status_if(object, |status| status.phase == Some(Phase::Buffering))
                    .filter(|status| status.attempt.as_ref().is_some_and(|attempt| attempt.id == number))
            };
            it.until("the promotion goes on", LONG, buffering).await;
            it.ingresses.until("both are on green", SHORT, |all| it.all_name(all, "bot-green")).await;
            it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
            it.annotate("modelrollout.dev/rollback", &format!("reason {number}")).await;
            half[1] += u32::from(it.kill_in_the_switch("bot-green", wait).await);
            let status = it.rolled_back().await;
            let attempt = status.attempt.unwrap();
            assert_eq!((attempt.id, attempt.open, status.history.len()), (number, false, number as usize));
            assert_eq!(attempt.cause, Some(Cause::RollbackRequested));
            it.annotate("modelrollout.dev/retry", &format!("again {number}")).await;
        }
        measured(&format!(
            "killed-switch: of 4 kills each, {} forward and {} back met a half-done switch",
            half[0], half[1]
        ));
    })
    .await;
}
