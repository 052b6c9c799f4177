//! Names as long as they may be, and objects that are deleted and come back under their names.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, PropagationPolicy};
use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Cause, Phase};
use serde_json::json;

use crate::harness::{LONG, SHORT, eventually, in_stage, measured, scenario, status_if};
use crate::manifests::{NAME, Setup, set};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn names_of_63_characters_are_as_good_as_short_ones() {
    let mut setup = Setup::default().stages(&[(50, "1s"), (100, "1s")]).with("/rollback/buffer", json!("2s"));
    setup.name = format!("a-model-rollout-{}", "x".repeat(47));
    setup.stem = format!("a-deployment-and-a-service-{}", "y".repeat(30));
    scenario("names", setup, async |it| {
        assert_eq!((it.setup.name.len(), it.color("green").len()), (63, 63));
        it.create_rollout().await;
        it.stage(50).await;
        assert_eq!(it.canary(), format!("{}-canary", it.setup.name));
        it.promoted().await;
        it.event("Completed").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_deployment_that_is_deleted_and_created_anew_in_a_stage_is_another_attempt() {
    let setup = Setup::default().stages(&[(50, "5m"), (100, "1s")]);
    scenario("deployment-anew", setup, async |it| {
        it.create_rollout().await;
        let before = it.stage(50).await.attempt.unwrap();
        // the operator sees only the result, and the Pods go on: they are adopted by the Deployment that comes next
        it.operator.take().unwrap().kill().await;
        let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        it.api::<Deployment>().delete("bot-green", &orphan).await.unwrap();
        eventually("it is gone", SHORT, async || match it.api::<Deployment>().get_opt("bot-green").await.unwrap() {
            None => Ok(()),
            Some(_) => Err("still there".to_owned()),
        })
        .await;
        let mut object = it.setup.object("Deployment/bot-green", &it.host);
        set(&mut object, "/spec/replicas", json!(2));
        crate::cluster::create(&it.client, &it.namespace, &object).await;
        it.operator = Some(it.launcher.start("operator-1"));
        let again = |object: &ModelRollout| {
            status_if(object, in_stage(50)).filter(|status| status.attempt.as_ref().is_some_and(|it| it.id == 2))
        };
        let status = it.until("a second attempt", LONG, again).await;
        assert_eq!(status.history[0].cause, Some(Cause::RevisionChanged));
        assert_ne!(status.attempt.unwrap().revision, before.revision, "it has another uid");
        let history = it.ingresses.history();
        assert!(history.iter().any(|line| line.contains("bot-canary is deleted")), "traffic was back: {history:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn an_ingress_that_is_deleted_and_created_anew_in_a_stage_ends_the_attempt() {
    let setup = Setup::default().stages(&[(50, "5m"), (100, "1s")]);
    // no requests while there is no Ingress: nobody can answer them
    scenario("ingress-anew", setup.without_load(), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.delete_ingress(NAME).await;
        it.put("Ingress/bot").await;
        let lost = Instant::now();
        it.ingresses.until("the canary is gone", SHORT, |all| !all.contains_key("bot-canary")).await;
        measured(&format!("ingress-anew: created anew to canary deleted: {} ms", lost.elapsed().as_millis()));
        assert!(lost.elapsed() < Duration::from_secs(3), "{:?}", lost.elapsed());
        // the ingress controller follows up to 2 s later: a first answer may still be by the Ingress that is gone
        tokio::time::sleep(Duration::from_secs(3)).await;
        it.start_load().await;
        let status = it.phase(Phase::RolledBack).await;
        assert_eq!(status.attempt.unwrap().cause, Some(Cause::IngressLost));
        it.rolled_back().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    })
    .await;
}
