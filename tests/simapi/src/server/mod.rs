//! The API server: a pure state machine. The time of each request is an argument; nothing in here waits.

mod apply;
mod body;
mod cel;
mod check;
mod conform;
mod defaults;
mod delete;
mod errors;
mod fields;
mod gc;
mod json_patch;
mod kinds;
mod managed;
mod meta;
mod patch;
mod pods;
mod quantity;
mod read;
mod route;
mod scale;
mod schema;
mod selector;
mod store;
mod strategic;
mod strategy;
mod time;
mod twice;
mod typed;
mod validate;
mod validate_routes;
mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// One HTTP request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Decoded.
    pub query: BTreeMap<String, String>,
    /// Of the body; it tells the kind of a patch.
    pub content_type: String,
    /// What is accepted: it may ask for metadata only.
    pub accept: String,
    /// Its first word, up to a slash, is the field manager of who names none.
    pub user_agent: String,
    /// The body.
    pub body: Vec<u8>,
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole answer; errors have a `Status` as their body.
    Done {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: Value,
    },
    /// A watch: its events come from [`Server::events`].
    Watch(Watch),
}

/// What is watched.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Group, version and plural, such as `networking.k8s.io/v1/ingresses` or `v1/pods`.
    pub resource: String,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// `labelSelector`.
    pub labels: String,
    /// `fieldSelector`.
    pub fields: String,
    /// Changes after this version are told. With `initial` it is 0, and what is there is told first.
    pub after: u64,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<u64>,
    /// `PartialObjectMetadata` is wanted.
    pub metadata_only: bool,
    /// No version was asked for: [`Server::events`] after 0 tells what is there, as of now.
    pub initial: bool,
    /// A bookmark tells when that is over.
    pub initial_end: bool,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The object is new.
    Create,
    /// It was changed.
    Update,
    /// It is gone.
    Delete,
}

/// One committed change. A write that changes nothing is none.
#[derive(Clone, Debug)]
pub struct Change {
    /// The server's version after it; each change has one of its own.
    pub version: u64,
    /// As in [`Watch::resource`].
    pub resource: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What was done.
    pub verb: Verb,
    /// Before.
    pub old: Option<Arc<Value>>,
    /// After; of a deletion, as it was last.
    pub new: Arc<Value>,
    /// `status`, `scale`, or empty.
    pub subresource: String,
    /// The user agent of who wrote, or the name of the part of the server that did (`garbage-collector`).
    pub by: String,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct Event {
    /// The version that a watch goes on from after it.
    pub version: u64,
    /// `{"type": …, "object": …}`.
    pub body: Arc<Value>,
}

/// The API server.
#[derive(Clone, Debug)]
pub struct Server {
    kinds: Vec<Arc<kinds::Kind>>,
    /// The objects, by kind.
    shelves: Vec<store::Shelf>,
    version: u64,
    changes: Vec<Change>,
    /// Counts what is given a name or an address.
    given: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// With the namespaces that every cluster has.
    pub fn new() -> Self {
        let kinds = kinds::builtins().to_vec();
        let shelves = kinds.iter().map(|_| store::Shelf::default()).collect();
        let mut server = Self { kinds, shelves, version: 100, changes: Vec::new(), given: 0 };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let body = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            let request = Request {
                method: "POST".into(),
                path: "/api/v1/namespaces".into(),
                user_agent: "kube-apiserver".into(),
                body: body.to_string().into_bytes(),
                ..Request::default()
            };
            server.handle(&request, Timestamp::UNIX_EPOCH);
        }
        server.changes.clear();
        server
    }

    /// Serves the kind of a `CustomResourceDefinition` from now on.
    pub fn install_crd(&mut self, crd: &Value) {
        for kind in kinds::of_crd(crd) {
            let known = self.kinds.iter().position(|it| it.id() == kind.id());
            if let Some(at) = known {
                self.kinds[at] = kind;
            } else {
                self.kinds.push(kind);
                self.shelves.push(store::Shelf::default());
            }
        }
    }

    /// Answers one request.
    pub fn handle(&mut self, request: &Request, now: Timestamp) -> Answer {
        match self.route(request, now) {
            Ok(answer) => answer,
            Err(failure) => Answer::Done { status: failure.code, body: failure.body },
        }
    }

    /// What was committed since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn kind(&self, resource: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.id() == resource)
    }

    /// One object. `resource` as in [`Watch::resource`].
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let stored = self.shelves[self.kind(resource)?].get(namespace, name)?;
        Some(Arc::clone(&stored.value))
    }

    /// All objects of a namespace, or of all, in order.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(kind) = self.kind(resource) else { return Vec::new() };
        self.shelves[kind].list(namespace, None).map(|stored| Arc::clone(&stored.value)).collect()
    }

    /// As of an older version; none if it was compacted or has not been yet.
    pub fn history_list(&self, resource: &str, namespace: Option<&str>, at_version: u64) -> Option<Vec<Arc<Value>>> {
        let kind = self.kind(resource).filter(|_| at_version <= self.version)?;
        self.shelves[kind].list_at(namespace, at_version)
    }

    /// Forgets what was before a version: watches and lists from there get 410.
    pub fn compact(&mut self, before: u64) {
        for shelf in &mut self.shelves {
            shelf.compacted = shelf.compacted.max(before);
            shelf.log.retain(|record| record.version > before);
        }
    }
}
