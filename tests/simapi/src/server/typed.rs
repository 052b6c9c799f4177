//! Objects by their schema: what differs, what is set, merged, or taken out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::{Node, Set, Step, field};
use super::schema::{Keys, Schema, Shape};

/// What became of the fields from one object to another.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

/// Compares, without what is in `ignored`.
pub(super) fn compare(old: &Value, new: &Value, schema: &Schema, ignored: &Set) -> Comparison {
    let mut walk = Compare { path: Vec::new(), out: Comparison::default() };
    walk.go(Some(old), Some(new), schema);
    for set in [&mut walk.out.added, &mut walk.out.modified, &mut walk.out.removed] {
        set.subtract_trees(ignored);
    }
    walk.out
}

struct Compare {
    path: Vec<Step>,
    out: Comparison,
}

impl Compare {
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(old), Some(new)) if old != new => self.out.modified.insert(&self.path),
            _ => {}
        }
    }

    fn go(&mut self, old: Option<&Value>, new: Option<&Value>, schema: &Schema) {
        if old == new {
            return;
        }
        if schema.atomic {
            return self.leaf(old, new);
        }
        let one = new.filter(|it| !it.is_null()).or(old);
        match (&schema.shape, one) {
            (Shape::Any | Shape::Struct { .. } | Shape::Map(_), Some(Value::Object(_))) => {
                let (lhs, rhs) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                if lhs.is_none_or(Map::is_empty) && rhs.is_none_or(Map::is_empty) {
                    return self.leaf(old, new);
                }
                self.maps(lhs, rhs, schema);
            }
            (Shape::List { keys, .. }, Some(Value::Array(_))) => {
                let (lhs, rhs) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
                if lhs.is_none_or(Vec::is_empty) && rhs.is_none_or(Vec::is_empty) {
                    return self.leaf(old, new);
                }
                self.lists(lhs, rhs, keys, schema.item());
            }
            _ => return self.leaf(old, new),
        }
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            _ => {}
        }
    }

    fn maps(&mut self, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, schema: &Schema) {
        for (name, value) in old.into_iter().flatten() {
            self.descend(field(name), Some(value), new.and_then(|it| it.get(name)), of(schema, name));
        }
        for (name, value) in new.into_iter().flatten() {
            if old.is_none_or(|it| !it.contains_key(name)) {
                self.descend(field(name), None, Some(value), of(schema, name));
            }
        }
    }

    fn lists(&mut self, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, keys: &Keys, item: &Schema) {
        let (old, new) = (index(old, keys), index(new, keys));
        for (step, theirs) in &old {
            match (theirs.as_slice(), new.get(step).map_or(&[][..], Vec::as_slice)) {
                ([one], []) => self.descend(Arc::clone(step), Some(one), None, item),
                ([one], [other]) => self.descend(Arc::clone(step), Some(one), Some(other), item),
                ([_, _, ..], []) => self.mark(step, |out| &mut out.removed),
                ([_, _, ..], [other]) => {
                    self.descend(Arc::clone(step), None, Some(other), item);
                    self.mark(step, |out| &mut out.removed);
                }
                ([one], _) => {
                    self.descend(Arc::clone(step), Some(one), None, item);
                    self.mark(step, |out| &mut out.added);
                }
                (many, others) if many != others => self.mark(step, |out| &mut out.modified),
                _ => {}
            }
        }
        for (step, ours) in new.iter().filter(|(step, _)| !old.contains_key(*step)) {
            match ours.as_slice() {
                [one] => self.descend(Arc::clone(step), None, Some(one), item),
                _ => self.mark(step, |out| &mut out.added),
            }
        }
    }

    fn mark(&mut self, step: &Step, set: impl Fn(&mut Comparison) -> &mut Set) {
        self.path.push(Arc::clone(step));
        set(&mut self.out).insert(&self.path);
        self.path.pop();
    }

    fn descend(&mut self, step: Step, old: Option<&Value>, new: Option<&Value>, schema: &Schema) {
        if old == new {
            return;
        }
        self.path.push(step);
        self.go(old, new, schema);
        self.path.pop();
    }
}

fn of<'a>(schema: &'a Schema, name: &str) -> &'a Schema {
    schema.field(name).unwrap_or_else(|| Schema::any())
}

fn index<'a>(list: Option<&'a Vec<Value>>, keys: &Keys) -> BTreeMap<Step, Vec<&'a Value>> {
    let mut out: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in list.into_iter().flatten() {
        out.entry(step(item, keys)).or_default().push(item);
    }
    out
}

/// The step to an item of a list.
pub(super) fn step(item: &Value, keys: &Keys) -> Step {
    match keys {
        Keys::Map(names) => {
            let mut sorted: Vec<&str> = names.iter().map(|name| &**name).collect();
            sorted.sort_unstable();
            let mut out = String::from("k:{");
            for name in sorted {
                // the one key that has a default
                let value = match item.get(name) {
                    None if name == "protocol" => "\"TCP\"".to_owned(),
                    None => continue,
                    Some(value) => value.to_string(),
                };
                if out.len() > 3 {
                    out.push(',');
                }
                out.push_str(&format!("\"{name}\":{value}"));
            }
            out.push('}');
            out.into()
        }
        Keys::Set | Keys::Atomic => format!("v:{item}").into(),
    }
}

/// The fields that `value` sets.
pub(super) fn fields(value: &Value, schema: &Schema) -> Set {
    let mut out = Set::default();
    match (&schema.shape, value) {
        _ if schema.atomic => {}
        (Shape::Any | Shape::Struct { .. } | Shape::Map(_), Value::Object(map)) => {
            for (name, one) in map {
                let schema_of = of(schema, name);
                let below = fields(one, schema_of);
                let empty = one.is_null() || one.as_object().is_some_and(Map::is_empty);
                let member = empty || !schema.names(name) || is_leaf(one, schema_of);
                out.put(field(name), Node { member, below });
            }
        }
        (Shape::List { keys, .. }, Value::Array(list)) => {
            for item in list {
                out.put(step(item, keys), Node { member: true, below: fields(item, schema.item()) });
            }
        }
        _ => {}
    }
    out
}

/// Whether it is owned as a whole.
fn is_leaf(value: &Value, schema: &Schema) -> bool {
    let whole_list = value.is_array() && !matches!(schema.shape, Shape::List { .. });
    schema.atomic || !(value.is_object() || value.is_array()) || whole_list
}

/// `value` with `more` merged into it.
pub(super) fn merge(value: Option<&Value>, more: Option<&Value>, schema: &Schema) -> Option<Value> {
    let (Some(old), Some(new)) = (value, more) else { return more.or(value).cloned() };
    if schema.atomic {
        return Some(new.clone());
    }
    match (&schema.shape, old, new) {
        (Shape::Any | Shape::Struct { .. } | Shape::Map(_), Value::Object(old), Value::Object(new)) => {
            if old.is_empty() && new.is_empty() {
                return Some(Value::Object(Map::new()));
            }
            let mut out = old.clone();
            for (name, one) in new {
                if let Some(merged) = merge(old.get(name), Some(one), of(schema, name)) {
                    out.insert(name.clone(), merged);
                }
            }
            Some(Value::Object(out))
        }
        (Shape::List { keys, .. }, Value::Array(old), Value::Array(new)) => {
            let list = merge_lists(old, new, keys, schema.item());
            if list.is_empty() && !(old.is_empty() && new.is_empty()) { None } else { Some(list.into()) }
        }
        _ => Some(new.clone()),
    }
}

/// Items of the old list stay where they are; those of both come in the order of the new one.
fn merge_lists(old: &[Value], new: &[Value], keys: &Keys, item: &Schema) -> Vec<Value> {
    let lhs: Vec<Step> = old.iter().map(|it| step(it, keys)).collect();
    let rhs: Vec<Step> = new.iter().map(|it| step(it, keys)).collect();
    let mut shared = rhs.iter().filter(|it| lhs.contains(it));
    let mut next = shared.next();
    let mut done: Vec<&Step> = Vec::new();
    let mut out = Vec::new();
    let theirs = |key: &Step| lhs.iter().position(|it| it == key).map(|at| &old[at]);
    let (mut l, mut r) = (0, 0);
    while l < lhs.len() || r < rhs.len() {
        if l < lhs.len() && r < rhs.len() {
            let key = &lhs[l];
            if *key == rhs[r] {
                done.push(key);
                out.extend(merge(Some(&old[l]), Some(&new[r]), item));
                (l, r) = (l + 1, r + 1);
                next = shared.next();
                continue;
            }
            if rhs.contains(key) && next.is_some_and(|next| next != key) {
                l += 1;
                continue;
            }
        }
        if l < lhs.len() {
            let key = &lhs[l];
            if !rhs.contains(key) {
                out.push(old[l].clone());
                l += 1;
                continue;
            } else if done.contains(&key) {
                l += 1;
            }
        }
        if r < rhs.len() {
            let key = &rhs[r];
            done.push(key);
            out.extend(merge(theirs(key), Some(&new[r]), item));
            r += 1;
            if next == Some(key) {
                next = shared.next();
            }
        }
    }
    out
}

/// `value` without what is in `set`; none if nothing is left.
pub(super) fn without(value: &Value, set: &Set, schema: &Schema) -> Option<Value> {
    match (&schema.shape, value) {
        (Shape::Any | Shape::Struct { .. } | Shape::Map(_), Value::Object(map)) => {
            if schema.atomic {
                return None;
            }
            let mut out = Map::new();
            for (name, one) in map {
                let node = set.get(&format!("f:{name}"));
                if node.is_some_and(|node| node.member) {
                    continue;
                }
                let left = match node {
                    Some(node) => without(one, &node.below, of(schema, name)).unwrap_or(Value::Null),
                    None => one.clone(),
                };
                out.insert(name.clone(), left);
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        (Shape::List { keys, .. }, Value::Array(list)) => {
            if schema.atomic {
                return None;
            }
            let mut out = Vec::new();
            for item in list {
                let node = set.get(&step(item, keys));
                if node.is_some_and(|node| node.member) {
                    continue;
                }
                out.push(match node {
                    Some(node) => without(item, &node.below, schema.item()).unwrap_or(Value::Null),
                    None => item.clone(),
                });
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        (_, value) => Some(value.clone()),
    }
}

/// `set` with every named field that has something below it.
pub(super) fn with_named(set: &Set, schema: &Schema) -> Set {
    let mut out = Set::default();
    for (step, node) in set.nodes() {
        let name = step.strip_prefix("f:");
        let named = !node.below.is_empty() && name.is_some_and(|name| schema.names(name));
        let schema = match name {
            Some(name) => of(schema, name),
            None => schema.item(),
        };
        let below = with_named(&node.below, schema);
        out.put(Arc::clone(step), Node { member: node.member || named, below });
    }
    out
}
