//! What does not fit is told before anything is written, and what waits for it goes on by itself when it is corrected.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use modelrollout::api::names::NGINX_CANARY;
use modelrollout::api::reasons::{Phase, Reason};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::{Value, json};

use crate::harness::{SHORT, Scenario, condition, scenario, status_if};
use crate::manifests::{NAME, Setup, ingress, set};

const PATH: &str = "/spec/rules/0/http/paths/0";

/// Every fault of this page at once.
fn faulty() -> Setup {
    let mut canary = ingress("another", "{{host}}", "elsewhere");
    canary["metadata"]["annotations"][NGINX_CANARY] = json!("true");
    Setup::without_pods()
        .edit("Ingress/bot", "/spec/rules/0/http/paths/0/pathType", json!("ImplementationSpecific"))
        .edit("Service/bot-blue", "/spec/selector", json!({ "app": "bot" }))
        .edit("Service/bot-blue", "/spec/publishNotReadyAddresses", json!(true))
        .edit("Service/bot-green", "/spec/selector", json!({ "app": "bot", "color": "red" }))
        .edit("Service/bot-green", "/spec/ports", json!([{ "name": "web", "port": 80 }]))
        .and(canary)
        .and(ingress("unlisted", "other.{{host}}", "bot-green"))
        .and(ingress("bot-anchor", "third.{{host}}", "elsewhere"))
}

async fn refused(it: &Scenario, reason: Reason, words: &[&str]) {
    let wanted = ("False".to_owned(), reason.to_string());
    let told = |status: &ModelRolloutStatus| {
        let message = Scenario::told(status, "Preflight");
        condition(status, "Preflight") == wanted && words.iter().all(|word| message.contains(word))
    };
    let status = it.until(&format!("{reason} with {words:?}"), SHORT, |object| status_if(object, told)).await;
    assert_eq!(status.phase, Some(Phase::Invalid), "{reason}");
    assert_eq!(status.summary.message, Scenario::told(&status, "Preflight"));
    it.nothing_written().await;
}

async fn name_port(it: &Scenario, port: Value) {
    let mut object = ingress(NAME, &it.host, "bot-blue");
    set(&mut object, &format!("{PATH}/backend/service/port"), port);
    it.patch::<Ingress>(NAME, json!({ "spec": { "rules": object["spec"]["rules"] } })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn faults_that_are_corrected_one_after_the_other_are_told_one_after_the_other() {
    scenario("preflight", faulty(), async |it| {
        it.create_rollout().await;
        refused(it, Reason::UnsupportedPath, &["ImplementationSpecific", "use Prefix or Exact"]).await;
        name_port(it, json!({ "number": 8080 })).await;
        refused(it, Reason::ServicesOverlap, &["Service bot-blue", "Deployment bot-green", "color: blue"]).await;
        it.patch::<Service>("bot-blue", json!({ "spec": { "selector": { "color": "blue" } } })).await;
        refused(it, Reason::PublishesNotReady, &["bot-blue", "publishNotReadyAddresses"]).await;
        it.patch::<Service>("bot-blue", json!({ "spec": { "publishNotReadyAddresses": false } })).await;
        refused(it, Reason::PortMismatch, &["bot-blue has no port 8080", "Ingress bot"]).await;
        name_port(it, json!({ "name": "http" })).await;
        refused(it, Reason::ServiceMissesDeployment, &["Service bot-green", "Deployment bot-green"]).await;
        it.patch::<Service>("bot-green", json!({ "spec": { "selector": { "color": "green" } } })).await;
        refused(it, Reason::PortMismatch, &["bot-green has no port named http", "Ingress bot"]).await;
        name_port(it, json!({ "number": 80 })).await;
        refused(it, Reason::ForeignCanary, &["Ingress another"]).await;
        it.delete_ingress("another").await;
        refused(it, Reason::UnlistedIngress, &["Ingress unlisted", "bot-green", "spec.traffic.ingress.names"]).await;
        it.delete_ingress("unlisted").await;
        refused(it, Reason::NameTaken, &["bot-anchor"]).await;
        // whatever it would do, it would have begun by now
        tokio::time::sleep(Duration::from_secs(2)).await;
        it.nothing_written().await;
        it.delete_ingress("bot-anchor").await;
        let begun = |object: &ModelRollout| status_if(object, |status| status.attempt.is_some());
        let status = it.until("it begins by itself", SHORT, begun).await;
        assert_eq!((condition(&status, "Preflight").0.as_str(), status.attempt.unwrap().id), ("True", 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_standby_that_is_missing_does_not_disturb_the_color_that_serves() {
    let mut setup = Setup::without_pods().with("/target", json!("blue"));
    setup.without = vec!["Deployment/bot-green", "Service/bot-green"];
    scenario("no-standby", setup, async |it| {
        it.create_rollout().await;
        let status = it.condition("Preflight", "False", Reason::StandbyMissing).await;
        assert!(Scenario::told(&status, "Preflight").contains("the Deployment bot-green"), "{status:?}");
        assert_eq!(status.phase, Some(Phase::Stable));
        assert_eq!(condition(&status, "Ready").0, "True", "blue serves, as the target wants");
        it.nothing_written().await;
        it.put("Deployment/bot-green").await;
        it.put("Service/bot-green").await;
        let fine = |object: &ModelRollout| status_if(object, |status| condition(status, "Preflight").0 == "True");
        it.until("all is well", SHORT, fine).await;
        it.nothing_written().await;
    })
    .await;
}
