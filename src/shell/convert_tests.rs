//! What is kept of API objects, from their JSON.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn an_ingress_is_flattened_with_places() {
    let object: Ingress = parse(json!({
        "metadata": { "name": "bot", "uid": "u", "resourceVersion": "5",
            "annotations": { "nginx.ingress.kubernetes.io/canary": "true", "other": "x" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "K", "name": "n", "uid": "owner", "controller": true }],
            "managedFields": [
                { "manager": "helm", "time": "2026-01-01T00:00:00Z" },
                { "manager": "argocd", "time": "2026-02-01T00:00:00Z" },
                { "manager": "helm", "time": "2026-01-02T00:00:00Z" } ] },
        "spec": { "ingressClassName": "nginx",
            "tls": [{ "hosts": ["a.example"], "secretName": "s" }],
            "rules": [
                { "host": "a.example", "http": { "paths": [
                    { "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "b", "port": { "number": 80 } } } },
                    { "path": "/x", "pathType": "Exact", "backend": { "service": { "name": "g", "port": { "name": "http" } } } } ] } },
                { "http": { "paths": [{ "pathType": "Prefix", "backend": { "resource": { "kind": "K", "name": "n" } } }] } } ] }
    }));
    let seen = IngressSeen::from(&object);
    let places: Vec<_> = seen.paths.iter().map(|path| (path.rule, path.index)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (1, 0)]);
    assert_eq!(seen.paths[0].port, Some(PortSeen::Number(80)));
    assert_eq!(seen.paths[1].port, Some(PortSeen::Name("http".into())));
    assert_eq!((seen.paths[2].host.as_ref(), seen.paths[2].service.as_ref()), (None, None));
    assert_eq!(seen.managers, ["argocd", "helm"]);
    assert_eq!(seen.annotations.len(), 1);
    assert_eq!(seen.owner_uid.as_deref(), Some("owner"));
    assert!(!seen.deleting);
}

#[test]
fn a_pod_is_ready_by_its_condition_only() {
    let ready = json!({ "status": { "phase": "Pending", "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(PodSeen::from(&parse::<Pod>(ready)), PodSeen(None));
    let running = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] } });
    assert_eq!(PodSeen::from(&parse::<Pod>(running)), PodSeen(Some("not ready".into())));
    let leaving = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(PodSeen::from(&parse::<Pod>(leaving)), PodSeen(Some("terminating".into())));
    let unscheduled = json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes are available" }] } });
    let want = "Unschedulable: 0/1 nodes are available";
    assert_eq!(PodSeen::from(&parse::<Pod>(unscheduled)), PodSeen(Some(want.into())));
    let waiting = json!({ "status": { "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": { "waiting": { "reason": "ImagePullBackOff" } } }] } });
    assert_eq!(PodSeen::from(&parse::<Pod>(waiting)), PodSeen(Some("ImagePullBackOff".into())));
}

#[test]
fn a_restarted_container_tells_how_it_ended_whatever_the_count() {
    let pod = |restarts: i32, state: Value| {
        let container = json!({ "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
            "state": state, "lastState": { "terminated": { "reason": "OOMKilled", "exitCode": 137 } } });
        PodSeen::from(&parse::<Pod>(json!({ "status": { "containerStatuses": [container] } }))).0
    };
    let want = "restarted, last ended with OOMKilled (exit code 137)";
    assert_eq!(pod(1, json!({ "running": {} })).as_deref(), Some(want));
    assert_eq!(pod(2, json!({ "running": {} })).as_deref(), Some(want));
    assert_eq!(pod(0, json!({ "running": {} })).as_deref(), Some("not ready"));
    let waits = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    assert_eq!(pod(3, waits).as_deref(), Some("CrashLoopBackOff"));
}

#[test]
fn a_service_is_its_selector_and_its_ports() {
    let seen = ServiceSeen::from(&parse::<Service>(json!({ "spec": {
        "selector": { "app": "bot" }, "publishNotReadyAddresses": true,
        "ports": [{ "name": "http", "port": 80 }, { "port": 9090 }] } })));
    assert!(seen.publishes_not_ready && seen.selects(&[("app".to_owned(), "bot".to_owned())].into()));
    assert!(seen.has(&PortSeen::Name("http".into())) && seen.has(&PortSeen::Number(9090)));
    assert!(!seen.has(&PortSeen::Number(8080)));
    assert_eq!(ServiceSeen::from(&Service::default()), ServiceSeen::default());
}

#[test]
fn an_autoscaler_matters_if_it_scales_a_deployment() {
    let scaled = |version: &str, kind: &str| {
        let target = json!({ "apiVersion": version, "kind": kind, "name": "bot-blue" });
        let object = json!({ "spec": { "maxReplicas": 5, "scaleTargetRef": target } });
        scaled_deployment(&parse::<HorizontalPodAutoscaler>(object))
    };
    assert_eq!(scaled("apps/v1", "Deployment").as_deref(), Some("bot-blue"));
    assert_eq!(scaled("apps/v1", "StatefulSet"), None);
    assert_eq!(scaled("argoproj.io/v1alpha1", "Deployment"), None);
    assert_eq!(scaled_deployment(&HorizontalPodAutoscaler::default()), None);
}

#[test]
fn endpoints_count_ready_targets_once() {
    let slice: EndpointSlice = parse(json!({ "addressType": "IPv4", "endpoints": [
        { "addresses": ["10.0.0.1"], "targetRef": { "uid": "a" }, "conditions": { "ready": true } },
        { "addresses": ["10.0.0.1"], "targetRef": { "uid": "a" } },
        { "addresses": ["10.0.0.2"] },
        { "addresses": ["10.0.0.3"], "conditions": { "ready": false } },
        { "addresses": ["10.0.0.4"], "conditions": { "ready": true, "terminating": true } } ] }));
    assert_eq!(ready_targets(&slice).len(), 2);
}

#[test]
fn the_hash_of_a_prompt_is_of_its_content() {
    let hash = |value: Value| PromptSeen::from(&parse::<ConfigMap>(value)).hash;
    let one = hash(json!({ "metadata": { "name": "a" }, "data": { "x": "1", "y": "2" } }));
    assert_eq!(one, hash(json!({ "metadata": { "name": "b" }, "data": { "y": "2", "x": "1" } })));
    assert_ne!(one, hash(json!({ "data": { "x": "12", "y": "" } })));
    assert_ne!(hash(json!({ "data": { "x": "AA==" } })), hash(json!({ "binaryData": { "x": "AA==" } })));
    assert_eq!(one.len(), 16);
}

#[test]
fn a_job_has_ended_when_it_is_complete_failed_or_late() {
    let seen = |conditions: serde_json::Value| {
        let job = serde_json::json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "uid": "u" },
            "status": { "active": 1, "conditions": conditions },
        });
        JobSeen::from(&serde_json::from_value::<JobRead>(job).unwrap()).outcome
    };
    let condition =
        |kind: &str, reason: &str| serde_json::json!([{ "type": kind, "status": "True", "reason": reason }]);
    assert_eq!(seen(serde_json::json!([])), None);
    assert_eq!(seen(condition("Suspended", "x")), None);
    assert_eq!(seen(condition("FailureTarget", "DeadlineExceeded")), None, "its Pods still run");
    assert_eq!(seen(condition("Complete", "CompletionsReached")), Some(JobOutcome::Succeeded));
    assert_eq!(seen(condition("Failed", "PodFailurePolicy")), Some(JobOutcome::Failed));
    assert_eq!(seen(condition("Failed", "BackoffLimitExceeded")), Some(JobOutcome::Killed));
    assert_eq!(seen(condition("Failed", "DeadlineExceeded")), Some(JobOutcome::DeadlineExceeded));
}
