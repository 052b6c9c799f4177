//! The operator measured on a real cluster, by the API server's audit log: `make bench`.
//!
//! Prints figures; asserts none of them, since machines are noisy. The floor in each table is a request of the same kind
//! made by this program in the same run.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

mod audit;
#[allow(dead_code)]
#[path = "../../tests/e2e/cluster.rs"]
mod cluster;
#[allow(dead_code)]
#[path = "../../tests/e2e/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../../tests/e2e/history.rs"]
mod history;
#[allow(dead_code)]
#[path = "../../tests/e2e/http.rs"]
mod http;
#[allow(dead_code)]
#[path = "../../tests/e2e/manifests.rs"]
mod manifests;
#[allow(dead_code)]
#[path = "../../tests/e2e/operator.rs"]
mod operator;
#[allow(dead_code)]
#[path = "../../tests/e2e/verdicts.rs"]
mod verdicts;

use std::time::{Duration, Instant};

use harness::{SHORT, Scenario, eventually, measured, scenario};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use manifests::Setup;
use modelrollout::api::reasons::Phase;
use modelrollout::api::{ModelRollout, names};
use modelrollout::engine::stats;
use serde_json::{Value, json};

const AUDIT_LOG: (&str, &str) = ("AUDIT_LOG", "/var/lib/modelrollout-cluster/audit.log");
const ROUNDS: (&str, &str) = ("BENCH_ROUNDS", "10");
const REST: (&str, &str) = ("BENCH_REST_SECONDS", "120");
const OBJECTS: (&str, &str) = ("BENCH_OBJECTS", "1000");

#[tokio::main]
async fn main() {
    memory().await;
    raise().await;
    breach().await;
    promotion().await;
}

fn number(name: (&str, &str)) -> u64 {
    cluster::variable(name).parse().unwrap()
}

fn log() -> String {
    cluster::variable(AUDIT_LOG)
}

fn show(name: &str, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    let at =
        |share: f64| seconds.get(((seconds.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN);
    measured(&format!(
        "{name}: n {}, p50 {:.1} ms, p90 {:.1} ms, max {:.1} ms",
        seconds.len(),
        at(0.5) * 1e3,
        at(0.9) * 1e3,
        at(1.0) * 1e3
    ));
}

fn two_stages() -> Value {
    json!([{ "weight": 50, "hold": "5m" }, { "weight": 100, "hold": "5m" }])
}

/// Target ready → weight written: from the last write of the cluster that made the target ready to the acknowledged
/// canary.
async fn raise() {
    let setup = Setup::default()
        .with("/stages", two_stages())
        .with("/gates", json!([]))
        .with("/rollback", json!({ "buffer": "1s" }));
    scenario("bench-raise", Setup { load: false, ..setup }, async |s: &mut Scenario| {
        floor(s).await;
        let began = Timestamp::now();
        s.create_rollout().await;
        for round in 0..number(ROUNDS) {
            s.stage(50).await;
            s.annotate(names::ANNOTATION_ROLLBACK, &format!("round {round}")).await;
            s.phase(Phase::RolledBack).await;
            no_green_pods(s).await;
            s.annotate(names::ANNOTATION_RETRY, &format!("round-{round}")).await;
        }
        let all = audit::read(&log(), &s.namespace, began, Timestamp::now());
        let created = all.iter().enumerate().filter(|(_, request)| request.is("create", "ingresses", "bot-canary"));
        let took = created.filter_map(|(at, created)| {
            let intent = all[..at].iter().rposition(|request| request.is("update", "modelrollouts/status", "bot"))?;
            let intent_at = all[intent].received;
            let makes_ready = |request: &audit::Request| {
                request.is("update", "deployments/status", "bot-green")
                    || request.is("update", "endpointslices", "")
                    || request.is("patch", "pods/status", "")
            };
            let ready = all.iter().rev().find(|request| makes_ready(request) && request.at <= intent_at)?;
            Some(created.at.duration_since(ready.at).as_secs_f64())
        });
        show("target ready → weight written", took.collect());
    })
    .await;
}

/// The floor: a request of the same size by this program, one after the other.
async fn floor(s: &Scenario) {
    let mut took = Vec::new();
    for round in 0..50 {
        let began = Instant::now();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "bench": round.to_string() } } }));
        s.api::<ConfigMap>().patch("prompt-green", &PatchParams::default(), &patch).await.unwrap();
        took.push(began.elapsed().as_secs_f64());
    }
    show("floor: one PATCH round trip", took);
}

async fn no_green_pods(s: &Scenario) {
    eventually("green's Pods are gone", SHORT, async || {
        let pods = s.api::<Pod>().list(&ListParams::default().labels("color=green")).await.unwrap().items.len();
        if pods == 0 { Ok(()) } else { Err(format!("{pods} Pods")) }
    })
    .await;
}

/// Breach visible in Prometheus → weight 0 written. Green fails half of its answers; with at most 5 % of at least 20
/// requests the second bad one decides. We ask Prometheus every 20 ms for what the operator counts.
async fn breach() {
    let setup = Setup::default()
        .green("FAIL_PERCENT", "50")
        .with("/stages", two_stages())
        .with("/rollback", json!({ "buffer": "1s" }));
    scenario("bench-breach", setup, async |s: &mut Scenario| {
        let mut took = Vec::new();
        let mut writes = Vec::new();
        s.create_rollout().await;
        for round in 0..number(ROUNDS) {
            let status = s.stage(50).await;
            let start = status.attempt.unwrap().stage_started_at.unwrap().0;
            let visible = visible_breach(s, start).await;
            s.phase(Phase::RolledBack).await;
            no_green_pods(s).await;
            s.at_rest("bot-blue").await;
            let all = audit::read(&log(), &s.namespace, start, Timestamp::now());
            let deleted =
                all.iter().find(|request| request.is("delete", "ingresses", "bot-canary")).expect("the delete");
            took.push(deleted.at.duration_since(visible).as_secs_f64());
            let after = all.iter().filter(|request| request.at >= deleted.at).cloned().collect::<Vec<_>>();
            writes.push(
                audit::of_operator(&after, &s.namespace)
                    .iter()
                    .filter(|request| request.is_write())
                    .map(audit::Request::show)
                    .collect::<Vec<_>>(),
            );
            s.annotate(names::ANNOTATION_RETRY, &format!("round-{round}")).await;
        }
        show("breach visible in Prometheus → canary deleted", took);
        let most = writes.iter().max_by_key(|writes| writes.len()).unwrap();
        measured(&format!("writes of one rollback, at most {}: {}", most.len(), most.join(", ")));
    })
    .await;
}

/// When Prometheus first shows counts since `start` that are plainly over the limit.
async fn visible_breach(s: &Scenario, start: Timestamp) -> Timestamp {
    let selector = format!(r#"http_requests_total{{namespace="{}",service="bot-green""#, s.namespace);
    let since = |more: &str| {
        let (all, at) = (format!("{selector}{more}}}[5m]"), start.as_second());
        format!("sum(last_over_time({all})) - (sum(last_over_time({all} @ {at})) or vector(0))")
    };
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/api/v1/query", cluster::variable(cluster::PROMETHEUS_URL));
    let ask = async |query: String| {
        let response = client.get(&url).query(&[("query", &query)]).send().await.unwrap();
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let value = answer["data"]["result"][0]["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
        value.unwrap_or(0.0) as u64
    };
    let end = Instant::now() + SHORT;
    loop {
        let (bad, total) = (ask(since(r#",code=~"5..""#)).await, ask(since("")).await);
        if total >= 10 && stats::crosses(bad, total, 0.05, 1000_f64.ln()) {
            return Timestamp::now();
        }
        assert!(Instant::now() < end, "no breach");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes and reads of one promotion of five stages, and requests at rest after it.
async fn promotion() {
    let stages = [5, 10, 25, 50, 100].map(|weight| json!({ "weight": weight, "hold": "2s" }));
    let setup = Setup::default().with("/stages", json!(stages));
    for (name, setup) in [("with gates", setup.clone()), ("without gates", setup.with("/gates", json!([])))] {
        scenario("bench-promotion", setup, async |s: &mut Scenario| {
            let began = Timestamp::now();
            s.create_rollout().await;
            s.promoted().await;
            let ended = Timestamp::now();
            let all = audit::of_operator(&audit::read(&log(), &s.namespace, began, ended), &s.namespace);
            let writes = all.iter().filter(|request| request.is_write()).count();
            let reads: Vec<_> = all.iter().filter(|request| request.is_read()).map(audit::Request::show).collect();
            measured(&format!(
                "one promotion of 5 stages, {name}: {writes} writes, {} reads beside the watches: {reads:?}",
                reads.len()
            ));
            if name == "with gates" {
                let seconds = number(REST);
                let began = Timestamp::now();
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let rest =
                    audit::of_operator(&audit::read(&log(), &s.namespace, began, Timestamp::now()), &s.namespace);
                let other: Vec<_> =
                    rest.iter().filter(|request| !request.is("", "leases", "")).map(audit::Request::show).collect();
                measured(&format!(
                    "at rest for {seconds} s: {} requests for the lease, others: {other:?}",
                    rest.len() - other.len()
                ));
            }
        })
        .await;
    }
}

/// Resident memory with no object, and with many that are at rest.
async fn memory() {
    let nothing = Setup { load: false, ..Setup::without_pods() };
    scenario("bench-memory", nothing, async |s: &mut Scenario| {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let operator = s.operator.as_ref().unwrap();
        measured(&format!("memory with no object: {}", resident(operator.pid())));
        let count = number(OBJECTS);
        for number in 0..count {
            let mut spec = Setup::default().spec;
            spec["target"] = json!("blue");
            cluster::create(&s.client, &s.namespace, &manifests::rollout(&format!("many-{number}"), &spec)).await;
        }
        eventually("every object has a status", Duration::from_mins(3), async || {
            let all = s.api::<ModelRollout>().list(&ListParams::default()).await.unwrap();
            let missing = all.iter().filter(|object| object.status.is_none()).map(ResourceExt::name_any).count();
            if missing == 0 { Ok(()) } else { Err(format!("{missing} without")) }
        })
        .await;
        measured(&format!("memory with {count} objects: {}", resident(s.operator.as_ref().unwrap().pid())));
    })
    .await;
}

fn resident(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|number| number.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
    };
    format!(
        "{:.1} MiB resident ({:.1} of its own, {:.1} of the program file)",
        value("VmRSS"),
        value("RssAnon"),
        value("RssFile")
    )
}
