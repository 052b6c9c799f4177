//! The kinds that are served.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Value, json};

use super::conform;
use super::errors::Named;
use super::fields::Set;
use super::schema::{Schema, builtin, custom};

/// One kind of object.
#[derive(Debug)]
pub(super) struct Kind {
    pub group: Box<str>,
    pub version: Box<str>,
    pub plural: Box<str>,
    pub kind: Box<str>,
    pub namespaced: bool,
    pub schema: Arc<Schema>,
    /// It comes from a CRD.
    pub custom: bool,
    /// It has `/status`.
    pub status: bool,
    /// It has `/scale`.
    pub scale: bool,
    /// The top-level fields whose change is a new generation; none: it has no generation.
    pub generation: &'static [&'static str],
    /// A PUT may create.
    pub create_on_update: bool,
    /// A PUT needs no resourceVersion.
    pub unconditional: bool,
    /// A DELETE answers with the object.
    pub returns_deleted: bool,
    /// Where the server's own errors say that it is stored.
    pub registry: Box<str>,
    /// An object in which nothing is set.
    pub empty: Value,
    /// What the main endpoint, and `/status`, do not own.
    pub ignored: [Set; 2],
}

impl Kind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// As in `Watch::resource`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.api_version(), self.plural)
    }

    pub fn named(&self) -> Named<'_> {
        Named { group: &self.group, resource: &self.plural }
    }

    /// In errors that speak of the kind.
    pub fn by_kind(&self) -> Named<'_> {
        Named { group: &self.group, resource: &self.kind }
    }

    pub fn is(&self, group: &str, plural: &str) -> bool {
        &*self.group == group && &*self.plural == plural
    }
}

fn set(paths: &[&str]) -> Set {
    let mut out = Set::default();
    for path in paths {
        let steps: Vec<_> = path.split('.').map(super::fields::field).collect();
        out.insert(&steps);
    }
    out
}

fn empty(group: &str, version: &str, kind: &str, schema: &Schema) -> Value {
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut out = json!({ "kind": kind, "apiVersion": version });
    let _ = conform::builtin(&mut out, schema, "", &mut Vec::new());
    out
}

const SPEC: &[&str] = &["spec"];

/// The built-in kinds, made once.
pub(super) fn builtins() -> &'static [Arc<Kind>] {
    static KINDS: OnceLock<Vec<Arc<Kind>>> = OnceLock::new();
    KINDS.get_or_init(|| make_builtins().into_iter().map(Arc::new).collect())
}

/// Those of a CRD: its rules are compiled once for all servers, which takes longer than many a test.
pub(super) fn of_crd(crd: &Value) -> Vec<Arc<Kind>> {
    static KNOWN: Mutex<BTreeMap<String, Vec<Arc<Kind>>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let made = known.entry(crd.to_string());
    made.or_insert_with(|| read_crd(crd).into_iter().map(Arc::new).collect()).clone()
}

fn make_builtins() -> Vec<Kind> {
    let of = |group: &str, version: &str, plural: &str, kind: &str, package: &str| Kind {
        empty: empty(group, version, kind, &builtin(&format!("{package}.{kind}"))),
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        kind: kind.into(),
        namespaced: true,
        schema: builtin(&format!("{package}.{kind}")),
        custom: false,
        status: false,
        scale: false,
        generation: &[],
        create_on_update: false,
        unconditional: true,
        returns_deleted: false,
        registry: plural.into(),
        ignored: [Set::default(), Set::default()],
    };
    let with_status = |kind: Kind| Kind { status: true, ignored: [set(&["status"]), set(&["spec"])], ..kind };
    let with_labels = |kind: Kind| Kind { ignored: [set(&["status"]), set(&["spec", "metadata.labels"])], ..kind };
    let pod_status = set(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]);
    vec![
        Kind {
            namespaced: false,
            returns_deleted: true,
            ..with_status(of("", "v1", "namespaces", "Namespace", "core.v1"))
        },
        Kind {
            generation: SPEC,
            returns_deleted: true,
            ignored: [set(&["status"]), pod_status],
            ..with_status(of("", "v1", "pods", "Pod", "core.v1"))
        },
        Kind {
            create_on_update: true,
            returns_deleted: true,
            registry: "services/specs".into(),
            ..with_status(of("", "v1", "services", "Service", "core.v1"))
        },
        of("", "v1", "configmaps", "ConfigMap", "core.v1"),
        Kind {
            generation: &["template"],
            returns_deleted: true,
            ..of("", "v1", "podtemplates", "PodTemplate", "core.v1")
        },
        Kind { returns_deleted: true, ..of("", "v1", "serviceaccounts", "ServiceAccount", "core.v1") },
        Kind { create_on_update: true, ..of("", "v1", "events", "Event", "core.v1") },
        Kind {
            scale: true,
            generation: SPEC,
            ..with_labels(with_status(of("apps", "v1", "deployments", "Deployment", "apps.v1")))
        },
        Kind { generation: SPEC, ..with_status(of("apps", "v1", "replicasets", "ReplicaSet", "apps.v1")) },
        Kind {
            generation: SPEC,
            registry: "ingress".into(),
            ..with_status(of("networking.k8s.io", "v1", "ingresses", "Ingress", "networking.v1"))
        },
        Kind {
            namespaced: false,
            generation: SPEC,
            ..of("networking.k8s.io", "v1", "ingressclasses", "IngressClass", "networking.v1")
        },
        Kind { generation: SPEC, ..with_status(of("batch", "v1", "jobs", "Job", "batch.v1")) },
        with_status(of("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling.v2")),
        Kind {
            create_on_update: true,
            unconditional: false,
            ..of("coordination.k8s.io", "v1", "leases", "Lease", "coordination.v1")
        },
        Kind {
            generation: &["endpoints", "ports", "addressType"],
            ..of("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", "discovery.v1")
        },
        Kind { create_on_update: true, ..of("events.k8s.io", "v1", "events", "Event", "events.v1") },
    ]
}

/// Of the versions of a CRD.
fn read_crd(crd: &Value) -> Vec<Kind> {
    let text = |place: &str| crd.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.into_iter().flatten().filter(|it| it["served"] == true);
    versions
        .map(|version| {
            let status = version.pointer("/subresources/status").is_some();
            let schema = custom(version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null), true);
            Kind {
                empty: json!({ "kind": text("/spec/names/kind"), "apiVersion": format!("{group}/{}", version["name"].as_str().unwrap_or_default()) }),
                group: group.into(),
                version: version["name"].as_str().unwrap_or_default().into(),
                plural: plural.into(),
                kind: text("/spec/names/kind").into(),
                namespaced: text("/spec/scope") == "Namespaced",
                schema: Arc::new(schema),
                custom: true,
                status,
                scale: false,
                generation: SPEC,
                create_on_update: false,
                unconditional: false,
                returns_deleted: false,
                registry: format!("{group}/{plural}").into(),
                ignored: [if status { set(&["status"]) } else { Set::default() }, set(&["spec"])],
            }
        })
        .collect()
}
