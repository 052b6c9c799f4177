//! The server as a whole.

use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

/// A namespace with `method path?query` asked in it.
struct Cluster {
    server: Server,
    second: i64,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self { server: Server::new(), second: 0 };
        cluster.server.install_crd(&widgets());
        cluster
    }

    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = match method {
            "PATCH" if body.is_array() => "application/json-patch+json",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send(method, path, kind, body)
    }

    fn send(&mut self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = query.split('&').filter_map(|it| it.split_once('='));
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            content_type: content_type.into(),
            accept: "application/json".into(),
            user_agent: "test/1".into(),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        };
        match self.server.handle(&request, at(self.second)) {
            Answer::Done { status, body } => (status, body),
            Answer::Watch(_) => panic!("{path} is watched"),
        }
    }

    fn watch(&mut self, path: &str) -> Watch {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut query: BTreeMap<String, String> =
            query.split('&').filter_map(|it| it.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect();
        query.insert("watch".into(), "true".into());
        let request = Request { method: "GET".into(), path: path.into(), query, ..Request::default() };
        match self.server.handle(&request, at(self.second)) {
            Answer::Watch(watch) => watch,
            Answer::Done { body, .. } => panic!("{body}"),
        }
    }

    fn types(&self, watch: &Watch, after: u64) -> Vec<String> {
        let events = self.server.events(watch, after).unwrap();
        let name = |it: &Event| format!("{} {}", it.body["type"], it.body["object"]["metadata"]["name"]);
        events.iter().map(|it| name(it).replace('"', "")).collect()
    }
}

const WIDGETS: &str = "/apis/x.dev/v1/namespaces/default/widgets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn widgets() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 9 },
            "mode": { "type": "string", "default": "slow", "enum": ["slow", "fast"] },
            "name": { "type": "string", "maxLength": 3, "x-kubernetes-validations": [
                { "rule": "self.matches('^[a-z]+$')", "message": "must be letters" },
            ] },
            "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "count": { "type": "integer" },
                } },
            },
        },
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": spec,
            "status": { "type": "object", "properties": { "open": { "type": "boolean" }, "seen": { "type": "integer" } } },
        },
        "x-kubernetes-validations": [{
            "rule": "!has(oldSelf.status) || !oldSelf.status.open || self.spec.size == oldSelf.spec.size",
            "message": "size cannot change", "fieldPath": ".spec",
        }],
    });
    json!({ "spec": {
        "group": "x.dev", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
        "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema },
        }],
    } })
}

fn widget(spec: &Value) -> Value {
    json!({ "apiVersion": "x.dev/v1", "kind": "Widget", "metadata": { "name": "a" }, "spec": spec })
}

#[test]
fn a_custom_object_is_pruned_defaulted_and_has_a_generation() {
    let mut cluster = Cluster::new();
    let mut body = widget(&json!({ "size": 1, "odd": true }));
    body["status"] = json!({ "open": true });
    let (status, made) = cluster.ask("POST", WIDGETS, &body);
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["spec"], json!({ "size": 1, "mode": "slow" }));
    assert!(made.get("status").is_none());
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(
        made["metadata"]["managedFields"][0]["fieldsV1"],
        json!({ "f:spec": { ".": {}, "f:mode": {}, "f:size": {} } })
    );
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "test");
    let name = format!("{WIDGETS}/a");
    let (_, changed) =
        cluster.ask("PATCH", &format!("{name}/status"), &json!({ "status": { "open": true }, "spec": { "size": 2 } }));
    assert_eq!((&changed["spec"]["size"], &changed["status"]), (&json!(1), &json!({ "open": true })));
    assert_eq!(changed["metadata"]["generation"], 1);
    let (status, refused) = cluster.ask("PATCH", &name, &json!({ "spec": { "size": 2 } }));
    assert_eq!(status, 422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec");
    assert_eq!(
        refused["message"],
        "Widget.x.dev \"a\" is invalid: spec: Invalid value: \"object\": size cannot change"
    );
    let (_, same) = cluster.ask("PATCH", &name, &json!({ "spec": { "size": 1 } }));
    assert_eq!(same, changed, "a write that changes nothing keeps the version");
    let (_, more) = cluster.ask("PATCH", &name, &json!({ "spec": { "mode": "fast" } }));
    assert_eq!(more["metadata"]["generation"], 2);
}

#[test]
fn values_of_a_custom_object_are_checked() {
    let mut cluster = Cluster::new();
    let mut said = |spec: Value| {
        let (status, body) = cluster.ask("POST", WIDGETS, &widget(&spec));
        assert_eq!(status, 422, "{body}");
        body["message"].as_str().unwrap().split_once("invalid: ").unwrap().1.to_owned()
    };
    assert_eq!(
        said(json!({ "size": 10 })),
        "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"
    );
    assert_eq!(said(json!({ "size": 1, "name": "A1" })), "spec.name: Invalid value: \"string\": must be letters");
    assert_eq!(
        said(json!({ "size": 1, "mode": "x" })),
        "[spec.mode: Unsupported value: \"x\": supported values: \"slow\", \"fast\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]"
    );
    assert!(said(json!({})).starts_with("[spec.size: Required value, <nil>: Invalid value: null: some"));
    assert_eq!(said(json!({ "size": 1, "tags": ["a", "a"] })), "spec.tags[1]: Duplicate value: \"a\"");
    assert!(said(json!({ "size": "1" })).starts_with(
        "[spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\", <nil>"
    ));
}

#[test]
fn json_patches_test_before_they_write() {
    let mut cluster = Cluster::new();
    cluster.ask("POST", WIDGETS, &widget(&json!({ "size": 1 })));
    let name = format!("{WIDGETS}/a");
    let test = |value: i64| json!([{ "op": "test", "path": "/spec/size", "value": value }, { "op": "replace", "path": "/spec/size", "value": 5 }]);
    let (status, refused) = cluster.ask("PATCH", &name, &test(2));
    assert_eq!((status, &refused["reason"]), (422, &json!("Invalid")));
    assert_eq!(refused["message"], "the server rejected our request due to an error in our request");
    let (status, changed) = cluster.ask("PATCH", &name, &test(1));
    assert_eq!((status, &changed["spec"]["size"]), (200, &json!(5)));
}

#[test]
fn a_stale_version_and_another_uid_are_conflicts() {
    let mut cluster = Cluster::new();
    let (_, made) = cluster.ask("POST", MAPS, &json!({ "metadata": { "name": "m" }, "data": { "a": "1" } }));
    let name = format!("{MAPS}/m");
    cluster.ask("PATCH", &name, &json!({ "data": { "a": "2" } }));
    let (status, refused) = cluster.ask("PUT", &name, &made);
    assert_eq!(status, 409);
    assert_eq!(
        refused["message"],
        "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let delete = json!({ "preconditions": { "uid": "11111111-0000-4000-8000-000000000000" } });
    assert_eq!(cluster.ask("DELETE", &name, &delete).0, 409);
    assert_eq!(cluster.ask("DELETE", &name, &Value::Null).0, 200);
    let (status, gone) = cluster.ask("GET", &name, &Value::Null);
    assert_eq!((status, &gone["details"]), (404, &json!({ "name": "m", "kind": "configmaps" })));
}

#[test]
fn the_last_finalizer_ends_an_object() {
    let mut cluster = Cluster::new();
    let mut body = widget(&json!({ "size": 1 }));
    body["metadata"]["finalizers"] = json!(["x.dev/wait"]);
    cluster.ask("POST", WIDGETS, &body);
    let name = format!("{WIDGETS}/a");
    let (status, ending) = cluster.ask("DELETE", &name, &Value::Null);
    assert_eq!(status, 200);
    assert_eq!(ending["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(ending["metadata"]["generation"], 2);
    let (status, refused) =
        cluster.ask("PATCH", &name, &json!({ "metadata": { "finalizers": ["x.dev/wait", "x.dev/b"] } }));
    assert_eq!(status, 422);
    assert!(refused["message"].as_str().unwrap().contains("found new finalizers []string{\"x.dev/b\"}"), "{refused}");
    let before = cluster.server.version();
    let (status, last) = cluster.ask("PATCH", &name, &json!({ "metadata": { "finalizers": null } }));
    assert_eq!((status, last["metadata"].get("finalizers")), (200, None));
    assert!(cluster.server.get("x.dev/v1/widgets", "default", "a").is_none());
    let watch = Watch { after: before, ..cluster.watch("/apis/x.dev/v1/widgets?resourceVersion=1") };
    let events = cluster.server.events(&watch, before).unwrap();
    assert_eq!(events[0].body["type"], "DELETED");
    assert_eq!(events[0].body["object"]["metadata"]["finalizers"], json!(["x.dev/wait"]));
    assert_eq!(events[0].body["object"]["metadata"]["resourceVersion"], (before + 1).to_string());
}

#[test]
fn watches_tell_what_enters_and_leaves_a_selection() {
    let mut cluster = Cluster::new();
    let start = cluster.server.version();
    let watch = cluster.watch(&format!("{MAPS}?resourceVersion={start}&labelSelector=a"));
    cluster.ask("POST", MAPS, &json!({ "metadata": { "name": "m" } }));
    cluster.ask("PATCH", &format!("{MAPS}/m"), &json!({ "metadata": { "labels": { "a": "1" } } }));
    cluster.ask("PATCH", &format!("{MAPS}/m"), &json!({ "data": { "k": "v" } }));
    cluster.ask("PATCH", &format!("{MAPS}/m"), &json!({ "metadata": { "labels": null } }));
    assert_eq!(cluster.types(&watch, start), ["ADDED m", "MODIFIED m", "DELETED m"]);
    cluster.server.compact(start + 1);
    let gone = cluster.server.events(&watch, start).unwrap_err();
    assert_eq!((&gone["code"], &gone["reason"]), (&json!(410), &json!("Expired")));
    let fresh = cluster.watch(MAPS);
    assert_eq!(cluster.types(&fresh, fresh.after), ["ADDED m"]);
}

#[test]
fn lists_have_pages_of_one_version() {
    let mut cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.ask("POST", MAPS, &json!({ "metadata": { "name": name } }));
    }
    let (_, first) = cluster.ask("GET", &format!("{MAPS}?limit=2"), &Value::Null);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    assert_eq!(first["items"][1]["metadata"]["name"], "b");
    assert!(first["items"][0].get("kind").is_none());
    cluster.ask("DELETE", &format!("{MAPS}/c"), &Value::Null);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (_, second) = cluster.ask("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null);
    assert_eq!(second["items"][0]["metadata"]["name"], "c", "{second}");
    assert_eq!(second["metadata"], json!({ "resourceVersion": first["metadata"]["resourceVersion"] }));
    let version = cluster.server.version();
    assert_eq!(cluster.server.history_list("v1/configmaps", None, version - 1).unwrap().len(), 3);
    assert_eq!(cluster.server.list("v1/configmaps", Some("default")).len(), 2);
    cluster.server.compact(version);
    assert_eq!(cluster.ask("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null).0, 410);
}

#[test]
fn an_apply_owns_its_fields_and_conflicts_with_others() {
    let mut cluster = Cluster::new();
    let name = format!("{WIDGETS}/a");
    let apply = "application/apply-patch+yaml";
    let mut config = widget(&json!({ "size": 1, "parts": [{ "name": "x", "count": 1 }, { "name": "y" }] }));
    let (status, made) = cluster.send("PATCH", &format!("{name}?fieldManager=one"), apply, &config);
    assert_eq!(status, 201, "{made}");
    config["spec"] = json!({ "size": 2 });
    let (status, refused) = cluster.send("PATCH", &format!("{name}?fieldManager=two"), apply, &config);
    assert_eq!(status, 409);
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"one\": .spec.size");
    let (status, _) = cluster.send("PATCH", &format!("{name}?fieldManager=two&force=true"), apply, &config);
    assert_eq!(status, 200);
    config["spec"] = json!({ "parts": [{ "name": "y" }] });
    let (status, left) = cluster.send("PATCH", &format!("{name}?fieldManager=one"), apply, &config);
    assert_eq!(status, 200, "{left}");
    assert_eq!(left["spec"], json!({ "size": 2, "mode": "slow", "parts": [{ "name": "y" }] }));
}

#[test]
fn a_scale_is_a_write_to_the_deployment() {
    let mut cluster = Cluster::new();
    let place = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let (status, made) = cluster.ask("POST", place, &json!({ "metadata": { "name": "d" }, "spec": spec }));
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");
    cluster.second = 1;
    let version = made["metadata"]["resourceVersion"].clone();
    let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "replicas": 3 } });
    let scale = format!("{place}/d/scale");
    let (status, scaled) = cluster.ask("PATCH", &format!("{scale}?fieldManager=s"), &patch);
    assert_eq!((status, &scaled["spec"], &scaled["kind"]), (200, &json!({ "replicas": 3 }), &json!("Scale")));
    assert_eq!(scaled["status"], json!({ "replicas": 0, "selector": "a=b" }));
    let (_, now) = cluster.ask("GET", &format!("{place}/d"), &Value::Null);
    assert_eq!(now["metadata"]["generation"], 2);
    // the server gives it no time, and what has none comes first
    let owner = &now["metadata"]["managedFields"][0];
    assert_eq!((&owner["manager"], &owner["subresource"]), (&json!("s"), &json!("scale")));
    assert_eq!(owner["fieldsV1"], json!({ "f:spec": { "f:replicas": {} } }));
    assert_eq!(cluster.ask("PATCH", &scale, &patch).0, 409);
}

#[test]
fn dependents_go_with_their_owner() {
    let mut cluster = Cluster::new();
    let (_, owner) = cluster.ask("POST", MAPS, &json!({ "metadata": { "name": "owner" } }));
    let reference =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] });
    cluster.ask("POST", MAPS, &json!({ "metadata": { "name": "child", "ownerReferences": [reference] } }));
    cluster.server.collect_garbage(at(1));
    assert_eq!(cluster.server.list("v1/configmaps", None).len(), 2);
    cluster.ask("DELETE", &format!("{MAPS}/owner"), &Value::Null);
    cluster.server.collect_garbage(at(1));
    assert!(cluster.server.list("v1/configmaps", None).is_empty());
    assert_eq!(cluster.server.take_changes().last().unwrap().by, "garbage-collector");
}
