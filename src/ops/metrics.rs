//! The operator's own metrics. Series of a rollout are bounded and vanish with it.
//!
//! Only names that the API server has checked become labels, never texts of users.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::api::{ModelRollout, ModelRolloutStatus};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Every metric, and what is shown of each rollout.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    writes: Counters,
    write_seconds: Histograms,
    traffic_writes: Counters,
    breach_to_write: Histogram,
    reconciles: Counters,
    reconcile_seconds: Histogram,
    watch_errors: Counters,
    invalid_objects: Counter,
    events: Counters,
    queries: Counters,
    leader: Gauge,
    rollouts: RolloutMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("modelrollout");
        let build: Gauges = Family::default();
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        registry.register("build", "The version that runs", build);
        let metrics = Self {
            writes: Family::default(),
            write_seconds: Family::new_with_constructor(call_buckets),
            traffic_writes: Family::default(),
            breach_to_write: call_buckets(),
            reconciles: Family::default(),
            reconcile_seconds: call_buckets(),
            watch_errors: Family::default(),
            invalid_objects: Counter::default(),
            events: Family::default(),
            queries: Family::default(),
            leader: Gauge::default(),
            rollouts: RolloutMetrics::new(&mut registry),
            registry: Registry::default(),
        };
        registry.register("writes", "Writes to the API server", metrics.writes.clone());
        registry.register("write_seconds", "How long writes took", metrics.write_seconds.clone());
        registry.register("traffic_writes", "Writes that move traffic", metrics.traffic_writes.clone());
        let text = "From the reading that failed a gate to the acknowledged write that took traffic back";
        registry.register("breach_to_write_seconds", text, metrics.breach_to_write.clone());
        registry.register("reconciles", "Reconciles by result", metrics.reconciles.clone());
        registry.register("reconcile_seconds", "How long reconciles took", metrics.reconcile_seconds.clone());
        registry.register("watch_errors", "Watches that broke and were started again", metrics.watch_errors.clone());
        registry.register("invalid_objects", "ModelRollouts that cannot be read", metrics.invalid_objects.clone());
        registry.register("events", "Events by result", metrics.events.clone());
        registry.register("queries", "Queries to metrics sources by result", metrics.queries.clone());
        registry.register("leader", "1 if this process is the leader", metrics.leader.clone());
        Self { registry, ..metrics }
    }

    /// The text of `/metrics`.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// A write to the API server.
    pub fn wrote(&self, kind: &'static str, result: &'static str, took: Duration, traffic: bool) {
        let labels = vec![("kind", kind.to_owned()), ("result", result.to_owned())];
        self.writes.get_or_create(&labels).inc();
        if traffic {
            self.traffic_writes.get_or_create(&labels).inc();
        }
        self.write_seconds.get_or_create(&vec![("kind", kind.to_owned())]).observe(took.as_secs_f64());
    }

    /// A rollback write was acknowledged, `after` the reading that asked for it.
    pub fn rolled_back(&self, after: Duration) {
        self.breach_to_write.observe(after.as_secs_f64());
    }

    /// A reconcile ended.
    pub fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.get_or_create(&vec![("result", result.to_owned())]).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// A watch broke.
    pub fn watch_error(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// A ModelRollout could not be read.
    pub fn invalid_object(&self) {
        self.invalid_objects.inc();
    }

    /// An Event was published, failed or was dropped.
    pub fn event(&self, result: &'static str) {
        self.events.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// A metrics source was asked.
    pub fn query(&self, result: &'static str) {
        self.queries.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// Whether this process leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Shows `status` of `rollout`.
    pub fn show(&self, rollout: &ModelRollout, status: &ModelRolloutStatus, now: Instant) {
        self.rollouts.show(rollout, status, now);
    }

    /// Removes the series of a rollout that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.rollouts.forget(namespace, name);
    }
}

fn call_buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0])
}

fn phase_buckets() -> Histogram {
    Histogram::new([1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0])
}

/// The series of rollouts.
#[derive(Debug)]
struct RolloutMetrics {
    info: Gauges,
    weight: Gauges,
    stage: Gauges,
    phase: Gauges,
    verdict: Gauges,
    samples: Gauges,
    phase_seconds: Histograms,
    shown: Mutex<BTreeMap<(String, String), Shown>>,
}

/// What is shown of one rollout.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    info: Labels,
    phase: Labels,
    phase_name: &'static str,
    since: Instant,
    gates: Vec<(Labels, Labels)>,
}

impl RolloutMetrics {
    fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            info: Family::default(),
            weight: Family::default(),
            stage: Family::default(),
            phase: Family::default(),
            verdict: Family::default(),
            samples: Family::default(),
            phase_seconds: Family::new_with_constructor(phase_buckets),
            shown: Mutex::default(),
        };
        registry.register("info", "Active color and target of a rollout", metrics.info.clone());
        registry.register("weight", "Share of traffic that the target has, in percent", metrics.weight.clone());
        registry.register("stage", "The stage that runs, from 1; 0: none", metrics.stage.clone());
        registry.register("phase", "1 for the current phase of a rollout", metrics.phase.clone());
        registry.register("gate_verdict", "1 for the last verdict of a gate", metrics.verdict.clone());
        registry.register("gate_samples", "Requests that a gate counted in this stage", metrics.samples.clone());
        let text = "How long rollouts stayed in a phase";
        registry.register("phase_duration_seconds", text, metrics.phase_seconds.clone());
        metrics
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, rollout: &ModelRollout, status: &ModelRolloutStatus, now: Instant) {
        let namespace = rollout.metadata.namespace.clone().unwrap_or_default();
        let name = rollout.metadata.name.clone().unwrap_or_default();
        let own: Labels = vec![("namespace", namespace.clone()), ("name", name.clone())];
        let mut shown = self.lock();
        let old = shown.get(&(namespace.clone(), name.clone()));
        let new = Shown::new(&own, rollout, status, old, now);
        if let Some(old) = old.filter(|old| **old != new) {
            self.leave(old, &new, now);
        }
        self.info.get_or_create(&new.info).set(1);
        self.phase.get_or_create(&new.phase).set(1);
        self.weight.get_or_create(&own).set(i64::from(status.summary.weight.unwrap_or(0)));
        let open = status.attempt.as_ref().filter(|attempt| attempt.open);
        self.stage.get_or_create(&own).set(open.map_or(0, |attempt| i64::from(attempt.stage_index) + 1));
        for ((verdict, samples), gate) in new.gates.iter().zip(&status.gates) {
            self.verdict.get_or_create(verdict).set(1);
            self.samples.get_or_create(samples).set(gate.samples.unwrap_or(0));
        }
        shown.insert((namespace, name), new);
    }

    /// Removes what `old` showed and `new` does not.
    fn leave(&self, old: &Shown, new: &Shown, now: Instant) {
        if old.info != new.info {
            self.info.remove(&old.info);
        }
        if old.phase != new.phase {
            self.phase.remove(&old.phase);
            let labels = vec![("phase", old.phase_name.to_owned())];
            self.phase_seconds.get_or_create(&labels).observe(now.duration_since(old.since).as_secs_f64());
        }
        for (verdict, samples) in &old.gates {
            if !new.gates.iter().any(|(other, _)| other == verdict) {
                self.verdict.remove(verdict);
            }
            if !new.gates.iter().any(|(_, other)| other == samples) {
                self.samples.remove(samples);
            }
        }
    }

    fn forget(&self, namespace: &str, name: &str) {
        let Some(old) = self.lock().remove(&(namespace.to_owned(), name.to_owned())) else { return };
        let own: Labels = vec![("namespace", namespace.to_owned()), ("name", name.to_owned())];
        self.info.remove(&old.info);
        self.phase.remove(&old.phase);
        self.weight.remove(&own);
        self.stage.remove(&own);
        for (verdict, samples) in &old.gates {
            self.verdict.remove(verdict);
            self.samples.remove(samples);
        }
    }
}

impl Shown {
    fn new(
        own: &Labels,
        rollout: &ModelRollout,
        status: &ModelRolloutStatus,
        old: Option<&Shown>,
        now: Instant,
    ) -> Self {
        let with = |more: &[(&'static str, &str)]| -> Labels {
            own.iter().cloned().chain(more.iter().map(|(key, value)| (*key, (*value).to_owned()))).collect()
        };
        let phase_name = status.phase.map_or("", |phase| phase.as_str());
        let active = status.active_color.map_or("", |color| color.as_str());
        let gates = status.gates.iter().map(|gate| {
            let verdict = with(&[("gate", &gate.name), ("verdict", gate.verdict.as_str())]);
            (verdict, with(&[("gate", &gate.name)]))
        });
        Self {
            info: with(&[("active", active), ("target", rollout.spec.target.as_str())]),
            phase: with(&[("phase", phase_name)]),
            phase_name,
            since: old.filter(|old| old.phase_name == phase_name).map_or(now, |old| old.since),
            gates: gates.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::reasons::{Phase, Verdict};
    use crate::api::{Color, GateStatus};
    use crate::shell::testing::rollout;

    fn status(phase: Phase, verdict: Verdict) -> ModelRolloutStatus {
        let gate = json!({ "name": "errors", "verdict": verdict, "reason": "", "message": "", "samples": 7 });
        let gate: GateStatus = serde_json::from_value(gate).unwrap();
        ModelRolloutStatus {
            phase: Some(phase),
            active_color: Some(Color::Blue),
            gates: vec![gate],
            ..ModelRolloutStatus::default()
        }
    }

    #[test]
    fn series_of_a_rollout_follow_it_and_vanish_with_it() {
        let metrics = Metrics::new();
        let now = Instant::now();
        metrics.show(&rollout("bot"), &status(Phase::Progressing, Verdict::Hold), now);
        metrics.show(&rollout("bot"), &status(Phase::Promoting, Verdict::Pass), now + Duration::from_secs(20));
        let text = metrics.encode().unwrap();
        assert!(text.contains(r#"modelrollout_phase{namespace="ml",name="bot",phase="Promoting"} 1"#), "{text}");
        assert!(!text.contains(r#"name="bot",phase="Progressing""#), "{text}");
        assert!(text.contains(r#"verdict="Pass"} 1"#) && !text.contains(r#"verdict="Hold""#), "{text}");
        assert!(text.contains(r#"modelrollout_phase_duration_seconds_sum{phase="Progressing"} 20.0"#), "{text}");
        metrics.forget("ml", "bot");
        assert!(!metrics.encode().unwrap().contains("name=\"bot\""));
    }
}
