//! Rollouts that go well.

use crate::harness::scenario;
use crate::manifests::{Setup, pair};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_healthy_target_takes_over_in_stages_and_the_old_color_goes() {
    scenario("promotion", Setup::default(), async |it| {
        it.create_rollout().await;
        for weight in [20, 50, 100] {
            it.stage(weight).await;
        }
        let status = it.promoted().await;
        assert_eq!((status.summary.model.as_str(), status.summary.prompt.as_str()), ("llama@2", "v8"));
        let report = it.load.as_ref().unwrap().snapshot();
        assert!(report.pair(&pair("green")).is_some_and(|green| green.answers > 100), "green answers users");
        let weights = it.ingresses.history();
        let told = |text: &str| weights.iter().position(|line| line.contains(text)).unwrap();
        assert!(told("weight 20") < told("weight 50") && told("weight 50") < told("weight 100"));
        assert!(told("weight 100") < told("bot-anchor names") && told("bot-anchor names") < told("bot names bot-green"));
    })
    .await;
}
