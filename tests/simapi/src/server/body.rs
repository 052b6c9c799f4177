//! Bodies, and the objects in them.

use serde_json::{Map, Value};

use super::errors::{Failure, Outcome, bad_request, unreadable_type};
use super::kinds::Kind;
use super::{Request, conform, defaults, twice};

/// A body as YAML, which JSON is too.
pub(super) fn yaml(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok().or_else(|| serde_yaml::from_slice(body).ok())
}

/// A body as JSON.
pub(super) fn parse(body: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(body).map_err(|_| bad_request(&go_json_error(body)))
}

/// The words of Go's decoder for the first byte that cannot be.
pub(super) fn go_json_error(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start();
    let Some(first) = text.chars().next() else { return "unexpected end of JSON input".to_owned() };
    if first == '{' {
        let next = text[1..].trim_start().chars().next();
        if let Some(next) = next.filter(|it| !matches!(it, '"' | '}')) {
            return format!("invalid character {next:?} looking for beginning of object key string");
        }
    }
    if first == '[' && !text[1..].trim_start().is_empty() {
        return go_json_error(text[1..].as_bytes());
    }
    for (literal, at) in [("null", 'n'), ("true", 't'), ("false", 'f')] {
        if first == at {
            let mut pairs = text.chars().zip(literal.chars());
            if let Some((has, wants)) = pairs.find(|(has, wants)| has != wants) {
                return format!("invalid character {has:?} in literal {literal} (expecting {wants:?})");
            }
        }
    }
    match first {
        '{' | '[' | '"' => "unexpected end of JSON input".to_owned(),
        _ => format!("invalid character {first:?} looking for beginning of value"),
    }
}

/// Reads an object into the form that the server has of it. `strict`: the body, which may have nothing that is unknown.
pub(super) fn read(kind: &Kind, object: &mut Value, strict: Option<&[u8]>) -> Outcome<()> {
    let twice = strict.map(twice::keys).unwrap_or_default();
    let mut unknown: Vec<String> = twice.iter().map(|it| format!("duplicate field {it:?}")).collect();
    let cannot = |why: &str| {
        bad_request(&format!("{} in version {:?} cannot be handled as a {}: {why}", kind.kind, kind.version, kind.kind))
    };
    if kind.custom && object["kind"].as_str().is_some_and(|said| said != &*kind.kind) {
        return Ok(());
    }
    if !object.is_object() {
        return Err(cannot(&format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", {
            if object.is_array() { "array" } else { "string" }
        })));
    }
    if kind.custom {
        conform::custom(object, &kind.schema, "", &mut unknown).map_err(|error| cannot(&error))?;
        if object.get("metadata").is_none_or(Value::is_null) {
            object["metadata"] = Value::Object(Map::new());
        }
    } else {
        conform::builtin(object, &kind.schema, "", &mut unknown).map_err(|error| cannot(&error))?;
        defaults::apply(kind, object);
    }
    if strict.is_some() && !unknown.is_empty() {
        return Err(cannot(&format!("strict decoding error: {}", unknown.join(", "))));
    }
    Ok(())
}

/// Checks what kind an object says to be; a built-in one may leave it out.
pub(super) fn check_kind(kind: &Kind, object: &mut Value, body: &[u8]) -> Outcome<()> {
    let Some(map) = object.as_object_mut() else { return Ok(()) };
    let said = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (has_kind, has_version) = (said("kind"), said("apiVersion"));
    let wanted = kind.api_version();
    if kind.custom && has_kind.is_empty() {
        let shown = String::from_utf8_lossy(body);
        return Err(bad_request(&format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{shown}' ({})",
            kind.kind,
            summary(body)
        )));
    }
    if !has_version.is_empty() && has_version != wanted {
        return Err(bad_request(&format!(
            "the API version in the data ({has_version}) does not match the expected API version ({wanted})"
        )));
    }
    if !has_kind.is_empty() && has_kind != *kind.kind {
        // the validation of custom objects tells it
        if kind.custom {
            return Ok(());
        }
        return Err(bad_request(&format!(
            "{has_kind} in version {:?} cannot be handled as a {}: converting (v1.{has_kind}) to ({}.{}): unknown conversion",
            kind.version,
            kind.kind,
            if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or_default() },
            kind.kind
        )));
    }
    map.insert("kind".into(), (*kind.kind).into());
    map.insert("apiVersion".into(), wanted.into());
    Ok(())
}

pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Puts an object into the namespace of the request.
pub(super) fn place(object: &mut Value, namespace: &str) -> Outcome<()> {
    let has = text(object, "namespace").to_owned();
    if has == namespace {
        return Ok(());
    }
    if has.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
        return Ok(());
    }
    if namespace.is_empty() {
        object["metadata"].as_object_mut().map(|it| it.remove("namespace"));
        return Ok(());
    }
    Err(bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}

pub(super) fn check_name(object: &Value, name: &str) -> Outcome<()> {
    match text(object, "name") {
        "" => Err(bad_request(&format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        has if has != name => {
            Err(bad_request(&format!("the name of the object ({has}) does not match the name on the URL ({name})")))
        }
        _ => Ok(()),
    }
}

/// The object in the body of a POST or PUT.
pub(super) fn body_of(kind: &Kind, request: &Request) -> Outcome<Value> {
    let content = request.content_type.split(';').next().unwrap_or_default().trim();
    if !matches!(content, "" | "application/json" | "application/yaml" | "*/*") {
        return Err(unreadable_type());
    }
    let object = if content == "application/yaml" { yaml(&request.body) } else { parse(&request.body).ok() };
    let object = object.ok_or_else(|| unreadable(kind, &request.body))?;
    if object.is_array() {
        let why = "json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(bad_request(&format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why} ({})",
            kind.kind,
            summary(&request.body)
        )));
    }
    Ok(object)
}

fn unreadable(kind: &Kind, body: &[u8]) -> Box<Failure> {
    bad_request(&format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {} ({})",
        kind.kind,
        go_json_error(body),
        summary(body)
    ))
}

/// The beginning of a body, as errors show it.
fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let head = &body[..body.len().min(MOST)];
    let shown = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > MOST { format!("{shown} ...") } else { shown }
}

/// Whether an Ingress says that it has no rules, rather than nothing about them.
pub(super) fn has_no_rules(object: &Value) -> bool {
    object.pointer("/spec/rules").and_then(Value::as_array).is_some_and(Vec::is_empty)
}

/// The server shows an empty list where one was given.
pub(super) fn reworded(mut failure: Box<Failure>, emptied: bool) -> Box<Failure> {
    const SHOWN: &str = "Invalid value: null: either `defaultBackend`";
    let text = failure.body.to_string();
    if emptied
        && text.contains(SHOWN)
        && let Ok(body) = serde_json::from_str(&text.replace(SHOWN, &SHOWN.replace("null", "[]")))
    {
        failure.body = body;
    }
    failure
}
