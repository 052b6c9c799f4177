//! What the garbage collector does, and the end of namespaces.

use std::collections::HashSet;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Server;
use super::body::text;
use super::delete::mark;
use super::managed::Writer;
use super::store::{By, Stored};
use super::write::{put_managed, take_managed};

const BY: By<'static> = By { who: "garbage-collector", subresource: "" };

fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

impl Server {
    /// One pass: dependents whose owners are gone are deleted, owners that were deleted in the foreground go when
    /// nothing depends on them, orphans lose their owners, and namespaces that end lose what is in them.
    pub fn collect_garbage(&mut self, now: Timestamp) {
        let mut alive = HashSet::new();
        let mut orphaning = HashSet::new();
        let mut foreground = HashSet::new();
        for shelf in &self.shelves {
            for stored in shelf.list(None, None) {
                let uid = text(&stored.value, "uid").to_owned();
                let ends = stored.value["metadata"].get("deletionTimestamp").is_some();
                if ends && finalizers(&stored.value).any(|it| it == "orphan") {
                    orphaning.insert(uid.clone());
                }
                if ends && finalizers(&stored.value).any(|it| it == "foregroundDeletion") {
                    foreground.insert(uid.clone());
                }
                alive.insert(uid);
            }
        }
        let mut blocking = HashSet::new();
        for kind in 0..self.shelves.len() {
            let all: Vec<_> = self.shelves[kind].list(None, None).cloned().collect();
            for stored in all {
                let meta = &stored.value["metadata"];
                let owners = meta["ownerReferences"].as_array().cloned().unwrap_or_default();
                if owners.is_empty() {
                    continue;
                }
                let uid = |owner: &Value| owner["uid"].as_str().unwrap_or_default().to_owned();
                let left: Vec<Value> = owners
                    .iter()
                    .filter(|it| alive.contains(&uid(it)) && !orphaning.contains(&uid(it)))
                    .cloned()
                    .collect();
                let held = left.iter().any(|it| !foreground.contains(&uid(it)));
                let orphaned = owners.iter().any(|it| orphaning.contains(&uid(it)));
                if held || orphaned {
                    if left.len() != owners.len() {
                        let mut next = Value::clone(&stored.value);
                        if left.is_empty() {
                            next["metadata"].as_object_mut().map(|it| it.remove("ownerReferences"));
                        } else {
                            next["metadata"]["ownerReferences"] = left.into();
                        }
                        self.rewrite(kind, next, &stored, now);
                    }
                    continue;
                }
                let waiting = left.iter().filter(|it| it["blockOwnerDeletion"] == true).map(uid);
                if self.discard(kind, &stored, now) {
                    continue;
                }
                blocking.extend(waiting);
            }
        }
        self.finish(&blocking);
        self.end_namespaces(now);
    }

    /// Deletes an object, or begins to. Gives whether it is gone.
    fn discard(&mut self, kind: usize, stored: &Stored, now: Timestamp) -> bool {
        let meta = &stored.value["metadata"];
        let (namespace, name) = (text(&stored.value, "namespace").to_owned(), text(&stored.value, "name").to_owned());
        let graceful = self.kinds[kind].is("", "pods") && super::pods::grace(&stored.value, None) > 0;
        if finalizers(&stored.value).next().is_none() && !graceful {
            self.erase(kind, &namespace, &name, BY);
            return true;
        }
        if meta.get("deletionTimestamp").is_none() {
            let mut next = Value::clone(&stored.value);
            mark(&mut next["metadata"], now);
            if graceful {
                next["metadata"]["deletionGracePeriodSeconds"] = super::pods::grace(&stored.value, None).into();
            }
            self.commit(kind, next, stored.managed.clone(), BY);
        }
        false
    }

    /// Stores an object whose metadata the collector has changed, and who owns what of it now.
    fn rewrite(&mut self, kind: usize, mut next: Value, stored: &Stored, now: Timestamp) {
        let of = std::sync::Arc::clone(&self.kinds[kind]);
        let (version, now) = (of.api_version(), super::time::seconds(now));
        let writer = Writer { manager: "kube-controller-manager", api_version: &version, subresource: "", now: &now };
        let mut managed = stored.managed.clone();
        take_managed(&mut next);
        managed.update(Some(&stored.value), &of.empty, &next, (&of.schema, &of.ignored[0]), writer);
        put_managed(&mut next, &mut managed);
        self.commit(kind, next, managed, BY);
    }

    /// Owners whose finalizer was for this collector.
    fn finish(&mut self, blocking: &HashSet<String>) {
        for kind in 0..self.shelves.len() {
            let all: Vec<_> = self.shelves[kind].list(None, None).cloned().collect();
            for stored in all {
                let blocked = blocking.contains(text(&stored.value, "uid"));
                let ours = |it: &str| it == "orphan" || (it == "foregroundDeletion" && !blocked);
                let ends = stored.value["metadata"].get("deletionTimestamp").is_some();
                if !ends || !finalizers(&stored.value).any(ours) {
                    continue;
                }
                let left: Vec<Value> = finalizers(&stored.value).filter(|it| !ours(it)).map(Into::into).collect();
                let (namespace, name) =
                    (text(&stored.value, "namespace").to_owned(), text(&stored.value, "name").to_owned());
                if left.is_empty() {
                    self.erase(kind, &namespace, &name, BY);
                } else {
                    let mut next = Value::clone(&stored.value);
                    next["metadata"]["finalizers"] = left.into();
                    self.commit(kind, next, stored.managed, BY);
                }
            }
        }
    }

    fn end_namespaces(&mut self, now: Timestamp) {
        let ending: Vec<String> = self.shelves[0]
            .list(None, None)
            .filter(|it| it.value["metadata"].get("deletionTimestamp").is_some())
            .map(|it| text(&it.value, "name").to_owned())
            .collect();
        for namespace in ending {
            let mut left = false;
            for kind in 1..self.shelves.len() {
                let all: Vec<_> = self.shelves[kind].list(Some(&namespace), None).cloned().collect();
                for stored in all {
                    left |= !self.discard(kind, &stored, now);
                }
            }
            if !left {
                self.erase(0, "", &namespace, BY);
            }
        }
    }
}
