//! What the demo does to the cluster, as `kubectl` would, and what it asks it.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use modelrollout::api::{Color, ModelRollout};
use tokio::time::sleep;

use crate::manifests::{NAME, NAMESPACE, Object};

/// The name that `kubectl apply --server-side` uses too.
const MANAGER: &str = "kubectl";

/// `kubectl apply --server-side`
pub async fn apply(client: &Client, objects: &[Object]) -> Result<(), String> {
    for Object { resource, object } in objects {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, resource);
        let name = object.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(object))
            .await
            .map_err(|error| failed(&format!("{} {name} cannot be applied", resource.kind), error))?;
    }
    Ok(())
}

/// A Deployment.
pub async fn deployment(client: &Client, color: Color) -> Result<Deployment, String> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let name = format!("{NAME}-{color}");
    api.get(&name).await.map_err(|error| failed(&format!("Deployment {name} cannot be read"), error))
}

/// `kubectl rollout status`: waits until a Deployment is as asked for.
pub async fn until_deployment(
    client: &Client,
    color: Color,
    (limit, what): (Duration, &str),
    is_so: impl Fn(&Deployment) -> bool,
) -> Result<(), String> {
    let began = Instant::now();
    while !is_so(&deployment(client, color).await?) {
        if began.elapsed() > limit {
            return Err(format!("it took more than {} s until {what}", limit.as_secs()));
        }
        sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}

/// Whether the Deployment controller has seen the last change.
pub fn observed(deployment: &Deployment) -> bool {
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    observed >= deployment.metadata.generation
}

/// How many Pods are ready.
pub fn ready(deployment: &Deployment) -> i32 {
    deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
}

/// How many Pods are wanted.
pub fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// What `kubectl describe` would show, for the end of a demo that went wrong.
pub async fn describe(client: &Client, rollout: Option<&ModelRollout>) -> String {
    let mut lines = Vec::new();
    if let Some(status) = rollout.and_then(|rollout| rollout.status.as_ref()) {
        let phase = status.phase.map(|phase| phase.to_string()).unwrap_or_default();
        lines.push(format!("{phase}: {}", status.summary.message));
        for gate in &status.gates {
            lines.push(format!("  gate {}: {} {}: {}", gate.name, gate.verdict, gate.reason, gate.message));
        }
        for condition in &status.conditions {
            let Condition { type_, status, reason, message, .. } = condition;
            lines.push(format!("  {type_}={status} {reason}: {message}"));
        }
    }
    lines.push("Events:".to_owned());
    let api: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    match api.list(&ListParams::default()).await {
        Ok(list) => {
            let mut events: Vec<_> = list.items.into_iter().filter(worth_showing).collect();
            events.sort_by_key(time);
            lines.extend(events.iter().map(line));
        }
        Err(error) => lines.push(format!("  they cannot be read: {error}")),
    }
    lines.join("\n")
}

/// Those of the rollout, and whatever is a warning.
fn worth_showing(event: &Event) -> bool {
    let about = event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref());
    about == Some("ModelRollout") || event.type_.as_deref() == Some("Warning")
}

/// When it was made; those of other components have only an old field for it.
fn time(event: &Event) -> Option<Timestamp> {
    let made = event.event_time.as_ref().map(|time| time.0);
    made.or_else(|| event.deprecated_last_timestamp.as_ref().map(|time| time.0))
}

fn line(event: &Event) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let about = event.regarding.clone().unwrap_or_default();
    let time = time(event).map(|time| time.to_string()).unwrap_or_default();
    let (kind, name) = (text(&about.kind), text(&about.name));
    format!("  {time} {} {kind}/{name} {}: {}", text(&event.type_), text(&event.reason), text(&event.note))
}

/// What the API server said, without the rest of its answer.
fn failed(what: &str, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{what}: {}", status.message),
        other => format!("{what}: {other}"),
    }
}
