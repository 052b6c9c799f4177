//! What is kept of a Deployment: its Pod template, its replicas, and who writes them. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, PodSpec, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ManagedFieldsEntry, ObjectMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};

use super::convert::annotation;
use crate::api::names::{
    ANNOTATION_DEPLOYMENT_REVISION, ANNOTATION_MODEL, MANAGER_META, MANAGER_SCALE, MANAGER_STATUS, MANAGER_TRAFFIC,
};
use crate::engine::observed::{DeploymentSeen, ReplicasBy, Shutdown, Written};
use crate::engine::rollout::hex;

/// What `kubectl apply` without `--server-side` keeps of what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What the API server fills in where a template names no grace period.
const GRACE_SECONDS: i64 = 30;
/// A longer sleep than a day is a mistake in the reading.
const LONGEST_SLEEP: f64 = 86_400.0;

impl From<&Deployment> for DeploymentSeen {
    fn from(object: &Deployment) -> Self {
        let meta = &object.metadata;
        let spec = object.spec.as_ref();
        let status = object.status.as_ref();
        let template = spec.and_then(|spec| spec.template.metadata.as_ref());
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            template_hash: spec.map(|spec| template_hash(&spec.template)).unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or(0),
            observed_generation: status.and_then(|status| status.observed_generation).unwrap_or(0),
            template_revision: annotation(meta, ANNOTATION_DEPLOYMENT_REVISION).unwrap_or_default(),
            desired: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            total: status.and_then(|status| status.replicas).unwrap_or(0),
            updated: status.and_then(|status| status.updated_replicas).unwrap_or(0),
            ready: status.and_then(|status| status.ready_replicas).unwrap_or(0),
            model: template.and_then(|meta| annotation(meta, ANNOTATION_MODEL)),
            config_maps: pod.map(config_maps).unwrap_or_default(),
            selector: spec.map(|spec| selector(&spec.selector)).unwrap_or_default(),
            labels: template.and_then(|meta| meta.labels.clone()).unwrap_or_default(),
            images: pod.map(images).unwrap_or_default(),
            shutdown: pod.map(shutdown).unwrap_or_default(),
            replicas_declared_by: declared_by(meta),
            replicas_written: written(meta),
            replicas_by: replicas_by(meta),
        }
    }
}

fn template_hash(template: &PodTemplateSpec) -> String {
    let bytes = serde_json::to_vec(template).unwrap_or_default();
    hex(&Sha256::digest(&bytes), 8)
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

fn images(pod: &PodSpec) -> Vec<String> {
    pod.containers.iter().filter_map(|container| container.image.clone()).collect()
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

fn shutdown(pod: &PodSpec) -> Shutdown {
    let hooks = || pod.containers.iter().filter_map(|container| container.lifecycle.as_ref()?.pre_stop.as_ref());
    Shutdown {
        grace_seconds: pod.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS),
        pre_stop: hooks().next().is_some(),
        sleep_seconds: hooks().map(sleep).max().unwrap_or(0),
    }
}

/// How long a hook sleeps: by its own field, or by the `sleep`s of its command or of the script in it.
fn sleep(hook: &LifecycleHandler) -> i64 {
    if let Some(action) = &hook.sleep {
        return action.seconds;
    }
    let command = hook.exec.iter().flat_map(|exec| exec.command.iter().flatten());
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, ';' | '&' | '|');
    let words: Vec<&str> = command.flat_map(|part| part.split(ends)).filter(|word| !word.is_empty()).collect();
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs.filter(|(word, _)| word.rsplit('/').next() == Some("sleep")).filter_map(|(_, time)| seconds(time)).sum()
}

/// The argument of `sleep`: seconds, or minutes with an `m`.
fn seconds(text: &str) -> Option<i64> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    (0.0..=LONGEST_SLEEP).contains(&seconds).then_some(seconds.ceil() as i64)
}

/// Who declares `spec.replicas`, and so may set them back: a server-side apply that owns them, or `kubectl apply`.
fn declared_by(meta: &ObjectMeta) -> Option<String> {
    let others = || owners(meta).filter(|entry| !entry.manager.as_deref().is_some_and(is_ours) && is_whole(entry));
    if let Some(entry) = others().find(|entry| entry.operation.as_deref() == Some("Apply")) {
        return entry.manager.clone();
    }
    if !was_applied(meta) {
        return None;
    }
    let newest = newest(others().filter(|entry| entry.operation.as_deref() == Some("Update")));
    Some(newest.and_then(|entry| entry.manager.clone()).unwrap_or_else(|| "kubectl apply".to_owned()))
}

/// Who wrote `spec.replicas` last, by whatever way.
fn written(meta: &ObjectMeta) -> Option<Written> {
    let entry = newest(owners(meta).filter(|entry| entry.time.is_some()))?;
    Some(Written { manager: entry.manager.clone().unwrap_or_default(), at: entry.time.as_ref()?.0 })
}

/// Who set the replicas. A write through the subresource `scale` has no time, so it is never the newest; and one to 0
/// leaves no owner, since a Scale of 0 has no replicas at all.
fn replicas_by(meta: &ObjectMeta) -> ReplicasBy {
    let mut owners = owners(meta).map(|entry| entry.manager.as_deref() == Some(MANAGER_SCALE)).peekable();
    if owners.peek().is_none() {
        ReplicasBy::Unknown
    } else if owners.any(|ours| ours) {
        ReplicasBy::Operator
    } else {
        ReplicasBy::Others
    }
}

/// The entries that own `spec.replicas`.
fn owners(meta: &ObjectMeta) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let entries = meta.managed_fields.iter().flatten();
    entries.filter(|entry| {
        let spec = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:spec"));
        spec.is_some_and(|spec| spec.get("f:replicas").is_some())
    })
}

fn newest<'a>(entries: impl Iterator<Item = &'a ManagedFieldsEntry>) -> Option<&'a ManagedFieldsEntry> {
    entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
}

/// Whether an entry is of the object itself, not of a subresource such as `scale`.
fn is_whole(entry: &ManagedFieldsEntry) -> bool {
    entry.subresource.as_deref().is_none_or(str::is_empty)
}

fn is_ours(manager: &str) -> bool {
    [MANAGER_META, MANAGER_SCALE, MANAGER_STATUS, MANAGER_TRAFFIC].contains(&manager)
}

/// Whether `kubectl apply` was given replicas.
fn was_applied(meta: &ObjectMeta) -> bool {
    // only what is asked for is read: the annotation holds the whole object
    #[derive(Deserialize)]
    struct Applied {
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    struct Spec {
        replicas: Option<IgnoredAny>,
    }
    let text = meta.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
    let applied: Option<Applied> = text.and_then(|text| serde_json::from_str(text).ok());
    applied.and_then(|applied| applied.spec).is_some_and(|spec| spec.replicas.is_some())
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
