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

/// A latency in the format of Gateway API durations: `250ms`, `5s`. 1 millisecond to 1 hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyText(pub String);

/// A length of time from zero to an hour: `0s`, `30s`, `5m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WarmupText(pub String);

/// How sure a verdict must be, in percent: `99%`, `99.9%`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Confidence(pub String);

/// A share written in percent, above 0 and below 100: `1%`, `0.5%`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub String);

impl From<&str> for Percent {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Gives text a schema of its own: a length, and a CEL rule whose message says in words what a `pattern` would leave to
/// the reader of a regular expression.
macro_rules! text {
    ($($(#[$meta:meta])* $vis:vis $name:ident { max: $max:literal, rule: $rule:expr, message: $message:literal })+) => {$(
        $(#[$meta])*
        $vis struct $name;

        text!(@schema $name, $max, $rule, $message);
    )+};
    (@schema $name:ident, $max:literal, $rule:expr, $message:literal) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "maxLength": $max,
                    "x-kubernetes-validations": [{ "rule": $rule, "message": $message }]
                })
            }
        }
    };
}

text!(@schema DurationText, 24,
    "self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('168h')",
    "must be a duration from 1s to 168h (7 days), such as 30s, 5m or 1h30m");

text!(@schema LatencyText, 24,
    "self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) >= duration('1ms') && duration(self) <= duration('1h')",
    "must be a duration from 1ms to 1h, such as 250ms or 5s");

text!(@schema WarmupText, 24,
    "self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) <= duration('1h')",
    "must be a duration from 0s to 1h, such as 30s");

text!(@schema Confidence, 8,
    "self.matches('^9[0-9](\\\\.[0-9]{1,4})?%$')",
    "must be a percentage from 90% to 99.9999%, such as 99.9%");

text!(@schema Percent, 8,
    "self.matches('^[0-9]{1,2}(\\\\.[0-9]{1,3})?%$') && !self.matches('^0{1,2}(\\\\.0{1,3})?%$')",
    "must be a percentage above 0% and below 100%, such as 1% or 0.5%");

text! {
    /// Schema of the name of a Deployment, ConfigMap or Ingress.
    pub(super) ObjectName {
        max: 253,
        rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        message: "must be the name of an object in the same namespace: lower case letters, digits, '-' and '.', with a letter or digit at both ends"
    }

    /// Schema of the name of a Service.
    pub(super) ServiceName {
        max: 63,
        rule: "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message: "must be the name of a Service in the same namespace: lower case letters, digits and '-', with a letter at the start and a letter or digit at the end"
    }

    /// Schema of the name of a gate or of a source.
    pub(super) Label {
        max: 63,
        rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        message: "must be of lower case letters, digits and '-', with a letter or digit at both ends"
    }

    /// Schema of the name of a model.
    pub(super) ModelName {
        max: 128,
        rule: "self.matches('^[A-Za-z0-9][A-Za-z0-9._:/-]*$')",
        message: "must be of letters, digits and . _ : / - and begin with a letter or digit"
    }

    /// Schema of the version of a model or prompt.
    pub(super) Version {
        max: 64,
        rule: "self.matches('^[A-Za-z0-9][A-Za-z0-9._:+-]*$')",
        message: "must be of letters, digits and . _ : + - and begin with a letter or digit"
    }

    /// Schema of the name of a request header.
    pub(super) HeaderName {
        max: 64,
        rule: "self.matches('^[A-Za-z][A-Za-z0-9-]*$') && !(self.lowerAscii() in ['authorization', 'proxy-authorization', 'cookie', 'host'])",
        message: "must be the name of a request header that carries no secret: letters, digits and '-', with a letter at the start, and not Authorization, Proxy-Authorization, Cookie or Host"
    }

    /// Schema of the value of a request header that names a user.
    pub(super) HeaderValue {
        max: 63,
        rule: "self.matches('^[A-Za-z0-9._~:-]+$')",
        message: "must be of letters, digits and . _ ~ : -"
    }

    /// Schema of a PromQL selector with placeholders.
    pub(super) SelectorText {
        max: 1024,
        rule: "self.size() > 0 && !self.contains('{{window}}') && self.matches('^([^{]|\\\\{[^{]|\\\\{\\\\{(namespace|service|deployment)\\\\}\\\\})*$')",
        message: "must be a PromQL selector whose placeholders are {{namespace}}, {{service}} and {{deployment}}, without blanks in them"
    }

    /// Schema of a PromQL query with placeholders.
    pub(super) QueryText {
        max: 2048,
        rule: "self.size() > 0 && self.matches('^([^{]|\\\\{[^{]|\\\\{\\\\{(namespace|service|deployment|window)\\\\}\\\\})*$')",
        message: "must be a PromQL query whose placeholders are {{namespace}}, {{service}}, {{deployment}} and {{window}}, without blanks in them"
    }

    /// Schema of a quantile.
    pub(super) Quantile {
        max: 8,
        rule: "self.matches('^0\\\\.[0-9]{1,6}$') && double(self) > 0.0",
        message: "must be above 0 and below 1 and be written in quotes, such as \"0.99\""
    }
}
