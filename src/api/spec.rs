//! What the user writes: `ModelRollout.spec`. The doc comments are what `kubectl explain` prints.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalars::{
    Color, Confidence, DurationText, HeaderName, HeaderValue, Label, LatencyText, ModelName, ObjectName, Percent,
    Quantile, QueryText, SelectorText, ServiceName, Version, WarmupText,
};
use super::status::ModelRolloutStatus;

/// What shall be rolled out, how fast, and what is judged on the way.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "modelrollout.dev",
    version = "v1alpha1",
    kind = "ModelRollout",
    plural = "modelrollouts",
    shortname = "mr",
    category = "all",
    namespaced,
    status = "ModelRolloutStatus",
    derive = "PartialEq",
    doc = "Moves production traffic from one color (a Deployment, its Service, its model and its prompt) to the other in judged stages, keeps the old color warm through a rollback buffer, and goes back at once when the evidence is bad.",
    printcolumn(name = "Active", type_ = "string", json_path = ".status.activeColor"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.summary.stage"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".status.summary.weight"),
    printcolumn(name = "Gates", type_ = "string", json_path = ".status.summary.gates"),
    printcolumn(name = "Model", type_ = "string", json_path = ".status.summary.model"),
    printcolumn(name = "Prompt", type_ = "string", json_path = ".status.summary.prompt"),
    printcolumn(name = "Target-Model", type_ = "string", json_path = ".status.summary.targetModel", priority = 1),
    printcolumn(name = "Target-Prompt", type_ = "string", json_path = ".status.summary.targetPrompt", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.summary.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.attempt) || !oldSelf.status.attempt.open || (self.spec.blue.deploymentName == oldSelf.spec.blue.deploymentName && self.spec.green.deploymentName == oldSelf.spec.green.deploymentName)")
        .message("spec.blue.deploymentName and spec.green.deploymentName cannot change while an attempt is open: set spec.target back, or wait until it has ended").field_path(".spec"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.attempt) || !oldSelf.status.attempt.open || (self.spec.blue.serviceName == oldSelf.spec.blue.serviceName && self.spec.green.serviceName == oldSelf.spec.green.serviceName)")
        .message("spec.blue.serviceName and spec.green.serviceName cannot change while an attempt is open: set spec.target back, or wait until it has ended").field_path(".spec"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.attempt) || !oldSelf.status.attempt.open || self.spec.traffic.ingress.names == oldSelf.spec.traffic.ingress.names")
        .message("spec.traffic.ingress.names cannot change while an attempt is open: set spec.target back, or wait until it has ended").field_path(".spec"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.attempt) || !oldSelf.status.attempt.open || self.spec.traffic.ingress.controller == oldSelf.spec.traffic.ingress.controller")
        .message("spec.traffic.ingress.controller cannot change while an attempt is open: set spec.target back, or wait until it has ended").field_path(".spec"),
    validation = Rule::new("!self.spec.traffic.ingress.names.exists(n, n == self.metadata.name + '-canary' || n == self.metadata.name + '-anchor')")
        .message("spec.traffic.ingress.names must not name <name>-canary or <name>-anchor: Ingresses of ours have these names").field_path(".spec"),
    validation = Rule::new("self.metadata.name.size() <= 200")
        .message("metadata.name must be at most 200 characters: objects of ours are named after it")
)]
#[x_kube(
    validation = Rule::new("self.blue.deploymentName != self.green.deploymentName")
        .message("spec.blue.deploymentName and spec.green.deploymentName must differ: each color needs a Deployment of its own"),
    validation = Rule::new("self.blue.serviceName != self.green.serviceName")
        .message("spec.blue.serviceName and spec.green.serviceName must differ: each color needs a Service of its own"),
    validation = Rule::new("self.stages.all(s, !has(s.gates) || s.gates.all(g, has(self.gates) && self.gates.exists(x, x.name == g)))")
        .message("spec.stages[].gates may only name gates that are in spec.gates"),
    validation = Rule::new("self.stages.all(s, !has(s.users) || self.stages.all(t, !has(t.users) || t.users.header == s.users.header))")
        .message("every spec.stages[].users must name the same header: a canary is matched by one header"),
    validation = Rule::new("self.stages.map(s, has(s.users) ? s.users.values.size() : 0).sum() <= 50")
        .message("spec.stages[].users may name at most 50 values in all stages together"),
    validation = Rule::new("!has(self.manualWeight) || self.paused")
        .message("spec.manualWeight is only for a paused rollout: set spec.paused to true, or remove it"),
    validation = Rule::new("self.traffic.ingress.controller != 'none' || (self.stages.size() == 1 && !has(self.manualWeight) && self.stages.all(s, !has(s.users)))")
        .message("with spec.traffic.ingress.controller none there are no shares of traffic: spec.stages is one stage of weight 100 without users, and there is no spec.manualWeight"),
    validation = Rule::new("self.traffic.ingress.controller != 'none' || !has(self.gates) || self.gates.all(g, (!has(g.errorRate) || !has(g.errorRate.maxIncrease)) && (!has(g.latency) || !has(g.latency.maxRatio)))")
        .message("with spec.traffic.ingress.controller none the two colors never have traffic at the same time, so there is nothing to compare with: give gates max instead of maxIncrease and maxRatio")
)]
#[serde(rename_all = "camelCase")]
pub struct ModelRolloutSpec {
    /// The blue side: a Deployment, the Service that selects its Pods, and the model and prompt that they serve.
    pub blue: ColorSpec,
    /// The green side, of the same shape.
    pub green: ColorSpec,
    /// The color that shall carry production traffic. Changing it starts a rollout; changing it back while the old
    /// color is still up sends traffic back in one write.
    pub target: Color,
    /// How traffic reaches the two Services.
    pub traffic: TrafficSpec,
    /// The schedule: each stage gives the target a larger share of traffic, holds it for a while and judges the gates.
    /// Weights rise strictly and the last one is 100. The first may be 0 if it names users.
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(
        validation = Rule::new("self.all(s, self.filter(t, t.weight == s.weight).size() == 1) && self.map(s, s.weight).isSorted()")
            .message("the weights of spec.stages must rise strictly, such as 5, 25, 50, 100"),
        validation = Rule::new("self.size() == 0 || self[self.size() - 1].weight == 100")
            .message("the last stage of spec.stages must have weight 100")
    )]
    pub stages: Vec<StageSpec>,
    /// What is judged at every stage and in the rollback buffer. Without gates a rollout moves by time and readiness
    /// alone, and says so (`GatesPassing=Unknown/NoGates`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<GateSpec>,
    /// What happens before the target gets traffic.
    #[serde(default)]
    pub prepare: PrepareSpec,
    /// What happens to the old color after the switch.
    #[serde(default)]
    pub rollback: RollbackSpec,
    /// Stops raises, the switch and scaling down. It never stops judging, going back, and putting back what somebody else
    /// changed.
    #[serde(default)]
    pub paused: bool,
    /// The target's share of traffic while the rollout is paused in a stage, in percent, instead of the stage's. When it
    /// is resumed the stage's share is written again, and its hold and its evidence begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub manual_weight: Option<i32>,
}

/// One side of a rollout. Every name is of an object in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColorSpec {
    /// Name of the Deployment whose Pods serve this color.
    #[schemars(with = "ObjectName")]
    pub deployment_name: String,
    /// Name of the Service that selects this color's Pods and nothing else.
    #[schemars(with = "ServiceName")]
    pub service_name: String,
    /// The model that this color serves.
    pub model: ModelSpec,
    /// The prompt template that this color's Pods read. Model and prompt always move, and go back, together. It may be
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_template: Option<PromptTemplateSpec>,
}

/// A model, by name and version. Pods that carry the annotation `modelrollout.dev/model: <name>@<version>` on their
/// template are checked against it, and nothing moves while the two disagree.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Name of the model, such as `llama-3.1-8b-instruct`.
    #[schemars(with = "ModelName")]
    pub name: String,
    /// Version of the model, such as a date or a tag.
    #[schemars(with = "Version")]
    pub version: String,
}

/// A prompt template: a ConfigMap that the Deployment's Pod template refers to, by a volume, a projected volume, `env`
/// or `envFrom` of any container.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptTemplateSpec {
    /// Name of the ConfigMap. Use a new ConfigMap, best with `immutable: true`, for each version.
    #[schemars(with = "ObjectName")]
    pub config_map_name: String,
    /// Version of the prompt, for people: it is shown in the columns and in the history.
    #[schemars(with = "Version")]
    pub version: String,
    /// `PodTemplate`: the Deployment's Pod template must refer to the ConfigMap. `Declared`: somebody else reads it (a
    /// gateway, another Deployment); only that it exists, and its content, are looked at.
    #[serde(default)]
    pub binding: PromptBinding,
}

/// How a prompt is tied to the Pods of its color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PromptBinding {
    /// The Pod template refers to the ConfigMap.
    #[default]
    PodTemplate,
    /// The ConfigMap exists; who reads it is not checked.
    Declared,
}

/// How traffic reaches the two Services.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficSpec {
    /// The Ingresses whose backend is one of the two Services.
    pub ingress: IngressSpec,
}

/// The Ingresses that carry production traffic.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    /// Names of every Ingress whose backend is one of the two Services, all of one class. Their backends are switched
    /// between the two Services; the shares of the stages are kept on one Ingress of our own,
    /// `<name of the ModelRollout>-canary`. Paths that name other Services are left alone.
    #[schemars(with = "Vec<ObjectName>", length(min = 1, max = 8))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub names: Vec<String>,
    /// The annotation dialect that the ingress controller speaks. `nginx` is that of ingress-nginx, which the nginx
    /// provider of Traefik (3.7 and later) speaks too. `none` is for any other: the backend is switched in one step, and
    /// `stages` is one stage of weight 100.
    #[serde(default)]
    pub controller: ControllerDialect,
}

/// How a share of traffic is told to the ingress controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ControllerDialect {
    /// `nginx.ingress.kubernetes.io/canary` and `canary-weight` on a second Ingress.
    #[default]
    Nginx,
    /// No shares: only the backend is switched.
    None,
}

/// One step of the schedule.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("self.weight > 0 || has(self.users)")
        .message("a stage of weight 0 tries nothing unless it names users: give it users, or a weight from 1 to 100")
)]
#[serde(rename_all = "camelCase")]
pub struct StageSpec {
    /// Share of production traffic that the target gets in this stage, in percent. 0 is only for named users.
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// How long the stage lasts at least. It goes on longer while a gate has too few samples, while the target has too
    /// few ready Pods, and while an approval is missing.
    pub hold: DurationText,
    /// `Required`: after the hold, wait until somebody approves the stage by the annotation
    /// `modelrollout.dev/approve=<attempt>/<stage>`. A failed gate cannot be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Approval")]
    pub approval: Option<Approval>,
    /// Names of the gates that are judged in this stage; left out: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub gates: Option<Vec<String>>,
    /// Named users who get the target from this stage on, whatever the weight. Nobody else is touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<UsersSpec>,
}

/// Users by the value of a request header.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsersSpec {
    /// Name of the header, such as `x-user-id`. The same in every stage.
    #[schemars(with = "HeaderName")]
    pub header: String,
    /// Its values, each compared whole. At most 50 in all stages together.
    #[schemars(with = "Vec<HeaderValue>", length(min = 1, max = 50))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub values: Vec<String>,
}

/// Whether a person must agree before the next stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// Somebody has to approve.
    Required,
}

/// One thing that is judged. Exactly one of `errorRate`, `latency`, `value` and `job` is given. In selectors and queries
/// `{{namespace}}`, `{{service}}` and `{{deployment}}`, inside of a quoted label value, stand for the color's own; in the
/// query of a `value` gate `{{window}}` stands for the time that is judged, such as `240s`.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("(has(self.errorRate) ? 1 : 0) + (has(self.latency) ? 1 : 0) + (has(self.value) ? 1 : 0) + (has(self.job) ? 1 : 0) == 1")
        .message("a gate of spec.gates has exactly one of errorRate, latency, value and job"),
    validation = Rule::new("has(self.errorRate) || has(self.latency) || (!has(self.minSamples) && !has(self.confidence))")
        .message("minSamples and confidence are for gates that count requests: errorRate and latency")
)]
#[serde(rename_all = "camelCase")]
pub struct GateSpec {
    /// Name of the gate, unique in this rollout.
    #[schemars(with = "Label")]
    pub name: String,
    /// Name of the Prometheus to ask, of those that the operator was started with. A `job` gate asks none.
    #[serde(default = "default_source")]
    #[schemars(with = "Label")]
    pub source: String,
    /// Bad requests of all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rate: Option<ErrorRateGate>,
    /// A quantile of a latency histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyGate>,
    /// Any query that gives one number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueGate>,
    /// A Job of your own that looks at the target once per stage and says yes or no by its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobGate>,
    /// How many requests of the target must have been counted in the stage before the gate may pass, or fail by its share
    /// alone. What is plainly bad fails earlier. The default is so many that 15 of them would be bad just at the limit, of
    /// two limits at the tighter one: 300 at 5 % or p95, 500 at 5 % and 3 points more, 1500 at 1 % or p99. Less than a third of that is obeyed, and told as `GateUnderpowered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub min_samples: Option<i64>,
    /// How sure each test for a plain failure must be; `99.9%` if left out. By the whole stage at most one of a thousand
    /// targets that are just at their limit goes back early; the looks at the last minute and the last five minutes add to
    /// that, in long stages noticeably.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// The beginning of each stage that does not count: caches fill, models load. Left out: 60 seconds, but at most a
    /// fifth of the stage's hold. Errors that are plain send traffic back in it all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<WarmupText>,
    /// How long a stage may be without a verdict of this gate, counted from the end of the hold or from when the verdict went
    /// missing, whichever is later; then traffic goes back, also while an approval is awaited. Not while paused, and not in
    /// the buffer. Left out: it waits until there is one, or until a person passes the stage or goes back. It never promotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<DurationText>,
    /// Judged and shown, but nothing is held and nothing goes back for it: to try a gate out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The source that a gate asks when it names none.
pub const DEFAULT_SOURCE: &str = "default";

fn default_source() -> String {
    DEFAULT_SOURCE.to_owned()
}

/// A limit on bad requests of all requests, both counted from counters.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.max) || has(self.maxIncrease)")
        .message("errorRate needs a limit: max, maxIncrease or both")
)]
#[serde(rename_all = "camelCase")]
pub struct ErrorRateGate {
    /// Selector of the counters of bad requests, such as `http_requests_total{service="{{service}}",code=~"5.."}`. A
    /// plain selector, no expression: its samples are counted one by one, exactly.
    #[schemars(with = "SelectorText")]
    pub bad: String,
    /// Selector of the counters of all requests.
    #[schemars(with = "SelectorText")]
    pub total: String,
    /// The largest share of bad requests that is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Percent>,
    /// How many points above the other color's share, over the same time, is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_increase: Option<Percent>,
}

/// A limit on a quantile of a latency histogram.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.max) || has(self.maxRatio)")
        .message("latency needs a limit: max, maxRatio or both")
)]
#[serde(rename_all = "camelCase")]
pub struct LatencyGate {
    /// Selector of the buckets of a classic histogram in seconds, such as
    /// `http_request_duration_seconds_bucket{service="{{service}}"}`, or of a native histogram, which has no `_bucket`.
    #[schemars(with = "SelectorText")]
    pub histogram: String,
    /// The quantile that is judged, such as `"0.99"`.
    #[schemars(with = "Quantile")]
    pub quantile: String,
    /// The longest that is fine. Best one of the histogram's bucket bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<LatencyText>,
    /// How many times the other color's quantile, over the same time, is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_ratio: Option<f64>,
}

/// A limit on the one number that a query gives.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.min) || has(self.max)").message("value needs a limit: min, max or both"),
    validation = Rule::new("!has(self.min) || !has(self.max) || self.min <= self.max")
        .message("value.min must not be above value.max")
)]
#[serde(rename_all = "camelCase")]
pub struct ValueGate {
    /// A PromQL query that gives one number: a scalar, or a vector of one series. It fails when two readings in a row, at
    /// least ten seconds apart, are over the limit.
    #[schemars(with = "QueryText")]
    pub query: String,
    /// The smallest that is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The largest that is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// A Job that judges. It is made once per stage, when the warm-up is over, from a `PodTemplate` object of the same
/// namespace, with the environment variables `ROLLOUT`, `COLOR`, `SERVICE`, `STAGE`, `PROMPT_VERSION` and `MODEL` in every
/// container. It says yes (exit code 0) or no (any other) by its exit code; 137 and 143 mean killed, and it is tried again
/// up to three times. It is held when it is not done in time, or killed each time.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobGate {
    /// Name of the PodTemplate.
    #[schemars(with = "ObjectName")]
    pub pod_template_name: String,
    /// How long the Job may take; then it is ended, and the gate has no verdict.
    #[serde(default = "default_deadline")]
    pub deadline: DurationText,
}

fn default_deadline() -> DurationText {
    "10m".into()
}

/// What happens before the target gets traffic.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrepareSpec {
    /// `MatchActive` scales the target up to the active color's replicas before it gets traffic; `Leave` never scales
    /// it. A color that serves is never scaled down.
    pub replicas: PrepareReplicas,
    /// How long the target may take to be ready. After that the attempt ends; no traffic has moved.
    pub progress_deadline: DurationText,
}

impl Default for PrepareSpec {
    fn default() -> Self {
        Self { replicas: PrepareReplicas::MatchActive, progress_deadline: "30m".into() }
    }
}

/// Who sets the replicas of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PrepareReplicas {
    /// The operator scales the target up to the active color's replicas.
    MatchActive,
    /// The operator scales nothing up.
    Leave,
}

/// What happens to the old color after the switch.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollbackSpec {
    /// How long the old color stays up, untouched, after the switch. Within it, going back is one write.
    pub buffer: DurationText,
    /// What becomes of the old color then: `ScaleToZero`, or `Leave` it up.
    pub after_buffer: AfterBuffer,
}

impl Default for RollbackSpec {
    fn default() -> Self {
        Self { buffer: "10m".into(), after_buffer: AfterBuffer::ScaleToZero }
    }
}

/// What becomes of the old color when the buffer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AfterBuffer {
    /// Its Deployment is scaled to zero.
    ScaleToZero,
    /// It is left as it is.
    Leave,
}
