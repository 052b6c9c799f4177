//! Somebody else changed a field of ours. It is written back, but never in a fight: the third time in ten minutes it is a
//! conflict, and from then on there is at most one write every thirty seconds and no scale-down.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::draft::Draft;
use super::observed::IngressSeen;
use super::time;
use crate::api::Drift;
use crate::api::names::MANAGER_TRAFFIC;
use crate::api::reasons::Reason;

/// Changes further apart than this have nothing to do with each other.
const MEMORY: Duration = Duration::from_mins(10);
/// The least time between two writes while somebody keeps changing the field.
const PACE: Duration = Duration::from_secs(30);
/// So many writes in [`MEMORY`] are a conflict.
const CONFLICT: usize = 3;

/// Asks to write a field of `ingress` back, and puts the write on record. `Err`: not yet, with a sentence for people.
pub fn write_back(draft: &mut Draft, now: Timestamp, ingress: &str, manager: &str) -> Result<(), String> {
    let place = draft.status.drift.iter().position(|drift| drift.ingress == ingress);
    let mut drift = place.map(|place| draft.status.drift.remove(place)).unwrap_or_else(|| Drift {
        ingress: ingress.to_owned(),
        manager: String::new(),
        times: Vec::new(),
    });
    drift.manager = manager.chars().take(128).collect();
    drift.times.retain(|at| now < time::after(at.0, MEMORY));
    let before = drift.times.len();
    let wait = drift.times.first().map(|last| time::after(last.0, PACE)).filter(|until| before + 1 >= CONFLICT && now < *until);
    let result = match wait {
        Some(until) => {
            draft.wake_at(until);
            Err(format!(
                "{}; it is written again at {until} at the earliest, and nothing is scaled down meanwhile",
                conflict(&drift, before + 1)
            ))
        }
        None => {
            drift.times.insert(0, time::floor(now));
            drift.times.truncate(CONFLICT);
            if before + 1 == CONFLICT {
                let message = format!("{}; from now on it is written back at most every 30 s", conflict(&drift, CONFLICT));
                draft.warn(Reason::FieldConflict, format!("Conflict{ingress}"), message);
            }
            Ok(())
        }
    };
    draft.status.drift.insert(0, drift);
    draft.status.drift.truncate(10);
    result
}

/// The sentence about a conflict that lasts: nothing is scaled down until it is over.
pub fn lasting(draft: &mut Draft, now: Timestamp) -> Option<String> {
    let end = |drift: &Drift| drift.times.get(CONFLICT - 1).map(|first| time::after(first.0, MEMORY));
    let drift = draft.status.drift.iter().find(|drift| end(drift).is_some_and(|end| now < end))?.clone();
    if let Some(end) = end(&drift) {
        draft.wake_at(end);
    }
    Some(conflict(&drift, CONFLICT))
}

fn conflict(drift: &Drift, times: usize) -> String {
    format!(
        "{} changed Ingress {} {times} times within 10 minutes: let it ignore the backend (Argo CD: ignoreDifferences with jqPathExpressions .spec.rules[].http?.paths[]?.backend.service.name; Flux: the annotation kustomize.toolkit.fluxcd.io/ssa: IfNotPresent)",
        drift.manager, drift.ingress
    )
}

/// Who wrote `ingress` last, besides us.
pub fn manager(ingress: &IngressSeen) -> &str {
    ingress.managers.iter().map(String::as_str).find(|name| *name != MANAGER_TRAFFIC).unwrap_or("somebody")
}
