//! What the engine wants done: data only. `shell/apply.rs` carries it out, in order, and decides nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::observed::{IngressSeen, PathSeen, PortSeen, TlsSeen};
use crate::api::reasons::Reason;
use crate::api::{Color, Evidence, ModelRolloutStatus};

/// One step towards the goal. Applying it and planning again at the same instant gives nothing more to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whether the status (the intent) or the traffic is written first.
    pub order: Order,
    /// Writes, in this order; the first that fails ends the pass.
    pub actions: Vec<Action>,
    /// The status as it shall be; written only if it differs.
    pub status: ModelRolloutStatus,
    /// Writes that come last, once the status is written: acts are removed only when their effect is on record.
    pub after: Vec<Action>,
    /// Events and log lines, published once the status is written.
    pub notes: Vec<Note>,
    /// The earliest instant at which the plan would differ although nothing else changed.
    pub wake: Option<Timestamp>,
    /// What must be watched and asked for the next plan.
    pub need: Need,
}

/// What is written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Intent before traffic: a raise.
    StatusFirst,
    /// Traffic before anything else: a rollback.
    TrafficFirst,
}

/// One write, with its precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Add our finalizer (JSON Patch with `test`).
    AddFinalizer,
    /// Remove our finalizer (JSON Patch with `test`).
    RemoveFinalizer,
    /// Remove an act's annotation (JSON Patch with `test` on its value).
    RemoveAct {
        /// The annotation.
        annotation: String,
        /// The value that was seen.
        value: String,
    },
    /// Create or replace an Ingress of our own.
    WriteIngress(IngressWant),
    /// Delete an Ingress of our own, with its uid as the precondition. Missing is done.
    DeleteIngress {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
        /// Whether production traffic depends on it. If the delete fails, the weight is set to 0 and the header
        /// annotations are removed in the same pass, and the delete is tried again.
        urgent: bool,
    },
    /// Switch the backend of a user's Ingress by one JSON Patch with `test` operations.
    SwitchBackend {
        /// Its name.
        ingress: String,
        /// Tested too if given (a promotion); a rollback tests host, path and Service only, since controllers write the
        /// status of an Ingress at any time.
        resource_version: Option<String>,
        /// The paths to change.
        paths: Vec<PathSwitch>,
    },
    /// Make a Job that judges. That there is one of its name is done; that it cannot be made stops nothing else.
    CreateJob(JobWant),
    /// Delete a Job of ours that nobody waits for any more, with its uid as the precondition, and its Pods with it.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Set the replicas of a Deployment through its `scale` subresource.
    Scale {
        /// Its name.
        deployment: String,
        /// As desired.
        replicas: i32,
        /// The precondition.
        resource_version: String,
        /// For a scale-down: the Ingresses must be read once more and must not name this Service in any backend.
        unless_serving: Option<ServingCheck>,
    },
}

/// A Job that judges a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobWant {
    /// Its name.
    pub name: String,
    /// Name of the PodTemplate that it is made from.
    pub template: String,
    /// How long it may take.
    pub deadline: Duration,
    /// Environment variables of every container, as name and value.
    pub env: Vec<(String, String)>,
}

/// Guards a scale-down: none of `ingresses` may name `service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingCheck {
    /// The Ingresses to read; a missing one passes, an unreadable one does not.
    pub ingresses: Vec<String>,
    /// The Service whose Pods are about to go.
    pub service: String,
}

/// One path whose backend Service changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSwitch {
    /// Index in `spec.rules`.
    pub rule: usize,
    /// Index in the rule's `http.paths`.
    pub index: usize,
    /// Tested if it is given: JSON Patch cannot test for absence.
    pub host: Option<String>,
    /// Tested if it is given.
    pub path: Option<String>,
    /// Tested.
    pub from: String,
    /// Written.
    pub to: String,
}

/// An Ingress of our own as it shall be, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressWant {
    /// Its name.
    pub name: String,
    /// The object that is there, as `(uid, resourceVersion)`; none: create.
    pub replaces: Option<(String, String)>,
    /// `spec.ingressClassName`.
    pub class: Option<String>,
    /// All its annotations.
    pub annotations: Vec<(String, String)>,
    /// Its paths, one rule each.
    pub paths: Vec<PathWant>,
    /// `spec.tls`.
    pub tls: Vec<TlsSeen>,
    /// Whether the rest of the pass depends on it. A rollback does not wait for an anchor that cannot be written.
    pub required: bool,
}

impl IngressWant {
    /// The same with the paths that `seen` has.
    #[must_use]
    pub fn with_paths_of(self, seen: &IngressSeen) -> Self {
        let path = |path: &PathSeen| {
            Some(PathWant {
                host: path.host.clone(),
                path: path.path.clone(),
                path_type: path.path_type.clone(),
                service: path.service.clone()?,
                port: path.port.clone()?,
            })
        };
        Self {
            paths: seen.paths.iter().filter_map(path).collect(),
            tls: seen.tls.clone(),
            class: seen.class.clone(),
            ..self
        }
    }

    /// Whether `seen` is just that.
    pub fn matches(&self, seen: &IngressSeen) -> bool {
        self.class == seen.class
            && self.annotations.len() == seen.annotations.len()
            && self.annotations.iter().all(|(key, value)| seen.annotations.get(key) == Some(value))
            && self.tls == seen.tls
            && seen.default_backend.is_none()
            && self.paths.len() == seen.paths.len()
            && self.paths.iter().zip(&seen.paths).all(|(want, seen)| {
                want.host == seen.host
                    && want.path == seen.path
                    && want.path_type == seen.path_type
                    && Some(&want.service) == seen.service.as_ref()
                    && Some(&want.port) == seen.port.as_ref()
            })
    }
}

/// One path of an Ingress of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWant {
    /// The rule's host.
    pub host: Option<String>,
    /// The path.
    pub path: Option<String>,
    /// Its type.
    pub path_type: String,
    /// The backend's Service.
    pub service: String,
    /// The backend's port.
    pub port: PortSeen,
}

/// Something worth telling: an Event and a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// The Event's reason.
    pub reason: Reason,
    /// The Event's action: differs between two facts with the same reason, since Events are folded by reason and action.
    pub action: String,
    /// The sentence.
    pub message: String,
}

/// What must be watched and asked for the next plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Need {
    /// Watch the Pods and EndpointSlices of both colors.
    pub pods: bool,
    /// Watch the ConfigMaps of these colors' prompts.
    pub prompts: BTreeSet<Color>,
    /// Ask the metrics sources.
    pub gates: Option<GateNeed>,
    /// Watch our Jobs.
    pub jobs: bool,
    /// Watch these PodTemplates, that Jobs are made from.
    pub job_templates: BTreeSet<String>,
}

/// What to ask the metrics sources.
#[derive(Clone, Debug, PartialEq)]
pub struct GateNeed {
    /// Changes whenever earlier evidence becomes void: attempt, stage, start of its clock, gate settings.
    pub key: String,
    /// One for each gate of the stage that asks.
    pub queries: Vec<GateQuery>,
    /// Counts that are on record already (after a restart): go on from their `through`.
    pub resume: Vec<Evidence>,
}

/// What to ask for one gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateQuery {
    /// Name of the gate.
    pub gate: String,
    /// Name of the source.
    pub source: String,
    /// The target's color.
    pub candidate: Color,
    /// Requests after this instant are counted.
    pub since: Timestamp,
    /// Until when what is counted belongs to the warm-up.
    pub warm_until: Timestamp,
    /// Names of the metrics that must be counters, or a histogram's.
    pub metrics: Vec<String>,
    /// What to ask.
    pub ask: Ask,
}

/// Selectors and queries with their placeholders filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Count bad and all requests of the target, and of the other color if it is compared.
    ErrorRate {
        /// Of the target.
        candidate: BadAndTotal,
        /// Of the other color.
        baseline: Option<BadAndTotal>,
    },
    /// Count the buckets of a histogram of the target, and of the other color if it is compared.
    Histogram {
        /// Selector of the target's buckets.
        candidate: String,
        /// Selector of the other color's buckets.
        baseline: Option<String>,
    },
    /// Evaluate a query.
    Value {
        /// The query. `{{window}}` is still in it: the shell fills in the time since `since` in whole seconds.
        query: String,
    },
}

/// Two selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAndTotal {
    /// Of bad requests.
    pub bad: String,
    /// Of all requests.
    pub total: String,
}

/// The least time between two refreshes of numbers in status that change no verdict.
pub const REFRESH: Duration = Duration::from_secs(10);
