//! The table of good and bad input against the generated schema and kube's CEL evaluator. No cluster is needed;
//! `tests/apiserver_schema.rs` asks a real API server the same questions.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

mod bad_input;
#[path = "bad_input/refusal.rs"]
mod refusal;
#[path = "bad_input/structural.rs"]
mod structural;

use std::collections::BTreeSet;

use bad_input::{By, Case};
use kube::core::cel::Validator;
use modelrollout::api::{ModelRollout, crd};
use refusal::Refusal;
use serde_json::Value;
use structural::{refusals, without_nulls};

fn schema() -> Value {
    let crd = serde_json::to_value(crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn by_cel(schema: &Value, case: &Case) -> Vec<Refusal> {
    let new = without_nulls(&case.new);
    let Err(errors) = Validator::new().validate(schema, &new, case.old.as_ref()) else { return Vec::new() };
    let refusal = |error: kube::core::cel::ValidationError| Refusal {
        field: error.field_path.trim_start_matches('.').to_owned(),
        message: error.message,
    };
    errors.into_vec().into_iter().map(refusal).collect()
}

#[test]
fn every_case_of_the_table() {
    let schema = schema();
    let mut wrong = Vec::new();
    for case in bad_input::cases() {
        let structural = refusals(&schema, &without_nulls(&case.new));
        // like the API server: no rule is asked about an object that does not fit the schema
        let cel = if structural.is_empty() { by_cel(&schema, &case) } else { Vec::new() };
        let right = match &case.expected {
            None => structural.is_empty() && cel.is_empty(),
            Some(expected) if expected.by == By::Schema => expected.is_in(&structural),
            Some(expected) => expected.is_in(&cel),
        };
        if !right {
            wrong
                .push(format!("{}\n  expected {:?}\n  schema {structural:?}\n  cel {cel:?}", case.name, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_of_the_schema_refuses_something_in_the_table() {
    let schema = schema();
    let mut rules = BTreeSet::new();
    messages(&schema, &mut rules);
    assert!(rules.len() > 15, "rules were not found: {rules:?}");
    for case in bad_input::cases() {
        for refusal in by_cel(&schema, &case) {
            rules.remove(&refusal.message);
        }
    }
    assert!(rules.is_empty(), "no case for {rules:#?}");
}

/// Every rule has a message; collects them.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
                let message = rule["message"].as_str().unwrap_or_else(|| panic!("no message: {rule}"));
                found.insert(message.to_owned());
            }
            fields.values().for_each(|field| messages(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| messages(item, found)),
        _ => {}
    }
}

#[test]
fn what_is_accepted_can_be_read() {
    for case in bad_input::cases().into_iter().filter(|case| case.expected.is_none()) {
        let object: Result<ModelRollout, _> = serde_json::from_value(case.new.clone());
        assert!(object.is_ok(), "{}: {:?}", case.name, object.err());
    }
}

/// An object at rest in the store must stay readable: the defaults of the schema are those of the types.
#[test]
fn defaults_of_the_schema_are_those_of_the_types() {
    let minimal = bad_input::cases().swap_remove(0).new;
    let object: ModelRollout = serde_json::from_value(minimal).unwrap();
    let written = serde_json::to_value(&object.spec).unwrap();
    let spec = &schema()["properties"]["spec"]["properties"];
    for field in ["prepare", "rollback"] {
        assert_eq!(written[field], spec[field]["default"], "{field}");
        for (name, property) in spec[field]["properties"].as_object().unwrap() {
            assert_eq!(written[field][name], property["default"], "{field}.{name}");
        }
    }
    let controller = &spec["traffic"]["properties"]["ingress"]["properties"]["controller"];
    assert_eq!(written["traffic"]["ingress"]["controller"], controller["default"]);
    assert_eq!(spec["gates"]["items"]["properties"]["source"]["default"], modelrollout::api::DEFAULT_SOURCE);
}

/// `kubectl explain` has a sentence for every field, down to the last.
#[test]
fn every_field_is_described() {
    fn walk(schema: &Value, path: &str, bare: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{path}.{name}");
            if !property["description"].as_str().is_some_and(|text| text.ends_with('.')) {
                bare.push(at.clone());
            }
            walk(property, &at, bare);
            walk(&property["items"], &format!("{at}[]"), bare);
        }
    }
    let mut bare = Vec::new();
    walk(&schema(), "", &mut bare);
    // the description of metav1.Condition is not ours
    bare.retain(|path| !path.starts_with(".status.conditions[]"));
    assert!(bare.is_empty(), "no sentence for {bare:#?}");
}
