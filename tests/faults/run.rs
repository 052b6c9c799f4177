//! One run: a scenario, its faults, and what came of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use modelrollout::api::reasons::{Phase, Reason, Step};
use modelrollout::api::{Color, ModelRollout};
use modelrollout::ops::metrics::Metrics;
use modelrollout::ops::server::Health;
use modelrollout::shell::clock::Clock;
use modelrollout::shell::leader::{Elector, Leadership};
use modelrollout::shell::start::{self, Parts, Settings};
use modelrollout_simapi::client::Sim;
use modelrollout_simapi::server::Server;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::fault::{Class, Fault, Kind};
use crate::hooks::{Command, Hooks, OPERATOR, RIVAL};
use crate::invariants::{Invariants, Violation};
use crate::names::{BASE_MS, LEASE, NAME, NAMESPACE, SETTLE_MS, UNREADY_MS, UNSEEN_MS, is_main, service};
use crate::objects;
use crate::scenario::{Do, Scenario, When};
use crate::source::source;
use crate::world::{self, Shared, World, lock, rollout_path};

/// A rollout begins when blue's Pods are there.
const BEGIN_MS: u64 = 20_000;
/// So long nothing may be written any more, for the run to be over.
const QUIET_MS: u64 = 45_000;
/// A run that is not over by then is stuck: twice what the longest needs, and what the longest fault takes.
const LONGEST_MS: u64 = 1_500_000;
/// So far a clock jumps, and so long it takes until it is right again.
const CLOCK_JUMP_S: i64 = 600;
const CLOCK_WRONG_MS: u64 = 60_000;

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// What is compared with that of the undisturbed run.
    pub state: BTreeMap<&'static str, String>,
    /// How often the operator made and deleted each object of its own.
    pub objects: BTreeMap<String, u64>,
    /// What the status says.
    pub message: String,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    /// Faults that happened: a place that is not reached has none.
    pub happened: Vec<Fault>,
    pub end: End,
    /// How many places of each class there were.
    pub places: BTreeMap<Class, u64>,
    /// When it was over, in milliseconds.
    pub took: u64,
    /// When the last was written or done, in milliseconds.
    pub rests_since: u64,
    /// When the last fault and what it leads to was over, in milliseconds.
    pub over_at: u64,
    /// When the target first answered with an error, and when it had no share any more after that, in milliseconds.
    pub bad: (Option<u64>, Option<u64>),
    /// Requests of users.
    pub requests: u64,
    pub trace: Vec<String>,
    /// Specs of the script that were accepted, and refused; and whether the last one was.
    pub accepted: u64,
    pub refused: u64,
    pub last_accepted: bool,
}

/// The `CustomResourceDefinition` as it is installed.
pub static CRD: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../crds/modelrollouts.yaml");
    serde_yaml::from_str(text).expect("the CRD is YAML")
});

/// A server with the CRD, to begin from: reading it takes longer than a run.
static SERVER: LazyLock<Mutex<Server>> = LazyLock::new(|| {
    let mut server = Server::new();
    server.install_crd(&CRD);
    Mutex::new(server)
});

/// Runs `scenario` with `faults`, in paused time. Delays, requests and scrapes are drawn from `seed`.
pub fn run(scenario: &Scenario, faults: &[Fault], seed: u64, trace: bool) -> Outcome {
    fastrand::seed(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let outcome = runtime.block_on(Run::play(scenario, faults, seed, trace));
    // what still waits is of no interest
    runtime.shutdown_background();
    outcome
}

struct Operator {
    life: JoinHandle<Result<(), String>>,
    stop: CancellationToken,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.life.abort();
    }
}

struct Run {
    scenario: Scenario,
    sim: Sim<Hooks>,
    world: Shared,
    operator: Option<Operator>,
    /// When it starts again, and how far ahead its clock is then, in seconds.
    restart: Option<(u64, i64)>,
    rival: Option<(Operator, u64)>,
    /// The ModelRollout was created.
    created: bool,
    /// Next step of the script, and when it is due.
    next: usize,
    due: Option<u64>,
    /// When Pods that a fault took are there again.
    ready_again: Option<u64>,
    /// When a clock that was wrong is right again.
    right_again: Option<u64>,
    attempts_ended: usize,
    last_write: u64,
    writes: u64,
    /// Somebody switched a backend when the rollout was gone: what becomes of that is not the operator's.
    on_their_own: bool,
}

impl Run {
    async fn play(scenario: &Scenario, faults: &[Fault], seed: u64, trace: bool) -> Outcome {
        let (commands, mut received) = mpsc::unbounded_channel();
        let server = SERVER.lock().expect("no panic").clone();
        let hooks = Hooks::new(faults, commands, Invariants::default(), trace);
        let base = Timestamp::from_millisecond(BASE_MS).expect("a time");
        let sim = Sim::new(server, hooks, base);
        for (path, object) in objects::all(scenario) {
            let (code, answer) = sim.request("user", "POST", &path, &object);
            assert_eq!(code, 201, "{path}: {answer}");
        }
        let world = Arc::new(Mutex::new(World::new(sim.clone(), scenario, seed)));
        let moving = tokio::spawn(world::run(Arc::clone(&world), sim.clone()));
        let mut run = Self {
            scenario: scenario.clone(),
            sim: sim.clone(),
            world,
            operator: None,
            restart: None,
            rival: None,
            created: false,
            next: 0,
            due: None,
            ready_again: None,
            right_again: None,
            attempts_ended: 0,
            last_write: 0,
            writes: 0,
            on_their_own: false,
        };
        run.start(0);
        run.until(BEGIN_MS, &mut received).await;
        let (collection, _) =
            rollout_path().rsplit_once('/').map(|(path, name)| (path.to_owned(), name.to_owned())).expect("a path");
        let (code, answer) = sim.request("user", "POST", &collection, &objects::rollout(scenario));
        assert_eq!(code, 201, "{answer}");
        run.last_write = BEGIN_MS;
        run.created = true;
        let over = run.until_over(&mut received).await;
        moving.abort();
        run.judge(over)
    }

    /// Starts an operator whose clock is so many seconds ahead.
    fn start(&mut self, skew: i64) {
        self.operator = Some(self.launch(OPERATOR, skew));
    }

    fn launch(&self, who: &str, skew: i64) -> Operator {
        let client = self.sim.client(who, NAMESPACE);
        let stop = CancellationToken::new();
        let base = Timestamp::from_millisecond(BASE_MS).expect("a time") + SignedDuration::from_secs(skew);
        let clock = Clock::Simulated { base, start: self.sim.start() };
        let (elector, leadership) = Elector::new(client.clone(), (NAMESPACE, LEASE), who, clock, stop.clone());
        let ours = who == OPERATOR;
        let parts = Parts::new(Settings {
            reads: client.clone(),
            writes: client,
            clock,
            scopes: vec![NAMESPACE.to_owned()],
            settle: Duration::from_millis(SETTLE_MS),
            sources: source(&self.world, &self.sim, ours),
            leadership: if ours { leadership } else { Leadership::always(stop.clone()) },
            identity: who.to_owned(),
            concurrency: 8,
            metrics: Arc::new(Metrics::new()),
            health: Arc::new(Health::default()),
        });
        let stopped = stop.clone();
        let life = tokio::spawn(async move { start::lead(parts, ours.then_some(elector), &stopped).await });
        Operator { life, stop }
    }

    /// Plays on until a moment.
    async fn until(&mut self, at: u64, commands: &mut mpsc::UnboundedReceiver<Command>) {
        while self.sim.millis() < at {
            self.turn(at, commands).await;
        }
    }

    /// Plays on until nothing moves any more. Gives whether that came.
    async fn until_over(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> bool {
        loop {
            let now = self.sim.millis();
            self.act(now);
            if self.is_over(now) {
                return true;
            }
            // what an attempt waits for may be so late, and its end then looks so far away
            let longest = LONGEST_MS + 2 * self.ahead();
            if now >= longest {
                return self.waits_for_a_person();
            }
            let soon = self.last_write + QUIET_MS;
            let next = if soon > now { soon } else { now + 1_000 };
            self.turn(next.min(longest), commands).await;
        }
    }

    fn happened(&self, what: fn(Kind) -> bool) -> bool {
        self.sim.with(|_, hooks| hooks.happened.iter().any(|fault| what(fault.kind)))
    }

    /// How far ahead what was written may lie, since a clock was wrong.
    fn ahead(&self) -> u64 {
        if self.happened(|kind| kind == Kind::ClockAhead) { CLOCK_JUMP_S as u64 * 1000 } else { 0 }
    }

    fn is_over(&self, now: u64) -> bool {
        let waiting = self.sim.with(|_, hooks| {
            hooks.next_instant().is_some_and(|at| at <= LONGEST_MS)
                || hooks.answers_from().max(hooks.source_down_until) > now
        });
        let open = || lock(&self.world).rollout().is_some_and(|rollout| is_moving(&rollout));
        let quiet = match self.ahead() {
            // a watch that is silent at rest is given up after 65 seconds
            0 if self.happened(Kind::makes_blind) => 2 * QUIET_MS,
            ahead => QUIET_MS + ahead,
        };
        now >= self.last_write + quiet
            && !waiting
            && self.restart.is_none()
            && self.rival.is_none()
            && self.right_again.is_none()
            && (self.next >= self.scenario.script.len() || self.script_ends(now))
            && !open()
    }

    /// Whether it stands and says that somebody has to approve it, has to say what becomes of a color that serves and was
    /// changed, or has to give back Pods that somebody has taken, or that never became ready.
    fn waits_for_a_person(&self) -> bool {
        let rollout = lock(&self.world).rollout();
        let Some(status) = rollout.as_deref().and_then(|it| it.status.as_ref()) else { return false };
        let holds = |reason: Reason| {
            let word = reason.to_string();
            status.phase == Some(Phase::Holding)
                && status.conditions.iter().any(|one| one.type_ == "Progressing" && one.reason == word)
        };
        let changed = holds(Reason::RollbackTargetChanged) && self.happened(|kind| kind == Kind::Supersede);
        let few = |kind| matches!(kind, Kind::ScaledOld | Kind::NodeLost);
        let short = holds(Reason::CapacityShort) && self.happened(few);
        changed || short || status.phase == Some(Phase::AwaitingApproval)
    }

    /// Whether what the script waits for will not come, since somebody has done something else meanwhile, or a leader whose
    /// view is old has ended the attempt (see S2).
    fn script_ends(&self, now: u64) -> bool {
        let changed = self.happened(Kind::changes_the_end) || self.sim.with(|_, hooks| hooks.invariants.is_late());
        changed && self.due.is_none() && now >= self.last_write + 2 * QUIET_MS
    }

    /// Waits for whatever comes first: a change, a command, a moment.
    async fn turn(&mut self, until: u64, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let versions = self.sim.versions();
        let now = self.sim.millis();
        self.act(now);
        let moments = [
            Some(until),
            self.due,
            self.restart.map(|one| one.0),
            self.rival.as_ref().map(|one| one.1),
            self.ready_again,
            self.right_again,
            self.sim.with(|_, hooks| hooks.next_instant()),
        ];
        let at = moments.into_iter().flatten().filter(|at| *at > now).min().unwrap_or(until);
        let at = self.sim.start() + Duration::from_millis(at);
        tokio::select! {
            biased;
            Some(command) = commands.recv() => self.obey(command),
            ended = ended(&mut self.operator) => {
                // the lease was lost: the kubelet starts the container again
                let now = self.sim.millis();
                self.sim.with(|_, hooks| hooks.note(|| format!("operator ended: {ended:?}")));
                self.operator = None;
                self.restart.get_or_insert((now + 1_000, 0));
            }
            () = versions.changed() => {}
            () = sleep_until(at.max(Instant::now())) => {}
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.sim.millis();
        match command {
            Command::Crash { down, skew } => {
                self.operator = None;
                self.restart = Some((now + down.as_millis() as u64, skew));
            }
            Command::Rival => {
                let rival = self.launch(RIVAL, 0);
                self.rival = Some((rival, now + 3_000));
            }
        }
    }

    /// Does what is due now.
    fn act(&mut self, now: u64) {
        if let Some((_, skew)) = self.restart.take_if(|one| one.0 <= now) {
            self.start(skew);
            self.last_write = now;
        }
        // what cannot be written now is written then
        self.last_write =
            self.last_write.max(self.sim.with(|_, hooks| hooks.answers_from().max(hooks.source_down_until).min(now)));
        if self.right_again.take_if(|at| *at <= now).is_some() {
            self.obey(Command::Crash { down: Duration::ZERO, skew: 0 });
        }
        self.rival.take_if(|one| one.1 <= now);
        if self.ready_again.take_if(|at| *at <= now).is_some() {
            lock(&self.world).set_ready(Color::Green, true);
        }
        for kind in self.sim.with(|_, hooks| hooks.instants(now)) {
            self.instant(kind, now);
        }
        let rollout = lock(&self.world).rollout();
        let writes = self.sim.with(|_, hooks| hooks.count(Class::Write));
        if writes != self.writes {
            (self.writes, self.last_write) = (writes, now);
        }
        self.play_script(rollout.as_deref(), now);
    }

    fn play_script(&mut self, rollout: Option<&ModelRollout>, now: u64) {
        if !self.created {
            return;
        }
        let Some((when, what)) = self.scenario.script.get(self.next).cloned() else { return };
        if self.due.is_none() {
            self.due = self.has_come(when, rollout, now).map(|wait| now + wait);
        }
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            self.next += 1;
            self.last_write = now;
            self.attempts_ended = rollout.and_then(|it| it.status.as_ref()).map_or(0, |status| status.history.len());
            lock(&self.world).act(&what);
        } else if rollout.is_none() {
            // it is gone: nothing more will come of it
            self.next = self.scenario.script.len();
        }
    }

    /// Whether the moment of a step of the script has come, and after how many milliseconds it is done.
    fn has_come(&self, when: When, rollout: Option<&ModelRollout>, now: u64) -> Option<u64> {
        if let When::After(wait) = when {
            return Some(wait);
        }
        if let When::Rest(wait) = when {
            return (!is_moving(rollout?) && now >= self.last_write + QUIET_MS / 2).then_some(wait);
        }
        let status = rollout?.status.as_ref()?;
        let attempt = status.attempt.as_ref()?;
        let share = self.sim.with(|_, hooks| *hooks.invariants.share().of(attempt.to));
        let in_stage = |weight: i32| {
            share == weight
                && attempt.open
                && attempt.step == Step::Stage
                && attempt.weight_intended == weight
                && attempt.stage_started_at.is_some()
        };
        let (come, wait) = match when {
            When::At(step, wait) => (attempt.open && attempt.step == step, wait),
            When::InStage(weight, wait) => (in_stage(weight), wait),
            When::After(wait) | When::Rest(wait) => (true, wait),
            When::Ended(wait) => (!attempt.open && status.history.len() > self.attempts_ended, wait),
        };
        come.then_some(wait)
    }

    /// What somebody does, or what breaks, at a moment.
    fn instant(&mut self, kind: Kind, now: u64) {
        let mut world = lock(&self.world);
        let ingress = |name: &str| format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses/{name}");
        let deployment = |color: Color| format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{}", service(color));
        self.last_write = self.last_write.max(now);
        match kind {
            Kind::EditGates => world.act(&Do::Set("/gates", json!([]))),
            Kind::Supersede => world.act(&Do::Template(Color::Green)),
            Kind::TargetBack => world.act(&Do::Set("/target", json!("blue"))),
            Kind::Delete => world.act(&Do::Delete),
            Kind::ActRollback => world.act(&Do::Annotate("modelrollout.dev/rollback", "somebody")),
            Kind::CanaryDeleted => {
                world.user("DELETE", &ingress("bot-canary"), &Value::Null);
            }
            Kind::CanaryEdited => {
                let weight =
                    json!({ "metadata": { "annotations": { "nginx.ingress.kubernetes.io/canary-weight": "7" } } });
                world.user("PATCH", &ingress("bot-canary"), &weight);
            }
            Kind::Switched | Kind::SwitchedUnseen => {
                self.on_their_own |= world.rollout().is_none() && whole(&self.end(None), false).is_empty();
                if kind == Kind::SwitchedUnseen {
                    self.sim.with(|_, hooks| hooks.unseen_until = now + UNSEEN_MS);
                }
                let place = "/spec/rules/0/http/paths/0/backend/service/name";
                let (_, main) = world.user("GET", &ingress("bot"), &Value::Null);
                let other = if main.pointer(place) == Some(&json!("bot-blue")) { "bot-green" } else { "bot-blue" };
                world.user("PATCH", &ingress("bot"), &json!([{ "op": "replace", "path": place, "value": other }]));
            }
            Kind::ScaledOld => {
                let replicas = json!({ "spec": { "replicas": objects::REPLICAS - 1 } });
                world.user("PATCH", &format!("{}/scale", deployment(Color::Blue)), &replicas);
            }
            Kind::NodeLost => world.lose_node(Color::Green),
            Kind::TargetUnready => {
                world.set_ready(Color::Green, false);
                self.ready_again = Some(now + UNREADY_MS);
            }
            Kind::TargetDeleted => {
                world.user("DELETE", &deployment(Color::Green), &Value::Null);
            }
            Kind::ClockAhead | Kind::ClockBehind => {
                drop(world);
                let skew = if kind == Kind::ClockAhead { CLOCK_JUMP_S } else { -CLOCK_JUMP_S };
                self.obey(Command::Crash { down: Duration::ZERO, skew });
                self.right_again = Some(now + CLOCK_WRONG_MS);
            }
            Kind::Term => {
                if let Some(operator) = &self.operator {
                    operator.stop.cancel();
                }
            }
            Kind::Frozen => self.sim.with(|_, hooks| hooks.frozen_until = now + 8_000),
            _ => {}
        }
    }

    /// Looks at how it ended.
    fn judge(self, over: bool) -> Outcome {
        let rollout = lock(&self.world).rollout();
        let requests = lock(&self.world).requests().0;
        let specs = lock(&self.world).specs.clone();
        let end = self.end(rollout.as_deref());
        let now = self.sim.millis();
        let mut outcome = self.sim.with(|_, hooks| Outcome {
            violations: std::mem::take(&mut hooks.invariants.violations),
            happened: std::mem::take(&mut hooks.happened),
            end,
            places: [Class::Write, Class::Read, Class::Lease, Class::Note, Class::Event, Class::Query]
                .map(|class| (class, hooks.count(class)))
                .into(),
            took: now,
            rests_since: self.last_write.min(now),
            over_at: hooks.invariants.over_at,
            bad: hooks.invariants.bad,
            requests,
            trace: hooks.trace.take().unwrap_or_default(),
            accepted: specs.iter().filter(|accepted| **accepted).count() as u64,
            refused: specs.iter().filter(|accepted| !**accepted).count() as u64,
            last_accepted: specs.last().copied().unwrap_or(true),
        });
        let mut broken = |rule, text: String| outcome.violations.push(Violation { rule, at: now, text });
        if !over {
            let status = rollout.as_deref().and_then(|rollout| rollout.status.clone()).unwrap_or_default();
            broken("L1", format!("it never comes to rest: {:?}, {}", status.phase, status.summary.message));
        }
        for (rule, text) in whole(&outcome.end, self.on_their_own) {
            broken(rule, text);
        }
        outcome
    }

    fn end(&self, rollout: Option<&ModelRollout>) -> End {
        let mut end = End::default();
        let (ingresses, deployments, jobs, created) = self.sim.with(|server, hooks| {
            let list = |resource: &str| server.list(resource, Some(NAMESPACE));
            (
                list("networking.k8s.io/v1/ingresses"),
                list("apps/v1/deployments"),
                list("batch/v1/jobs"),
                hooks.invariants.made.clone(),
            )
        });
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut backends = String::new();
        let mut ours = String::new();
        for ingress in &ingresses {
            let name = name(ingress);
            if is_main(&name) {
                let backend = ingress
                    .pointer("/spec/rules/0/http/paths/0/backend/service/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let _ = write!(backends, "{name}={backend} ");
            } else {
                let _ = write!(ours, "{name} ");
            }
        }
        let replicas = |color: Color| {
            let found = deployments.iter().find(|one| name(one) == service(color));
            found
                .and_then(|one| one.pointer("/spec/replicas").and_then(Value::as_i64))
                .map_or_else(|| "gone".to_owned(), |count| count.to_string())
        };
        end.state.insert("backends", backends);
        end.state.insert("ingresses of ours", ours);
        end.state.insert("blue", replicas(Color::Blue));
        end.state.insert("green", replicas(Color::Green));
        end.state.insert("jobs", jobs.len().to_string());
        end.objects = created;
        let Some(rollout) = rollout else {
            end.state.insert("phase", "deleted".to_owned());
            return end;
        };
        let status = rollout.status.clone().unwrap_or_default();
        let outcomes: Vec<String> =
            status.history.iter().map(|entry| format!("{:?}({:?})", entry.outcome, entry.cause)).collect();
        let word = |phase: Option<Phase>| phase.map_or_else(String::new, |phase| phase.to_string());
        end.message.clone_from(&status.summary.message);
        end.state.insert("phase", word(status.phase));
        end.state.insert("active", status.active_color.map_or_else(String::new, |color| color.to_string()));
        end.state.insert("open", status.attempt.as_ref().is_some_and(|attempt| attempt.open).to_string());
        end.state.insert("history", outcomes.join(" "));
        end.state.insert("finalizers", rollout.metadata.finalizers.clone().unwrap_or_default().join(" "));
        end.state.insert(
            "acts left",
            rollout
                .metadata
                .annotations
                .clone()
                .unwrap_or_default()
                .keys()
                .filter(|key| key.starts_with(NAME) || key.contains("modelrollout.dev"))
                .cloned()
                .collect(),
        );
        end
    }
}

/// Ends when the operator does.
async fn ended(operator: &mut Option<Operator>) -> Result<(), String> {
    match operator {
        Some(operator) => (&mut operator.life).await.unwrap_or_else(|error| Err(error.to_string())),
        None => std::future::pending().await,
    }
}

/// Whether something is still to come by itself.
fn is_moving(rollout: &ModelRollout) -> bool {
    let Some(status) = &rollout.status else { return true };
    let held = status.phase == Some(Phase::Holding) || status.phase == Some(Phase::AwaitingApproval);
    let attempt = status.attempt.as_ref();
    let open = attempt.is_some_and(|attempt| attempt.open || attempt.drain_until.is_some());
    rollout.metadata.deletion_timestamp.is_some() || (open && !held)
}

/// What must be so at every end, whatever happened: O1's part that needs no comparison, and S17.
fn whole(end: &End, on_their_own: bool) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let of = |key: &str| end.state.get(key).map(String::as_str).unwrap_or_default();
    let (backends, ours) = (of("backends"), of("ingresses of ours"));
    // switched by hand before anybody knew who serves, or when the rollout was gone: a person has to say
    let nobody = of("active").is_empty() && (of("phase") == "Invalid" || on_their_own);
    if backends.contains("bot-blue") && backends.contains("bot-green") && !nobody {
        wrong.push(("S17", format!("half of the backends are switched: {backends}")));
    }
    if of("open") != "true" {
        if !ours.is_empty() {
            wrong.push(("S17", format!("left over: {ours}")));
        }
        if !of("finalizers").is_empty() {
            wrong.push(("S17", "the finalizer is left".to_owned()));
        }
        let active = of("active");
        if !active.is_empty() && !backends.contains(active) {
            wrong.push(("O1", format!("{active} is active, and the backends are {backends}")));
        }
    }
    wrong
}
