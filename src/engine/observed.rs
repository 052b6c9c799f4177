//! What the shell saw, as plain facts. Each says how we know: `Found`, `Missing` or `Unreadable`; unreadable is never
//! missing. Nothing in here decides.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::time;
use crate::api::reasons::{JobOutcome, Reason, Span};
use crate::api::{Color, Evidence, names};

/// A fact about one object, and how we know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// The API server says that it is not there.
    Missing,
    /// It could not be read (yet); the text says why. Never to be taken for `Missing`.
    Unreadable(String),
}

/// Why something that is watched only when it is needed cannot be told in the first moment: no news, and soon over.
pub const NOT_YET: &str = "it is not read yet";

impl<T> Lookup<T> {
    /// The object, if it is there.
    pub fn found(&self) -> Option<&T> {
        match self {
            Lookup::Found(value) => Some(value),
            Lookup::Missing | Lookup::Unreadable(_) => None,
        }
    }

    /// Whether the API server says that it is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Lookup::Missing)
    }
}

/// One value for each color.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByColor<T> {
    /// Blue's.
    pub blue: T,
    /// Green's.
    pub green: T,
}

impl<T> ByColor<T> {
    /// That of `color`.
    pub fn get(&self, color: Color) -> &T {
        match color {
            Color::Blue => &self.blue,
            Color::Green => &self.green,
        }
    }
}

/// Everything that a plan is made from, besides the object itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The two sides.
    pub colors: ByColor<ColorSeen>,
    /// The Ingresses of `spec.traffic.ingress.names`, by name.
    pub ingresses: BTreeMap<String, Lookup<IngressSeen>>,
    /// Other Ingresses of the namespace that name one of the two Services, or that are canaries; never ours.
    pub others: Vec<IngressSeen>,
    /// The Ingress that has the name of our canary, whoever owns it.
    pub canary: Lookup<IngressSeen>,
    /// The Ingress that has the name of our anchor, whoever owns it.
    pub anchor: Lookup<IngressSeen>,
    /// The newest reading of each gate, by the gate's name.
    pub readings: BTreeMap<String, Reading>,
    /// Our Jobs that judge, by name; unreadable unless they are watched.
    pub jobs: Lookup<BTreeMap<String, JobSeen>>,
    /// Labels of the Pods of the PodTemplates that Jobs are made from, by name; unreadable unless they are watched.
    pub job_templates: BTreeMap<String, Lookup<Labels>>,
    /// Jobs that could not be made lately: why, and when that was tried.
    pub job_refusals: BTreeMap<String, (String, Timestamp)>,
    /// Name of an older ModelRollout that uses one of our Deployments, Services or Ingresses.
    pub elder: Option<String>,
    /// Time that the ingress controller is given to follow a write.
    pub settle: Duration,
}

impl Observed {
    /// Until when a controller may still be following our last change of a backend; none if that is over.
    pub fn follows_until(&self, now: Timestamp) -> Option<Timestamp> {
        let written = self.ingresses.values().filter_map(Lookup::found).filter_map(|main| main.rules_by_us).max()?;
        // the time on record is rounded down to a second
        let until = time::after(written, self.settle + Duration::from_secs(1));
        Some(until).filter(|until| now < *until)
    }
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColorSeen {
    /// Its Deployment.
    pub deployment: Lookup<DeploymentSeen>,
    /// Its Service.
    pub service: Lookup<ServiceSeen>,
    /// Its Pods; unreadable unless they are watched.
    pub pods: Lookup<PodsSeen>,
    /// How many ready endpoints its Service has; unreadable unless they are watched.
    pub endpoints: Lookup<i32>,
    /// The ConfigMap of its prompt; `Missing` also if the spec names none.
    pub prompt: Lookup<PromptSeen>,
    /// Names of the Deployments of the namespace whose Pods its Service selects.
    pub selected: BTreeSet<String>,
    /// The HorizontalPodAutoscaler that scales its Deployment.
    pub autoscaler: Option<String>,
}

/// What matters of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentSeen {
    /// Its uid: a deleted and re-created Deployment is another one.
    pub uid: String,
    /// Hash of its Pod template: tells that a change was undone, which `template_revision` counts as one more.
    pub template_hash: String,
    /// For preconditions.
    pub resource_version: String,
    /// Moves with every change of its spec, scaling included.
    pub generation: i64,
    /// The generation that its status is about.
    pub observed_generation: i64,
    /// The annotation `deployment.kubernetes.io/revision`: moves with the Pod template only.
    pub template_revision: String,
    /// `spec.replicas`.
    pub desired: i32,
    /// `status.replicas`.
    pub total: i32,
    /// `status.updatedReplicas`.
    pub updated: i32,
    /// `status.readyReplicas`.
    pub ready: i32,
    /// The Pod template's annotation `modelrollout.dev/model`.
    pub model: Option<String>,
    /// ConfigMaps that the Pod template refers to, by volume, projected volume, env or envFrom of any container.
    pub config_maps: BTreeSet<String>,
    /// Its Pod selector, as a label selector in text form.
    pub selector: String,
    /// Labels of the Pod template.
    pub labels: BTreeMap<String, String>,
    /// Images of its containers, init containers excepted.
    pub images: Vec<String>,
    /// How its Pods end.
    pub shutdown: Shutdown,
    /// Field manager that declares `spec.replicas` (server-side apply, or `kubectl apply`): it may set them back.
    pub replicas_declared_by: Option<String>,
    /// Who wrote `spec.replicas` last, and when.
    pub replicas_written: Option<Written>,
    /// Who set the replicas to what they are.
    pub replicas_by: ReplicasBy,
}

/// Who set `spec.replicas`, as far as the API server tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicasBy {
    /// The operator.
    Operator,
    /// Somebody else.
    #[default]
    Others,
    /// Nobody is on record. When replicas go to 0 through the subresource `scale`, which is how the operator and
    /// `kubectl scale` do it, the API server forgets who owns them, and keeps no owner for what is scaled that way later.
    /// Likewise if a server-side apply has left them out. What else is known must tell.
    Unknown,
}

impl ReplicasBy {
    /// Whether it may have been the operator.
    pub fn may_be_ours(self) -> bool {
        self != Self::Others
    }
}

/// How the Pods of a template end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: i64,
    /// Whether a container has a preStop hook.
    pub pre_stop: bool,
    /// The longest preStop `sleep`, in seconds.
    pub sleep_seconds: i64,
}

/// Who wrote a field, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its field manager.
    pub manager: String,
    /// The time of its last write.
    pub at: Timestamp,
}

/// What matters of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSeen {
    /// Its selector; empty: it selects no Pods.
    pub selector: BTreeMap<String, String>,
    /// Its ports.
    pub ports: Vec<ServicePortSeen>,
    /// `publishNotReadyAddresses`.
    pub publishes_not_ready: bool,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePortSeen {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its number.
    pub number: i32,
}

impl ServiceSeen {
    /// Whether it has the port that a path names.
    pub fn has(&self, port: &PortSeen) -> bool {
        self.ports.iter().any(|one| match port {
            PortSeen::Name(name) => one.name.as_ref() == Some(name),
            PortSeen::Number(number) => one.number == *number,
        })
    }

    /// Whether it selects Pods with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.selector.is_empty() && self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// What matters of the Pods that a Deployment's selector selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsSeen {
    /// Pods with the condition Ready=True that are not terminating. Never counted from the phase.
    pub ready: i32,
    /// Why others are not ready, such as `Unschedulable: 0/1 nodes are available`; the first few, in a fixed order.
    pub reasons: Vec<String>,
}

/// What matters of a prompt's ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptSeen {
    /// Hash of its `data` and `binaryData`.
    pub hash: String,
}

/// A port of a Service as an Ingress names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSeen {
    /// By name.
    Name(String),
    /// By number.
    Number(i32),
}

/// One path of an Ingress, with its place in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSeen {
    /// Index in `spec.rules`.
    pub rule: usize,
    /// Index in that rule's `http.paths`.
    pub index: usize,
    /// The rule's host.
    pub host: Option<String>,
    /// The path.
    pub path: Option<String>,
    /// `Exact`, `Prefix` or `ImplementationSpecific`.
    pub path_type: String,
    /// The backend's Service, if it is one.
    pub service: Option<String>,
    /// The backend's port.
    pub port: Option<PortSeen>,
}

/// A TLS entry of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSeen {
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Name of its Secret (never its content).
    pub secret_name: Option<String>,
}

/// What matters of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressSeen {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// For preconditions.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Uid of its controller owner.
    pub owner_uid: Option<String>,
    /// `spec.ingressClassName`.
    pub class: Option<String>,
    /// Annotations with the nginx prefix, and `kubernetes.io/ingress.class`.
    pub annotations: BTreeMap<String, String>,
    /// The Service of `spec.defaultBackend`.
    pub default_backend: Option<String>,
    /// Every path, in the order of the object.
    pub paths: Vec<PathSeen>,
    /// `spec.tls`.
    pub tls: Vec<TlsSeen>,
    /// Field managers of the object, newest write first, for messages.
    pub managers: Vec<String>,
    /// When the operator wrote its rules, with the backends in them; none if somebody else wrote them later.
    pub rules_by_us: Option<Timestamp>,
}

impl IngressSeen {
    /// Whether the ModelRollout of `uid` is its controller owner: then it is ours to change and to delete.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owner_uid.as_deref() == Some(uid)
    }

    /// Whether it is a canary in the nginx dialect.
    pub fn is_canary(&self) -> bool {
        self.annotations.get(names::NGINX_CANARY).is_some_and(|value| value == "true")
    }

    /// Whether any of its backends is `service`.
    pub fn uses(&self, service: &str) -> bool {
        self.default_backend.as_deref() == Some(service)
            || self.paths.iter().any(|path| path.service.as_deref() == Some(service))
    }
}

/// What the metrics source said of one gate, most recently.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The [`crate::engine::plan::GateNeed::key`] that it was taken for; a reading of another key is not evidence.
    pub key: String,
    /// When the source was asked.
    pub at: Timestamp,
    /// Its answer.
    pub answer: Answer,
}

/// The answer of a metrics source.
#[allow(clippy::large_enum_variant)] // one per gate, and most are the large one
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Requests of both colors were counted over the same time.
    Counted {
        /// The target's.
        candidate: Counted,
        /// The other color's, if it was asked, or why there are none: that says nothing against the target's.
        baseline: Option<Result<Counted, (Reason, String)>>,
    },
    /// One number.
    Value(f64),
    /// No usable answer: `NoData`, `QueryFailed`, `InvalidData`, `NotACounter` or `UnknownSource`, with a sentence.
    Problem(Reason, String),
}

/// Labels of Pods.
pub type Labels = BTreeMap<String, String>;

/// A Job of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSeen {
    /// Its uid.
    pub uid: String,
    /// How it ended; none while it runs.
    pub outcome: Option<JobOutcome>,
}

/// Exact counts of one color since the start of the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Up to the newest sample.
    pub now: Counts,
    /// Those of `now` that came in the warm-up.
    pub warmup: Counts,
    /// Up to [`Self::through`]: what is safe to store, since every sample up to there has arrived.
    pub settled: Counts,
    /// Those of `settled` that came in the warm-up.
    pub warmup_settled: Counts,
    /// See [`Self::settled`].
    pub through: Timestamp,
    /// Of about the last five minutes and the last minute, where the window is older than that.
    pub recent: Vec<(Span, Counts)>,
    /// Time of the newest sample.
    pub newest: Option<Timestamp>,
    /// Time between two samples, as far as that is known.
    pub interval: Option<Duration>,
}

impl Counted {
    /// All but the warm-up.
    pub fn judged(&self) -> Cow<'_, Counts> {
        if self.warmup.total == 0 { Cow::Borrowed(&self.now) } else { Cow::Owned(self.now.since(&self.warmup)) }
    }
}

/// Counts of requests. Integers: `increase()` extrapolates and misses the first burst of a new series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// All requests; of a histogram, those of its `+Inf` bucket.
    pub total: u64,
    /// Bad requests (`errorRate` only).
    pub bad: u64,
    /// Upper bounds in seconds, rising, without `+Inf` (`latency` only).
    pub bounds: Vec<f64>,
    /// Requests that took at most the bound of the same place (`latency` only).
    pub at_most: Vec<u64>,
    /// Whether the selector of all requests matched any series at all.
    pub seen: bool,
}

impl Counts {
    /// What is on record: all, and those of the warm-up.
    pub fn on_record(evidence: &Evidence) -> (Counts, Counts) {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let seen = evidence.total > 0;
        let all = Counts {
            total: count(evidence.total),
            bad: count(evidence.bad),
            bounds: evidence.bounds.clone(),
            at_most: evidence.counts.iter().map(|number| count(*number)).collect(),
            seen,
        };
        let (total, bad) = (count(evidence.warmup_total), count(evidence.warmup_bad));
        (all, Counts { total, bad, seen, ..Counts::default() })
    }

    /// What was counted after `earlier`, which counted from the same start.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        if earlier.total == 0 {
            return self.clone();
        }
        let (bounds, at_most) = self.with(earlier, u64::saturating_sub);
        let (total, bad) = (self.total.saturating_sub(earlier.total), self.bad.saturating_sub(earlier.bad));
        Counts { total, bad, bounds, at_most, seen: self.seen }
    }

    /// The two together. Of a histogram whose bounds have changed only those that stayed go on.
    #[must_use]
    pub fn and(&self, other: &Counts) -> Counts {
        let (bounds, at_most) = if self.total == 0 && self.bounds.is_empty() {
            (other.bounds.clone(), other.at_most.clone())
        } else if other.total == 0 && other.bounds.is_empty() {
            (self.bounds.clone(), self.at_most.clone())
        } else {
            self.with(other, u64::saturating_add)
        };
        let (total, bad) = (self.total.saturating_add(other.total), self.bad.saturating_add(other.bad));
        Counts { total, bad, bounds, at_most, seen: self.seen || other.seen }
    }

    /// The common bounds, with what `join` makes of the counts of both.
    fn with(&self, other: &Counts, join: impl Fn(u64, u64) -> u64) -> (Vec<f64>, Vec<u64>) {
        let mine = self.bounds.iter().zip(&self.at_most);
        let common = mine.filter_map(|(bound, count)| {
            let index = other.bounds.iter().position(|theirs| theirs.total_cmp(bound).is_eq())?;
            Some((*bound, join(*count, *other.at_most.get(index)?)))
        });
        common.unzip()
    }
}
