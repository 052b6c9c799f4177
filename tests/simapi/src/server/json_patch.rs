//! JSON Patch as the server's own library has it, which differs from RFC 6902: a member that is not there can be
//! replaced, a test for null passes where nothing is, and an index may count from the end.

use serde_json::Value;

/// Applies the operations; none if one of them fails.
pub(super) fn apply(mut object: Value, operations: &[Value]) -> Option<Value> {
    for operation in operations {
        let path = operation.get("path")?.as_str()?;
        let value = operation.get("value");
        match operation.get("op")?.as_str()? {
            "add" => add(&mut object, path, value?.clone())?,
            "remove" => {
                remove(&mut object, path)?;
            }
            "replace" => replace(&mut object, path, value?.clone())?,
            "move" => {
                let moved = remove(&mut object, operation.get("from")?.as_str()?)?;
                add(&mut object, path, moved)?;
            }
            "copy" => {
                let copied = get(&object, operation.get("from")?.as_str()?)?.cloned()?;
                add(&mut object, path, copied)?;
            }
            "test" => {
                let has = get(&object, path)?;
                let wanted = value.filter(|it| !it.is_null());
                if has.filter(|it| !it.is_null()) != wanted {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(object)
}

fn split(path: &str) -> Option<(Vec<String>, String)> {
    let mut steps = path.strip_prefix('/')?.split('/').map(|it| it.replace("~1", "/").replace("~0", "~"));
    let last = steps.next_back()?;
    Some((steps.collect(), last))
}

/// The place of an item: from the end if it is negative.
fn index(step: &str, length: usize) -> Option<usize> {
    let at: i64 = step.parse().ok()?;
    let at = if at < 0 { at + length as i64 } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

fn container<'a>(object: &'a mut Value, steps: &[String]) -> Option<&'a mut Value> {
    let mut at = object;
    for step in steps {
        at = match at {
            Value::Object(map) => map.get_mut(step)?,
            Value::Array(list) => {
                let place = index(step, list.len())?;
                list.get_mut(place)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then_some(at)
}

/// None: there is no such container; none inside: it is not in it.
fn get<'a>(object: &'a Value, path: &str) -> Option<Option<&'a Value>> {
    if path.is_empty() {
        return Some(Some(object));
    }
    let (steps, last) = split(path)?;
    let mut at = object;
    for step in &steps {
        at = match at {
            Value::Object(map) => map.get(step)?,
            Value::Array(list) => list.get(index(step, list.len())?)?,
            _ => return None,
        };
    }
    match at {
        Value::Object(map) => Some(map.get(&last)),
        Value::Array(list) => Some(Some(list.get(index(&last, list.len())?)?)),
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (steps, last) = split(path)?;
    match container(object, &steps)? {
        Value::Object(map) => drop(map.insert(last, value)),
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let place = index(&last, list.len() + 1)?;
            list.insert(place, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (steps, last) = split(path)?;
    match container(object, &steps)? {
        Value::Object(map) => map.remove(&last),
        Value::Array(list) => {
            let place = index(&last, list.len())?;
            Some(list.remove(place))
        }
        _ => None,
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (steps, last) = split(path)?;
    match container(object, &steps)? {
        Value::Object(map) => drop(map.insert(last, value)),
        Value::Array(list) => {
            let place = index(&last, list.len())?;
            *list.get_mut(place)? = value;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::apply;

    fn patched(operations: &Value) -> Option<Value> {
        apply(json!({ "a": { "b": 1 }, "l": [1, 2] }), operations.as_array().unwrap())
    }

    #[test]
    fn operations_do_what_the_server_does() {
        let one = |op: &str, path: &str, value: Value| patched(&json!([{ "op": op, "path": path, "value": value }]));
        assert_eq!(one("replace", "/a/c", json!(2)).unwrap()["a"]["c"], 2);
        assert_eq!(one("replace", "/x/c", json!(2)), None);
        assert_eq!(one("add", "/l/-", json!(3)).unwrap()["l"], json!([1, 2, 3]));
        assert_eq!(one("add", "/l/0", json!(3)).unwrap()["l"], json!([3, 1, 2]));
        assert_eq!(one("add", "/l/3", json!(3)), None);
        assert_eq!(one("remove", "/a/x", json!(null)), None);
        assert_eq!(one("remove", "/l/-1", json!(null)).unwrap()["l"], json!([1]));
        assert!(one("test", "/a/x", json!(null)).is_some());
        assert!(one("test", "/a/x", json!(1)).is_none());
        assert!(one("test", "/a/b", json!(1)).is_some());
        assert!(one("test", "/x/b", json!(null)).is_none());
        assert!(one("odd", "/a", json!(1)).is_none());
    }
}
