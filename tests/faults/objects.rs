//! The objects of the cluster before the rollout begins.

use serde_json::{Value, json};

use crate::names::{NAME, NAMESPACE};
use crate::scenario::Scenario;

/// How many Pods serve.
pub const REPLICAS: u32 = 3;

/// Path and body of everything that is created, in order.
pub fn all(scenario: &Scenario) -> Vec<(String, Value)> {
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let mut objects = vec![(
        "/api/v1/namespaces".to_owned(),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
    )];
    for (color, version, replicas) in [("blue", "1", REPLICAS), ("green", "2", 0)] {
        objects.push((format!("{core}/configmaps"), prompt(color)));
        objects.push((format!("{core}/services"), service(color)));
        objects
            .push((format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"), deployment(color, version, replicas)));
    }
    objects.push((format!("{core}/podtemplates"), judge()));
    let ingresses = format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses");
    objects.push((ingresses.clone(), ingress("bot", "bot.example")));
    if scenario.two {
        objects.push((ingresses, ingress("chat", "chat.example")));
    }
    objects
}

/// The ModelRollout.
pub fn rollout(scenario: &Scenario) -> Value {
    json!({ "apiVersion": "modelrollout.dev/v1alpha1", "kind": "ModelRollout",
        "metadata": { "name": NAME, "namespace": NAMESPACE }, "spec": scenario.spec })
}

fn prompt(color: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("prompt-{color}") },
        "immutable": true, "data": { "prompt.txt": format!("You are {color}.") } })
}

fn service(color: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": format!("bot-{color}") },
        "spec": { "selector": { "app": "bot", "color": color }, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] } })
}

fn deployment(color: &str, version: &str, replicas: u32) -> Value {
    let labels = json!({ "app": "bot", "color": color });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": format!("bot-{color}") },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels, "annotations": { "modelrollout.dev/model": format!("llama@{version}") } },
            "spec": {
                "terminationGracePeriodSeconds": 240,
                "containers": [{ "name": "model", "image": format!("registry.example/llama:{version}"),
                    "ports": [{ "containerPort": 8080 }],
                    "lifecycle": { "preStop": { "sleep": { "seconds": 10 } } },
                    "envFrom": [{ "configMapRef": { "name": format!("prompt-{color}") } }] }],
            } } } })
}

fn judge() -> Value {
    json!({ "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "judge" }, "template": {
        "metadata": { "labels": { "app": "judge" } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "judge", "image": "registry.example/judge:1" }] } } })
}

fn ingress(name: &str, host: &str) -> Value {
    let path = json!({ "path": "/", "pathType": "Prefix",
        "backend": { "service": { "name": "bot-blue", "port": { "name": "http" } } } });
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name,
            "annotations": { "example.com/owner": "web" } },
        "spec": { "ingressClassName": "nginx", "tls": [{ "hosts": [host], "secretName": "tls" }],
            "rules": [{ "host": host, "http": { "paths": [path] } }] } })
}
