//! The engine behind the model: a view becomes what `engine::plan` reads, and its plan the model's writes. Each
//! different question is asked once; the answers are kept.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::RwLock;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use modelrollout::api::reasons::{Cause, Reason, Step};
use modelrollout::api::{Color, ModelRollout, ModelRolloutStatus, names};
use modelrollout::engine::observed::*;
use modelrollout::engine::plan::{Action, IngressWant, Order, Plan};
use modelrollout::engine::{self, traffic};

use super::scope::{Broken, Scope};
use super::state::{self, Basis, Canary, Oracle, Sec, Status, View, WRITES, Write};
use super::status::{Texts, now};

/// Requests that the metrics count of a window; half of them fail, or none.
pub const REQUESTS: i64 = 1000;

/// What came of one question.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The writes in their order; none: nothing is left to do.
    pub todo: [Option<Write>; WRITES],
    pub status: Status,
    pub basis: Basis,
    pub wake: Option<Sec>,
    /// Going back waits for a color to go back to.
    pub blocked: bool,
}

impl Answered {
    pub fn is_quiet(&self) -> bool {
        self.todo[0].is_none()
    }
}

type Kept = RwLock<HashMap<(View, Oracle), Answered, BuildHasherDefault<DefaultHasher>>>;

/// The engine, with everything that it was asked.
#[derive(Debug)]
pub struct Engine {
    scope: Scope,
    base: ModelRollout,
    gates_hash: String,
    texts: Texts,
    kept: Vec<Kept>,
}

const SHARDS: usize = 64;

fn spec(scope: &Scope) -> String {
    let seconds = |span: Duration| format!("{}s", span.as_secs());
    format!(
        r#"
apiVersion: modelrollout.dev/v1alpha1
kind: ModelRollout
metadata: {{name: bot, namespace: ml, uid: u1, generation: 1}}
spec:
  blue: {{deploymentName: bot-blue, serviceName: bot-blue, model: {{name: llama, version: "1"}}}}
  green: {{deploymentName: bot-green, serviceName: bot-green, model: {{name: llama, version: "2"}}}}
  target: green
  traffic: {{ingress: {{names: [bot], controller: nginx}}}}
  stages:
  - {{weight: 20, hold: {hold}}}
  - {{weight: 50, hold: {hold}}}
  - {{weight: 100, hold: {hold}}}
  gates:
  - {{name: errors, warmup: 0s, errorRate: {{bad: b, total: t, max: 5%}}}}
  prepare: {{progressDeadline: {deadline}}}
  rollback: {{buffer: {buffer}}}
"#,
        hold = seconds(scope.hold),
        deadline = seconds(scope.deadline),
        buffer = seconds(scope.buffer),
    )
}

/// The weights of the stages.
pub const STAGES: [u8; 3] = [20, 50, 100];

impl Engine {
    pub fn new(scope: Scope) -> Self {
        let mut base: ModelRollout = serde_yaml::from_str(&spec(&scope)).expect("a readable ModelRollout");
        if scope.broken == Broken::Unjudged {
            base.spec.gates.clear();
        }
        let gates_hash = engine::rollout::Rollout::parse(&base).expect("a valid spec").gates_hash();
        let kept = (0..SHARDS).map(|_| Kept::default()).collect();
        Self { scope, base, gates_hash, texts: Texts::default(), kept }
    }

    /// So many different questions were asked.
    pub fn asked(&self) -> usize {
        self.kept.iter().map(|kept| kept.read().expect("no panic").len()).sum()
    }

    /// What the operator does that sees `view` and hears `oracle`.
    pub fn ask(&self, view: &View, oracle: Oracle) -> Answered {
        self.with(view, oracle, Clone::clone)
    }

    /// Looks at one answer.
    pub fn with<R>(&self, view: &View, oracle: Oracle, look: impl FnOnce(&Answered) -> R) -> R {
        let key = (*view, oracle);
        let shard = BuildHasherDefault::<DefaultHasher>::default().hash_one(key) as usize % SHARDS;
        if let Some(answered) = self.kept[shard].read().expect("no panic").get(&key) {
            return look(answered);
        }
        let answered = self.plan(view, oracle);
        let out = look(&answered);
        self.kept[shard].write().expect("no panic").insert(key, answered);
        out
    }

    /// Whether requests are judged now, in a window that is on record.
    pub fn window(status: &Status) -> bool {
        Self::since(status).is_some()
    }

    /// Since when requests are judged, without the time that the controller needs after the switch.
    fn since(status: &Status) -> Option<Sec> {
        status.open().and_then(|it| match it.step {
            Step::Stage | Step::Promoting => it.clock,
            Step::Buffering => it.buffer_started,
            Step::Preparing | Step::RollingBack | Step::Restoring => None,
        })
    }

    /// What the readings of that window are taken for, as `judging::Window::key` makes it.
    fn key(&self, status: &Status) -> Option<String> {
        let (it, since) = (status.open()?, Self::since(status)?);
        let (mark, settle) = match it.step {
            Step::Buffering => ("buffer".to_owned(), self.scope.settle.as_secs() as Sec),
            _ => (it.weight.to_string(), 0),
        };
        let since = now().as_second() + i64::from(since + settle);
        Some(format!("{}.{mark}.{since}.{}.errors", it.id, self.gates_hash))
    }

    fn plan(&self, view: &View, oracle: Oracle) -> Answered {
        let status = self.texts.inflate(&view.rollout.status, &self.gates_hash);
        self.plan_with(view, status, oracle).0
    }

    /// Plans with a whole status, of which the view's is the picture; gives the whole status that it wants too.
    pub fn plan_with(&self, view: &View, status: ModelRolloutStatus, oracle: Oracle) -> (Answered, ModelRolloutStatus) {
        let mut object = self.base.clone();
        object.spec.target = view.rollout.target;
        object.metadata.resource_version = Some("1".to_owned());
        object.metadata.finalizers = view.rollout.finalizer.then(|| vec![names::FINALIZER.to_owned()]);
        if view.rollout.act {
            let act = (names::ANNOTATION_ROLLBACK.to_owned(), "model".to_owned());
            object.metadata.annotations = Some([act].into());
        }
        object.status = Some(status);
        let mut seen = self.observed(view);
        let said = self.key(&view.rollout.status).filter(|_| oracle != Oracle::Unread).map(|key| {
            let silent = oracle == Oracle::Silent && self.scope.broken == Broken::SilentPasses;
            let answer = answer(if silent { Oracle::Pass } else { oracle });
            seen.readings.insert("errors".to_owned(), Reading { key, at: now(), answer });
            oracle
        });
        let plan = engine::plan(&object, &seen, now());
        (self.read(view, &plan, said), plan.status)
    }

    fn observed(&self, view: &View) -> Observed {
        let color = |color: Color| {
            let it = view.deployments.get(color);
            let (desired, ready) = (i32::from(it.desired), i32::from(it.ready));
            let updated = if it.template == it.revision { desired } else { 0 };
            ColorSeen {
                deployment: Lookup::Found(DeploymentSeen {
                    uid: format!("deployment-{color}"),
                    resource_version: "1".to_owned(),
                    generation: 2,
                    observed_generation: if it.observed { 2 } else { 1 },
                    template_revision: it.revision.to_string(),
                    template_hash: format!("t{}", it.template),
                    desired,
                    // no owner is left after a first scale-down
                    replicas_by: if it.by_us { ReplicasBy::Unknown } else { ReplicasBy::Others },
                    total: desired,
                    updated,
                    ready,
                    selector: format!("color={color}"),
                    shutdown: Shutdown { grace_seconds: 300, pre_stop: true, sleep_seconds: 10 },
                    ..DeploymentSeen::default()
                }),
                service: Lookup::Found(ServiceSeen {
                    selector: [("color".to_owned(), color.to_string())].into(),
                    ports: vec![ServicePortSeen { name: None, number: 80 }],
                    publishes_not_ready: false,
                }),
                pods: Lookup::Found(PodsSeen { ready, reasons: vec![] }),
                endpoints: Lookup::Found(ready),
                prompt: Lookup::Missing,
                selected: [format!("bot-{color}")].into(),
                autoscaler: None,
            }
        };
        let canary = view.canary.map(|canary| {
            let annotations = [
                (names::NGINX_CANARY.to_owned(), "true".to_owned()),
                (names::NGINX_CANARY_WEIGHT.to_owned(), canary.weight.to_string()),
            ];
            let path = path(0, "bot.example", "/", canary.to);
            IngressSeen { annotations: annotations.into(), ..ours("bot-canary", vec![path], 0) }
        });
        let anchor = view.anchor.map(|anchor| {
            let mut paths = vec![path(0, "u1.anchor.invalid", "/", anchor.first)];
            if anchor.both {
                paths.push(path(1, "u1.anchor.invalid", "/live", anchor.first.other()));
            }
            ours("bot-anchor", paths, anchor.created)
        });
        let main = IngressSeen {
            uid: "main".to_owned(),
            owner_uid: None,
            managers: vec!["kubectl-edit".to_owned()],
            rules_by_us: view.main_by_us.map(|at| now() + SignedDuration::from_secs(i64::from(at))),
            ..ours("bot", vec![path(0, "bot.example", "/", view.main)], -1000)
        };
        Observed {
            colors: ByColor { blue: color(Color::Blue), green: color(Color::Green) },
            ingresses: [("bot".to_owned(), Lookup::Found(main))].into(),
            others: vec![],
            canary: canary.map_or(Lookup::Missing, Lookup::Found),
            anchor: anchor.map_or(Lookup::Missing, Lookup::Found),
            readings: BTreeMap::new(),
            jobs: Lookup::Found(BTreeMap::new()),
            job_templates: BTreeMap::new(),
            job_refusals: BTreeMap::new(),
            elder: None,
            settle: self.scope.settle,
        }
    }

    fn read(&self, view: &View, plan: &Plan, said: Option<Oracle>) -> Answered {
        let before = view.rollout.status;
        let mut status = self.texts.compact(&self.scope, &plan.status);
        let failed =
            before.open().is_some() && status.attempt.is_some_and(|it| !it.open && it.cause == Some(Cause::GateFailed));
        let blocked = status.reason == Some(Reason::RollbackBlocked);
        let mut todo: Vec<Write> = plan.actions.iter().map(|action| read(view, action)).collect();
        if self.scope.broken == Broken::EarlyScaleDown
            && let Some(it) = status.open().filter(|it| it.step == Step::Buffering)
            && view.deployments.get(it.to.other()).desired > 0
        {
            todo.push(Write::Scale { color: it.to.other(), replicas: 0, checked: true });
        }
        if self.scope.broken == Broken::NothingPutRight && before.open().is_none() {
            todo.retain(|write| !matches!(write, Write::Switch { .. } | Write::DeleteCanary));
        }
        if self.scope.broken == Broken::FailureForgotten {
            status.failed = None;
        }
        if status != before {
            let first = match plan.order {
                Order::StatusFirst => self.scope.broken != Broken::TrafficBeforeIntent,
                Order::TrafficFirst => self.scope.broken == Broken::StatusBeforeGoingBack,
            };
            todo.insert(if first { 0 } else { todo.len() }, Write::Status);
        }
        todo.extend(plan.after.iter().map(|action| read(view, action)));
        let attempt = status.attempt;
        let mut places = [None; WRITES];
        assert!(todo.len() <= WRITES, "{todo:?}");
        places.iter_mut().zip(todo).for_each(|(place, write)| *place = Some(write));
        let wake = plan.wake.map(|at| (at.as_second() - now().as_second()) as Sec);
        Answered {
            todo: places,
            status,
            basis: Basis {
                attempt: attempt.map_or(0, |it| it.id),
                revision: attempt.map(|it| it.revision),
                restore: attempt.is_some_and(|it| it.restore.is_some()),
                said,
                cause: before.open().is_some() && attempt.is_some_and(|it| !it.open && it.cause.is_some()),
                failed,
            },
            wake,
            blocked,
        }
    }
}

fn answer(oracle: Oracle) -> Answer {
    let counts = |bad: u64| Counts { total: REQUESTS as u64, bad, seen: true, ..Counts::default() };
    let counted = |counts: Counts| Counted {
        now: counts.clone(),
        settled: counts,
        through: now(),
        newest: Some(now()),
        interval: Some(Duration::from_secs(1)),
        ..Counted::default()
    };
    match oracle {
        Oracle::Pass => Answer::Counted { candidate: counted(counts(0)), baseline: None },
        Oracle::Fail => Answer::Counted { candidate: counted(counts(REQUESTS as u64 / 2)), baseline: None },
        Oracle::Silent | Oracle::Unread => Answer::Problem(Reason::QueryFailed, "connection refused".to_owned()),
    }
}

fn path(rule: usize, host: &str, path: &str, color: Color) -> PathSeen {
    PathSeen {
        rule,
        index: 0,
        host: Some(host.to_owned()),
        path: Some(path.to_owned()),
        path_type: "Prefix".to_owned(),
        service: Some(format!("bot-{color}")),
        port: Some(PortSeen::Number(80)),
    }
}

fn ours(name: &str, paths: Vec<PathSeen>, created: Sec) -> IngressSeen {
    IngressSeen {
        name: name.to_owned(),
        uid: name.to_owned(),
        resource_version: "1".to_owned(),
        created: now() + SignedDuration::from_secs(i64::from(created)),
        deleting: false,
        owner_uid: Some("u1".to_owned()),
        class: Some("nginx".to_owned()),
        annotations: BTreeMap::new(),
        default_backend: None,
        paths,
        tls: vec![],
        managers: vec![names::MANAGER_TRAFFIC.to_owned()],
        rules_by_us: None,
    }
}

fn color(name: &str) -> Color {
    match name {
        "bot-blue" => Color::Blue,
        "bot-green" => Color::Green,
        other => panic!("{other}"),
    }
}

fn read(view: &View, action: &Action) -> Write {
    match action {
        Action::AddFinalizer => Write::AddFinalizer,
        Action::RemoveFinalizer => Write::RemoveFinalizer,
        Action::RemoveAct { .. } => Write::RemoveAct,
        Action::WriteIngress(want) if want.name == "bot-canary" => {
            let Canary { to, weight } = canary(want);
            Write::Canary { replaces: want.replaces.is_some(), to, weight }
        }
        Action::WriteIngress(want) => Write::Anchor {
            replaces: want.replaces.is_some(),
            first: color(&want.paths[0].service),
            both: want.paths.len() > 1,
            required: want.required,
        },
        Action::DeleteIngress { name, .. } if name == "bot-canary" => Write::DeleteCanary,
        Action::DeleteIngress { .. } => Write::DeleteAnchor,
        Action::SwitchBackend { resource_version, paths, .. } => {
            assert_eq!(color(&paths[0].from), view.main);
            Write::Switch { to: color(&paths[0].to), guarded: resource_version.is_some() }
        }
        Action::Scale { deployment, replicas, unless_serving, .. } => {
            if let Some(check) = unless_serving {
                assert_eq!((check.ingresses.as_slice(), &check.service), (&["bot".to_owned()][..], deployment));
            }
            let replicas = u8::try_from(*replicas).unwrap();
            Write::Scale { color: color(deployment), replicas, checked: unless_serving.is_some() }
        }
        Action::CreateJob(_) | Action::DeleteJob { .. } => panic!("there are no Jobs"),
    }
}

fn canary(want: &IngressWant) -> Canary {
    let seen = IngressSeen { annotations: want.annotations.iter().cloned().collect(), ..ours("", vec![], 0) };
    let weight = u8::try_from(traffic::nginx::weight(&seen)).unwrap();
    state::Canary { to: color(&want.paths[0].service), weight }
}
