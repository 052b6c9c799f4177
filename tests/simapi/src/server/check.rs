//! What a CRD's schema demands of values, and the wording of what is wrong.

use regex::Regex;
use serde_json::Value;

use super::cel::Rule;
use super::conform::join;
use super::errors::Fault;
use super::schema::{Keys, Schema, Shape, custom};
use super::time;

/// The demands of one node.
#[derive(Debug, Default)]
pub(super) struct Checks {
    types: Vec<Box<str>>,
    pub nullable: bool,
    pub default: Option<Value>,
    required: Vec<Box<str>>,
    allowed: Vec<Value>,
    format: Box<str>,
    pattern: Option<Regex>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive: (bool, bool),
    multiple: Option<f64>,
    lengths: (Option<i64>, Option<i64>),
    items: (Option<i64>, Option<i64>),
    properties: (Option<i64>, Option<i64>),
    unique: bool,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    /// CEL rules.
    pub rules: Vec<Rule>,
    /// Itself or something below it has a rule.
    pub rules_below: bool,
}

impl Checks {
    pub fn new(json: &Value, root: bool) -> Self {
        let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or_default();
        let float = |name: &str| json.get(name).and_then(Value::as_f64);
        let int = |name: &str| json.get(name).and_then(Value::as_i64);
        let list = |name: &str| json.get(name).and_then(Value::as_array).into_iter().flatten();
        let nested = |name: &str| list(name).map(|it| custom(it, false)).collect();
        let mut types: Vec<Box<str>> = Vec::new();
        if flag("x-kubernetes-int-or-string") {
            types.extend(["integer".into(), "string".into()]);
        } else if !text("type").is_empty() {
            types.push(text("type").into());
        }
        Self {
            types,
            nullable: flag("nullable"),
            default: json.get("default").cloned(),
            required: list("required").filter_map(Value::as_str).map(Into::into).collect(),
            allowed: list("enum").cloned().collect(),
            format: text("format").into(),
            pattern: Regex::new(text("pattern")).ok().filter(|_| json.get("pattern").is_some()),
            minimum: float("minimum"),
            maximum: float("maximum"),
            exclusive: (flag("exclusiveMinimum"), flag("exclusiveMaximum")),
            multiple: float("multipleOf"),
            lengths: (int("minLength"), int("maxLength")),
            items: (int("minItems"), int("maxItems")),
            properties: (int("minProperties"), int("maxProperties")),
            unique: flag("uniqueItems"),
            all_of: nested("allOf"),
            any_of: nested("anyOf"),
            one_of: nested("oneOf"),
            not: json.get("not").map(|it| Box::new(custom(it, false))),
            rules: list("x-kubernetes-validations").map(|it| Rule::new(it, json, root)).collect(),
            rules_below: json.to_string().contains("\"x-kubernetes-validations\""),
        }
    }
}

/// What is wrong with `value`. What was the same in `old` is not looked at.
pub(super) fn check(value: &Value, old: Option<&Value>, schema: &Schema, path: &str, faults: &mut Vec<Fault>) {
    if old == Some(value) {
        return;
    }
    let Some(checks) = &schema.checks else { return };
    if value.is_null() {
        if !checks.nullable && !checks.types.is_empty() {
            let wanted = checks.types.join(",");
            let detail = format!("{path} in body must be of type {wanted}: \"null\"");
            faults.push(Fault::type_invalid(path, &"null".into(), &detail));
        }
        return;
    }
    if !of_type(value, &checks.types) {
        let has = type_of(value);
        let detail = format!("{path} in body must be of type {}: {has:?}", checks.types.join(","));
        faults.push(Fault::type_invalid(path, &has.into(), &detail));
    }
    if !checks.allowed.is_empty() && !checks.allowed.contains(value) {
        let allowed: Vec<String> =
            checks.allowed.iter().map(|it| it.as_str().map_or_else(|| it.to_string(), ToOwned::to_owned)).collect();
        faults.push(Fault::not_supported(path, value, &allowed));
    }
    let wrong = |detail: String| Fault::invalid(path, value, &format!("{path} in body {detail}"));
    match value {
        Value::String(text) => strings(checks, text, path, &wrong, faults),
        Value::Number(number) => numbers(checks, number.as_f64().unwrap_or_default(), &wrong, faults),
        Value::Array(list) => {
            if let Some(least) = checks.items.0.filter(|least| (list.len() as i64) < *least) {
                let detail = format!("{path} in body should have at least {least} items");
                faults.push(Fault::invalid(path, &list.len().into(), &detail));
            }
            if let Some(most) = checks.items.1.filter(|most| (list.len() as i64) > *most) {
                faults.push(Fault::too_many(path, list.len(), most));
            }
            if checks.unique && list.iter().enumerate().any(|(at, one)| list[..at].contains(one)) {
                faults.push(wrong("shouldn't contain duplicates".into()));
            }
            for (at, item) in list.iter().enumerate() {
                let before = old.and_then(|old| counterpart(item, old, schema));
                check(item, before, schema.item(), &format!("{path}[{at}]"), faults);
            }
        }
        Value::Object(map) => {
            if let Some(least) = checks.properties.0.filter(|least| (map.len() as i64) < *least) {
                let detail = format!("{path} in body should have at least {least} properties");
                faults.push(Fault::invalid(path, &map.len().into(), &detail));
            }
            if let Some(most) = checks.properties.1.filter(|most| (map.len() as i64) > *most) {
                faults.push(Fault::too_many(path, map.len(), most));
            }
            for name in checks.required.iter().filter(|name| !map.contains_key(&***name)) {
                faults.push(Fault::required(join(path, name), ""));
            }
            for (name, one) in map {
                if let Some(schema) = schema.field(name) {
                    check(one, old.and_then(|old| old.get(name)), schema, &join(path, name), faults);
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    combined(checks, value, path, faults);
}

fn strings(checks: &Checks, text: &str, path: &str, wrong: &impl Fn(String) -> Fault, faults: &mut Vec<Fault>) {
    let length = text.chars().count() as i64;
    if let Some(most) = checks.lengths.1.filter(|most| length > *most) {
        faults.push(Fault::too_long(path, most));
    }
    if let Some(least) = checks.lengths.0.filter(|least| length < *least) {
        faults.push(wrong(format!("should be at least {least} chars long")));
    }
    if let Some(pattern) = checks.pattern.as_ref().filter(|it| !it.is_match(text)) {
        faults.push(wrong(format!("should match '{pattern}'")));
    }
    if &*checks.format == "date-time" && time::parse(text).is_none() {
        let detail = format!("{path} in body must be of type date-time: {text:?}");
        faults.push(Fault::type_invalid(path, &text.into(), &detail));
    }
}

fn numbers(checks: &Checks, number: f64, wrong: &impl Fn(String) -> Fault, faults: &mut Vec<Fault>) {
    if let Some(most) = checks.maximum {
        match checks.exclusive.1 {
            true if number >= most => faults.push(wrong(format!("should be less than {most}"))),
            false if number > most => faults.push(wrong(format!("should be less than or equal to {most}"))),
            _ => {}
        }
    }
    if let Some(least) = checks.minimum {
        match checks.exclusive.0 {
            true if number <= least => faults.push(wrong(format!("should be greater than {least}"))),
            false if number < least => faults.push(wrong(format!("should be greater than or equal to {least}"))),
            _ => {}
        }
    }
    if let Some(of) = checks.multiple.filter(|of| (number / of).fract() != 0.0) {
        faults.push(wrong(format!("should be a multiple of {of}")));
    }
    let range = match &*checks.format {
        "int32" => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        _ => None,
    };
    if range.is_some_and(|(low, high)| number < low || number > high) {
        faults.push(wrong(format!("must be of type {}: {number}", checks.format)));
    }
}

fn combined(checks: &Checks, value: &Value, path: &str, faults: &mut Vec<Fault>) {
    let fits = |schema: &Schema| {
        let mut found = Vec::new();
        check(value, None, schema, path, &mut found);
        found.is_empty()
    };
    for schema in &checks.all_of {
        check(value, None, schema, path, faults);
    }
    let place = if path.is_empty() { "<nil>" } else { path };
    let quoted = format!("{path:?}");
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(fits) {
        let detail = format!("{quoted} must validate at least one schema (anyOf)");
        faults.push(Fault::invalid(place, &"".into(), &detail));
    }
    if !checks.one_of.is_empty() && checks.one_of.iter().filter(|one| fits(one)).count() != 1 {
        let count = checks.one_of.iter().filter(|one| fits(one)).count();
        let found =
            if count == 0 { "Found none valid".to_owned() } else { format!("Found {count} valid alternatives") };
        let detail = format!("{quoted} must validate one and only one schema (oneOf). {found}");
        faults.push(Fault::invalid(place, &"".into(), &detail));
    }
    if checks.not.as_deref().is_some_and(fits) {
        let detail = format!("{quoted} must not validate the schema (not)");
        faults.push(Fault::invalid(place, &"".into(), &detail));
    }
}

/// The item of the old list that this one was: only items with keys can be told.
pub(super) fn counterpart<'a>(item: &Value, old: &'a Value, schema: &Schema) -> Option<&'a Value> {
    let Shape::List { keys: Keys::Map(names), .. } = &schema.shape else { return None };
    old.as_array()?.iter().find(|other| names.iter().all(|name| other.get(&**name) == item.get(&**name)))
}

/// Items of sets, and keys of maps, that are there twice.
pub(super) fn duplicates(value: &Value, schema: &Schema, path: &str, faults: &mut Vec<Fault>) {
    match (&schema.shape, value) {
        (Shape::List { keys, .. }, Value::Array(list)) => {
            let same = |a: &Value, b: &Value| match keys {
                Keys::Atomic => false,
                Keys::Set => a == b,
                Keys::Map(names) => names.iter().all(|name| a.get(&**name) == b.get(&**name)),
            };
            for (at, item) in list.iter().enumerate() {
                let place = format!("{path}[{at}]");
                if list[..at].iter().any(|before| same(before, item)) {
                    let shown = match keys {
                        Keys::Map(names) => names
                            .iter()
                            .filter_map(|name| Some((name.to_string(), item.get(&**name)?.clone())))
                            .collect(),
                        _ => item.clone(),
                    };
                    faults.push(Fault::duplicate(&place, &shown));
                }
                duplicates(item, schema.item(), &place, faults);
            }
        }
        (Shape::Struct { .. } | Shape::Map(_), Value::Object(map)) => {
            for (name, one) in map {
                if let Some(schema) = schema.field(name).filter(|it| it.checks.is_some()) {
                    duplicates(one, schema, &join(path, name), faults);
                }
            }
        }
        _ => {}
    }
}

fn of_type(value: &Value, types: &[Box<str>]) -> bool {
    types.is_empty()
        || types.iter().any(|wanted| match &**wanted {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0),
            "number" => value.is_number(),
            _ => true,
        })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(it) if it.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
