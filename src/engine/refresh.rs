//! Numbers in status move all the time; writing each would be a write a second. They go along with the next write that
//! matters, and alone at most every ten seconds.

use super::draft::Draft;
use super::plan::REFRESH;
use super::time;
use crate::api::ModelRolloutStatus;
use crate::api::reasons::Reason;
use k8s_openapi::jiff::Timestamp;

/// Keeps the stored numbers if nothing that matters changed and they are young.
pub fn throttle(draft: &mut Draft, now: Timestamp) {
    let refreshed = draft.stored.refreshed_at.clone();
    draft.status.refreshed_at.clone_from(&refreshed);
    if draft.status == draft.stored {
        return;
    }
    let only_numbers = without_numbers(&draft.status) == without_numbers(&draft.stored);
    let due = refreshed.map(|last| time::after(last.0, REFRESH));
    match due.filter(|due| only_numbers && now < *due) {
        Some(due) => {
            draft.status = draft.stored.clone();
            draft.wake_at(due);
        }
        None => draft.status.refreshed_at = Some(time::floor(now)),
    }
}

/// The status without what moves by itself: counts, values, and sentences that tell them.
fn without_numbers(status: &ModelRolloutStatus) -> ModelRolloutStatus {
    let mut out = status.clone();
    out.refreshed_at = None;
    out.summary.message.clear();
    out.summary.gates.clear();
    for gate in &mut out.gates {
        gate.value = None;
        gate.baseline = None;
        gate.samples = None;
        gate.eta = None;
        gate.evidence.clear();
        gate.message.clear();
        // that requests begin to come is no change of a verdict
        if [Reason::WarmingUp, Reason::NoTraffic, Reason::NoData].iter().any(|early| early.as_str() == gate.reason) {
            Reason::InsufficientSamples.as_str().clone_into(&mut gate.reason);
        }
    }
    for color in &mut out.colors {
        color.ready = 0;
        color.desired = 0;
    }
    for condition in &mut out.conditions {
        condition.message.clear();
    }
    if let Some(attempt) = &mut out.attempt {
        attempt.evidence.clear();
    }
    out
}
