//! Watches that are on only while a rollout needs them: the Pods, EndpointSlices and prompts of its two colors, and the
//! Jobs that judge with the PodTemplates that they are made from. Shared
//! between rollouts that need the same, and stopped with the last of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::runtime::watcher::Config;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::convert::{JobRead, PodSeen, PodTemplateRead, job_labels, ready_targets};
use super::stores::{Put, Store, Stores};
use super::triggers::{Key, Triggers};
use super::watches::{Change, WATCH_SECONDS, feed, stream};
use crate::api::names::LABEL_ROLLOUT_UID;
use crate::api::{Color, ModelRollout};
use crate::engine::observed::{JobSeen, Labels, Lookup, NOT_YET, PodsSeen, PromptSeen};
use crate::engine::plan::Need;
use crate::ops::metrics::Metrics;

/// Prompts are watched at rest too, one watch for each: that is no reason to ask often.
const PROMPT_WATCH_SECONDS: u32 = 290;
/// How many reasons of Pods that are not ready are told.
const REASONS: usize = 3;

/// So long a watch may take to its first list before that is worth telling.
const YOUNG: Duration = Duration::from_secs(4);

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    namespace: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Pods by label selector.
    Pods(String),
    /// EndpointSlices by the name of their Service.
    Endpoints(String),
    /// A ConfigMap by name.
    Prompt(String),
    /// Our Jobs, by the uid of their ModelRollout.
    Jobs(String),
    /// A PodTemplate by name.
    JobTemplate(String),
}

type Readers = Arc<Mutex<BTreeSet<Key>>>;

/// A watch that runs; dropping it stops it.
#[derive(Debug)]
struct Running {
    readers: Readers,
    facts: Facts,
    since: Instant,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone, Debug)]
enum Facts {
    Pods(Arc<Store<PodSeen>>),
    Endpoints(Arc<Store<BTreeSet<String>>>),
    Prompt(Arc<Store<PromptSeen>>),
    Jobs(Arc<Store<JobSeen>>),
    JobTemplate(Arc<Store<Labels>>),
}

/// The set of watches that run.
#[derive(Debug)]
pub struct Dynamic {
    running: Mutex<BTreeMap<Target, Running>>,
    client: ClientBox,
    triggers: Triggers,
    metrics: Arc<Metrics>,
}

/// kube's client has no `Debug`.
struct ClientBox(Client);

impl std::fmt::Debug for ClientBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dynamic {
    /// No watch yet.
    pub fn new(client: Client, triggers: Triggers, metrics: Arc<Metrics>) -> Self {
        Self { running: Mutex::default(), client: ClientBox(client), triggers, metrics }
    }

    /// Watches just what `rollout` needs. Gives whether anything changed for it.
    pub fn follow(&self, rollout: &ModelRollout, need: &Need, stores: &Stores) -> bool {
        self.set(&Key::of(rollout), &targets(rollout, need, stores))
    }

    /// Watches nothing more for the rollout of `key`.
    pub fn forget(&self, key: &Key) {
        self.set(key, &BTreeSet::new());
    }

    /// How many watches run.
    pub fn len(&self) -> usize {
        lock(&self.running).len()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn set(&self, key: &Key, targets: &BTreeSet<Target>) -> bool {
        let mut running = lock(&self.running);
        let mut changed = false;
        running.retain(|target, one| {
            let mut readers = lock(&one.readers);
            if !targets.contains(target) {
                changed |= readers.remove(key);
            }
            !readers.is_empty()
        });
        for target in targets {
            let one = running.entry(target.clone()).or_insert_with(|| self.start(target));
            changed |= lock(&one.readers).insert(key.clone());
        }
        changed
    }

    fn start(&self, target: &Target) -> Running {
        let readers: Readers = Arc::default();
        let scope = [target.namespace.clone()];
        let facts = match &target.what {
            What::Pods(_) => Facts::Pods(Arc::new(Store::new(&scope))),
            What::Endpoints(_) => Facts::Endpoints(Arc::new(Store::new(&scope))),
            What::Prompt(_) => Facts::Prompt(Arc::new(Store::new(&scope))),
            What::Jobs(_) => Facts::Jobs(Arc::new(Store::new(&scope))),
            What::JobTemplate(_) => Facts::JobTemplate(Arc::new(Store::new(&scope))),
        };
        let watch = Watch {
            client: self.client.0.clone(),
            target: target.clone(),
            readers: Arc::clone(&readers),
            triggers: self.triggers.clone(),
            metrics: Arc::clone(&self.metrics),
        };
        let task = tokio::spawn(watch.run(facts.clone()));
        Running { readers, facts, since: Instant::now(), task }
    }

    fn facts(&self, namespace: &str, what: What) -> Option<Facts> {
        let target = Target { namespace: namespace.to_owned(), what };
        lock(&self.running).get(&target).map(|one| one.facts.clone())
    }

    /// The Pods of `selector`.
    pub fn pods(&self, namespace: &str, selector: &str) -> Lookup<PodsSeen> {
        let Some(Facts::Pods(store)) = self.facts(namespace, What::Pods(selector.to_owned())) else {
            return Lookup::Unreadable("Pods are not watched".to_owned());
        };
        if !store.synced() {
            return Lookup::Unreadable("Pods are not synced yet".to_owned());
        }
        let pods = store.list(namespace);
        let ready = pods.iter().filter(|pod| pod.0.is_none()).count();
        let reasons: BTreeSet<String> = pods.iter().filter_map(|pod| pod.0.clone()).collect();
        Lookup::Found(PodsSeen { ready: ready as i32, reasons: reasons.into_iter().take(REASONS).collect() })
    }

    /// How many ready endpoints `service` has.
    pub fn endpoints(&self, namespace: &str, service: &str) -> Lookup<i32> {
        let Some(Facts::Endpoints(store)) = self.facts(namespace, What::Endpoints(service.to_owned())) else {
            return Lookup::Unreadable("EndpointSlices are not watched".to_owned());
        };
        if !store.synced() {
            return Lookup::Unreadable("EndpointSlices are not synced yet".to_owned());
        }
        let slices = store.list(namespace);
        let unique: BTreeSet<&String> = slices.iter().flat_map(|slice| slice.iter()).collect();
        Lookup::Found(unique.len() as i32)
    }

    /// The prompt in the ConfigMap `name`.
    pub fn prompt(&self, namespace: &str, name: &str) -> Lookup<PromptSeen> {
        let Some(Facts::Prompt(store)) = self.facts(namespace, What::Prompt(name.to_owned())) else {
            return Lookup::Unreadable(NOT_YET.to_owned());
        };
        match store.get(namespace, name) {
            Lookup::Found(prompt) => Lookup::Found(PromptSeen::clone(&prompt)),
            Lookup::Missing => Lookup::Missing,
            Lookup::Unreadable(_) => self.unsynced(namespace, What::Prompt(name.to_owned())),
        }
    }

    /// Our Jobs for the rollout of `uid`, by name.
    pub fn jobs(&self, namespace: &str, uid: &str) -> Lookup<BTreeMap<String, JobSeen>> {
        let Some(Facts::Jobs(store)) = self.facts(namespace, What::Jobs(uid.to_owned())) else {
            return Lookup::Unreadable(NOT_YET.to_owned());
        };
        if !store.synced() {
            return self.unsynced(namespace, What::Jobs(uid.to_owned()));
        }
        Lookup::Found(store.pick(namespace, |name, seen| Some((name.to_owned(), seen.clone()))))
    }

    /// Takes in a Job that was just made.
    pub fn put_job(&self, namespace: &str, uid: &str, meta: &ObjectMeta, seen: JobSeen) {
        if let Some(Facts::Jobs(store)) = self.facts(namespace, What::Jobs(uid.to_owned())) {
            store.put(meta, seen);
        }
    }

    /// Takes in that a Job was just deleted.
    pub fn remove_job(&self, namespace: &str, uid: &str, name: &str, job: &str) {
        if let Some(Facts::Jobs(store)) = self.facts(namespace, What::Jobs(uid.to_owned())) {
            store.remove_uid(namespace, name, job);
        }
    }

    /// Labels of the Pods of the PodTemplate `name`.
    pub fn job_template(&self, namespace: &str, name: &str) -> Lookup<Labels> {
        let Some(Facts::JobTemplate(store)) = self.facts(namespace, What::JobTemplate(name.to_owned())) else {
            return Lookup::Unreadable(NOT_YET.to_owned());
        };
        match store.get(namespace, name) {
            Lookup::Found(labels) => Lookup::Found(Labels::clone(&labels)),
            Lookup::Missing => Lookup::Missing,
            Lookup::Unreadable(_) => self.unsynced(namespace, What::JobTemplate(name.to_owned())),
        }
    }

    /// Why a watch that runs has had no list yet: it has just begun, or it cannot.
    fn unsynced<T>(&self, namespace: &str, what: What) -> Lookup<T> {
        let target = Target { namespace: namespace.to_owned(), what };
        let young = lock(&self.running).get(&target).is_none_or(|one| one.since.elapsed() < YOUNG);
        let why = if young {
            NOT_YET
        } else {
            "it cannot be read: the operator's log says why (a missing right, or an API server that does not answer)"
        };
        Lookup::Unreadable(why.to_owned())
    }
}

/// What `rollout` needs to have watched.
fn targets(rollout: &ModelRollout, need: &Need, stores: &Stores) -> BTreeSet<Target> {
    let namespace = rollout.metadata.namespace.clone().unwrap_or_default();
    let mut all = BTreeSet::new();
    let mut add = |what| all.insert(Target { namespace: namespace.clone(), what });
    for (color, spec) in [(Color::Blue, &rollout.spec.blue), (Color::Green, &rollout.spec.green)] {
        if need.pods {
            add(What::Endpoints(spec.service_name.clone()));
            let deployment = stores.deployments.get(&namespace, &spec.deployment_name);
            // an empty selector would select every Pod
            if let Some(selector) = deployment.found().map(|it| it.selector.clone()).filter(|it| !it.is_empty()) {
                add(What::Pods(selector));
            }
        }
        if let Some(prompt) = spec.prompt_template.as_ref().filter(|_| need.prompts.contains(&color)) {
            add(What::Prompt(prompt.config_map_name.clone()));
        }
    }
    if need.jobs {
        add(What::Jobs(rollout.metadata.uid.clone().unwrap_or_default()));
    }
    for name in &need.job_templates {
        add(What::JobTemplate(name.clone()));
    }
    all
}

/// One watch, before it starts.
struct Watch {
    client: Client,
    target: Target,
    readers: Readers,
    triggers: Triggers,
    metrics: Arc<Metrics>,
}

impl Watch {
    async fn run(self, facts: Facts) {
        let seconds = if matches!(self.target.what, What::Prompt(_)) { PROMPT_WATCH_SECONDS } else { WATCH_SECONDS };
        let config = Config::default().timeout(seconds).page_size(50);
        let namespace = self.target.namespace.as_str();
        match (&self.target.what, facts) {
            (What::Pods(selector), Facts::Pods(store)) => {
                let stream = stream::<Pod>(&self.client, namespace, config.labels(selector));
                let fed = (&*store, &*self.metrics);
                feed(stream, ("Pod", namespace), fed, |pod| Some(pod.into()), |change| self.changed(&change)).await;
            }
            (What::Endpoints(service), Facts::Endpoints(store)) => {
                let selector = format!("kubernetes.io/service-name={service}");
                let stream = stream::<EndpointSlice>(&self.client, namespace, config.labels(&selector));
                let fed = (&*store, &*self.metrics);
                let convert = |slice: &EndpointSlice| Some(ready_targets(slice));
                feed(stream, ("EndpointSlice", namespace), fed, convert, |change| self.changed(&change)).await;
            }
            (What::Prompt(name), Facts::Prompt(store)) => {
                let selector = format!("metadata.name={name}");
                let stream = stream::<ConfigMap>(&self.client, namespace, config.fields(&selector));
                let fed = (&*store, &*self.metrics);
                feed(stream, ("ConfigMap", namespace), fed, |map| Some(map.into()), |change| self.changed(&change))
                    .await;
            }
            (What::Jobs(uid), Facts::Jobs(store)) => {
                let selector = format!("{LABEL_ROLLOUT_UID}={uid}");
                let stream = stream::<JobRead>(&self.client, namespace, config.labels(&selector));
                let fed = (&*store, &*self.metrics);
                feed(stream, ("Job", namespace), fed, |job| Some(job.into()), |change| self.changed(&change)).await;
            }
            (What::JobTemplate(name), Facts::JobTemplate(store)) => {
                let selector = format!("metadata.name={name}");
                let stream = stream::<PodTemplateRead>(&self.client, namespace, config.fields(&selector));
                let fed = (&*store, &*self.metrics);
                let convert = |template: &PodTemplateRead| Some(job_labels(template));
                feed(stream, ("PodTemplate", namespace), fed, convert, |change| self.changed(&change)).await;
            }
            // `Dynamic::start` makes the facts from the target
            _ => {}
        }
    }

    fn changed<T>(&self, change: &Change<'_, T>) {
        if !matches!(change, Change::Put(_, Put { same: true, .. })) {
            lock(&self.readers).iter().for_each(|key| self.triggers.fire(key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::testing::rollout;

    #[test]
    fn only_what_is_needed_is_watched() {
        let stores = Stores::new(&["ml".to_owned()]);
        let bot = rollout("bot");
        assert!(targets(&bot, &Need::default(), &stores).is_empty());
        let only = |color| Need { prompts: [color].into(), ..Need::default() };
        assert_eq!(targets(&bot, &only(Color::Blue), &stores).len(), 1);
        assert!(targets(&bot, &only(Color::Green), &stores).is_empty(), "green has no prompt");
        let need = Need { pods: true, prompts: Color::BOTH.into(), ..Need::default() };
        // two Services and one prompt; the Deployments, and so the Pods' selectors, are not known yet
        assert_eq!(targets(&bot, &need, &stores).len(), 3);
        let need = Need { jobs: true, job_templates: ["schema".to_owned()].into(), ..Need::default() };
        assert_eq!(targets(&bot, &need, &stores).len(), 2, "the template and our Jobs");
    }
}
