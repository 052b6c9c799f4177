//! The object is being deleted: before every backend is switched traffic goes back, after that it stays. It only patches and
//! deletes, asks no Prometheus, and scales nothing.

use super::attempt;
use super::draft::{Draft, Scene};
use super::observed::{IngressSeen, Lookup, Observed};
use super::plan::{Action, Order};
use super::rollout::{self, Rollout};
use super::time;
use super::traffic::{self, Backend};
use crate::api::ModelRollout;
use crate::api::reasons::Step;
use k8s_openapi::jiff::Timestamp;

/// Removes what is ours, then the finalizer. Deleting the canary is what takes traffic back before the switch, and changes
/// nothing after it; a switch that is half done is taken back.
pub fn run(object: &ModelRollout, deleted: Timestamp, seen: &Observed, now: Timestamp, draft: &mut Draft) {
    if !rollout::has_finalizer(object) {
        return;
    }
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let ours = |object: &Lookup<IngressSeen>| object.found().filter(|found| found.is_owned_by(uid)).cloned();
    let unreadable = |object: &Lookup<IngressSeen>| matches!(object, Lookup::Unreadable(_));
    if unreadable(&seen.canary) || unreadable(&seen.anchor) || seen.ingresses.values().any(unreadable) {
        return;
    }
    let (canary, anchor) = (ours(&seen.canary), ours(&seen.anchor));
    if let Some(canary) = &canary {
        draft.delete(canary, true);
    }
    let half = take_back(object, seen, now, draft);
    if let Some(anchor) = anchor.as_ref().filter(|anchor| !anchor.deleting && !half) {
        // The controller may still be following a switch: the anchor goes when it has had time.
        let switching =
            draft.stored.attempt.as_ref().is_some_and(|attempt| attempt.open && attempt.step != Step::Preparing);
        let ended = draft.stored.attempt.as_ref().and_then(|attempt| attempt.ended_at.as_ref()).map(|ended| ended.0);
        let since = if switching { Some(deleted) } else { ended };
        let settled = since.map_or(deleted, |since| time::after(since, seen.settle));
        let settled = seen.follows_until(now).map_or(settled, |until| until.max(settled));
        if now < settled {
            draft.wake_at(settled);
        } else {
            draft.delete(anchor, false);
        }
    }
    if canary.is_none() && anchor.is_none() && !half {
        draft.actions.push(Action::RemoveFinalizer);
    }
}

/// Takes a half-done switch back. True if there is one.
fn take_back(object: &ModelRollout, seen: &Observed, now: Timestamp, draft: &mut Draft) -> bool {
    let (Ok(rollout), Some(attempt)) = (Rollout::parse(object), draft.open_attempt()) else { return false };
    let scene = Scene { rollout: &rollout, seen, now };
    if scene.position() != Backend::Mixed {
        return false;
    }
    draft.order = Order::TrafficFirst;
    draft.actions.extend(attempt::keep_named(scene, &attempt));
    draft.actions.extend(traffic::switch(&rollout, &scene.mains(), attempt.to, false));
    true
}
