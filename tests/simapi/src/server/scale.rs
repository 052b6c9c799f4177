//! `/scale` of a Deployment.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::body::{check_name, parse, place, text};
use super::errors::{Fault, Named, Outcome, bad_request, conflict, invalid, not_found};
use super::fields::{Set, field};
use super::managed::{Entry, Managed};
use super::patch::{APPLY, kind_of, patched, refuse_force};
use super::read::shaped;
use super::route::{Target, done};
use super::schema::{Schema, builtin};
use super::store::Stored;
use super::write::{Options, precondition, take_managed};
use super::{Answer, Request, Server, conform};

const VERSION: &str = "autoscaling/v1";

fn schema() -> Arc<Schema> {
    builtin("autoscaling.v1.Scale")
}

fn replicas_of(path: [&str; 2]) -> Set {
    let mut set = Set::default();
    set.insert(&path.map(field));
    set
}

fn replicas() -> Set {
    replicas_of(["spec", "replicas"])
}

/// The `Scale` of a Deployment.
fn scale_of(deployment: &Value) -> Value {
    let meta = &deployment["metadata"];
    let mut shown = serde_json::Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(name) {
            shown.insert(name.into(), value.clone());
        }
    }
    let mut spec = json!({});
    if let Some(count) = deployment["spec"]["replicas"].as_i64().filter(|it| *it != 0) {
        spec["replicas"] = count.into();
    }
    let mut status = json!({ "replicas": deployment["status"]["replicas"].as_i64().unwrap_or_default() });
    let selector = selector(&deployment["spec"]["selector"]);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({ "kind": "Scale", "apiVersion": VERSION, "metadata": shown, "spec": spec, "status": status })
}

/// A selector as text.
fn selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for one in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = one["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = one["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match one["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort();
    parts.into_iter().map(|it| it.1).collect::<Vec<_>>().join(",")
}

impl Server {
    fn scaled(&self, target: &Target) -> Outcome<Stored> {
        let name = target.name.as_deref().unwrap_or_default();
        let kind = &self.kinds[target.kind];
        self.shelves[target.kind].get(&target.namespace, name).cloned().ok_or_else(|| not_found(kind.named(), name))
    }

    pub(super) fn read_scale(&self, target: &Target) -> Outcome<Answer> {
        Ok(done(200, scale_of(&self.scaled(target)?.value)))
    }

    pub(super) fn write_scale(&mut self, target: &Target, request: &Request, now: Timestamp) -> Outcome<Answer> {
        let kind = Arc::clone(&self.kinds[target.kind]);
        let schema = schema();
        let name = target.name.as_deref().unwrap_or_default();
        let put = request.method == "PUT";
        let patch_kind = if put { "" } else { kind_of(&request.content_type, false)? };
        if !put && patch_kind != APPLY {
            refuse_force(request)?;
        }
        let options = Options::new(request, now, if put { "UpdateOptions" } else { "PatchOptions" })?;
        let given = if put { Some(parse(&request.body)?) } else { None };
        let live = self.scaled(target)?;
        let old = scale_of(&live.value);
        let mut before = to_scale(&live.managed);
        let mut scale = match given {
            Some(given) => given,
            None if patch_kind == APPLY => {
                let config = parse(&request.body)?;
                let force = request.query.get("force").is_some_and(|it| it == "true");
                let writer = options.writer(VERSION, "scale");
                let merged = before.apply(&old, &config, &schema, &Set::default(), writer, force)?;
                merged.unwrap_or_else(|| old.clone())
            }
            None => patched(patch_kind, &old, &request.body, &schema)?,
        };
        let as_given = scale.clone();
        conform::builtin(&mut scale, &schema, "", &mut Vec::new()).map_err(|why| {
            if put {
                return bad_request(&format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"));
            }
            invalid("", "", "", &[Fault::invalid("patch", &as_given.to_string().into(), &why)])
        })?;
        place(&mut scale, &target.namespace)?;
        check_name(&scale, name)?;
        take_managed(&mut scale);
        if patch_kind != APPLY {
            before.update(Some(&old), &old, &scale, (&schema, &Set::default()), options.writer(VERSION, "scale"));
        }
        let wanted = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        if wanted < 0 {
            let fault = Fault::invalid("spec.replicas", &wanted.into(), "must be greater than or equal to 0");
            return Err(invalid("autoscaling", "Scale", name, &[fault]));
        }
        let (uid, has) = (text(&scale, "uid"), text(&live.value, "uid"));
        if !uid.is_empty() && uid != has {
            if put {
                return Err(conflict(kind.named(), name, &precondition(&kind, target, name, uid, has)));
            }
            let of = Named { group: "apps", resource: "deployments/scale" };
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {has}");
            return Err(conflict(of, name, &why));
        }
        let mut object = Value::clone(&live.value);
        object["spec"]["replicas"] = wanted.into();
        object["metadata"]["resourceVersion"] = text(&scale, "resourceVersion").into();
        take_managed(&mut object);
        let managed = to_parent(&live.managed, before, &kind.api_version());
        let stored = self.store_changed(target, &live, object, managed, &options, &request.user_agent)?;
        Ok(done(200, shaped(&scale_of(&stored), request)))
    }
}

/// The owners of a Deployment as those of its Scale: who owns the replicas.
fn to_scale(parent: &Managed) -> Managed {
    let owns = |entry: &Entry| entry.set.has_path(&["f:spec", "f:replicas"]);
    let scaled = |entry: Entry| Entry { api_version: VERSION.into(), set: Arc::new(replicas()), ..entry };
    Managed(parent.clone().decoded().0.into_iter().filter(owns).map(scaled).collect())
}

/// And back, as the server does it: updaters are known by their version too, and that of a Scale is another one. So
/// whoever owns the replicas loses them in one entry and has them in another, which has no time.
fn to_parent(parent: &Managed, mut scale: Managed, version: &str) -> Managed {
    let same =
        |a: &Entry, b: &Entry| a.applied && b.applied && a.manager == b.manager && a.subresource == b.subresource;
    let mut out = Vec::new();
    for entry in parent.clone().decoded().0 {
        if !entry.set.has_path(&["f:spec", "f:replicas"]) {
            out.push(entry);
            continue;
        }
        if let Some(at) = scale.0.iter().position(|it| same(it, &entry)) {
            scale.0.remove(at);
            out.push(entry);
            continue;
        }
        let mut set = Set::clone(&entry.set);
        set.subtract(&replicas());
        if !set.is_empty() {
            out.push(Entry { set: Arc::new(set), ..entry });
        }
    }
    for entry in scale.0 {
        if entry.set.has_path(&["f:spec", "f:replicas"]) {
            out.push(Entry { api_version: version.to_owned(), set: Arc::new(replicas()), time: None, ..entry });
        }
    }
    Managed(out)
}
