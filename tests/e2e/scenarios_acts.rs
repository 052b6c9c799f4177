//! What people ask for by annotation: `promote`, `approve`, and what is not right.

use std::time::Duration;

use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Phase, Reason};
use serde_json::json;

use crate::harness::{LONG, in_stage, scenario, status_if};
use crate::looks::run_command_in;
use crate::manifests::{NAME, Setup, pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn promote_skips_what_is_left_and_wrong_acts_only_tell_the_right_command() {
    let setup = Setup::default().stages(&[(20, "5m"), (50, "5m"), (100, "5m")]);
    scenario("promote", setup.with("/rollback/buffer", json!("2s")), async |it| {
        it.create_rollout().await;
        it.stage(20).await;
        it.annotate("modelrollout.dev/aprove", "1/1").await;
        it.event_with(Reason::ActIgnored, "aprove=1/1: this act is not known").await;
        it.acts_removed().await;
        it.annotate("modelrollout.dev/promote", "7").await;
        let ignored = it.event_with(Reason::ActIgnored, "promote=7: this is attempt 1").await;
        it.acts_removed().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = it.stage(20).await;
        assert_eq!(status.phase, Some(Phase::Progressing), "neither did anything");
        run_command_in(&ignored);
        let status = it.promoted().await;
        let history = it.ingresses.history();
        assert!(!history.iter().any(|line| line.contains("weight 50") || line.contains("weight 100")), "{history:#?}");
        it.event_with(Reason::PromoteRequested, "attempt 1").await;
        let acts: Vec<_> = status.acts.iter().map(|act| (act.act.as_str(), act.value.as_str())).collect();
        assert_eq!(acts, [("promote", "1"), ("promote", "7"), ("aprove", "1/1")]);
        assert!(status.acts[0].effect.starts_with("ActApplied"), "{:?}", status.acts[0]);
        assert!(status.acts[1..].iter().all(|act| act.effect.starts_with("ActIgnored")), "{:?}", status.acts);
        let report = it.load.as_ref().unwrap().snapshot();
        assert!(report.pair(&pair("green")).is_some_and(|green| green.answers > 50), "green answers users");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn approve_passes_a_stage_that_lacks_nothing_but_samples_and_says_so() {
    let setup = Setup::default()
        .with("/stages", json!([{ "weight": 50, "hold": "1s" }, { "weight": 100, "hold": "1s" }]))
        .with("/gates/0/minSamples", json!(1_000_000))
        .with("/rollback/buffer", json!("2s"));
    scenario("no-evidence", setup, async |it| {
        it.create_rollout().await;
        for (number, weight) in [(1, 50), (2, 100)] {
            it.stage(weight).await;
            let holding = |object: &ModelRollout| {
                status_if(object, |status| in_stage(weight)(status) && status.phase == Some(Phase::Holding))
                    .filter(|status| status.summary.message.contains("of 1000000 requests"))
            };
            let status = it.until("it holds for samples", LONG, holding).await;
            let message = &status.summary.message;
            assert!(message.contains(&format!("modelrollout.dev/approve=1/{number}")), "{message}");
            run_command_in(message);
        }
        let status = it.promoted().await;
        assert_eq!(status.acts.len(), 2);
        assert!(status.acts.iter().all(|act| act.effect.contains("ApprovedWithoutEvidence")), "{:?}", status.acts);
        assert!(
            status.history[0].acts.iter().all(|act| act.contains("ApprovedWithoutEvidence")),
            "{:?}",
            status.history
        );
        it.event_with(Reason::ApprovedWithoutEvidence, "stage 2 of attempt 1").await;
        it.event_with(Reason::BufferEndedUnjudged, "gate errors").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn promote_before_the_first_stage_switches_as_soon_as_the_target_is_ready() {
    let setup = Setup::default().stages(&[(20, "5m"), (100, "5m")]).with("/rollback/buffer", json!("2s"));
    scenario("promote-early", setup.with("/paused", json!(true)), async |it| {
        it.create_rollout().await;
        it.until("an attempt", LONG, |object| status_if(object, |status| status.attempt.is_some())).await;
        it.annotate("modelrollout.dev/promote", "1").await;
        it.event_with(Reason::PromoteRequested, "when spec.paused is false again").await;
        it.ready("bot-green", 2).await;
        it.phase(Phase::Paused).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(it.ingresses.history().len(), 1, "a paused rollout is not promoted");
        it.patch::<ModelRollout>(NAME, json!({ "spec": { "paused": false } })).await;
        it.promoted().await;
        let history = it.ingresses.history();
        assert!(!history.iter().any(|line| line.contains("canary")), "no shares of traffic: {history:#?}");
    })
    .await;
}
