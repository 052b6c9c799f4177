//! The traps that users of canary Ingresses fell into, each with the issue where they told it.

use super::tests::{HOST, anchor, ask, canary, ingress, lost, main_ingress, running, share, shares, snapshot};
use super::*;

const NGINX: Flavor = Flavor::IngressNginx;
const TRAEFIK: Flavor = Flavor::Traefik;
const CANARY: [(&str, &str); 2] = [("canary", "true"), ("canary-weight", "50")];

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 0.03
}

/// Losses of a change over many seeds: how many there were, and in how many runs there were any.
fn losses(flavor: Flavor, before: &[Value], after: &[Value], pods: [usize; 3]) -> (usize, usize) {
    let runs: Vec<usize> =
        (0..100).map(|seed| lost(&mut running(flavor, seed, before), after, pods, 20_000 + seed * 7)).collect();
    (runs.iter().sum(), runs.iter().filter(|lost| **lost > 0).count())
}

#[test]
fn a_switch_without_an_anchor_loses_requests() {
    // #4469, #6557: old workers hold the old location while the backend list is replaced at once
    let before = [main_ingress("blue"), canary("green", "100")];
    let after = [main_ingress("green"), canary("green", "100")];
    let (sum, runs) = losses(NGINX, &before, &after, [2; 3]);
    assert!((30..100).contains(&runs), "{runs}");
    assert!((7..200).contains(&(sum / runs)), "{}", sum / runs);
    let plain = losses(NGINX, &[main_ingress("blue")], &[main_ingress("green")], [2; 3]);
    assert!(plain.1 > 30, "{plain:?}");
    assert_eq!(losses(TRAEFIK, &before, &after, [2; 3]).0, 0);
}

#[test]
fn a_switch_with_an_anchor_loses_none() {
    let before = [main_ingress("blue"), canary("green", "100"), anchor(&["blue"])];
    let after = [main_ingress("green"), canary("green", "100"), anchor(&["blue"])];
    assert_eq!(losses(NGINX, &before, &after, [2; 3]).0, 0);
    // and neither does making the anchor, nor what comes after the switch, nor the way back
    let steps = [
        vec![main_ingress("blue"), canary("green", "100")],
        before.to_vec(),
        after.to_vec(),
        vec![main_ingress("green"), anchor(&["blue"])],
        vec![main_ingress("green"), anchor(&["blue", "green"])],
        vec![main_ingress("blue"), anchor(&["blue", "green"])],
        vec![main_ingress("green"), anchor(&["blue", "green"])],
        vec![main_ingress("green")],
    ];
    for pair in steps.windows(2) {
        for flavor in [NGINX, TRAEFIK] {
            assert_eq!(losses(flavor, &pair[0], &pair[1], [2; 3]).0, 0, "{pair:?}");
        }
    }
}

#[test]
fn weights_endpoints_and_canaries_change_without_a_loss() {
    let main = main_ingress("blue");
    let steps = [
        (vec![main.clone()], [2, 2, 2]),
        (vec![main.clone(), canary("green", "0")], [2, 2, 2]),
        (vec![main.clone(), canary("green", "100")], [2, 2, 2]),
        (vec![main.clone(), canary("green", "0")], [2, 2, 2]),
        (vec![main.clone(), canary("green", "50")], [2, 0, 2]),
        (vec![main], [2, 0, 2]),
    ];
    for pair in steps.windows(2) {
        for flavor in [NGINX, TRAEFIK] {
            assert_eq!(losses(flavor, &pair[0].0, &pair[1].0, pair[1].1).0, 0, "{pair:?}");
        }
    }
}

#[test]
fn a_primary_without_endpoints_fails_for_all_in_ingress_nginx() {
    // #9635, argo-rollouts#1820
    for (weight, in_traefik) in [("100", 0.0), ("50", 0.5), ("0", 1.0)] {
        let objects = snapshot(&[main_ingress("blue"), canary("green", weight)], [0, 2, 2]);
        for (flavor, wanted) in [(NGINX, 1.0), (TRAEFIK, in_traefik)] {
            let mut controller = IngressController::new(flavor, 1);
            controller.changed(objects.clone(), 0);
            assert!(near(share(&mut controller, "503", 0), wanted), "{weight} {flavor:?}");
            let green = controller.share_of(HOST, "green");
            assert!(near(green, if flavor == NGINX { 0.0 } else { 1.0 - wanted }), "{green}");
        }
    }
}

#[test]
fn a_canary_without_endpoints_leaves_all_to_the_primary() {
    for flavor in [NGINX, TRAEFIK] {
        let mut controller = IngressController::new(flavor, 1);
        controller.changed(snapshot(&[main_ingress("blue"), canary("green", "100")], [2, 0, 2]), 0);
        assert!(near(share(&mut controller, "blue", 0), 1.0));
        assert!(near(controller.share_of(HOST, "blue"), 1.0));
    }
}

#[test]
fn a_canary_leaks_to_every_ingress_of_the_same_service_and_port() {
    // #4667, #4692, #8689; traefik#12906
    let other = ingress("other", 25, "other.example", &[("/", "Prefix", "blue")], &[]);
    for flavor in [NGINX, TRAEFIK] {
        let mut controller = running(flavor, 1, &[main_ingress("blue"), canary("green", "50"), other.clone()]);
        let found = shares(&mut controller, "other.example", "/x", 0);
        assert!(found.iter().any(|(name, share)| name == "green" && near(*share, 0.5)), "{found:?}");
        assert!(near(controller.share_of("other.example", "green"), 0.5));
    }
    // the same port by number is another upstream
    let mut by_number = other;
    by_number["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] =
        serde_json::json!({ "number": 80 });
    let mut controller = running(NGINX, 1, &[main_ingress("blue"), canary("green", "50"), by_number]);
    let found = shares(&mut controller, "other.example", "/", 0);
    assert!(found.len() == 1 && found[0].0 == "blue", "{found:?}");
}

#[test]
fn a_second_canary_does_nothing() {
    // #5848
    let second =
        ingress("second", 15, HOST, &[("/", "Prefix", "other")], &[("canary", "true"), ("canary-weight", "100")]);
    let mut controller = running(NGINX, 1, &[main_ingress("blue"), canary("green", "50"), second]);
    assert!(near(share(&mut controller, "green", 0), 0.5));
    assert!(near(share(&mut controller, "other", 0), 0.0));
}

#[test]
fn one_path_without_a_partner_kills_the_canary_for_all_paths() {
    // #9830
    let main = ingress("bot", 30, HOST, &[("/", "Prefix", "blue"), ("/v1", "Prefix", "blue")], &[]);
    for (path, kind, works) in [("/v1", "Prefix", true), ("/v1", "Exact", false), ("/v1/", "Prefix", false)] {
        let canary = ingress("c", 20, HOST, &[("/", "Prefix", "green"), (path, kind, "green")], &CANARY);
        let mut controller = running(NGINX, 1, &[main.clone(), canary.clone()]);
        assert!(near(share(&mut controller, "green", 0), if works { 0.5 } else { 0.0 }), "{path} {kind}");
        let mut controller = running(TRAEFIK, 1, &[main.clone(), canary]);
        assert!(near(share(&mut controller, "green", 0), 0.5), "{path} {kind}");
    }
}

#[test]
fn a_canary_of_another_host_path_or_type_does_nothing() {
    for (host, path, kind) in [("x.example", "/", "Prefix"), (HOST, "/v1", "Prefix"), (HOST, "/", "Exact")] {
        let canary = ingress("c", 20, host, &[(path, kind, "green")], &CANARY);
        for flavor in [NGINX, TRAEFIK] {
            let mut controller = running(flavor, 1, &[main_ingress("blue"), canary.clone()]);
            assert!(near(share(&mut controller, "blue", 0), 1.0), "{host} {path} {kind} {flavor:?}");
        }
    }
}

#[test]
fn an_older_canary_takes_the_location_of_the_ingress_that_uses_its_service() {
    // #8004, #11563, #3952
    let canary = ingress("c", 40, HOST, &[("/", "Prefix", "green")], &CANARY);
    let mut controller = running(NGINX, 1, &[main_ingress("green"), canary.clone()]);
    assert!(near(share(&mut controller, "404", 0), 1.0));
    let preview = ingress("preview", 20, "preview.example", &[("/", "Prefix", "green")], &[]);
    let mut controller = running(NGINX, 1, &[main_ingress("blue"), canary.clone(), preview.clone()]);
    assert!(near(share(&mut controller, "green", 0), 0.5));
    let request = Request { host: "preview.example", path: "/", ..Request::default() };
    assert_eq!(ask(&mut controller, &request, 0), "404");
    let mut controller = running(TRAEFIK, 1, &[main_ingress("blue"), canary, preview]);
    assert_eq!(ask(&mut controller, &request, 0), "green");
}

#[test]
fn a_canary_of_a_service_that_an_older_ingress_serves_gets_nothing() {
    // #9458, #4723, #7896
    let preview = ingress("preview", 40, "preview.example", &[("/", "Prefix", "green")], &[]);
    let objects = [main_ingress("blue"), canary("green", "100"), preview];
    let mut controller = running(NGINX, 1, &objects);
    assert!(near(share(&mut controller, "blue", 0), 1.0));
    assert!(near(controller.share_of(HOST, "green"), 0.0));
    let request = Request { host: "preview.example", path: "/", ..Request::default() };
    assert_eq!(ask(&mut controller, &request, 0), "green");
    let mut controller = running(TRAEFIK, 1, &objects);
    assert!(near(share(&mut controller, "green", 0), 1.0));
}

#[test]
fn a_canary_of_the_mains_own_service_is_ignored_if_the_main_is_older() {
    for flavor in [NGINX, TRAEFIK] {
        let mut controller = running(flavor, 1, &[main_ingress("green"), canary("green", "50")]);
        assert!(near(share(&mut controller, "green", 0), 1.0));
    }
}

#[test]
fn without_its_main_a_canary_serves_nobody() {
    for flavor in [NGINX, TRAEFIK] {
        let mut controller = running(flavor, 1, &[canary("green", "100")]);
        assert!(near(share(&mut controller, "404", 0), 1.0), "{flavor:?}");
        let other = ingress("other", 25, "other.example", &[("/", "Prefix", "other")], &[]);
        let mut controller = running(flavor, 1, &[canary("green", "100"), other]);
        assert!(near(share(&mut controller, "404", 0), 1.0), "{flavor:?}");
    }
}

#[test]
fn a_canary_that_is_not_true_is_a_normal_ingress() {
    // the webhook would refuse it; an older one gets the place
    for (value, age, wanted) in
        [("false", 20, "blue"), ("false", 40, "green"), ("yes", 40, "green"), ("True", 20, "half")]
    {
        let canary =
            ingress("c", age, HOST, &[("/", "Prefix", "green")], &[("canary", value), ("canary-weight", "50")]);
        let mut controller = running(NGINX, 1, &[main_ingress("blue"), canary]);
        let found = share(&mut controller, "green", 0);
        let expected = match wanted {
            "green" => 1.0,
            "blue" => 0.0,
            _ => 0.5,
        };
        assert!(near(found, expected), "{value} {found}");
    }
}

#[test]
fn adding_and_removing_a_normal_ingress_reloads_and_a_canary_does_not() {
    let main = main_ingress("blue");
    let started = 1_000;
    let mut controller = running(NGINX, 1, std::slice::from_ref(&main));
    lost(&mut controller, &[main.clone(), canary("green", "5")], [2; 3], 20_000);
    lost(&mut controller, &[main.clone(), canary("green", "50")], [3; 3], 40_000);
    lost(&mut controller, std::slice::from_ref(&main), [3; 3], 60_000);
    assert_eq!(controller.cut_at(started), u64::MAX);
    lost(&mut controller, &[main, anchor(&["blue"])], [3; 3], 80_000);
    let cut = controller.cut_at(started);
    assert!((320_000..325_000).contains(&cut), "{cut}");
    assert_eq!(controller.cut_at(90_000), u64::MAX);
}
