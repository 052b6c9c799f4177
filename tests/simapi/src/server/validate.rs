//! The rules of the built-in kinds, as far as a cluster around an operator breaks them, and those of CRDs.

use serde_json::Value;

use super::conform::join;
use super::errors::Fault;
use super::kinds::Kind;
use super::meta::{dns_label, labels};
use super::validate_routes::{ingress, service, slice};
use super::{cel, check};

/// Of an object that is new.
pub(super) fn create(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    if kind.custom {
        custom(kind, "", (object, None), faults);
    } else {
        common(kind, object, None, faults);
    }
}

/// Of an object that is changed.
pub(super) fn update(kind: &Kind, subresource: &str, (object, old): (&Value, &Value), faults: &mut Vec<Fault>) {
    if kind.custom {
        return custom(kind, subresource, (object, Some(old)), faults);
    }
    if subresource == "status" {
        return status(kind, object, faults);
    }
    // what has not changed was looked at before
    let fields = object.as_object().into_iter().flatten();
    if fields.into_iter().all(|(name, value)| name == "metadata" || old.get(name) == Some(value)) {
        return;
    }
    common(kind, object, Some(old), faults);
    immutable(kind, object, old, faults);
}

fn custom(kind: &Kind, subresource: &str, (object, old): (&Value, Option<&Value>), faults: &mut Vec<Fault>) {
    let status = |it: &Value| it.get("status").cloned().unwrap_or_default();
    if subresource == "status" {
        // it is looked at by itself, and told so
        let mut found = Vec::new();
        if let Some(schema) = kind.schema.field("status").filter(|_| object.get("status").is_some()) {
            check::check(&status(object), old.map(status).as_ref(), schema, "", &mut found);
        }
        faults.extend(found.into_iter().map(|fault| Fault { field: join("status", &fault.field), ..fault }));
    } else {
        check::check(object, old, &kind.schema, "", faults);
    }
    let mut twice = Vec::new();
    check::duplicates(object, &kind.schema, "", &mut twice);
    let mut before = Vec::new();
    if let Some(old) = old.filter(|_| !twice.is_empty()) {
        check::duplicates(old, &kind.schema, "", &mut before);
    }
    if before.is_empty() {
        faults.extend(twice);
    }
    let blocking = [
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ];
    if faults.iter().any(|fault| blocking.contains(&fault.reason)) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        faults.push(Fault::invalid("<nil>", &Value::Null, why));
    } else {
        cel::check(object, old, &kind.schema, "", faults);
    }
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn not_negative(value: &Value, field: &str, path: &str, faults: &mut Vec<Fault>) {
    if value[field].as_i64().is_some_and(|it| it < 0) {
        faults.push(Fault::invalid(format!("{path}.{field}"), &value[field], "must be greater than or equal to 0"));
    }
}

fn common(kind: &Kind, object: &Value, old: Option<&Value>, faults: &mut Vec<Fault>) {
    let spec = &object["spec"];
    match (&*kind.group, &*kind.plural) {
        ("networking.k8s.io", "ingresses") => ingress(object, old.is_none(), faults),
        ("apps", "deployments" | "replicasets") => deployment(kind, spec, faults),
        ("batch", "jobs") => {
            job(spec, faults);
            if old.is_none() && spec["manualSelector"] != true {
                let labels = spec["selector"]["matchLabels"].as_object();
                if labels.is_some_and(|it| it.len() > 1) {
                    faults.push(Fault::invalid("spec.selector", &spec["selector"], "`selector` not auto-generated"));
                }
                let has = &spec["template"]["metadata"]["labels"];
                if labels.into_iter().flatten().any(|(key, value)| has.get(key) != Some(value)) {
                    let why = "`selector` does not match template `labels`";
                    faults.push(Fault::invalid("spec.template.metadata.labels", has, why));
                }
            }
        }
        ("", "podtemplates") => pod_spec(&object["template"]["spec"], "template.spec", faults),
        ("discovery.k8s.io", "endpointslices") => slice(object, faults),
        ("", "pods") => pod_spec(spec, "spec", faults),
        ("", "services") => service(spec, faults),
        ("events.k8s.io", "events") => event(object, old, faults),
        ("", "configmaps") => config_map(object, old, faults),
        ("autoscaling", "horizontalpodautoscalers") => autoscaler(spec, faults),
        ("coordination.k8s.io", "leases") => {
            if spec["leaseDurationSeconds"].as_i64().is_some_and(|it| it <= 0) {
                let field = "spec.leaseDurationSeconds";
                faults.push(Fault::invalid(field, &spec["leaseDurationSeconds"], "must be greater than 0"));
            }
            not_negative(spec, "leaseTransitions", "spec", faults);
        }
        _ => {}
    }
}

fn immutable(kind: &Kind, object: &Value, old: &Value, faults: &mut Vec<Fault>) {
    let same = |place: &str| object.pointer(place) == old.pointer(place);
    let mut fixed = |place: &str| {
        if !same(place) {
            let value = object.pointer(place).cloned().unwrap_or_default();
            let field = place.trim_start_matches('/').replace('/', ".");
            faults.push(Fault::invalid(field, &value, "field is immutable"));
        }
    };
    match (&*kind.group, &*kind.plural) {
        ("apps", "deployments" | "replicasets") => fixed("/spec/selector"),
        ("discovery.k8s.io", "endpointslices") => fixed("/addressType"),
        ("", "services") => {
            let (has, had) = (&object["spec"]["clusterIPs"], &old["spec"]["clusterIPs"]);
            let address = |it: &Value| it["spec"]["clusterIP"].clone();
            let (now, before) = (address(object), address(old));
            if (now != before || has != had) && !before.is_null() && object["spec"]["type"] == old["spec"]["type"] {
                let shown = if now == before { has.clone() } else { Value::from(vec![now]) };
                faults.push(Fault::invalid("spec.clusterIPs[0]", &shown, "may not change once set"));
            }
        }
        ("batch", "jobs") => {
            fixed("/spec/completions");
            fixed("/spec/selector");
            fixed("/spec/template");
            fixed("/spec/completionMode");
            fixed("/spec/podFailurePolicy");
        }
        ("", "pods") => {
            let but = |it: &Value| {
                let mut spec = it["spec"].clone();
                for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
                    spec.as_object_mut().map(|it| it.remove(field));
                }
                for list in ["containers", "initContainers"] {
                    for one in spec[list].as_array_mut().into_iter().flatten() {
                        one.as_object_mut().map(|it| it.remove("image"));
                    }
                }
                spec
            };
            if but(object) != but(old) {
                let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
                faults.push(Fault::forbidden("spec", why));
            }
        }
        ("networking.k8s.io", "ingressclasses") => fixed("/spec/controller"),
        _ => {}
    }
}

fn status(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    let status = &object["status"];
    if kind.is("batch", "jobs") {
        let has = |name: &str| list(status, "conditions").iter().any(|it| it["type"] == name && it["status"] == "True");
        if has("Complete") && status.get("completionTime").is_none() {
            let why = "completionTime is required for Complete jobs";
            faults.push(Fault::required("status.completionTime", why));
        }
        let why = "Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        if has("Complete") && !has("SuccessCriteriaMet") {
            faults.push(Fault::plain("FieldValueInvalid", "status.conditions", why.to_owned()));
        }
        if has("Failed") && !has("FailureTarget") {
            let why = "Invalid value: cannot set Failed=True condition without the FailureTarget=true condition";
            faults.push(Fault::plain("FieldValueInvalid", "status.conditions", why.to_owned()));
        }
        if (has("Complete") || has("Failed")) && status["active"].as_i64().unwrap_or_default() > 0 {
            faults.push(Fault::invalid("status.active", &status["active"], "active>0 is invalid for finished job"));
        }
    }
    if kind.is("apps", "deployments") {
        for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"] {
            not_negative(status, field, "status", faults);
        }
        let count = |field: &str| status[field].as_i64().unwrap_or_default();
        let more = "cannot be greater than status.replicas";
        for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
            if count(field) > count("replicas") {
                faults.push(Fault::invalid(format!("status.{field}"), &count(field).into(), more));
            }
        }
        if count("availableReplicas") > count("readyReplicas") {
            let why = "cannot be greater than readyReplicas";
            faults.push(Fault::invalid("status.availableReplicas", &status["availableReplicas"], why));
        }
    }
}

fn deployment(kind: &Kind, spec: &Value, faults: &mut Vec<Fault>) {
    not_negative(spec, "replicas", "spec", faults);
    let selector = &spec["selector"];
    let words = kind.kind.to_lowercase();
    if selector.is_null() {
        faults.push(Fault::required("spec.selector", ""));
    } else if selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
        && list(selector, "matchExpressions").is_empty()
    {
        faults.push(Fault::invalid("spec.selector", selector, &format!("empty selector is invalid for {words}")));
    }
    let template = &spec["template"];
    let has = &template["metadata"]["labels"];
    let mut late = Vec::new();
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    if selector.is_null() || wanted.into_iter().any(|(key, value)| has.get(key) != Some(value)) {
        let why = "`selector` does not match template `labels`";
        faults.push(Fault::invalid("spec.template.metadata.labels", has, why));
    }
    let strategy = &spec["strategy"];
    if strategy["type"] == "Recreate" && strategy.get("rollingUpdate").is_some() {
        let why = "may not be specified when strategy `type` is 'Recreate'";
        late.push(Fault::forbidden("spec.strategy.rollingUpdate", why));
    }
    pod_template(template, faults);
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        let place = "spec.template.spec.restartPolicy";
        faults.push(Fault::not_supported(place, &policy.into(), &["Always".to_owned()]));
    }
    faults.extend(late);
    not_negative(spec, "minReadySeconds", "spec", faults);
    not_negative(spec, "revisionHistoryLimit", "spec", faults);
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64() {
        not_negative(spec, "progressDeadlineSeconds", "spec", faults);
        if deadline <= spec["minReadySeconds"].as_i64().unwrap_or_default() {
            let why = "must be greater than minReadySeconds";
            faults.push(Fault::invalid("spec.progressDeadlineSeconds", &deadline.into(), why));
        }
    }
}

fn pod_template(template: &Value, faults: &mut Vec<Fault>) {
    labels(&template["metadata"]["labels"], "spec.template.labels", faults);
    pod_spec(&template["spec"], "spec.template.spec", faults);
}

fn pod_spec(spec: &Value, path: &str, faults: &mut Vec<Fault>) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        faults.push(Fault::required(format!("{path}.containers"), ""));
    }
    let mut names = Vec::new();
    for (at, container) in containers.iter().enumerate() {
        let place = format!("{path}.containers[{at}]");
        let name = text(container, "name");
        if name.is_empty() {
            faults.push(Fault::required(format!("{place}.name"), ""));
        } else {
            let why = dns_label(name);
            faults.extend(why.iter().map(|why| Fault::invalid(format!("{place}.name"), &name.into(), why)));
        }
        if text(container, "image").is_empty() {
            faults.push(Fault::required(format!("{place}.image"), ""));
        }
        if names.contains(&name) {
            faults.push(Fault::duplicate(format!("{place}.name"), &name.into()));
        }
        names.push(name);
        for (at, mount) in list(container, "volumeMounts").iter().enumerate() {
            if !list(spec, "volumes").iter().any(|it| it["name"] == mount["name"]) {
                let said = format!("Not found: {}", mount["name"]);
                faults.push(Fault::plain("FieldValueNotFound", format!("{place}.volumeMounts[{at}].name"), said));
            }
        }
    }
}

/// Of `events.k8s.io`; the server speaks of them as of old ones.
fn event(object: &Value, old: Option<&Value>, faults: &mut Vec<Fault>) {
    if let Some(old) = old {
        let fixed = [
            ("note", "message"),
            ("reason", "reason"),
            ("action", "action"),
            ("type", "type"),
            ("eventTime", "eventTime"),
        ];
        for (field, shown) in fixed {
            if object.get(field) != old.get(field) {
                faults.push(Fault::invalid(shown, &object[field], "field is immutable"));
            }
        }
        return;
    }
    if object["eventTime"].is_null() {
        return faults.push(Fault::required("eventTime", ""));
    }
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        if text(object, field).is_empty() {
            return faults.push(Fault::required(field, ""));
        }
    }
    if !matches!(text(object, "type"), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text(object, "type"));
        faults.push(Fault::invalid("type", &"".into(), &why));
    }
}

fn job(spec: &Value, faults: &mut Vec<Fault>) {
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        not_negative(spec, field, "spec", faults);
    }
    pod_template(&spec["template"], faults);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    let place = "spec.template.spec.restartPolicy";
    if !matches!(policy, "Never" | "OnFailure") {
        // what is left out has its default by now, and is told as missing all the same
        faults.push(Fault::required(place, "valid values: \"OnFailure\", \"Never\""));
    }
    if spec.get("podFailurePolicy").is_some() && policy != "Never" {
        let why = "only \"Never\" is supported when podFailurePolicy is specified";
        faults.push(Fault::invalid(place, &policy.into(), why));
    }
}

fn config_map(object: &Value, old: Option<&Value>, faults: &mut Vec<Fault>) {
    if let Some(old) = old.filter(|old| old["immutable"] == true) {
        let why = "field is immutable when `immutable` is set";
        if object["immutable"] != true {
            faults.push(Fault::forbidden("immutable", why));
        }
        for field in ["data", "binaryData"] {
            if object.get(field) != old.get(field) {
                faults.push(Fault::forbidden(field, why));
            }
        }
    }
    for field in ["data", "binaryData"] {
        for key in object[field].as_object().into_iter().flatten().map(|it| it.0) {
            if !key.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it)) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                faults.push(Fault::invalid(format!("{field}[{key}]"), &key.as_str().into(), why));
            }
            if field == "data" && object["binaryData"].get(key).is_some() {
                let why = "duplicate of key present in binaryData";
                faults.push(Fault::invalid(format!("{field}[{key}]"), &key.as_str().into(), why));
            }
        }
    }
}

fn autoscaler(spec: &Value, faults: &mut Vec<Fault>) {
    let (least, most) = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or_default());
    if least < 1 {
        faults.push(Fault::invalid("spec.minReplicas", &least.into(), "must be greater than or equal to 1"));
    }
    if most < 1 {
        faults.push(Fault::invalid("spec.maxReplicas", &most.into(), "must be greater than 0"));
    }
    if most < least {
        let why = "must be greater than or equal to `minReplicas`";
        faults.push(Fault::invalid("spec.maxReplicas", &most.into(), why));
    }
    for field in ["kind", "name"] {
        if text(&spec["scaleTargetRef"], field).is_empty() {
            faults.push(Fault::required(format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
}
