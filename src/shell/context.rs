//! Everything that the parts of the shell share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

use super::apply::Refusals;
use super::backoff::{Backoff, Pace};
use super::clock::Clock;
use super::dynamic::Dynamic;
use super::fresh::Compared;
use super::leader::Leadership;
use super::notes::NoteQueue;
use super::prometheus::Pollers;
use super::stores::Stores;
use super::triggers::{Key, Triggers};
use crate::api::ModelRollout;
use crate::engine::plan::Need;
use crate::ops::metrics::Metrics;
use crate::ops::server::Health;

/// What the parts of the shell share.
pub struct Context {
    /// For watches: without retries of its own, since watches have a backoff.
    pub reads: Client,
    /// For writes and for the reads that guard them: without retries, with timeouts.
    pub writes: Client,
    /// The time of day.
    pub clock: Clock,
    /// Time that the ingress controller is given to follow a write.
    pub settle: Duration,
    /// Caches that are always filled.
    pub stores: Stores,
    /// Watches that are on when needed.
    pub dynamic: Dynamic,
    /// Who asks the metrics sources.
    pub pollers: Pollers,
    /// The queue.
    pub triggers: Triggers,
    /// Whether we may write.
    pub leadership: Leadership,
    /// Where notes go.
    pub notes: NoteQueue,
    /// The operator's metrics.
    pub metrics: Arc<Metrics>,
    /// What the probes answer.
    pub health: Arc<Health>,
    /// Failures in a row, by rollout.
    pub failures: ByRollout<Backoff>,
    /// Writes of the status alone, by rollout.
    pub paces: ByRollout<Pace>,
    /// When each rollout's objects were compared with the API server.
    pub compared: Compared,
    /// Why Jobs could not be made lately.
    pub refusals: Refusals,
    /// Whether all caches have been filled once.
    pub synced: watch::Sender<bool>,
}

impl Context {
    /// Watches and asks what `rollout` needs. Gives whether what is watched changed.
    pub fn follow(&self, rollout: &ModelRollout, need: &Need) -> bool {
        self.pollers.follow(rollout, need.gates.as_ref());
        self.dynamic.follow(rollout, need, &self.stores)
    }

    /// Drops all that was kept for a rollout that is gone.
    pub fn forget(&self, key: &Key, uid: &str) {
        self.pollers.forget(uid);
        self.dynamic.forget(key);
        self.failures.forget(key);
        self.paces.forget(key);
        self.compared.forget(key);
        self.metrics.forget(&key.namespace, &key.name);
    }

    /// Looks at every rollout soon.
    pub fn trigger_all(&self) {
        self.stores.rollouts.all().iter().for_each(|rollout| self.triggers.fire(Key::of(rollout)));
    }

    /// Called whenever a list is complete: with the last of them work begins.
    pub fn check_synced(&self) {
        if self.stores.synced() && !self.synced.send_replace(true) {
            self.health.set_synced();
            tracing::info!(rollouts = self.stores.rollouts.all().len(), "caches are filled");
            self.trigger_all();
        }
    }

    /// Whether all caches have been filled once.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until they have been.
    pub async fn filled(&self) {
        // it fails only without a sender, and that is ours
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Whether work may be done: the caches are full and we lead.
    pub fn active(&self) -> bool {
        self.is_synced() && self.leadership.leads()
    }
}

/// Something that is kept of each rollout, from its first use on.
#[derive(Debug, Default)]
pub struct ByRollout<T>(Mutex<BTreeMap<Key, T>>);

impl<T: Default> ByRollout<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses what is kept of one.
    pub fn with<R>(&self, key: &Key, act: impl FnOnce(&mut T) -> R) -> R {
        act(self.lock().entry(key.clone()).or_default())
    }

    /// Drops it.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}
