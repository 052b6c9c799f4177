//! What runs Pods: the controllers of Deployments, EndpointSlices and Jobs, and the kubelet. Rolling updates surge by all
//! Pods at once, and Pods hang on their Deployment directly: nobody who is tested here looks at `ReplicaSets`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::random::Random;
use crate::server::{Change, Verb};

/// Makes a request: method, path, body; gives the HTTP status and the answer.
pub type Api<'a> = &'a dyn Fn(&str, &str, &Value) -> (u16, Value);

/// How long things take, in milliseconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// A controller notices a change after at least and at most this.
    pub notice: (u64, u64),
    /// A new Pod becomes ready after at least and at most this.
    pub load: (u64, u64),
    /// A Pod that ends goes on for so long: for the answers that it streams.
    pub grace: u64,
    /// A Job ends after this.
    pub job: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { notice: (5, 60), load: (4_000, 9_000), grace: 240_000, job: 2_000 }
    }
}

/// A Pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Name of its Deployment.
    pub deployment: String,
    /// Hash of the template that it was made from.
    pub template: u64,
    /// It answers.
    pub ready: bool,
    /// It is being deleted, and ends then.
    pub ends_at: Option<u64>,
    /// What happened to it is nobody's fault but a fault's: a node that was lost.
    pub lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Deployment(String),
    Ready(String),
    End(String),
    Slice(String),
    Job(String),
    Garbage,
}

/// Everything that runs in one namespace.
pub struct Workloads {
    namespace: String,
    times: Times,
    random: Random,
    pods: BTreeMap<String, Pod>,
    /// Template hash and revision, by Deployment.
    revisions: BTreeMap<String, (u64, u64)>,
    tasks: BTreeSet<(u64, Task)>,
    created: u64,
    /// New Pods of this Deployment never become ready.
    pub stuck: Option<String>,
    /// Jobs fail.
    pub jobs_fail: bool,
}

/// FNV-1a: the same for the same text in every run.
fn hash(value: &Value) -> u64 {
    value
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    object.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(pairs) = selector.as_object().filter(|pairs| !pairs.is_empty()) else { return false };
    pairs.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Workloads {
    /// Nothing runs yet.
    pub fn new(namespace: &str, seed: u64, times: Times) -> Self {
        Self {
            namespace: namespace.to_owned(),
            times,
            random: Random::new(seed),
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            tasks: BTreeSet::new(),
            created: 0,
            stuck: None,
            jobs_fail: false,
        }
    }

    /// The Pods that exist, by name.
    pub fn pods(&self) -> &BTreeMap<String, Pod> {
        &self.pods
    }

    /// How many Pods of a Deployment are ready and stay.
    pub fn ready(&self, deployment: &str) -> usize {
        self.pods.values().filter(|pod| pod.deployment == deployment && pod.ready && pod.ends_at.is_none()).count()
    }

    /// A change was committed: whoever must look at it will.
    pub fn changed(&mut self, change: &Change, now: u64) {
        let name = change.name.clone();
        match change.resource.as_str() {
            "apps/v1/deployments" => self.soon(now, Task::Deployment(name)),
            "v1/pods" => {
                if let Some(pod) = self.pods.get(&name) {
                    let deployment = pod.deployment.clone();
                    self.soon(now, Task::Deployment(deployment));
                }
                if change.verb == Verb::Delete {
                    self.pods.remove(&name);
                }
                self.soon(now, Task::Slice(String::new()));
            }
            "v1/services" => self.soon(now, Task::Slice(String::new())),
            "batch/v1/jobs" if change.verb == Verb::Create => {
                self.tasks.insert((now + self.times.job, Task::Job(name)));
            }
            _ => {}
        }
        if change.verb == Verb::Delete {
            self.soon(now, Task::Garbage);
        }
    }

    /// Somebody who looks soon anyway need not look twice.
    fn soon(&mut self, now: u64, task: Task) {
        let (least, most) = self.times.notice;
        let at = now + self.random.between(least, most);
        if !self.tasks.iter().any(|(due, known)| *known == task && *due <= at) {
            self.tasks.insert((at, task));
        }
    }

    /// When something happens next.
    pub fn wake(&self) -> Option<u64> {
        self.tasks.first().map(|first| first.0)
    }

    /// Does what is due.
    pub fn advance(&mut self, now: u64, api: Api<'_>) {
        while let Some((_, task)) = self.tasks.pop_first_if(|first| first.0 <= now) {
            match task {
                Task::Deployment(name) => self.deployment(&name, now, api),
                Task::Ready(name) => self.set_ready(&name, true, api),
                Task::End(name) => {
                    self.pods.remove(&name);
                    api("DELETE", &self.path("pods", &name), &json!({ "gracePeriodSeconds": 0 }));
                }
                Task::Slice(_) => self.slices(api),
                Task::Job(name) => self.job(&name, api),
                Task::Garbage => {
                    api("GARBAGE", "", &Value::Null);
                }
            }
        }
    }

    /// Half of the ready Pods of a Deployment, but at least one, are on a node that is lost; they come back on another.
    pub fn lose_half(&mut self, deployment: &str, now: u64, api: Api<'_>) {
        let of = |pod: &Pod| pod.deployment == deployment && pod.ready && pod.ends_at.is_none();
        let names: Vec<String> = self.pods.iter().filter(|(_, pod)| of(pod)).map(|(name, _)| name.clone()).collect();
        for name in names.iter().take(names.len().div_ceil(2)) {
            self.set_ready(name, false, api);
            if let Some(pod) = self.pods.get_mut(name) {
                pod.lost = true;
            }
            self.delete(name, now, 0, api);
        }
    }

    /// All Pods of a Deployment stop being ready, or are ready again.
    pub fn set_all_ready(&mut self, deployment: &str, ready: bool, api: Api<'_>) {
        let of = |pod: &Pod| pod.deployment == deployment && pod.ends_at.is_none();
        let names: Vec<String> = self.pods.iter().filter(|(_, pod)| of(pod)).map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.lost = !ready;
            }
            self.set_ready(&name, ready, api);
        }
    }

    fn path(&self, plural: &str, name: &str) -> String {
        let prefix = match plural {
            "deployments" => "/apis/apps/v1",
            "jobs" => "/apis/batch/v1",
            "endpointslices" => "/apis/discovery.k8s.io/v1",
            _ => "/api/v1",
        };
        let slash = if name.is_empty() { "" } else { "/" };
        format!("{prefix}/namespaces/{}/{plural}{slash}{name}", self.namespace)
    }

    fn items(&self, plural: &str, api: Api<'_>) -> Vec<Value> {
        let (_, list) = api("GET", &self.path(plural, ""), &Value::Null);
        list.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    fn deployment(&mut self, name: &str, now: u64, api: Api<'_>) {
        let (code, object) = api("GET", &self.path("deployments", name), &Value::Null);
        if code != 200 {
            let orphans: Vec<String> = self
                .pods
                .iter()
                .filter(|(_, pod)| pod.deployment == name && pod.ends_at.is_none())
                .map(|(name, _)| name.clone())
                .collect();
            orphans.iter().for_each(|pod| self.delete(pod, now, self.times.grace, api));
            return;
        }
        let template = &object["spec"]["template"];
        let wanted = hash(template);
        let (known, revision) = self.revisions.get(name).copied().unwrap_or((0, 0));
        let revision = if known == wanted { revision } else { revision + 1 };
        self.revisions.insert(name.to_owned(), (wanted, revision));
        let desired = object.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1) as usize;
        let of = |pods: &BTreeMap<String, Pod>, current: bool| -> Vec<String> {
            let mine = pods.iter().filter(|(_, pod)| pod.deployment == name && pod.ends_at.is_none());
            let mut names: Vec<(bool, String)> = mine
                .filter(|(_, pod)| (pod.template == wanted) == current)
                .map(|(name, pod)| (pod.ready, name.clone()))
                .collect();
            names.sort();
            names.into_iter().map(|one| one.1).collect()
        };
        let current = of(&self.pods, true);
        for _ in current.len()..desired {
            self.create(&object, wanted, now, api);
        }
        for extra in current.iter().take(current.len().saturating_sub(desired)) {
            self.delete(extra, now, self.times.grace, api);
        }
        let ready = |pods: &BTreeMap<String, Pod>, names: &[String]| {
            names.iter().filter(|name| pods.get(*name).is_some_and(|pod| pod.ready)).count()
        };
        let old = of(&self.pods, false);
        if ready(&self.pods, &of(&self.pods, true)) >= desired {
            old.iter().for_each(|pod| self.delete(pod, now, self.times.grace, api));
        }
        let (current, old) = (of(&self.pods, true), of(&self.pods, false));
        let all_ready = ready(&self.pods, &current) + ready(&self.pods, &old);
        let status = json!({
            "observedGeneration": object["metadata"]["generation"], "replicas": current.len() + old.len(),
            "updatedReplicas": current.len(), "readyReplicas": all_ready, "availableReplicas": all_ready,
        });
        let place = "/metadata/annotations/deployment.kubernetes.io~1revision";
        if text(&object, place) != revision.to_string() {
            let annotations = json!({ "deployment.kubernetes.io/revision": revision.to_string() });
            api("PATCH", &self.path("deployments", name), &json!({ "metadata": { "annotations": annotations } }));
        }
        if object.get("status") != Some(&status) {
            api("PATCH", &format!("{}/status", self.path("deployments", name)), &json!({ "status": status }));
        }
    }

    fn create(&mut self, deployment: &Value, template: u64, now: u64, api: Api<'_>) {
        self.created += 1;
        let owner = text(deployment, "/metadata/name").to_owned();
        let name = format!("{owner}-{:x}-{}", template & 0xffff, self.created);
        let mut metadata = deployment["spec"]["template"]["metadata"].clone();
        metadata["name"] = name.clone().into();
        metadata["labels"]["pod-template-hash"] = format!("{template:x}").into();
        metadata["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": owner,
            "uid": deployment["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }]);
        let mut spec = deployment["spec"]["template"]["spec"].clone();
        spec["nodeName"] = "node".into();
        let pod = Pod { deployment: owner.clone(), template, ready: false, ends_at: None, lost: false };
        self.pods.insert(name.clone(), pod);
        api(
            "POST",
            &self.path("pods", ""),
            &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }),
        );
        if self.stuck.as_ref() != Some(&owner) {
            let (least, most) = self.times.load;
            self.tasks.insert((now + self.random.between(least, most), Task::Ready(name)));
        }
    }

    fn set_ready(&mut self, name: &str, ready: bool, api: Api<'_>) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.ends_at.is_none()) else { return };
        pod.ready = ready;
        let word = if ready { "True" } else { "False" };
        let status = json!({ "phase": "Running", "podIP": format!("10.0.0.{}", self.created % 250), "conditions": [
            { "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": word } ] });
        api("PATCH", &format!("{}/status", self.path("pods", name)), &json!({ "status": status }));
    }

    fn delete(&mut self, name: &str, now: u64, grace: u64, api: Api<'_>) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.ends_at.is_none()) else { return };
        pod.ends_at = Some(now + grace);
        self.tasks.insert((now + grace, Task::End(name.to_owned())));
        api("DELETE", &self.path("pods", name), &json!({ "gracePeriodSeconds": (grace / 1000).max(1) }));
    }

    fn slices(&mut self, api: Api<'_>) {
        let pods = self.items("pods", api);
        for service in self.items("services", api) {
            let name = text(&service, "/metadata/name").to_owned();
            let endpoint = |pod: &&Value| selects(&service["spec"]["selector"], &pod["metadata"]["labels"]);
            let endpoints: Vec<Value> = pods.iter().filter(endpoint).filter(|pod| pod.pointer("/status/podIP").is_some()).map(|pod| {
                let name = text(pod, "/metadata/name");
                let serving = self.pods.get(name).is_some_and(|pod| pod.ready);
                let ending = pod.pointer("/metadata/deletionTimestamp").is_some();
                json!({
                    "addresses": [pod["status"]["podIP"]],
                    "conditions": { "ready": serving && !ending, "serving": serving, "terminating": ending },
                    "targetRef": { "kind": "Pod", "namespace": self.namespace, "name": name, "uid": pod["metadata"]["uid"] },
                })
            }).collect();
            let ports: Vec<Value> = service["spec"]["ports"].as_array().into_iter().flatten().map(|port| {
                json!({ "name": port.get("name").cloned().unwrap_or_else(|| "".into()), "port": 8080, "protocol": "TCP" })
            }).collect();
            let slice = format!("{name}-1");
            let (code, old) = api("GET", &self.path("endpointslices", &slice), &Value::Null);
            let metadata = json!({ "name": slice, "labels": { "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io" } });
            let mut object = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": metadata, "endpoints": endpoints, "ports": ports });
            if code != 200 {
                object["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Service", "name": name,
                    "uid": service["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }]);
                api("POST", &self.path("endpointslices", ""), &object);
            } else if old["endpoints"].as_array().cloned().unwrap_or_default() != endpoints {
                object["metadata"] = old["metadata"].clone();
                api("PUT", &self.path("endpointslices", &slice), &object);
            }
        }
    }

    fn job(&mut self, name: &str, api: Api<'_>) {
        let kind = if self.jobs_fail { "Failed" } else { "Complete" };
        let status = json!({ "conditions": [{ "type": kind, "status": "True" }] });
        api("PATCH", &format!("{}/status", self.path("jobs", name)), &json!({ "status": status }));
    }
}

/// `BTreeSet::pop_first` on a condition.
trait PopFirstIf<T> {
    fn pop_first_if(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T>;
}

impl<T: Ord> PopFirstIf<T> for BTreeSet<T> {
    fn pop_first_if(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        if self.first().is_some_and(wanted) { self.pop_first() } else { None }
    }
}
