//! PATCH.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

use super::body::{check_kind, check_name, go_json_error, has_no_rules, parse, place, read, reworded};
use super::errors::{
    Failure, Fault, Outcome, bad_request, invalid, not_found, patch_failed, unknown_patch, unsupported_media_type,
};
use super::read::shaped;
use super::route::{Target, done};
use super::schema::Schema;
use super::strategic;
use super::write::{Options, take_managed};
use super::{Answer, Request, Server, json_patch};

pub(super) const JSON: &str = "application/json-patch+json";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// The kind of a patch, if it is taken here.
pub(super) fn kind_of(content_type: &str, custom: bool) -> Outcome<&'static str> {
    let has = content_type.split(';').next().unwrap_or_default().trim();
    let accepted: &[&'static str] = if custom { &[JSON, MERGE, APPLY] } else { &[JSON, MERGE, STRATEGIC, APPLY] };
    if !custom && !accepted.contains(&has) {
        return Err(unknown_patch());
    }
    accepted.iter().find(|it| **it == has).copied().ok_or_else(|| unsupported_media_type(accepted))
}

impl Server {
    pub(super) fn patch(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let patch_kind = kind_of(&request.content_type, kind.custom)?;
        if patch_kind == APPLY {
            return self.apply(target, request, now);
        }
        refuse_force(request)?;
        let options = Options::new(request, now, "PatchOptions")?;
        let name = target.name.as_deref().unwrap_or_default();
        let live = self.shelves[target.kind].get(&target.namespace, name).cloned();
        let live = live.ok_or_else(|| not_found(kind.named(), name))?;
        let mut object = patched(patch_kind, &live.value, &request.body, &kind.schema)?;
        let brought = take_managed(&mut object);
        let as_given = object.clone();
        check_kind(&kind, &mut object, &request.body)?;
        let emptied = has_no_rules(&object);
        read(&kind, &mut object, options.body(request)).map_err(|failure| {
            let why = failure.body["message"].as_str().unwrap_or_default();
            let why = why.split_once(&format!("as a {}: ", kind.kind)).map_or(why, |it| it.1);
            invalid("", "", "", &[Fault::invalid("patch", &as_given.to_string().into(), why)])
        })?;
        place(&mut object, &target.namespace)?;
        check_name(&object, name)?;
        let managed = self.own((&kind, target), (&object, brought.as_ref()), &live, &options);
        let stored = self.store_changed(target, &live, object, managed, &options, &request.user_agent);
        let stored = stored.map_err(|failure| reworded(failure, emptied))?;
        Ok(done(200, shaped(&stored, request)))
    }
}

pub(super) fn refuse_force(request: &Request) -> Outcome<()> {
    if request.query.contains_key("force") {
        let fault = Fault::forbidden("force", "may not be specified for non-apply patch");
        return Err(invalid("meta.k8s.io", "PatchOptions", "", &[fault]));
    }
    Ok(())
}

/// `live` with a patch.
pub(super) fn patched(kind: &str, live: &Value, body: &[u8], schema: &Schema) -> Outcome<Value> {
    match kind {
        JSON => {
            let raw: Value =
                parse(body).map_err(|_| bad_request(&format!("error decoding patch: {}", go_json_error(body))))?;
            let Some(operations) = raw.as_array() else { return Err(not_operations(&raw)) };
            json_patch::apply(live.clone(), operations).ok_or_else(patch_failed)
        }
        MERGE => {
            let patch =
                parse(body).map_err(|_| bad_request(&format!("error decoding patch: {}", go_json_error(body))))?;
            if !patch.is_object() {
                let what = if patch.is_array() { "array" } else { "string" };
                return Err(bad_request(&format!(
                    "error decoding patch: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
                )));
            }
            let mut object = live.clone();
            merge(&mut object, &patch);
            Ok(object)
        }
        _ => {
            let patch = parse(body).map_err(|_| bad_request(&go_json_error(body)))?;
            let Some(patch) = patch.as_object() else {
                return Err(bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}"));
            };
            let mut object = live.clone();
            let map = object.as_object_mut().unwrap();
            strategic::merge(map, patch, schema)?;
            Ok(object)
        }
    }
}

fn not_operations(raw: &Value) -> Box<Failure> {
    let what = if raw.is_object() { "object" } else { "string" };
    bad_request(&format!(
        "error decoding patch: json: cannot unmarshal {what} into Go value of type []handlers.jsonPatchOp"
    ))
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        object.clone_from(patch);
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(map) = object.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
