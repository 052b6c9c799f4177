//! From API objects to the compact facts of [`crate::engine::observed`]. Pure; drops everything that nobody asks for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, PodTemplate, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{HTTPIngressPath, Ingress, ServiceBackendPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::api::names::{ANNOTATION_INGRESS_CLASS, MANAGER_TRAFFIC, NGINX_PREFIX};
use crate::api::reasons::JobOutcome;
use crate::engine::observed::{
    IngressSeen, JobSeen, Labels, PathSeen, PortSeen, PromptSeen, ServicePortSeen, ServiceSeen, TlsSeen,
};
use crate::engine::rollout::hex;

/// One Pod: none if it is ready, else why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen(pub Option<String>);

/// The longest reason that is kept of a Pod.
const REASON: usize = 160;

/// An annotation of an object.
pub(super) fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations.as_ref().and_then(|all| all.get(key)).cloned()
}

impl From<&Service> for ServiceSeen {
    fn from(object: &Service) -> Self {
        let spec = object.spec.as_ref();
        let ports = spec.and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
        Self {
            selector: spec.and_then(|spec| spec.selector.clone()).unwrap_or_default(),
            ports: ports.map(|port| ServicePortSeen { name: port.name.clone(), number: port.port }).collect(),
            publishes_not_ready: spec.and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false),
        }
    }
}

/// The Deployment that an autoscaler scales; none if it scales something else.
pub fn scaled_deployment(object: &HorizontalPodAutoscaler) -> Option<String> {
    let target = &object.spec.as_ref()?.scale_target_ref;
    let group = target.api_version.as_deref().and_then(|version| version.split_once('/'));
    let is_deployment = target.kind == "Deployment" && group.is_some_and(|(group, _)| group == "apps");
    is_deployment.then(|| target.name.clone())
}

/// What is read of a PodTemplate: reading all of a Pod's settings would make the program, and so its memory, larger.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "PodTemplate")]
pub struct PodTemplateRead {
    metadata: ObjectMeta,
    template: Option<TemplateRead>,
}

#[derive(Clone, Debug, Deserialize)]
struct TemplateRead {
    metadata: Option<ObjectMeta>,
}

/// What is read of a Job.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Job")]
pub struct JobRead {
    /// Name, uid, owners.
    pub metadata: ObjectMeta,
    status: Option<JobStatusRead>,
}

#[derive(Clone, Debug, Deserialize)]
struct JobStatusRead {
    #[serde(default)]
    conditions: Vec<JobConditionRead>,
}

#[derive(Clone, Debug, Deserialize)]
struct JobConditionRead {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
}

/// Labels of the Pods of a template.
pub fn job_labels(object: &PodTemplateRead) -> Labels {
    let meta = object.template.as_ref().and_then(|template| template.metadata.as_ref());
    meta.and_then(|meta| meta.labels.clone()).unwrap_or_default()
}

impl From<&JobRead> for JobSeen {
    fn from(object: &JobRead) -> Self {
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        let outcome = conditions.filter(|one| one.status == "True").find_map(|one| match one.kind.as_str() {
            "Complete" => Some(JobOutcome::Succeeded),
            "Failed" if one.reason.as_deref() == Some("DeadlineExceeded") => Some(JobOutcome::DeadlineExceeded),
            "Failed" if one.reason.as_deref() == Some("BackoffLimitExceeded") => Some(JobOutcome::Killed),
            "Failed" => Some(JobOutcome::Failed),
            _ => None,
        });
        Self { uid: object.metadata.uid.clone().unwrap_or_default(), outcome }
    }
}

impl From<&Ingress> for IngressSeen {
    fn from(object: &Ingress) -> Self {
        let meta = &object.metadata;
        let spec = object.spec.as_ref();
        let default = spec.and_then(|spec| spec.default_backend.as_ref());
        let owners = meta.owner_references.iter().flatten();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            owner_uid: owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next(),
            class: spec.and_then(|spec| spec.ingress_class_name.clone()),
            annotations: traffic_annotations(meta),
            default_backend: default.and_then(|backend| backend.service.as_ref()).map(|service| service.name.clone()),
            paths: paths(object),
            tls: tls(object),
            managers: managers(meta),
            rules_by_us: rules_by_us(meta),
        }
    }
}

fn traffic_annotations(meta: &ObjectMeta) -> BTreeMap<String, String> {
    let ours = |key: &str| key.starts_with(NGINX_PREFIX) || key == ANNOTATION_INGRESS_CLASS;
    let all = meta.annotations.iter().flatten();
    all.filter(|(key, _)| ours(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn paths(object: &Ingress) -> Vec<PathSeen> {
    let rules = object.spec.iter().flat_map(|spec| spec.rules.iter().flatten()).enumerate();
    let mut all = Vec::new();
    for (rule, one) in rules {
        let paths = one.http.iter().flat_map(|http| &http.paths).enumerate();
        all.extend(paths.map(|(index, path)| seen_path(rule, index, one.host.clone(), path)));
    }
    all
}

fn seen_path(rule: usize, index: usize, host: Option<String>, path: &HTTPIngressPath) -> PathSeen {
    let service = path.backend.service.as_ref();
    PathSeen {
        rule,
        index,
        host,
        path: path.path.clone(),
        path_type: path.path_type.clone(),
        service: service.map(|service| service.name.clone()),
        port: service.and_then(|service| service.port.as_ref()).and_then(port),
    }
}

fn port(port: &ServiceBackendPort) -> Option<PortSeen> {
    port.name.clone().map(PortSeen::Name).or(port.number.map(PortSeen::Number))
}

fn tls(object: &Ingress) -> Vec<TlsSeen> {
    let all = object.spec.iter().flat_map(|spec| spec.tls.iter().flatten());
    all.map(|one| TlsSeen { hosts: one.hosts.clone().unwrap_or_default(), secret_name: one.secret_name.clone() })
        .collect()
}

/// Field managers of an object, newest write first, each once. Who writes only its status has changed nothing of it.
fn managers(meta: &ObjectMeta) -> Vec<String> {
    let all = meta.managed_fields.iter().flatten();
    let mut entries: Vec<_> = all.filter(|entry| entry.subresource.as_deref() != Some("status")).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.time.as_ref().map(|time| time.0)));
    let mut names: Vec<String> = Vec::new();
    for name in entries.iter().filter_map(|entry| entry.manager.as_ref()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// When we wrote the rules of an Ingress, if nobody did later. They are owned as a whole: whoever changes one owns all.
fn rules_by_us(meta: &ObjectMeta) -> Option<Timestamp> {
    let owns = |entry: &&ManagedFieldsEntry| {
        entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:spec/f:rules")).is_some()
    };
    let newest = meta.managed_fields.iter().flatten().filter(owns).max_by_key(|it| it.time.as_ref().map(|at| at.0));
    newest.filter(|entry| entry.manager.as_deref() == Some(MANAGER_TRAFFIC))?.time.as_ref().map(|time| time.0)
}

impl From<&Pod> for PodSeen {
    fn from(object: &Pod) -> Self {
        if object.metadata.deletion_timestamp.is_some() {
            return Self(Some("terminating".to_owned()));
        }
        let status = object.status.as_ref();
        let conditions = || status.iter().flat_map(|status| status.conditions.iter().flatten());
        // never the phase: a Pod that is Running may not be ready, and one that fails liveness still runs
        if conditions().any(|one| one.type_ == "Ready" && one.status == "True") {
            return Self(None);
        }
        let unscheduled = conditions().find(|one| one.type_ == "PodScheduled" && one.status == "False");
        if let Some(one) = unscheduled {
            let reason = one.reason.as_deref().unwrap_or("Unschedulable");
            return Self(Some(short(&format!("{reason}: {}", one.message.as_deref().unwrap_or_default()))));
        }
        let containers = || {
            let statuses = status.iter();
            statuses.flat_map(|status| {
                status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
            })
        };
        let waiting = || containers().filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone());
        let reason = waiting().next().or_else(|| containers().find_map(restarted));
        Self(Some(reason.map_or_else(|| "not ready".to_owned(), |reason| short(&reason))))
    }
}

/// How a container that was restarted ended before. Without a count, which would be news at every restart.
fn restarted(container: &ContainerStatus) -> Option<String> {
    let last = container.last_state.as_ref()?.terminated.as_ref().filter(|_| container.restart_count > 0)?;
    let reason = last.reason.as_deref().unwrap_or("Error");
    Some(format!("restarted, last ended with {reason} (exit code {})", last.exit_code))
}

fn short(text: &str) -> String {
    text.trim_end_matches([' ', ':']).chars().take(REASON).collect()
}

/// The ready, not terminating targets of one slice: the Pod's uid, or an address.
pub fn ready_targets(slice: &EndpointSlice) -> BTreeSet<String> {
    let ready = slice.endpoints.iter().filter(|one| {
        let conditions = one.conditions.as_ref();
        conditions.and_then(|it| it.ready) != Some(false) && conditions.and_then(|it| it.terminating) != Some(true)
    });
    ready
        .filter_map(|one| {
            let pod = one.target_ref.as_ref().and_then(|target| target.uid.clone());
            pod.or_else(|| one.addresses.first().cloned())
        })
        .collect()
}

impl From<&ConfigMap> for PromptSeen {
    fn from(object: &ConfigMap) -> Self {
        let mut hash = Sha256::new();
        // each part with its length before it, so that no two contents run together
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        for (key, value) in object.data.iter().flatten() {
            part(b"data");
            part(key.as_bytes());
            part(value.as_bytes());
        }
        for (key, value) in object.binary_data.iter().flatten() {
            part(b"binaryData");
            part(key.as_bytes());
            part(&value.0);
        }
        Self { hash: hex(&hash.finalize(), 8) }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
