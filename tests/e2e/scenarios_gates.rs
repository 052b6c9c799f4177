//! How gates judge, on real metrics and with real Jobs.

use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use modelrollout::api::reasons::{Cause, Phase, Reason, Verdict};
use modelrollout::api::{GateStatus, ModelRollout, ModelRolloutStatus, names};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cluster::{root, variable};
use crate::harness::{LONG, SHORT, Scenario, eventually, measured, scenario, status_if};
use crate::manifests::{IMAGE, Setup};

fn gate(status: &ModelRolloutStatus, name: &str) -> GateStatus {
    status.gates.iter().find(|gate| gate.name == name).unwrap_or_else(|| panic!("no gate {name}")).clone()
}

/// The PodTemplate of the example, with the local image.
fn judge_template() -> Value {
    let text = std::fs::read_to_string(root().join("examples/gates/answer-schema.yaml")).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let mut template = documents.into_iter().find(|object| object["kind"] == "PodTemplate").expect("a PodTemplate");
    let container = &mut template["template"]["spec"]["containers"][0];
    container["image"] = variable(IMAGE).into();
    container["imagePullPolicy"] = "Never".into();
    template["metadata"].as_object_mut().unwrap().remove("namespace");
    template
}

fn judged_by_job() -> Setup {
    let gates = json!([{ "name": "answer-schema", "job": { "podTemplateName": "answer-schema", "deadline": "60s" } }]);
    let stages = json!([{ "weight": 20, "hold": "2s" }, { "weight": 100, "hold": "2s" }]);
    Setup::default().with("/gates", gates).with("/stages", stages).and(judge_template())
}

async fn jobs(it: &Scenario) -> Vec<Job> {
    it.api::<Job>().list(&ListParams::default()).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_job_judges_the_schema_of_the_answers_at_each_stage() {
    scenario("job", judged_by_job(), async |it| {
        it.create_rollout().await;
        let status = it.promoted().await;
        let record = &status.history[0].gates[0];
        assert_eq!((record.verdict, record.reason.as_str()), (Verdict::Pass, "JobSucceeded"));
        let jobs = jobs(it).await;
        assert_eq!(jobs.len(), 2, "one for each stage");
        let uid = it.api::<ModelRollout>().get("bot").await.unwrap().metadata.uid;
        for job in &jobs {
            let owner = &job.metadata.owner_references.as_ref().unwrap()[0];
            assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("ModelRollout", uid.as_ref()));
            let spec = job.spec.as_ref().unwrap();
            assert_eq!(spec.ttl_seconds_after_finished, Some(3600), "it is cleaned up by itself");
            let pod = spec.template.spec.as_ref().unwrap();
            let env = pod.containers[0].env.as_ref().unwrap();
            let value = |name: &str| env.iter().find(|one| one.name == name).and_then(|one| one.value.clone());
            assert_eq!(value("MODEL").as_deref(), Some("llama@2"));
            assert_eq!(value("SERVICE").as_deref(), Some("bot-green"));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn answers_that_lost_their_schema_send_traffic_back() {
    let setup = judged_by_job().green("BREAK_SCHEMA_PERCENT", "50");
    scenario("job-fails", setup, async |it| {
        it.create_rollout().await;
        let status = it.rolled_back().await;
        let attempt = status.attempt.clone().unwrap();
        assert_eq!(attempt.cause, Some(Cause::GateFailed));
        assert!(attempt.cause_message.unwrap().starts_with("gate answer-schema: the Job bot-answer-schema-"));
        assert_eq!(status.history[0].gates[0].reason, "JobFailed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn a_job_that_is_late_holds_and_one_that_nobody_waits_for_is_ended() {
    let mut template = judge_template();
    template["template"]["spec"]["containers"][0]["env"] = json!([{ "name": "QUESTIONS", "value": "9000" }]);
    let mut setup = judged_by_job();
    setup.extra = vec![template];
    let setup = setup.with("/gates/0/job/deadline", json!("5s")).green("ANSWER_MILLISECONDS", "300");
    scenario("job-late", setup, async |it| {
        it.create_rollout().await;
        let late = |object: &_| status_if(object, |status| gate_reason(status) == Some("JobDeadlineExceeded".into()));
        let status = it.until("the Job is late", LONG, late).await;
        assert_eq!(status.active_color.map(|color| color.to_string()).as_deref(), Some("blue"));
        // a new Job, for a stage that begins anew, and then nobody wants it any more
        let gates =
            json!([{ "name": "answer-schema", "job": { "podTemplateName": "answer-schema", "deadline": "1h" } }]);
        it.patch::<ModelRollout>("bot", json!({ "spec": { "gates": gates } })).await;
        let running = |object: &_| status_if(object, |status| gate_reason(status) == Some("JobRunning".into()));
        it.until("the Job runs", LONG, running).await;
        it.annotate(names::ANNOTATION_ROLLBACK, "enough").await;
        it.rolled_back().await;
        eventually("no Job runs", SHORT, async || {
            let active =
                jobs(it).await.iter().filter(|job| job.status.as_ref().is_some_and(|it| it.active > Some(0))).count();
            if active == 0 { Ok(()) } else { Err(format!("{active} run")) }
        })
        .await;
    })
    .await;
}

fn gate_reason(status: &ModelRolloutStatus) -> Option<String> {
    status.gates.first().map(|gate| gate.reason.clone())
}

/// The gates of one of the files of `examples/gates`.
fn example(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("examples/gates").join(file)).unwrap();
    // Traefik names its services after the Ingress too
    let file: Value = serde_yaml::from_str(&text.replace("-support-bot-", "-bot-")).unwrap();
    file["gates"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn the_gates_of_the_examples_judge_what_the_demo_produces() {
    let mut gates = example("model-server.yaml");
    gates.extend(example("traefik.yaml").into_iter().map(|mut gate| {
        gate["name"] = format!("traefik-{}", gate["name"].as_str().unwrap()).into();
        gate
    }));
    gates.truncate(10);
    let names: Vec<String> = gates.iter().map(|gate| gate["name"].as_str().unwrap().to_owned()).collect();
    for gate in &mut gates {
        // they are made for real traffic: a minute of ours has to do
        if gate.get("errorRate").or(gate.get("latency")).is_some() {
            gate["minSamples"] = 20.into();
        }
        gate["warmup"] = "0s".into();
        gate["dryRun"] = true.into();
    }
    let stages = json!([{ "weight": 50, "hold": "10m" }, { "weight": 100, "hold": "2s" }]);
    let setup = Setup::default().with("/gates", json!(gates)).with("/stages", stages);
    scenario("gate-examples", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        let judged =
            |object: &_| status_if(object, |status| status.gates.iter().all(|gate| gate.verdict != Verdict::Hold));
        let status = it.until("every gate has a verdict", LONG, judged).await;
        for name in &names {
            let gate = gate(&status, name);
            assert_eq!(gate.verdict, Verdict::Pass, "{gate:?}");
        }
        it.annotate(names::ANNOTATION_ROLLBACK, "done").await;
        it.rolled_back().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster: make cluster"]
async fn what_is_no_evidence_holds_each_for_its_own_reason() {
    let errors = |name: &str, bad: &str, total: &str| json!({ "name": name, "dryRun": true, "warmup": "0s", "minSamples": 20, "errorRate": { "bad": bad, "total": total, "max": "5%" } });
    let latency = |name: &str, histogram: &str, max: &str| json!({ "name": name, "dryRun": true, "warmup": "0s", "minSamples": 20, "latency": { "histogram": histogram, "quantile": "0.9", "max": max } });
    let value = |name: &str, query: &str| json!({ "name": name, "dryRun": true, "warmup": "0s", "value": { "query": query, "max": 1 } });
    let ours = r#"{namespace="{{namespace}}",service="{{service}}"}"#;
    let total = format!("http_requests_total{ours}");
    let gates = json!([
        errors("gauge", &total, "go_goroutines{job=\"prometheus\"}"),
        errors("nothing", &total, &format!("no_such_requests_total{ours}")),
        errors("swapped", "prometheus_http_requests_total{job=\"prometheus\",code=\"200\"}", &total),
        errors("expression", &total, &format!("sum(rate({total}[1m]))")),
        value("two", "prometheus_build_info or up"),
        value("text", "\"text\""),
        value("nan", "0/0"),
        latency(
            "native",
            "prometheus_http_request_duration_seconds{job=\"prometheus\",handler=\"/api/v1/query\"}",
            "100s"
        ),
        latency("beyond", &format!("http_request_duration_seconds_bucket{ours}"), "1h"),
        latency("no-buckets", &total, "5s"),
    ]);
    let expected = [
        ("gauge", Reason::NotACounter),
        ("nothing", Reason::NoData),
        ("swapped", Reason::InvalidData),
        ("expression", Reason::InvalidQuery),
        ("two", Reason::InvalidData),
        ("text", Reason::InvalidQuery),
        ("nan", Reason::NoTraffic),
        ("native", Reason::WithinLimit),
        ("beyond", Reason::WithinLimit),
        ("no-buckets", Reason::InvalidData),
    ];
    let stages = json!([{ "weight": 50, "hold": "10m" }, { "weight": 100, "hold": "2s" }]);
    let setup = Setup::default().with("/gates", gates).with("/stages", stages);
    scenario("no-evidence", setup, async |it| {
        it.create_rollout().await;
        it.stage(50).await;
        let all = |object: &_| {
            status_if(object, |status| {
                expected.iter().all(|(name, reason)| gate(status, name).reason == reason.as_str())
            })
        };
        let status = it.until("each gate says what is wrong", LONG, all).await;
        let native = gate(&status, "native");
        measured(&format!(
            "native histogram of Prometheus: {} requests, p90 {}",
            native.samples.unwrap(),
            native.value.unwrap()
        ));
        assert!(status.gates.iter().all(|gate| gate.verdict != Verdict::Fail));
        assert_eq!(status.phase, Some(Phase::Progressing), "what is only shown holds nothing");
        it.annotate(names::ANNOTATION_ROLLBACK, "done").await;
        it.rolled_back().await;
    })
    .await;
}
