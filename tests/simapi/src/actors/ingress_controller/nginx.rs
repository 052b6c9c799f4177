//! The life of one ingress-nginx: the syncs of its controller, its reloads, and what each of its workers knows.

use std::collections::VecDeque;
use std::sync::Arc;

use super::nginx_config::{Backends, Numbers, build};
use super::tables::{Locations, Upstream, next_pod};
use super::{Request, Routed, Snapshot};
use crate::actors::random::Random;

/// `--sync-rate-limit 0.3` with a burst of 1: so long between two syncs, in milliseconds.
const BETWEEN_SYNCS: u64 = 3333;
/// Each worker looks for new backends so often (`BACKENDS_SYNC_INTERVAL`), in milliseconds.
const LOOK: u64 = 1000;
/// Writing and testing the configuration file, before the reload begins, in milliseconds.
const BEFORE_RELOAD: (u64, u64) = (30, 150);
/// From the signal until new workers serve and old ones accept no more, in milliseconds.
const RELOAD: (u64, u64) = (200, 800);
/// From the sync, or the signal to reload, to the end of the POST of all backends, in milliseconds.
const POST: (u64, u64) = (2, 20);
/// `worker-shutdown-timeout`: so long old workers finish what they have begun, in milliseconds.
const SHUTDOWN: u64 = 240_000;

#[derive(Debug)]
struct Worker {
    /// When its timer fires, modulo [`LOOK`].
    phase: u64,
    /// When it will look at what was posted since.
    looks_at: Option<u64>,
    backends: Arc<Backends>,
    /// The next Pod of each upstream.
    cursors: Vec<u32>,
}

impl Worker {
    fn new(random: &mut Random, backends: &Arc<Backends>) -> Self {
        let phase = random.below(LOOK);
        Self { phase, looks_at: None, backends: Arc::clone(backends), cursors: Vec::new() }
    }
}

/// One replica.
#[derive(Debug)]
pub struct Nginx {
    class: String,
    random: Random,
    /// Ingresses of other namespaces use up the rate limit too.
    is_busy: bool,
    numbers: Numbers,
    seen: Snapshot,
    sync_at: Option<u64>,
    last_sync: Option<u64>,
    /// What the last sync made.
    running: (Arc<Locations>, Arc<Backends>),
    /// When a POST reaches the shared memory, and with what.
    post: Option<(u64, Arc<Backends>)>,
    posted: Arc<Backends>,
    /// When new workers take over, with which locations.
    reload: Option<(u64, Arc<Locations>)>,
    locations: Arc<Locations>,
    workers: Vec<Worker>,
    /// When reloads ended, of late.
    reloads: VecDeque<u64>,
    next: u64,
}

impl Nginx {
    pub fn new(class: &str, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let none = Arc::<Backends>::default();
        let is_busy = random.chance(0.5);
        let count = random.between(2, 4);
        let workers = (0..count).map(|_| Worker::new(&mut random, &none)).collect();
        Self {
            class: class.to_owned(),
            random,
            is_busy,
            numbers: Numbers::new(),
            seen: Snapshot::default(),
            sync_at: None,
            last_sync: None,
            running: Default::default(),
            post: None,
            posted: none,
            reload: None,
            locations: Arc::default(),
            workers,
            reloads: VecDeque::new(),
            next: u64::MAX,
        }
    }

    pub fn changed(&mut self, objects: Snapshot, now: u64) {
        self.advance(now);
        self.seen = objects;
        let Some(last) = self.last_sync else {
            self.start(now);
            return;
        };
        if self.sync_at.is_none() {
            let others = if self.is_busy { now + self.random.below(BETWEEN_SYNCS) } else { now };
            self.sync_at = Some(others.max(last + BETWEEN_SYNCS).min(now + BETWEEN_SYNCS));
            self.plan();
        }
    }

    /// It was there, and in force, before the first request.
    fn start(&mut self, now: u64) {
        let (locations, backends) = build(&self.seen, &self.class, &mut self.numbers);
        self.running = (Arc::new(locations), Arc::new(backends));
        (self.locations, self.posted) = self.running.clone();
        for worker in &mut self.workers {
            worker.backends = Arc::clone(&self.posted);
        }
        self.last_sync = Some(now);
    }

    pub fn wake(&self) -> Option<u64> {
        (self.next < u64::MAX).then_some(self.next)
    }

    pub fn advance(&mut self, now: u64) {
        while self.next <= now {
            self.step(self.next);
            self.plan();
        }
    }

    fn plan(&mut self) {
        let timers = [self.sync_at, self.post.as_ref().map(|post| post.0), self.reload.as_ref().map(|reload| reload.0)];
        let looks = self.workers.iter().map(|worker| worker.looks_at);
        self.next = timers.into_iter().chain(looks).flatten().min().unwrap_or(u64::MAX);
    }

    /// Does all that is due at `at`, in the order in which it would be seen.
    fn step(&mut self, at: u64) {
        if self.sync_at.is_some_and(|due| due <= at) {
            self.sync(at);
        }
        if let Some((_, backends)) = self.post.take_if(|post| post.0 <= at) {
            self.posted = backends;
            for worker in &mut self.workers {
                worker.looks_at = Some(at + (worker.phase + LOOK - at % LOOK) % LOOK);
            }
        }
        if let Some((_, locations)) = self.reload.take_if(|reload| reload.0 <= at) {
            self.locations = locations;
            for worker in &mut self.workers {
                // A new worker reads the shared memory as it starts.
                *worker = Worker::new(&mut self.random, &self.posted);
            }
            self.reloads.push_back(at);
            while self.reloads.front().is_some_and(|end| end + 2 * SHUTDOWN < at) {
                self.reloads.pop_front();
            }
        }
        for worker in &mut self.workers {
            if worker.looks_at.take_if(|due| *due <= at).is_some() {
                worker.backends = Arc::clone(&self.posted);
            }
        }
    }

    /// `syncIngress`: what `IsDynamicConfigurationEnough` does not cover is a reload, which goes on by itself while all
    /// backends are posted: §6.1's window of 503s.
    fn sync(&mut self, at: u64) {
        self.sync_at = None;
        self.last_sync = Some(at);
        let (locations, backends) = build(&self.seen, &self.class, &mut self.numbers);
        let needs_reload = locations != *self.running.0;
        let needs_post = backends != *self.running.1;
        let mut then = at;
        if needs_reload {
            self.running.0 = Arc::new(locations);
            then += self.random.between(BEFORE_RELOAD.0, BEFORE_RELOAD.1);
            let end = then + self.random.between(RELOAD.0, RELOAD.1);
            self.reload = Some((end, Arc::clone(&self.running.0)));
        }
        if needs_post {
            self.running.1 = Arc::new(backends);
            self.post = Some((then + self.random.between(POST.0, POST.1), Arc::clone(&self.running.1)));
        }
    }

    pub fn route(&mut self, request: &Request<'_>, now: u64) -> Routed {
        if self.next <= now {
            self.advance(now);
        }
        let Some(number) = self.locations.find(request.host, request.path) else {
            return Routed::Failed { status: 404, why: "no such host and path" };
        };
        let chosen = self.random.below(self.workers.len() as u64) as usize;
        let worker = &mut self.workers[chosen];
        let Some(primary) = worker.backends.get(number as usize).and_then(Option::as_ref) else {
            return Routed::Failed { status: 503, why: "the worker has no such upstream" };
        };
        if primary.pods.is_empty() {
            return Routed::Failed { status: 503, why: "the primary has no endpoints" };
        }
        let alternative = alternative(&worker.backends, primary);
        let chosen = alternative.filter(|(_, upstream)| {
            let decided = upstream.shaping.by_request(request);
            decided.unwrap_or_else(|| upstream.shaping.throw(&mut self.random))
        });
        let (number, upstream) = chosen.unwrap_or((number, primary));
        if worker.cursors.len() <= number as usize {
            let random = &mut self.random;
            worker.cursors.resize_with(number as usize + 1, || random.below(64) as u32);
        }
        match next_pod(&upstream.pods, &mut worker.cursors[number as usize]) {
            Some(pod) => Routed::Pod { service: Arc::clone(&upstream.service), pod: Arc::clone(pod) },
            None => Routed::Failed { status: 503, why: "the primary has no endpoints" },
        }
    }

    pub fn share_of(&self, host: &str, service: &str) -> f64 {
        let places = self.locations.host(host).unwrap_or_default();
        let share = |worker: &Worker, number: u32| {
            let primary = worker.backends.get(number as usize)?.as_ref().filter(|primary| !primary.pods.is_empty())?;
            let (to, part) = alternative(&worker.backends, primary)
                .map_or((None, 0.0), |(_, upstream)| (Some(&upstream.service), upstream.shaping.share()));
            let named = |name: &Arc<str>| if &**name == service { 1.0 } else { 0.0 };
            Some(to.map_or(0.0, named) * part + named(&primary.service) * (1.0 - part))
        };
        let of_worker =
            |worker: &Worker| places.iter().filter_map(|place| share(worker, place.target?)).fold(0.0, f64::max);
        self.workers.iter().map(of_worker).sum::<f64>() / self.workers.len() as f64
    }

    pub fn cut_at(&self, started: u64) -> u64 {
        self.reloads.iter().find(|end| **end > started).map_or(u64::MAX, |end| end + SHUTDOWN)
    }
}

/// The alternative that a worker would use: none without endpoints.
fn alternative<'a>(backends: &'a Backends, primary: &Upstream) -> Option<(u32, &'a Upstream)> {
    let number = primary.alternative?;
    let upstream = backends.get(number as usize)?.as_ref()?;
    (!upstream.pods.is_empty()).then_some((number, upstream))
}
