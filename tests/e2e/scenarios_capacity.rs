//! Too few Pods: what is missing is told with the arithmetic and the Pods' own reason, and nothing is raised.

use std::time::Duration;

use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Cause, Phase, Reason};
use serde_json::json;

use crate::cluster::kubectl;
use crate::harness::{LONG, SHORT, Scenario, condition, in_stage, scenario, status_if};
use crate::looks::run_command_in;
use crate::manifests::{NAME, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_target_that_is_too_small_holds_with_the_arithmetic_until_somebody_scales_it() {
    let mut setup = Setup::default().stages(&[(20, "1s"), (50, "1s"), (100, "1s")]);
    setup.blue.replicas = 4;
    setup.green.replicas = 1;
    let setup = setup.with("/prepare", json!({ "replicas": "Leave" })).with("/rollback/buffer", json!("2s"));
    scenario("capacity", setup, async |it| {
        it.create_rollout().await;
        it.stage(20).await;
        let short = |object: &ModelRollout| {
            status_if(object, |status| condition(status, "Progressing").1 == Reason::CapacityShort.as_str())
        };
        let status = it.until("CapacityShort", LONG, short).await;
        assert_eq!(status.phase, Some(Phase::Holding));
        let message = status.summary.message.clone();
        let command = format!("kubectl scale -n {} deployment bot-green --replicas=4", it.namespace);
        for text in ["1 Pods of green are ready", "50 % of blue's 4 replicas needs 2", &command] {
            assert!(message.contains(text), "{text} in {message}");
        }
        // held means held
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(in_stage(20)(&it.phase(Phase::Holding).await));
        assert_eq!(it.replicas("bot-green").await, 1, "Leave leaves it");
        kubectl(&it.namespace, &["scale", "deployment", "bot-green", "--replicas=4"]);
        it.stage(50).await;
        it.promoted().await;
        let scaled = it.writes().iter().filter(|write| *write == "scale").count();
        assert_eq!(scaled, 1, "blue to zero, and nothing else");
    })
    .await;
}

async fn waits_because(it: &Scenario, attempt: i64, reason: &str) {
    let told = |object: &ModelRollout| {
        let message = |status: &modelrollout::api::ModelRolloutStatus| status.summary.message.contains(reason);
        let status = status_if(object, |status| status.phase == Some(Phase::Preparing) && message(status))?;
        (status.attempt.as_ref()?.id == attempt).then_some(status)
    };
    let status = it.until(reason, SHORT, told).await;
    assert_eq!(condition(&status, "Progressing"), ("True".to_owned(), Reason::WaitingForReadiness.to_string()));
    assert!(status.summary.message.contains("0 of 1 Pods are ready"), "{}", status.summary.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn pods_that_cannot_start_say_why_in_the_message() {
    let setup = Setup::without_pods().edit(
        "Deployment/bot-green",
        "/spec/template/spec/nodeSelector",
        json!({ "no-such-label": "anywhere" }),
    );
    scenario("unschedulable", setup, async |it| {
        it.create_rollout().await;
        waits_because(it, 1, "Unschedulable: 0/1 nodes are available").await;
        let image = json!({ "name": "model", "image": "localhost/modelrollout-model-server:no-such-tag", "imagePullPolicy": "Never" });
        let patch = json!([
            { "op": "remove", "path": "/spec/template/spec/nodeSelector" },
            { "op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image["image"] },
            { "op": "replace", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "Never" },
        ]);
        kubectl(&it.namespace, &["patch", "deployment", "bot-green", "--type=json", "-p", &patch.to_string()]);
        waits_because(it, 2, "ErrImageNeverPull").await;
        let status = it.api::<ModelRollout>().get(NAME).await.unwrap().status.unwrap();
        assert_eq!(status.history[0].cause, Some(Cause::RevisionChanged), "another template is another attempt");
        assert_eq!(it.ingresses.history().len(), 1, "no traffic was touched");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_color_that_serves_and_dies_at_rest_is_told_and_left_by_the_command_in_the_message() {
    let setup = Setup::default().stages(&[(100, "1s")]).with("/rollback/buffer", json!("2s"));
    // no requests while green is down: nobody could answer them
    scenario("dead-at-rest", setup.without_load(), async |it| {
        it.create_rollout().await;
        it.promoted().await;
        it.scale_by_hand("bot-green", 0).await;
        let nowhere =
            json!([{ "op": "add", "path": "/spec/template/spec/nodeSelector", "value": { "nowhere": "yes" } }]);
        kubectl(&it.namespace, &["patch", "deployment", "bot-green", "--type=json", "-p", &nowhere.to_string()]);
        it.scale_by_hand("bot-green", 2).await;
        let status = it.condition("Ready", "False", Reason::LiveNotReady).await;
        assert_eq!(status.phase, Some(Phase::Holding));
        let message = status.summary.message;
        assert!(message.contains("no Pod of green, which carries all traffic, is ready"), "{message}");
        run_command_in(&message);
        it.ingresses.until("the switch", LONG, |all| it.all_name(all, "bot-blue")).await;
        it.answers_again().await;
        it.start_load().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_live_color_that_dies_in_a_stage_is_left_by_the_command_in_the_message() {
    let setup = Setup::default().stages(&[(50, "5m"), (100, "1s")]).with("/rollback/buffer", json!("2s"));
    // no requests while blue is down: those that it would have answered fail, whatever the operator does
    scenario("live-dead", setup.without_load(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.scale_by_hand("bot-blue", 0).await;
        let status = it.condition("Progressing", "False", Reason::LiveNotReady).await;
        assert_eq!(status.phase, Some(Phase::Holding));
        let message = status.summary.message;
        assert!(message.contains("blue, which carries the traffic, has no ready Pod"), "{message}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        it.weight(50).await;
        run_command_in(&message);
        it.ingresses.until("the switch", LONG, |all| it.all_name(all, "bot-green")).await;
        it.answers_again().await;
        it.start_load().await;
        let status = it.promoted().await;
        assert_eq!(status.attempt.unwrap().id, 1);
        // requests that follow the promotion are part of the scenario
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}
