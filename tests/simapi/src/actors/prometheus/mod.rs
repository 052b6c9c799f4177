//! A Prometheus that scrapes the model servers, and answers what the operator asks.
//!
//! The metrics are those of the demo's model server: `http_requests_total`, `http_request_duration_seconds` and
//! `chat_requests_finished_total`, with the labels `namespace`, `pod`, `service`, `job` and `instance` that a scrape adds. It
//! knows what the operator asks: ranges of raw samples, functions over ranges, instant selectors with staleness, aggregations and
//! arithmetic. Every other query is an HTTP 400.

mod ast;
pub mod corrupt;
mod eval;
mod json;
mod promql;
mod store;
mod target;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use self::ast::Expr;
use self::eval::Eval;
use self::target::Target;
use super::random::{Random, hash};
use super::users::Finished;

/// How it scrapes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Unix time in milliseconds at the start of the simulation.
    pub epoch_ms: u64,
    /// The namespace of all Pods.
    pub namespace: String,
    /// `scrape_interval`, in milliseconds.
    pub interval_ms: u64,
    /// A change of the targets takes effect after 0 to so many milliseconds (`--scrape.discovery-reload-interval`).
    pub discovery_ms: u64,
    /// The share of scrapes that do not take place and leave no mark, as when Prometheus has no time.
    pub skipped: f64,
    /// The share of scrapes that time out: all series of the target end until the next one.
    pub timed_out: f64,
    /// So long samples are kept, in milliseconds.
    pub retention_ms: u64,
}

impl Default for Config {
    /// As the demo's, from 2026-11-01 on: every second.
    fn default() -> Self {
        Self {
            epoch_ms: 1_793_491_200_000,
            namespace: "ml".to_owned(),
            interval_ms: 1000,
            discovery_ms: 1000,
            skipped: 0.0,
            timed_out: 0.0,
            retention_ms: 7_200_000,
        }
    }
}

/// A Pod that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: Arc<str>,
    /// Its label `service`.
    pub service: Arc<str>,
    /// Which process it is: a higher number counts from zero.
    pub incarnation: u64,
    /// Whether it listens: else it is scraped in vain.
    pub up: bool,
}

/// One Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    config: Config,
    random: Random,
    seed: u64,
    targets: Vec<Target>,
    by_pod: HashMap<Arc<str>, usize>,
    /// What discovery has found, and when it takes effect.
    found: Option<(u64, Vec<Arc<str>>)>,
    outages: Vec<(u64, u64)>,
    next: u64,
}

impl Prometheus {
    /// One that knows no targets. The phase of each target's scrapes, and what goes wrong, is drawn from `seed`.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            random: Random::new(seed),
            seed,
            targets: Vec::new(),
            by_pod: HashMap::new(),
            found: None,
            outages: Vec::new(),
            next: u64::MAX,
        }
    }

    /// A request has ended, and its model server has counted it. Requests that never got to one are passed over.
    pub fn count(&mut self, finished: &Finished) {
        if !finished.is_counted() || finished.pod.is_empty() {
            return;
        }
        let target = self.target(&finished.pod, &finished.service);
        self.targets[target].restart(finished.incarnation);
        self.targets[target].count(finished);
    }

    fn target(&mut self, pod: &Arc<str>, service: &Arc<str>) -> usize {
        if let Some(place) = self.by_pod.get(pod) {
            return *place;
        }
        let place = self.targets.len();
        let phase = (hash(pod) ^ self.seed) % self.config.interval_ms.max(1);
        self.targets.push(Target::new(pod, service, &self.config.namespace, place, phase));
        self.by_pod.insert(Arc::clone(pod), place);
        place
    }

    /// All Pods that there are now. A Pod's state is that of now; which Pods are scraped follows when discovery is through.
    pub fn targets(&mut self, pods: &[Pod], now_ms: u64) {
        self.advance(now_ms);
        for target in &mut self.targets {
            target.up = false;
        }
        for pod in pods {
            let target = self.target(&pod.name, &pod.service);
            self.targets[target].restart(pod.incarnation);
            self.targets[target].up = pod.up;
        }
        let names: Vec<Arc<str>> = pods.iter().map(|pod| Arc::clone(&pod.name)).collect();
        let is_scraped = |name| self.by_pod.get(name).is_some_and(|place| self.targets[*place].next < u64::MAX);
        let scraped = self.targets.iter().filter(|target| target.next < u64::MAX && !target.ends).count();
        if self.found.is_none() && names.len() == scraped && names.iter().all(is_scraped) {
            return;
        }
        let at =
            self.found.take().map_or_else(|| now_ms + self.random.below(self.config.discovery_ms + 1), |old| old.0);
        self.found = Some((at, names));
        self.plan();
        self.advance(now_ms);
    }

    /// From `from_ms` on until before `until_ms` it does not run: no scrapes, no answers. It remembers what was before.
    pub fn outage(&mut self, from_ms: u64, until_ms: u64) {
        self.outages.push((from_ms, until_ms));
    }

    /// Whether it runs.
    pub fn is_up(&self, now_ms: u64) -> bool {
        !self.outages.iter().any(|(from, until)| (*from..*until).contains(&now_ms))
    }

    /// When it scrapes next, or finds new targets.
    pub fn wake(&self) -> u64 {
        self.next
    }

    /// All scrapes up to `now_ms`.
    pub fn advance(&mut self, now_ms: u64) {
        while self.next <= now_ms {
            let at = self.next;
            if let Some((_, names)) = self.found.take_if(|found| found.0 <= at) {
                self.discover(&names, at);
            }
            for place in 0..self.targets.len() {
                if self.targets[place].next <= at {
                    self.scrape(place, at);
                }
            }
            self.plan();
        }
    }

    fn plan(&mut self) {
        let found = self.found.as_ref().map_or(u64::MAX, |found| found.0);
        self.next = self.targets.iter().map(|target| target.next).fold(found, u64::min);
    }

    fn discover(&mut self, names: &[Arc<str>], now: u64) {
        let interval = self.config.interval_ms;
        for target in &mut self.targets {
            let there = names.contains(&target.pod);
            if there && target.next == u64::MAX {
                target.next = now + (target.phase + interval - now % interval) % interval;
            }
            // the mark that ends its series comes with what would have been its next scrape
            target.ends = !there && target.next < u64::MAX;
        }
    }

    fn scrape(&mut self, place: usize, at: u64) {
        let is_up = self.is_up(at);
        let skipped = self.random.chance(self.config.skipped);
        let timed_out = self.random.chance(self.config.timed_out);
        let target = &mut self.targets[place];
        let stamp = self.config.epoch_ms + at;
        target.table.forget(stamp.saturating_sub(self.config.retention_ms));
        if is_up && (target.ends || !target.up || timed_out) {
            target.lose(stamp);
        } else if is_up && !skipped {
            target.scrape(stamp);
        }
        target.next = if std::mem::take(&mut target.ends) { u64::MAX } else { at + self.config.interval_ms };
    }

    /// What `path` answers to `params`, whether they came in the URL or in a form: a status and a body.
    pub fn answer(&self, path: &str, params: &[(String, String)], now_ms: u64) -> (u16, Vec<u8>) {
        let param = |name: &str| params.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        if !self.is_up(now_ms) {
            return (503, b"Service Unavailable".to_vec());
        }
        if path.ends_with("/api/v1/query") {
            self.query(param("query").unwrap_or_default(), param("time"), now_ms)
        } else if path.ends_with("/api/v1/metadata") {
            (200, self.metadata(param("metric")))
        } else {
            (404, b"404 page not found\n".to_vec())
        }
    }

    fn query(&self, query: &str, time: Option<&str>, now_ms: u64) -> (u16, Vec<u8>) {
        let bad =
            |name: &str, text: &str| (400, json::error("bad_data", &format!("invalid parameter {name:?}: {text}")));
        let at = match time.filter(|time| !time.is_empty()).map(str::parse::<f64>) {
            None => self.config.epoch_ms + now_ms,
            Some(Ok(seconds)) if seconds.is_finite() => (seconds * 1000.0).round() as u64,
            Some(_) => return bad("time", "cannot parse it to a valid timestamp"),
        };
        let expr = match Expr::parse(query) {
            Ok(expr) => expr,
            Err(error) => return bad("query", &error),
        };
        let tables = self.targets.iter().map(|target| &target.table).collect();
        let mut out = br#"{"status":"success","data":"#.to_vec();
        match (Eval { tables, at }).answer(&expr, &mut out) {
            Ok(()) => {
                out.push(b'}');
                (200, out)
            }
            Err(error) => (422, json::error("execution", &error)),
        }
    }

    /// The model server speaks `OpenMetrics`, so metadata has the names of families: those of counters without `_total`.
    fn metadata(&self, metric: Option<&str>) -> Vec<u8> {
        let is_known = self.targets.iter().any(|target| target.next < u64::MAX && !target.table.columns.is_empty());
        let mut out = r#"{"status":"success","data":{"#.to_owned();
        let mut comma = "";
        for (family, kind, help) in target::FAMILIES {
            if is_known && metric.is_none_or(|metric| metric.is_empty() || metric == family) {
                out.push_str(comma);
                let _ = write!(out, r#""{family}":[{{"type":"{kind}","unit":"","help":"{help}"}}]"#);
                comma = ",";
            }
        }
        out.push_str("}}");
        out.into_bytes()
    }
}

#[cfg(test)]
mod eval_tests;
#[cfg(test)]
mod tests;
