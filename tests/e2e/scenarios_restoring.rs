//! Going back after the buffer, when the old color has no Pods any more; and when that is refused.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use modelrollout::api::reasons::{Cause, Outcome, Phase, Reason};
use modelrollout::api::{Color, ModelRollout, ModelRolloutStatus};
use serde_json::json;

use crate::harness::{LONG, SHORT, Scenario, measured, scenario, status_if};
use crate::manifests::{NAME, Setup, pair};

fn short() -> Setup {
    Setup::default().stages(&[(100, "1s")]).with("/rollback/buffer", json!("2s"))
}

async fn promoted_and_cold(it: &Scenario) {
    it.create_rollout().await;
    it.promoted().await;
    let status = it.condition("RollbackReady", "True", Reason::ColdStart).await;
    assert!(Scenario::told(&status, "RollbackReady").contains("0 of 2 replicas"), "{status:?}");
}

/// Waits until blue has been started and has everything back, and asserts that it was one switch without stages.
async fn restored(it: &Scenario, asked: Instant) {
    it.ingresses.until("the switch back", LONG, |all| it.all_name(all, "bot-blue")).await;
    measured(&format!(
        "restoring: asked for to switched back, Pods started from zero: {:.1} s",
        asked.elapsed().as_secs_f64()
    ));
    let history = it.ingresses.history();
    let backs = history.iter().filter(|line| line.ends_with("bot names bot-blue")).count();
    assert_eq!(backs, 2, "at the start and once more: {history:#?}");
    assert!(!history.iter().any(|line| line.contains("bot-canary names bot-blue")), "no stages: {history:#?}");
    assert_eq!(it.replicas("bot-blue").await, 2);
}

fn ended(number: i64) -> impl Fn(&ModelRollout) -> Option<ModelRolloutStatus> {
    move |object| {
        let over = |status: &ModelRolloutStatus| status.history.first().is_some_and(|last| last.attempt == number);
        status_if(object, over)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn the_act_rollback_after_the_buffer_starts_the_old_color_and_switches_back() {
    scenario("restored", short(), async |it| {
        promoted_and_cold(it).await;
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let asked = Instant::now();
        it.phase(Phase::Restoring).await;
        restored(it, asked).await;
        let status = it.until("the end of attempt 2", LONG, ended(2)).await;
        assert_eq!((status.history[0].outcome, status.active_color), (Outcome::Restored, Some(Color::Blue)));
        it.rolled_back().await;
        let object = it.api::<ModelRollout>().get(NAME).await.unwrap();
        assert_eq!(object.spec.target, Color::Green, "the spec is the user's");
        // whatever would start by itself would have begun by now
        tokio::time::sleep(Duration::from_secs(2)).await;
        let status = it.rolled_back().await;
        assert_eq!((status.attempt.unwrap().id, status.active_color), (2, Some(Color::Blue)));
        assert_eq!(it.replicas("bot-green").await, 0, "green went when its streams had time");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_target_that_is_set_back_after_the_buffer_restores_the_old_color_without_stages() {
    scenario("target-back", short(), async |it| {
        promoted_and_cold(it).await;
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "target": "blue" } })).await;
        let asked = Instant::now();
        it.phase(Phase::Restoring).await;
        it.kill_and_start_again().await;
        restored(it, asked).await;
        let status = it.until("the end of attempt 2", LONG, ended(2)).await;
        assert_eq!(status.history[0].cause, Some(Cause::TargetTurnedBack));
        it.phase(Phase::Stable).await;
        it.at_rest("bot-blue").await;
        let since = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sent = it.load.as_ref().unwrap().sent_since(since);
        assert!(sent.len() == 1 && sent[0].pair == pair("blue"), "{sent:?}");
    })
    .await;
}

/// Nobody is on record for a 0 that came through the subresource `scale`: it is the operator's own at the end of a buffer, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_kept_color_that_was_scaled_to_nothing_is_started_again_and_gone_back_to() {
    let setup = short().with("/rollback/buffer", json!("10m"));
    scenario("scaled-away", setup, async |it| {
        it.create_rollout().await;
        it.phase(Phase::Buffering).await;
        it.scale_by_hand("bot-blue", 0).await;
        it.ready("bot-blue", 0).await;
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let asked = Instant::now();
        it.event_with(Reason::RollbackBlocked, "as soon as they are up").await;
        restored(it, asked).await;
        let status = it.rolled_back().await;
        assert_eq!(status.history[0].cause, Some(Cause::RollbackRequested));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_old_color_that_is_not_what_it_was_is_not_restored_and_the_act_says_why() {
    scenario("refused", short(), async |it| {
        promoted_and_cold(it).await;
        it.api::<ConfigMap>().delete("prompt-blue", &DeleteParams::default()).await.unwrap();
        let seen = Instant::now();
        let status = it.condition("RollbackReady", "False", Reason::PromptMissing).await;
        assert!(seen.elapsed() < Duration::from_secs(5), "promptly: {:?}", seen.elapsed());
        assert_eq!(status.phase, Some(Phase::Stable));
        it.annotate("modelrollout.dev/rollback", "first").await;
        it.event_with(Reason::ActIgnored, "rollback=first: create the ConfigMap prompt-blue").await;
        it.acts_removed().await;
        it.put("ConfigMap/prompt-blue").await;
        it.condition("RollbackReady", "True", Reason::ColdStart).await;
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": { "edited": "yes" } } } } });
        it.patch::<Deployment>("bot-blue", patch).await;
        it.condition("RollbackReady", "False", Reason::RollbackTargetChanged).await;
        it.annotate("modelrollout.dev/rollback", "second").await;
        it.event_with(Reason::ActIgnored, "rollback=second: the Deployment, model or prompt of blue changed").await;
        it.acts_removed().await;
        let same = |object: &ModelRollout| status_if(object, |status| status.acts.len() == 2);
        let status = it.until("both are on record", SHORT, same).await;
        assert_eq!((status.attempt.unwrap().id, status.phase), (1, Some(Phase::Stable)));
        assert_eq!(it.replicas("bot-blue").await, 0);
        it.at_rest("bot-green").await;
    })
    .await;
}
