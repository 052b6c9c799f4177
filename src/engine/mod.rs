//! THE PURE CORE: `plan(&Rollout, &Observed, now) -> Plan`.
//!
//! No client, no tokio, no clock, no randomness, no iteration over hash maps. Every decision is made in here, and
//! nowhere else.

pub mod count;
pub mod observed;
pub mod plan;

use k8s_openapi::jiff::Timestamp;

use crate::api::ModelRollout;
use observed::Observed;
use plan::Plan;

/// Decides everything: what to write, what to say, when to look again.
pub fn plan(rollout: &ModelRollout, _seen: &Observed, _now: Timestamp) -> Plan {
    Plan {
        order: plan::Order::StatusFirst,
        actions: Vec::new(),
        status: rollout.status.clone().unwrap_or_default(),
        after: Vec::new(),
        notes: Vec::new(),
        wake: None,
        need: plan::Need::default(),
    }
}

/// Name of an older ModelRollout among `others` (all of the same namespace, `me` may be among them) that uses one of
/// `me`'s Deployments, Services or Ingresses.
pub fn elder<'a>(_me: &ModelRollout, _others: impl Iterator<Item = &'a ModelRollout>) -> Option<String> {
    None
}
