//! The object is being deleted: before the backend is switched traffic goes back, after that it stays. It only patches and
//! deletes, asks no Prometheus, and scales nothing.

use super::draft::Draft;
use super::observed::{IngressSeen, Lookup, Observed};
use super::plan::Action;
use super::time;
use super::traffic::nginx;
use crate::api::reasons::Step;
use k8s_openapi::jiff::Timestamp;

/// Removes what is ours, then the finalizer. Deleting the canary is what takes traffic back before the switch, and changes
/// nothing after it.
pub fn run(uid: &str, has_finalizer: bool, deleted: Timestamp, seen: &Observed, now: Timestamp, draft: &mut Draft) {
    if !has_finalizer {
        return;
    }
    let ours = |object: &Lookup<IngressSeen>| object.found().filter(|found| found.is_owned_by(uid)).cloned();
    if matches!(seen.canary, Lookup::Unreadable(_)) || matches!(seen.anchor, Lookup::Unreadable(_)) {
        return;
    }
    let (canary, anchor) = (ours(&seen.canary), ours(&seen.anchor));
    if let Some(canary) = canary.as_ref().filter(|canary| !canary.deleting) {
        draft.actions.push(nginx::remove(canary, true));
    }
    if let Some(anchor) = anchor.as_ref().filter(|anchor| !anchor.deleting) {
        // The controller may still be following a switch: the anchor goes when it has had time.
        let switching =
            draft.stored.attempt.as_ref().is_some_and(|attempt| attempt.open && attempt.step != Step::Preparing);
        let settled = if switching { time::after(deleted, seen.settle) } else { deleted };
        if now < settled {
            draft.wake_at(settled);
        } else {
            draft.actions.push(nginx::remove(anchor, false));
        }
    }
    if canary.is_none() && anchor.is_none() {
        draft.actions.push(Action::RemoveFinalizer);
    }
}
