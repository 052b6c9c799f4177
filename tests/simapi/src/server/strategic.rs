//! Strategic merge patches: lists whose items have a name are merged by it.

use serde_json::{Map, Value};

use super::errors::{Outcome, bad_request};
use super::schema::{Schema, Shape};

type Object = Map<String, Value>;

/// Merges `patch` into `object`.
pub(super) fn merge(object: &mut Object, patch: &Object, schema: &Schema) -> Outcome<()> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            object.clear();
            for (name, value) in patch.iter().filter(|(name, _)| *name != "$patch") {
                object.insert(name.clone(), value.clone());
            }
            return Ok(());
        }
        Some("delete") => {
            object.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(bad_request(&format!("Unknown patch type found: {other}"))),
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        object.retain(|name, _| kept.iter().any(|it| it == name));
    }
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(list), Some(gone)) = (object.get_mut(field).and_then(Value::as_array_mut), value.as_array()) {
                list.retain(|it| !gone.contains(it));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            object.remove(name);
            continue;
        }
        let of = schema.field(name).unwrap_or_else(|| Schema::any());
        match (object.get_mut(name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new, of)?,
            (None, Value::Object(new)) => {
                let mut fresh = Object::new();
                merge(&mut fresh, new, of)?;
                object.insert(name.clone(), fresh.into());
            }
            (old, Value::Array(new)) => {
                let list = old.as_ref().and_then(|it| it.as_array()).cloned().unwrap_or_default();
                let order = patch.get(&format!("$setElementOrder/{name}")).and_then(Value::as_array);
                let merged = lists(list, new, of, order)?;
                object.insert(name.clone(), merged.into());
            }
            _ => drop(object.insert(name.clone(), value.clone())),
        }
    }
    Ok(())
}

fn lists(mut old: Vec<Value>, new: &[Value], schema: &Schema, order: Option<&Vec<Value>>) -> Outcome<Vec<Value>> {
    let Shape::List { item, merge: Some(key), .. } = &schema.shape else { return Ok(plain(new)) };
    let key: &str = key;
    if new.iter().any(|it| it["$patch"] == "replace") {
        return Ok(plain(new));
    }
    let same = |a: &Value, b: &Value| if key.is_empty() { a == b } else { a.get(key) == b.get(key) };
    let before = old.clone();
    for one in new {
        if key.is_empty() {
            if !old.contains(one) {
                old.push(one.clone());
            }
            continue;
        }
        let Some(patch) = one.as_object() else { continue };
        if !patch.contains_key(key) {
            return Err(bad_request(&format!("map: {one} does not contain declared merge key: {key}")));
        }
        if patch.get("$patch").is_some_and(|it| it == "delete") {
            old.retain(|it| !same(it, one));
            continue;
        }
        if let Some(there) = old.iter_mut().find(|it| same(it, one)).and_then(Value::as_object_mut) {
            merge(there, patch, item)?;
        } else {
            let mut made = Object::new();
            merge(&mut made, patch, item)?;
            old.push(Value::Object(made));
        }
    }
    // those of the patch in its order, among what only the server has: that one goes first if it stood before
    let listed = order.map_or(new, Vec::as_slice);
    let place = |it: &Value| listed.iter().position(|one| same(one, it));
    let (mut named, rest): (Vec<Value>, Vec<Value>) = old.into_iter().partition(|it| place(it).is_some());
    named.sort_by_key(|it| place(it));
    let stood = |it: &Value| before.iter().position(|one| same(one, it));
    let mut out = Vec::new();
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    while let (Some(ours), Some(theirs)) = (named.peek(), rest.peek()) {
        let first = matches!((stood(ours), stood(theirs)), (Some(ours), Some(theirs)) if theirs < ours);
        out.extend(if first { rest.next() } else { named.next() });
    }
    out.extend(named);
    out.extend(rest);
    Ok(out)
}

/// A list that replaces another, without directives.
fn plain(new: &[Value]) -> Vec<Value> {
    let directive = |it: &Value| it.as_object().is_some_and(|it| it.len() == 1 && it.contains_key("$patch"));
    new.iter().filter(|it| !directive(it)).map(without_directives).collect()
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(name, it)| !name.starts_with('$') && !it.is_null())
            .map(|(name, it)| (name.clone(), without_directives(it)))
            .collect(),
        other => other.clone(),
    }
}
