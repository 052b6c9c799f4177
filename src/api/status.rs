//! What the user sees: `ModelRollout.status`.
//!
//! `attempt` is the engine's memory: only what cannot be observed again. Everything else is for people and is derived.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reasons::{Cause, JobOutcome, LimitKind, Outcome, Phase, Role, Span, Step, Test, Verdict};
use super::scalars::Color;

/// What the operator saw, did and waits for.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelRolloutStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people. Derived; the operator never reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Phase")]
    pub phase: Option<Phase>,
    /// The short texts behind the columns of `kubectl get`.
    #[serde(default)]
    pub summary: Summary,
    /// The color that carries production traffic. Read once from the Ingress, and from then on kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Color")]
    pub active_color: Option<Color>,
    /// The other color.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Color")]
    pub idle_color: Option<Color>,
    /// The last promotion that stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_promoted: Option<Promoted>,
    /// Deployment and template revision of the color that serves; a change outside of a rollout is told by an Event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub active_template: Option<String>,
    /// The two colors, while an attempt is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["color".into()]))]
    pub colors: Vec<ColorStatus>,
    /// The current attempt, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// A revision that was rolled back. It is not tried again until the target's revision changes, the target is set
    /// back and again, or the act `modelrollout.dev/retry` asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub failed_revision: Option<String>,
    /// The last verdict of each gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<GateStatus>,
    /// When the numbers of `gates` and `colors` were last written; they are refreshed at most every 10 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed_at: Option<Time>,
    /// Fields of ours that somebody else changed, and when they were written back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["ingress".into()]))]
    pub drift: Vec<Drift>,
    /// The last acts (annotations) that were seen, with their effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub acts: Vec<ActRecord>,
    /// The last attempts that ended, newest first: at most ten, and at most 16 KiB as JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<HistoryEntry>,
    /// `Ready`, `Preflight`, `Progressing`, `GatesPassing`, `ModelBound`, `PromptBound`, `TrafficVerified`,
    /// `RollbackReady`, `RolledBack`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The short texts behind the columns of `kubectl get`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// `3/5`: the stage that runs, of how many.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// Share of traffic that the target has, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// `1/2 passing: p99 …`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gates: String,
    /// The model that serves, `name@version`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The version of the prompt that serves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The target's model.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_model: String,
    /// The version of the target's prompt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_prompt: String,
    /// What it waits for, in one sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Somebody else's changes of an Ingress that were written back.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// Name of the Ingress.
    #[schemars(length(max = 253))]
    pub ingress: String,
    /// Field manager that changed it, as far as the API server tells.
    #[schemars(length(max = 128))]
    pub manager: String,
    /// When it was written back, newest first.
    #[schemars(length(max = 3))]
    pub times: Vec<Time>,
}

/// A promotion.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promoted {
    /// The color that was promoted.
    pub color: Color,
    /// Its revision.
    #[schemars(length(max = 512))]
    pub revision: String,
    /// When its backend was switched to.
    pub time: Time,
}

/// One color, as it stands.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColorStatus {
    /// Which color.
    pub color: Color,
    /// What part it plays.
    pub role: Role,
    /// Pods that are Ready and not terminating.
    pub ready: i32,
    /// Replicas that its Deployment wants.
    pub desired: i32,
    /// Its share of traffic, in percent.
    pub weight: i32,
    /// Its model, `name@version`.
    pub model: String,
    /// The version of its prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Hash of its prompt's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_hash: Option<String>,
}

/// The engine's memory of one attempt to move traffic from one color to the other.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Rises by one with every attempt of this object.
    pub id: i64,
    /// Whether it is still under way.
    pub open: bool,
    /// The color that carried traffic when it began.
    pub from: Color,
    /// The color that shall carry it.
    pub to: Color,
    /// What `to` was when it began: Deployment, template revision, model, prompt and content hash.
    #[schemars(length(max = 512))]
    pub revision: String,
    /// What `from` was when it began: going back is going back to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub from_revision: Option<String>,
    /// Hash of what `from` was, by content: it stays what it was when a change is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub from_content: Option<String>,
    /// Uid of `to`'s Deployment when it began: only that one is ever scaled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub deployment_uid: Option<String>,
    /// The named Ingresses when it began, as `name/uid`: one that is deleted and created anew is another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 300)))]
    pub ingresses: Vec<String>,
    /// Set if an earlier color is started again to take all traffic back, and by what: no stages, and gates are shown but
    /// do not act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cause")]
    pub restore: Option<Cause>,
    /// Where it stands.
    pub step: Step,
    /// Index of the stage that runs, from 0.
    pub stage_index: i32,
    /// The share that `to` shall have now, in percent.
    pub weight_intended: i32,
    /// When it began.
    pub started_at: Time,
    /// When the stage's clock started: the write of the weight and the time that the ingress controller needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_started_at: Option<Time>,
    /// The stage (from 1) that was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_stage: Option<i32>,
    /// The stage (from 1) whose missing samples a person has passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived_stage: Option<i32>,
    /// Whether a person asked for the switch without the remaining stages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promote_requested: bool,
    /// The share that a person set by `spec.manualWeight` while paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_weight: Option<i32>,
    /// Hash of the gates that the evidence is judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates_hash: Option<String>,
    /// What was counted in this stage so far; counting goes on from here after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub evidence: Vec<Evidence>,
    /// The other color's counts of the last stage in which both had traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub baseline: Vec<Evidence>,
    /// Gates that were seen over their limit, and not seen otherwise since: a second time fails them. Forgotten after five
    /// minutes without data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["gate".into()]))]
    pub breaches: Vec<Breach>,
    /// Gates with a `maxHold` that have had no verdict since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["gate".into()]))]
    pub waiting: Vec<WaitingSince>,
    /// The Jobs of this stage's `job` gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["gate".into()]))]
    pub jobs: Vec<JobRecord>,
    /// Replicas of `to` before it was prepared; it returns to them after a rollback.
    pub replicas_before: i32,
    /// Replicas of `from` when the attempt began; what a share of traffic needs is counted from them.
    pub active_replicas: i32,
    /// Since when `to` has had too few ready Pods for its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_since: Option<Time>,
    /// When the backend had been switched and the buffer began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_started_at: Option<Time>,
    /// When the old color stops being kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_ends_at: Option<Time>,
    /// Why it goes back, or went back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cause")]
    pub cause: Option<Cause>,
    /// That cause in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub cause_message: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// After a rollback: until when `to` keeps its Pods, so that running streams can end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<Time>,
}

/// A gate that was over its limit once.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Breach {
    /// Name of the gate.
    pub gate: String,
    /// When it was first seen over the limit.
    pub at: Time,
    /// Requests of the target that were counted then; 0 for a `value` gate.
    pub samples: i64,
}

/// A gate without a verdict.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingSince {
    /// Name of the gate.
    pub gate: String,
    /// Since when.
    pub since: Time,
}

/// A Job that judges a stage.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRecord {
    /// Name of the gate.
    pub gate: String,
    /// Name of the Job.
    #[schemars(length(max = 63))]
    pub name: String,
    /// How it ended; it need not be there any more then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JobOutcome")]
    pub outcome: Option<JobOutcome>,
}

/// What was counted of one gate and one color between the start of the stage and `through`.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Name of the gate.
    pub gate: String,
    /// Whose requests.
    pub color: Color,
    /// Samples up to and including this instant are in the counts.
    pub through: Time,
    /// All requests.
    pub total: i64,
    /// Bad requests, of an `errorRate` gate.
    #[serde(default)]
    pub bad: i64,
    /// Those of `total` that came in the warm-up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup_total: i64,
    /// Those of `bad` that came in the warm-up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup_bad: i64,
    /// Upper bounds of the histogram's buckets in seconds, rising, without `+Inf`, of a `latency` gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bounds: Vec<f64>,
    /// Requests that took at most the bound of the same place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub counts: Vec<i64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands it over so
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// What was counted for one limit of a gate: with the samples needed, enough to judge it again.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitEvidence {
    /// Which limit.
    pub limit: LimitKind,
    /// Which test said so.
    pub test: Test,
    /// Of which span of time.
    pub span: Span,
    /// The limit as a number: the share of requests that may be bad, or by which it may be above the other color's (0 to
    /// 1); of a `value` gate the smallest or largest value.
    pub threshold: f64,
    /// Requests of the target; of a `value` gate, readings in a row.
    pub samples: i64,
    /// Those of them that were bad: failed, or took longer than `longerThan`; of a `value` gate, that were over the limit.
    pub bad: i64,
    /// Of a `latency` gate: the bucket bound in seconds that parts slow requests from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_than: Option<f64>,
    /// Requests of the other color, if they were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_samples: Option<i64>,
    /// Those of them that were bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_bad: Option<i64>,
    /// Of a `value` gate: the last reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// How sure the test had to be, from 0 to 1 (`Early` and `NoSlower` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
}

/// The last verdict of one gate.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// Name of the gate.
    pub name: String,
    /// What the evidence says.
    pub verdict: Verdict,
    /// A word for why.
    pub reason: String,
    /// The target's value, as text with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The other color's value over the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Requests of the target that were counted since the end of the warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<i64>,
    /// How many are needed for a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<i64>,
    /// When there will be so many, at the rate so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Time>,
    /// One sentence: what was counted, and what is missing.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// What it was judged by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub evidence: Vec<LimitEvidence>,
    /// It is shown only: nothing is held and nothing goes back for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// An act (an annotation) that was seen once.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActRecord {
    /// `approve`, `promote`, `rollback` or `retry`, or the name of one that is not known.
    #[schemars(length(max = 64))]
    pub act: String,
    /// Number of the attempt that it was seen in.
    #[serde(default)]
    pub attempt: i64,
    /// The value of the annotation.
    #[schemars(length(max = 256))]
    pub value: String,
    /// What it did, or why it did nothing.
    #[schemars(length(max = 512))]
    pub effect: String,
    /// When it was seen.
    pub time: Time,
}

/// An attempt that ended.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Number of the attempt.
    pub attempt: i64,
    /// From which color.
    pub from: Color,
    /// To which color.
    pub to: Color,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it went back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cause")]
    pub cause: Option<Cause>,
    /// That cause in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// What was tried.
    #[schemars(length(max = 512))]
    pub revision: String,
    /// What it was compared with, and would go back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub from_revision: Option<String>,
    /// Its model, `name@version`.
    pub model: String,
    /// The version of its prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Hash of its prompt's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_hash: Option<String>,
    /// Images of its containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 256)))]
    pub images: Vec<String>,
    /// The largest share of traffic that it had, in percent.
    pub weight: i32,
    /// When it began.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// The last verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub gates: Vec<GateRecord>,
    /// The acts that ran in it, with their effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(max = 256)))]
    pub acts: Vec<String>,
}

/// The last verdict of a gate in an attempt that ended.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateRecord {
    /// Name of the gate.
    pub name: String,
    /// What the evidence said.
    pub verdict: Verdict,
    /// A word for why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub reason: String,
    /// The limit that it was judged by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub limit: String,
    /// The sentence that went with it.
    #[schemars(length(max = 256))]
    pub message: String,
    /// Requests that were needed for a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<i64>,
    /// What it was judged by. With `needed` the verdict can be reckoned again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub evidence: Vec<LimitEvidence>,
    /// It was shown only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl Attempt {
    /// The share of traffic that `to` has now, in percent.
    pub fn share(&self) -> i32 {
        self.manual_weight.unwrap_or(self.weight_intended)
    }
}
