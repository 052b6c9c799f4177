//! Rollouts that go well, some with a person or another program in between.

use std::time::Duration;

use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{Patch, PatchParams};
use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Phase, Reason};
use serde_json::json;

use crate::cluster::kubectl;
use crate::harness::{LONG, SHORT, eventually, in_stage, scenario, status_if};
use crate::manifests::{NAME, Setup, pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_healthy_target_takes_over_in_stages_and_the_old_color_goes() {
    scenario("promotion", Setup::default(), async |it| {
        it.create_rollout().await;
        for weight in [20, 50, 100] {
            it.stage(weight).await;
        }
        let status = it.promoted().await;
        assert_eq!((status.summary.model.as_str(), status.summary.prompt.as_str()), ("llama@2", "v8"));
        let report = it.load.as_ref().unwrap().snapshot();
        assert!(report.pair(&pair("green")).is_some_and(|green| green.answers > 100), "green answers users");
        let seen = it.ingresses.history();
        let place = |text: &str| seen.iter().position(|line| line.contains(text)).unwrap();
        let order = ["weight 20", "weight 50", "weight 100", "bot-anchor names", "bot names bot-green"];
        assert!(order.map(place).is_sorted(), "{order:?} in {seen:#?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_approval_is_waited_for_and_a_stale_one_only_tells_the_right_command() {
    let stages = json!([
        { "weight": 20, "hold": "2s" }, { "weight": 50, "hold": "2s", "approval": "Required" },
        { "weight": 100, "hold": "2s" },
    ]);
    scenario("approval", Setup::default().with("/stages", stages), async |it| {
        it.create_rollout().await;
        let status = it.phase(Phase::AwaitingApproval).await;
        assert!(status.summary.message.contains("modelrollout.dev/approve=1/2"), "{}", status.summary.message);
        it.annotate("modelrollout.dev/approve", "1/1").await;
        let ignored = it.event(Reason::ActIgnored.as_str()).await;
        assert!(ignored.contains("modelrollout.dev/approve=1/2"), "the right command: {ignored}");
        let removed = |object: &ModelRollout| {
            object.metadata.annotations.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
        };
        it.until("the act is removed", SHORT, |object| removed(object).then_some(())).await;
        // whatever a stale approval could set off would be there by now
        tokio::time::sleep(Duration::from_secs(2)).await;
        let status = it.phase(Phase::AwaitingApproval).await;
        assert!(in_stage(50)(&status), "it still waits");
        it.annotate("modelrollout.dev/approve", "1/2").await;
        it.stage(100).await;
        let status = it.promoted().await;
        assert_eq!(status.acts.len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn events_and_kubectl_tell_the_story_of_a_promotion() {
    let setup =
        Setup::default().with("/stages", json!([{ "weight": 50, "hold": "15s" }, { "weight": 100, "hold": "1s" }]));
    scenario("story", setup.with("/gates", json!([])), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        let table = kubectl(&it.namespace, &["get", "mr", "-o", "wide"]);
        for text in
            ["ACTIVE", "blue", "green", "Progressing", "1/2", "llama@1", "v7", "llama@2", "v8", "50 % for at least 15s"]
        {
            assert!(table.contains(text), "{text} in\n{table}");
        }
        it.promoted().await;
        it.event("Completed").await;
        let events = it.events().await;
        for reason in ["Adopted", "AttemptStarted", "StageStarted", "Switching", "Promoted", "Completed"] {
            assert!(events.iter().any(|event| event.0 == reason), "{reason} in {events:?}");
        }
        assert_eq!(events.iter().filter(|event| event.0 == "StageStarted").count(), 2, "{events:?}");
        let table = kubectl(&it.namespace, &["get", "mr", "-o", "wide"]);
        for text in ["green", "Stable", "100", "llama@2", "green carries all traffic"] {
            assert!(table.contains(text), "{text} in\n{table}");
        }
        let described = kubectl(&it.namespace, &["describe", "mr", NAME]);
        for text in [
            "green carries all traffic, as spec.target wants",
            "AttemptStarted",
            "StageStarted",
            "Promoted",
            "Completed",
        ] {
            assert!(described.contains(text), "{text} in\n{described}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn others_who_write_to_the_same_objects_all_the_time_do_not_stop_it() {
    scenario("conflicts", Setup::default(), async |it| {
        it.create_rollout().await;
        let rollouts = touch(it.api::<ModelRollout>());
        let ingresses = touch(it.api::<Ingress>());
        let green = |object: &ModelRollout| status_if(object, |status| status.phase == Some(Phase::Buffering));
        it.until("the promotion", LONG, green).await;
        rollouts.abort();
        ingresses.abort();
        it.promoted().await;
    })
    .await;
}

/// Writes a label every 200 ms.
fn touch<K>(api: Api<K>) -> tokio::task::JoinHandle<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    tokio::spawn(async move {
        for count in 0.. {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "touched": count.to_string() } } }));
            api.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn somebody_else_with_a_canary_of_that_name_is_left_alone() {
    let setup = Setup::without_pods();
    scenario("name-taken", setup, async |it| {
        let foreign = crate::manifests::ingress("bot-canary", &it.host, "bot-blue");
        crate::cluster::create(&it.client, &it.namespace, &foreign).await;
        it.create_rollout().await;
        let invalid = |object: &ModelRollout| {
            status_if(object, |status| crate::harness::condition(status, "Preflight").1 == "NameTaken")
        };
        it.until("NameTaken", SHORT, invalid).await;
        eventually("it is untouched", SHORT, async || {
            let managers = it.ingresses.now().get("bot-canary").map(|state| state.managers.clone()).unwrap_or_default();
            let touched = managers.iter().any(|manager| manager.starts_with("modelrollout.dev"));
            if managers.is_empty() || touched { Err(format!("{managers:?}")) } else { Ok(()) }
        })
        .await;
    })
    .await;
}
