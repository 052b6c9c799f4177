//! The part of a structural schema that our CRD uses, in the API server's own words. That these are its words is what
//! `tests/apiserver_schema.rs` shows with the same table.

use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// `object` without the nulls that the API server drops: those of fields that are not nullable.
pub fn without_nulls(object: &Value) -> Value {
    match object {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, field)| !field.is_null())
                .map(|(key, field)| (key.clone(), without_nulls(field)))
                .collect(),
        ),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// What the schema alone refuses.
pub fn refusals(schema: &Value, object: &Value) -> Vec<Refusal> {
    let mut found = Found::default();
    found.check(schema, object, "");
    found.refusals
}

#[derive(Default)]
struct Found {
    refusals: Vec<Refusal>,
}

impl Found {
    fn refuse(&mut self, field: &str, message: String) {
        self.refusals.push(Refusal { field: field.to_owned(), message });
    }

    fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        let expected = schema["type"].as_str().unwrap_or_else(|| panic!("{path}: the schema has no type"));
        let fits = match expected {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            other => panic!("{path}: unknown type {other}"),
        };
        if !fits {
            return self.refuse(path, format!("Invalid value: {path} in body must be of type {expected}"));
        }
        match value {
            Value::Object(fields) => self.fields(schema, fields, path),
            Value::Array(items) => self.items(schema, items, path),
            Value::String(text) => self.text(schema, text, path),
            Value::Number(number) => self.number(schema, number.as_f64().unwrap(), path),
            _ => {}
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
            self.refuse(path, format!("Unsupported value: {value}: supported values: {}", allowed.join(", ")));
        }
    }

    fn fields(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.refuse(&join(path, name), "Required value".to_owned());
            }
        }
        for (name, field) in fields {
            let at = join(path, name);
            match schema["properties"].get(name) {
                Some(property) => self.check(property, field, &at),
                // kept and checked by the API server itself
                None if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) => {}
                None => self.refuse(&at, "unknown field".to_owned()),
            }
        }
    }

    fn items(&mut self, schema: &Value, items: &[Value], path: &str) {
        let length = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| length < *least) {
            self.refuse(path, format!("Invalid value: {length}: {path} in body should have at least {least} items"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| length > *most) {
            let noun = if most == 1 { "item" } else { "items" };
            self.refuse(path, format!("Too many: {length}: must have at most {most} {noun}"));
        }
        let keys: Vec<&str> =
            schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let set = schema["x-kubernetes-list-type"] == "set";
        for (index, item) in items.iter().enumerate() {
            let at = format!("{path}[{index}]");
            let same = |other: &&Value| match (set, keys.is_empty()) {
                (true, _) => *other == item,
                (false, true) => false,
                (false, false) => keys.iter().all(|key| other[*key] == item[*key]),
            };
            if items.iter().take(index).find(same).is_some() {
                self.refuse(&at, "Duplicate value".to_owned());
            }
            self.check(&schema["items"], item, &at);
        }
    }

    fn text(&mut self, schema: &Value, text: &str, path: &str) {
        assert!(schema.get("pattern").is_none(), "{path}: say it in a CEL rule, whose message people can read");
        let length = text.chars().count() as u64;
        if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            self.refuse(path, format!("Invalid value: {text:?}: {path} in body should be at least {least} chars long"));
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            self.refuse(path, format!("Too long: may not be more than {most} bytes"));
        }
    }

    fn number(&mut self, schema: &Value, number: f64, path: &str) {
        if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
            let message = format!("Invalid value: {number}: {path} in body should be greater than or equal to {least}");
            self.refuse(path, message);
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
            self.refuse(
                path,
                format!("Invalid value: {number}: {path} in body should be less than or equal to {most}"),
            );
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
