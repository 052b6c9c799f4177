//! From a path to what serves it.

use serde_json::{Value, json};

use k8s_openapi::jiff::Timestamp;

use super::errors::{Outcome, method_not_allowed, no_such_path, not_acceptable, not_found, not_supported};
use super::{Answer, Request, Server};

/// What a path names.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub kind: usize,
    /// Empty: all namespaces, or none.
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: String,
}

pub(super) fn done(status: u16, body: Value) -> Answer {
    Answer::Done { status, body }
}

fn acceptable(accept: &str) -> bool {
    accept.is_empty() || ["json", "yaml", "*/*", "application/*", "protobuf"].iter().any(|it| accept.contains(it))
}

impl Server {
    pub(super) fn route(&mut self, request: &Request, now: Timestamp) -> Outcome<Answer> {
        if let Some(answer) = self.plain(&request.path) {
            return if request.method == "GET" { Ok(answer) } else { Err(method_not_allowed()) };
        }
        let Some(target) = self.target(&request.path) else { return self.nothing(&request.path) };
        if !acceptable(&request.accept) {
            return Err(not_acceptable());
        }
        let custom = &self.kinds[target.kind];
        if custom.custom && target.subresource == "scale" {
            return Err(not_found(custom.named(), target.name.as_deref().unwrap_or_default()));
        }
        let kind = &self.kinds[target.kind];
        let everywhere = kind.namespaced && target.namespace.is_empty();
        match (request.method.as_str(), &target.name, target.subresource.as_str()) {
            ("GET", None, "") => self.list_or_watch(&target, request),
            ("GET", Some(_), "" | "status") if !everywhere => self.read(&target, request),
            ("GET", Some(_), "scale") => self.read_scale(&target),
            ("POST", None, "") if !everywhere => self.create(&target, request, now),
            ("PUT", Some(_), "" | "status") if !everywhere => self.replace(&target, request, now),
            ("PATCH", Some(_), "" | "status") if !everywhere => self.patch(&target, request, now),
            ("PUT" | "PATCH", Some(_), "scale") => self.write_scale(&target, request, now),
            ("DELETE", Some(_), "") if !everywhere => self.delete(&target, request, now),
            ("DELETE", None, "") if !everywhere => self.delete_all(&target, request, now),
            (method @ ("POST" | "DELETE"), Some(_), "status") if kind.custom => {
                let action = if method == "POST" { "create" } else { "delete" };
                Err(not_supported(kind.named(), action))
            }
            (_, _, "" | "status" | "scale") => Err(method_not_allowed()),
            _ => Err(no_such_path()),
        }
    }

    /// What is answered where there is nothing: groups of built-in kinds say so in a `Status`.
    fn nothing(&self, path: &str) -> Outcome<Answer> {
        let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
        let known = match steps.as_slice() {
            ["api", ..] => true,
            ["apis", group, ..] => self.kinds.iter().any(|kind| !kind.custom && &*kind.group == *group),
            _ => false,
        };
        if known { Err(no_such_path()) } else { Ok(done(404, "404 page not found\n".into())) }
    }

    fn target(&self, path: &str) -> Option<Target> {
        let mut steps: Vec<&str> = path.trim_matches('/').split('/').collect();
        // the old way to watch
        if let Some(at) = steps.iter().position(|it| *it == "watch").filter(|at| *at <= 3) {
            steps.remove(at);
        }
        let (group, version, rest) = match steps.as_mut_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let find =
            |plural: &str| self.kinds.iter().position(|kind| kind.is(group, plural) && &*kind.version == version);
        let (kind, namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if find(plural).is_some_and(|at| self.kinds[at].namespaced) =>
            {
                (find(plural)?, (*namespace).to_owned(), &*rest)
            }
            [plural, rest @ ..] => (find(plural)?, String::new(), &*rest),
            [] => return None,
        };
        let (name, subresource) = match rest {
            [] => (None, ""),
            [name] => (Some((*name).to_owned()), ""),
            [name, subresource] => (Some((*name).to_owned()), *subresource),
            _ => return None,
        };
        let known = match subresource {
            "" => true,
            "status" => self.kinds[kind].status,
            "scale" => self.kinds[kind].scale || self.kinds[kind].custom,
            _ => false,
        };
        known.then(|| Target { kind, namespace, name, subresource: subresource.to_owned() })
    }

    /// What is no object.
    fn plain(&self, path: &str) -> Option<Answer> {
        let body = match path.trim_end_matches('/') {
            "/healthz" | "/readyz" | "/livez" => Value::from("ok"),
            "/version" => json!({
                "major": "1", "minor": "34", "gitVersion": "v1.34.4", "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.24", "compiler": "gc", "platform": "linux/amd64",
            }),
            "/api" => json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
            }),
            "/apis" => {
                let mut groups: Vec<(&str, &str)> = self.kinds.iter().map(|it| (&*it.group, &*it.version)).collect();
                groups.retain(|(group, _)| !group.is_empty());
                groups.sort_unstable();
                groups.dedup();
                let group = |(group, version): &(&str, &str)| {
                    let one = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
                    json!({ "name": group, "versions": [one], "preferredVersion": one })
                };
                let groups: Vec<Value> = groups.iter().map(group).collect();
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
            }
            other => {
                let version = match other.trim_start_matches('/').split('/').collect::<Vec<_>>().as_slice() {
                    ["api", version] => (*version).to_owned(),
                    ["apis", group, version] => format!("{group}/{version}"),
                    _ => return None,
                };
                return self.resources(&version);
            }
        };
        Some(done(200, body))
    }

    /// The resources of a group and version.
    fn resources(&self, version: &str) -> Option<Answer> {
        let mut list = Vec::new();
        for kind in self.kinds.iter().filter(|kind| kind.api_version() == version) {
            let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            let singular = kind.kind.to_lowercase();
            list.push(json!({
                "name": kind.plural, "singularName": singular, "namespaced": kind.namespaced, "kind": kind.kind,
                "verbs": verbs,
            }));
            for (has, name, of) in [(kind.status, "status", &*kind.kind), (kind.scale, "scale", "Scale")] {
                if has {
                    list.push(json!({
                        "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                        "kind": of, "verbs": ["get", "patch", "update"],
                    }));
                }
            }
        }
        if list.is_empty() {
            return None;
        }
        let body = json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": list });
        Some(done(200, body))
    }
}
