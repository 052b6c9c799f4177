//! What does not fit together, and what people do by hand in the middle of a rollout.

use std::time::Duration;

use kube::api::DeleteParams;
use modelrollout::api::reasons::{Cause, Phase};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::json;

use crate::cluster::create;
use crate::harness::{LONG, SHORT, Scenario, condition, in_stage, scenario, status_if};
use crate::manifests::{NAME, Setup, rollout};

/// One long stage: what is tested happens in it.
fn held() -> Setup {
    Setup::default().with("/stages", json!([{ "weight": 50, "hold": "5m" }, { "weight": 100, "hold": "2s" }]))
}

/// Waits for the reason of `Preflight`, and asserts that the operator has written nothing but the status.
async fn refused_without_a_write(it: &Scenario, reason: &str) {
    let wanted =
        |status: &ModelRolloutStatus| condition(status, "Preflight") == ("False".to_owned(), reason.to_owned());
    let status = it.until(reason, SHORT, |object| status_if(object, wanted)).await;
    assert_eq!(status.phase, Some(Phase::Invalid));
    assert!(status.summary.message.len() > 20, "a sentence that says what to do: {}", status.summary.message);
    // whatever it would do, it would have begun by now
    tokio::time::sleep(Duration::from_secs(2)).await;
    nothing_written(it);
    let object = it.api::<ModelRollout>().get(NAME).await.unwrap();
    assert!(object.metadata.finalizers.is_none() && object.status.unwrap().attempt.is_none());
    assert_eq!(it.replicas("bot-green").await, 0);
}

fn nothing_written(it: &Scenario) {
    let all = it.ingresses.now();
    assert_eq!(all.keys().collect::<Vec<_>>(), [NAME], "no Ingress of ours");
    let managers = &all[NAME].managers;
    assert!(!managers.iter().any(|manager| manager.starts_with("modelrollout.dev")), "{managers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_missing_service_is_told_and_nothing_is_written() {
    let mut setup = Setup::without_pods();
    setup.without.push("Service/bot-green");
    scenario("no-service", setup, async |it| {
        it.create_rollout().await;
        refused_without_a_write(it, "ServiceMissing").await;
        create(&it.client, &it.namespace, &crate::manifests::service("green")).await;
        let begun = |object: &ModelRollout| status_if(object, |status| status.attempt.is_some());
        it.until("it begins by itself when the Service is there", SHORT, begun).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_ingress_that_names_neither_color_is_told_and_nothing_is_written() {
    let mut setup = Setup::without_pods();
    setup.backend = "somebody-else";
    scenario("neither", setup, async |it| {
        it.create_rollout().await;
        refused_without_a_write(it, "BackendMismatch").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn of_two_rollouts_on_one_ingress_the_older_goes_on() {
    let setup = Setup::without_pods().with("/target", json!("blue"));
    scenario("two", setup.clone(), async |it| {
        it.create_rollout().await;
        it.phase(Phase::Stable).await;
        // creation times have whole seconds
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let mut spec = setup.spec.clone();
        spec["target"] = json!("green");
        create(&it.client, &it.namespace, &rollout("second", &spec)).await;
        let second = crate::history::Rollouts::follow(it.api(), "second");
        let refused =
            |status: &ModelRolloutStatus| condition(status, "Preflight") == ("False".into(), "Conflict".into());
        let status = second.until("Conflict", SHORT, |object| status_if(object, refused)).await;
        assert!(status.summary.message.contains(NAME), "{}", status.summary.message);
        tokio::time::sleep(Duration::from_secs(2)).await;
        nothing_written(it);
        it.phase(Phase::Stable).await;
        it.api::<ModelRollout>().delete(NAME, &DeleteParams::default()).await.unwrap();
        let free = |status: &ModelRolloutStatus| status.attempt.is_some();
        second.until("the second begins when the first is gone", SHORT, |object| status_if(object, free)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_rollout_that_is_deleted_in_a_stage_leaves_all_traffic_on_blue() {
    scenario("deleted", held(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.api::<ModelRollout>().delete(NAME, &DeleteParams::default()).await.unwrap();
        it.rollouts.gone(SHORT).await;
        let one = |all: &std::collections::BTreeMap<String, crate::history::IngressState>| all.len() == 1;
        it.ingresses.until("only the Ingress of the users is left", SHORT, one).await;
        assert_eq!(it.ingresses.now()[NAME].services, ["bot-blue"]);
        // requests that follow the deletion are part of the scenario
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_prompt_that_is_edited_in_a_stage_ends_the_attempt_and_starts_a_new_one() {
    scenario("prompt-edited", held(), async |it| {
        it.create_rollout().await;
        let before = it.stage(50).await.attempt.unwrap();
        it.edit_prompt("green", "You answer at length.").await;
        let again = |status: &ModelRolloutStatus| {
            in_stage(50)(status) && status.attempt.as_ref().is_some_and(|attempt| attempt.id == 2)
        };
        let status = it.until("a second attempt", LONG, |object| status_if(object, again)).await;
        assert_ne!(status.attempt.unwrap().revision, before.revision);
        assert_eq!(status.history[0].cause, Some(Cause::RevisionChanged));
        let history = it.ingresses.history();
        assert!(history.iter().any(|line| line.contains("bot-canary is deleted")), "traffic was back: {history:?}");
        it.stage(50).await;
    })
    .await;
}

fn seen_so_far(it: &Scenario, text: &str) -> bool {
    it.ingresses.history().iter().any(|line| line.contains(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_canary_that_is_changed_or_deleted_by_hand_is_put_back() {
    scenario("canary", held(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        let counted = |status: &ModelRolloutStatus| status.gates.iter().any(|gate| gate.samples.unwrap_or(0) > 0);
        it.until("requests of the stage", LONG, |object| status_if(object, counted)).await;
        let key = modelrollout::api::names::NGINX_CANARY_WEIGHT;
        let is = |weight: &'static str| {
            move |all: &std::collections::BTreeMap<String, crate::history::IngressState>| {
                all.get("bot-canary").is_some_and(|canary| canary.weight.as_deref() == Some(weight))
            }
        };
        let patch = json!({ "metadata": { "annotations": { key: "90" } } });
        it.patch::<k8s_openapi::api::networking::v1::Ingress>("bot-canary", patch).await;
        it.ingresses.until("somebody's weight", SHORT, |_| seen_so_far(it, "weight 90")).await;
        it.ingresses.until("the weight is put back", SHORT, is("50")).await;
        it.event("CanaryRestored").await;
        it.delete_ingress("bot-canary").await;
        let deleted = "bot-canary is deleted";
        it.ingresses.until("the canary is put back", SHORT, |all| seen_so_far(it, deleted) && is("50")(all)).await;
        let status = it.until("the stage goes on", SHORT, |object| status_if(object, in_stage(50))).await;
        assert_eq!(status.attempt.unwrap().id, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_rollout_that_is_deleted_in_the_buffer_leaves_all_traffic_on_green() {
    let setup = Setup::default().stages(&[(100, "1s")]).with("/rollback/buffer", json!("60s"));
    scenario("deleted-buffer", setup, async |it| {
        it.create_rollout().await;
        it.phase(Phase::Buffering).await;
        it.api::<ModelRollout>().delete(NAME, &DeleteParams::default()).await.unwrap();
        it.rollouts.gone(SHORT).await;
        let one = |all: &std::collections::BTreeMap<String, crate::history::IngressState>| all.len() == 1;
        it.ingresses.until("only the Ingress of the users is left", SHORT, one).await;
        assert_eq!(it.ingresses.now()[NAME].services, ["bot-green"]);
        // requests that follow the deletion are part of the scenario
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(it.replicas("bot-blue").await, 2, "a deletion scales nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_target_that_is_turned_back_in_a_stage_and_again_is_tried_again() {
    scenario("turned-twice", held(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "target": "blue" } })).await;
        it.at_rest("bot-blue").await;
        let status = it.phase(Phase::Stable).await;
        assert_eq!(status.history[0].cause, Some(Cause::TargetTurnedBack));
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "target": "green" } })).await;
        let again = |status: &ModelRolloutStatus| {
            in_stage(50)(status) && status.attempt.as_ref().is_some_and(|attempt| attempt.id == 2)
        };
        it.until("a second attempt", LONG, |object| status_if(object, again)).await;
        it.stage(50).await;
    })
    .await;
}
