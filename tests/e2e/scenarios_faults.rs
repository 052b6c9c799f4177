//! Rollouts whose operator, or whose Prometheus, goes away.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use modelrollout::api::reasons::{Phase, Step};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::json;

use crate::cluster::{PROMETHEUS_URL, variable};
use crate::harness::{
    LONG, SHORT, Scenario, at_step, condition, eventually, in_stage, measured, scenario, scenario_with, status_if,
};
use crate::manifests::Setup;
use crate::proxy::Proxy;

fn started_at(status: &ModelRolloutStatus) -> Option<String> {
    let start = status.attempt.as_ref().and_then(|attempt| attempt.stage_started_at.as_ref());
    start.map(|time| time.0.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_operator_that_is_killed_in_every_step_goes_on_where_it_was() {
    let stages = json!([{ "weight": 50, "hold": "6s" }, { "weight": 100, "hold": "2s" }]);
    scenario("killed", Setup::default().with("/stages", stages), async |it| {
        it.create_rollout().await;
        for step in [Step::Preparing, Step::Stage, Step::Promoting, Step::Buffering] {
            let before = it.until(&format!("step {step}"), LONG, |object| status_if(object, at_step(step))).await;
            if step == Step::Stage {
                it.stage(50).await;
            }
            it.kill_and_start_again().await;
            let (attempt, start) = (before.attempt.as_ref().unwrap(), started_at(&before));
            let after = it.operator_works_again().await;
            let now = after.attempt.as_ref().unwrap();
            assert_eq!(now.id, attempt.id, "the same attempt after {step}");
            if step == Step::Stage && in_stage(50)(&after) {
                assert_eq!(started_at(&after), start, "the clock of the stage goes on");
            }
        }
        let status = it.promoted().await;
        assert_eq!((status.attempt.unwrap().id, status.history.len()), (1, 1));
        let events = it.events().await;
        let restored = events.iter().filter(|event| event.0 == "CanaryRestored").count();
        assert_eq!(restored, 0, "nobody touched the canary: {events:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_operator_that_is_killed_while_it_goes_back_leaves_all_traffic_on_blue() {
    let setup =
        Setup::default().with("/stages", json!([{ "weight": 50, "hold": "5m" }, { "weight": 100, "hold": "2s" }]));
    scenario("killed-back", setup, async |it| {
        it.create_rollout().await;
        for (number, wait) in [(1, 0), (2, 15), (3, 60)] {
            let status = it.stage(50).await;
            assert_eq!(status.attempt.unwrap().id, number);
            it.annotate("modelrollout.dev/rollback", &format!("reason {number}")).await;
            tokio::time::sleep(Duration::from_millis(wait)).await;
            it.kill_and_start_again().await;
            let status = it.rolled_back().await;
            let attempt = status.attempt.unwrap();
            assert_eq!((attempt.id, attempt.open, status.history.len()), (number, false, number as usize));
            it.annotate("modelrollout.dev/retry", &format!("again {number}")).await;
        }
    })
    .await;
}

impl Scenario {
    /// Waits until the operator that was started again has the lease and has looked at the rollout.
    async fn operator_works_again(&self) -> ModelRolloutStatus {
        let starts = |log: &str| log.matches("this process leads").count();
        let wanted = self.launcher.logs()[0].1.matches("starting version").count();
        eventually("the operator leads again", SHORT, async || {
            let count = starts(&self.launcher.logs()[0].1);
            if count >= wanted { Ok(()) } else { Err(format!("{count} of {wanted}")) }
        })
        .await;
        self.api::<ModelRollout>().get("bot").await.unwrap().status.unwrap()
    }

    async fn holder(&self) -> Result<String, String> {
        let lease = self.api::<Lease>().get("modelrollout-operator").await.map_err(|error| error.to_string())?;
        lease.spec.and_then(|spec| spec.holder_identity).ok_or_else(|| "nobody".to_owned())
    }

    /// Waits until `identity` holds the lease.
    async fn held_by(&self, identity: &str) {
        let end = Instant::now() + SHORT;
        loop {
            let holder = self.holder().await;
            if holder.as_deref() == Ok(identity) {
                return;
            }
            assert!(Instant::now() < end, "{identity} does not lead, but {holder:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_standby_goes_on_within_seconds_of_a_crash_and_at_once_after_sigterm() {
    let stages = json!([{ "weight": 50, "hold": "4s" }, { "weight": 100, "hold": "4s" }]);
    scenario("standby", Setup::default().with("/stages", stages), async |it| {
        it.held_by("operator-1").await;
        let mut standby = it.launcher.start("operator-2");
        it.create_rollout().await;
        let before = it.stage(50).await;
        it.operator.take().unwrap().kill().await;
        let killed = Instant::now();
        it.held_by("operator-2").await;
        let took = killed.elapsed();
        measured(&format!("standby: leader killed to standby leads: {:.2} s", took.as_secs_f64()));
        assert!(took < Duration::from_secs(8), "{took:?}");
        let after = it.api::<ModelRollout>().get("bot").await.unwrap().status.unwrap();
        assert_eq!(after.attempt.as_ref().unwrap().id, before.attempt.as_ref().unwrap().id);

        let third = it.launcher.start("operator-3");
        it.stage(100).await;
        // on a busy machine the API server itself is slow: what the hand-over takes beyond that is the operator's own
        let asked = Instant::now();
        it.annotate("e2e/touched", "once").await;
        let one_write = asked.elapsed();
        standby.terminate();
        let told = Instant::now();
        it.held_by("operator-3").await;
        let took = told.elapsed();
        measured(&format!("standby: SIGTERM to standby leads: {} ms", took.as_millis()));
        standby.ended().await;
        measured(&format!("standby: SIGTERM to the end of the process: {} ms", told.elapsed().as_millis()));
        it.operator = Some(third);
        it.promoted().await;
        assert!(took < Duration::from_secs(1) + 5 * one_write, "{took:?}, one write takes {one_write:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_prometheus_that_is_down_holds_a_stage_and_nothing_else() {
    let mut proxy = Proxy::start(&variable(PROMETHEUS_URL)).await;
    let stages = json!([{ "weight": 50, "hold": "3s" }, { "weight": 100, "hold": "2s" }]);
    let setup = Setup::default().with("/stages", stages);
    scenario_with("prometheus-down", setup, proxy.url(), async |it| {
        it.create_rollout().await;
        let before = it.stage(50).await;
        proxy.close().await;
        let failed = |status: &ModelRolloutStatus| {
            condition(status, "Progressing").1 == "QueryFailed" && status.phase == Some(Phase::Holding)
        };
        let held = it.until("Holding/QueryFailed", LONG, |object| status_if(object, failed)).await;
        assert!(in_stage(50)(&held));
        // held means held: well beyond the hold of the stage
        tokio::time::sleep(Duration::from_secs(5)).await;
        let weight = it.ingresses.now().get("bot-canary").and_then(|canary| canary.weight.clone());
        assert_eq!(weight.as_deref(), Some("50"));
        assert_eq!(started_at(&held), started_at(&before));
        proxy.open().await;
        it.stage(100).await;
        it.promoted().await;
    })
    .await;
}
