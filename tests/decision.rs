//! `docs/decision.schema.json` is what the type says, and every line that `docs/decision-log.md` shows is such a line.
//! `UPDATE=1 cargo test --test decision` writes the schema.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

use std::collections::BTreeSet;
use std::path::Path;

use modelrollout::api::decision::{DECISION_VERSION, Decision, decision_schema};
use serde_json::Value;

fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)
}

fn page() -> String {
    std::fs::read_to_string(path("decision-log.md")).unwrap()
}

/// The lines that the page shows.
fn examples() -> Vec<String> {
    let lines: Vec<String> = page().lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect();
    assert!(lines.len() >= 5, "the page shows the main decisions");
    lines
}

/// Names of the fields of an object of the schema, and of those that are always there.
fn fields(object: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let all = object["properties"].as_object().unwrap().keys().cloned().collect();
    let required = object["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    (all, required.collect())
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_committed_schema_is_what_the_type_says() {
    let fresh = format!("{}\n", serde_json::to_string_pretty(&decision_schema()).unwrap());
    let path = path("decision.schema.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == fresh, "docs/decision.schema.json is stale: run UPDATE=1 cargo test --test decision");
}

#[test]
fn every_line_of_the_page_survives_a_round_trip() {
    for line in examples() {
        let decision: Decision = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(decision.schema_version, DECISION_VERSION);
        let written = serde_json::to_string(&decision).unwrap();
        // field by field, in the order in which the operator writes them
        assert_eq!(written, line);
    }
}

#[test]
fn every_line_of_the_page_fits_the_schema() {
    let schema = serde_json::to_value(decision_schema()).unwrap();
    let of_line = fields(&schema);
    let of_gate = fields(&schema["$defs"]["DecisionGate"]);
    let check = |object: &Value, (all, required): &(BTreeSet<String>, BTreeSet<String>)| {
        let keys = keys(object);
        assert!(keys.is_subset(all) && required.is_subset(&keys), "{object}");
    };
    for line in examples() {
        let line: Value = serde_json::from_str(&line).unwrap();
        check(&line, &of_line);
        line["gates"].as_array().into_iter().flatten().for_each(|gate| check(gate, &of_gate));
    }
}

#[test]
fn the_page_explains_every_field() {
    let schema = serde_json::to_value(decision_schema()).unwrap();
    let page = page();
    for name in fields(&schema).0 {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
    for name in fields(&schema["$defs"]["DecisionGate"]).0 {
        assert!(page.contains(&format!("| `gates[].{name}` |")), "gates[].{name}");
    }
}

/// A line of a later minor change must not stop a reader of today.
#[test]
fn an_unknown_field_is_passed_over() {
    let mut line: Value = serde_json::from_str(&examples()[0]).unwrap();
    line["later"] = Value::Bool(true);
    assert!(serde_json::from_value::<Decision>(line).is_ok());
}
