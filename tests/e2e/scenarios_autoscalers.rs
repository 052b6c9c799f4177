//! Somebody else sets the replicas: an autoscaler, or a person after the end of the buffer.

use std::time::Duration;

use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Phase, Reason};
use serde_json::{Value, json};

use crate::harness::{LONG, Scenario, condition, scenario, status_if};
use crate::manifests::Setup;

fn autoscaler(color: &str, least: u32) -> Value {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("bot-{color}") });
    let cpu = json!({ "type": "Utilization", "averageUtilization": 60 });
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": format!("scales-{color}") },
        "spec": {
            "scaleTargetRef": target, "minReplicas": least, "maxReplicas": 4,
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": cpu } }],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn deployments_that_an_autoscaler_owns_are_scaled_by_nobody_else() {
    let setup = Setup::default().stages(&[(50, "1s"), (100, "1s")]).with("/rollback/buffer", json!("2s"));
    let setup = setup.and(autoscaler("blue", 2)).and(autoscaler("green", 1));
    scenario("autoscaler", setup, async |it| {
        it.create_rollout().await;
        let status = it.condition("Preflight", "True", Reason::AutoscalerPresent).await;
        let message = Scenario::told(&status, "Preflight");
        for text in ["scales-blue sets the replicas of Deployment bot-blue", "scales-green", "minReplicas"] {
            assert!(message.contains(text), "{text} in {message}");
        }
        let waits = |object: &ModelRollout| {
            status_if(object, |status| status.phase == Some(Phase::Preparing))
                .filter(|status| status.summary.message.contains("kubectl scale"))
        };
        let status = it.until("it says who has to scale green", LONG, waits).await;
        assert!(status.summary.message.contains("scales-green sets its replicas"), "{}", status.summary.message);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(it.replicas("bot-green").await, 0);
        it.scale_by_hand("bot-green", 2).await;
        it.stage(100).await;
        let over = |object: &ModelRollout| status_if(object, |status| status.phase == Some(Phase::Stable));
        it.until("the end of the promotion", LONG, over).await;
        it.at_rest("bot-green").await;
        assert_eq!(it.replicas("bot-blue").await, 2, "its autoscaler decides");
        assert!(!it.writes().contains(&"scale".to_owned()), "{:?}", it.writes());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_old_color_that_somebody_scales_up_again_is_told_once_and_not_fought() {
    let setup = Setup::default().stages(&[(100, "1s")]).with("/rollback/buffer", json!("2s"));
    scenario("contested", setup, async |it| {
        it.create_rollout().await;
        it.promoted().await;
        it.scale_by_hand("bot-blue", 1).await;
        let told = it.event_with(Reason::ScaleContested, "blue has 1 replicas").await;
        assert!(told.contains("bot-blue") || told.contains("afterBuffer"), "{told}");
        it.ready("bot-blue", 1).await;
        // whatever it would write or say again, it would have by now
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!((it.replicas("bot-blue").await, it.count_events(Reason::ScaleContested).await), (1, 1));
        let status = it.phase(Phase::Stable).await;
        assert_eq!(condition(&status, "Ready"), ("True".to_owned(), Reason::ScaleContested.to_string()));
        it.scale_by_hand("bot-blue", 0).await;
        it.condition("Ready", "True", Reason::AtTarget).await;
        it.at_rest("bot-green").await;
    })
    .await;
}
