//! The watches that are always on, and how any watch fills a cache. A change triggers the rollouts that refer to the
//! object; nothing is decided here.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, future};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::context::Context;
use super::stores::{Put, Removed, Store};
use super::triggers::Key;
use crate::api::ModelRollout;
use crate::api::names::{anchor_name, canary_name};
use crate::ops::metrics::Metrics;

/// Objects per page of a list: what is not compact yet never fills more than one page of memory.
const PAGE: u32 = 50;

/// What a watch learned.
pub enum Change<'a, T> {
    /// An object is new or changed.
    Put(&'a ObjectMeta, Put<T>),
    /// An object is gone.
    Removed(Removed),
    /// A list is complete.
    Listed,
}

/// Fills `store` from a watch, for ever. `convert` gives none for an object that cannot be read: what was known of it
/// stays.
pub async fn feed<K, T>(
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
    (kind, scope): (&'static str, &str),
    (store, metrics): (&Store<T>, &Metrics),
    convert: impl Fn(&K) -> Option<T> + Send,
    changed: impl Fn(Change<'_, T>) + Send,
) where
    K: Resource,
    T: PartialEq,
{
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        let take = |object: &K| {
            let put = convert(object).and_then(|value| store.put(object.meta(), value));
            if let Some(put) = put {
                changed(Change::Put(object.meta(), put));
            }
        };
        match event {
            Ok(Event::Init) => store.list_begins(scope),
            Ok(Event::InitApply(object)) => {
                store.listed(scope, object.meta());
                take(&object);
            }
            Ok(Event::InitDone) => {
                store.list_ends(scope).into_iter().for_each(|removed| changed(Change::Removed(removed)));
                changed(Change::Listed);
            }
            Ok(Event::Apply(object)) => take(&object),
            Ok(Event::Delete(object)) => {
                store.remove(object.meta()).into_iter().for_each(|removed| changed(Change::Removed(removed)));
            }
            Err(error) => {
                metrics.watch_error(kind);
                tracing::warn!(kind, scope, %error, "a watch broke; it is started again");
            }
        }
    }
}

/// The stream of a watch, which never ends.
pub fn stream<K>(
    client: &Client,
    namespace: &str,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + use<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api: Api<K> =
        if namespace.is_empty() { Api::all(client.clone()) } else { Api::namespaced(client.clone(), namespace) };
    watch(api, config).default_backoff()
}

/// All watches that are always on, in every scope. Never ends.
pub async fn run(ctx: Arc<Context>, scopes: Vec<String>) {
    let mut feeds: Vec<BoxFuture<'static, ()>> = Vec::new();
    for scope in scopes {
        feeds.push(rollouts(Arc::clone(&ctx), scope.clone()).boxed());
        feeds.push(deployments(Arc::clone(&ctx), scope.clone()).boxed());
        feeds.push(services(Arc::clone(&ctx), scope.clone()).boxed());
        feeds.push(ingresses(Arc::clone(&ctx), scope).boxed());
    }
    future::join_all(feeds).await;
}

fn base() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

async fn rollouts(ctx: Arc<Context>, scope: String) {
    let stream = stream::<DeserializeGuard<ModelRollout>>(&ctx.reads, &scope, base());
    let convert = |guard: &DeserializeGuard<ModelRollout>| match &guard.0 {
        Ok(object) => Some(compact(object.clone())),
        Err(invalid) => {
            ctx.metrics.invalid_object();
            let meta = &invalid.metadata;
            tracing::error!(namespace = ?meta.namespace, name = ?meta.name, error = %invalid.error,
                "this ModelRollout cannot be read and is left alone");
            None
        }
    };
    feed(stream, ("ModelRollout", &scope), (&ctx.stores.rollouts, &ctx.metrics), convert, |change| match change {
        Change::Put(meta, put) => {
            let key = key(meta);
            // before the first list is complete nothing is worked on, and then everything is
            if ctx.synced.load(Ordering::Relaxed) {
                if put.old.is_none_or(|old| old.metadata.generation != meta.generation) {
                    trigger_sharing(&ctx, &key);
                }
                ctx.triggers.fire(key);
            }
        }
        Change::Removed(removed) => {
            let key = Key::new(&removed.namespace, &removed.name);
            ctx.forget(&key, &removed.uid);
            // whoever waited for it as the older one
            trigger_all_of(&ctx, &key.namespace);
            ctx.triggers.fire(key);
        }
        Change::Listed => ctx.check_synced(),
    })
    .await;
}

async fn deployments(ctx: Arc<Context>, scope: String) {
    let stream = stream::<Deployment>(&ctx.reads, &scope, base());
    let changed = |change: Change<'_, _>| on_change(&ctx, change, refers_to_deployment);
    feed(stream, ("Deployment", &scope), (&ctx.stores.deployments, &ctx.metrics), |it| Some(it.into()), changed).await;
}

async fn services(ctx: Arc<Context>, scope: String) {
    let stream = stream::<Service>(&ctx.reads, &scope, base());
    let changed = |change: Change<'_, _>| on_change(&ctx, change, refers_to_service);
    feed(stream, ("Service", &scope), (&ctx.stores.services, &ctx.metrics), |it| Some(it.into()), changed).await;
}

async fn ingresses(ctx: Arc<Context>, scope: String) {
    let stream = stream::<Ingress>(&ctx.reads, &scope, base());
    let changed = |change: Change<'_, _>| on_change(&ctx, change, refers_to_ingress);
    feed(stream, ("Ingress", &scope), (&ctx.stores.ingresses, &ctx.metrics), |it| Some(it.into()), changed).await;
}

/// A rollout without what nobody reads. The API server keeps managed fields that a write leaves out.
pub fn compact(mut rollout: ModelRollout) -> ModelRollout {
    rollout.metadata.managed_fields = None;
    rollout
}

fn key(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn on_change<T>(ctx: &Context, change: Change<'_, T>, refers: fn(&ModelRollout, &str) -> bool) {
    match change {
        Change::Put(_, Put { same: true, .. }) => {}
        Change::Put(meta, _) => trigger(ctx, &key(meta), refers),
        Change::Removed(removed) => trigger(ctx, &Key::new(&removed.namespace, &removed.name), refers),
        Change::Listed => ctx.check_synced(),
    }
}

fn trigger(ctx: &Context, object: &Key, refers: fn(&ModelRollout, &str) -> bool) {
    for rollout in ctx.stores.rollouts.list(&object.namespace) {
        if refers(&rollout, &object.name) {
            ctx.triggers.fire(Key::of(&rollout));
        }
    }
}

fn trigger_all_of(ctx: &Context, namespace: &str) {
    ctx.stores.rollouts.list(namespace).iter().for_each(|rollout| ctx.triggers.fire(Key::of(rollout)));
}

/// Triggers the rollouts that share an object with that of `key`: which of them is the elder may have changed. One
/// that stopped sharing is found only at its next look.
fn trigger_sharing(ctx: &Context, key: &Key) {
    let all = ctx.stores.rollouts.list(&key.namespace);
    let Some(me) = all.iter().find(|other| other.metadata.name.as_deref() == Some(&key.name)) else { return };
    for other in all.iter().filter(|other| shares(me, other)) {
        ctx.triggers.fire(Key::of(other));
    }
}

fn shares(me: &ModelRollout, other: &ModelRollout) -> bool {
    [&me.spec.blue, &me.spec.green].iter().any(|color| {
        refers_to_deployment(other, &color.deployment_name) || refers_to_service(other, &color.service_name)
    }) || me.spec.traffic.ingress.names.iter().any(|name| refers_to_ingress(other, name))
}

fn refers_to_deployment(rollout: &ModelRollout, name: &str) -> bool {
    rollout.spec.blue.deployment_name == name || rollout.spec.green.deployment_name == name
}

fn refers_to_service(rollout: &ModelRollout, name: &str) -> bool {
    rollout.spec.blue.service_name == name || rollout.spec.green.service_name == name
}

fn refers_to_ingress(rollout: &ModelRollout, name: &str) -> bool {
    let own = rollout.metadata.name.as_deref().unwrap_or_default();
    rollout.spec.traffic.ingress.names.iter().any(|one| one == name)
        || canary_name(own) == name
        || anchor_name(own) == name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::testing::rollout;

    #[test]
    fn a_rollout_refers_to_what_it_names_and_to_what_is_named_after_it() {
        let bot = rollout("bot");
        assert!(refers_to_deployment(&bot, "bot-green") && !refers_to_deployment(&bot, "bot"));
        assert!(refers_to_service(&bot, "bot-blue") && !refers_to_service(&bot, "other"));
        assert!(["bot", "bot-canary", "bot-anchor"].iter().all(|name| refers_to_ingress(&bot, name)));
        assert!(!refers_to_ingress(&bot, "other-canary"));
        assert!(shares(&bot, &rollout("second")));
    }
}
