//! The model answers as a real API server does: both are asked the same requests, by traces of many kinds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "conformance/compare.rs"]
mod compare;
#[path = "conformance/mask.rs"]
mod mask;
#[path = "conformance/model.rs"]
mod model;
#[path = "conformance/play.rs"]
mod play;
#[path = "conformance/real.rs"]
mod real;
#[path = "conformance/record.rs"]
mod record;
#[path = "conformance/trace.rs"]
mod trace;

use std::panic::AssertUnwindSafe;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;

use compare::{Difference, Masks};
use model::Model;
use play::{Reply, play};
use real::Real;
use trace::Trace;

/// So many traces run on the real server at the same time.
const AT_ONCE: usize = 10;
/// Differences of one request that are printed.
const SHOWN: usize = 12;

#[tokio::test]
async fn model_answers_as_the_real_server() {
    let definition = trace::definition();
    let (mut requests, mut differing, mut differences) = (0, 0, 0);
    let traces = trace::all();
    for trace in &traces {
        let namespace = "conformance-model";
        let played = async {
            let mut model = Model::new(&definition, namespace);
            play(&mut model, trace, namespace).await
        };
        let Ok(replies) = AssertUnwindSafe(played).catch_unwind().await else {
            println!("{}: the model panicked", trace.name);
            requests += trace.steps.len();
            differing += trace.steps.len();
            continue;
        };
        requests += replies.len();
        let found = differ(trace, namespace, &replies, false);
        differing += found.iter().filter(|found| !found.is_empty()).count();
        differences += found.iter().map(Vec::len).sum::<usize>();
    }
    println!("{} traces, {requests} requests, {differing} differ, {differences} differences", traces.len());
    assert_eq!(differing, 0, "requests that the model answers otherwise");
    let all = std::env::var("TRACE").is_err();
    assert!(!all || requests >= 300, "{requests} requests are too few to prove it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a cluster: KUBECONFIG; UPDATE=1 records anew"]
async fn the_recording_is_what_the_real_server_says() {
    let update = std::env::var("UPDATE").is_ok_and(|value| value == "1");
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = kube::Config::infer().await.expect("a cluster");
    // an answer that asks to come again later is an answer
    config.default_retry = false;
    let client = kube::Client::try_from(config).expect("a client");
    #[allow(clippy::disallowed_methods)] // a name of its own for each run
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() % 100_000_000;
    let traces = trace::all();
    let plays = traces.iter().enumerate().map(|(index, trace)| {
        let (client, namespace) = (&client, format!("conformance-{run}-{index}"));
        async move {
            let mut real = Real::new(client, &namespace).await;
            let replies = play(&mut real, trace, &namespace).await;
            real.end(&namespace).await;
            println!("{}: played", trace.name);
            (trace, namespace, replies)
        }
    });
    let plays: Vec<_> = futures::stream::iter(plays).buffer_unordered(AT_ONCE).collect().await;
    let mut differing = 0;
    let mut requests = 0;
    let mut namespaces = Vec::new();
    for (trace, namespace, mut replies) in plays {
        requests += replies.len();
        for reply in replies.iter().filter(|reply| reply.status == 0) {
            println!("{} {}: {}", trace.name, reply.id, reply.body);
            differing += 1;
        }
        if update {
            mask::mask(&mut replies, &namespace);
            record::save(trace, &replies);
        } else {
            let found = differ(trace, &namespace, &replies, true);
            differing += found.iter().filter(|found| !found.is_empty()).count();
        }
        namespaces.push(namespace);
    }
    for namespace in namespaces {
        Real::of(&client).ended(&namespace).await;
    }
    println!("{} traces, {requests} requests, {differing} differ", traces.len());
    assert_eq!(differing, 0, "requests that the real server answers otherwise");
}

/// The differences of each step, printed.
fn differ(trace: &Trace, namespace: &str, replies: &[Reply], warnings: bool) -> Vec<Vec<Difference>> {
    let recorded = record::load(trace, namespace);
    assert_eq!(recorded.len(), trace.steps.len(), "{}: the recording is older than the trace", trace.name);
    let mut masks = Masks::default();
    let mut all = Vec::new();
    for ((step, recorded), reply) in trace.steps.iter().zip(&recorded).zip(replies) {
        assert_eq!((&step.id, &step.line), (&recorded.id, &recorded.asked), "{}: record it anew", trace.name);
        let mut expected = json!({ "status": recorded.status, "body": recorded.body });
        let mut actual = json!({ "status": reply.status, "body": reply.body });
        if warnings {
            expected["warnings"] = json!(recorded.warnings);
            actual["warnings"] = json!(reply.warnings);
        }
        let found = masks.compare(&expected, &actual);
        if !found.is_empty() {
            println!("\n{} / {}: {}", trace.name, step.id, step.line);
        }
        for one in found.iter().take(SHOWN) {
            println!("  {}\n    recorded: {}\n    answered: {}", one.pointer, short(&one.expected), short(&one.actual));
        }
        if found.len() > SHOWN {
            println!("  and {} more", found.len() - SHOWN);
        }
        all.push(found);
    }
    all
}

fn short(text: &str) -> String {
    let head: String = text.chars().take(600).collect();
    if head.len() < text.len() { format!("{head}…") } else { head }
}
