//! The loop: look, plan, apply, until there is nothing more to do. Runs on kube's applier with our own queue, so that a
//! trigger can come from anywhere. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::{FutureExt as _, StreamExt as _, future};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{self, Action};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apply::{CALL_DEADLINE, apply, writes};
use super::context::Context;
use super::error::Error;
use super::fresh::compare;
use super::observe::observe;
use super::triggers::{Handle, Key, Mirror};
use crate::engine;
use crate::engine::observed::Lookup;
use crate::engine::plan::Order;

/// So many passes in one go. A pass that writes is followed by another; more than this is a loop that must not spin.
const PASSES: usize = 12;
const AFTER_PASSES: Duration = Duration::from_millis(100);
/// Even with nothing to do, everything is planned again after this and up to a fifth more. It costs no request.
const RESYNC: Duration = Duration::from_mins(5);
const SHORTEST: Duration = Duration::from_millis(20);

/// A reconcile that failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    error: Error,
    /// A rollback is pending.
    urgent: bool,
}

/// Reconciles until `stop`, then lets what runs come to its end.
pub async fn run(ctx: Arc<Context>, queue: UnboundedReceiver<Key>, concurrency: u16, stop: CancellationToken) {
    let mut mirror = Mirror::default();
    let reader = mirror.reader();
    let exists = Arc::clone(&ctx);
    let requests = queue
        .filter_map(move |key| {
            let found = exists.stores.rollouts.get(&key.namespace, &key.name).found().is_some();
            future::ready(mirror.admit(&key, found).map(Ok::<_, std::convert::Infallible>))
        })
        .take_until(stop.clone().cancelled_owned());
    let reconcile = |handle: Arc<Handle>, ctx: Arc<Context>| reconcile(handle, ctx).boxed();
    let config = controller::Config::default().concurrency(concurrency);
    let work = kube::runtime::applier(reconcile, on_error, ctx, reader, requests, config);
    let drain = async {
        stop.cancelled().await;
        tokio::time::sleep(CALL_DEADLINE).await;
    };
    // failures are logged by `on_error`; an object that vanished meanwhile is none
    work.for_each(|_| future::ready(())).map(drop).or(drain).await;
}

trait Or: Future<Output = ()> + Sized {
    /// Whichever ends first.
    async fn or(self, other: impl Future<Output = ()>) {
        tokio::select! { biased; () = self => {}, () = other => {} }
    }
}

impl<F: Future<Output = ()>> Or for F {}

async fn reconcile(handle: Arc<Handle>, ctx: Arc<Context>) -> Result<Action, Failed> {
    if !ctx.active() {
        return Ok(Action::await_change());
    }
    let meta = &handle.metadata;
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let began = Instant::now();
    let result = passes(&ctx, &key).await;
    let word = result.as_ref().map_or_else(|failed| failed.error.category(), |_| "ok");
    ctx.metrics.reconciled(word, began.elapsed());
    if result.is_ok() {
        ctx.failures.forget(&key);
    }
    result
}

async fn passes(ctx: &Context, key: &Key) -> Result<Action, Failed> {
    for _ in 0..PASSES {
        let Lookup::Found(rollout) = ctx.stores.rollouts.get(&key.namespace, &key.name) else {
            return Ok(Action::await_change());
        };
        let seen = observe(ctx, &rollout);
        let plan = engine::plan(&rollout, &seen, ctx.clock.now());
        let urgent = plan.order == Order::TrafficFirst;
        let writes = writes(&rollout, &plan);
        // what moves traffic never waits
        let moves = !(plan.actions.is_empty() && plan.after.is_empty());
        if writes
            && !moves
            && let Some(wait) = ctx.paces.with(key, |pace| pace.next(Instant::now()))
        {
            return Ok(Action::requeue(wait));
        }
        if writes && !ctx.compared.has(key) {
            // who knows what was decided before we began: it is as urgent as a rollback
            compare(ctx, key).await.map_err(|error| Failed { error, urgent: true })?;
            continue;
        }
        let applied = apply(ctx, Arc::clone(&rollout), &seen, &plan).await;
        let mut watches_changed = false;
        if applied.is_ok() {
            // Only for an intent that is on record: else the next plan, made from what is stored, would ask for what was
            // asked before, and the two would take turns for as long as nothing can be written.
            watches_changed = ctx.follow(&rollout, &plan.need);
            ctx.metrics.show(&rollout, &plan.status, Instant::now());
        }
        let uid = &rollout.metadata.uid;
        if ctx.stores.rollouts.get(&key.namespace, &key.name).found().is_none_or(|now| now.metadata.uid != *uid) {
            // it went while we worked, and what was just started for it must not stay
            ctx.forget(key, uid.as_deref().unwrap_or_default());
        }
        let applied = applied.map_err(|error| Failed { error, urgent })?;
        if applied.gone {
            return Ok(Action::await_change());
        }
        if !applied.wrote && !watches_changed {
            return Ok(Action::requeue(wait(plan.wake, ctx.clock.precise(), key)));
        }
    }
    Ok(Action::requeue(AFTER_PASSES))
}

/// Until `wake`, and never longer than a resync, which differs from object to object.
fn wait(wake: Option<Timestamp>, now: Timestamp, key: &Key) -> Duration {
    let spread: u64 = key.name.bytes().chain(key.namespace.bytes()).map(u64::from).sum();
    let resync = RESYNC + Duration::from_secs(spread % (RESYNC.as_secs() / 5));
    let until = wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or(Duration::ZERO));
    until.map_or(resync, |until| until.clamp(SHORTEST, resync))
}

#[allow(clippy::needless_pass_by_value)] // the applier's signature
fn on_error(handle: Arc<Handle>, failed: &Failed, ctx: Arc<Context>) -> Action {
    let meta = &handle.metadata;
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let failure = failed.error.failure(failed.urgent);
    let wait = ctx.failures.with(&key, |backoff| backoff.next(failure));
    if failure == super::backoff::Failure::Conflict {
        tracing::debug!(namespace = key.namespace, rollout = key.name, error = %failed.error, ?wait, "looking again");
    } else {
        tracing::warn!(namespace = key.namespace, rollout = key.name, error = %failed.error, ?wait,
            rollback = failed.urgent, "a reconcile failed; it is tried again");
    }
    Action::requeue(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_the_wake_but_not_for_ever() {
        let now = Timestamp::from_second(1000).unwrap();
        let key = Key::new("ml", "bot");
        let at = |second| Timestamp::from_second(second).ok();
        assert_eq!(wait(at(1007), now, &key), Duration::from_secs(7));
        assert_eq!(wait(at(900), now, &key), SHORTEST);
        let longest = wait(None, now, &key);
        assert!(longest >= RESYNC && longest <= RESYNC * 2);
        assert_eq!(wait(at(1_000_000), now, &key), longest);
    }
}
