//! Timing, annotations, Traefik's own ways; and what the traps are tested with.

use serde_json::{Map, json};

use super::*;

/// The host of most tests.
pub const HOST: &str = "bot.example";

/// An Ingress of that age with one rule.
pub fn ingress(name: &str, age: u32, host: &str, paths: &[(&str, &str, &str)], canary: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> =
        canary.iter().map(|(key, value)| (format!("nginx.ingress.kubernetes.io/{key}"), json!(value))).collect();
    let paths: Vec<Value> = paths
        .iter()
        .map(|(path, kind, service)| {
            let backend = json!({ "service": { "name": service, "port": { "name": "http" } } });
            json!({ "path": path, "pathType": kind, "backend": backend })
        })
        .collect();
    json!({
        "metadata": {
            "name": name, "namespace": "ml", "annotations": annotations,
            "creationTimestamp": format!("2026-11-01T00:{:02}:00Z", 59 - age),
        },
        "spec": { "ingressClassName": "nginx", "rules": [{ "host": host, "http": { "paths": paths } }] },
    })
}

/// The production Ingress.
pub fn main_ingress(service: &str) -> Value {
    ingress("bot", 30, HOST, &[("/", "Prefix", service)], &[])
}

/// A canary of a weight.
pub fn canary(service: &str, weight: &str) -> Value {
    ingress("bot-canary", 20, HOST, &[("/", "Prefix", service)], &[("canary", "true"), ("canary-weight", weight)])
}

/// The anchor that keeps a Service named.
pub fn anchor(services: &[&str]) -> Value {
    let paths: Vec<_> = services.iter().zip(["/", "/live"]).map(|(name, path)| (path, "Prefix", *name)).collect();
    ingress("bot-anchor", 10, "u.anchor.invalid", &paths, &[])
}

/// Ingresses with the Services `blue`, `green` and `other`, of so many ready Pods each.
pub fn snapshot(ingresses: &[Value], pods: [usize; 3]) -> Snapshot {
    let names = ["blue", "green", "other"];
    let service = |name: &&str| {
        let ports = json!([{ "name": "http", "port": 80, "targetPort": "http" }]);
        Arc::new(json!({ "metadata": { "name": name, "namespace": "ml" }, "spec": { "ports": ports } }))
    };
    let slice = |(name, count): (&&str, usize)| {
        let mut endpoints: Vec<Value> = (0..count)
            .map(|pod| json!({ "conditions": { "ready": true }, "targetRef": { "name": format!("{name}-{pod}") } }))
            .collect();
        let conditions = json!({ "ready": false, "serving": true, "terminating": true });
        endpoints.push(json!({ "conditions": conditions, "targetRef": { "name": format!("{name}-leaving") } }));
        let labels = json!({ "kubernetes.io/service-name": name });
        let metadata = json!({ "name": format!("{name}-x"), "namespace": "ml", "labels": labels });
        Arc::new(json!({ "metadata": metadata, "ports": [{ "name": "http", "port": 8080 }], "endpoints": endpoints }))
    };
    Snapshot {
        ingresses: ingresses.iter().cloned().map(Arc::new).collect(),
        services: names.iter().map(service).collect(),
        slices: names.iter().zip(pods).map(slice).collect(),
    }
}

/// A controller with these Ingresses in force, and two Pods behind each Service.
pub fn running(flavor: Flavor, seed: u64, ingresses: &[Value]) -> IngressController {
    let mut controller = IngressController::new(flavor, seed);
    controller.changed(snapshot(ingresses, [2; 3]), 0);
    controller
}

/// Who answers a request: a Service, or a status.
pub fn ask(controller: &mut IngressController, request: &Request<'_>, now: u64) -> String {
    match controller.route(request, now) {
        Routed::Pod { service, pod } => {
            assert!(pod.starts_with(&format!("{service}-")) && !pod.ends_with("leaving"), "{pod}");
            service.to_string()
        }
        Routed::Failed { status, .. } => status.to_string(),
    }
}

/// Shares of all that answer, of 10 000 requests at one time.
pub fn shares(controller: &mut IngressController, host: &str, path: &str, now: u64) -> Vec<(String, f64)> {
    let mut all = std::collections::BTreeMap::new();
    for _ in 0..10_000 {
        *all.entry(ask(controller, &Request { host, path, ..Request::default() }, now)).or_insert(0.0) += 0.0001;
    }
    all.into_iter().collect()
}

/// The share of one who answers.
pub fn share(controller: &mut IngressController, name: &str, now: u64) -> f64 {
    shares(controller, HOST, "/", now).into_iter().find(|(found, _)| found == name).map_or(0.0, |(_, share)| share)
}

/// Applies a change at `at`, with a request each 3 ms for nine seconds from then on; how many of them failed.
pub fn lost(controller: &mut IngressController, ingresses: &[Value], pods: [usize; 3], at: u64) -> usize {
    controller.changed(snapshot(ingresses, pods), at);
    let request = Request { host: HOST, path: "/", ..Request::default() };
    let lost = (at..at + 9_000)
        .step_by(3)
        .filter(|now| matches!(controller.route(&request, *now), Routed::Failed { .. }))
        .count();
    assert_eq!(controller.wake(), None);
    lost
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 0.02
}

#[test]
fn weights_are_read_as_go_reads_them() {
    for (weight, total, share_wanted) in [
        ("25", None, 0.25),
        ("+25", None, 0.25),
        ("0", None, 0.0),
        ("100", None, 1.0),
        ("250", None, 1.0),
        ("-5", None, 0.0),
        ("12.5", None, 0.0),
        ("20%", None, 0.0),
        ("", None, 0.0),
        // a total below 100 is not read (measured: 5 of "10" gave 5.6 %)
        ("5", Some("10"), 0.05),
        ("5", Some("1000"), 0.005),
        ("500", Some("1000"), 0.5),
    ] {
        let mut annotations = vec![("canary", "true"), ("canary-weight", weight)];
        annotations.extend(total.map(|total| ("canary-weight-total", total)));
        let canary = ingress("c", 20, HOST, &[("/", "Prefix", "green")], &annotations);
        for flavor in [Flavor::IngressNginx, Flavor::Traefik] {
            let mut controller = running(flavor, 3, &[main_ingress("blue"), canary.clone()]);
            assert!((controller.share_of(HOST, "green") - share_wanted).abs() < 1e-9, "{weight} {flavor:?}");
            assert!((controller.share_of(HOST, "blue") - 1.0 + share_wanted).abs() < 1e-9, "{weight} {flavor:?}");
            assert!(near(share(&mut controller, "green", 0), share_wanted), "{weight} {flavor:?}");
        }
    }
}

#[test]
fn a_header_decides_before_a_cookie_and_both_before_the_weight() {
    let (always, never, none): (&[_], &[_], &[_]) = (&[("X-User-Id", "always")], &[("x-user-id", "never")], &[]);
    let (alice, alicia): (&[_], &[_]) = (&[("x-user-id", "alice")], &[("x-user-id", "alicia")]);
    let (yes, no): (&[_], &[_]) = (&[("color", "always")], &[("color", "never")]);
    let header = [("canary", "true"), ("canary-weight", "0"), ("canary-by-header", "x-user-id")];
    let cookie = [("canary-by-cookie", "color")];
    let value = [("canary-by-header-value", "alice")];
    let pattern = [("canary-by-header-pattern", "^(alice|bob)$")];
    let broken = [("canary-by-header-pattern", "(("), ("canary-by-cookie", "color"), ("canary-weight", "100")];
    let spaced = [("canary-by-header-pattern", "^(alice bob)$")];
    for (more, headers, cookies, wanted) in [
        (&cookie[..], always, none, "green"),
        (&cookie, never, yes, "blue"),
        (&cookie, alice, yes, "green"),
        (&cookie, none, yes, "green"),
        (&cookie, none, no, "blue"),
        (&cookie, none, none, "blue"),
        (&value, alice, none, "green"),
        (&value, always, none, "blue"),
        (&pattern, alice, none, "green"),
        (&pattern, alicia, none, "blue"),
        (&pattern, always, none, "blue"),
        // the error ends it, with neither cookie nor weight
        (&broken, alice, yes, "blue"),
        (&broken, none, yes, "green"),
        (&broken, none, none, "green"),
        // a value that is not allowed is as none: the words count
        (&spaced, alice, none, "blue"),
        (&spaced, always, none, "green"),
    ] {
        let annotations: Vec<_> = header.iter().chain(more).copied().collect();
        let canary = ingress("c", 20, HOST, &[("/", "Prefix", "green")], &annotations);
        for flavor in [Flavor::IngressNginx, Flavor::Traefik] {
            let mut controller = running(flavor, 3, &[main_ingress("blue"), canary.clone()]);
            let request = Request { host: HOST, path: "/", headers, cookies };
            assert_eq!(ask(&mut controller, &request, 0), wanted, "{more:?} {headers:?} {cookies:?} {flavor:?}");
        }
    }
}

#[test]
fn hosts_and_paths_are_matched_as_kubernetes_says() {
    let paths =
        [("/", "Prefix", "blue"), ("/v1", "Prefix", "green"), ("/v1", "Exact", "other"), ("/x", "Exact", "other")];
    let wild = ingress("wild", 20, "*.bot.example", &[("/", "Prefix", "other")], &[]);
    for flavor in [Flavor::IngressNginx, Flavor::Traefik] {
        let mut controller = running(flavor, 1, &[ingress("bot", 30, HOST, &paths, &[]), wild.clone()]);
        for (host, path, wanted) in [
            (HOST, "/", "blue"),
            (HOST, "/v1", "other"),
            (HOST, "/v1/", "green"),
            (HOST, "/v1/chat", "green"),
            (HOST, "/v10", "blue"),
            (HOST, "/x/y", "blue"),
            ("a.bot.example", "/y", "other"),
            ("else.example", "/", "404"),
        ] {
            let request = Request { host, path, ..Request::default() };
            assert_eq!(ask(&mut controller, &request, 0), wanted, "{host} {path} {flavor:?}");
        }
    }
    let mut foreign = main_ingress("blue");
    foreign["spec"]["ingressClassName"] = json!("traefik");
    let mut controller = running(Flavor::IngressNginx, 1, &[foreign]);
    assert!(near(share(&mut controller, "404", 0), 1.0));
}

/// From the change to the first and to the last of the workers, in milliseconds.
fn delay(flavor: Flavor, seed: u64, changes: &[u64]) -> (u64, u64) {
    let mut controller = running(flavor, seed, &[main_ingress("blue")]);
    let (last, before) = changes.split_last().unwrap();
    for at in before {
        controller.changed(snapshot(&[main_ingress("blue"), canary("green", "1")], [2; 3]), *at);
    }
    controller.changed(snapshot(&[main_ingress("blue"), canary("green", "100")], [2; 3]), *last);
    let mut first = None;
    loop {
        let now = controller.wake().unwrap();
        controller.advance(now);
        let share = controller.share_of(HOST, "green");
        if share > 0.2 && first.is_none() {
            first = Some(now - last);
        }
        if (share - 1.0).abs() < 1e-9 {
            return (first.unwrap(), now - last);
        }
    }
}

#[test]
fn ingress_nginx_is_as_late_as_its_rate_limit_and_its_workers_timers_make_it() {
    let alone: Vec<_> = (0..500).map(|seed| delay(Flavor::IngressNginx, seed, &[60_000]).1).collect();
    let crowded: Vec<_> = (0..500).map(|seed| delay(Flavor::IngressNginx, seed, &[60_000, 61_000, 61_500]).1).collect();
    let (least, most) = (alone.iter().min().unwrap(), alone.iter().max().unwrap());
    assert!(*least < 500 && (3_500..4_400).contains(most), "{least} {most}");
    let (least, most) = (crowded.iter().min().unwrap(), crowded.iter().max().unwrap());
    assert!(*least < 500 && (2_500..4_400).contains(most), "{least} {most}");
    // half of the controllers synced at once at 60 s, so their next time is at 63.333 s
    assert!(crowded.iter().filter(|delay| **delay >= 1_833).count() > 200);
    // "from POST: last request on the other color after 0.25-0.75 s" and at most one timer between workers
    let worker_spread = (0..500).map(|seed| delay(Flavor::IngressNginx, seed, &[60_000]));
    assert!(worker_spread.clone().all(|(first, last)| last - first <= 1_000));
    assert!(worker_spread.filter(|(first, last)| last - first > 100).count() > 20);
}

#[test]
fn traefik_takes_a_change_at_once_or_at_the_end_of_its_throttle() {
    for seed in 0..100 {
        assert!((20..=90).contains(&delay(Flavor::Traefik, seed, &[60_000]).1));
        let throttled = delay(Flavor::Traefik, seed, &[60_000, 60_200]).1;
        assert!((1_800..=2_000).contains(&throttled), "{throttled}");
    }
}

#[test]
fn a_rate_limit_lets_one_sync_through_each_three_and_a_third_seconds() {
    let mut controller = running(Flavor::IngressNginx, 5, &[main_ingress("blue")]);
    let mut seen = Vec::new();
    for now in (10_000..40_000).step_by(50) {
        let weight = ((now - 10_000) / 500).to_string();
        controller.changed(snapshot(&[main_ingress("blue"), canary("green", &weight)], [2; 3]), now);
        controller.advance(now);
        let share = controller.share_of(HOST, "green");
        if seen.last() != Some(&share) {
            seen.push(share);
        }
    }
    // 30 s are at most ten syncs; each is seen by up to four workers, one after the other
    assert!(seen.len() <= 1 + 10 * 4 && seen.len() >= 10, "{}", seen.len());
}

#[test]
fn traefik_begins_its_round_anew_with_each_configuration() {
    let objects = [main_ingress("blue"), canary("green", "5")];
    let mut controller = running(Flavor::Traefik, 1, &objects);
    let request = Request { host: HOST, path: "/", ..Request::default() };
    let first = |controller: &mut IngressController, now: u64| {
        (1..1000).find(|_| ask(controller, &request, now) == "green").unwrap()
    };
    assert_eq!(first(&mut controller, 0), 19);
    // 5 of 100, but for the rounding of deadlines
    assert!((20..=21).contains(&first(&mut controller, 0)));
    for _ in 0..15 {
        assert_eq!(ask(&mut controller, &request, 0), "blue");
    }
    // a Pod more: the canary is starved
    controller.changed(snapshot(&objects, [3, 2, 2]), 10_000);
    assert_eq!(first(&mut controller, 20_000), 19);
    // the same again: no new configuration
    controller.changed(snapshot(&objects, [3, 2, 2]), 30_000);
    assert!((20..=21).contains(&first(&mut controller, 40_000)));
}

#[test]
fn pods_take_turns() {
    for flavor in [Flavor::IngressNginx, Flavor::Traefik] {
        let mut controller = running(flavor, 9, &[main_ingress("blue")]);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..1000 {
            if let Routed::Pod { pod, .. } =
                controller.route(&Request { host: HOST, path: "/", ..Request::default() }, 5)
            {
                *counts.entry(pod).or_insert(0) += 1;
            }
        }
        assert!(counts.len() == 2 && counts.values().all(|count| (490..=510).contains(count)), "{counts:?}");
    }
}
