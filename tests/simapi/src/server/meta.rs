//! The rules of metadata, and of names.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use super::errors::Fault;
use super::kinds::Kind;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn is(pattern: &str, text: &str, cache: &'static OnceLock<Regex>) -> bool {
    cache.get_or_init(|| Regex::new(&format!("^{pattern}$")).unwrap()).is_match(text)
}

fn matched(what: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|it| format!("'{it}', ")).collect();
    format!("{what} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn longer(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

pub(super) fn dns_label(text: &str) -> Vec<String> {
    static CACHE: OnceLock<Regex> = OnceLock::new();
    let mut out: Vec<String> = longer(text, 63).into_iter().collect();
    if !is(LABEL, text, &CACHE) {
        if subdomain(text).is_empty() {
            out.push("must not contain dots".to_owned());
        } else {
            let what = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            out.push(matched(what, LABEL, &["my-name", "123-abc"]));
        }
    }
    out
}

pub(super) fn subdomain(text: &str) -> Vec<String> {
    static CACHE: OnceLock<Regex> = OnceLock::new();
    let pattern = format!("{LABEL}(\\.{LABEL})*");
    let mut out: Vec<String> = longer(text, 253).into_iter().collect();
    if !is(&pattern, text, &CACHE) {
        let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        out.push(matched(what, &pattern, &["example.com"]));
    }
    out
}

pub(super) fn wildcard(text: &str) -> Vec<String> {
    static CACHE: OnceLock<Regex> = OnceLock::new();
    let pattern = format!("\\*\\.{LABEL}(\\.{LABEL})*");
    let mut out: Vec<String> = longer(text, 253).into_iter().collect();
    if !is(&pattern, text, &CACHE) {
        let what = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        out.push(matched(what, &pattern, &["*.example.com"]));
    }
    out
}

/// Of Services: a letter first.
pub(super) fn service_name(text: &str) -> Vec<String> {
    static CACHE: OnceLock<Regex> = OnceLock::new();
    let pattern = "[a-z]([-a-z0-9]*[a-z0-9])?";
    let mut out: Vec<String> = longer(text, 63).into_iter().collect();
    if !is(pattern, text, &CACHE) {
        let what = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        out.push(matched(what, pattern, &["my-name", "abc-123"]));
    }
    out
}

pub(super) fn qualified_name(text: &str) -> Vec<String> {
    static CACHE: OnceLock<Regex> = OnceLock::new();
    let what = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let said = matched(what, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let parts: Vec<&str> = text.split('/').collect();
    let mut out = Vec::new();
    let name = match parts.as_slice() {
        [name] => *name,
        ["", name] => {
            out.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            out.extend(subdomain(prefix).into_iter().map(|it| format!("prefix part {it}")));
            *name
        }
        _ => {
            let example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a qualified name {said} {example}")];
        }
    };
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else {
        out.extend(longer(name, 63).map(|it| format!("name part {it}")));
    }
    if !is(QUALIFIED, name, &CACHE) {
        out.push(format!("name part {said}"));
    }
    out
}

fn label_value(text: &str) -> Vec<String> {
    static CACHE: OnceLock<Regex> = OnceLock::new();
    let pattern = format!("({QUALIFIED})?");
    let mut out: Vec<String> = longer(text, 63).into_iter().collect();
    if !is(&pattern, text, &CACHE) {
        let what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        out.push(matched(what, &pattern, &["MyValue", "my_value", "12345"]));
    }
    out
}

/// Labels at a place.
pub(super) fn labels(labels: &Value, path: &str, faults: &mut Vec<Fault>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        faults.extend(qualified_name(key).iter().map(|why| Fault::invalid(path, &key.as_str().into(), why)));
        let text = value.as_str().unwrap_or_default();
        faults.extend(label_value(text).iter().map(|why| Fault::invalid(path, value, why)));
    }
}

fn annotations(annotations: &Value, faults: &mut Vec<Fault>) {
    let path = "metadata.annotations";
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let why = qualified_name(&key.to_lowercase());
        faults.extend(why.iter().map(|why| Fault::invalid(path, &key.as_str().into(), why)));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > 256 * 1024 {
        faults.push(Fault::too_long(path, 262_144));
    }
}

fn owners(owners: &Value, faults: &mut Vec<Fault>) {
    let path = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let empty = |field: &str, why: &str| Fault::invalid(format!("{path}.{field}"), &"".into(), why);
        if text("apiVersion").is_empty() {
            faults.push(empty("apiVersion", "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                faults.push(empty(field, "must not be empty"));
            }
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                let message = format!("Invalid value: {}: {why}", in_order(owners));
                faults.push(Fault::plain("FieldValueInvalid", path, message));
            } else {
                controller = Some(name);
            }
        }
    }
}

/// Owners with their fields in the order that the server shows them in.
fn in_order(owners: &Value) -> String {
    let one = |owner: &Value| {
        let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
        let shown = fields.iter().filter_map(|name| owner.get(name).map(|value| format!("\"{name}\":{value}")));
        format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
    };
    format!("[{}]", owners.as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(","))
}

fn finalizers(list: &Value, faults: &mut Vec<Fault>) {
    let path = "metadata.finalizers";
    for one in list.as_array().into_iter().flatten() {
        let why = qualified_name(one.as_str().unwrap_or_default());
        faults.extend(why.iter().map(|why| Fault::invalid(path, one, why)));
    }
}

fn common(meta: &Value, faults: &mut Vec<Fault>) {
    labels(&meta["labels"], "metadata.labels", faults);
    annotations(&meta["annotations"], faults);
    owners(&meta["ownerReferences"], faults);
}

/// Of an object that is new, or as it is now.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<Fault> {
    let meta = &object["metadata"];
    let mut faults = Vec::new();
    let check = |name: &str| match &*kind.plural {
        "services" => service_name(name),
        "namespaces" => dns_label(name),
        _ => subdomain(name),
    };
    let generate = meta["generateName"].as_str().unwrap_or_default();
    if !generate.is_empty() {
        let masked = generate.strip_suffix('-').map_or_else(|| generate.to_owned(), |it| format!("{it}a"));
        let why = check(&masked);
        faults.extend(why.iter().map(|why| Fault::invalid("metadata.generateName", &generate.into(), why)));
    }
    let name = meta["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        faults.push(Fault::required("metadata.name", "name or generateName is required"));
    } else {
        faults.extend(check(name).iter().map(|why| Fault::invalid("metadata.name", &name.into(), why)));
    }
    common(meta, &mut faults);
    finalizers(&meta["finalizers"], &mut faults);
    faults
}

/// Of an object that is changed.
pub(super) fn validate_update(kind: &Kind, object: &Value, old: &Value) -> Vec<Fault> {
    let (meta, before) = (&object["metadata"], &old["metadata"]);
    let mut faults = Vec::new();
    if before.get("deletionTimestamp").is_some() {
        let old: Vec<&Value> = before["finalizers"].as_array().into_iter().flatten().collect();
        let mut more: Vec<String> = meta["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|it| !old.contains(it))
            .map(ToString::to_string)
            .collect();
        more.sort();
        if !more.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                more.join(", ")
            );
            faults.push(Fault::forbidden("metadata.finalizers", &why));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if meta.get(field) != before.get(field) {
            let shown = meta.get(field).cloned().unwrap_or_default();
            faults.push(Fault::invalid(format!("metadata.{field}"), &shown, "field is immutable"));
        }
    }
    if meta != before {
        common(meta, &mut faults);
        if meta.get("finalizers") != before.get("finalizers") {
            finalizers(&meta["finalizers"], &mut faults);
        }
    }
    // the server looks twice: for all kinds, and for this one
    let again = faults.clone();
    faults.extend(again);
    let _ = kind;
    faults
}
