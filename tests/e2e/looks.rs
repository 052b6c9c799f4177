//! What several scenarios look at, and what people do by hand.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use modelrollout::api::reasons::Reason;
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde_json::json;

use crate::cluster::tool;
use crate::harness::{SHORT, Scenario, condition, eventually, status_if};
use crate::http;

/// Runs the command that a message ends with.
pub fn run_command_in(message: &str) {
    let command = message.rsplit_once("run: kubectl ").unwrap_or_else(|| panic!("no command in: {message}")).1;
    let output = tool("kubectl").args(command.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Scenario {
    /// Waits until the ingress controller follows a switch to Pods that answer.
    pub async fn answers_again(&self) {
        eventually("the ingress controller follows", SHORT, async || {
            for _ in 0..20 {
                http::get(&self.host, "/v1/models", &[]).await?.ok()?;
            }
            Ok(())
        })
        .await;
    }

    /// Waits until a condition has that status and reason.
    pub async fn condition(&self, kind: &str, truth: &str, reason: Reason) -> ModelRolloutStatus {
        self.condition_within(SHORT, kind, truth, reason).await
    }

    /// The same with another patience.
    pub async fn condition_within(
        &self,
        within: Duration,
        kind: &str,
        truth: &str,
        reason: Reason,
    ) -> ModelRolloutStatus {
        let wanted = (truth.to_owned(), reason.to_string());
        let what = format!("{kind}={truth}/{reason}");
        self.until(&what, within, |object| status_if(object, |status| condition(status, kind) == wanted)).await
    }

    /// The message of a condition.
    pub fn told(status: &ModelRolloutStatus, kind: &str) -> String {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|condition| condition.message.clone()).unwrap_or_default()
    }

    /// Waits for an Event whose note has `text` in it.
    pub async fn event_with(&self, reason: Reason, text: &str) -> String {
        eventually(&format!("an Event {reason} with \"{text}\""), SHORT, async || {
            let events = self.events().await;
            let found = events.iter().find(|(name, note)| name == reason.as_str() && note.contains(text));
            found.map(|event| event.1.clone()).ok_or_else(|| format!("{events:#?}"))
        })
        .await
    }

    /// How many Events of that reason there are.
    pub async fn count_events(&self, reason: Reason) -> usize {
        self.events().await.iter().filter(|event| event.0 == reason.as_str()).count()
    }

    /// Waits until the ModelRollout has no act.
    pub async fn acts_removed(&self) {
        let none = |object: &ModelRollout| {
            let mut names = object.metadata.annotations.iter().flatten();
            (!names.any(|(name, _)| name.starts_with("modelrollout.dev/"))).then_some(())
        };
        self.until("the act is removed", SHORT, none).await;
    }

    /// The writes that the operators of this scenario made, by their logs. Managed fields would not do: the API server
    /// keeps no entry for a write of replicas through `scale`.
    pub fn writes(&self) -> Vec<String> {
        let logs = self.launcher.logs();
        let lines = logs.iter().flat_map(|(_, log)| log.lines());
        let names = lines.filter_map(|line| line.split_once("\"write\":\"")?.1.split_once('"'));
        names.map(|(name, _)| name.to_owned()).collect()
    }

    /// Asserts that the operator has written nothing but the status, and has no Ingress of its own.
    pub async fn nothing_written(&self) {
        let writes = self.writes();
        assert!(writes.iter().all(|write| write == "status"), "{writes:?}");
        let all = ListParams::default();
        let ours = |manager: Option<&str>| manager.is_some_and(|name| name.starts_with("modelrollout.dev/"));
        for ingress in self.api::<Ingress>().list(&all).await.unwrap() {
            let name = ingress.name_any();
            assert!(ingress.owner_references().is_empty(), "{name} is ours");
            let written = ingress.managed_fields().iter().any(|entry| ours(entry.manager.as_deref()));
            assert!(!written, "{name}: {:?}", ingress.managed_fields());
        }
        let object = self.api::<ModelRollout>().get(&self.setup.name).await.unwrap();
        assert!(object.finalizers().is_empty() && object.status.unwrap().attempt.is_none());
    }

    /// Names `service` in the first path of an Ingress, as `kubectl edit` does.
    pub async fn switch_by_hand(&self, ingress: &str, service: &str) {
        let place = "/spec/rules/0/http/paths/0/backend/service/name";
        let patch = serde_json::from_value(json!([{ "op": "replace", "path": place, "value": service }])).unwrap();
        let params = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        self.api::<Ingress>().patch(ingress, &params, &Patch::Json::<()>(patch)).await.unwrap();
    }

    /// `kubectl scale`.
    pub async fn scale_by_hand(&self, deployment: &str, replicas: i32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let params = PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
        self.api::<Deployment>().patch_scale(deployment, &params, &patch).await.unwrap();
    }

    /// Waits until a Deployment has so many ready Pods.
    pub async fn ready(&self, deployment: &str, wanted: i32) {
        eventually(&format!("{wanted} ready Pods of {deployment}"), crate::harness::LONG, async || {
            let status = self.api::<Deployment>().get(deployment).await.unwrap().status.unwrap_or_default();
            let ready = status.ready_replicas.unwrap_or(0);
            if ready == wanted { Ok(()) } else { Err(format!("{ready}")) }
        })
        .await;
    }
}
