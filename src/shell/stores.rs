//! Compact caches of what the API server has: one per kind, by namespace and name.
//!
//! A cache never goes back in time: an older version of an object, or an object that was told to be deleted, is not taken
//! in, whether it comes from a watch or from the answer to one of our own writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::ModelRollout;
use crate::engine::observed::{DeploymentSeen, IngressSeen, Lookup, ServiceSeen};

/// How many uids of deleted objects are remembered, against events that come late.
const REMEMBERED: usize = 256;

/// All caches that are always filled.
#[derive(Debug)]
pub struct Stores {
    /// The rollouts themselves, whole.
    pub rollouts: Store<ModelRollout>,
    /// Deployments.
    pub deployments: Store<DeploymentSeen>,
    /// Services.
    pub services: Store<ServiceSeen>,
    /// Ingresses.
    pub ingresses: Store<IngressSeen>,
    /// Autoscalers: the Deployment that each scales, if it is one.
    pub autoscalers: Store<Option<String>>,
}

impl Stores {
    /// Empty caches of these scopes: namespaces, or one empty text for all of them.
    pub fn new(scopes: &[String]) -> Self {
        Self {
            rollouts: Store::new(scopes),
            deployments: Store::new(scopes),
            services: Store::new(scopes),
            ingresses: Store::new(scopes),
            autoscalers: Store::new(scopes),
        }
    }

    /// Whether each has had its first list.
    pub fn synced(&self) -> bool {
        self.rollouts.synced()
            && self.deployments.synced()
            && self.services.synced()
            && self.ingresses.synced()
            && self.autoscalers.synced()
    }
}

/// One cache.
#[derive(Debug)]
pub struct Store<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    /// Namespace, then name.
    items: BTreeMap<String, BTreeMap<String, Item<T>>>,
    /// Scopes without a first list yet.
    waiting: BTreeSet<String>,
    /// Lists under way, by scope.
    listing: BTreeMap<String, Listing>,
    /// Uids of objects that are gone, oldest first.
    gone: VecDeque<String>,
}

#[derive(Debug)]
struct Item<T> {
    uid: String,
    /// The resourceVersion as a number; none if it is not one.
    version: Option<u64>,
    value: Arc<T>,
}

#[derive(Debug, Default)]
struct Listing {
    seen: BTreeSet<(String, String)>,
}

/// An object that was taken in.
#[derive(Debug, PartialEq, Eq)]
pub struct Put<T> {
    /// What was there before.
    pub old: Option<Arc<T>>,
    /// What is there now.
    pub new: Arc<T>,
    /// Whether the facts are the same as before; only the version is new.
    pub same: bool,
}

/// An object that is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Removed<T> {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// What it was.
    pub old: Arc<T>,
}

impl<T: PartialEq> Store<T> {
    /// An empty cache of these scopes.
    pub fn new(scopes: &[String]) -> Self {
        let inner = Inner {
            items: BTreeMap::new(),
            waiting: scopes.iter().cloned().collect(),
            listing: BTreeMap::new(),
            gone: VecDeque::new(),
        };
        Self { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // a panic while it was held leaves whole items behind: each change is one insert or one remove
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every scope has had its first list.
    pub fn synced(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// What is known of an object.
    pub fn get(&self, namespace: &str, name: &str) -> Lookup<Arc<T>> {
        let inner = self.lock();
        if inner.waiting.contains(namespace) || inner.waiting.contains("") {
            return Lookup::Unreadable("not synced yet".to_owned());
        }
        let item = inner.items.get(namespace).and_then(|items| items.get(name));
        item.map_or(Lookup::Missing, |item| Lookup::Found(Arc::clone(&item.value)))
    }

    /// The uid of an object, if it is known.
    pub fn uid(&self, namespace: &str, name: &str) -> Option<String> {
        Some(self.lock().items.get(namespace)?.get(name)?.uid.clone())
    }

    /// Every object of `namespace`, by name.
    pub fn list(&self, namespace: &str) -> Vec<Arc<T>> {
        let inner = self.lock();
        inner.items.get(namespace).into_iter().flat_map(BTreeMap::values).map(|item| Arc::clone(&item.value)).collect()
    }

    /// What `choose` gives for the objects of `namespace`, by name. It runs under the lock, and so must not come back here.
    pub fn pick<R, C: FromIterator<R>>(&self, namespace: &str, mut choose: impl FnMut(&str, &T) -> Option<R>) -> C {
        let inner = self.lock();
        let items = inner.items.get(namespace).into_iter().flatten();
        items.filter_map(|(name, item)| choose(name, &item.value)).collect()
    }

    /// Every object.
    pub fn all(&self) -> Vec<Arc<T>> {
        let inner = self.lock();
        inner.items.values().flat_map(BTreeMap::values).map(|item| Arc::clone(&item.value)).collect()
    }

    /// Takes in an object from a watch or from the answer to a write. None: nothing was learned from it.
    pub fn put(&self, meta: &ObjectMeta, value: T) -> Option<Put<T>> {
        let (namespace, name) = names(meta);
        let mut inner = self.lock();
        if inner.gone.contains(&uid(meta)) {
            return None;
        }
        // What is taken in while a list is read is there, whether the list has it yet or not: our own writes are such.
        for (scope, listing) in &mut inner.listing {
            if scope.is_empty() || *scope == namespace {
                listing.seen.insert((namespace.clone(), name.clone()));
            }
        }
        let item = Item { uid: uid(meta), version: version(meta), value: Arc::new(value) };
        let items = inner.items.entry(namespace).or_default();
        if let Some(old) = items.get(&name) {
            // an equal version replaces: after a write to a subresource we know the version but not all of the object
            if matches!((old.version, item.version), (Some(old), Some(new)) if new < old) {
                return None;
            }
            if old.version == item.version && old.value == item.value {
                return None;
            }
        }
        let new = Arc::clone(&item.value);
        let old = items.insert(name, item).map(|old| old.value);
        Some(Put { same: old.as_ref() == Some(&new), old, new })
    }

    /// Changes an object in place, to the version that a write to one of its subresources returned.
    pub fn amend(&self, meta: &ObjectMeta, change: impl FnOnce(&T) -> T) {
        let (namespace, name) = names(meta);
        let mut inner = self.lock();
        let item = inner.items.get_mut(&namespace).and_then(|items| items.get_mut(&name));
        let Some(item) = item.filter(|item| item.uid == uid(meta)) else { return };
        if matches!((item.version, version(meta)), (Some(old), Some(new)) if new > old) {
            item.version = version(meta);
            item.value = Arc::new(change(&item.value));
        }
    }

    /// The object is gone. A newer one of the same name stays.
    pub fn remove(&self, meta: &ObjectMeta) -> Option<Removed<T>> {
        let (namespace, name) = names(meta);
        self.lock().remove(&namespace, &name, &uid(meta))
    }

    /// The object of that uid is gone: the answer to our own delete.
    pub fn remove_uid(&self, namespace: &str, name: &str, uid: &str) {
        self.lock().remove(namespace, name, uid);
    }

    /// A list of `scope` begins.
    pub fn list_begins(&self, scope: &str) {
        self.lock().listing.insert(scope.to_owned(), Listing::default());
    }

    /// An object is in the list of `scope`.
    pub fn listed(&self, scope: &str, meta: &ObjectMeta) {
        if let Some(listing) = self.lock().listing.get_mut(scope) {
            listing.seen.insert(names(meta));
        }
    }

    /// The list of `scope` is complete: what it lacks is gone, as far as this list knows: a server that is behind lacks what is
    /// new, so whoever finds the object there later is believed. Gives what was removed.
    pub fn list_ends(&self, scope: &str) -> Vec<Removed<T>> {
        let mut inner = self.lock();
        let listing = inner.listing.remove(scope).unwrap_or_default();
        inner.waiting.remove(scope);
        let mut lacking = Vec::new();
        for (namespace, items) in inner.items.iter().filter(|(name, _)| scope.is_empty() || *name == scope) {
            for (name, item) in items {
                let place = (namespace.clone(), name.clone());
                if !listing.seen.contains(&place) {
                    lacking.push((place, item.uid.clone()));
                }
            }
        }
        lacking.into_iter().filter_map(|((namespace, name), uid)| inner.forget(&namespace, &name, &uid)).collect()
    }
}

impl<T> Inner<T> {
    fn remove(&mut self, namespace: &str, name: &str, uid: &str) -> Option<Removed<T>> {
        if !self.gone.iter().any(|gone| gone == uid) {
            self.gone.push_back(uid.to_owned());
            if self.gone.len() > REMEMBERED {
                self.gone.pop_front();
            }
        }
        self.forget(namespace, name, uid)
    }

    fn forget(&mut self, namespace: &str, name: &str, uid: &str) -> Option<Removed<T>> {
        let items = self.items.get_mut(namespace)?;
        items.get(name).filter(|item| item.uid == uid)?;
        let old = items.remove(name)?.value;
        if items.is_empty() {
            self.items.remove(namespace);
        }
        Some(Removed { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned(), old })
    }
}

fn names(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn uid(meta: &ObjectMeta) -> String {
    meta.uid.clone().unwrap_or_default()
}

fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("ml".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    fn synced() -> Store<u32> {
        let store = Store::new(&[String::new()]);
        store.list_begins("");
        store.list_ends("");
        store
    }

    #[test]
    fn nothing_is_missing_before_the_first_list() {
        let store: Store<u32> = Store::new(&["ml".into(), "other".into()]);
        assert!(matches!(store.get("ml", "a"), Lookup::Unreadable(_)));
        store.list_begins("ml");
        store.list_ends("ml");
        assert_eq!(store.get("ml", "a"), Lookup::Missing);
        assert!(matches!(store.get("other", "a"), Lookup::Unreadable(_)));
        assert!(!store.synced());
    }

    #[test]
    fn an_older_event_does_not_undo_our_own_write() {
        let store = synced();
        assert_eq!(store.put(&meta("a", "1", 9), 9), Some(Put { old: None, new: Arc::new(9), same: false }));
        assert_eq!(store.put(&meta("a", "1", 8), 8), None);
        assert_eq!(store.get("ml", "a"), Lookup::Found(Arc::new(9)));
        // versions are numbers, not texts
        assert!(store.put(&meta("a", "1", 10), 10).is_some());
    }

    #[test]
    fn what_is_gone_does_not_come_back() {
        let store = synced();
        store.put(&meta("a", "1", 5), 5);
        store.remove_uid("ml", "a", "1");
        assert_eq!(store.put(&meta("a", "1", 7), 7), None);
        assert_eq!(store.get("ml", "a"), Lookup::Missing);
        assert!(store.put(&meta("a", "2", 8), 8).is_some());
        // the late event about the first one leaves the second alone
        assert_eq!(store.remove(&meta("a", "1", 7)), None);
        assert_eq!(store.get("ml", "a"), Lookup::Found(Arc::new(8)));
    }

    #[test]
    fn a_list_removes_what_it_lacks_but_not_what_we_just_wrote() {
        let store = synced();
        store.put(&meta("old", "1", 3), 3);
        store.list_begins("");
        store.put(&meta("kept", "2", 4), 4);
        store.listed("", &meta("kept", "2", 4));
        store.put(&meta("ours", "3", 6), 6);
        let removed = store.list_ends("");
        let old = Removed { namespace: "ml".into(), name: "old".into(), uid: "1".into(), old: Arc::new(3) };
        assert_eq!(removed, [old]);
        assert_eq!(store.list("ml").len(), 2);
        let names: Vec<String> = store.pick("ml", |name, value| (*value > 4).then(|| name.to_owned()));
        assert_eq!(names, ["ours"]);
    }

    #[test]
    fn what_a_list_lacks_and_somebody_finds_is_there() {
        let store = synced();
        store.put(&meta("new", "1", 5), 5);
        // of a server that is behind
        store.list_begins("");
        assert_eq!(store.list_ends("").len(), 1);
        assert_eq!(store.get("ml", "new"), Lookup::Missing);
        // what the API server answers to a read of it
        assert!(store.put(&meta("new", "1", 5), 5).is_some());
        assert_eq!(store.get("ml", "new"), Lookup::Found(Arc::new(5)));
    }

    #[test]
    fn an_amended_object_gives_way_to_the_event_of_the_same_version() {
        let store = synced();
        store.put(&meta("a", "1", 5), 5);
        store.amend(&meta("a", "1", 6), |value| value + 100);
        assert_eq!(store.get("ml", "a"), Lookup::Found(Arc::new(105)));
        assert_eq!(store.put(&meta("a", "1", 5), 5), None);
        assert!(store.put(&meta("a", "1", 6), 6).is_some());
    }
}
