//! Asks the metrics sources for as long as the engine wants to know, one task per rollout and one loop per gate, so
//! that no slow source delays another gate or rollout. Keeps the newest reading of each gate; judges nothing.

mod client;
mod window;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future;
use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinHandle;

pub use client::{Source, Sources, Trouble};
pub use window::{Fetched, Window};

use super::clock::{Clock, unix};
use super::triggers::{Key, Triggers};
use crate::api::{Color, ModelRollout};
use crate::engine::observed::{Answer, Reading};
use crate::engine::plan::{Ask, BadAndTotal, GateNeed, GateQuery};
use crate::ops::metrics::Metrics;

const FASTEST: Duration = Duration::from_millis(200);
const SLOWEST: Duration = Duration::from_secs(5);
const UNKNOWN: Duration = Duration::from_secs(1);

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
        let result = gate.ask(&shared.sources, at).await;
        shared.metrics.query(result.as_ref().map_or_else(|trouble| trouble.0.as_str(), |_| "ok"));
        let (answer, newest) = result.unwrap_or_else(|trouble| (trouble.into(), 0.0));
        let news = {
            let mut readings = lock(&shared.readings);
            let of_rollout = readings.entry(uid.to_owned()).or_default();
            let news = newest > gate.newest
                || of_rollout.get(&gate.query.gate).is_none_or(|old| differs(&old.answer, &answer));
            of_rollout.insert(gate.query.gate.clone(), Reading { key: gate.key.clone(), at, answer });
            news
        };
        gate.newest = gate.newest.max(newest);
        if news {
            shared.triggers.fire(key.clone());
        }
        tokio::time::sleep(gate.pause()).await;
    }
}

/// Whether an answer says anything new. That counts settle is nothing new; a value that is still the same is, since a
/// gate may want to see it twice.
fn differs(old: &Answer, new: &Answer) -> bool {
    match (old, new) {
        (
            Answer::Counted { candidate: old, baseline: old_base },
            Answer::Counted { candidate: new, baseline: new_base },
        ) => old.now != new.now || old_base.as_ref().map(|it| &it.now) != new_base.as_ref().map(|it| &it.now),
        (_, Answer::Value(_)) => true,
        _ => old != new,
    }
}

/// One gate that is being asked.
struct Gate {
    key: String,
    query: GateQuery,
    since: f64,
    candidate: Window,
    baseline: Window,
    interval: Option<f64>,
    /// Time of the newest sample so far.
    newest: f64,
}

/// What to fetch for one color.
enum Side<'a> {
    Rate(&'a BadAndTotal),
    Buckets(&'a str),
}

impl Gate {
    fn new(query: &GateQuery, need: &GateNeed) -> Self {
        let since = unix(need.since);
        let window = |color: Color| {
            let evidence = need.resume.iter().find(|one| one.gate == query.gate && one.color == color);
            Window::new(since, evidence)
        };
        Self {
            key: need.key.clone(),
            query: query.clone(),
            since,
            candidate: window(query.candidate),
            baseline: window(query.candidate.other()),
            interval: None,
            newest: 0.0,
        }
    }

    /// A quarter of the scrape interval: a new sample is seen soon after it was taken.
    fn pause(&self) -> Duration {
        let quarter = self.interval.map(|interval| Duration::from_secs_f64(interval.clamp(0.0, 3600.0) / 4.0));
        quarter.map_or(UNKNOWN, |quarter| quarter.clamp(FASTEST, SLOWEST))
    }

    /// Gives the answer, and the time of its newest sample.
    async fn ask(&mut self, sources: &Sources, at: Timestamp) -> Result<(Answer, f64), Trouble> {
        let source = sources.get(&self.query.source)?;
        let now = unix(at);
        let ask = self.query.ask.clone();
        let (candidate, baseline) = match &ask {
            Ask::Value { query } => {
                let window = format!("{}s", ((now - self.since) as i64).max(1));
                let value = source.value(&query.replace("{{window}}", &window)).await?;
                return Ok((Answer::Value(value), 0.0));
            }
            Ask::ErrorRate { candidate, baseline } => (Side::Rate(candidate), baseline.as_ref().map(Side::Rate)),
            Ask::Histogram { candidate, baseline } => {
                (Side::Buckets(candidate), baseline.as_deref().map(Side::Buckets))
            }
        };
        let reach = self.candidate.reach(now, self.interval);
        let other_reach = self.baseline.reach(now, self.interval);
        let other = async {
            match &baseline {
                Some(side) => side.fetch(&source, other_reach).await.map(Some),
                None => Ok(None),
            }
        };
        let (fetched, other) = future::try_join(candidate.fetch(&source, reach), other).await?;
        let newest = other.as_ref().map_or(0.0, Fetched::newest).max(fetched.newest());
        let learned = [self.interval, fetched.interval(), other.as_ref().and_then(Fetched::interval)];
        self.interval = learned.into_iter().flatten().min_by(f64::total_cmp);
        let candidate = self.candidate.advance(fetched, now)?;
        let baseline = other.map(|other| self.baseline.advance(other, now)).transpose()?;
        Ok((Answer::Counted { candidate, baseline }, newest))
    }
}

impl Side<'_> {
    async fn fetch(&self, source: &Source, seconds: u64) -> Result<Fetched, Trouble> {
        match self {
            Side::Rate(selectors) => {
                let bad = source.samples(&selectors.bad, seconds);
                let total = source.samples(&selectors.total, seconds);
                let (bad, total) = future::try_join(bad, total).await?;
                Ok(Fetched::Rate { bad, total })
            }
            Side::Buckets(selector) => source.samples(selector, seconds).await.map(Fetched::Buckets),
        }
    }
}

#[cfg(test)]
mod tests;
