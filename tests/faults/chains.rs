//! T5, after Acto (SOSP 2023): chains of specs that are made from the CRD's own schema, each applied while the one before is
//! still at work. Whatever the way, the end must be that of the last spec alone.

use std::collections::BTreeMap;

use modelrollout::api::Color;
use modelrollout_simapi::actors::random::Random;
use serde_json::{Map, Value, json};

use crate::run::{CRD, Outcome, run};
use crate::scenario::{Do, Scenario, When};
use crate::search::{SEED, threads};

/// What fits a field of this name in our cluster; none: the schema alone says what fits.
fn domain(place: &str, name: &str, random: &mut Random) -> Option<Value> {
    let color = if place.contains("/green") { "green" } else { "blue" };
    let mut one_of = |values: &[&str]| json!(values[random.below(values.len() as u64) as usize]);
    Some(match name {
        "deploymentName" | "serviceName" => json!(format!("bot-{color}")),
        "configMapName" => json!(format!("prompt-{color}")),
        "names" => json!(["bot"]),
        "podTemplateName" => json!("judge"),
        "version" if place.contains("model") => json!(if color == "blue" { "1" } else { "2" }),
        "name" if place.contains("model") => json!("llama"),
        "version" => one_of(&["v7", "v8"]),
        "controller" => json!("nginx"),
        "hold" | "warmup" | "maxHold" => one_of(&["1s", "4s", "15s"]),
        "deadline" => one_of(&["20s", "30s"]),
        "buffer" => one_of(&["2s", "10s"]),
        "progressDeadline" => one_of(&["1m", "10m"]),
        "bad" => json!(r#"http_requests_total{service="{{service}}",code=~"5.."}"#),
        "total" => json!(r#"http_requests_total{service="{{service}}"}"#),
        "histogram" => json!(r#"http_request_duration_seconds_bucket{service="{{service}}"}"#),
        "query" => one_of(&["1", r#"sum(http_requests_total{service="{{service}}"})"#]),
        // who scales nothing waits for a person
        "replicas" => json!("MatchActive"),
        "source" => json!("default"),
        "quantile" => one_of(&["0.5", "0.9", "0.99"]),
        "confidence" => one_of(&["0.9", "0.95", "0.99"]),
        "minSamples" => json!(5 + random.below(30)),
        "header" => json!("x-user-id"),
        "values" => json!(["alice", "bob"]),
        "max" | "maxIncrease" if place.contains("errorRate") => one_of(&["5%", "20%"]),
        "max" if place.contains("latency") => one_of(&["1s", "5s"]),
        "max" | "min" | "maxRatio" => one_of(&["2", "100"]),
        "manualWeight" => return None,
        _ => return None,
    })
}

/// Makes values that a schema allows.
struct Maker<'a> {
    random: &'a mut Random,
}

impl Maker<'_> {
    fn make(&mut self, schema: &Value, place: &str, name: &str) -> Value {
        if let Some(value) = domain(place, name, self.random) {
            return value;
        }
        if let Some(words) = schema["enum"].as_array() {
            return words[self.random.below(words.len() as u64) as usize].clone();
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema, place),
            Some("array") => {
                let most = schema["maxItems"].as_u64().unwrap_or(3).min(3);
                let count = self.random.between(schema["minItems"].as_u64().unwrap_or(0).min(most), most);
                let mut items: Vec<Value> = (0..count).map(|_| self.make(&schema["items"], place, "")).collect();
                if name == "stages" {
                    stages(&mut items, self.random);
                }
                if name == "gates" && !place.contains("stages") {
                    gates(&mut items);
                }
                json!(items)
            }
            Some("integer") => {
                let (least, most) =
                    (schema["minimum"].as_i64().unwrap_or(0), schema["maximum"].as_i64().unwrap_or(100));
                json!(least + self.random.below(most.abs_diff(least).saturating_add(1)) as i64)
            }
            Some("boolean") => json!(self.random.chance(0.2)),
            _ => json!("a"),
        }
    }

    fn object(&mut self, schema: &Value, place: &str) -> Value {
        let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut object = Map::new();
        for (name, of) in schema["properties"].as_object().into_iter().flatten() {
            // who pauses, or takes the weight in hand, waits for a person
            let by_hand = ["paused", "manualWeight", "approval"].contains(&name.as_str());
            if needed.contains(&name.as_str()) || (!by_hand && self.random.chance(0.5)) {
                object.insert(name.clone(), self.make(of, &format!("{place}/{name}"), name));
            }
        }
        Value::Object(object)
    }
}

/// Weights rise to 100, and name no gates.
fn stages(items: &mut Vec<Value>, random: &mut Random) {
    let mut weight = 0;
    items.truncate(2);
    for item in &mut *items {
        weight += random.between(10, 35);
        item["weight"] = json!(weight);
        item.as_object_mut().map(|stage| (stage.remove("gates"), stage.remove("users")));
    }
    items.push(json!({ "weight": 100, "hold": "2s" }));
}

/// Each with a name of its own and one kind.
fn gates(items: &mut [Value]) {
    for (index, item) in items.iter_mut().enumerate() {
        item["name"] = json!(format!("gate-{index}"));
        let kinds = ["errorRate", "latency", "value", "job"];
        let present: Vec<&str> = kinds.into_iter().filter(|kind| item.get(kind).is_some()).collect();
        let keep = present.get(index % present.len().max(1)).copied();
        for kind in kinds {
            if Some(kind) != keep {
                item.as_object_mut().map(|gate| gate.remove(kind));
            }
        }
        if keep.is_none() {
            item["value"] = json!({ "query": "1", "max": "2" });
        }
    }
}

/// A spec. What says of blue, which serves, what it is, stays: a rollout whose way back has changed waits for a person.
fn spec(random: &mut Random, base: &Scenario) -> Value {
    let schema = CRD.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").expect("a schema").clone();
    let mut spec = Maker { random }.make(&schema, "", "spec");
    spec["blue"] = base.spec["blue"].clone();
    spec
}

/// A chain of one to eight specs, and the last of them from the start.
fn chain(seed: u64) -> (Scenario, Scenario) {
    let mut random = Random::new(seed);
    let count = random.between(1, 8);
    let base = Scenario::named("promotion").expect("a scenario");
    let mut script = Vec::new();
    for _ in 0..count {
        script.push((When::After(random.between(500, 40_000)), Do::Spec(spec(&mut random, &base))));
    }
    let mut last = spec(&mut random, &base);
    last["target"] = json!("green");
    last["paused"] = json!(false);
    script.push((When::After(random.between(500, 40_000)), Do::Spec(last.clone())));
    // what an earlier spec made fail is asked for once more
    script.push((When::Rest(1_000), Do::Annotate("modelrollout.dev/retry", "once more")));
    let alone = vec![
        (When::After(500), Do::Spec(last.clone())),
        (When::Rest(1_000), Do::Annotate("modelrollout.dev/retry", "once more")),
    ];
    let chained = Scenario { script, serves: Color::Green, ..base.clone() };
    let mut fresh = base;
    fresh.spec["target"] = json!("blue");
    (chained, Scenario { script: alone, serves: Color::Green, ..fresh })
}

/// What must be the same: not how often it was tried, and not what failed on the way.
fn end(outcome: &Outcome) -> BTreeMap<&'static str, String> {
    let keys = ["backends", "ingresses of ours", "phase", "active", "open", "finalizers", "acts left"];
    outcome.end.state.iter().filter(|(key, _)| keys.contains(key)).map(|(key, value)| (*key, value.clone())).collect()
}

#[test]
#[ignore = "takes long: make test-faults-chains"]
fn whatever_the_way_the_end_is_that_of_the_last_spec() {
    if let Some(seed) = std::env::var("FAULTS_CHAIN").ok().and_then(|text| text.parse().ok()) {
        let (chained, alone) = chain(seed);
        for scenario in [chained, alone] {
            let outcome = run(&scenario, &[], SEED, true);
            println!("{}\n{:#?}\n{:?}", outcome.trace.join("\n"), outcome.end, outcome.violations);
        }
        return;
    }
    let chains = std::env::var("FAULTS_CHAINS").ok().and_then(|text| text.parse().ok()).unwrap_or(200_u64);
    let wrong = std::sync::Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicU64::new(0);
    let (accepted, refused) = (std::sync::atomic::AtomicU64::new(0), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= chains {
                        return;
                    }
                    let (chained, alone) = chain(seed);
                    let (one, other) = (run(&chained, &[], SEED, false), run(&alone, &[], SEED, false));
                    accepted.fetch_add(one.accepted, std::sync::atomic::Ordering::Relaxed);
                    refused.fetch_add(one.refused, std::sync::atomic::Ordering::Relaxed);
                    let mut text = String::new();
                    for violation in one.violations.iter().chain(&other.violations) {
                        text += &format!("  {violation:?}\n");
                    }
                    // A last spec that is refused is none. One that does not promote by itself says nothing of a way on
                    // which an earlier one has promoted already.
                    let promotes = other.last_accepted && end(&other)["active"] == "green";
                    if one.last_accepted && promotes && end(&one) != end(&other) {
                        text += &format!("  chained {:?}\n  alone   {:?}\n", end(&one), end(&other));
                    }
                    if !text.is_empty() {
                        wrong.lock().unwrap().push(format!("FAULTS_CHAIN={seed} make test-faults-chains\n{text}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    println!("{chains} chains, {accepted:?} specs accepted, {refused:?} refused, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong[..wrong.len().min(10)].join("\n"));
    let (accepted, refused) = (accepted.into_inner(), refused.into_inner());
    assert!(
        accepted > refused,
        "most specs that the schema gives must be good ones: {accepted} of {}",
        accepted + refused
    );
}
