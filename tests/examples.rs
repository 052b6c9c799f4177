//! What a user copies from `examples/` is right: every document is read by its type without losing a field, every
//! `ModelRollout` passes the schema and its rules, gates can be asked as they are written, and the objects of the first
//! rollout fit together.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

#[path = "bad_input/refusal.rs"]
mod refusal;
#[path = "bad_input/structural.rs"]
mod structural;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PodTemplate, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::core::cel::Validator;
use modelrollout::api::names::ANNOTATION_MODEL;
use modelrollout::api::{GateSpec, ModelRollout, crd};
use modelrollout::engine::promql;
use modelrollout::engine::rollout::Rollout;
use serde::Serialize;
use serde::de::{Deserialize as _, DeserializeOwned};
use serde_json::{Value, json};

/// Every YAML document below `folder`, with the file that it is from.
fn documents(folder: &str) -> Vec<(PathBuf, Value)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    let mut documents = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = filled_in(&std::fs::read_to_string(&path).unwrap());
                for document in serde_yaml::Deserializer::from_str(&text) {
                    let document = Value::deserialize(document).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                    documents.push((path.clone(), document));
                }
            }
        }
    }
    documents
}

/// The demo's manifests with their `${…}` filled in, as the demo fills them in.
fn filled_in(text: &str) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let Some((name, rest)) = part.split_once('}') else { return text.to_owned() };
        out += match name {
            "target" | "color" => "green",
            name if name.ends_with("Percent") => "10",
            _ => "v1",
        };
        out += rest;
    }
    out
}

/// Fails if the type does not know a field of the document.
fn assert_read_whole<T: DeserializeOwned + Serialize>(path: &Path, document: &Value) {
    let object: T = serde_json::from_value(document.clone()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lost = Vec::new();
    missing(document, &serde_json::to_value(object).unwrap(), "", &mut lost);
    assert!(lost.is_empty(), "{}: nobody reads {lost:?}", path.display());
}

/// The fields of `written` that `read` does not have.
fn missing(written: &Value, read: &Value, path: &str, lost: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, field) in written {
                let at = format!("{path}.{key}");
                match read.get(key) {
                    Some(other) => missing(field, other, &at, lost),
                    None => lost.push(at),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) if written.len() == read.len() => {
            for (index, (item, other)) in written.iter().zip(read).enumerate() {
                missing(item, other, &format!("{path}[{index}]"), lost);
            }
        }
        (Value::Number(written), Value::Number(read)) if written.as_f64() == read.as_f64() => {}
        _ if written == read => {}
        _ => lost.push(path.to_owned()),
    }
}

#[test]
fn every_document_is_read_whole() {
    let documents = documents("examples");
    assert!(documents.len() >= 30, "found {}", documents.len());
    for (path, document) in &documents {
        if path.ends_with("kustomizeconfig.yaml") {
            // No object: what Kustomize reads beside a kustomization. tests/gitops.rs builds with it.
            continue;
        }
        if let Some(gates) = gates_to_copy(document) {
            for gate in gates {
                assert_read_whole::<GateSpec>(path, gate);
            }
            continue;
        }
        match document["kind"].as_str().unwrap_or_else(|| panic!("{}: no kind", path.display())) {
            "ModelRollout" => assert_read_whole::<ModelRollout>(path, document),
            "Deployment" => assert_read_whole::<Deployment>(path, document),
            "Service" => assert_read_whole::<Service>(path, document),
            "ConfigMap" => assert_read_whole::<ConfigMap>(path, document),
            "Ingress" => assert_read_whole::<Ingress>(path, document),
            "Namespace" => assert_read_whole::<Namespace>(path, document),
            "PodTemplate" => assert_read_whole::<PodTemplate>(path, document),
            // Of Argo CD, Flux and Kustomize. tests/gitops.rs looks at what matters in them.
            "Application" | "Kustomization" => {}
            other => panic!("{}: this test does not know the kind {other}", path.display()),
        }
    }
}

/// The gates of a file that is no object, but a list to copy into `spec.gates`.
fn gates_to_copy(document: &Value) -> Option<&Vec<Value>> {
    document["gates"].as_array().filter(|_| document["kind"].is_null())
}

/// Every `ModelRollout` of the examples, and one for each list of gates: the smallest example with these gates in it.
fn rollouts() -> Vec<(PathBuf, Value)> {
    let documents = documents("examples");
    let (_, smallest) = documents.iter().find(|(path, _)| path.ends_with("examples/smallest.yaml")).unwrap();
    let mut rollouts = Vec::new();
    for (path, document) in &documents {
        if let Some(gates) = gates_to_copy(document) {
            let mut rollout = smallest.clone();
            rollout["spec"]["gates"] = Value::Array(gates.clone());
            rollouts.push((path.clone(), rollout));
        } else if document["kind"] == "ModelRollout" {
            rollouts.push((path.clone(), document.clone()));
        }
    }
    rollouts
}

#[test]
fn every_model_rollout_passes_the_schema_and_its_rules() {
    let crd = serde_json::to_value(crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let rollouts = rollouts();
    for (path, rollout) in &rollouts {
        assert_eq!(structural::refusals(schema, &structural::without_nulls(rollout)), [], "{}", path.display());
        let answer = Validator::new().validate(schema, rollout, None);
        assert!(answer.is_ok(), "{}: {answer:?}", path.display());
    }
    assert!(rollouts.len() >= 16, "found {}", rollouts.len());
}

/// Fails if a selector or a query of `gate` cannot be used as it is written.
fn assert_askable(path: &Path, gate: &GateSpec) {
    let at = |field: &str| format!("{}: gate {}: {field}", path.display(), gate.name);
    let selector = |field: &str, text: &str| {
        if let Err(error) = promql::selector(text) {
            panic!("{}: {error}", at(field));
        }
    };
    if let Some(rate) = &gate.error_rate {
        selector("bad", &rate.bad);
        selector("total", &rate.total);
    }
    if let Some(latency) = &gate.latency {
        selector("histogram", &latency.histogram);
    }
    if let Some(value) = &gate.value
        && let Err(error) = promql::query(&value.query)
    {
        panic!("{}: {error}", at("query"));
    }
}

#[test]
fn every_gate_can_be_asked_as_it_is_written() {
    let documents = documents("examples");
    let templates: BTreeSet<&str> = documents
        .iter()
        .filter(|(_, document)| document["kind"] == "PodTemplate")
        .filter_map(|(_, document)| document["metadata"]["name"].as_str())
        .collect();
    let mut seen = 0;
    for (path, document) in rollouts() {
        let rollout: ModelRollout = serde_json::from_value(document).unwrap();
        let mut names = BTreeSet::new();
        for gate in &rollout.spec.gates {
            seen += 1;
            assert_askable(&path, gate);
            assert!(names.insert(gate.name.as_str()), "{}: two gates are named {}", path.display(), gate.name);
            if let Some(job) = &gate.job {
                let template = job.pod_template_name.as_str();
                assert!(templates.contains(template), "{}: no example makes PodTemplate {template}", path.display());
            }
        }
    }
    assert!(seen >= 30, "found {seen}");
}

/// A gate with fewer samples than tell a good release from a bad one is an example only where the file says so.
#[test]
fn a_gate_of_few_samples_says_what_it_costs() {
    for (path, document) in rollouts() {
        let rollout: ModelRollout = serde_json::from_value(document).unwrap();
        let parsed = Rollout::parse(&rollout).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for gate in &parsed.gates {
            let few = gate.rule.counts() && gate.min_samples < gate.least_samples();
            assert!(!few || text.contains("GateUnderpowered"), "{}: gate {}", path.display(), gate.name);
        }
    }
}

/// Pods of a Job get no requests of users, and may run where Pod security is `restricted`.
#[test]
fn the_pods_of_a_job_are_harmless() {
    let documents = documents("examples");
    let services: Vec<&Value> =
        documents.iter().filter(|(_, document)| document["kind"] == "Service").map(|(_, document)| document).collect();
    let mut seen = 0;
    for (path, document) in documents.iter().filter(|(_, document)| document["kind"] == "PodTemplate") {
        seen += 1;
        let (path, template) = (path.display(), &document["template"]);
        let labels = &template["metadata"]["labels"];
        for service in &services {
            let selector = service["spec"]["selector"].as_object().unwrap();
            let selected = selector.iter().all(|(key, value)| labels[key] == *value);
            assert!(!selected, "{path}: the Service {} selects its Pods", service["metadata"]["name"]);
        }
        let spec = &template["spec"];
        assert_eq!(spec["restartPolicy"], "Never", "{path}");
        assert_eq!(spec["automountServiceAccountToken"], false, "{path}");
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{path}");
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{path}");
        for host in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(spec[host].is_null(), "{path}: {host}");
        }
        let containers: Vec<&Value> = ["initContainers", "containers"]
            .into_iter()
            .flat_map(|list| spec[list].as_array().into_iter().flatten())
            .collect();
        assert!(!containers.is_empty(), "{path}");
        for container in containers {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{path}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{path}");
            assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{path}");
            assert!(security["privileged"].is_null(), "{path}");
        }
    }
    assert!(seen >= 1, "found no PodTemplate");
}

#[test]
fn the_objects_of_the_first_rollout_fit_together() {
    let documents: Vec<Value> = documents("examples/first-rollout").into_iter().map(|(_, document)| document).collect();
    let find = |kind: &str, name: &Value| {
        documents
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == *name)
            .unwrap_or_else(|| panic!("there is no {kind} {name}"))
    };
    let rollout = documents.iter().find(|object| object["kind"] == "ModelRollout").unwrap();
    let ingress = find("Ingress", &rollout["spec"]["traffic"]["ingress"]["names"][0]);
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    let target = rollout["spec"]["target"].as_str().unwrap();
    assert_eq!(backend["name"], rollout["spec"][target]["serviceName"], "applying the examples moves nothing");

    for color in ["blue", "green"] {
        let side = &rollout["spec"][color];
        let deployment = find("Deployment", &side["deploymentName"]);
        let service = find("Service", &side["serviceName"]);
        let template = &deployment["spec"]["template"];
        let labels = template["metadata"]["labels"].as_object().unwrap();
        assert_eq!(labels["service"], side["serviceName"], "the label that the gates select by");

        let model =
            format!("{}@{}", side["model"]["name"].as_str().unwrap(), side["model"]["version"].as_str().unwrap());
        assert_eq!(template["metadata"]["annotations"][ANNOTATION_MODEL], model.as_str());

        let prompt = find("ConfigMap", &side["promptTemplate"]["configMapName"]);
        assert_eq!(prompt["immutable"], true);
        assert_eq!(prompt["data"]["version"], side["promptTemplate"]["version"]);
        assert_eq!(template["spec"]["volumes"][0]["configMap"]["name"], prompt["metadata"]["name"]);

        assert_eq!(service["spec"]["ports"][0]["name"], backend["port"]["name"]);
        let selector = service["spec"]["selector"].as_object().unwrap();
        for other in ["blue", "green"] {
            let other_deployment = find("Deployment", &rollout["spec"][other]["deploymentName"]);
            let pods = &other_deployment["spec"]["template"]["metadata"]["labels"];
            let selected = selector.iter().all(|(key, value)| pods[key] == *value);
            assert_eq!(selected, other == color, "the Service of {color} and the Pods of {other}");
        }
    }
}
