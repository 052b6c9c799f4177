//! What several scenarios look at, and what people do by hand.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use modelrollout::api::reasons::Reason;
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cluster::tool;
use crate::harness::{SHORT, Scenario, condition, eventually, status_if};

impl Scenario {
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

    /// Runs the command that a message ends with.
    pub async fn run_command_in(&self, message: &str) {
        let command = message.rsplit_once("run: kubectl ").unwrap_or_else(|| panic!("no command in: {message}")).1;
        let output = tool("kubectl").args(command.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits until the ModelRollout has no act.
    pub async fn acts_removed(&self) {
        let none = |object: &ModelRollout| {
            let mut names = object.metadata.annotations.iter().flatten();
            (!names.any(|(name, _)| name.starts_with("modelrollout.dev/"))).then_some(())
        };
        self.until("the act is removed", SHORT, none).await;
    }

    /// Who has ever written to an object.
    pub async fn managers<K>(&self, name: &str) -> Vec<String>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let object = self.api::<K>().get(name).await.unwrap();
        object.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect()
    }

    /// Asserts that the operator has written no object of anybody, and has none of its own.
    pub async fn nothing_written(&self) {
        let all = ListParams::default();
        let ours = |manager: Option<&str>| manager.is_some_and(|name| name.starts_with("modelrollout.dev/"));
        for ingress in self.api::<Ingress>().list(&all).await.unwrap() {
            let name = ingress.name_any();
            assert!(ingress.owner_references().is_empty(), "{name} is ours");
            let written = ingress.managed_fields().iter().any(|entry| ours(entry.manager.as_deref()));
            assert!(!written, "{name}: {:?}", ingress.managed_fields());
        }
        for deployment in self.api::<Deployment>().list(&all).await.unwrap() {
            let written = deployment.managed_fields().iter().any(|entry| ours(entry.manager.as_deref()));
            assert!(!written, "{}: {:?}", deployment.name_any(), deployment.managed_fields());
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
