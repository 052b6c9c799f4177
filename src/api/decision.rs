//! The record of decisions: one line of JSON per decision, which outlives the object. `docs/decision-log.md` is its page.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::reasons::{Cause, Reason, Step, Verdict};
use super::scalars::Color;
use super::{GateStatus, LimitEvidence};

/// The version of [`Decision`] that is written.
pub const DECISION_VERSION: u32 = 1;

/// One decision of the operator about one ModelRollout, as it is written to the log. Readers must pass over fields and
/// words that they do not know: within a version some may be added, and none is taken away or changes its meaning.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Always `Decision`: what tells these lines from other log lines.
    pub kind: DecisionKind,
    /// Version of this schema.
    #[schemars(extend("const" = DECISION_VERSION))]
    pub schema_version: u32,
    /// When it was written, in RFC 3339 with milliseconds, in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// Namespace of the ModelRollout.
    pub namespace: String,
    /// Name of the ModelRollout.
    pub name: String,
    /// Uid of the ModelRollout: one that is deleted and created anew is another one.
    pub uid: String,
    /// The generation of the spec that was decided on.
    pub generation: i64,
    /// Number of the current attempt, or of the last one. Left out, with all that follows from it, before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub attempt: Option<i64>,
    /// Whether that attempt is still under way after this decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub open: Option<bool>,
    /// Where it stands, or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Step")]
    pub step: Option<Step>,
    /// The stage, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub stage: Option<i32>,
    /// The share of traffic that `to` shall have, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub weight: Option<i32>,
    /// The color that carries production traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Color")]
    pub active_color: Option<Color>,
    /// The color that carried traffic when the attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Color")]
    pub from: Option<Color>,
    /// The color that is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Color")]
    pub to: Option<Color>,
    /// What `to` was when the attempt began: its color, the revision of its Pod template, and a hash of its Deployment,
    /// model and prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub revision: Option<String>,
    /// The model of `to` in the spec, `name@version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub model: Option<String>,
    /// The version of the prompt of `to` in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub prompt: Option<String>,
    /// What `from` was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub from_revision: Option<String>,
    /// Why the attempt goes back, or went back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cause")]
    pub cause: Option<Cause>,
    /// What was decided, in a word. That of the Event.
    pub reason: Reason,
    /// What was done, in a word: differs between two facts with the same reason. That of the Event.
    pub action: String,
    /// Whether somebody should look.
    pub warning: bool,
    /// What was decided and why, in a sentence for people. Its words may change at any time.
    pub message: String,
    /// The verdicts at that moment, if an attempt was open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<DecisionGate>,
}

/// The word that marks a decision.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DecisionKind {
    /// A decision.
    #[default]
    Decision,
}

/// What the evidence said of one gate.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGate {
    /// Name of the gate.
    pub name: String,
    /// What the evidence said.
    pub verdict: Verdict,
    /// Why, in a word.
    pub reason: String,
    /// The target's value, as text with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub value: Option<String>,
    /// The other color's value over the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub baseline: Option<String>,
    /// Requests of the target that were counted in this stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub samples: Option<i64>,
    /// How many are needed for a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub needed: Option<i64>,
    /// What was counted, and what is missing, in a sentence for people.
    pub message: String,
    /// What it was judged by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<LimitEvidence>,
    /// It is shown only: nothing is held and nothing goes back for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl From<&GateStatus> for DecisionGate {
    fn from(gate: &GateStatus) -> Self {
        Self {
            name: gate.name.clone(),
            verdict: gate.verdict,
            reason: gate.reason.clone(),
            value: gate.value.clone(),
            baseline: gate.baseline.clone(),
            samples: gate.samples,
            needed: gate.needed,
            message: gate.message.clone(),
            evidence: gate.evidence.clone(),
            dry_run: gate.dry_run,
        }
    }
}

/// The schema of [`Decision`] as it is shipped in `docs/decision.schema.json`.
pub fn decision_schema() -> Schema {
    SchemaGenerator::default().into_root_schema_for::<Decision>()
}
