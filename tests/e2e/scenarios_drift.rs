//! Other people and other programs write the backend of the Ingress.

use std::time::{Duration, Instant};

use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Patch, PatchParams};
use modelrollout::api::reasons::{Cause, Outcome, Phase, Reason};
use modelrollout::api::{Color, ModelRollout};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::harness::{SHORT, Scenario, measured, scenario, status_if};
use crate::manifests::{NAME, Setup, ingress};

/// Both colors are up.
fn warm(target: &str) -> Setup {
    let mut setup = Setup::default().stages(&[(50, "5m"), (100, "1s")]).with("/target", json!(target));
    setup.green.replicas = 2;
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_switch_by_hand_to_a_color_that_can_carry_sticks_at_rest() {
    scenario("switched-rest", warm("blue"), async |it| {
        it.ready("bot-green", 2).await;
        it.create_rollout().await;
        it.phase(Phase::Stable).await;
        it.switch_by_hand(NAME, "bot-green").await;
        it.event_with(Reason::ExternalSwitch, "kubectl-edit switched the backend of Ingress bot to green").await;
        let follows = |object: &ModelRollout| status_if(object, |status| status.active_color == Some(Color::Green));
        it.until("the color that serves follows", SHORT, follows).await;
        // whatever would start or write by itself would have done so by now
        tokio::time::sleep(Duration::from_secs(3)).await;
        let status = it.phase(Phase::RolledBack).await;
        assert!(status.attempt.is_none(), "nothing starts by itself");
        it.at_rest("bot-green").await;
        assert_eq!(it.ingresses.history().len(), 2, "one switch, and that was by hand: {:?}", it.ingresses.history());
        assert_eq!((it.replicas("bot-blue").await, it.replicas("bot-green").await), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_switch_by_hand_to_a_color_that_can_carry_sticks_in_a_stage() {
    scenario("switched-stage", warm("green"), async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        it.switch_by_hand(NAME, "bot-green").await;
        let ended = |object: &ModelRollout| status_if(object, |status| !status.history.is_empty());
        let status = it.until("the attempt ends", SHORT, ended).await;
        assert_eq!(status.history[0].cause, Some(Cause::ExternalSwitch));
        assert_eq!((status.history[0].outcome, status.active_color), (Outcome::Promoted, Some(Color::Green)));
        it.at_rest("bot-green").await;
        let status = it.phase(Phase::Stable).await;
        assert_eq!(status.attempt.unwrap().id, 1);
        assert_eq!(it.replicas("bot-blue").await, 2, "blue stays up as it is");
        // requests that follow are part of the scenario
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
}

/// Applies the Ingress with `service` again and again, as a Git tool does that does not ignore the backend.
fn applied_again(it: &Scenario, service: &str) -> JoinHandle<()> {
    let (api, object) = (it.api::<Ingress>(), ingress(NAME, &it.host, service));
    let params = PatchParams::apply("argocd-controller").force();
    tokio::spawn(async move {
        loop {
            api.patch(NAME, &params, &Patch::Apply(&object)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    })
}

/// The instants at which the Ingress of the users named `service` anew, in seconds.
fn switches_to(it: &Scenario, service: &str) -> Vec<f64> {
    let history = it.ingresses.history();
    let lines = history.iter().filter_map(|line| line.trim().split_once(' '));
    let to = lines.filter(|(_, what)| what.trim() == format!("bot names {service}"));
    to.map(|(at, _)| at.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_switch_to_a_color_that_cannot_carry_is_written_back_but_never_in_a_fight() {
    let setup = Setup::default().stages(&[(50, "5m"), (100, "1s")]).with("/rollback/buffer", json!("1s"));
    scenario("drift", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        // one of the two Pods that all traffic needs: enough for the stage, and it answers as long as it is named wrongly
        it.scale_by_hand("bot-green", 1).await;
        it.ready("bot-green", 1).await;
        it.switch_by_hand(NAME, "bot-green").await;
        it.event_with(Reason::BackendRestored, "kubectl-edit changed the backend of Ingress bot").await;
        it.ingresses.until("it is written back", SHORT, |all| it.all_name(all, "bot-blue")).await;
        assert_eq!(switches_to(it, "bot-blue").len(), 2, "at the start, and by one write");
        let argo = applied_again(it, "bot-green");
        let status = it.condition("Progressing", "False", Reason::FieldConflict).await;
        let message = &status.summary.message;
        assert!(message.contains("argocd-controller changed Ingress bot 3 times"), "{message}");
        it.ingresses.until("one more write", Duration::from_secs(40), |_| switches_to(it, "bot-blue").len() == 4).await;
        argo.abort();
        let told = it.event_with(Reason::FieldConflict, "argocd-controller").await;
        assert!(told.contains("ignoreDifferences"), "{told}");
        let writes = switches_to(it, "bot-blue");
        measured(&format!("drift: written back at {:?} s while another program wrote every 3 s", &writes[1..]));
        assert!(writes[3] - writes[2] > 28.0, "not before 30 s are over: {writes:?}");
        it.ingresses.until("the last word", Duration::from_secs(40), |all| it.all_name(all, "bot-blue")).await;
        it.annotate("modelrollout.dev/rollback", "somebody writes our Ingress").await;
        it.rolled_back().await;
        // well beyond the time that green's streams are given
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(it.replicas("bot-green").await, 1, "nothing is scaled down while a conflict lasts");
        assert!(it.writes().iter().filter(|write| *write == "switch_backend").count() <= 4, "{:?}", it.writes());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_switch_by_hand_to_a_color_without_pods_is_written_back_at_once_at_rest() {
    let setup = Setup::default().with("/target", json!("blue"));
    scenario("switched-dead", setup.without_load(), async |it| {
        it.create_rollout().await;
        it.phase(Phase::Stable).await;
        let (before, at) = (it.ingress().await.spec, Instant::now());
        it.switch_by_hand(NAME, "bot-green").await;
        it.event_with(Reason::BackendRestored, "to green, which has no ready Pod").await;
        it.ingresses.until("it is written back", SHORT, |all| it.all_name(all, "bot-blue")).await;
        assert!(at.elapsed() < Duration::from_secs(5), "{:?}", at.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((switches_to(it, "bot-blue").len(), it.ingress().await.spec), (2, before), "one write");
        let status = it.phase(Phase::Stable).await;
        assert!(status.attempt.is_none() && status.active_color == Some(Color::Blue));
    })
    .await;
}
