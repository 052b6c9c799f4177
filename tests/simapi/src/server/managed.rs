//! Who owns which fields.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::errors::{Failure, apply_conflict};
use super::fields::{Set, field};
use super::schema::Schema;
use super::typed::{compare, fields, merge, with_named, without};

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub manager: String,
    pub applied: bool,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    pub set: Arc<Set>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managed(pub Vec<Entry>);

/// Who writes, and what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub now: &'a str,
}

impl Entry {
    fn is(&self, writer: Writer<'_>, applied: bool) -> bool {
        self.applied == applied
            && self.manager == writer.manager
            && self.subresource == writer.subresource
            && (applied || self.api_version == writer.api_version)
    }

    fn from_json(json: &Value) -> Option<Self> {
        let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let applied = match text("operation").as_str() {
            "Apply" => true,
            "Update" => false,
            _ => return None,
        };
        if text("fieldsType") != "FieldsV1" || text("apiVersion").is_empty() {
            return None;
        }
        Some(Self {
            manager: text("manager"),
            applied,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: json.get("time").and_then(Value::as_str).map(ToOwned::to_owned),
            set: Arc::new(json.get("fieldsV1").map(Set::from_json).unwrap_or_default()),
        })
    }

    fn to_json(&self) -> Value {
        let mut out = json!({
            "manager": self.manager,
            "operation": if self.applied { "Apply" } else { "Update" },
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.set.to_json(),
        });
        if let Some(time) = &self.time {
            out["time"] = time.as_str().into();
        }
        if !self.subresource.is_empty() {
            out["subresource"] = self.subresource.as_str().into();
        }
        out
    }

    /// As conflicts name it.
    fn shown(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applied {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }
}

impl Managed {
    /// None if one cannot be read.
    pub fn from_json(json: &Value) -> Option<Self> {
        json.as_array()?.iter().map(Entry::from_json).collect::<Option<Vec<_>>>().map(Self)
    }

    /// In the order that the server writes them in.
    pub fn to_json(&mut self) -> Value {
        self.0.sort_by(|a, b| {
            let key = |it: &Entry| (!it.applied, it.time.clone(), it.manager.clone(), it.api_version.clone());
            key(a).cmp(&key(b)).then_with(|| a.subresource.cmp(&b.subresource))
        });
        self.0.iter().map(Entry::to_json).collect()
    }

    /// The same but for times.
    pub fn same_fields(&self, other: &Self) -> bool {
        let same = |a: &Entry, b: &Entry| {
            (Arc::ptr_eq(&a.set, &b.set) || a.set == b.set)
                && a.manager == b.manager
                && a.applied == b.applied
                && a.api_version == b.api_version
                && a.subresource == b.subresource
        };
        self.0.len() == other.0.len() && self.0.iter().all(|a| other.0.iter().any(|b| same(a, b)))
    }

    /// As it is read back: of entries that are the same manager's the last one counts.
    pub fn decoded(mut self) -> Self {
        let same = |a: &Entry, b: &Entry| {
            a.manager == b.manager
                && a.applied == b.applied
                && a.subresource == b.subresource
                && (a.applied || a.api_version == b.api_version)
        };
        let twice = |at: usize, all: &[Entry]| all[at + 1..].iter().any(|it| same(it, &all[at]));
        for at in (0..self.0.len()).rev() {
            if twice(at, &self.0) {
                self.0.remove(at);
            }
        }
        self
    }

    fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.set.is_empty());
    }

    /// Takes the changed fields from everybody else.
    fn take(&mut self, sets: &[&Set], but: Option<usize>) {
        for (at, entry) in self.0.iter_mut().enumerate() {
            if Some(at) == but {
                continue;
            }
            for set in sets {
                if !set.is_empty() && set.nodes().any(|(step, _)| entry.set.get(step).is_some()) {
                    Arc::make_mut(&mut entry.set).subtract(set);
                }
            }
        }
        self.drop_empty();
    }

    /// After a write that is no apply. `old`: none when it is created, from an object that is `empty`.
    pub fn update(
        &mut self,
        old: Option<&Value>,
        empty: &Value,
        new: &Value,
        (schema, ignored): (&Schema, &Set),
        writer: Writer<'_>,
    ) {
        if self.0.is_empty() && old.is_some() {
            return;
        }
        *self = std::mem::take(self).decoded();
        let change = compare(old.unwrap_or(empty), new, schema, ignored);
        let mut mine = change.added.clone();
        mine.join(&change.modified);
        self.take(&[&change.added, &change.modified, &change.removed], None);
        strip(&mut mine);
        if mine.is_empty() {
            return;
        }
        let time = Some(writer.now.to_owned());
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.is(writer, false)) {
            Arc::make_mut(&mut entry.set).join(&mine);
            entry.time = time;
        } else {
            self.0.push(Entry {
                manager: writer.manager.to_owned(),
                applied: false,
                api_version: writer.api_version.to_owned(),
                subresource: writer.subresource.to_owned(),
                time,
                set: Arc::new(mine),
            });
        }
        self.cap();
    }

    /// At most ten that update: the oldest are put together.
    fn cap(&mut self) {
        const MOST: usize = 10;
        let updaters = |it: &Self| it.0.iter().filter(|entry| !entry.applied).count();
        if updaters(self) <= MOST {
            return;
        }
        let mut order: Vec<usize> = (0..self.0.len()).filter(|at| !self.0[*at].applied).collect();
        order.sort_by_key(|at| (self.0[*at].time.clone(), self.0[*at].manager.clone()));
        let [first, second, ..] = order.as_slice() else { return };
        let (first, second) = (self.0[*first].clone(), self.0[*second].clone());
        let mut set = Set::clone(&first.set);
        set.join(&second.set);
        self.0.retain(|entry| *entry != first && *entry != second);
        self.0.push(Entry {
            manager: "ancient-changes".into(),
            subresource: String::new(),
            set: Arc::new(set),
            ..second
        });
    }

    /// Applies `config` to `live`. Gives the new object; none if it is the same.
    pub fn apply(
        &mut self,
        live: &Value,
        config: &Value,
        schema: &Schema,
        ignored: &Set,
        writer: Writer<'_>,
        force: bool,
    ) -> Result<Option<Value>, Box<Failure>> {
        *self = std::mem::take(self).decoded();
        let mut new = merge(Some(live), Some(config), schema).unwrap_or_default();
        let at = self.0.iter().position(|entry| entry.is(writer, true));
        let last = at.map(|at| Arc::clone(&self.0[at].set)).filter(|set| !set.is_empty());
        let mut mine = fields(config, schema);
        mine.subtract_trees(ignored);
        let entry = Entry {
            manager: writer.manager.to_owned(),
            applied: true,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time: at.and_then(|at| self.0[at].time.clone()),
            set: Arc::new(mine),
        };
        let at = if let Some(at) = at {
            self.0[at] = entry;
            at
        } else {
            self.0.push(entry);
            self.0.len() - 1
        };
        if let Some(last) = last {
            new = self.prune(new, &last, schema);
        }
        let change = compare(live, &new, schema, ignored);
        let mut touched = change.added.clone();
        touched.join(&change.modified);
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != at);
        let conflicts: Vec<(String, Vec<String>)> = others
            .map(|(_, entry)| (entry.shown(), entry.set.intersection(&touched).paths()))
            .filter(|(_, paths)| !paths.is_empty())
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(conflict(conflicts));
        }
        let set = Arc::make_mut(&mut self.0[at].set);
        strip(set);
        let same = new == *live;
        if !same {
            self.0[at].time = Some(writer.now.to_owned());
        }
        self.take(&[&touched, &change.removed], Some(at));
        Ok((!same).then_some(new))
    }

    /// Takes out what was applied last time, is not any more, and is nobody else's.
    fn prune(&self, merged: Value, last: &Set, schema: &Schema) -> Value {
        let whole = |value: &Value| with_named(&fields(value, schema), schema);
        let last = with_named(last, schema);
        let empty = || Value::Object(Map::new());
        let pruned = without(&merged, &last, schema).unwrap_or_else(empty);
        let mut owned = Set::default();
        for entry in &self.0 {
            owned.join(&entry.set);
        }
        let all = whole(&merged);
        let mut gone = all.clone();
        let mut kept = whole(&pruned);
        kept.join(&with_named(&owned, schema));
        gone.subtract(&kept);
        let pruned = without(&merged, &gone, schema).unwrap_or_else(empty);
        let mut dangling = all;
        dangling.subtract(&whole(&pruned));
        without(&merged, &dangling.intersection(&last), schema).unwrap_or_else(empty)
    }
}

fn conflict(mut conflicts: Vec<(String, Vec<String>)>) -> Box<Failure> {
    conflicts.sort();
    let causes = conflicts.iter().flat_map(|(who, paths)| {
        let cause = move |path: &String| {
            json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {who}"), "field": path })
        };
        paths.iter().map(cause)
    });
    let causes: Vec<Value> = causes.collect();
    let message = match conflicts.as_slice() {
        [(who, paths)] if paths.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {who}: {}", paths[0])
        }
        many => {
            let mut lines = Vec::new();
            for (who, paths) in many {
                lines.push(format!("conflicts with {who}:"));
                lines.extend(paths.iter().map(|path| format!("- {path}")));
            }
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    apply_conflict(causes, &message)
}

/// Removes what nobody owns.
fn strip(set: &mut Set) {
    const META: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut nobody = Set::default();
    for top in ["apiVersion", "kind", "metadata"] {
        nobody.insert(&[field(top)]);
    }
    for name in META {
        nobody.insert(&[field("metadata"), field(name)]);
    }
    set.subtract(&nobody);
}
