//! Conditions: a fixed order, the current generation on each, and a transition time that moves only when the status does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::time;
use crate::api::reasons::{ConditionType, Reason};

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

impl Truth {
    fn as_str(self) -> &'static str {
        match self {
            Truth::True => "True",
            Truth::False => "False",
            Truth::Unknown => "Unknown",
        }
    }
}

/// Longest message that the API server accepts in a `metav1.Condition`.
const LONGEST: usize = 32_768;

/// The conditions of one status, while they are being made.
pub struct Conditions<'a> {
    stored: &'a [Condition],
    generation: i64,
    now: Timestamp,
    out: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    /// None yet; `stored` are those of the last status.
    pub fn new(stored: &'a [Condition], generation: i64, now: Timestamp) -> Self {
        Self { stored, generation, now, out: Vec::new() }
    }

    /// Adds one.
    pub fn set(&mut self, kind: ConditionType, truth: Truth, reason: Reason, message: impl Into<String>) {
        let past = self.stored.iter().find(|past| past.type_ == kind.as_str());
        let same = past.filter(|past| past.status == truth.as_str());
        let message: String = message.into();
        self.out.push(Condition {
            type_: kind.as_str().to_owned(),
            status: truth.as_str().to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.chars().take(LONGEST).collect(),
            observed_generation: Some(self.generation),
            last_transition_time: same.map_or_else(|| time::floor(self.now), |same| same.last_transition_time.clone()),
        });
    }

    /// Keeps the last one, or says that it was not looked at.
    pub fn keep(&mut self, kind: ConditionType) {
        match self.stored.iter().find(|past| past.type_ == kind.as_str()) {
            Some(past) => self.out.push(Condition { observed_generation: Some(self.generation), ..past.clone() }),
            None => self.set(kind, Truth::Unknown, Reason::NotChecked, "looked at when an attempt begins"),
        }
    }

    /// All of them, in the fixed order of [`ConditionType::ALL`].
    pub fn finish(mut self) -> Vec<Condition> {
        let place = |condition: &Condition| ConditionType::ALL.iter().position(|kind| kind.as_str() == condition.type_);
        self.out.sort_by_key(place);
        self.out
    }
}
