//! The simulated cluster around the API server: it moves Pods, traffic and samples on, and does what users do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use modelrollout::api::{Color, ModelRollout};
use modelrollout_simapi::actors::ingress_controller::{Flavor, IngressController, Snapshot};
use modelrollout_simapi::actors::prometheus::{self, Prometheus};
use modelrollout_simapi::actors::users::{self, Behavior, Finished, Servers, Serving, Users};
use modelrollout_simapi::actors::workloads::{Pod, Times, Workloads};
use modelrollout_simapi::client::Sim;
use modelrollout_simapi::server::{Change, Server};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::hooks::Hooks;
use crate::invariants::{Pair, color_of};
use crate::names::{BASE_MS, NAME, NAMESPACE, service};
use crate::scenario::{Do, Scenario};

/// Milliseconds between two scrapes.
pub const SCRAPE_MS: u64 = 3_000;

/// Everything but the API server and the operator.
pub struct World {
    sim: Sim<Hooks>,
    workloads: Workloads,
    controller: IngressController,
    users: Users,
    pub prometheus: Prometheus,
    behavior: Pair<Behavior>,
    versions: BTreeMap<String, Arc<str>>,
    /// Of each spec that was sent, whether it was accepted.
    pub specs: Vec<bool>,
    /// The ModelRollout as it was read last.
    read: Option<(Arc<Value>, Arc<ModelRollout>)>,
}

/// The Pods' side of a request.
struct Pods<'a> {
    workloads: &'a Workloads,
    behavior: &'a Pair<Behavior>,
    versions: &'a mut BTreeMap<String, Arc<str>>,
}

impl Servers for Pods<'_> {
    fn begin(&mut self, pod: &str, now_ms: u64) -> Option<Serving> {
        let found = self.workloads.pods().get(pod)?;
        if !(found.ready && found.ends_at.is_none_or(|end| now_ms < end)) {
            return None;
        }
        let color = color_of(&found.deployment)?;
        let key = format!("{}-{:x}", found.deployment, found.template);
        let version = self.versions.entry(key.clone()).or_insert_with(|| key.into());
        Some(Serving { incarnation: 0, version: Arc::clone(version), behavior: *self.behavior.of(color) })
    }

    fn alive_until(&self, pod: &str, _incarnation: u64) -> u64 {
        self.workloads.pods().get(pod).map_or(0, |pod| pod.ends_at.unwrap_or(u64::MAX))
    }
}

/// A world that several tasks look at; all of them run on one thread.
pub type Shared = Arc<Mutex<World>>;

/// Locks it.
pub fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// A cluster where blue serves.
    pub fn new(sim: Sim<Hooks>, scenario: &Scenario, seed: u64) -> Self {
        let mut workloads = Workloads::new(NAMESPACE, seed, Times::default());
        workloads.stuck = scenario.stuck.then(|| service(Color::Green));
        let config = users::Config {
            host: "bot.example".to_owned(),
            plain: 12.0,
            plain_ms: (50.0, 600.0),
            streams: 0.3,
            stream_ms: (2_000.0, 60_000.0),
            ..users::Config::default()
        };
        let start = 15_000;
        // a plain switch spares requests where the controller does: ingress-nginx needs its own dialect for that
        let plain = scenario.spec["traffic"]["ingress"]["controller"] == "none";
        let flavor = if plain { Flavor::Traefik } else { Flavor::IngressNginx };
        let source = prometheus::Config {
            epoch_ms: BASE_MS as u64,
            namespace: NAMESPACE.to_owned(),
            interval_ms: SCRAPE_MS,
            discovery_ms: 500,
            ..prometheus::Config::default()
        };
        Self {
            sim,
            workloads,
            controller: IngressController::new(flavor, seed ^ 0x5eed),
            users: Users::new(config, seed ^ 0xface, start),
            prometheus: Prometheus::new(source, seed),
            behavior: Pair { blue: Behavior::default(), green: Behavior::default() },
            versions: BTreeMap::new(),
            specs: Vec::new(),
            read: None,
        }
    }

    /// All that is due.
    pub fn step(&mut self) {
        loop {
            let changes = self.sim.with(|_, hooks| std::mem::take(&mut hooks.pending));
            let now = self.sim.millis();
            for change in &changes {
                self.workloads.changed(change, now);
            }
            self.follow(&changes, now);
            let due = self.workloads.wake().is_some_and(|at| at <= now);
            if due {
                let sim = self.sim.clone();
                self.workloads.advance(now, &|method, path, body| call(&sim, method, path, body));
            }
            if changes.is_empty() && !due {
                break;
            }
        }
        let now = self.sim.millis();
        self.controller.advance(now);
        self.traffic(now);
        self.prometheus.advance(now);
    }

    /// The ingress controller and Prometheus notice what concerns them.
    fn follow(&mut self, changes: &[Change], now: u64) {
        let concerns = |change: &Change| {
            ["networking.k8s.io/v1/ingresses", "v1/services", "discovery.k8s.io/v1/endpointslices"]
                .contains(&change.resource.as_str())
        };
        if changes.iter().any(concerns) {
            let list = |resource: &str| self.sim.with(|server, _| server.list(resource, Some(NAMESPACE)));
            let snapshot = Snapshot {
                ingresses: list("networking.k8s.io/v1/ingresses"),
                services: list("v1/services"),
                slices: list("discovery.k8s.io/v1/endpointslices"),
            };
            self.controller.changed(snapshot, now);
        }
        if changes.iter().any(|change| change.resource == "v1/pods") {
            let target = |(name, pod): (&String, &Pod)| prometheus::Pod {
                name: name.as_str().into(),
                service: pod.deployment.as_str().into(),
                incarnation: 0,
                up: pod.ready,
            };
            let targets: Vec<_> = self.workloads.pods().iter().map(target).collect();
            self.prometheus.targets(&targets, now);
        }
    }

    fn traffic(&mut self, now: u64) {
        let Self { sim, workloads, controller, users, prometheus, behavior, versions, .. } = self;
        let mut pods = Pods { workloads, behavior, versions };
        let mut finished: Vec<Finished> = Vec::new();
        users.advance(now, controller, &mut pods, &mut |one| {
            prometheus.count(one);
            finished.push(one.clone());
        });
        let in_force = Pair {
            blue: controller.share_of("bot.example", "bot-blue"),
            green: controller.share_of("bot.example", "bot-green"),
        };
        let excused = |one: &Finished| pods.workloads.pods().get(&*one.pod).is_none_or(|pod| pod.lost);
        sim.with(|_, hooks| {
            hooks.invariants.in_force = in_force;
            for one in &finished {
                let excused = one.outcome.is_lost() && !one.pod.is_empty() && excused(one);
                hooks.invariants.finished(one, excused, now);
            }
        });
    }

    /// When something happens next.
    pub fn wake(&self) -> u64 {
        let wakes =
            [self.workloads.wake(), self.controller.wake(), Some(self.users.wake()), Some(self.prometheus.wake())];
        wakes.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// How many requests were sent, and how many lost.
    pub fn requests(&self) -> (u64, u64) {
        (self.users.counts.sent, self.users.counts.all.lost)
    }

    /// The ModelRollout as it is stored. Read anew only when it has changed: it is asked for at every turn.
    pub fn rollout(&mut self) -> Option<Arc<ModelRollout>> {
        let found =
            self.sim.with(|server, _| server.get("modelrollout.dev/v1alpha1/modelrollouts", NAMESPACE, NAME))?;
        if let Some((object, rollout)) = &self.read
            && Arc::ptr_eq(object, &found)
        {
            return Some(Arc::clone(rollout));
        }
        let rollout = Arc::new(ModelRollout::deserialize(&*found).ok()?);
        self.read = Some((found, Arc::clone(&rollout)));
        Some(rollout)
    }

    /// A request of a user.
    pub fn user(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.sim.request("user", method, path, body)
    }

    fn patch_rollout(&self, patch: &Value) {
        let (code, answer) = self.user("PATCH", &rollout_path(), patch);
        assert!(code == 200 || code == 404, "{patch}: {code} {answer}");
    }

    /// What a script says.
    pub fn act(&mut self, what: &Do) {
        let now = self.sim.millis();
        self.sim.with(|_, hooks| hooks.note(|| format!("script: {what:?}")));
        match what {
            Do::Annotate(key, value) => {
                let status = self.rollout().and_then(|rollout| rollout.status.clone()).unwrap_or_default();
                let attempt = status.attempt.map_or((0, 0), |attempt| (attempt.id, attempt.stage_index + 1));
                let value =
                    value.replace("{attempt}", &attempt.0.to_string()).replace("{stage}", &attempt.1.to_string());
                self.patch_rollout(&json!({ "metadata": { "annotations": { *key: value } } }));
            }
            Do::Spec(spec) => {
                let (code, mut object) = self.user("GET", &rollout_path(), &Value::Null);
                object["spec"] = spec.clone();
                let accepted = code == 200 && self.user("PUT", &rollout_path(), &object).0 == 200;
                self.specs.push(accepted);
            }
            Do::Set(place, value) => {
                self.patch_rollout(&json!([{ "op": "replace", "path": format!("/spec{place}"), "value": value }]));
            }
            Do::Template(color) => {
                let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{}", service(*color));
                let image = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/image", "value": format!("registry.example/llama:{now}") }]);
                self.user("PATCH", &path, &image);
            }
            Do::Errors(color, percent) => self.behavior_of(*color).fails = f64::from(*percent) / 100.0,
            Do::Unready(color) => {
                let sim = self.sim.clone();
                let now = sim.millis();
                sim.with(|_, hooks| hooks.invariants.excuse_alone(now));
                self.workloads.stuck = Some(service(*color));
                self.workloads
                    .set_all_ready(&service(*color), false, &|method, path, body| call(&sim, method, path, body));
            }
            Do::Delete => {
                self.user("DELETE", &rollout_path(), &Value::Null);
            }
        }
    }

    fn behavior_of(&mut self, color: Color) -> &mut Behavior {
        match color {
            Color::Blue => &mut self.behavior.blue,
            Color::Green => &mut self.behavior.green,
        }
    }

    /// Pods of a color are lost with their node.
    pub fn lose_node(&mut self, color: Color) {
        let (sim, now) = (self.sim.clone(), self.sim.millis());
        self.workloads.lose_half(&service(color), now, &|method, path, body| call(&sim, method, path, body));
    }

    /// The Pods of a color stop, or begin again, to be ready.
    pub fn set_ready(&mut self, color: Color, ready: bool) {
        let sim = self.sim.clone();
        self.workloads.set_all_ready(&service(color), ready, &|method, path, body| call(&sim, method, path, body));
    }
}

/// Path of the ModelRollout.
pub fn rollout_path() -> String {
    format!("/apis/modelrollout.dev/v1alpha1/namespaces/{NAMESPACE}/modelrollouts/{NAME}")
}

/// A request of a part of the cluster.
fn call(sim: &Sim<Hooks>, method: &str, path: &str, body: &Value) -> (u16, Value) {
    if method == "GARBAGE" {
        sim.change(Server::collect_garbage);
        return (200, Value::Null);
    }
    sim.request("cluster", method, path, body)
}

/// Moves the world on, for ever.
pub async fn run(world: Shared, sim: Sim<Hooks>) {
    let mut versions = sim.versions();
    loop {
        versions.mark_seen();
        let wake = {
            let mut world = lock(&world);
            world.step();
            world.wake()
        };
        let at = sim.start() + Duration::from_millis(wake.min(1 << 40));
        tokio::select! {
            biased;
            () = versions.changed() => {}
            () = sleep_until(at.max(Instant::now())) => {}
        }
    }
}
