//! The defaults of the built-in kinds.

use serde_json::{Value, json};

use super::kinds::Kind;

/// Sets `field` if it is not there.
fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        match map.get_mut(field) {
            Some(there) if !there.is_null() => {}
            Some(there) => *there = value.into(),
            None => drop(map.insert(field.to_owned(), value.into())),
        }
    }
}

/// The items of a list.
fn each<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Fills in what an object of a built-in kind leaves out.
pub(super) fn apply(kind: &Kind, object: &mut Value) {
    match (&*kind.group, &*kind.plural) {
        ("", "namespaces") => namespace(object),
        ("", "pods") => pod(object),
        ("", "services") => service(object),
        ("", "podtemplates") => pod_spec(&mut object["template"]["spec"]),
        ("", "events") if object["source"].get("component").is_some() => {
            let component = object["source"]["component"].clone();
            if object["reportingComponent"] == "" {
                object["reportingComponent"] = component;
            }
        }
        ("apps", "deployments") => deployment(object),
        ("apps", "replicasets") => {
            set(&mut object["spec"], "replicas", 1);
            // a ReplicaSet without a template keeps none
            if object["spec"]["template"]["spec"].get("containers").is_some_and(|it| !it.is_null()) {
                pod_spec(&mut object["spec"]["template"]["spec"]);
            } else {
                pod_spec(&mut object["spec"]["template"]["spec"]);
            }
        }
        ("networking.k8s.io", "ingressclasses") => {
            if let Some(parameters) = object["spec"].get_mut("parameters") {
                set(parameters, "scope", "Cluster");
            }
        }
        ("batch", "jobs") => job(object),
        ("autoscaling", "horizontalpodautoscalers") => autoscaler(object),
        ("discovery.k8s.io", "endpointslices") => {
            for port in each(object, "ports") {
                set(port, "name", "");
                set(port, "protocol", "TCP");
            }
        }
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !name.is_empty() {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
    }
    set(&mut object["status"], "phase", "Active");
}

fn pod(object: &mut Value) {
    let spec = &mut object["spec"];
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            let limits = container["resources"].get("limits").cloned().unwrap_or_default();
            for (name, value) in limits.as_object().into_iter().flatten() {
                let requests = &mut container["resources"]["requests"];
                if requests.get(name).is_none() {
                    requests[name] = value.clone();
                }
            }
        }
    }
    set(spec, "enableServiceLinks", true);
    pod_spec(spec);
}

/// Of a Pod or of a template of one.
fn pod_spec(spec: &mut Value) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "securityContext", json!({}));
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "schedulerName", "default-scheduler");
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        set(spec, "serviceAccount", account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        set(spec, "serviceAccountName", account);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = !last.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    set(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    for port in each(container, "ports") {
        set(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            set(field, "apiVersion", "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        for (field, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            set(probe, field, value);
        }
        if let Some(get) = probe.get_mut("httpGet") {
            http_get(get);
        }
        if let Some(grpc) = probe.get_mut("grpc") {
            set(grpc, "service", "");
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(get) = container.pointer_mut(&format!("/lifecycle/{hook}/httpGet")) {
            http_get(get);
        }
    }
}

fn http_get(get: &mut Value) {
    set(get, "path", "/");
    set(get, "scheme", "HTTP");
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|it| it.len() <= 1) {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            set(source, "defaultMode", 420);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        set(path, "type", "");
    }
    let Some(projected) = volume.get_mut("projected") else { return };
    for source in each(projected, "sources") {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            set(token, "expirationSeconds", 3600);
        }
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    set(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" && spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none()
    {
        spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": 10_800 } });
    } else if spec["sessionAffinity"] == "None" {
        spec.as_object_mut().map(|it| it.remove("sessionAffinityConfig"));
    }
    set(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        set(port, "protocol", "TCP");
        if port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    let strategy = &mut spec["strategy"];
    set(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        set(strategy, "rollingUpdate", json!({}));
        set(&mut strategy["rollingUpdate"], "maxUnavailable", "25%");
        set(&mut strategy["rollingUpdate"], "maxSurge", "25%");
    }
    pod_spec(&mut spec["template"]["spec"]);
}

fn job(object: &mut Value) {
    if let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned()
        && object["metadata"].get("labels").is_none()
    {
        object["metadata"]["labels"] = labels;
    }
    let spec = &mut object["spec"];
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if spec.get("backoffLimitPerIndex").is_some() { i32::MAX } else { 6 };
    set(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let failed = spec.get("podFailurePolicy").is_some();
    set(spec, "podReplacementPolicy", if failed { "Failed" } else { "TerminatingOrFailed" });
    set(spec, "manualSelector", false);
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in each(policy, "rules") {
            for condition in each(rule, "onPodConditions") {
                if condition["status"] == "" {
                    condition["status"] = "True".into();
                }
                set(condition, "status", "True");
            }
        }
    }
    pod_spec(&mut spec["template"]["spec"]);
}

fn autoscaler(object: &mut Value) {
    let spec = &mut object["spec"];
    set(spec, "minReplicas", 1);
    set(
        spec,
        "metrics",
        json!([{
            "type": "Resource",
            "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } },
        }]),
    );
    let Some(behavior) = spec.get_mut("behavior") else { return };
    let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
    let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
    for (side, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        set(behavior, side, json!({}));
        let rules = &mut behavior[side];
        set(rules, "selectPolicy", "Max");
        set(rules, "policies", policies);
        if side == "scaleUp" {
            set(rules, "stabilizationWindowSeconds", 0);
        }
    }
}
