//! Bodies as they are read: unknown fields go, what is left out gets its zero or its default.

use serde_json::{Map, Value};

use super::schema::{Keep, Scalar, Schema, Shape};
use super::time;

/// Makes `value`, of a built-in kind, what the server would write after reading it. Unknown fields are told. An error
/// is told as the server's decoder does.
pub(super) fn builtin(value: &mut Value, schema: &Schema, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    owned(value, schema, (path, ""), unknown)
}

/// `owner`: the type that has the field.
fn owned(
    value: &mut Value,
    schema: &Schema,
    (path, owner): (&str, &str),
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    match &schema.shape {
        Shape::Any => {}
        Shape::Scalar(scalar) => return normalize(value, *scalar, (path, owner)),
        Shape::Struct { fields, name: own, .. } => {
            if value.is_null() {
                *value = Value::Object(Map::new());
            }
            let Some(map) = value.as_object_mut() else { return Err(mismatch(value, (path, owner), own)) };
            let mut failure = None;
            map.retain(|name, one| {
                let Some(field) = fields.get(name.as_str()) else {
                    unknown.push(format!("unknown field {:?}", join(path, name)));
                    return false;
                };
                if one.is_null() {
                    return false;
                }
                let empty = one.as_array().is_some_and(Vec::is_empty) || one.as_object().is_some_and(Map::is_empty);
                if field.keep == Keep::Always && empty && !matches!(field.schema.shape, Shape::Struct { .. }) {
                    return false;
                }
                if let Err(error) = owned(one, &field.schema, (&join(path, name), own), unknown) {
                    failure.get_or_insert(error);
                }
                !(matches!(field.keep, Keep::Filled | Keep::FilledStruct) && is_zero(one))
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
            for (name, field) in fields {
                if matches!(field.keep, Keep::Filled | Keep::Given | Keep::FilledStruct) || map.contains_key(&**name) {
                    continue;
                }
                let mut empty = Value::Null;
                if field.keep == Keep::Struct {
                    builtin(&mut empty, &field.schema, "", unknown)?;
                } else if let (Shape::Scalar(scalar), Keep::Always) = (&field.schema.shape, field.keep) {
                    let scalar = *scalar;
                    empty = zero(scalar);
                }
                map.insert(name.to_string(), empty);
            }
        }
        Shape::Map(of) => {
            let Some(map) = value.as_object_mut() else {
                return Err(mismatch(value, (path, owner), "map[string]string"));
            };
            for one in map.values_mut() {
                if one.is_null() {
                    *one = if let Shape::Scalar(scalar) = of.shape { zero(scalar) } else { Value::Null };
                }
                owned(one, of, (path, owner), unknown)?;
            }
        }
        Shape::List { item, .. } => {
            let Some(list) = value.as_array_mut() else { return Err(mismatch(value, (path, owner), "[]string")) };
            for (at, one) in list.iter_mut().enumerate() {
                owned(one, item, (&format!("{path}[{at}]"), owner), unknown)?;
            }
        }
    }
    Ok(())
}

/// The place of a field.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn zero(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String | Scalar::Bytes => "".into(),
        Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString => 0.into(),
        Scalar::Bool => false.into(),
        Scalar::Quantity => "0".into(),
        Scalar::Time | Scalar::MicroTime => Value::Null,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(it) => !it,
        Value::Number(it) => it.as_f64() == Some(0.0),
        Value::String(it) => it.is_empty(),
        Value::Array(it) => it.is_empty(),
        Value::Object(it) => it.is_empty(),
    }
}

fn normalize(value: &mut Value, scalar: Scalar, place: (&str, &str)) -> Result<(), String> {
    let fits = match scalar {
        Scalar::String | Scalar::Bytes => value.is_string(),
        Scalar::Int32 | Scalar::Int64 => {
            if let Some(float) = value.as_f64().filter(|_| value.is_f64())
                && float.fract() == 0.0
            {
                *value = (float as i64).into();
            }
            value.is_i64() || value.is_u64()
        }
        Scalar::Number => value.is_number(),
        Scalar::Bool => value.is_boolean(),
        Scalar::IntOrString => value.is_string() || value.is_i64(),
        Scalar::Quantity => {
            if value.is_number() {
                *value = value.to_string().into();
            }
            if let Some(text) = value.as_str() {
                *value = super::quantity::canonical(text).into();
            }
            value.is_string()
        }
        Scalar::Time | Scalar::MicroTime => {
            if let Some(text) = value.as_str() {
                if scalar == Scalar::MicroTime && !text.contains('.') && time::parse(text).is_some() {
                    return Err(format!(
                        "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\""
                    ));
                }
                let Some(at) = time::parse(text) else {
                    let form = if scalar == Scalar::Time { "" } else { ".000000" };
                    return Err(format!(
                        "parsing time {text:?} as \"2006-01-02T15:04:05{form}Z07:00\": cannot parse {text:?} as \"2006\""
                    ));
                };
                *value = if scalar == Scalar::Time { time::seconds(at) } else { time::micros(at) }.into();
            }
            value.is_string()
        }
    };
    if fits { Ok(()) } else { Err(mismatch(value, place, go_type(scalar))) }
}

fn go_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Bool => "bool",
        _ => "string",
    }
}

fn mismatch(value: &Value, (path, owner): (&str, &str), wanted: &str) -> String {
    let has = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    // the decoder counts no items
    let mut plain = String::new();
    let mut inside = false;
    for one in path.chars() {
        inside = (inside || one == '[') && one != ']';
        if !inside && one != ']' {
            plain.push(one);
        }
    }
    format!("json: cannot unmarshal {has} into Go struct field {owner}.{plain} of type {wanted}")
}

/// Prunes and defaults an object of a custom kind.
pub(super) fn custom(value: &mut Value, schema: &Schema, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    match (&schema.shape, value) {
        (Shape::Struct { fields, open, .. }, Value::Object(map)) => {
            let mut failure = None;
            map.retain(|name, one| {
                let Some(field) = fields.get(name.as_str()) else {
                    if !open {
                        unknown.push(format!("unknown field {:?}", join(path, name)));
                    }
                    return *open;
                };
                let Some(checks) = &field.schema.checks else {
                    // metadata
                    if let Err(error) = builtin(one, &field.schema, &join(path, name), unknown) {
                        failure.get_or_insert(error.replacen(&format!(".{}.", join(path, name)), ".", 1));
                    }
                    return true;
                };
                if one.is_null() && !checks.nullable {
                    return false;
                }
                if let Err(error) = custom(one, &field.schema, &join(path, name), unknown) {
                    failure.get_or_insert(error);
                }
                true
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
            for (name, field) in fields {
                let default = field.schema.checks.as_ref().and_then(|it| it.default.as_ref());
                if let Some(default) = default.filter(|_| !map.contains_key(&**name)) {
                    let mut default = default.clone();
                    custom(&mut default, &field.schema, "", &mut Vec::new())?;
                    map.insert(name.to_string(), default);
                }
            }
        }
        (Shape::Map(of), Value::Object(map)) => {
            let nullable = of.checks.as_ref().is_none_or(|it| it.nullable);
            map.retain(|_, one| !one.is_null() || nullable);
            for (name, one) in map {
                custom(one, of, &join(path, name), unknown)?;
            }
        }
        (Shape::List { item, .. }, Value::Array(list)) => {
            for (at, one) in list.iter_mut().enumerate() {
                custom(one, item, &format!("{path}[{at}]"), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}
