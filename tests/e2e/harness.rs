//! One scenario: a namespace of its own with two colors, an Ingress, a load that never stops, and an operator process.
//! What it must always end with: not one failed request, and no right that the chart does not give.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::AsyncFnOnce;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use modelrollout::api::reasons::{Phase, Step};
use modelrollout::api::{ModelRollout, ModelRolloutStatus};
use modelrollout_load::{Load, LoadConfig, LoadHandle, Report};
use serde_json::{Value, json};

use crate::cluster::{self, INGRESS_URL, PROMETHEUS_URL, kubectl, variable};
use crate::history::{IngressState, Ingresses, Rollouts};
use crate::http;
use crate::manifests::{Setup, pair, rollout};
use crate::operator::{Launcher, Operator};
use crate::verdicts;

/// How long a rollout may take to get somewhere on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);
/// How long anything else may take.
pub const SHORT: Duration = Duration::from_secs(30);

/// A running scenario.
pub struct Scenario {
    pub client: Client,
    pub namespace: String,
    pub host: String,
    pub launcher: Launcher,
    /// The operator, while one is meant to run.
    pub operator: Option<Operator>,
    pub load: Option<LoadHandle>,
    /// Requests to further hosts.
    other_loads: Vec<LoadHandle>,
    /// How many requests may fail: none, unless a scenario says why.
    pub may_fail: u64,
    pub rollouts: Rollouts,
    pub ingresses: Ingresses,
    pub setup: Setup,
}

/// Runs a scenario from its setup to its end. The operator runs; the ModelRollout is there when `create_rollout` is called.
pub async fn scenario(name: &str, setup: Setup, body: impl AsyncFnOnce(&mut Scenario)) {
    let prometheus = variable(PROMETHEUS_URL);
    scenario_with(name, setup, prometheus, body).await;
}

/// The same with another way to Prometheus.
pub async fn scenario_with(name: &str, setup: Setup, prometheus: String, body: impl AsyncFnOnce(&mut Scenario)) {
    let client = cluster::client().await;
    let namespace = cluster::create_namespace(&client, name).await;
    let started = Instant::now();
    let run = AssertUnwindSafe(async {
        let mut scenario = Scenario::prepare(&client, &namespace, &setup, prometheus).await;
        let passed = AssertUnwindSafe(async {
            body(&mut scenario).await;
            scenario.check_operator();
            scenario.check_verdicts();
        });
        let result = passed.catch_unwind().await;
        let reports = scenario.stop_load().await;
        let checked = AssertUnwindSafe(async { scenario.check(&reports) }).catch_unwind().await;
        let result = result.and(checked);
        if result.is_err() {
            scenario.dump(&reports).await;
        }
        tell(name, started, result.is_ok(), &reports);
        result
    });
    let result = run.catch_unwind().await;
    cluster::delete_namespace(&client, &namespace).await;
    if let Err(panic) = result.and_then(|inner| inner) {
        resume_unwind(panic);
    }
}

/// One line that is seen whether the test passes or not: the test runner captures only what is printed.
fn tell(name: &str, started: Instant, good: bool, reports: &[Report]) {
    let load = |report: &Report| {
        let (sent, injected, failed) = (report.sent, report.injected, report.failed);
        format!(", {sent} requests, {injected} injected errors, {failed} failed")
    };
    let load: String = reports.iter().map(load).collect();
    let word = if good { "ok" } else { "FAILED" };
    let _ = writeln!(std::io::stderr(), "    {name}: {word} in {:.1} s{load}", started.elapsed().as_secs_f64());
}

/// A line of numbers that is seen in any case.
pub fn measured(text: &str) {
    let _ = writeln!(std::io::stderr(), "    measured: {text}");
}

/// Looks every 100 ms until there is something to see.
pub async fn eventually<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + within;
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(seen) => assert!(Instant::now() < end, "not within {within:?}: {what}; seen: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl Scenario {
    async fn prepare(client: &Client, namespace: &str, setup: &Setup, prometheus: String) -> Self {
        let host = format!("{namespace}.example");
        let account = cluster::grant(client, namespace).await;
        for object in setup.objects(&host) {
            cluster::create(client, namespace, &object).await;
        }
        let launcher = Launcher::new(client, namespace, &account, prometheus).await;
        let operator = launcher.start("operator-1");
        let mut scenario = Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            host,
            launcher,
            operator: Some(operator),
            load: None,
            other_loads: Vec::new(),
            may_fail: 0,
            rollouts: Rollouts::follow(Api::namespaced(client.clone(), namespace), &setup.name),
            ingresses: Ingresses::follow(Api::namespaced(client.clone(), namespace)),
            setup: setup.clone(),
        };
        if setup.load {
            scenario.start_load().await;
        }
        scenario
    }

    /// Starts the requests that run all the time.
    pub async fn start_load(&mut self) {
        let url = variable(INGRESS_URL);
        for host in self.setup.hosts.clone() {
            let host = host.replace("{{host}}", &self.host);
            let ready = async || http::get(&host, "/readyz", &[]).await?.ok();
            eventually("the ingress controller sends requests to a model server", LONG, ready).await;
            let mut config = LoadConfig::new(&url, &host);
            config.rate = 30.0 / self.setup.hosts.len() as f64;
            config.expected_pairs = vec![pair("blue"), pair("green")];
            let load = Load::start(config).await.unwrap();
            match &self.load {
                None => self.load = Some(load),
                Some(_) => self.other_loads.push(load),
            }
        }
    }

    /// Creates the ModelRollout.
    pub async fn create_rollout(&self) {
        cluster::create(&self.client, &self.namespace, &rollout(&self.setup.name, &self.setup.final_spec())).await;
    }

    /// Creates an object of the setup, such as `Service/bot-green`.
    pub async fn put(&self, key: &str) {
        cluster::create(&self.client, &self.namespace, &self.setup.object(key, &self.host)).await;
    }

    /// Name of a color's Deployment and Service.
    pub fn color(&self, color: &str) -> String {
        format!("{}-{color}", self.setup.stem)
    }

    /// Name of our canary.
    pub fn canary(&self) -> String {
        modelrollout::api::names::canary_name(&self.setup.name)
    }

    /// Waits until the ModelRollout is as `look` wants it.
    pub async fn until<T>(&self, what: &str, within: Duration, look: impl FnMut(&ModelRollout) -> Option<T>) -> T {
        self.rollouts.until(what, within, look).await
    }

    /// Waits for a phase.
    pub async fn phase(&self, phase: Phase) -> ModelRolloutStatus {
        self.until(&format!("phase {phase}"), LONG, |object| status_if(object, |status| status.phase == Some(phase)))
            .await
    }

    /// Waits until the stage of `weight` runs and its clock has started.
    pub async fn stage(&self, weight: i32) -> ModelRolloutStatus {
        let status =
            self.until(&format!("the stage of {weight} %"), LONG, |object| status_if(object, in_stage(weight))).await;
        self.weight(weight).await;
        status
    }

    /// Waits for a canary of that weight.
    pub async fn weight(&self, weight: i32) {
        let written = |state: &IngressState| state.weight.as_deref() == Some(&weight.to_string());
        let canary = self.canary();
        self.ingresses
            .until(&format!("a canary of {weight} %"), SHORT, |all| all.get(&canary).is_some_and(written))
            .await;
    }

    /// Waits until a promotion is over and asserts everything that it leaves.
    pub async fn promoted(&self) -> ModelRolloutStatus {
        let status = self
            .until("the end of the promotion", LONG, |object| {
                status_if(object, |status| {
                    status.phase == Some(Phase::Stable) && status.active_color == Some(modelrollout::api::Color::Green)
                })
            })
            .await;
        self.at_rest(&self.color("green")).await;
        assert_eq!(self.replicas(&self.color("blue")).await, 0, "blue was scaled to zero");
        status
    }

    /// Waits until an attempt went back and asserts that all traffic is on blue.
    pub async fn rolled_back(&self) -> ModelRolloutStatus {
        let status = self.phase(Phase::RolledBack).await;
        self.at_rest(&self.color("blue")).await;
        status
    }

    /// Waits until no object of ours is left and every Ingress names `service`.
    pub async fn at_rest(&self, service: &str) {
        let ours = [self.canary(), modelrollout::api::names::anchor_name(&self.setup.name)];
        self.ingresses
            .until(&format!("no Ingress of ours, and {service} in all others"), SHORT, |all| {
                !ours.iter().any(|name| all.contains_key(name)) && self.all_name(all, service)
            })
            .await;
        let free = |object: &ModelRollout| object.metadata.finalizers.is_none().then_some(());
        self.until("no finalizer", SHORT, free).await;
    }

    /// Whether every Ingress of the rollout names `service` and not the other one.
    pub fn all_name(&self, all: &BTreeMap<String, IngressState>, service: &str) -> bool {
        let colors = [self.color("blue"), self.color("green")];
        let named = |state: &IngressState| {
            let mut named = state.services.iter().filter(|name| colors.contains(name)).peekable();
            named.peek().is_some() && named.all(|name| name == service)
        };
        let spec = self.setup.final_spec();
        let mains = spec["traffic"]["ingress"]["names"].as_array().unwrap();
        mains.iter().all(|name| all.get(name.as_str().unwrap()).is_some_and(named))
    }

    /// Sets annotations of the ModelRollout.
    pub async fn annotate(&self, name: &str, value: &str) {
        self.patch::<ModelRollout>(&self.setup.name, json!({ "metadata": { "annotations": { name: value } } })).await;
    }

    /// A merge patch.
    pub async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope> + Clone + std::fmt::Debug,
        K: serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Objects of the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Replicas that a Deployment wants.
    pub async fn replicas(&self, name: &str) -> i32 {
        let spec = self.api::<Deployment>().get(name).await.unwrap().spec;
        spec.and_then(|spec| spec.replicas).unwrap()
    }

    /// The Ingress of the users, as it is now.
    pub async fn ingress(&self) -> Ingress {
        self.api::<Ingress>().get(&self.setup.name).await.unwrap()
    }

    /// Deletes an Ingress by hand.
    pub async fn delete_ingress(&self, name: &str) {
        self.api::<Ingress>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Changes the text of a prompt.
    pub async fn edit_prompt(&self, color: &str, text: &str) {
        let patch = json!({ "data": { "template.txt": text } });
        self.patch::<ConfigMap>(&format!("prompt-{color}"), patch).await;
    }

    /// The reason and the note of every Event about the ModelRollout.
    pub async fn events(&self) -> Vec<(String, String)> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap();
        let about =
            |event: &Event| event.regarding.as_ref().is_some_and(|it| it.kind.as_deref() == Some("ModelRollout"));
        let told = events.items.into_iter().filter(about);
        told.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }

    /// Waits for an Event, and gives its note.
    pub async fn event(&self, reason: &str) -> String {
        eventually(&format!("an Event {reason}"), SHORT, async || {
            let events = self.events().await;
            let note = events.iter().find(|event| event.0 == reason).map(|event| event.1.clone());
            note.ok_or_else(|| format!("{:?}", events.into_iter().map(|event| event.0).collect::<Vec<_>>()))
        })
        .await
    }

    /// Kills the operator, gives it a moment of absence, and starts it again as the same Pod.
    pub async fn kill_and_start_again(&mut self) {
        let mut operator = self.operator.take().unwrap();
        operator.kill().await;
        self.operator = Some(self.launcher.start(&operator.identity));
    }

    async fn stop_load(&mut self) -> Vec<Report> {
        let mut reports = Vec::new();
        for load in self.load.iter_mut().chain(&mut self.other_loads) {
            reports.push(load.stop().await);
        }
        reports
    }

    fn check_operator(&self) {
        let restarts = self.operator.as_ref().map_or(0, Operator::check_running);
        if restarts > 0 {
            measured(&format!("{}: {restarts} leases lost on a machine that stood still", self.namespace));
        }
    }

    /// Whatever was judged in this scenario, and led to whatever: the numbers that are on record give the same verdict.
    fn check_verdicts(&self) {
        let records = self.rollouts.verdicts();
        for (place, record) in &records {
            verdicts::check(place, record);
        }
        let lines = verdicts::decisions(&self.launcher.logs());
        for decision in &lines {
            let place = format!("decision {} of attempt {:?}", decision.reason, decision.attempt);
            decision.gates.iter().for_each(|gate| verdicts::check(&place, &gate.into()));
        }
        verdicts::checked(records.len(), lines.len());
    }

    fn check(&self, reports: &[Report]) {
        for report in reports {
            assert!(report.whole > 30, "hardly anything was answered: {}", report.whole);
            assert!(report.failed <= self.may_fail, "{} requests failed", report.failed);
            let broken = (report.cut_streams, report.mismatched_pairs);
            assert_eq!(broken, (0, 0), "cut streams, mismatched pairs");
        }
        for (file, log) in self.launcher.logs() {
            let refused = log.lines().find(|line| line.contains("orbidden") || line.contains("panicked"));
            assert!(refused.is_none(), "{file}: {refused:?}");
        }
    }

    async fn dump(&self, reports: &[Report]) {
        let seen = self.rollouts.history();
        eprintln!("\n######## {}\n-- what the ModelRollout went through\n{}", self.namespace, seen.join("\n"));
        eprintln!("-- what the Ingresses went through\n{}", self.ingresses.history().join("\n"));
        if let Ok(object) = self.api::<ModelRollout>().get(&self.setup.name).await {
            eprintln!("-- status\n{}", serde_yaml::to_string(&object.status).unwrap());
        }
        for arguments in [&["get", "mr,deploy,pods,ingress", "-o", "wide"][..], &["get", "events.events.k8s.io"]] {
            eprintln!("-- kubectl {}\n{}", arguments.join(" "), kubectl(&self.namespace, arguments));
        }
        for (file, log) in self.launcher.logs() {
            let lines: Vec<_> = log.lines().collect();
            eprintln!("-- the end of {file}\n{}", lines.split_at(lines.len().saturating_sub(80)).1.join("\n"));
        }
        for report in reports {
            eprintln!("-- load\n{}", serde_yaml::to_string(report).unwrap());
        }
    }
}

/// The status, if it is as wanted.
pub fn status_if(object: &ModelRollout, wanted: impl Fn(&ModelRolloutStatus) -> bool) -> Option<ModelRolloutStatus> {
    object.status.as_ref().filter(|status| wanted(status)).cloned()
}

/// Whether the stage of `weight` runs.
pub fn in_stage(weight: i32) -> impl Fn(&ModelRolloutStatus) -> bool {
    move |status| {
        let attempt = status.attempt.as_ref().filter(|attempt| attempt.open && attempt.step == Step::Stage);
        attempt.is_some_and(|attempt| attempt.weight_intended == weight)
    }
}

/// Whether the open attempt is at `step`.
pub fn at_step(step: Step) -> impl Fn(&ModelRolloutStatus) -> bool {
    move |status| status.attempt.as_ref().is_some_and(|attempt| attempt.open && attempt.step == step)
}

/// Status and reason of a condition.
pub fn condition(status: &ModelRolloutStatus, kind: &str) -> (String, String) {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind);
    found.map(|condition| (condition.status.clone(), condition.reason.clone())).unwrap_or_default()
}
