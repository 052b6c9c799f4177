//! Traefik's `kubernetesIngressNGINX` provider: the same annotations, another data plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::objects::{self, Ingress, Path, Rule};
use super::tables::{Locations, PathType, Place, Shaping, next_pod};
use super::{Request, Routed, Snapshot};
use crate::actors::random::Random;

/// `--providers.providersThrottleDuration`, in milliseconds.
const THROTTLE: u64 = 2000;
/// From an event, or the end of the throttle, to the new configuration, in milliseconds.
const SWAP: (u64, u64) = (20, 90);

type Pods = Vec<Arc<str>>;

/// What a router leads to: a primary, and perhaps a canary with its rules, as one weighted round robin.
#[derive(Clone, Debug, PartialEq)]
struct Wrr {
    primary: (Arc<str>, Pods),
    canary: Option<(Arc<str>, Pods, Shaping)>,
}

/// Where a round robin stands; a new configuration begins again.
#[derive(Clone, Copy, Debug)]
struct Turn {
    primary: f64,
    canary: f64,
    cursors: [u32; 2],
}

/// One replica.
#[derive(Debug)]
pub struct Traefik {
    class: String,
    random: Random,
    seen: Snapshot,
    apply_at: Option<u64>,
    last_applied: Option<u64>,
    locations: Locations,
    wrrs: Vec<Wrr>,
    turns: Vec<Turn>,
}

impl Traefik {
    pub fn new(class: &str, seed: u64) -> Self {
        Self {
            class: class.to_owned(),
            random: Random::new(seed),
            seen: Snapshot::default(),
            apply_at: None,
            last_applied: None,
            locations: Locations::default(),
            wrrs: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// At once if the last configuration is older than the throttle, else at its end; the latest state wins.
    pub fn changed(&mut self, objects: Snapshot, now: u64) {
        self.advance(now);
        self.seen = objects;
        match (self.last_applied, self.apply_at) {
            (None, _) => self.apply(now),
            (Some(last), None) => {
                let delay = self.random.between(SWAP.0, SWAP.1);
                self.apply_at = Some(now.max(last + THROTTLE) + delay);
            }
            (Some(_), Some(_)) => {}
        }
    }

    pub fn wake(&self) -> Option<u64> {
        self.apply_at
    }

    pub fn advance(&mut self, now: u64) {
        if let Some(at) = self.apply_at.take_if(|at| *at <= now) {
            self.apply(at);
        }
    }

    fn apply(&mut self, at: u64) {
        let (locations, wrrs) = build(&self.seen, &self.class);
        // An unchanged configuration is dropped before it gets to the servers, and is no "last" one.
        if self.last_applied.is_some() && locations == self.locations && wrrs == self.wrrs {
            return;
        }
        self.last_applied = Some(at);
        self.turns = wrrs.iter().map(Turn::new).collect();
        (self.locations, self.wrrs) = (locations, wrrs);
    }

    pub fn route(&mut self, request: &Request<'_>, now: u64) -> Routed {
        self.advance(now);
        let Some(number) = self.locations.find(request.host, request.path) else {
            return Routed::Failed { status: 404, why: "no such host and path" };
        };
        let (wrr, turn) = (&self.wrrs[number as usize], &mut self.turns[number as usize]);
        let canary = wrr.canary.as_ref().filter(|(_, _, shaping)| {
            // header and cookie rules are routers of their own, with longer rules
            shaping.by_request(request).unwrap_or_else(|| turn.next(shaping))
        });
        let (service, pods, cursor) = match canary {
            Some((service, pods, _)) => (service, pods, &mut turn.cursors[1]),
            None => (&wrr.primary.0, &wrr.primary.1, &mut turn.cursors[0]),
        };
        match next_pod(pods, cursor) {
            Some(pod) => Routed::Pod { service: Arc::clone(service), pod: Arc::clone(pod) },
            None => Routed::Failed { status: 503, why: "its share of the service has no endpoints" },
        }
    }

    pub fn share_of(&self, host: &str, service: &str) -> f64 {
        let share = |wrr: &Wrr| {
            let named = |name: &Arc<str>, pods: &Pods| if &**name == service && !pods.is_empty() { 1.0 } else { 0.0 };
            let part = wrr.canary.as_ref().map_or(0.0, |(_, _, shaping)| shaping.share());
            let canary = wrr.canary.as_ref().map_or(0.0, |(name, pods, _)| named(name, pods));
            canary * part + named(&wrr.primary.0, &wrr.primary.1) * (1.0 - part)
        };
        let places = self.locations.host(host).unwrap_or_default();
        let of_places = places.iter().filter_map(|place| Some(share(&self.wrrs[place.target? as usize])));
        of_places.fold(0.0, f64::max)
    }
}

impl Turn {
    fn new(wrr: &Wrr) -> Self {
        let shaping = wrr.canary.as_ref().map(|(_, _, shaping)| shaping);
        let (primary, canary) = shaping
            .map_or((1.0, 1.0), |shaping| (1.0 / (shaping.total - shaping.weight) as f64, 1.0 / shaping.weight as f64));
        Self { primary, canary, cursors: [0; 2] }
    }

    /// Whether the next one is the canary's: the earliest deadline first. Who has no weight is not there at all.
    fn next(&mut self, shaping: &Shaping) -> bool {
        let (weight, rest) = (shaping.weight, shaping.total - shaping.weight);
        if weight <= 0 || rest <= 0 {
            return weight > 0;
        }
        let is_canary = self.canary <= self.primary;
        if is_canary {
            self.canary += 1.0 / weight as f64;
        } else {
            self.primary += 1.0 / rest as f64;
        }
        is_canary
    }
}

/// A canary is found by namespace, host, path and type, and attached to the partner's Service:port, so that it leaks like
/// ingress-nginx' own (traefik#12906). A path without a partner is passed over.
fn build(snapshot: &Snapshot, class: &str) -> (Locations, Vec<Wrr>) {
    fn key<'a>(ingress: &'a Ingress, rule: &'a Rule, path: &'a Path) -> (&'a str, &'a str, &'a str, PathType) {
        (&ingress.namespace, &rule.host, &path.text, path.kind)
    }
    let ingresses = objects::ingresses(snapshot, class);
    let of = |is_canary: bool| {
        let some = ingresses.iter().filter(move |one| one.canary.is_some() == is_canary);
        some.flat_map(|one| one.rules.iter().flat_map(move |rule| rule.paths.iter().map(move |path| (one, rule, path))))
    };
    let pods = |ingress: &Ingress, path: &Path| {
        objects::pods(snapshot, &ingress.namespace, &path.service, &path.port).unwrap_or_default()
    };
    let mut canaries = BTreeMap::new();
    for (ingress, rule, path) in of(true) {
        canaries.entry(key(ingress, rule, path)).or_insert((ingress, path));
    }
    let mut attached = BTreeMap::new();
    for (ingress, rule, path) in of(false) {
        if let Some(found) = canaries.get(&key(ingress, rule, path)) {
            attached.entry((&ingress.namespace, &path.service, &path.port)).or_insert(*found);
        }
    }
    let mut numbers = BTreeMap::new();
    let mut wrrs: Vec<Wrr> = Vec::new();
    let mut locations = Locations::default();
    for (ingress, rule, path) in of(false) {
        let number = *numbers.entry((&ingress.name, &path.service, &path.port)).or_insert_with(|| {
            let canary = attached.get(&(&ingress.namespace, &path.service, &path.port));
            let canary = canary.and_then(|(ingress, path)| {
                let pods = pods(ingress, path);
                // one without endpoints is ignored
                let shaping = ingress.canary.clone().filter(|_| !pods.is_empty())?;
                Some((path.service.as_str().into(), pods, shaping))
            });
            wrrs.push(Wrr { primary: (path.service.as_str().into(), pods(ingress, path)), canary });
            wrrs.len() as u32 - 1
        });
        let place = Place { path: path.text.clone(), kind: path.kind, target: Some(number), settings: 0 };
        match locations.hosts.iter_mut().find(|(host, _)| *host == rule.host) {
            Some((_, places)) => places.push(place),
            None => locations.hosts.push((rule.host.clone(), vec![place])),
        }
    }
    locations.sort();
    (locations, wrrs)
}
