//! What is stored, and the log of what happened to it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::managed::Managed;
use super::{Change, Verb};

/// An object with its managed fields as they are worked with.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub value: Arc<Value>,
    pub managed: Managed,
    pub version: u64,
}

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub version: u64,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub old: Option<Arc<Value>>,
    /// None: it was deleted.
    pub new: Option<Arc<Value>>,
    /// The event for who watches everything, made once.
    pub event: OnceLock<Arc<Value>>,
}

/// The objects of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    objects: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Stored>>,
    /// In the order of versions.
    pub log: Vec<Record>,
    /// Nothing before this version is known.
    pub compacted: u64,
}

impl Shelf {
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Stored> {
        self.objects.get(namespace)?.get(name)
    }

    /// In order, from after `start`.
    pub fn list<'a>(
        &'a self,
        namespace: Option<&'a str>,
        start: Option<(&'a str, &'a str)>,
    ) -> impl Iterator<Item = &'a Stored> + 'a {
        let low = match (namespace, start) {
            (Some(namespace), _) | (None, Some((namespace, _))) => Bound::Included(namespace),
            (None, None) => Bound::Unbounded,
        };
        let high = namespace.map_or(Bound::Unbounded, Bound::Included);
        self.objects.range::<str, _>((low, high)).flat_map(move |(space, objects)| {
            let low = match start {
                Some((namespace, name)) if namespace == &**space => Bound::Excluded(name),
                _ => Bound::Unbounded,
            };
            objects.range::<str, _>((low, Bound::Unbounded)).map(|(_, stored)| stored)
        })
    }

    /// As of `version`, if that is known.
    pub fn list_at(&self, namespace: Option<&str>, version: u64) -> Option<Vec<Arc<Value>>> {
        if version < self.compacted {
            return None;
        }
        let mut all: BTreeMap<(&str, &str), &Arc<Value>> = BTreeMap::new();
        for (space, objects) in &self.objects {
            all.extend(objects.iter().map(|(name, stored)| ((&**space, &**name), &stored.value)));
        }
        for record in self.log.iter().rev().take_while(|record| record.version > version) {
            match &record.old {
                Some(old) => all.insert((&record.namespace, &record.name), old),
                None => all.remove(&(&*record.namespace, &*record.name)),
            };
        }
        let wanted = all.into_iter().filter(|((space, _), _)| namespace.is_none_or(|it| it == *space));
        Some(wanted.map(|(_, value)| Arc::clone(value)).collect())
    }

    fn put(&mut self, namespace: &Arc<str>, name: &Arc<str>, stored: Stored) -> Option<Stored> {
        self.objects.entry(Arc::clone(namespace)).or_default().insert(Arc::clone(name), stored)
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Stored> {
        let objects = self.objects.get_mut(namespace)?;
        let gone = objects.remove(name);
        if objects.is_empty() {
            self.objects.remove(namespace);
        }
        gone
    }
}

/// Who changed what, for [`Change`].
#[derive(Clone, Copy, Debug)]
pub(super) struct By<'a> {
    pub who: &'a str,
    pub subresource: &'a str,
}

impl super::Server {
    /// Stores `value`, whose resourceVersion is filled in.
    pub(super) fn commit(&mut self, kind: usize, mut value: Value, managed: Managed, by: By<'_>) -> Arc<Value> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let text = |name: &str| value["metadata"][name].as_str().unwrap_or_default().into();
        let (namespace, name): (Arc<str>, Arc<str>) = (text("namespace"), text("name"));
        let value = Arc::new(value);
        let stored = Stored { value: Arc::clone(&value), managed, version: self.version };
        let old = self.shelves[kind].put(&namespace, &name, stored).map(|it| it.value);
        let verb = if old.is_some() { Verb::Update } else { Verb::Create };
        self.record(kind, (namespace, name), verb, old, Some(Arc::clone(&value)), by);
        value
    }

    /// Removes an object. Gives it as it was last, with the version of its end.
    pub(super) fn erase(&mut self, kind: usize, namespace: &str, name: &str, by: By<'_>) -> Option<Arc<Value>> {
        let old = self.shelves[kind].remove(namespace, name)?.value;
        self.version += 1;
        let mut last = Value::clone(&old);
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let last = Arc::new(last);
        let place = (namespace.into(), name.into());
        self.record(kind, place, Verb::Delete, Some(old), None, by);
        if let Some(change) = self.changes.last_mut() {
            change.new = Arc::clone(&last);
        }
        Some(last)
    }

    fn record(
        &mut self,
        kind: usize,
        (namespace, name): (Arc<str>, Arc<str>),
        verb: Verb,
        old: Option<Arc<Value>>,
        new: Option<Arc<Value>>,
        by: By<'_>,
    ) {
        self.changes.push(Change {
            version: self.version,
            resource: self.kinds[kind].id(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            verb,
            old: old.clone(),
            new: new.clone().or_else(|| old.clone()).unwrap_or_default(),
            subresource: by.subresource.to_owned(),
            by: by.who.to_owned(),
        });
        let record = Record { version: self.version, namespace, name, old, new, event: OnceLock::new() };
        self.shelves[kind].log.push(record);
    }
}
