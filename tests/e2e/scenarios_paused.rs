//! A rollout that is paused in a stage, and a share that a person sets meanwhile.

use std::time::{Duration, Instant};

use modelrollout::api::reasons::{Cause, Phase, Reason};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::json;

use crate::harness::{LONG, in_stage, scenario, status_if};
use crate::manifests::{NAME, Setup};

fn clock(status: &ModelRolloutStatus) -> i64 {
    status.attempt.as_ref().unwrap().stage_started_at.as_ref().unwrap().0.as_second()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_pause_keeps_the_stage_takes_a_share_by_hand_and_still_goes_back() {
    let setup = Setup::default().stages(&[(20, "4s"), (100, "5m")]);
    scenario("paused", setup, async |it| {
        it.create_rollout().await;
        let before = it.stage(20).await;
        let paused = Instant::now();
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "paused": true } })).await;
        it.phase(Phase::Paused).await;
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "manualWeight": 35 } })).await;
        it.weight(35).await;
        let shown = |object: &ModelRollout| status_if(object, |status| status.summary.weight == Some(35));
        it.until("the share is shown", LONG, shown).await;
        it.event_with(Reason::ManualWeight, "35 %").await;
        // well beyond the hold and the settling of the stage
        tokio::time::sleep(Duration::from_secs(8).saturating_sub(paused.elapsed())).await;
        let status = it.phase(Phase::Paused).await;
        assert!(in_stage(20)(&status), "paused means paused");
        it.weight(35).await;
        let resumed = Instant::now();
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "paused": false, "manualWeight": null } })).await;
        let after = |object: &ModelRollout| {
            status_if(object, |status| in_stage(20)(status) && status.phase == Some(Phase::Progressing))
        };
        let after = it.until("it is resumed", LONG, after).await;
        assert!(clock(&after) >= clock(&before) + 6, "the clock began anew");
        it.weight(20).await;
        it.stage(100).await;
        assert!(resumed.elapsed() >= Duration::from_secs(4), "the whole hold: {:?}", resumed.elapsed());
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "paused": true } })).await;
        it.phase(Phase::Paused).await;
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let status = it.rolled_back().await;
        assert_eq!(status.attempt.unwrap().cause, Some(Cause::RollbackRequested));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_pause_in_the_buffer_keeps_the_old_color_up() {
    let setup = Setup::default().stages(&[(100, "1s")]).with("/rollback/buffer", json!("3s"));
    scenario("paused-buffer", setup, async |it| {
        it.create_rollout().await;
        it.phase(Phase::Buffering).await;
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "paused": true } })).await;
        let kept = |object: &ModelRollout| {
            status_if(object, |status| {
                status.phase == Some(Phase::Paused) && status.summary.message.contains("blue up")
            })
        };
        it.until("the buffer is over and blue stays", LONG, kept).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(it.replicas("bot-blue").await, 2);
        it.condition("RollbackReady", "True", Reason::Buffered).await;
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "paused": false } })).await;
        it.promoted().await;
    })
    .await;
}
