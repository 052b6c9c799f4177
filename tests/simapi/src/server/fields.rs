//! Sets of fields, as in `fieldsV1`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde_json::{Map, Value};

/// One step of a path as `fieldsV1` writes it: `f:name`, `k:{"name":"x"}`, `v:"x"`.
pub(super) type Step = Arc<str>;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    nodes: BTreeMap<Step, Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// The path that ends here is in the set.
    pub member: bool,
    /// What goes on from here.
    pub below: Set,
}

impl Set {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn insert(&mut self, path: &[Step]) {
        let Some((last, before)) = path.split_last() else { return };
        let mut at = self;
        for step in before {
            at = &mut at.nodes.entry(Arc::clone(step)).or_default().below;
        }
        at.nodes.entry(Arc::clone(last)).or_default().member = true;
    }

    pub fn get(&self, step: &str) -> Option<&Node> {
        self.nodes.get(step)
    }

    pub fn has(&self, step: &str) -> bool {
        self.nodes.get(step).is_some_and(|node| node.member)
    }

    pub fn has_path(&self, path: &[&str]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.nodes.get(*first).is_some_and(|node| node.below.has_path(rest)),
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = (&Step, &Node)> {
        self.nodes.iter()
    }

    pub fn put(&mut self, step: Step, node: Node) {
        if node.member || !node.below.is_empty() {
            self.nodes.insert(step, node);
        }
    }

    /// Takes in all of `other`.
    pub fn join(&mut self, other: &Self) {
        for (step, node) in &other.nodes {
            match self.nodes.entry(Arc::clone(step)) {
                Entry::Vacant(entry) => {
                    entry.insert(node.clone());
                }
                Entry::Occupied(mut entry) => {
                    let mine = entry.get_mut();
                    mine.member |= node.member;
                    mine.below.join(&node.below);
                }
            }
        }
    }

    /// Removes the very paths of `other`.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_empty() || self.is_empty() {
            return;
        }
        self.nodes.retain(|step, node| {
            let Some(theirs) = other.nodes.get(step) else { return true };
            node.member &= !theirs.member;
            node.below.subtract(&theirs.below);
            node.member || !node.below.is_empty()
        });
    }

    /// Removes the paths of `other` and all below them.
    pub fn subtract_trees(&mut self, other: &Self) {
        self.nodes.retain(|step, node| {
            let Some(theirs) = other.nodes.get(step) else { return true };
            if theirs.member {
                return false;
            }
            node.below.subtract_trees(&theirs.below);
            node.member || !node.below.is_empty()
        });
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (step, node) in &self.nodes {
            if let Some(theirs) = other.nodes.get(step) {
                let both = Node { member: node.member && theirs.member, below: node.below.intersection(&theirs.below) };
                out.put(Arc::clone(step), both);
            }
        }
        out
    }

    pub fn from_json(json: &Value) -> Self {
        let mut out = Self::default();
        for (step, below) in json.as_object().into_iter().flatten() {
            if step == "." {
                continue;
            }
            let entries = below.as_object();
            let member = entries.is_none_or(|it| it.is_empty() || it.contains_key("."));
            out.nodes.insert(step.as_str().into(), Node { member, below: Self::from_json(below) });
        }
        out
    }

    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (step, node) in &self.nodes {
            let mut below = node.below.to_json();
            if node.member && !node.below.is_empty() {
                below["."] = Value::Object(Map::new());
            }
            out.insert(step.to_string(), below);
        }
        Value::Object(out)
    }

    /// All paths, each as the server writes it in a message.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.walk("", &mut out);
        out
    }

    fn walk(&self, prefix: &str, out: &mut Vec<String>) {
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_by_key(|(step, _)| (rank(step), step.to_string()));
        for (step, node) in &nodes {
            if node.member {
                out.push(format!("{prefix}{}", shown(step)));
            }
        }
        for (step, node) in nodes {
            node.below.walk(&format!("{prefix}{}", shown(step)), out);
        }
    }
}

fn rank(step: &str) -> u8 {
    match step.as_bytes().first() {
        Some(b'f') => 0,
        Some(b'k') => 1,
        _ => 2,
    }
}

fn shown(step: &str) -> String {
    let (kind, rest) = step.split_at(2.min(step.len()));
    match kind {
        "f:" => format!(".{rest}"),
        "k:" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[={rest}]"),
    }
}

/// The step into a field.
pub(super) fn field(name: &str) -> Step {
    format!("f:{name}").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(json: &Value) -> Set {
        Set::from_json(json)
    }

    #[test]
    fn a_set_comes_back_as_it_went() {
        let json =
            json!({ "f:spec": { "f:a": {}, "f:b": { ".": {}, "k:{\"name\":\"x\"}": { ".": {}, "f:name": {} } } } });
        assert_eq!(set(&json).to_json(), json);
    }

    #[test]
    fn only_the_very_paths_are_subtracted() {
        let mut one = set(&json!({ "f:m": { ".": {}, "f:a": {}, "f:b": {} } }));
        one.subtract(&set(&json!({ "f:m": { "f:a": {} } })));
        assert_eq!(one.to_json(), json!({ "f:m": { ".": {}, "f:b": {} } }));
        one.subtract(&set(&json!({ "f:m": {} })));
        assert_eq!(one.to_json(), json!({ "f:m": { "f:b": {} } }));
        one.subtract_trees(&set(&json!({ "f:m": {} })));
        assert!(one.is_empty());
    }

    #[test]
    fn paths_are_shown_as_in_conflicts() {
        let one = set(&json!({ "f:spec": { "f:c": { "k:{\"name\":\"x\"}": { "f:image": {} } }, "f:r": {} } }));
        assert_eq!(one.paths(), [".spec.r", ".spec.c[name=\"x\"].image"]);
    }
}
