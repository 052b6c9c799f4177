//! Rollouts that go back.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use modelrollout::api::reasons::{Cause, Outcome, Phase};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::json;

use crate::harness::{LONG, SHORT, Scenario, eventually, measured, scenario, status_if};
use crate::manifests::{Setup, pair};

fn cause(status: &ModelRolloutStatus) -> Option<Cause> {
    status.attempt.as_ref().and_then(|attempt| attempt.cause)
}

/// One long stage: what is tested happens in it.
fn held() -> Setup {
    Setup::default().with("/stages", json!([{ "weight": 50, "hold": "5m" }, { "weight": 100, "hold": "2s" }]))
}

/// Asserts that green gets no request any more.
async fn green_gets_nothing_more(it: &Scenario) {
    let load = it.load.as_ref().unwrap();
    eventually("all requests go to blue", SHORT, async || {
        let since = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sent = load.sent_since(since);
        let blue = sent.iter().any(|count| count.pair == pair("blue") && count.answers > 5);
        if blue && sent.len() == 1 { Ok(()) } else { Err(format!("{sent:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn errors_of_the_target_send_traffic_back() {
    scenario("errors", Setup::default().green("FAIL_PERCENT", "40"), async |it| {
        it.create_rollout().await;
        let status = it.rolled_back().await;
        assert_eq!(cause(&status), Some(Cause::GateFailed));
        assert!(status.summary.message.contains("errors"), "{}", status.summary.message);
        green_gets_nothing_more(it).await;
        let report = it.load.as_ref().unwrap().snapshot();
        assert!(report.injected > 0, "green did fail");
        let hit = report.injected as f64 / report.total as f64 * 100.0;
        measured(&format!(
            "errors: {} of {} requests ({hit:.1} %) met an error of green before traffic was back",
            report.injected, report.total
        ));
        let after = |object: &ModelRollout| status_if(object, |status| status.phase == Some(Phase::RolledBack));
        it.until("nothing starts again by itself", SHORT, after).await;
        assert_eq!(status.attempt.unwrap().id, 1);
        eventually("green is back to no Pods when its streams had time", SHORT, async || {
            match it.replicas("bot-green").await {
                0 => Ok(()),
                count => Err(format!("{count} replicas")),
            }
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn slow_answers_of_the_target_send_traffic_back() {
    let setup = Setup::default().green("SLOW_PERCENT", "60").green("SLOW_SECONDS", "3");
    scenario("latency", setup, async |it| {
        it.create_rollout().await;
        let status = it.rolled_back().await;
        assert_eq!(cause(&status), Some(Cause::GateFailed));
        assert!(status.summary.message.contains("p90"), "{}", status.summary.message);
        green_gets_nothing_more(it).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn the_act_rollback_in_a_stage_takes_all_traffic_back() {
    scenario("act-stage", held(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let asked = Instant::now();
        it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
        measured(&format!("act-stage: act to canary deleted: {} ms", asked.elapsed().as_millis()));
        let status = it.rolled_back().await;
        assert_eq!(cause(&status), Some(Cause::RollbackRequested));
        assert!(status.summary.message.contains("complaints"), "{}", status.summary.message);
        green_gets_nothing_more(it).await;
        it.annotate("modelrollout.dev/retry", "again-1").await;
        let status = it.stage(50).await;
        assert_eq!(status.attempt.unwrap().id, 2, "retry is the way to try again");
    })
    .await;
}

/// To the middle of a buffer that is long enough.
async fn in_the_buffer(it: &Scenario) {
    it.create_rollout().await;
    it.phase(Phase::Buffering).await;
    it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn the_act_rollback_in_the_buffer_switches_back() {
    scenario("act-buffer", Setup::default().with("/rollback/buffer", json!("20s")), async |it| {
        in_the_buffer(it).await;
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let asked = Instant::now();
        it.ingresses
            .until("the switch back", SHORT, |all| all.get("bot").is_some_and(|main| main.services == ["bot-blue"]))
            .await;
        measured(&format!("act-buffer: act to backend switched: {} ms", asked.elapsed().as_millis()));
        let status = it.rolled_back().await;
        assert_eq!((cause(&status), status.summary.model.as_str()), (Some(Cause::RollbackRequested), "llama@1"));
        assert_eq!(it.replicas("bot-blue").await, 2, "blue was kept");
        green_gets_nothing_more(it).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn the_target_turned_back_in_the_buffer_switches_back_without_stages() {
    scenario("turned-back", Setup::default().with("/rollback/buffer", json!("20s")), async |it| {
        in_the_buffer(it).await;
        it.patch::<ModelRollout>("bot", json!({ "spec": { "target": "blue" } })).await;
        it.at_rest("bot-blue").await;
        let status = it.phase(Phase::Stable).await;
        assert_eq!(cause(&status), Some(Cause::TargetTurnedBack));
        let history = it.ingresses.history();
        let canaries = history.iter().filter(|line| line.contains("bot-canary names bot-blue"));
        assert_eq!(canaries.count(), 0, "no stages on the way back");
        green_gets_nothing_more(it).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_target_that_is_never_ready_ends_the_attempt_and_nothing_moves() {
    let mut setup = Setup::default().with("/prepare", json!({ "progressDeadline": "6s" }));
    setup.green.ready_path = "/never";
    scenario("never-ready", setup.with("/rollback/buffer", json!("2s")), async |it| {
        let before = it.ingress().await.spec;
        it.create_rollout().await;
        let status = it.rolled_back().await;
        assert_eq!(cause(&status), Some(Cause::ProgressDeadlineExceeded));
        assert_eq!(status.history[0].outcome, Outcome::Aborted);
        let history = it.ingresses.history();
        assert!(!history.iter().any(|line| line.contains("canary") || line.contains("anchor")), "{history:?}");
        let now = it.ingress().await;
        let managers: Vec<_> =
            now.metadata.managed_fields.iter().flatten().filter_map(|field| field.manager.as_deref()).collect();
        assert!(now.spec == before && !managers.contains(&"modelrollout.dev/traffic"), "{managers:?}");
        eventually("green is back to no Pods", SHORT, async || match it.replicas("bot-green").await {
            0 => Ok(()),
            count => Err(format!("{count} replicas")),
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_target_that_loses_a_part_of_its_pods_for_30_seconds_is_left() {
    let mut setup = held();
    setup.blue.replicas = 3;
    scenario("pods-lost", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        // 50 % of 3 needs 2; the last one goes on answering, those that go end what they have begun
        it.patch::<Deployment>("bot-green", json!({ "spec": { "replicas": 1 } })).await;
        let lost = Instant::now();
        it.phase(Phase::Holding).await;
        let status = it.rolled_back().await;
        assert_eq!(cause(&status), Some(Cause::ReadinessLost));
        assert!(lost.elapsed() > Duration::from_secs(29), "a drained node is no reason: {:?}", lost.elapsed());
        green_gets_nothing_more(it).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_target_that_loses_all_of_its_pods_is_left_at_once() {
    scenario("all-pods-lost", held(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.patch::<Deployment>("bot-green", json!({ "spec": { "replicas": 0 } })).await;
        let lost = Instant::now();
        // The ingress controller hears of the last endpoint that goes and of the deleted canary at about the same time.
        // Between the two it has a Service without endpoints: nobody but the one who scales to zero can prevent that.
        it.may_fail = 30;
        it.until("the attempt ends", LONG, |object| {
            status_if(object, |status| status.phase == Some(Phase::RolledBack))
        })
        .await;
        measured(&format!("all-pods-lost: scaled to zero to rolled back: {} ms", lost.elapsed().as_millis()));
        let status = it.rolled_back().await;
        assert_eq!(cause(&status), Some(Cause::ReadinessLost));
        green_gets_nothing_more(it).await;
        let failed = it.load.as_ref().unwrap().snapshot().failed;
        measured(&format!("all-pods-lost: {failed} requests failed"));
    })
    .await;
}
