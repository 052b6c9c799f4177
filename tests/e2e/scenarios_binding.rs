//! Model and prompt: every way in which Pods can read a prompt, and files that are applied in any order.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use modelrollout::api::reasons::{Phase, Reason};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::{Value, json};

use crate::cluster::kubectl;
use crate::harness::{LONG, SHORT, Scenario, condition, in_stage, scenario, status_if};
use crate::manifests::{NAME, Setup, pair};

/// What Pods of green read, besides what their own container mounts.
const POD: &str = "/spec/template/spec";

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "text": "Be brief." } })
}

/// Green's Pods, which are scheduled nowhere, refer to `prompt-green`; the spec names `gateway-prompt`.
fn elsewhere() -> Setup {
    Setup::without_pods()
        .and(config_map("gateway-prompt"))
        .edit("Deployment/bot-green", "/spec/template/spec/nodeSelector", json!({ "no-such-label": "anywhere" }))
        .edit(
            "Deployment/bot-green",
            "/spec/template/spec/initContainers",
            json!([{ "name": "init", "image": "none" }]),
        )
        .with("/green/promptTemplate/configMapName", json!("gateway-prompt"))
}

fn change(it: &Scenario, changes: &Value) {
    let told = kubectl(&it.namespace, &["patch", "deployment", "bot-green", "--type=json", "-p", &changes.to_string()]);
    assert!(told.contains("patched"), "{told}");
}

async fn bound(it: &Scenario, attempt: i64, truth: &str, reason: Reason) {
    let wanted = (truth.to_owned(), reason.to_string());
    let look = |object: &ModelRollout| {
        let status = status_if(object, |status| condition(status, "PromptBound") == wanted)?;
        (status.attempt.as_ref().map_or(0, |attempt| attempt.id) == attempt).then_some(())
    };
    it.until(&format!("attempt {attempt} with PromptBound={truth}/{reason}"), LONG, look).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_prompt_may_be_read_in_any_way_but_must_be_read() {
    scenario("prompts", elsewhere(), async |it| {
        it.create_rollout().await;
        bound(it, 0, "False", Reason::PromptNotReferenced).await;
        let status = it.phase(Phase::Holding).await;
        assert!(
            status.summary.message.contains("bot-green does not refer to the ConfigMap gateway-prompt"),
            "{status:?}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        it.nothing_written().await;
        let name = json!({ "name": "gateway-prompt" });
        let key = json!({ "name": "gateway-prompt", "key": "text" });
        let (from, init) = (format!("{POD}/containers/0/envFrom"), format!("{POD}/initContainers/0/envFrom"));
        let env = format!("{POD}/containers/0/env/-");
        let volume = |source: Value| json!([{ "op": "add", "path": format!("{POD}/volumes/-"), "value": source }]);
        change(it, &json!([{ "op": "add", "path": from, "value": [{ "configMapRef": name }] }]));
        bound(it, 1, "True", Reason::Bound).await;
        change(
            it,
            &json!([
                { "op": "remove", "path": from },
                { "op": "add", "path": init, "value": [{ "configMapRef": name }] },
            ]),
        );
        bound(it, 2, "True", Reason::Bound).await;
        change(
            it,
            &json!([
                { "op": "remove", "path": init },
                { "op": "add", "path": env, "value": { "name": "TEXT", "valueFrom": { "configMapKeyRef": key } } },
            ]),
        );
        bound(it, 3, "True", Reason::Bound).await;
        let count = it.setup.object("Deployment/bot-green", "")["spec"]["template"]["spec"]["containers"][0]["env"]
            .as_array()
            .map_or(0, Vec::len);
        change(it, &json!([{ "op": "remove", "path": format!("{POD}/containers/0/env/{count}") }]));
        bound(it, 3, "False", Reason::PromptNotReferenced).await;
        change(it, &volume(json!({ "name": "projected", "projected": { "sources": [{ "configMap": name }] } })));
        bound(it, 4, "True", Reason::Bound).await;
        change(it, &json!([{ "op": "remove", "path": format!("{POD}/volumes/1") }]));
        bound(it, 4, "False", Reason::PromptNotReferenced).await;
        let declared = json!({ "spec": { "green": { "promptTemplate": { "binding": "Declared" } } } });
        it.patch::<ModelRollout>(NAME, declared).await;
        bound(it, 5, "True", Reason::Declared).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn files_may_be_applied_in_any_order() {
    let old = |setup: Setup| {
        setup
            .edit(
                "Deployment/bot-green",
                "/spec/template/metadata/annotations/modelrollout.dev~1model",
                json!("llama@0"),
            )
            .edit(
                "Deployment/bot-green",
                "/spec/template/spec/volumes",
                json!([{ "name": "prompt", "configMap": { "name": "prompt-old" } }]),
            )
    };
    let mut setup = old(Setup::default().stages(&[(50, "1s"), (100, "1s")]).with("/rollback/buffer", json!("2s")));
    setup.without.push("ConfigMap/prompt-green");
    scenario("any-order", setup, async |it| {
        it.create_rollout().await;
        // first the ModelRollout, with a model and a prompt that nobody has seen yet
        let missing = |status: &ModelRolloutStatus| condition(status, "Progressing").1 == "PromptMissing";
        it.until("PromptMissing", SHORT, |object| status_if(object, missing)).await;
        it.put("ConfigMap/prompt-green").await;
        let status = it.condition("Progressing", "False", Reason::TemplateDisagrees).await;
        assert_eq!(status.phase, Some(Phase::Holding));
        let message = &status.summary.message;
        assert!(message.contains("says llama@0, spec.green.model says llama@2"), "{message}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        it.nothing_written().await;
        // then the Deployment; its Pods read the prompt from a projected volume
        let volume =
            json!({ "name": "prompt", "projected": { "sources": [{ "configMap": { "name": "prompt-green" } }] } });
        let template = json!({
            "metadata": { "annotations": { "modelrollout.dev/model": "llama@2" } },
            "spec": { "volumes": [volume] },
        });
        it.patch::<Deployment>("bot-green", json!({ "spec": { "template": template } })).await;
        let status = it.promoted().await;
        assert_eq!((status.attempt.unwrap().id, status.history.len()), (1, 1), "nothing was tried before");
        let report = it.load.as_ref().unwrap().snapshot();
        assert!(report.pair(&pair("green")).is_some_and(|green| green.answers > 50), "with the prompt that is named");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn what_is_taken_away_or_changed_in_a_stage_holds_it_until_it_is_put_back() {
    let setup = Setup::default().stages(&[(50, "3s"), (100, "1s")]).with("/rollback/buffer", json!("2s"));
    scenario("put-back", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.api::<ConfigMap>().delete("prompt-green", &DeleteParams::default()).await.unwrap();
        it.condition("Progressing", "False", Reason::PromptMissing).await;
        let changed =
            |value: Value| json!({ "spec": { "template": { "metadata": { "annotations": { "edited": value } } } } });
        it.patch::<Deployment>("bot-blue", changed(json!("yes"))).await;
        it.condition("RollbackReady", "False", Reason::RollbackTargetChanged).await;
        it.put("ConfigMap/prompt-green").await;
        let status = it.condition("Progressing", "False", Reason::RollbackTargetChanged).await;
        assert!(status.summary.message.contains("undo that change"), "{}", status.summary.message);
        // a Deployment that is being scaled cannot be told for a moment: that is no reason to raise anything
        it.scale_by_hand("bot-blue", 3).await;
        it.ready("bot-blue", 3).await;
        let held = |status: &ModelRolloutStatus| in_stage(50)(status) && status.phase == Some(Phase::Holding);
        it.until("it is held at 50 %", SHORT, |object| status_if(object, held)).await;
        assert!(!it.ingresses.history().iter().any(|line| line.contains("weight 100")), "it was raised");
        it.patch::<Deployment>("bot-blue", changed(Value::Null)).await;
        let status = it.promoted().await;
        assert_eq!(status.attempt.unwrap().id, 1);
    })
    .await;
}
