//! The queue of rollouts to look at, fed from any source, and the store that kube's applier asks whether a rollout is
//! still there. Says *that* something changed, never what to do about it.

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{PartialObjectMeta, PartialObjectMetaExt as _};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::Event;

use crate::api::ModelRollout;

/// A rollout by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// Of `namespace` and `name`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Of `rollout`.
    pub fn of(rollout: &ModelRollout) -> Self {
        let meta = &rollout.metadata;
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }
}

/// What the applier keeps of a rollout: its name. The objects themselves are in [`super::stores`].
pub type Handle = PartialObjectMeta<ModelRollout>;

/// Puts rollouts into the queue.
#[derive(Clone, Debug)]
pub struct Triggers(UnboundedSender<Key>);

impl Triggers {
    /// The two ends of a queue. It is unbounded, but the scheduler behind it folds repeats at once.
    pub fn new() -> (Self, UnboundedReceiver<Key>) {
        let (sender, receiver) = unbounded();
        (Self(sender), receiver)
    }

    /// Looks at `key` soon.
    pub fn fire(&self, key: Key) {
        // it fails only when the applier is gone, and then the process ends
        let _ = self.0.unbounded_send(key);
    }
}

/// Mirrors which rollouts exist into the store that the applier reads.
pub struct Mirror {
    writer: reflector::store::Writer<Handle>,
    reader: reflector::Store<Handle>,
}

impl Default for Mirror {
    fn default() -> Self {
        let mut writer = reflector::store::Writer::default();
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        let reader = writer.as_reader();
        Self { writer, reader }
    }
}

impl Mirror {
    /// What the applier reads.
    pub fn reader(&self) -> reflector::Store<Handle> {
        self.reader.clone()
    }

    /// Takes note of whether `key` exists; gives the reference to reconcile if it does.
    pub fn admit(&mut self, key: &Key, exists: bool) -> Option<ObjectRef<Handle>> {
        let reference = ObjectRef::<Handle>::new(&key.name).within(&key.namespace);
        let known = self.reader.get(&reference).is_some();
        let meta = ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ObjectMeta::default()
        };
        let handle: Handle = meta.into_response_partial();
        match (known, exists) {
            (false, true) => self.writer.apply_watcher_event(&Event::Apply(handle)),
            (true, false) => self.writer.apply_watcher_event(&Event::Delete(handle)),
            _ => {}
        }
        exists.then_some(reference)
    }
}
