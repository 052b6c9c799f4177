//! What is kept of Deployments, from their JSON.

use serde_json::{Value, json};

use super::*;

fn seen(object: Value) -> DeploymentSeen {
    DeploymentSeen::from(&serde_json::from_value::<Deployment>(object).unwrap())
}

#[test]
fn every_way_to_refer_to_a_config_map_counts() {
    let seen = seen(json!({
        "metadata": { "uid": "u", "resourceVersion": "7", "generation": 3,
            "annotations": { "deployment.kubernetes.io/revision": "4" } },
        "spec": {
            "selector": { "matchLabels": { "app": "bot", "color": "blue" },
                "matchExpressions": [
                    { "key": "tier", "operator": "In", "values": ["a", "b"] },
                    { "key": "x", "operator": "DoesNotExist" } ] },
            "template": {
                "metadata": { "annotations": { "modelrollout.dev/model": "llama@1" } },
                "spec": {
                    "volumes": [
                        { "name": "v", "configMap": { "name": "volume" } },
                        { "name": "p", "projected": { "sources": [{ "configMap": { "name": "projected" } }] } } ],
                    "initContainers": [{ "name": "i", "envFrom": [{ "configMapRef": { "name": "init" } }] }],
                    "containers": [
                        { "name": "c", "env": [{ "name": "E",
                            "valueFrom": { "configMapKeyRef": { "name": "key", "key": "k" } } }] },
                        { "name": "d", "envFrom": [{ "configMapRef": { "name": "whole" } }] } ] } } },
        "status": { "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1 }
    }));
    let names: Vec<_> = seen.config_maps.iter().map(String::as_str).collect();
    assert_eq!(names, ["init", "key", "projected", "volume", "whole"]);
    assert_eq!(seen.selector, "app=bot,color=blue,tier in (a,b),!x");
    assert_eq!(seen.desired, 1, "absent replicas mean one");
    assert_eq!((seen.total, seen.updated, seen.ready), (2, 2, 1));
    assert_eq!((seen.template_revision.as_str(), seen.model.as_deref()), ("4", Some("llama@1")));
}

/// A Deployment with this Pod spec.
fn with_pod(pod: &Value) -> DeploymentSeen {
    seen(json!({ "spec": { "selector": {}, "template": { "metadata": { "labels": { "app": "bot" } }, "spec": pod } } }))
}

#[test]
fn labels_and_images_are_those_of_the_template() {
    let seen = with_pod(&json!({
        "initContainers": [{ "name": "i", "image": "init:1" }],
        "containers": [{ "name": "b", "image": "server:2" }, { "name": "a", "image": "proxy:1" }, { "name": "x" }] }));
    assert_eq!(seen.labels, [("app".to_owned(), "bot".to_owned())].into());
    assert_eq!(seen.images, ["server:2", "proxy:1"]);
}

#[test]
fn the_longest_sleep_counts_in_every_way_to_write_it() {
    let hooked = |hook: Value| {
        let shutdown = with_pod(&json!({ "containers": [{ "name": "c", "lifecycle": { "preStop": hook } },
            { "name": "d", "lifecycle": { "preStop": { "sleep": { "seconds": 3 } } } }] }));
        shutdown.shutdown.sleep_seconds
    };
    let command = |words: &[&str]| hooked(json!({ "exec": { "command": words } }));
    assert_eq!(hooked(json!({ "sleep": { "seconds": 12 } })), 12);
    assert_eq!(command(&["sleep", "15"]), 15);
    assert_eq!(command(&["/bin/sleep", "15s"]), 15);
    assert_eq!(command(&["sh", "-c", "sleep 15"]), 15);
    assert_eq!(command(&["/bin/sh", "-c", "sleep 5; nginx -s quit && sleep 1m"]), 65);
    // what says no time counts as none: the other container's hook is longer
    for words in [&["sleep", "infinity"][..], &["sleep"], &["sleep", "-4"], &["drain", "60"], &[]] {
        assert_eq!(command(words), 3, "{words:?}");
    }
}

#[test]
fn a_template_without_a_hook_has_the_grace_of_the_api() {
    let plain = with_pod(&json!({ "containers": [{ "name": "c" }] })).shutdown;
    assert_eq!(plain, Shutdown { grace_seconds: 30, pre_stop: false, sleep_seconds: 0 });
    let hooked = with_pod(&json!({ "terminationGracePeriodSeconds": 90,
        "containers": [{ "name": "c", "lifecycle": { "preStop": { "httpGet": { "port": 80 } } } }] }));
    assert_eq!(hooked.shutdown, Shutdown { grace_seconds: 90, pre_stop: true, sleep_seconds: 0 });
}

/// An entry of managed fields that owns `spec.replicas`.
fn entry(manager: &str, operation: &str, subresource: Option<&str>, day: u32) -> Value {
    json!({ "manager": manager, "operation": operation, "subresource": subresource,
        "time": format!("2026-01-{day:02}T00:00:00Z"), "fieldsV1": { "f:spec": { "f:replicas": {} } } })
}

fn managed(entries: &[Value], applied: Option<&str>) -> DeploymentSeen {
    let mut meta = json!({ "managedFields": entries });
    if let Some(text) = applied {
        meta["annotations"] = json!({ LAST_APPLIED: text });
    }
    seen(json!({ "metadata": meta }))
}

#[test]
fn a_server_side_apply_declares_the_replicas_that_it_owns() {
    let status = json!({ "manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
        "time": "2026-01-09T00:00:00Z", "fieldsV1": { "f:status": { "f:replicas": {} } } });
    let all = [entry("argocd", "Apply", None, 2), entry("kubectl-scale", "Update", Some("scale"), 5), status];
    let seen = managed(&all, None);
    assert_eq!(seen.replicas_declared_by.as_deref(), Some("argocd"));
    assert_eq!(seen.replicas_written.map(|written| written.manager).as_deref(), Some("kubectl-scale"));
    // an apply that leaves the replicas out declares nothing
    let other = json!({ "manager": "argocd", "operation": "Apply", "fieldsV1": { "f:spec": { "f:template": {} } } });
    assert_eq!(managed(&[other], None).replicas_declared_by, None);
}

#[test]
fn kubectl_apply_declares_the_replicas_that_it_was_given() {
    let given = Some(r#"{"kind":"Deployment","spec":{"replicas":3,"template":{}}}"#);
    let all = [entry("kubectl-create", "Update", None, 1), entry("kubectl-client-side-apply", "Update", None, 2)];
    assert_eq!(managed(&all, given).replicas_declared_by.as_deref(), Some("kubectl-client-side-apply"));
    assert_eq!(managed(&all, None).replicas_declared_by, None);
    assert_eq!(managed(&[], given).replicas_declared_by.as_deref(), Some("kubectl apply"));
    for text in [r#"{"spec":{"replicas":null}}"#, r#"{"spec":{}}"#, "{}", "no JSON"] {
        assert_eq!(managed(&all, Some(text)).replicas_declared_by, None, "{text}");
    }
}

#[test]
fn we_declare_nothing_but_we_write() {
    let ours = [entry(MANAGER_SCALE, "Update", Some("scale"), 7), entry(MANAGER_META, "Apply", None, 8)];
    let seen = managed(&ours, Some(r#"{"spec":{"replicas":3}}"#));
    assert_eq!(seen.replicas_declared_by.as_deref(), Some("kubectl apply"));
    let written = seen.replicas_written.unwrap();
    assert_eq!((written.manager.as_str(), written.at.to_string().as_str()), (MANAGER_META, "2026-01-08T00:00:00Z"));
    assert_eq!(seen.replicas_by, ReplicasBy::Operator);
    assert_eq!(managed(&[], None).replicas_written, None);
    let theirs = managed(&[entry("kubectl-scale", "Update", Some("scale"), 5)], None);
    assert_eq!(theirs.replicas_by, ReplicasBy::Others);
}

#[test]
fn replicas_without_an_owner_were_written_through_the_scale_subresource_by_whomever() {
    let with = |fields: &[Value]| managed(fields, None).replicas_by;
    assert_eq!(with(&[]), ReplicasBy::Unknown);
    let status = json!({ "manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
        "time": "2026-01-09T00:00:00Z", "fieldsV1": { "f:status": { "f:replicas": {} } } });
    assert_eq!(with(&[status]), ReplicasBy::Unknown);
    assert_eq!(with(&[entry("kubectl-edit", "Update", None, 5)]), ReplicasBy::Others);
    let both = [entry("kubectl-edit", "Update", None, 5), entry(MANAGER_SCALE, "Update", Some("scale"), 5)];
    assert_eq!(with(&both), ReplicasBy::Operator);
}
