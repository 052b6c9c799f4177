//! Any ingress controller: no shares of traffic, only the switch of the backend.

use std::time::Instant;

use modelrollout::api::reasons::{Cause, Outcome, Phase};
use serde_json::json;

use crate::harness::{LONG, SHORT, Scenario, eventually, scenario};
use crate::manifests::{Setup, pair};

fn plain(hold: &str) -> Setup {
    let errors = json!({ "name": "errors", "minSamples": 20, "errorRate": {
        "bad": r#"http_requests_total{namespace="{{namespace}}",service="{{service}}",code=~"5.."}"#,
        "total": r#"http_requests_total{namespace="{{namespace}}",service="{{service}}"}"#, "max": "5%" } });
    Setup::default()
        .with("/traffic/ingress/controller", json!("none"))
        .with("/stages", json!([{ "weight": 100, "hold": hold }]))
        .with("/gates", json!([errors]))
        .with("/rollback/buffer", json!("3s"))
}

fn no_ingress_of_ours(it: &Scenario) {
    let history = it.ingresses.history();
    assert!(!history.iter().any(|line| line.contains("canary") || line.contains("anchor")), "{history:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn without_shares_a_healthy_target_gets_everything_in_one_switch() {
    scenario("plain", plain("2s"), async |it| {
        it.create_rollout().await;
        it.ingresses.until("the switch", LONG, |all| it.all_name(all, "bot-green")).await;
        it.phase(Phase::Buffering).await;
        let status = it.promoted().await;
        assert_eq!((status.attempt.unwrap().id, status.history[0].outcome), (1, Outcome::Promoted));
        assert_eq!(it.ingresses.history().len(), 2, "one switch: {:?}", it.ingresses.history());
        no_ingress_of_ours(it);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn without_shares_errors_of_the_target_switch_everything_back() {
    scenario("plain-errors", plain("5m").green("FAIL_PERCENT", "40"), async |it| {
        it.create_rollout().await;
        it.ingresses.until("the switch", LONG, |all| it.all_name(all, "bot-green")).await;
        let status = it.rolled_back().await;
        assert_eq!(status.attempt.unwrap().cause, Some(Cause::GateFailed));
        assert_eq!(status.history[0].outcome, Outcome::RolledBack);
        let load = it.load.as_ref().unwrap();
        eventually("all requests go to blue", SHORT, async || {
            let since = Instant::now();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let sent = load.sent_since(since);
            let blue = sent.iter().any(|count| count.pair == pair("blue") && count.answers > 5);
            if blue && sent.len() == 1 { Ok(()) } else { Err(format!("{sent:?}")) }
        })
        .await;
        assert!(load.snapshot().injected > 0, "green did fail");
        no_ingress_of_ours(it);
    })
    .await;
}
