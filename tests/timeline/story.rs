//! Writes down everything that is decided in a rollout, in the order in which it happens.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use modelrollout::api::ModelRolloutStatus;
use modelrollout::engine::plan::{Need, Note, Plan};
use serde_json::Value;

use super::world::at;

/// A rollout, line by line.
pub struct Story {
    pub now: Timestamp,
    pub lines: Vec<String>,
    /// What was watched and waited for when nothing was left to do.
    rest: Option<(Option<Timestamp>, Need)>,
}

impl Story {
    pub fn new() -> Self {
        Self { now: at(0), lines: vec![], rest: None }
    }

    /// Something happens.
    pub fn line(&mut self, text: &str) {
        let seconds = self.now.as_second() - at(0).as_second();
        self.lines.push(format!("{seconds:>5} {text}"));
    }

    /// The status is written: what is new in it, and what is gone.
    pub fn status(&mut self, old: Option<&ModelRolloutStatus>, new: &ModelRolloutStatus) {
        let flat = |status: &ModelRolloutStatus| {
            let mut all = BTreeMap::new();
            flatten("", &serde_json::to_value(status).unwrap(), &mut all);
            all.retain(|path, _| !UNTOLD.iter().any(|one| path.contains(one)));
            all
        };
        let (old, new) = (old.map(flat).unwrap_or_default(), flat(new));
        self.line("status");
        for (path, value) in new.iter().filter(|(path, value)| old.get(*path) != Some(value)) {
            self.lines.push(format!("        {path}: {value}"));
        }
        for path in old.keys().filter(|path| !new.contains_key(*path)) {
            self.lines.push(format!("        {path} is gone"));
        }
    }

    /// An Event.
    pub fn note(&mut self, note: &Note) {
        let kind = if note.warning { "Warning" } else { "Normal" };
        self.line(&format!("Event {kind} {} {}: {}", note.reason, note.action, note.message));
    }

    /// Nothing is left to do now.
    pub fn rest(&mut self, plan: &Plan) {
        // the evidence to go on from is in the status already
        let gates = plan.need.gates.clone().map(|mut gates| {
            gates.resume.clear();
            gates
        });
        let rest = (plan.wake, Need { gates, ..plan.need.clone() });
        let old = self.rest.replace(rest.clone());
        if old.as_ref().map(|old| &old.1) != Some(&rest.1) {
            self.line(&format!("needs {:?}", rest.1));
        }
        if old.map(|old| old.0) != Some(rest.0) {
            let wake = rest.0.map_or("never".to_owned(), |wake| format!("at {}", wake.as_second() - at(0).as_second()));
            self.line(&format!("wakes {wake}"));
        }
    }
}

/// What is the same as something else that is told, or grows with every look at the metrics.
const UNTOLD: [&str; 6] = [
    ".refreshedAt",
    ".evidence[",
    ".lastTransitionTime",
    ".observedGeneration",
    "[Ready].message",
    "[Progressing].message",
];

/// Each value with its path. Members of a list are told by what Kubernetes tells them by.
fn flatten(path: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| flatten(&format!("{path}.{name}"), value, all)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = ["type", "name", "color", "ingress", "gate"].iter().find_map(|key| item[key].as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                flatten(&format!("{path}[{name}]"), item, all);
            }
        }
        Value::String(text) => drop(all.insert(path.to_owned(), text.clone())),
        other => drop(all.insert(path.to_owned(), other.to_string())),
    }
}
