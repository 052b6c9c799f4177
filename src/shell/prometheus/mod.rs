//! Asks the metrics sources for as long as the engine wants to know, one task per rollout and one loop per gate, so
//! that no slow source delays another gate or rollout. Keeps the newest reading of each gate; judges nothing.

mod client;
mod poller;
mod window;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future;
use tokio::task::JoinHandle;

pub use client::{Source, Sources, Transport, Trouble};
pub use window::{Fetched, Window};

use super::clock::Clock;
use super::triggers::{Key, Triggers};
use crate::api::ModelRollout;
use crate::engine::gate::stale;
use crate::engine::observed::{Answer, Counted, Reading};
use crate::engine::plan::GateNeed;
use crate::ops::metrics::Metrics;
use poller::Gate;

/// The newest readings, by rollout uid and gate.
type Readings = Mutex<BTreeMap<String, BTreeMap<String, Reading>>>;

/// Everyone who asks.
#[derive(Debug)]
pub struct Pollers {
    shared: Arc<Shared>,
    /// By rollout uid.
    running: Mutex<BTreeMap<String, Running>>,
}

#[derive(Debug)]
struct Shared {
    sources: Sources,
    clock: Clock,
    triggers: Triggers,
    metrics: Arc<Metrics>,
    readings: Readings,
}

#[derive(Debug)]
struct Running {
    key: String,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pollers {
    /// Nobody asks yet.
    pub fn new(sources: Sources, clock: Clock, triggers: Triggers, metrics: Arc<Metrics>) -> Self {
        let shared = Shared { sources, clock, triggers, metrics, readings: Mutex::default() };
        Self { shared: Arc::new(shared), running: Mutex::default() }
    }

    /// Asks what `rollout` needs, and no more. A new key starts from the beginning.
    pub fn follow(&self, rollout: &ModelRollout, need: Option<&GateNeed>) {
        let uid = rollout.metadata.uid.clone().unwrap_or_default();
        let Some(need) = need.filter(|need| !need.queries.is_empty()) else { return self.forget(&uid) };
        let mut running = lock(&self.running);
        if running.get(&uid).is_some_and(|one| one.key == need.key) {
            return;
        }
        running.remove(&uid);
        lock(&self.shared.readings).remove(&uid);
        let gates = need.queries.iter().map(|query| Gate::new(query, need)).collect();
        let task = poll_all(Arc::clone(&self.shared), (uid.clone(), Key::of(rollout)), gates);
        running.insert(uid, Running { key: need.key.clone(), task: tokio::spawn(task) });
    }

    /// Asks nothing more for the rollout of `uid`.
    pub fn forget(&self, uid: &str) {
        lock(&self.running).remove(uid);
        lock(&self.shared.readings).remove(uid);
    }

    /// The newest reading of each gate of the rollout of `uid`.
    pub fn readings(&self, uid: &str) -> BTreeMap<String, Reading> {
        lock(&self.shared.readings).get(uid).cloned().unwrap_or_default()
    }
}

async fn poll_all(shared: Arc<Shared>, (uid, key): (String, Key), gates: Vec<Gate>) {
    let polls = gates.into_iter().map(|gate| poll(&shared, &uid, &key, gate));
    future::join_all(polls).await;
}

async fn poll(shared: &Shared, uid: &str, key: &Key, mut gate: Gate) {
    loop {
        let at = shared.clock.precise();
        let newest = gate.newest();
        let result = gate.ask(&shared.sources, at).await;
        shared.metrics.query(result.as_ref().map_or_else(|trouble| trouble.0.as_str(), |_| "ok"));
        let failed = result.is_err();
        let answer = result.unwrap_or_else(Answer::from);
        let reading = Reading { key: gate.key.clone(), at, answer };
        let news = {
            let mut readings = lock(&shared.readings);
            let of_rollout = readings.entry(uid.to_owned()).or_default();
            let news =
                gate.newest() > newest || of_rollout.get(&gate.query.gate).is_none_or(|old| differs(old, &reading));
            of_rollout.insert(gate.query.gate.clone(), reading);
            news
        };
        if news {
            shared.triggers.fire(key.clone());
        }
        tokio::time::sleep(gate.pause(shared.clock.precise(), failed)).await;
    }
}

/// Whether a reading says anything new. That counts settle is nothing new; a value that is still the same is, since a
/// gate may want to see it twice.
fn differs(old: &Reading, new: &Reading) -> bool {
    let same =
        |was: &Counted, is: &Counted| was.now == is.now && stale(was, old.at).is_some() == stale(is, new.at).is_some();
    match (&old.answer, &new.answer) {
        (
            Answer::Counted { candidate: was, baseline: was_base },
            Answer::Counted { candidate: is, baseline: is_base },
        ) => {
            let same_base = match (was_base, is_base) {
                (Some(Ok(was)), Some(Ok(is))) => same(was, is),
                (was, is) => was == is,
            };
            !(same(was, is) && same_base)
        }
        (_, Answer::Value(_)) => true,
        (old, new) => old != new,
    }
}

#[cfg(test)]
mod tests;
