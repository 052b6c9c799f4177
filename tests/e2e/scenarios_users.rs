//! Users who are named get the target first, and nobody else does.

use std::time::{Duration, Instant};

use modelrollout::api::reasons::Phase;
use serde_json::json;

use crate::harness::{LONG, SHORT, Scenario, eventually, measured, scenario};
use crate::http::get;
use crate::manifests::{Setup, pair};

const HEADER: &str = "x-user-id";

async fn model_of(it: &Scenario, user: &str) -> Result<String, String> {
    Ok(get(&it.host, "/v1/models", &[(HEADER, user)]).await?.ok()?.model)
}

/// Waits until the ingress controller gives `user` to `model`, and asserts that it goes on doing so.
async fn always(it: &Scenario, user: &str, model: &str) {
    eventually(&format!("{user} gets {model}"), SHORT, async || {
        let seen = model_of(it, user).await?;
        if seen == model { Ok(()) } else { Err(seen) }
    })
    .await;
    for _ in 0..15 {
        assert_eq!(model_of(it, user).await.as_deref(), Ok(model), "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn named_users_get_the_target_first_and_go_back_with_it() {
    let users = json!({ "header": HEADER, "values": ["alice", "bob.b", "e.v:e~1-2"] });
    let stages = json!([
        { "weight": 0, "hold": "1s", "approval": "Required", "users": users },
        { "weight": 50, "hold": "5m" }, { "weight": 100, "hold": "1s" },
    ]);
    scenario("users", Setup::default().stages(&[]).with("/stages", stages), async |it| {
        it.create_rollout().await;
        it.stage(0).await;
        let status = it.phase(Phase::AwaitingApproval).await;
        assert_eq!(status.summary.weight, Some(0));
        for user in ["alice", "bob.b", "e.v:e~1-2"] {
            always(it, user, "llama@2").await;
        }
        for stranger in ["alicex", "xalice", "al.ce", "bobxb", "bob-b", "alice|bob.b", "^alice$", "", "exv:e~1-2"] {
            always(it, stranger, "llama@1").await;
        }
        let report = it.load.as_ref().unwrap().snapshot();
        assert!(report.pair(&pair("green")).is_none(), "nobody else gets green: {:?}", report.by_pair);
        it.annotate("modelrollout.dev/approve", "1/1").await;
        it.stage(50).await;
        let load = it.load.as_ref().unwrap();
        let since = Instant::now();
        eventually("both answer the others", LONG, async || {
            let seen = load.sent_since(since);
            if seen.len() == 2 { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
        for user in ["alice", "bob.b"] {
            always(it, user, "llama@2").await;
        }
        it.annotate("modelrollout.dev/rollback", "complaints").await;
        let asked = Instant::now();
        eventually("alice is back", SHORT, async || match model_of(it, "alice").await? {
            model if model == "llama@1" => Ok(()),
            model => Err(model),
        })
        .await;
        let took = asked.elapsed();
        measured(&format!("users: act to a named user back on blue: {} ms", took.as_millis()));
        assert!(took < Duration::from_secs(2), "{took:?}");
        it.rolled_back().await;
        always(it, "alice", "llama@1").await;
    })
    .await;
}
