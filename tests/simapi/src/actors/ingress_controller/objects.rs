//! What an ingress controller reads from the API: Ingresses, and the Pods behind a Service.

use std::sync::Arc;

use serde_json::Value;

use super::Snapshot;
use super::tables::{HeaderRule, HeaderTest, PathType, Shaping};
use crate::actors::pattern::Pattern;
use crate::actors::random::{hash, mix};

const PREFIX: &str = "nginx.ingress.kubernetes.io/";
const CLASS: &str = "kubernetes.io/ingress.class";

/// One Ingress of the controller's class.
#[derive(Debug)]
pub struct Ingress {
    pub namespace: String,
    pub name: String,
    /// None for a normal Ingress.
    pub canary: Option<Shaping>,
    /// A number for all annotations that may change the configuration file.
    pub settings: u64,
    pub rules: Vec<Rule>,
}

/// The paths of one host.
#[derive(Debug)]
pub struct Rule {
    /// `_` if it names none: nginx' name for all other hosts.
    pub host: String,
    pub paths: Vec<Path>,
}

/// One path with a Service behind it.
#[derive(Debug)]
pub struct Path {
    pub text: String,
    pub kind: PathType,
    pub service: String,
    /// As written: a name or a number.
    pub port: String,
}

/// The Ingresses of `class`, or of none, in the order in which ingress-nginx reads them: the oldest first, and of the same
/// age by falling name (`sortIngressSlice`).
pub fn ingresses(snapshot: &Snapshot, class: &str) -> Vec<Ingress> {
    let mut all: Vec<(&str, &str, &Value)> = snapshot
        .ingresses
        .iter()
        .filter(|one| class_of(one).is_none_or(|found| found == class))
        .map(|one| (text(one, "/metadata/creationTimestamp"), text(one, "/metadata/name"), &**one))
        .collect();
    all.sort_by(|left, right| left.0.cmp(right.0).then(right.1.cmp(left.1)));
    all.into_iter().map(|(_, _, value)| read(value)).collect()
}

fn class_of(value: &Value) -> Option<&str> {
    let annotation = value.get("metadata")?.get("annotations").and_then(|all| all.get(CLASS));
    annotation.or_else(|| value.get("spec")?.get("ingressClassName"))?.as_str()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn read(value: &Value) -> Ingress {
    let annotation = |name: &str| {
        value.get("metadata")?.get("annotations")?.as_object()?.iter().find_map(|(key, value)| {
            let found = key.strip_prefix(PREFIX).is_some_and(|key| key == name);
            found.then(|| value.as_str()).flatten()
        })
    };
    let settings = value.pointer("/metadata/annotations").and_then(Value::as_object).map_or(0, |all| {
        let ours = all.iter().filter(|(key, _)| key.starts_with(PREFIX));
        ours.fold(1, |sum, (key, value)| mix(sum ^ hash(key)) ^ hash(value.as_str().unwrap_or_default()))
    });
    let rules = list(value, "/spec/rules").iter().map(|rule| Rule {
        host: match text(rule, "/host") {
            "" => "_".to_owned(),
            host => host.to_ascii_lowercase(),
        },
        paths: list(rule, "/http/paths").iter().filter_map(path).collect(),
    });
    Ingress {
        namespace: text(value, "/metadata/namespace").to_owned(),
        name: text(value, "/metadata/name").to_owned(),
        canary: annotation("canary").is_some_and(is_true).then(|| shaping(annotation)),
        settings,
        rules: rules.collect(),
    }
}

fn path(value: &Value) -> Option<Path> {
    let service = value.pointer("/backend/service")?;
    let port = service.get("port")?;
    let named = port.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    Some(Path {
        text: match text(value, "/path") {
            "" => "/".to_owned(),
            path => path.to_owned(),
        },
        kind: match text(value, "/pathType") {
            "Exact" => PathType::Exact,
            // ImplementationSpecific and none are Prefix (`SetDefaultNGINXPathType`).
            _ => PathType::Prefix,
        },
        service: text(service, "/name").to_owned(),
        port: named.map_or_else(|| port.get("number").map_or(String::new(), Value::to_string), str::to_owned),
    })
}

/// As Go's `strconv.ParseBool` reads it. Anything else makes it a normal Ingress, whatever else is set on it
/// (`annotations/canary/main.go`: "configured but not enabled").
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// As Go's `strconv.Atoi` reads it: whole numbers with an optional sign; anything else, such as `12.5` or `20%`, is none.
fn atoi(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn shaping<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Shaping {
    let fits = |extra: &'static str| {
        move |text: &&str| {
            !text.is_empty() && text.chars().all(|char| char.is_ascii_alphanumeric() || extra.contains(char))
        }
    };
    let name = annotation("canary-by-header").filter(fits("-_"));
    let value = annotation("canary-by-header-value").filter(fits("-._~/:"));
    let pattern = annotation("canary-by-header-pattern").filter(fits("-._~/:^$[](){}*+?|&=\\"));
    let header = name.map(|name| HeaderRule {
        name: name.to_ascii_lowercase().replace('-', "_"),
        test: match (value, pattern) {
            (Some(value), _) => HeaderTest::Value(value.to_owned()),
            (None, Some(pattern)) => HeaderTest::Pattern(Pattern::new(pattern)),
            (None, None) => HeaderTest::Words,
        },
    });
    Shaping {
        weight: annotation("canary-weight").and_then(atoi).unwrap_or(0),
        // Only a total above 100 counts (balancer.lua).
        total: annotation("canary-weight-total").and_then(atoi).unwrap_or(100).max(100),
        header,
        cookie: annotation("canary-by-cookie").filter(fits("-_")).map(str::to_owned),
    }
}

/// The ready Pods of the port of a Service, None if there is no such Service. Terminating ones are not ready, whether or not
/// they still serve: ingress-nginx drops them at once.
pub fn pods(snapshot: &Snapshot, namespace: &str, service: &str, port: &str) -> Option<Vec<Arc<str>>> {
    let is = |value: &&Arc<Value>| {
        text(value, "/metadata/name") == service && text(value, "/metadata/namespace") == namespace
    };
    let found = snapshot.services.iter().find(is)?;
    let number_of_port = Some(port.parse().unwrap_or(u64::MAX));
    let is_port = |value: &&Value| {
        let number =
            |field: &str| value.get(field).is_some_and(|it| it.as_str() == Some(port) || it.as_u64() == number_of_port);
        number("port") || number("targetPort") || text(value, "/name") == port
    };
    let Some(port) = list(found, "/spec/ports").iter().find(is_port) else { return Some(Vec::new()) };
    let port = text(port, "/name");
    let mut pods: Vec<Arc<str>> = Vec::new();
    for slice in &snapshot.slices {
        let labels = slice.pointer("/metadata/labels").and_then(|labels| labels.get("kubernetes.io/service-name"));
        if labels.and_then(Value::as_str) != Some(service) || text(slice, "/metadata/namespace") != namespace {
            continue;
        }
        let ports = slice.get("ports").and_then(Value::as_array);
        if ports.is_some_and(|all| !all.iter().any(|one| text(one, "/name") == port)) {
            continue;
        }
        for endpoint in list(slice, "/endpoints") {
            let name = match text(endpoint, "/targetRef/name") {
                "" => text(endpoint, "/addresses/0"),
                name => name,
            };
            let ready = endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
            if ready && !pods.iter().any(|pod| &**pod == name) {
                pods.push(name.into());
            }
        }
    }
    Some(pods)
}
