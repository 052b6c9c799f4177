//! What a write may not set, generations, and what the server fills in.

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::{Server, pods};

fn keep(object: &mut Value, old: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => {
            map.insert(field.to_owned(), value.clone());
        }
        None => {
            map.remove(field);
        }
    }
}

fn keep_meta(object: &mut Value, old: &Value, field: &str) {
    let before = old.get("metadata").unwrap_or(&Value::Null);
    if let Some(meta) = object.get_mut("metadata") {
        keep(meta, before, field);
    }
}

/// Before an object is created.
pub(super) fn for_create(kind: &Kind, object: &mut Value, now: &str) {
    let meta = &mut object["metadata"];
    if kind.generation.is_empty() {
        // kept as it was given: nobody counts it
    } else {
        meta["generation"] = 1.into();
    }
    if kind.status {
        if kind.custom {
            object.as_object_mut().map(|it| it.remove("status"));
        } else {
            object["status"] = Value::Object(Map::new());
            let _ = super::conform::builtin(object, &kind.schema, "", &mut Vec::new());
        }
    }
    match &*kind.plural {
        "pods" => pods::for_create(object),
        "namespaces" => {
            object["status"] = json!({ "phase": "Active" });
            if object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                object["spec"]["finalizers"] = json!(["kubernetes"]);
            }
        }
        "jobs" => job(object),
        "horizontalpodautoscalers" => {
            object["status"] = json!({ "desiredReplicas": 0, "currentMetrics": null });
        }
        _ => {}
    }
    let _ = now;
}

/// Labels and selector of a Job come from its uid.
fn job(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    let labels = &mut object["spec"]["template"]["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (label, value) in [("controller-uid", &uid), ("job-name", &name)] {
        labels[label] = value.clone();
        labels[format!("batch.kubernetes.io/{label}")] = value.clone();
    }
    object["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
    if object["metadata"].get("labels").is_none() {
        object["metadata"]["labels"] = object["spec"]["template"]["metadata"]["labels"].clone();
    }
}

/// Before an object is changed.
pub(super) fn for_update(kind: &Kind, subresource: &str, object: &mut Value, old: &Value) {
    keep_meta(object, old, "generation");
    if subresource == "status" {
        status(kind, object, old);
    } else {
        if kind.status {
            keep(object, old, "status");
        }
        if kind.is("", "namespaces") {
            keep(object, old, "spec");
        }
        let changed = if kind.custom {
            let part = |it: &Value| it.as_object().map(serde_json::Map::len);
            part(object) != part(old)
                || object
                    .as_object()
                    .into_iter()
                    .flatten()
                    .any(|(name, it)| name != "metadata" && old.get(name) != Some(it))
        } else {
            kind.generation.iter().any(|field| object.get(field) != old.get(field))
        };
        // the template of a PodTemplate counts with its metadata, all others by spec
        if changed && (kind.custom || !kind.generation.is_empty()) {
            let before = old["metadata"]["generation"].as_i64().unwrap_or_default();
            object["metadata"]["generation"] = (before + 1).into();
        }
        if kind.is("", "services") {
            service(object, old);
        }
    }
    if object["metadata"]["uid"].as_str().unwrap_or_default().is_empty() {
        keep_meta(object, old, "uid");
    }
    keep_meta(object, old, "creationTimestamp");
    if old["metadata"].get("deletionTimestamp").is_some() {
        keep_meta(object, old, "deletionTimestamp");
        if object["metadata"].get("deletionGracePeriodSeconds").is_none() {
            keep_meta(object, old, "deletionGracePeriodSeconds");
        }
    }
}

fn status(kind: &Kind, object: &mut Value, old: &Value) {
    if kind.custom {
        // all of the old object, but for its status and its owners
        let status = object.get("status").cloned();
        let managed = object["metadata"].get("managedFields").cloned();
        let mut next = Map::new();
        for (name, value) in old.as_object().into_iter().flatten().filter(|(name, _)| *name != "status") {
            next.insert(name.clone(), value.clone());
        }
        if let Some(status) = status {
            next.insert("status".into(), status);
        }
        *object = Value::Object(next);
        match managed {
            Some(managed) => object["metadata"]["managedFields"] = managed,
            None => drop(object["metadata"].as_object_mut().map(|it| it.remove("managedFields"))),
        }
        return;
    }
    keep(object, old, "spec");
    if matches!(&*kind.plural, "deployments") {
        keep_meta(object, old, "labels");
    }
    if kind.is("", "pods") {
        keep_meta(object, old, "ownerReferences");
        keep_meta(object, old, "deletionTimestamp");
    }
}

/// An update that leaves the address out keeps it.
fn service(object: &mut Value, old: &Value) {
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if object["spec"].get(field).is_none()
            && let Some(value) = old["spec"].get(field)
        {
            object["spec"][field] = value.clone();
        }
    }
}

impl Server {
    /// Gives a Service its address.
    pub(super) fn allocate(&mut self, kind: &Kind, object: &mut Value) {
        if !kind.is("", "services") || object["spec"]["type"] == "ExternalName" {
            return;
        }
        let spec = &mut object["spec"];
        if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
            self.given += 1;
            let (high, low) = (self.given / 254 % 254, self.given % 254 + 1);
            spec["clusterIP"] = format!("10.96.{high}.{low}").into();
        }
        let ip = spec["clusterIP"].clone();
        spec["clusterIPs"] = json!([ip]);
        if spec.get("ipFamilies").is_none() {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        if spec.get("ipFamilyPolicy").is_none() {
            spec["ipFamilyPolicy"] = "SingleStack".into();
        }
    }
}
