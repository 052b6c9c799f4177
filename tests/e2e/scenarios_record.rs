//! The record of decisions: from its lines alone the whole rollout can be told.

use modelrollout::api::reasons::{Cause, Outcome, Reason, Verdict};
use modelrollout::api::{Color, names};
use serde_json::json;

use crate::harness::scenario;
use crate::manifests::Setup;
use crate::verdicts;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn the_whole_rollout_can_be_told_from_the_record() {
    let stages = json!([{ "weight": 20, "hold": "2s", "approval": "Required" }, { "weight": 100, "hold": "2s" }]);
    scenario("record", Setup::default().with("/stages", stages), async |it| {
        it.create_rollout().await;
        it.stage(20).await;
        it.annotate(names::ANNOTATION_ROLLBACK, "complaints").await;
        it.rolled_back().await;
        it.annotate(names::ANNOTATION_RETRY, "once-more").await;
        it.phase(modelrollout::api::reasons::Phase::AwaitingApproval).await;
        it.annotate(names::ANNOTATION_APPROVE, "2/1").await;
        let status = it.promoted().await;

        let all = verdicts::decisions(&it.launcher.logs());
        let of = |attempt| all.iter().filter(move |one| one.attempt == Some(attempt));
        let reasons = |attempt| of(attempt).map(|one| one.reason).collect::<Vec<_>>();
        let has = |attempt, wanted: &[Reason]| {
            let mut left = wanted.iter().peekable();
            for reason in &reasons(attempt) {
                left.next_if(|next| *next == reason);
            }
            assert!(left.peek().is_none(), "{wanted:?} in this order among {:?}", reasons(attempt));
        };
        has(1, &[Reason::AttemptStarted, Reason::StageStarted, Reason::ActApplied, Reason::RolledBack]);
        has(2, &[Reason::AttemptStarted, Reason::StageStarted, Reason::StageApproved]);
        has(2, &[Reason::StageStarted, Reason::StageStarted, Reason::Switching, Reason::Promoted, Reason::Completed]);
        // who, when, to what and why: the record says what status.history says
        for entry in &status.history {
            let last = of(entry.attempt).next_back().expect("a decision");
            assert_eq!(last.revision.as_ref(), Some(&entry.revision));
            assert_eq!((last.from, last.to), (Some(entry.from), Some(entry.to)));
            assert_eq!(last.model.as_ref(), Some(&entry.model));
            assert_eq!(last.prompt, entry.prompt);
        }
        let back = of(1).find(|one| one.reason == Reason::RolledBack).expect("the rollback");
        assert_eq!((back.cause, back.active_color), (Some(Cause::RollbackRequested), Some(Color::Blue)));
        assert!(back.message.contains("complaints"), "{}", back.message);
        assert_eq!(status.history.last().map(|entry| entry.outcome), Some(Outcome::RolledBack));
        let weights: Vec<_> = of(2).filter(|one| one.reason == Reason::StageStarted).map(|one| one.weight).collect();
        assert_eq!(weights, [Some(20), Some(100)]);
        let left = of(2).filter(|one| one.reason == Reason::StageStarted).nth(1).expect("the second stage");
        assert!(left.time > back.time, "times rise");
        let promoted = of(2).find(|one| one.reason == Reason::Switching).expect("the switch");
        assert!(promoted.gates.iter().all(|gate| gate.verdict == Verdict::Pass), "{:?}", promoted.gates);
    })
    .await;
}
