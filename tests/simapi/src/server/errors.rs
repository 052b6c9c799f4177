//! Errors as the server words them: a `Status`, and the fields that are at fault.

use serde_json::{Map, Value, json};

/// An HTTP status and its `Status` body.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub code: u16,
    pub body: Value,
}

pub(super) type Outcome<T> = Result<T, Box<Failure>>;

fn status(code: u16, reason: &str, message: &str, details: Option<Value>) -> Box<Failure> {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if reason.is_empty() {
        body.as_object_mut().unwrap().remove("reason");
    }
    if let Some(details) = details {
        body["details"] = details;
    }
    Box::new(Failure { code, body })
}

/// A kind of resource, in errors: `deployments` of `apps`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

impl Named<'_> {
    fn qualified(self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(self, name: &str) -> Value {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", self.group), ("kind", self.resource)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details.into()
    }
}

pub(super) fn not_found(of: Named<'_>, name: &str) -> Box<Failure> {
    status(404, "NotFound", &format!("{} {name:?} not found", of.qualified()), Some(of.details(name)))
}

/// Nothing has this path.
pub(super) fn no_such_path() -> Box<Failure> {
    status(404, "NotFound", "the server could not find the requested resource", Some(json!({})))
}

pub(super) fn already_exists(of: Named<'_>, name: &str) -> Box<Failure> {
    status(409, "AlreadyExists", &format!("{} {name:?} already exists", of.qualified()), Some(of.details(name)))
}

pub(super) fn conflict(of: Named<'_>, name: &str, why: &str) -> Box<Failure> {
    let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", of.qualified());
    status(409, "Conflict", &message, Some(of.details(name)))
}

/// What a stale resourceVersion is told.
pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(super) fn apply_conflict(causes: Vec<Value>, message: &str) -> Box<Failure> {
    status(409, "Conflict", message, Some(json!({ "causes": causes })))
}

pub(super) fn forbidden(of: Named<'_>, name: &str, why: &str) -> Box<Failure> {
    let message = format!("{} {name:?} is forbidden: {why}", of.qualified());
    status(403, "Forbidden", &message, Some(of.details(name)))
}

pub(super) fn bad_request(message: &str) -> Box<Failure> {
    status(400, "BadRequest", message, None)
}

pub(super) fn method_not_allowed() -> Box<Failure> {
    let message = "the server does not allow this method on the requested resource";
    status(405, "MethodNotAllowed", message, Some(json!({})))
}

/// A verb that custom objects do not have.
pub(super) fn not_supported(of: Named<'_>, action: &str) -> Box<Failure> {
    let message = format!("{action} is not supported on resources of kind {:?}", of.qualified());
    status(405, "MethodNotAllowed", &message, Some(of.details("")))
}

pub(super) fn unsupported_media_type(accepted: &[&str]) -> Box<Failure> {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    status(415, "UnsupportedMediaType", &message, None)
}

/// A JSON patch that cannot be applied.
pub(super) fn patch_failed() -> Box<Failure> {
    status(422, "Invalid", "the server rejected our request due to an error in our request", Some(json!({})))
}

pub(super) fn expired(message: &str) -> Box<Failure> {
    status(410, "Expired", message, None)
}

/// An error that has no status of its own.
pub(super) fn plain(message: &str) -> Box<Failure> {
    status(500, "", message, None)
}

/// A body of a type that is not read.
pub(super) fn unreadable_type() -> Box<Failure> {
    unsupported_media_type(&["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
}

/// A patch of a type that no route takes.
pub(super) fn unknown_patch() -> Box<Failure> {
    status(415, "UnsupportedMediaType", "415: Unsupported Media Type", Some(json!({})))
}

/// Nothing that is accepted can be given.
pub(super) fn not_acceptable() -> Box<Failure> {
    let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    status(406, "NotAcceptable", message, Some(json!({})))
}

/// Nothing new can be made while the old one goes.
pub(super) fn being_deleted(of: Named<'_>, name: &str) -> Box<Failure> {
    let mut failure = already_exists(of, name);
    let message = failure.body["message"].as_str().unwrap_or_default();
    failure.body["message"] = format!("object is being deleted: {message}").into();
    failure
}

/// A resourceVersion that has not been yet.
pub(super) fn too_large(asked: u64, current: u64) -> Box<Failure> {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
    status(504, "Timeout", &message, Some(json!({ "retryAfterSeconds": 1, "causes": [cause] })))
}

/// One field that is at fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

/// A value in a message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quoted(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(bool) => bool.to_string(),
        other => other.to_string(),
    }
}

/// As `%q` of Go.
pub(super) fn go_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for one in text.chars() {
        match one {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            one if one.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(one))),
            one => out.push(one),
        }
    }
    out.push('"');
    out
}

fn with_detail(head: String, detail: &str) -> String {
    if detail.is_empty() { head } else { format!("{head}: {detail}") }
}

impl Fault {
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = with_detail(format!("Invalid value: {}", shown(value)), detail);
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self { reason: "FieldValueTypeInvalid", ..Self::invalid(field, value, detail) }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = with_detail("Required value".to_owned(), detail);
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", shown(value)),
            field: field.into(),
        }
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        let message = with_detail("Forbidden".to_owned(), detail);
        Self { reason: "FieldValueForbidden", message, field: field.into() }
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let quoted: Vec<String> = allowed.iter().map(|one| go_quoted(one)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        let message = with_detail(format!("Unsupported value: {}", shown(value)), &detail);
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }

    pub fn too_long(field: impl Into<String>, max: i64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {unit}");
        Self { reason: "FieldValueTooLong", message, field: field.into() }
    }

    pub fn too_many(field: impl Into<String>, has: usize, max: i64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {has}: must have at most {max} {unit}");
        Self { reason: "FieldValueTooMany", message, field: field.into() }
    }

    pub fn plain(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, message, field: field.into() }
    }
}

/// 422 with its causes. `kind` is a kind, or a plural where the server says so.
pub(super) fn invalid(group: &str, kind: &str, name: &str, faults: &[Fault]) -> Box<Failure> {
    let of = Named { group, resource: kind };
    let causes: Vec<Value> = faults
        .iter()
        .map(|fault| json!({ "reason": fault.reason, "message": fault.message, "field": fault.field }))
        .collect();
    let mut lines: Vec<String> = Vec::new();
    for fault in faults {
        let line = format!("{}: {}", fault.field, fault.message);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let text = match lines.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let mut details = of.details(name);
    details["causes"] = causes.into();
    status(422, "Invalid", &format!("{} {name:?} is invalid: {text}", of.qualified()), Some(details))
}
