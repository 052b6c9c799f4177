use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::actors::ingress_controller::{Flavor, Snapshot};

const HOST: &str = "support-bot.example";

/// Two Pods of blue; each process ends when it is told to.
struct World {
    ends: BTreeMap<(&'static str, u64), u64>,
    incarnation: u64,
    listens: bool,
    behavior: Behavior,
}

impl Servers for World {
    fn begin(&mut self, _pod: &str, _now_ms: u64) -> Option<Serving> {
        let (incarnation, behavior) = (self.incarnation, self.behavior);
        self.listens.then(|| Serving { incarnation, version: "m@1".into(), behavior })
    }

    fn alive_until(&self, pod: &str, incarnation: u64) -> u64 {
        self.ends.iter().find(|(key, _)| **key == (pod, incarnation)).map_or(u64::MAX, |(_, end)| *end)
    }
}

fn world() -> World {
    World { ends: BTreeMap::new(), incarnation: 1, listens: true, behavior: Behavior::default() }
}

fn controller() -> IngressController {
    let backend = json!({ "service": { "name": "blue", "port": { "number": 80 } } });
    let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
    let ingress = json!({
        "metadata": { "name": "bot", "namespace": "ml", "creationTimestamp": "2026-11-01T00:00:00Z" },
        "spec": { "rules": [{ "host": HOST, "http": { "paths": paths } }] },
    });
    let service = json!({
        "metadata": { "name": "blue", "namespace": "ml" },
        "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    let endpoints = json!([{ "targetRef": { "name": "blue-0" } }, { "targetRef": { "name": "blue-1" } }]);
    let slice = json!({
        "metadata": { "namespace": "ml", "labels": { "kubernetes.io/service-name": "blue" } },
        "ports": [{ "name": "", "port": 8080 }], "endpoints": endpoints,
    });
    let mut controller = IngressController::new(Flavor::IngressNginx, 1);
    let [ingresses, services, slices] = [ingress, service, slice].map(|one| vec![Arc::new(one)]);
    controller.changed(Snapshot { ingresses, services, slices }, 0);
    controller
}

fn run(users: &mut Users, world: &mut World, until: u64) -> Vec<Finished> {
    let mut all = Vec::new();
    users.advance(until, &mut controller(), world, &mut |finished| all.push(finished.clone()));
    all
}

#[test]
fn requests_come_at_their_rate_and_are_answered_in_their_time() {
    let named = vec![Named { header: "x-user-id".into(), value: "alice".into(), rate: 0.2 }];
    let config = Config { named, ..Config::default() };
    let mut users = Users::new(config, 7, 0);
    let all = run(&mut users, &mut world(), 600_000);
    let count = |kind| all.iter().filter(|one| one.kind == kind).count();
    assert!((5_700..6_300).contains(&count(Kind::Plain)));
    assert!((200..340).contains(&count(Kind::Streamed)));
    assert!((90..150).contains(&count(Kind::Named(0))));
    assert!(all.iter().all(|one| one.outcome == Outcome::Answered && one.status == 200 && &*one.service == "blue"));
    assert!(all.windows(2).all(|pair| pair[0].ended_ms <= pair[1].ended_ms));
    for one in &all {
        let (low, high) = if one.kind == Kind::Streamed { (2.0, 240.0) } else { (0.05, 0.8) };
        assert!((low..=high).contains(&one.seconds()), "{one:?}");
    }
    let counts = &users.counts;
    assert_eq!(counts.sent, all.len() as u64 + users.running() as u64);
    assert_eq!(counts.all, Tally { answered: all.len() as u64, ..Tally::default() });
    assert_eq!(counts.by_version.len(), 1);
    users.stop();
    run(&mut users, &mut world(), 900_000);
    assert_eq!((users.running(), users.wake(), users.counts.all.total()), (0, u64::MAX, users.counts.sent));
}

#[test]
fn the_same_seed_gives_the_same_run_in_steps_of_any_size() {
    let mut whole = Users::new(Config::default(), 11, 500);
    let all = run(&mut whole, &mut world(), 60_000);
    let mut steps = Users::new(Config::default(), 11, 500);
    let (mut controller, mut world) = (controller(), world());
    let mut parts = Vec::new();
    while steps.wake() <= 60_000 {
        let now = steps.wake();
        steps.advance(now, &mut controller, &mut world, &mut |finished| parts.push(finished.clone()));
    }
    assert_eq!(format!("{all:?}"), format!("{parts:?}"));
    assert!(all[0].started_ms > 500);
}

#[test]
fn a_pod_that_ends_cuts_what_it_was_answering() {
    let mut users = Users::new(Config::default(), 3, 0);
    let mut world = world();
    world.ends.insert(("blue-0", 1), 30_000);
    let mut controller = controller();
    let mut all = Vec::new();
    users.advance(30_000, &mut controller, &mut world, &mut |finished| all.push(finished.clone()));
    assert!(all.iter().all(|one| one.outcome == Outcome::Answered));
    users.cut_ended(30_001, &controller, &world, &mut |finished| all.push(finished.clone()));
    let cut: Vec<_> = all.iter().filter(|one| one.outcome == Outcome::Cut).collect();
    assert!(
        cut.len() > 2 && cut.iter().all(|one| &*one.pod == "blue-0" && one.ended_ms == 30_000 && !one.is_counted())
    );
    let streams = cut.iter().filter(|one| one.kind == Kind::Streamed);
    assert!(streams.clone().count() > 0 && streams.clone().all(|one| one.status == 200 && one.why == "the Pod ended"));
    assert_eq!(users.counts.all.lost, cut.len() as u64);
    assert_eq!(users.counts.first_lost.len(), cut.len().min(8));
    // the other's go on, and those of the Pod's next process too
    world.incarnation = 2;
    users.stop();
    users.advance(300_000, &mut controller, &mut world, &mut |_| {});
    assert_eq!(users.counts.all.lost, cut.len() as u64);
    assert_eq!(users.counts.all.total(), users.counts.sent);
}

#[test]
fn a_pod_that_ended_unseen_is_noticed_when_the_answer_should_have_ended() {
    let mut users = Users::new(Config { streams: 0.0, ..Config::default() }, 3, 0);
    let mut world = world();
    world.ends.insert(("blue-1", 1), 10_000);
    let all = run(&mut users, &mut world, 10_900);
    let cut: Vec<_> = all.iter().filter(|one| one.outcome == Outcome::Cut && one.started_ms < 10_000).collect();
    assert!(!cut.is_empty() && cut.iter().all(|one| one.ended_ms == 10_000 && one.status == 502));
}

#[test]
fn who_does_not_listen_refuses() {
    let mut users = Users::new(Config { streams: 0.0, ..Config::default() }, 3, 0);
    let mut world = World { listens: false, ..world() };
    let all = run(&mut users, &mut world, 10_000);
    assert!(
        all.iter().all(|one| one.outcome == Outcome::Refused && one.status == 502 && one.ended_ms == one.started_ms)
    );
    assert_eq!(users.counts.failures.keys().next(), Some(&(Outcome::Refused, 502, "connection refused")));
    let elsewhere = Config { host: "else.example".into(), ..Config::default() };
    let mut users = Users::new(elsewhere, 3, 0);
    let all = run(&mut users, &mut world, 10_000);
    assert!(all.iter().all(|one| one.outcome == Outcome::NotRouted && one.status == 404 && one.service.is_empty()));
}

#[test]
fn a_models_own_errors_are_not_lost_requests() {
    let config = Config { abandoned: 0.5, ..Config::default() };
    let mut users = Users::new(config, 3, 0);
    let behavior = Behavior { fails: 0.3, status: 500, slow: 0.5, extra_ms: 3_000, pace: 2.0 };
    let all = run(&mut users, &mut World { behavior, ..world() }, 600_000);
    let share = |outcome| all.iter().filter(|one| one.outcome == outcome).count() as f64 / all.len() as f64;
    assert!((share(Outcome::ModelError) - 0.3).abs() < 0.02);
    let plain = all.iter().filter(|one| one.kind == Kind::Plain);
    let late = plain.clone().filter(|one| one.seconds() >= 3.1).count() as f64 / plain.clone().count() as f64;
    assert!((late - 0.5).abs() < 0.02);
    assert!(plain.clone().all(|one| (0.1..=4.6).contains(&one.seconds())));
    let left = all.iter().filter(|one| one.outcome == Outcome::Abandoned);
    assert!(left.clone().count() > 30 && left.clone().all(|one| one.status == 499 && one.kind == Kind::Streamed));
    assert_eq!(users.counts.all.lost, 0);
}
