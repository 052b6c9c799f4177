//! From API objects to the compact facts of [`crate::engine::observed`]. Pure; drops everything that nobody asks for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, Service, Volume};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{HTTPIngressPath, Ingress, ServiceBackendPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::api::names::{ANNOTATION_DEPLOYMENT_REVISION, ANNOTATION_INGRESS_CLASS, ANNOTATION_MODEL, NGINX_PREFIX};
use crate::engine::observed::{DeploymentSeen, IngressSeen, PathSeen, PortSeen, PromptSeen, ServiceSeen, TlsSeen};

/// One Pod: none if it is ready, else why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen(pub Option<String>);

/// The longest reason that is kept of a Pod.
const REASON: usize = 160;

impl From<&Deployment> for DeploymentSeen {
    fn from(object: &Deployment) -> Self {
        let spec = object.spec.as_ref();
        let status = object.status.as_ref();
        let template = spec.map(|spec| &spec.template);
        let pod = template.and_then(|template| template.spec.as_ref());
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(0),
            observed_generation: status.and_then(|status| status.observed_generation).unwrap_or(0),
            template_revision: annotation(&object.metadata, ANNOTATION_DEPLOYMENT_REVISION).unwrap_or_default(),
            desired: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            total: status.and_then(|status| status.replicas).unwrap_or(0),
            updated: status.and_then(|status| status.updated_replicas).unwrap_or(0),
            ready: status.and_then(|status| status.ready_replicas).unwrap_or(0),
            model: template
                .and_then(|template| template.metadata.as_ref())
                .and_then(|meta| annotation(meta, ANNOTATION_MODEL)),
            config_maps: pod.map(config_maps).unwrap_or_default(),
            selector: spec.map(|spec| selector(&spec.selector)).unwrap_or_default(),
        }
    }
}

fn annotation(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.annotations.as_ref().and_then(|all| all.get(key)).cloned()
}

/// ConfigMaps that the Pods of a template read.
fn config_maps(pod: &PodSpec) -> BTreeSet<String> {
    let volumes = pod.volumes.iter().flatten().flat_map(of_volume);
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten()).flat_map(of_container);
    volumes.chain(containers).collect()
}

fn of_volume(volume: &Volume) -> Vec<String> {
    let plain = volume.config_map.iter().map(|source| source.name.clone());
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = sources.filter_map(|source| source.config_map.as_ref()).map(|source| source.name.clone());
    plain.chain(projected).collect()
}

fn of_container(container: &Container) -> Vec<String> {
    let env = container.env.iter().flatten().filter_map(|var| var.value_from.as_ref());
    let keys = env.filter_map(|from| from.config_map_key_ref.as_ref()).map(|key| key.name.clone());
    let whole = container.env_from.iter().flatten().filter_map(|from| from.config_map_ref.as_ref());
    keys.chain(whole.map(|source| source.name.clone())).collect()
}

/// A label selector as text, as the API takes it in a query.
fn selector(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let more = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(",");
        match one.operator.as_str() {
            "Exists" => one.key.clone(),
            "DoesNotExist" => format!("!{}", one.key),
            "NotIn" => format!("{} notin ({values})", one.key),
            _ => format!("{} in ({values})", one.key),
        }
    });
    equal.chain(more).collect::<Vec<_>>().join(",")
}

impl From<&Service> for ServiceSeen {
    fn from(object: &Service) -> Self {
        let selector = object.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Self { has_selector: selector.is_some_and(|selector| !selector.is_empty()) }
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

/// Field managers of an object, newest write first, each once.
fn managers(meta: &ObjectMeta) -> Vec<String> {
    let mut entries: Vec<_> = meta.managed_fields.iter().flatten().collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.time.as_ref().map(|time| time.0)));
    let mut names: Vec<String> = Vec::new();
    for name in entries.iter().filter_map(|entry| entry.manager.as_ref()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
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
        let containers = status.iter().flat_map(|status| {
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
        });
        let waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone());
        Self(Some(waiting.map(|reason| short(&reason)).next().unwrap_or_else(|| "not ready".to_owned())))
    }
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
        let digits = hash.finalize();
        let digits = digits.iter().take(8).fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
        Self { hash: format!("{digits:016x}") }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
