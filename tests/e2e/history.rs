//! Watches that remember: every state of the ModelRollout and of the Ingresses of a scenario, with its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::runtime::watcher::{Config, Event, watcher};
use modelrollout::api::ModelRollout;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::verdicts::{self, Verdict};

/// Lines with the seconds since the beginning.
#[derive(Clone)]
struct Journal(Instant, Arc<Mutex<Vec<String>>>);

/// Every verdict that was ever in a status, with its place.
type Verdicts = Arc<Mutex<BTreeMap<String, Verdict>>>;

impl Journal {
    fn new() -> Self {
        Self(Instant::now(), Arc::default())
    }

    fn write(&self, line: &str) {
        let mut lines = self.1.lock().unwrap();
        if lines.last().is_none_or(|last| last.split_once(' ').is_none_or(|(_, old)| old.trim() != line.trim())) {
            lines.push(format!("{:7.2} {line}", self.0.elapsed().as_secs_f64()).trim_start().to_owned());
        }
    }

    fn lines(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

/// The ModelRollout and its past.
pub struct Rollouts {
    latest: watch::Receiver<Option<ModelRollout>>,
    journal: Journal,
    verdicts: Verdicts,
    task: JoinHandle<()>,
}

impl Drop for Rollouts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rollouts {
    /// Follows the ModelRollout `name`.
    pub fn follow(api: Api<ModelRollout>, name: &str) -> Self {
        let (sender, latest) = watch::channel(None);
        let journal = Journal::new();
        let lines = journal.clone();
        let verdicts = Verdicts::default();
        let keep = Arc::clone(&verdicts);
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let task = tokio::spawn(async move {
            let events = watcher(api, config);
            pin_mut!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        lines.write(&line(&object));
                        keep.lock().unwrap().extend(verdicts::of(&object));
                        sender.send_replace(Some(object));
                    }
                    Ok(Event::Delete(_)) => {
                        lines.write("deleted");
                        sender.send_replace(None);
                    }
                    _ => {}
                }
            }
        });
        Self { latest, journal, verdicts, task }
    }

    /// Every verdict that was ever in its status.
    pub fn verdicts(&self) -> BTreeMap<String, Verdict> {
        self.verdicts.lock().unwrap().clone()
    }

    /// Waits until it is as `look` wants it.
    pub async fn until<T>(&self, what: &str, within: Duration, mut look: impl FnMut(&ModelRollout) -> Option<T>) -> T {
        let mut latest = self.latest.clone();
        let mut found = None;
        let wait = latest.wait_for(|object| {
            found = object.as_ref().and_then(&mut look);
            found.is_some()
        });
        let result = timeout(within, wait).await.is_ok();
        assert!(result, "not within {within:?}: {what}\n{}", self.history().join("\n"));
        found.unwrap()
    }

    /// Waits until it is gone.
    pub async fn gone(&self, within: Duration) {
        let mut latest = self.latest.clone();
        let result = timeout(within, latest.wait_for(Option::is_none)).await.is_ok();
        assert!(result, "still there after {within:?}\n{}", self.history().join("\n"));
    }

    /// What it went through.
    pub fn history(&self) -> Vec<String> {
        self.journal.lines()
    }
}

fn line(object: &ModelRollout) -> String {
    let Some(status) = &object.status else { return "no status".to_owned() };
    let word = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let attempt = status.attempt.as_ref().map(|attempt| {
        let state = if attempt.open { "" } else { " ended" };
        format!("attempt {}{state} {} {} %", attempt.id, attempt.step, attempt.weight_intended)
    });
    let gates: Vec<_> = status.gates.iter().map(|gate| format!("{} {}", gate.name, gate.reason)).collect();
    format!(
        "{} {} [{}] active {} | {}",
        word(status.phase.map(modelrollout::api::reasons::Phase::as_str)),
        attempt.unwrap_or_default(),
        gates.join(", "),
        status.active_color.map(|color| color.to_string()).unwrap_or_default(),
        status.summary.message
    )
}

/// What matters of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressState {
    /// The Services that it names.
    pub services: Vec<String>,
    /// The share of a canary, as it is written.
    pub weight: Option<String>,
    /// Who has ever written to it.
    pub managers: Vec<String>,
}

type All = BTreeMap<String, IngressState>;

/// The Ingresses of a namespace and their past.
pub struct Ingresses {
    latest: watch::Receiver<All>,
    journal: Journal,
    task: JoinHandle<()>,
}

impl Drop for Ingresses {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ingresses {
    /// Follows all of a namespace.
    pub fn follow(api: Api<Ingress>) -> Self {
        let (sender, latest) = watch::channel(All::new());
        let journal = Journal::new();
        let lines = journal.clone();
        let task = tokio::spawn(async move {
            let events = watcher(api, Config::default());
            pin_mut!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        let (name, state) = (object.metadata.name.clone().unwrap_or_default(), state(&object));
                        let weight =
                            state.weight.as_ref().map(|weight| format!(", weight {weight}")).unwrap_or_default();
                        lines.write(&format!("{name} names {}{weight}", state.services.join(" and ")));
                        sender.send_modify(|all| drop(all.insert(name, state)));
                    }
                    Ok(Event::Delete(object)) => {
                        let name = object.metadata.name.unwrap_or_default();
                        lines.write(&format!("{name} is deleted"));
                        sender.send_modify(|all| drop(all.remove(&name)));
                    }
                    _ => {}
                }
            }
        });
        Self { latest, journal, task }
    }

    /// Waits until they are as `look` wants them.
    pub async fn until(&self, what: &str, within: Duration, look: impl FnMut(&All) -> bool) {
        let mut latest = self.latest.clone();
        let mut look = look;
        let result = timeout(within, latest.wait_for(|all| look(all))).await.is_ok();
        assert!(result, "not within {within:?}: {what}; seen:\n{}", self.history().join("\n"));
    }

    /// As they are now.
    pub fn now(&self) -> All {
        self.latest.borrow().clone()
    }

    /// What they went through.
    pub fn history(&self) -> Vec<String> {
        self.journal.lines()
    }
}

fn state(object: &Ingress) -> IngressState {
    let rules = object.spec.iter().flat_map(|spec| spec.rules.iter().flatten());
    let paths = rules.filter_map(|rule| rule.http.as_ref()).flat_map(|http| &http.paths);
    let services = paths.filter_map(|path| path.backend.service.as_ref()).map(|service| service.name.clone());
    let annotations = object.metadata.annotations.as_ref();
    let weight = annotations.and_then(|all| all.get(modelrollout::api::names::NGINX_CANARY_WEIGHT));
    let managers = object.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone());
    IngressState { services: services.collect(), weight: weight.cloned(), managers: managers.collect() }
}
