//! Server-side apply.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::body::{check_name, place, read, text, yaml};
use super::errors::{Fault, Outcome, bad_request, conflict, invalid, plain};
use super::kinds::Kind;
use super::managed::Managed;
use super::read::shaped;
use super::route::{Target, done};
use super::write::{Options, put_managed, take_managed};
use super::{Answer, Request, Server};

impl Server {
    pub(super) fn apply(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        if request.query.get("fieldManager").is_none_or(String::is_empty) {
            let fault = Fault::required("fieldManager", "is required for apply patch");
            return Err(invalid("meta.k8s.io", "PatchOptions", "", &[fault]));
        }
        let options = Options::new(request, now, "PatchOptions")?;
        let force = request.query.get("force").is_some_and(|it| it == "true");
        let name = target.name.as_deref().unwrap_or_default();
        let config = yaml(&request.body).ok_or_else(|| bad_request("error decoding YAML: invalid YAML"))?;
        let live = self.shelves[target.kind].get(&target.namespace, name).cloned();
        let status = target.subresource == "status";
        if live.is_none() && status {
            return Err(super::errors::not_found(kind.named(), name));
        }
        check(&kind, &config)?;
        declared(&kind, &config)?;
        let version = kind.api_version();
        let writer = options.writer(&version, &target.subresource);
        let ignored = &kind.ignored[usize::from(status)];
        let before = live.as_ref().map_or(&kind.empty, |it| &*it.value);
        let mut managed = live.as_ref().map(|it| it.managed.clone()).unwrap_or_default();
        if let Some(live) = live.as_ref().filter(|_| managed.0.is_empty()) {
            // what was there before anybody was tracked
            let first = super::managed::Writer { manager: "before-first-apply", ..writer };
            managed = Managed::default();
            managed.update(None, &kind.empty, &live.value, (&kind.schema, ignored), first);
        }
        let merged = managed.apply(before, &config, &kind.schema, ignored, writer, force)?;
        let mut object = merged.unwrap_or_else(|| before.clone());
        take_managed(&mut object);
        read(&kind, &mut object, options.body(request))?;
        if live.is_none() && !text(&object, "uid").is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                text(&object, "uid")
            );
            return Err(conflict(kind.named(), name, &why));
        }
        place(&mut object, &target.namespace)?;
        check_name(&object, name)?;
        let Some(live) = live else {
            put_managed(&mut object, &mut managed);
            let created = self.store_new(target, object, managed, &options, &request.user_agent)?;
            return Ok(done(201, shaped(&created, request)));
        };
        let stored = self.store_changed(target, &live, object, managed, &options, &request.user_agent)?;
        Ok(done(200, shaped(&stored, request)))
    }
}

fn check(kind: &Kind, config: &Value) -> Outcome<()> {
    let said = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let wanted = kind.api_version();
    if said("apiVersion") != wanted {
        let said = if said("apiVersion").is_empty() { "/" } else { said("apiVersion") };
        return Err(bad_request(&format!(
            "Incorrect version specified in apply patch. Specified patch version: {said}, expected: {wanted}"
        )));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|it| !it.is_null()) {
        return Err(bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// Only fields that the schema has can be applied.
fn declared(kind: &Kind, config: &Value) -> Outcome<()> {
    let mut unknown = Vec::new();
    let mut copy = config.clone();
    let _ = if kind.custom {
        super::conform::custom(&mut copy, &kind.schema, "", &mut unknown)
    } else {
        super::conform::builtin(&mut copy, &kind.schema, "", &mut unknown)
    };
    let Some(first) = unknown.first() else { return Ok(()) };
    let path = first.trim_start_matches("unknown field ").trim_matches('"');
    let meta = &config["metadata"];
    Err(plain(&format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): .{path}: field not declared in schema",
        meta["namespace"].as_str().unwrap_or_default(),
        meta["name"].as_str().unwrap_or_default(),
        kind.api_version(),
        kind.kind
    )))
}
