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
pub fn write_back(plan: &mut Draft, now: Timestamp, ingress: &str, manager: &str) -> Result<(), String> {
    let place = plan.status.drift.iter().position(|past| past.ingress == ingress);
    let mut drift = place.map_or_else(
        || Drift { ingress: ingress.to_owned(), manager: String::new(), times: Vec::new() },
        |place| plan.status.drift.remove(place),
    );
    drift.manager = manager.chars().take(128).collect();
    drift.times.retain(|at| now < time::after(at.0, MEMORY));
    let number = drift.times.len() + 1;
    let next = drift.times.first().filter(|_| number >= CONFLICT).map(|last| time::after(last.0, PACE));
    let result = if let Some(until) = next.filter(|until| now < *until) {
        plan.wake_at(until);
        let what = conflict(&drift, number);
        Err(format!("{what}; it is written again at {until} at the earliest, and nothing is scaled down meanwhile"))
    } else {
        drift.times.insert(0, time::floor(now));
        drift.times.truncate(CONFLICT);
        if number == CONFLICT {
            let what = conflict(&drift, CONFLICT);
            let message = format!("{what}; from now on it is written back at most every 30 s");
            plan.warn(Reason::FieldConflict, format!("Conflict{ingress}"), message);
        }
        Ok(())
    };
    plan.status.drift.insert(0, drift);
    plan.status.drift.truncate(10);
    result
}

/// The sentence about a conflict that lasts: nothing is scaled down until it is over.
pub fn lasting(plan: &mut Draft, now: Timestamp) -> Option<String> {
    let end = |drift: &Drift| drift.times.get(CONFLICT - 1).map(|first| time::after(first.0, MEMORY));
    let (drift, end) =
        plan.status.drift.iter().find_map(|drift| Some((drift, end(drift)?)).filter(|(_, end)| now < *end))?;
    let message = conflict(drift, CONFLICT);
    plan.wake_at(end);
    Some(message)
}

fn conflict(drift: &Drift, times: usize) -> String {
    format!(
        "{} changed Ingress {} {times} times within 10 minutes: let it ignore the backend (Argo CD: ignoreDifferences with jqPathExpressions .spec.rules[].http?.paths[]?.backend.service.name; Flux: the annotation kustomize.toolkit.fluxcd.io/ssa: IfNotPresent)",
        drift.manager, drift.ingress
    )
}

/// Who switched the backend of `ingress`, as far as that can be told: whoever wrote its rules last.
pub fn switcher(ingress: &IngressSeen) -> &str {
    if ingress.rules_by_us.is_some() {
        return "the operator itself, which went back and could not put the cause on record,";
    }
    manager(ingress)
}

/// Who wrote `ingress` last, besides us.
pub fn manager(ingress: &IngressSeen) -> &str {
    ingress.managers.iter().map(String::as_str).find(|name| *name != MANAGER_TRAFFIC).unwrap_or("somebody")
}
