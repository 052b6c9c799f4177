//! What the runbook says for a dead operator: people go back by hand, and an operator that comes back agrees.

use std::time::Duration;

use modelrollout::api::reasons::{Cause, Phase};
use modelrollout::api::{Color, ModelRollout};
use serde_json::json;

use crate::harness::{LONG, SHORT, Scenario, scenario, status_if};
use crate::manifests::{NAME, Setup};

async fn kill(it: &mut Scenario) {
    it.operator.take().unwrap().kill().await;
}

/// Starts the operator again, and waits until the attempt `number` has ended.
async fn comes_back(it: &mut Scenario, number: i64, cause: Cause) {
    it.operator = Some(it.launcher.start("operator-1"));
    let ended = |object: &ModelRollout| {
        status_if(object, |status| status.history.first().is_some_and(|last| last.attempt == number))
    };
    let status = it.until("the end is on record", LONG, ended).await;
    assert_eq!((status.history[0].cause, status.active_color), (Some(cause), Some(Color::Blue)));
    it.rolled_back().await;
    // whatever would start by itself would have begun by now
    tokio::time::sleep(Duration::from_secs(2)).await;
    let status = it.phase(Phase::RolledBack).await;
    assert_eq!(status.attempt.unwrap().id, number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn going_back_by_hand_in_a_stage_stands_when_the_operator_comes_back() {
    let setup = Setup::default().stages(&[(50, "5m"), (100, "1s")]);
    scenario("by-hand-stage", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        kill(it).await;
        it.annotate("modelrollout.dev/rollback", "by hand, operator was down").await;
        it.delete_ingress("bot-canary").await;
        it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
        let seen = it.ingresses.history().len();
        comes_back(it, 1, Cause::RollbackRequested).await;
        assert_eq!(it.ingresses.history().len(), seen, "no canary was put back: {:?}", it.ingresses.history());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn going_back_by_hand_in_the_buffer_stands_with_and_without_the_note() {
    let setup = Setup::default().stages(&[(100, "1s")]).with("/rollback/buffer", json!("60s"));
    scenario("by-hand-buffer", setup, async |it| {
        it.create_rollout().await;
        for (number, cause) in [(1, Cause::RollbackRequested), (2, Cause::ExternalSwitch)] {
            let buffering = |object: &ModelRollout| {
                status_if(object, |status| status.phase == Some(Phase::Buffering))
                    .filter(|status| status.attempt.as_ref().is_some_and(|attempt| attempt.id == number))
            };
            it.until("the buffer", LONG, buffering).await;
            it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
            kill(it).await;
            if cause == Cause::RollbackRequested {
                it.annotate("modelrollout.dev/rollback", "by hand, operator was down").await;
            }
            it.switch_by_hand(NAME, "bot-blue").await;
            comes_back(it, number, cause).await;
            assert_eq!(it.replicas("bot-blue").await, 2);
            it.annotate("modelrollout.dev/retry", &format!("again {number}")).await;
        }
    })
    .await;
}
