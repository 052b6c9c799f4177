//! The wire contract: the `ModelRollout` resource, the names that leave the process, and the reasons.
//!
//! Serde and schema only. Nothing here decides, reads or writes; the engine parses these types once
//! (`engine::rollout`) and never looks at the raw spec again.

pub mod decision;
pub mod names;
pub mod reasons;
mod scalars;
mod spec;
mod status;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt as _;
use serde_json::Value;

pub use scalars::{Color, Confidence, DurationText, LatencyText, Percent, WarmupText};
pub use spec::*;
pub use status::*;

/// The version served and stored.
pub const API_VERSION: &str = "modelrollout.dev/v1alpha1";

/// The `CustomResourceDefinition` as it is shipped in `crds/` and in the chart.
///
/// The status of a rollout is as large as its history, so the schema bounds every list and string.
///
/// `Option` becomes `nullable` on the way through schemars. We take that back: where a field is not nullable the API
/// server drops a `null` before it validates, so `has()` in a rule means that there is a value. The line breaks of our
/// source go too: `kubectl explain` makes its own.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ModelRollout::crd();
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        tidy(schema);
    }
    crd
}

/// [`crd`] as a YAML document.
pub fn crd_yaml() -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(&whole_numbers(serde_json::to_value(crd()).unwrap_or_default()))
}

/// Removes `nullable`, `null` as a member of an enum, and line breaks within a paragraph, from a schema and everything
/// in it.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(text) = &mut schema.description {
        let paragraphs: Vec<String> = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
}

/// Bounds are floating-point numbers in the Rust type: `1.0` becomes `1`, as the API server prints it.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => (float as i64).into(),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, field)| (key, whole_numbers(field))).collect(),
        other => other,
    }
}
