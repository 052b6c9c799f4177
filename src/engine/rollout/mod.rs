//! The one bridge from the wire to the engine: a `ModelRollout` is parsed once into typed settings. After this nobody
//! looks at the raw spec again.

mod gates;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::observed::ByColor;
use super::time;
use crate::api::{self, Color, ColorSpec, ModelRollout, StageSpec};

pub use crate::api::names::hex;
pub use gates::{Gate, Rule, slow_share};

/// A rollout whose settings have been read.
#[allow(clippy::struct_excessive_bools)] // settings of the user, independent of each other
#[derive(Clone, Debug)]
pub struct Rollout {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether our finalizer is set.
    pub has_finalizer: bool,
    /// All annotations: acts are among them.
    pub annotations: BTreeMap<String, String>,
    /// The two sides.
    pub sides: ByColor<Side>,
    /// The color that shall carry traffic.
    pub target: Color,
    /// Names of the Ingresses, in order.
    pub ingresses: Vec<String>,
    /// How shares of traffic are made.
    pub dialect: Dialect,
    /// At least one; weights rise strictly to 100.
    pub stages: Vec<Stage>,
    /// What is judged.
    pub gates: Vec<Gate>,
    /// Whether the target is scaled up to the active color's replicas.
    pub match_active: bool,
    /// How long the target may take to be ready.
    pub progress_deadline: Duration,
    /// How long the old color is kept after the switch.
    pub buffer: Duration,
    /// Whether the old color is then scaled to zero.
    pub scale_to_zero: bool,
    /// Whether nothing is raised, switched or scaled down.
    pub paused: bool,
    /// The target's share while paused, instead of the stage's.
    pub manual_weight: Option<i32>,
}

/// How shares of traffic are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// By a canary Ingress.
    Nginx,
    /// Not at all: the backend is switched.
    Plain,
}

/// One side.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name of its Deployment.
    pub deployment: String,
    /// Name of its Service.
    pub service: String,
    /// `name@version`.
    pub model: String,
    /// Its prompt, if it has one.
    pub prompt: Option<Prompt>,
}

/// A prompt.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Name of its ConfigMap.
    pub config_map: String,
    /// Its version, for people.
    pub version: String,
    /// Whether the Pod template must refer to it.
    pub in_template: bool,
}

/// One stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The target's share, 0 to 100.
    pub weight: i32,
    /// How long at least.
    pub hold: Duration,
    /// Whether a person must agree.
    pub approval: bool,
    /// Names of the gates that are judged; none: all.
    pub gates: Option<Vec<String>>,
    /// Users who get the target from this stage on.
    pub users: Option<Users>,
}

/// Users by the value of a request header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// Name of the header.
    pub header: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Why a spec cannot be read: a field, and what it must be. The schema refuses all of these at apply time; an object
/// stored before a rule existed is the only way to get here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct SpecError {
    /// Path of the field.
    pub field: String,
    /// What it must be.
    pub rule: &'static str,
}

fn error(field: impl Into<String>, rule: &'static str) -> SpecError {
    SpecError { field: field.into(), rule }
}

impl Rollout {
    /// Reads `object`.
    pub fn parse(object: &ModelRollout) -> Result<Self, SpecError> {
        let spec = &object.spec;
        let meta = &object.metadata;
        let stages =
            spec.stages.iter().enumerate().map(|(i, stage)| parse_stage(i, stage)).collect::<Result<Vec<_>, _>>()?;
        if stages.last().is_none_or(|last| last.weight != 100) {
            return Err(error("spec.stages", "must end with weight 100"));
        }
        if stages.iter().zip(stages.iter().skip(1)).any(|(a, b)| a.weight >= b.weight) {
            return Err(error("spec.stages", "must have strictly rising weights"));
        }
        if spec.traffic.ingress.controller == api::ControllerDialect::None && stages.len() != 1 {
            return Err(error("spec.stages", "must be one stage of weight 100, since the controller is none"));
        }
        if spec.blue.deployment_name == spec.green.deployment_name || spec.blue.service_name == spec.green.service_name
        {
            return Err(error("spec.green", "must name another Deployment and another Service than spec.blue"));
        }
        Ok(Self {
            name: meta.name.clone().unwrap_or_default(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            has_finalizer: has_finalizer(object),
            annotations: meta.annotations.clone().unwrap_or_default(),
            sides: ByColor { blue: side(&spec.blue), green: side(&spec.green) },
            target: spec.target,
            ingresses: ingresses(&spec.traffic.ingress.names)?,
            dialect: match spec.traffic.ingress.controller {
                api::ControllerDialect::Nginx => Dialect::Nginx,
                api::ControllerDialect::None => Dialect::Plain,
            },
            stages,
            gates: spec.gates.iter().map(gates::parse).collect::<Result<_, _>>()?,
            match_active: spec.prepare.replicas == api::PrepareReplicas::MatchActive,
            progress_deadline: duration(&spec.prepare.progress_deadline, "spec.prepare.progressDeadline")?,
            buffer: duration(&spec.rollback.buffer, "spec.rollback.buffer")?,
            scale_to_zero: spec.rollback.after_buffer == api::AfterBuffer::ScaleToZero,
            paused: spec.paused,
            manual_weight: spec.manual_weight.filter(|_| spec.paused),
        })
    }

    /// The side of `color`.
    pub fn side(&self, color: Color) -> &Side {
        self.sides.get(color)
    }

    /// The color whose Service `service` is.
    pub fn color_of(&self, service: &str) -> Option<Color> {
        Color::BOTH.into_iter().find(|color| self.side(*color).service == service)
    }

    /// The stage that has just the share `weight`.
    pub fn stage_at(&self, weight: i32) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.weight == weight)
    }

    /// The users who get the target in the stage at `index`: those of all stages up to it. None if there are none.
    pub fn users_at(&self, index: usize) -> Option<Users> {
        let named = || self.stages.iter().take(index.saturating_add(1)).filter_map(|stage| stage.users.as_ref());
        let header = named().next()?.header.clone();
        let mut values: Vec<String> = Vec::new();
        for value in named().flat_map(|users| &users.values) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        Some(Users { header, values })
    }

    /// The Ingresses, for people.
    pub fn ingress_names(&self) -> String {
        self.ingresses.join(", ")
    }

    /// Position and stage of the smallest share above `weight`.
    pub fn stage_above(&self, weight: i32) -> Option<(usize, &Stage)> {
        self.stages.iter().enumerate().find(|(_, stage)| stage.weight > weight)
    }

    /// The gates that are judged in `stage`; without one (in the buffer) all of them.
    pub fn gates_of(&self, stage: Option<&Stage>) -> Vec<&Gate> {
        let named = stage.and_then(|stage| stage.gates.as_ref());
        self.gates.iter().filter(|gate| named.is_none_or(|named| named.contains(&gate.name))).collect()
    }

    /// A hash of everything that evidence is judged by.
    pub fn gates_hash(&self) -> String {
        let mut hash = Sha256::new();
        for gate in &self.gates {
            let Gate { name, source, rule, min_samples, alpha, warmup, .. } = gate;
            hash.update(format!("{name}\0{source}\0{rule:?}\0{min_samples}\0{alpha}\0{warmup:?}\n"));
        }
        hex(&hash.finalize(), 6)
    }
}

/// Whether our finalizer is set on `object`.
pub fn has_finalizer(object: &ModelRollout) -> bool {
    object.metadata.finalizers.iter().flatten().any(|name| name == api::names::FINALIZER)
}

/// When `object` was asked to go.
pub fn deleted_at(object: &ModelRollout) -> Option<Timestamp> {
    object.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

fn side(spec: &ColorSpec) -> Side {
    Side {
        deployment: spec.deployment_name.clone(),
        service: spec.service_name.clone(),
        model: format!("{}@{}", spec.model.name, spec.model.version),
        prompt: spec.prompt_template.as_ref().map(|prompt| Prompt {
            config_map: prompt.config_map_name.clone(),
            version: prompt.version.clone(),
            in_template: prompt.binding == api::PromptBinding::PodTemplate,
        }),
    }
}

fn ingresses(names: &[String]) -> Result<Vec<String>, SpecError> {
    if names.is_empty() {
        return Err(error("spec.traffic.ingress.names", "must name an Ingress"));
    }
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    Ok(names)
}

fn parse_stage(index: usize, spec: &StageSpec) -> Result<Stage, SpecError> {
    let field = format!("spec.stages[{index}]");
    if !(0..=100).contains(&spec.weight) {
        return Err(error(field + ".weight", "must be from 0 to 100"));
    }
    if spec.weight == 0 && spec.users.is_none() {
        return Err(error(field + ".weight", "must be from 1 to 100 in a stage without users"));
    }
    Ok(Stage {
        weight: spec.weight,
        hold: duration(&spec.hold, &(field + ".hold"))?,
        approval: spec.approval.is_some(),
        gates: spec.gates.clone(),
        users: spec.users.as_ref().map(|users| Users { header: users.header.clone(), values: users.values.clone() }),
    })
}

fn duration(text: &api::DurationText, field: &str) -> Result<Duration, SpecError> {
    let bounds = Duration::from_secs(1)..=Duration::from_hours(7 * 24);
    time::parse(&text.0)
        .filter(|span| bounds.contains(span))
        .ok_or_else(|| error(field, "must be a duration from 1s to 168h, such as 5m or 1h30m"))
}
