//! A small model of a cluster under virtual time: it carries out plans, and checks at every write what must never happen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use modelrollout::api::reasons::{JobOutcome, Phase, Reason};
use modelrollout::api::{Color, ControllerDialect, ModelRollout, ModelRolloutStatus, names};
use modelrollout::engine::observed::*;
use modelrollout::engine::plan::*;
use modelrollout::engine::{self, readiness, traffic};

use super::story::Story;

pub const SETTLE: Duration = Duration::from_secs(5);

/// What the model servers of one color do.
#[derive(Clone, Copy, Debug)]
pub struct Behavior {
    pub error_share: f64,
    pub slow_share: f64,
}

/// The cluster.
#[allow(clippy::struct_excessive_bools)] // what it does, each by itself
pub struct World {
    pub object: ModelRollout,
    pub seen: Observed,
    pub now: Timestamp,
    pub rate: f64,
    /// Requests that the newest samples count and that are not settled yet.
    pub unsettled: u64,
    pub behavior: ByColor<Behavior>,
    pub metrics_up: bool,
    /// What is said of metrics that are not up.
    pub metrics_error: String,
    pub load_time: Duration,
    /// Seconds between two looks at the metrics.
    pub tick: i64,
    pub never_ready: bool,
    /// Green begins to fail in the buffer.
    pub breaks_in_buffer: bool,
    /// The target is set back when the buffer is over.
    pub restores: bool,
    /// The act `rollback` is set once when the buffer is over.
    pub restores_by_act: bool,
    /// Named users send a tenth of all requests.
    pub named_users: bool,
    pub log: Vec<String>,
    pub notes: Vec<Note>,
    /// The write of this number (from 1) is the last one of its pass: the operator dies after it.
    pub die_after: Option<usize>,
    /// The write of this number fails and changes nothing.
    pub fail_at: Option<usize>,
    /// The write after the one of this name fails, once.
    pub fail_after: Option<&'static str>,
    pub writes: usize,
    pub gone: bool,
    version: u64,
    /// What the last plan wants watched.
    need: Need,
    /// Everything that is decided, if it is wanted.
    pub story: Option<Story>,
    ready_at: BTreeMap<Color, Timestamp>,
    counted: Option<(String, BTreeMap<String, Tallies>, Timestamp)>,
    /// Jobs that were made: name, and the environment that it was given.
    pub jobs: Vec<JobWant>,
}

/// What was counted of one gate.
#[derive(Default)]
struct Tallies {
    green: Tally,
    blue: Tally,
}

/// Of one color: all, and those of the warm-up.
#[derive(Default)]
struct Tally {
    all: Counts,
    warmup: Counts,
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("in range")
}

impl World {
    /// Blue serves, green stands by with zero replicas, the object wants green.
    pub fn new(spec: &str) -> Self {
        let text = format!(
            "apiVersion: modelrollout.dev/v1alpha1\nkind: ModelRollout\nmetadata: {{name: bot, namespace: ml, uid: u1, generation: 1}}\nspec:\n{spec}"
        );
        let object: ModelRollout = serde_yaml::from_str(&text).expect("a readable ModelRollout");
        let color = |color: Color, replicas: i32| ColorSeen {
            deployment: Lookup::Found(DeploymentSeen {
                uid: format!("deployment-{color}"),
                resource_version: "1".into(),
                generation: 1,
                observed_generation: 1,
                template_revision: "1".into(),
                template_hash: "t1".into(),
                desired: replicas,
                total: replicas,
                updated: replicas,
                ready: replicas,
                model: None,
                config_maps: [format!("prompt-{color}")].into(),
                selector: format!("color={color}"),
                images: vec![format!("registry.example/llama:{color}")],
                shutdown: Shutdown { grace_seconds: 300, pre_stop: true, sleep_seconds: 10 },
                ..DeploymentSeen::default()
            }),
            service: Lookup::Found(ServiceSeen {
                selector: [("color".to_owned(), color.to_string())].into(),
                ports: vec![ServicePortSeen { name: Some("http".into()), number: 80 }],
                publishes_not_ready: false,
            }),
            pods: Lookup::Found(PodsSeen { ready: replicas, reasons: vec![] }),
            endpoints: Lookup::Found(replicas),
            prompt: Lookup::Found(PromptSeen { hash: format!("{color}hash") }),
            selected: [format!("bot-{color}")].into(),
            autoscaler: None,
        };
        let seen = Observed {
            colors: ByColor { blue: color(Color::Blue, 4), green: color(Color::Green, 0) },
            ingresses: [("bot".to_owned(), Lookup::Found(main_ingress("bot-blue")))].into(),
            others: vec![],
            canary: Lookup::Missing,
            anchor: Lookup::Missing,
            readings: BTreeMap::new(),
            jobs: Lookup::Found(BTreeMap::new()),
            job_templates: BTreeMap::new(),
            job_refusals: BTreeMap::new(),
            elder: None,
            settle: SETTLE,
        };
        let healthy = Behavior { error_share: 0.0, slow_share: 0.0 };
        World {
            object,
            seen,
            now: at(0),
            rate: 50.0,
            unsettled: 0,
            behavior: ByColor { blue: healthy, green: healthy },
            metrics_up: true,
            metrics_error: "connection refused".into(),
            load_time: Duration::from_secs(20),
            tick: 1,
            never_ready: false,
            breaks_in_buffer: false,
            restores: false,
            restores_by_act: false,
            named_users: false,
            log: vec![],
            notes: vec![],
            die_after: None,
            fail_at: None,
            fail_after: None,
            writes: 0,
            gone: false,
            version: 1,
            need: Need::default(),
            story: None,
            ready_at: BTreeMap::new(),
            counted: None,
            jobs: vec![],
        }
    }

    /// The Job of this name ends.
    pub fn end_job(&mut self, name: &str, outcome: JobOutcome) {
        let Lookup::Found(jobs) = &mut self.seen.jobs else { panic!("no Jobs") };
        jobs.get_mut(name).expect("the Job").outcome = Some(outcome);
    }

    pub fn status(&self) -> ModelRolloutStatus {
        self.object.status.clone().unwrap_or_default()
    }

    pub fn phase(&self) -> Phase {
        self.status().phase.expect("a phase")
    }

    pub fn attempt(&self) -> modelrollout::api::Attempt {
        self.status().attempt.expect("an attempt")
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.status().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == kind).expect("the condition");
        (found.status.clone(), found.reason.clone())
    }

    pub fn message(&self) -> String {
        self.status().summary.message
    }

    pub fn told(&self, reason: Reason) -> usize {
        self.notes.iter().filter(|note| note.reason == reason).count()
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        self.object.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    }

    pub fn edit(&mut self, change: impl FnOnce(&mut ModelRollout)) {
        change(&mut self.object);
        *self.object.metadata.generation.get_or_insert_default() += 1;
    }

    /// Somebody deletes the object.
    pub fn delete(&mut self) {
        self.object.metadata.deletion_timestamp = Some(Time(self.now));
    }

    /// The backend of the production Ingresses; `mixed` if they differ.
    pub fn backend(&self) -> String {
        let mains = self.seen.ingresses.values().filter_map(Lookup::found);
        let paths = mains.flat_map(|main| &main.paths).filter_map(|path| path.service.clone());
        let ours: BTreeSet<String> = paths.filter(|service| service.starts_with("bot-")).collect();
        if ours.len() > 1 { "mixed".to_owned() } else { ours.into_iter().next().unwrap_or_default() }
    }

    /// The share that green has now, in percent.
    pub fn green_share(&self) -> i32 {
        if self.backend() == "bot-green" { 100 } else { self.seen.canary.found().map_or(0, traffic::nginx::weight) }
    }

    pub fn replicas(&self, color: Color) -> i32 {
        self.seen.colors.get(color).deployment.found().map_or(0, |deployment| deployment.desired)
    }

    /// Somebody scales a Deployment by hand; its Pods are there at once.
    pub fn scale_by(&mut self, manager: &str, color: Color, replicas: i32) {
        self.write_replicas(manager, color, replicas);
        self.set_ready(color, replicas);
    }

    /// As the API server keeps it: the subresource `scale` leaves no time, and after a 0 no owner.
    fn write_replicas(&mut self, manager: &str, color: Color, replicas: i32) {
        let scale = [names::MANAGER_SCALE, "kubectl-scale"].contains(&manager);
        let now = self.now;
        let deployment = self.deployment(color);
        deployment.desired = replicas;
        deployment.total = replicas;
        deployment.updated = replicas;
        deployment.replicas_written = (!scale).then(|| Written { manager: manager.into(), at: now });
        deployment.replicas_by = match manager {
            _ if scale && (replicas == 0 || deployment.replicas_by == ReplicasBy::Unknown) => ReplicasBy::Unknown,
            names::MANAGER_SCALE => ReplicasBy::Operator,
            _ => ReplicasBy::Others,
        };
    }

    /// A second production Ingress: another host with TLS, its port by name, and a path of somebody else.
    pub fn add_second_ingress(&mut self) {
        let mut second = main_ingress("bot-blue");
        second.name = "chat".into();
        second.uid = "second".into();
        second.tls = vec![TlsSeen { hosts: vec!["chat.example".into()], secret_name: Some("chat-tls".into()) }];
        let path = second.paths[0].clone();
        second.paths = vec![
            PathSeen { host: Some("chat.example".into()), port: Some(PortSeen::Name("http".into())), ..path.clone() },
            PathSeen {
                index: 1,
                host: Some("chat.example".into()),
                path: Some("/docs".into()),
                service: Some("docs".into()),
                ..path
            },
        ];
        self.seen.ingresses.insert("chat".into(), Lookup::Found(second));
        self.object.spec.traffic.ingress.names.push("chat".into());
    }

    pub fn set_ready(&mut self, color: Color, ready: i32) {
        let side = color_mut(&mut self.seen.colors, color);
        side.pods = Lookup::Found(PodsSeen { ready, reasons: vec!["Unschedulable: no GPU".into()] });
        side.endpoints = Lookup::Found(ready);
        if let Lookup::Found(deployment) = &mut side.deployment {
            deployment.ready = ready;
        }
    }

    pub fn deployment(&mut self, color: Color) -> &mut DeploymentSeen {
        match &mut color_mut(&mut self.seen.colors, color).deployment {
            Lookup::Found(deployment) => deployment,
            _ => panic!("no deployment"),
        }
    }

    /// Somebody sets the weight of our canary.
    pub fn set_weight_by(&mut self, manager: &str, weight: &str) {
        let Lookup::Found(canary) = &mut self.seen.canary else { panic!("no canary") };
        canary.annotations.insert(names::NGINX_CANARY_WEIGHT.into(), weight.into());
        canary.managers.insert(0, manager.into());
    }

    /// The production Ingress, in the hands of somebody who is about to change it.
    pub fn main(&mut self) -> &mut IngressSeen {
        self.named("bot")
    }

    pub fn named(&mut self, name: &str) -> &mut IngressSeen {
        match self.seen.ingresses.get_mut(name) {
            Some(Lookup::Found(main)) => {
                main.rules_by_us = None;
                main
            }
            _ => panic!("no Ingress {name}"),
        }
    }

    /// What the operator sees: of what is only watched when it is needed, what the last plan needed.
    fn shown(&self) -> Observed {
        fn hide<T>(lookup: &mut Lookup<T>) {
            *lookup = Lookup::Unreadable(NOT_YET.to_owned());
        }
        let mut seen = self.seen.clone();
        let spec = &self.object.spec;
        for (color, given) in [(Color::Blue, &spec.blue), (Color::Green, &spec.green)] {
            let side = color_mut(&mut seen.colors, color);
            if !self.need.pods {
                hide(&mut side.pods);
                hide(&mut side.endpoints);
            }
            if !self.need.prompts.contains(&color) && given.prompt_template.is_some() {
                hide(&mut side.prompt);
            }
        }
        if !self.need.jobs {
            hide(&mut seen.jobs);
        }
        for (name, template) in &mut seen.job_templates {
            if !self.need.job_templates.contains(name) {
                hide(template);
            }
        }
        seen
    }

    /// What was counted of the target for a gate.
    pub fn candidate(&mut self, gate: &str) -> &mut Counted {
        match self.seen.readings.get_mut(gate).map(|reading| &mut reading.answer) {
            Some(Answer::Counted { candidate, .. }) => candidate,
            other => panic!("no counts of {gate}: {other:?}"),
        }
    }

    /// The status that a plan made now would write; nothing is carried out.
    pub fn look(&self) -> ModelRolloutStatus {
        engine::plan(&self.object, &self.seen, self.now).status
    }

    /// Plans and carries out until nothing is left to do at this instant; gives the last plan.
    pub fn settle(&mut self) -> Plan {
        let mut asked = None;
        for _ in 0..30 {
            self.move_pods();
            if let Some(story) = &mut self.story {
                story.now = self.now;
            }
            let plan = engine::plan(&self.object, &self.shown(), self.now);
            let watched = std::mem::replace(&mut self.need, Need { gates: None, ..plan.need.clone() });
            let quiet = plan.actions.is_empty() && plan.after.is_empty() && plan.status == self.status();
            if !quiet {
                self.carry_out(&plan);
                if self.gone {
                    return plan;
                }
                continue;
            }
            assert!(plan.notes.is_empty(), "a quiet plan tells nothing: {:?}", plan.notes);
            if watched != self.need {
                // what is watched from now on is shown to the next plan
                continue;
            }
            assert!(plan.wake.is_none_or(|wake| wake > self.now), "a wake that is past is a busy loop");
            // Only a plan that was carried out is asked for: its intent is on record.
            let key = plan.need.gates.as_ref().map(|need| need.key.clone());
            if asked == Some(key.clone()) {
                if let Some(story) = &mut self.story {
                    story.rest(&plan);
                }
                return plan;
            }
            asked = Some(key);
            self.read_metrics(&plan);
        }
        panic!("no rest at {}: {:#?}", self.now, &self.log[self.log.len().saturating_sub(10)..]);
    }

    /// Lets time pass, to each next wake or by one second.
    pub fn run(&mut self, seconds: i64) {
        let end = self.now + k8s_openapi::jiff::SignedDuration::from_secs(seconds);
        self.run_until(end, |_| false);
    }

    /// Lets time pass until `done`; fails after an hour.
    pub fn run_to(&mut self, what: &str, done: impl Fn(&World) -> bool) {
        let end = self.now + k8s_openapi::jiff::SignedDuration::from_hours(1);
        assert!(
            self.run_until(end, &done),
            "never came to: {what}; it stands at {:?}: {}",
            self.phase(),
            self.message()
        );
    }

    fn run_until(&mut self, end: Timestamp, done: impl Fn(&World) -> bool) -> bool {
        loop {
            let plan = self.settle();
            self.play_along();
            if self.gone || done(self) {
                return true;
            }
            if self.now >= end {
                return false;
            }
            if plan.wake.is_none() && !plan.need.pods && plan.need.gates.is_none() && self.ready_at.is_empty() {
                // At rest nothing changes by itself.
                self.now = end;
                continue;
            }
            let tick = self.now + k8s_openapi::jiff::SignedDuration::from_secs(self.tick);
            let next = plan.wake.filter(|wake| *wake > self.now).map_or(tick, |wake| wake.min(tick));
            self.now = next.min(end);
        }
    }

    /// What the world does by itself at some point.
    fn play_along(&mut self) {
        if self.breaks_in_buffer && self.status().phase == Some(Phase::Buffering) {
            self.behavior.green.error_share = 0.5;
        }
        let over = self.status().phase == Some(Phase::Stable) && self.replicas(Color::Blue) == 0;
        if self.restores && over && self.object.spec.target == Color::Green {
            self.edit(|object| object.spec.target = Color::Blue);
        }
        if self.restores_by_act && over {
            self.restores_by_act = false;
            self.annotate(names::ANNOTATION_ROLLBACK, "3 a.m.");
        }
    }

    fn carry_out(&mut self, plan: &Plan) {
        let mut steps: Vec<Step<'_>> = plan.actions.iter().map(Step::Action).collect();
        if plan.status != self.status() {
            let place = if plan.order == Order::StatusFirst { 0 } else { steps.len() };
            steps.insert(place, Step::Status(&plan.status));
        }
        steps.extend(plan.after.iter().map(Step::Action));
        for step in steps {
            self.writes += 1;
            let after = self.log.last().zip(self.fail_after).is_some_and(|(last, name)| last.contains(name));
            if after {
                self.fail_after = None;
            }
            if after || self.fail_at == Some(self.writes) {
                self.log.push(format!("{} FAILED", step.name()));
                return;
            }
            self.log.push(format!("{:>6} {}", self.now.as_second() - at(0).as_second(), step.name()));
            match step {
                Step::Status(status) => {
                    if let Some(story) = &mut self.story {
                        story.status(self.object.status.as_ref(), status);
                    }
                    self.object.status = Some(status.clone());
                }
                Step::Action(action) => {
                    if let Some(story) = &mut self.story {
                        story.line(&format!("{action:?}"));
                    }
                    self.apply(action);
                }
            }
            if self.die_after == Some(self.writes) {
                // what was read dies with it
                self.seen.readings.clear();
                self.need = Need::default();
                return;
            }
        }
        if let Some(story) = &mut self.story {
            plan.notes.iter().for_each(|note| story.note(note));
        }
        self.notes.extend(plan.notes.iter().cloned());
    }

    fn apply(&mut self, action: &Action) {
        self.version += 1;
        match action {
            Action::AddFinalizer => self.object.metadata.finalizers = Some(vec![names::FINALIZER.into()]),
            Action::RemoveFinalizer => {
                // nobody comes back to what is left then
                let ours = |object: &Lookup<IngressSeen>| object.found().is_some_and(|seen| seen.is_owned_by("u1"));
                assert!(
                    !ours(&self.seen.canary) && !ours(&self.seen.anchor),
                    "something of ours outlives the finalizer"
                );
                assert_ne!(self.backend(), "mixed", "a switch stays half done");
                self.object.metadata.finalizers = None;
                self.gone = self.object.metadata.deletion_timestamp.is_some();
            }
            Action::RemoveAct { annotation, value } => {
                let annotations = self.object.metadata.annotations.get_or_insert_default();
                assert_eq!(annotations.remove(annotation).as_ref(), Some(value));
            }
            Action::WriteIngress(want) => self.write_ingress(want),
            Action::DeleteIngress { name, uid, .. } => {
                let object = [&mut self.seen.canary, &mut self.seen.anchor]
                    .into_iter()
                    .find(|object| object.found().is_some_and(|seen| seen.name == *name && seen.uid == *uid));
                *object.unwrap_or_else(|| panic!("{name} is deleted twice")) = Lookup::Missing;
            }
            Action::SwitchBackend { ingress, paths, .. } => {
                for switch in paths {
                    let main = self.named(ingress);
                    let path =
                        main.paths.iter_mut().find(|path| path.rule == switch.rule && path.index == switch.index);
                    let path = path.expect("the path");
                    assert_eq!(path.service.as_ref(), Some(&switch.from));
                    path.service = Some(switch.to.clone());
                }
                let now = self.now;
                self.named(ingress).rules_by_us = Some(now);
                let anchor =
                    self.seen.anchor.found().is_some_and(|anchor| {
                        anchor.paths.iter().any(|path| path.service == Some(paths[0].from.clone()))
                    });
                let restored = self.notes.iter().any(|note| note.reason == Reason::BackendRestored);
                // A color without Pods answers nobody, named or not.
                let outgoing = if paths[0].from == "bot-green" { Color::Green } else { Color::Blue };
                let restored = restored || readiness::at_least_known(self.seen.colors.get(outgoing)) == Some(0);
                let plain = self.object.spec.traffic.ingress.controller == ControllerDialect::None;
                assert!(
                    anchor || restored || plain || self.seen.anchor.found().is_none() && paths[0].to == "bot-blue",
                    "the outgoing Service stays named"
                );
                let color = if paths[0].to == "bot-green" { Color::Green } else { Color::Blue };
                assert!(
                    readiness::at_least_known(self.seen.colors.get(color)).unwrap_or(0) > 0,
                    "never to a color without Pods"
                );
            }
            Action::CreateJob(want) => {
                let Lookup::Found(jobs) = &mut self.seen.jobs else { panic!("Jobs are not watched") };
                jobs.insert(want.name.clone(), JobSeen { uid: format!("uid-{}", want.name), outcome: None });
                self.jobs.push(want.clone());
            }
            Action::DeleteJob { name, .. } => {
                let Lookup::Found(jobs) = &mut self.seen.jobs else { panic!("Jobs are not watched") };
                jobs.remove(name).expect("the Job");
            }
            Action::Scale { deployment, replicas, unless_serving, .. } => {
                let color = if deployment == "bot-blue" { Color::Blue } else { Color::Green };
                if *replicas < self.replicas(color) {
                    assert!(
                        unless_serving.as_ref().is_some_and(|check| check.ingresses.len() == self.seen.ingresses.len())
                    );
                    assert_ne!(self.backend(), "mixed", "nothing is scaled down in a half-done switch");
                    assert_ne!(self.backend(), format!("bot-{color}"), "a serving color is never scaled down");
                    assert!(
                        color == Color::Blue || self.green_share() == 0,
                        "a color with a share is never scaled down"
                    );
                }
                let ready_at = self.now + k8s_openapi::jiff::SignedDuration::try_from(self.load_time).expect("short");
                self.ready_at.insert(color, ready_at);
                let down = *replicas < self.replicas(color);
                self.write_replicas(names::MANAGER_SCALE, color, *replicas);
                if down {
                    self.set_ready(color, *replicas);
                }
            }
        }
    }

    fn write_ingress(&mut self, want: &IngressWant) {
        let uid = want.replaces.as_ref().map_or_else(|| format!("ingress-{}", self.version), |(uid, _)| uid.clone());
        let canary = want.name == names::canary_name("bot");
        let there = if canary { &mut self.seen.canary } else { &mut self.seen.anchor };
        assert_eq!(there.found().map(|seen| seen.uid.clone()), want.replaces.as_ref().map(|(uid, _)| uid.clone()));
        let created = there.found().map_or(self.now, |seen| seen.created);
        *there = Lookup::Found(IngressSeen {
            name: want.name.clone(),
            uid,
            resource_version: self.version.to_string(),
            created,
            deleting: false,
            owner_uid: Some("u1".into()),
            class: want.class.clone(),
            annotations: want.annotations.iter().cloned().collect(),
            default_backend: None,
            paths: want
                .paths
                .iter()
                .enumerate()
                .map(|(rule, path)| PathSeen {
                    rule,
                    index: 0,
                    host: path.host.clone(),
                    path: path.path.clone(),
                    path_type: path.path_type.clone(),
                    service: Some(path.service.clone()),
                    port: Some(path.port.clone()),
                })
                .collect(),
            tls: want.tls.clone(),
            managers: vec![names::MANAGER_TRAFFIC.into()],
            rules_by_us: Some(self.now),
        });
        if canary {
            let weight = traffic::nginx::weight(self.seen.canary.found().expect("just written"));
            let to = self.attempt().to;
            let ready = readiness::of(self.seen.colors.get(to)).ready.expect("watched");
            let active = self.attempt().active_replicas;
            assert!(ready >= readiness::needed(weight, active), "weight {weight} needs more than {ready} Pods");
            assert!(
                self.seen.anchor.is_missing() || self.backend() != format!("bot-{to}") && weight == 100,
                "no anchor beside a new canary"
            );
        }
    }

    fn move_pods(&mut self) {
        for color in Color::BOTH {
            if self.ready_at.get(&color).is_some_and(|ready| self.now >= *ready) && !self.never_ready {
                self.ready_at.remove(&color);
                let replicas = self.replicas(color);
                self.set_ready(color, replicas);
            }
        }
    }

    /// Answers what the plan asks: requests since the start of the window, by the shares that the colors had.
    fn read_metrics(&mut self, plan: &Plan) {
        let Some(need) = &plan.need.gates else {
            self.counted = None;
            return;
        };
        let share = f64::from(self.green_share().max(i32::from(self.named_users) * 10)) / 100.0;
        let fresh = self.counted.as_ref().is_none_or(|(key, ..)| *key != need.key);
        if fresh {
            self.counted = Some((need.key.clone(), BTreeMap::new(), self.now));
        }
        let Some((_, totals, last)) = &mut self.counted else { return };
        let before = *last;
        *last = self.now;
        if !self.metrics_up {
            let problem = Answer::Problem(Reason::QueryFailed, self.metrics_error.clone());
            for query in &need.queries {
                self.seen.readings.insert(
                    query.gate.clone(),
                    Reading { key: need.key.clone(), at: self.now, answer: problem.clone() },
                );
            }
            return;
        }
        for query in &need.queries {
            let Tallies { green, blue } = totals.entry(query.gate.clone()).or_default();
            let begin = before.max(query.since);
            let seconds = |end: Timestamp| end.duration_since(begin).as_secs_f64().max(0.0);
            let (warm, all) = (seconds(self.now.min(query.warm_until)), seconds(self.now));
            for (tally, part, behavior) in
                [(&mut *green, share, self.behavior.green), (&mut *blue, 1.0 - share, self.behavior.blue)]
            {
                count(&mut tally.all, self.rate * all * part, behavior);
                count(&mut tally.warmup, self.rate * warm * part, behavior);
            }
            let counted = |tally: &Tally| {
                let mut settled = tally.all.clone();
                settled.total = settled.total.saturating_sub(self.unsettled);
                settled.at_most.iter_mut().for_each(|count| *count = (*count).min(settled.total));
                Counted {
                    now: tally.all.clone(),
                    warmup: tally.warmup.clone(),
                    settled,
                    warmup_settled: tally.warmup.clone(),
                    through: self.now,
                    newest: Some(self.now),
                    interval: Some(Duration::from_secs(1)),
                    ..Counted::default()
                }
            };
            let answer = match &query.ask {
                Ask::ErrorRate { baseline, .. } => Answer::Counted {
                    candidate: counted(green),
                    baseline: baseline.as_ref().map(|_| Ok(counted(blue))),
                },
                Ask::Histogram { baseline, .. } => Answer::Counted {
                    candidate: counted(green),
                    baseline: baseline.as_ref().map(|_| Ok(counted(blue))),
                },
                Ask::Value { .. } => Answer::Value(1.0),
            };
            self.seen.readings.insert(query.gate.clone(), Reading { key: need.key.clone(), at: self.now, answer });
        }
    }
}

fn count(counts: &mut Counts, requests: f64, behavior: Behavior) {
    counts.seen = true;
    counts.bounds = vec![0.1, 1.0, 5.0];
    counts.total += requests.round() as u64;
    counts.bad = (counts.total as f64 * behavior.error_share).round() as u64;
    let slow = (counts.total as f64 * behavior.slow_share).round() as u64;
    counts.at_most = vec![counts.total - slow, counts.total - slow, counts.total];
}

enum Step<'a> {
    Status(&'a ModelRolloutStatus),
    Action(&'a Action),
}

impl Step<'_> {
    fn name(&self) -> String {
        match self {
            Step::Status(status) => {
                let attempt = status.attempt.as_ref();
                format!(
                    "status {:?} {:?} weight {:?}",
                    status.phase,
                    attempt.map(|a| a.step),
                    attempt.map(|a| a.weight_intended)
                )
            }
            Step::Action(Action::WriteIngress(want)) => format!("write {} {:?}", want.name, want.annotations.last()),
            Step::Action(Action::SwitchBackend { ingress, paths, .. }) => {
                format!("switch {ingress} to {}", paths[0].to)
            }
            Step::Action(Action::Scale { deployment, replicas, .. }) => format!("scale {deployment} {replicas}"),
            Step::Action(Action::DeleteIngress { name, .. }) => format!("delete {name}"),
            Step::Action(Action::CreateJob(want)) => format!("create job {}", want.name),
            Step::Action(other) => format!("{other:?}"),
        }
    }
}

pub fn main_ingress(service: &str) -> IngressSeen {
    IngressSeen {
        name: "bot".into(),
        uid: "main".into(),
        resource_version: "1".into(),
        created: at(-1000),
        deleting: false,
        owner_uid: None,
        class: Some("nginx".into()),
        annotations: BTreeMap::new(),
        default_backend: None,
        paths: vec![PathSeen {
            rule: 0,
            index: 0,
            host: Some("bot.example".into()),
            path: Some("/".into()),
            path_type: "Prefix".into(),
            service: Some(service.into()),
            port: Some(PortSeen::Number(80)),
        }],
        tls: vec![],
        managers: vec!["kubectl-edit".into()],
        rules_by_us: None,
    }
}

pub fn color_mut(colors: &mut ByColor<ColorSeen>, color: Color) -> &mut ColorSeen {
    match color {
        Color::Blue => &mut colors.blue,
        Color::Green => &mut colors.green,
    }
}
