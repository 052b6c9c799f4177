//! Small text types of the API that carry their own schema: color, duration, percent.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// One of the two sides of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    /// The blue side.
    Blue,
    /// The green side.
    Green,
}

impl Color {
    /// Both colors, in a fixed order.
    pub const BOTH: [Color; 2] = [Color::Blue, Color::Green];

    /// The other side.
    #[must_use]
    pub fn other(self) -> Color {
        match self {
            Color::Blue => Color::Green,
            Color::Green => Color::Blue,
        }
    }

    /// As it is written in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Color::Blue => "blue",
            Color::Green => "green",
        }
    }
}

impl std::fmt::Display for Color {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A length of time in the format of Gateway API durations: `5m`, `48h`, `1h30m`.
///
/// The schema allows 1 second to 7 days.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 24,
            "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$",
            "x-kubernetes-validations": [{
                "rule": "duration(self) >= duration('1s') && duration(self) <= duration('168h')",
                "message": "must be a duration from 1s to 168h (7 days), such as 30s, 5m or 1h30m"
            }]
        })
    }
}

/// A share written in percent: `1%`, `0.5%`, `100%`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub String);

impl From<&str> for Percent {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for Percent {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 8,
            "pattern": "^(100|[0-9]{1,2}(\\.[0-9]{1,3})?)%$"
        })
    }
}
