//! The table `cases.yaml`: what is accepted, what is refused, and in which words.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// Who refuses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Schema,
    Cel,
}

/// What a case expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub field: String,
    pub says: String,
    pub by: By,
}

impl Expected {
    /// Whether one of the refusals is the expected one.
    pub fn is_in(&self, refusals: &[Refusal]) -> bool {
        refusals.iter().any(|refusal| refusal.field == self.field && refusal.message.contains(&self.says))
    }
}

/// One case, with its patch applied.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// What exists before, for a transition. Its status is set.
    pub old: Option<Value>,
    /// What is sent. Only the test with an API server reads it.
    #[allow(dead_code, reason = "each test program compiles this module and uses a part of it")]
    pub patch: Value,
    /// What the object is with it.
    pub new: Value,
    /// `None`: it is accepted.
    pub expected: Option<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    bases: BTreeMap<String, Value>,
    #[serde(rename = "statuses")]
    _anchors: Value,
    cases: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    base: String,
    patch: Value,
    status: Option<Value>,
    refused: Option<String>,
    says: Option<String>,
    by: Option<By>,
}

/// Every case of the table, in its order.
pub fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_input/cases.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let table: Table = serde_yaml::from_str(&text).unwrap();
    table.cases.into_iter().map(|row| row.case(&table.bases)).collect()
}

impl Row {
    fn case(self, bases: &BTreeMap<String, Value>) -> Case {
        let base = bases.get(&self.base).unwrap_or_else(|| panic!("{}: no base {}", self.name, self.base));
        let patch = expanded(self.patch);
        let old = self.status.map(|status| merged(base.clone(), &serde_json::json!({ "status": status })));
        let new = merged(old.clone().unwrap_or_else(|| base.clone()), &patch);
        let expected = match (self.refused, self.says, self.by) {
            (Some(field), Some(says), Some(by)) => Some(Expected { field, says, by }),
            (None, None, None) => None,
            _ => panic!("{}: refused, says and by go together", self.name),
        };
        Case { name: self.name, old, patch, new, expected }
    }
}

/// `{ $repeat: [text, n] }` written out.
fn expanded(value: Value) -> Value {
    match value {
        Value::Object(fields) => match fields.get("$repeat") {
            Some(Value::Array(repeat)) => {
                let text = repeat[0].as_str().unwrap();
                let times = usize::try_from(repeat[1].as_u64().unwrap()).unwrap();
                Value::String(text.repeat(times))
            }
            _ => Value::Object(fields.into_iter().map(|(key, field)| (key, expanded(field))).collect()),
        },
        Value::Array(items) => items.into_iter().map(expanded).collect(),
        other => other,
    }
}

/// `patch` applied to `base` as a JSON merge patch.
fn merged(base: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut fields = match base {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            let field = fields.remove(key).unwrap_or_default();
            fields.insert(key.clone(), merged(field, change));
        }
    }
    Value::Object(fields)
}
