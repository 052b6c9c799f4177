//! What the operator writes, and with what right: S8, S9, S10, S11, S15, S16.

use modelrollout::shell::apply::CALL_DEADLINE;
use modelrollout_simapi::client::Call;
use modelrollout_simapi::server::{Change, Server};
use serde_json::Value;

use super::{Invariants, text};
use crate::fault::Class;
use crate::hooks::{RIVAL, class};
use crate::names::{BASE_MS, LEASE, NAME, NAMESPACE, is_main};

const LEASES: &str = "coordination.k8s.io/v1/leases";

/// When a lease ends, in milliseconds of the epoch.
fn ends(lease: &Value) -> i64 {
    let renewed = text(lease, "/spec/renewTime").parse::<k8s_openapi::jiff::Timestamp>();
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(0);
    renewed.map_or(0, |at| at.as_millisecond() + seconds * 1000)
}

/// Leases and Events may be written without it, and the rival does not ask.
fn needs_the_lease(call: &Call) -> bool {
    class(call) == Class::Write && &*call.who != RIVAL
}

impl Invariants {
    /// S16: no request leaves the namespace.
    pub fn namespace(&mut self, call: &Call) {
        if !call.request.path.contains(&format!("/namespaces/{NAMESPACE}/")) {
            let (at, path) = (call.at.as_millisecond() as u64, call.request.path.clone());
            self.broken("S16", at, format!("a request leaves the namespace: {path}"));
        }
    }

    /// S10: whatever raises or scales carries the version of what it was decided on.
    pub fn precondition(&mut self, call: &Call) {
        let request = &call.request;
        let path = &request.path;
        let body = || serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
        let has = match request.method.as_str() {
            "PUT" => !text(&body(), "/metadata/resourceVersion").is_empty(),
            "PATCH" if path.ends_with("/scale") => !text(&body(), "/metadata/resourceVersion").is_empty(),
            "DELETE" => !text(&body(), "/preconditions/uid").is_empty(),
            _ => true,
        };
        if !has {
            self.broken(
                "S10",
                call.at.as_millisecond() as u64,
                format!("{} {path} has no precondition", request.method),
            );
        }
    }

    /// S9: a write begins only when its lease lasts for as long as the write may take.
    pub fn margin(&mut self, call: &Call, server: &Server) {
        let path = &call.request.path;
        if !needs_the_lease(call) || self.disturbed {
            return;
        }
        let (at, ends) = (call.at.as_millisecond(), server.get(LEASES, NAMESPACE, LEASE).map_or(0, |it| ends(&it)));
        let longest = i64::try_from(CALL_DEADLINE.as_millis()).unwrap_or(0);
        if ends - at < longest {
            let text = format!("{} {path} begins {} ms before the end of the lease", call.request.method, ends - at);
            self.broken("S9", u64::try_from(at - BASE_MS).unwrap_or(0), text);
        }
    }

    /// S9: only who holds the lease writes.
    pub fn lease(&mut self, call: &Call, server: &Server, now: u64) {
        let path = &call.request.path;
        if !needs_the_lease(call) {
            return;
        }
        let Some(lease) = server.get(LEASES, NAMESPACE, LEASE) else {
            return self.broken("S9", now, "a write without a lease");
        };
        let holder = text(&lease, "/spec/holderIdentity");
        // the holder's clock may be another one: only its own writes say when it renewed
        if holder != &*call.who {
            self.broken("S9", now, format!("{} writes {path}, and {holder:?} holds the lease", call.who));
        } else if !self.disturbed && ends(&lease) < call.at.as_millisecond() {
            self.broken("S9", now, format!("{} writes {path} after the end of its lease", call.who));
        }
    }

    /// S8, S11, S15: on what is not ours, only what we may change; and nothing of anybody else's.
    pub fn foreign(&mut self, change: &Change, now: u64) {
        let name = change.name.as_str();
        let owned = || {
            let uid = self.rollout.as_ref().and_then(|rollout| rollout.metadata.uid.clone());
            let owner = change
                .old
                .as_ref()
                .unwrap_or(&change.new)
                .pointer("/metadata/ownerReferences/0")
                .cloned()
                .unwrap_or_default();
            // once the rollout is gone, what it owned is deleted by others
            owner["controller"] == true && uid.is_none_or(|uid| owner["uid"] == uid.as_str())
        };
        let allowed = match (change.resource.as_str(), &change.old) {
            ("networking.k8s.io/v1/ingresses", Some(old)) if is_main(name) => only_backends(old, &change.new),
            ("networking.k8s.io/v1/ingresses" | "batch/v1/jobs", _) => owned(),
            ("apps/v1/deployments", Some(old)) => change.subresource == "scale" && only_replicas(old, &change.new),
            ("modelrollout.dev/v1alpha1/modelrollouts", Some(old)) => name == NAME && old["spec"] == change.new["spec"],
            ("coordination.k8s.io/v1/leases" | "events.k8s.io/v1/events" | "v1/events", _) => true,
            _ => false,
        };
        if !allowed {
            let rule = if change.resource == "apps/v1/deployments" { "S8" } else { "S15" };
            let rule = if matches!(change.resource.as_str(), "networking.k8s.io/v1/ingresses") && !is_main(name) {
                "S11"
            } else {
                rule
            };
            self.broken(rule, now, format!("{:?} {} {name} {}", change.verb, change.resource, change.subresource));
        }
    }
}

/// What a write changes by itself is no change of ours.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["managedFields", "resourceVersion", "generation"] {
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove(field);
        }
    }
    object
}

fn only_backends(old: &Value, new: &Value) -> bool {
    let masked = |object: &Value| {
        let mut object = bare(object);
        for rule in object["spec"]["rules"].as_array_mut().into_iter().flatten() {
            for path in rule["http"]["paths"].as_array_mut().into_iter().flatten() {
                let service = text(path, "/backend/service/name").to_owned();
                if super::color_of(&service).is_some() {
                    path["backend"]["service"]["name"] = "ours".into();
                }
            }
        }
        object
    };
    masked(old) == masked(new)
}

fn only_replicas(old: &Value, new: &Value) -> bool {
    let masked = |object: &Value| {
        let mut object = bare(object);
        object["spec"]["replicas"] = Value::Null;
        object
    };
    masked(old) == masked(new)
}
