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
use modelrollout::api::{ModelRollout, PromptBinding, crd};
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
    assert!(rules.len() > 25, "rules were not found: {rules:?}");
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

/// Not only every message: the same text type in another place is another line of the schema.
#[test]
fn every_rule_has_a_case_at_every_place() {
    let cases = bad_input::cases();
    let refused: Vec<_> = cases.iter().filter_map(|case| case.expected.as_ref()).collect();
    let mut missing = Vec::new();
    for (at, node) in places() {
        for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let at = rule["fieldPath"].as_str().map_or(at.as_str(), |path| path.trim_start_matches('.'));
            let message = rule["message"].as_str().unwrap();
            if !refused
                .iter()
                .any(|case| case.by == By::Cel && place(&case.field) == at && message.contains(&case.says))
            {
                missing.push(format!("{at}: {message}"));
            }
        }
    }
    assert!(missing.is_empty(), "no case for {missing:#?}");
}

#[test]
fn every_bound_has_a_case_beyond_it_and_one_at_it() {
    let (mut refused, mut accepted) = (Vec::new(), Vec::new());
    for case in bad_input::cases() {
        let values = values(&without_nulls(&case.new));
        match case.expected {
            None => accepted.extend(values.into_iter().map(|(at, value)| (place(&at), value))),
            Some(expected) if expected.by == By::Schema => {
                let value = values.into_iter().find(|(at, _)| *at == expected.field).map(|(_, value)| value);
                refused.push((place(&expected.field), expected.says, value.unwrap_or_default()));
            }
            Some(_) => {}
        }
    }
    let mut missing = Vec::new();
    for (at, node) in places() {
        let mut need = |what: String, there: bool| {
            if !there {
                missing.push(format!("{at}: {what}"));
            }
        };
        for (keyword, beyond, says) in BOUNDS {
            let Some(bound) = node[keyword].as_f64() else { continue };
            // the refused neighbour; of a number with a fraction, any
            let near = |value: &Value| size(value) == Some(bound + beyond) || node["type"] == "number";
            let right =
                |(place, text, value): &(String, String, Value)| *place == at && text.contains(says) && near(value);
            need(format!("nothing just beyond {keyword} {bound} is refused"), refused.iter().any(right));
            // the rule for a percentage ends before its length does
            let out_of_reach = keyword == "maxLength" && at.contains("errorRate.max");
            let reached = accepted.iter().any(|(place, value)| *place == at && size(value) == Some(bound));
            need(format!("nothing at {keyword} {bound} is accepted"), out_of_reach || reached);
        }
        for allowed in node["enum"].as_array().into_iter().flatten() {
            let used = accepted.iter().any(|(place, value)| *place == at && value == allowed);
            need(format!("{allowed} is not used"), used);
        }
        let says = |at: &str, says: &str| refused.iter().any(|(place, text, _)| place == at && text.contains(says));
        need("no other value is refused".to_owned(), node["enum"].is_null() || says(&at, "supported values"));
        let unique = ["set", "map"].iter().any(|kind| node["x-kubernetes-list-type"] == *kind);
        need("no duplicate is refused".to_owned(), !unique || says(&format!("{at}[]"), "Duplicate value"));
        for name in node["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let field = [at.as_str(), name].join(".");
            let field = field.trim_start_matches('.').replace("spec.green.", "spec.blue.");
            need(format!("not refused without {name}"), says(&field, "Required value"));
        }
    }
    assert!(missing.is_empty(), "no case for {missing:#?}");
}

/// Every field of the spec is in an accepted case, and every field that may be left out is left out of one.
#[test]
fn every_field_is_given_and_left_out() {
    let accepted: Vec<_> = bad_input::cases().into_iter().filter(|case| case.expected.is_none()).collect();
    let values: Vec<_> = accepted.iter().flat_map(|case| values(&without_nulls(&case.new))).collect();
    let mut missing = Vec::new();
    for (at, node) in places() {
        for name in node["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
            let required = node["required"].as_array().is_some_and(|names| names.contains(&name.as_str().into()));
            let mut parents = values.iter().filter(|(field, _)| place(field) == at).map(|(_, value)| value);
            let given = parents.clone().any(|parent| parent.get(name).is_some());
            let left_out = parents.any(|parent| parent.get(name).is_none());
            if !given || !(left_out || required) {
                missing.push(format!("{at}.{name}: given {given}, left out {left_out}"));
            }
        }
    }
    missing.retain(|field| field.starts_with("spec"));
    assert!(missing.is_empty(), "no case for {missing:#?}");
}

/// The bounds of a schema, what is just beyond them, and what the API server says of that.
const BOUNDS: [(&str, f64, &str); 6] = [
    ("minItems", -1.0, "should have at least"),
    ("maxItems", 1.0, "must have at most"),
    ("minLength", -1.0, "should be at least"),
    ("maxLength", 1.0, "may not be more than"),
    ("minimum", -1.0, "should be greater than or equal to"),
    ("maximum", 1.0, "should be less than or equal to"),
];

/// What a bound is about: of a number itself, of text and lists how long they are.
fn size(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => Some(text.chars().count() as f64),
        Value::Array(items) => Some(items.len() as f64),
        _ => None,
    }
}

/// Every node of the schema that a user writes: the root, and `spec` down to its last field. Of the two colors, blue:
/// they are one type.
fn places() -> Vec<(String, Value)> {
    fn walk(schema: &Value, at: String, found: &mut Vec<(String, Value)>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let field = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            if !["status", "spec.green"].contains(&field.as_str()) {
                walk(property, field, found);
            }
        }
        if schema["items"].is_object() {
            walk(&schema["items"], format!("{at}[]"), found);
        }
        found.push((at, schema.clone()));
    }
    let mut found = Vec::new();
    walk(&schema(), String::new(), &mut found);
    assert_eq!(colors_differ(&schema()), None);
    found
}

/// Where the schemas of the two colors differ; only their descriptions may.
fn colors_differ(schema: &Value) -> Option<String> {
    let colors = &schema["properties"]["spec"]["properties"];
    let (blue, green) = (&colors["blue"], &colors["green"]);
    ["properties", "required", "type"].into_iter().find(|key| blue[key] != green[key]).map(str::to_owned)
}

/// Every value within `object`, by its path.
fn values(object: &Value) -> Vec<(String, Value)> {
    fn walk(value: &Value, at: String, found: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    walk(field, if at.is_empty() { name.clone() } else { format!("{at}.{name}") }, found);
                }
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| walk(item, format!("{at}[{index}]"), found));
            }
            _ => {}
        }
        found.push((at, value.clone()));
    }
    let mut found = Vec::new();
    walk(object, String::new(), &mut found);
    found
}

/// The place of a field in the schema: `spec.stages[3].weight` is at `spec.stages[].weight`.
fn place(field: &str) -> String {
    let without_indices: String = field.chars().filter(|char| !char.is_ascii_digit()).collect();
    without_indices.replace("spec.green.", "spec.blue.")
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
    assert_eq!(written["paused"], spec["paused"]["default"]);
    let binding = &spec["blue"]["properties"]["promptTemplate"]["properties"]["binding"];
    assert_eq!(serde_json::to_value(PromptBinding::default()).unwrap(), binding["default"]);
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
