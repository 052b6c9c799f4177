//! What is particular to Pods: admission, their quality of service, their grace.

use serde_json::{Value, json};

/// What admission adds to every new Pod.
pub(super) fn admit(pod: &mut Value) {
    let spec = &mut pod["spec"];
    if spec.get("serviceAccountName").is_none() {
        spec["serviceAccountName"] = "default".into();
        spec["serviceAccount"] = "default".into();
    }
    let tolerations = &mut spec["tolerations"];
    if !tolerations.is_array() {
        *tolerations = json!([]);
    }
    for condition in ["not-ready", "unreachable"] {
        let key = format!("node.kubernetes.io/{condition}");
        let there = tolerations.as_array().is_some_and(|it| it.iter().any(|it| it["key"] == key.as_str()));
        if let Some(list) = tolerations.as_array_mut().filter(|_| !there) {
            list.push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
    if spec.get("priority").is_none() {
        spec["priority"] = 0.into();
    }
    if spec.get("preemptionPolicy").is_none() {
        spec["preemptionPolicy"] = "PreemptLowerPriority".into();
    }
}

pub(super) fn for_create(pod: &mut Value) {
    pod["status"] = json!({ "phase": "Pending", "qosClass": quality(&pod["spec"]) });
}

fn quality(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"].into_iter().filter_map(|list| spec[list].as_array());
    let containers: Vec<&Value> = containers.flatten().collect();
    let given = |it: &Value, of: &str, name: &str| {
        it["resources"][of][name].as_str().filter(|it| *it != "0").map(ToOwned::to_owned)
    };
    let mut any = false;
    let mut all = !containers.is_empty();
    for container in containers {
        for name in ["cpu", "memory"] {
            let (request, limit) = (given(container, "requests", name), given(container, "limits", name));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request == limit;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// How long a Pod may take to end.
pub(super) fn grace(pod: &Value, wanted: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if unscheduled || ended {
        return 0;
    }
    let period = wanted.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or_default();
    if period < 0 { 1 } else { period }
}
