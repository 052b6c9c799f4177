//! The watches that are always on, and how any watch fills a cache. A change triggers the rollouts that it
//! concerns; nothing is decided here.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, future};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::concerns::{self, Changed};
use super::context::Context;
use super::convert::scaled_deployment;
use super::stores::{Put, Removed, Store};
use super::triggers::Key;
use crate::api::ModelRollout;
use crate::ops::metrics::Metrics;

/// Objects per page of a list: what is not compact yet never fills more than one page of memory.
const PAGE: u32 = 50;

/// How long a watch lasts before it is begun again from where it was, in seconds; five more without a word, and the client
/// ends it itself. So a connection that died in silence is noticed before a person wonders.
pub const WATCH_SECONDS: u32 = 30;

/// What a watch learned.
pub enum Change<'a, T> {
    /// An object is new or changed.
    Put(&'a ObjectMeta, Put<T>),
    /// An object is gone.
    Removed(Removed<T>),
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
        feeds.push(ingresses(Arc::clone(&ctx), scope.clone()).boxed());
        feeds.push(autoscalers(Arc::clone(&ctx), scope).boxed());
    }
    future::join_all(feeds).await;
}

fn base() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
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
            // before all lists are complete nothing is worked on, and then everything is
            if ctx.is_synced() {
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
    let services = &ctx.stores.services;
    let changed = |change: Change<'_, _>| {
        on_change(&ctx, change, |rollout, change| concerns::deployment(rollout, services, change));
    };
    feed(stream, ("Deployment", &scope), (&ctx.stores.deployments, &ctx.metrics), |it| Some(it.into()), changed).await;
}

async fn services(ctx: Arc<Context>, scope: String) {
    let stream = stream::<Service>(&ctx.reads, &scope, base());
    let changed = |change: Change<'_, _>| on_change(&ctx, change, concerns::service);
    feed(stream, ("Service", &scope), (&ctx.stores.services, &ctx.metrics), |it| Some(it.into()), changed).await;
}

async fn ingresses(ctx: Arc<Context>, scope: String) {
    let stream = stream::<Ingress>(&ctx.reads, &scope, base());
    let changed = |change: Change<'_, _>| on_change(&ctx, change, concerns::ingress);
    feed(stream, ("Ingress", &scope), (&ctx.stores.ingresses, &ctx.metrics), |it| Some(it.into()), changed).await;
}

/// Without the right to list them no work begins: a Deployment that an autoscaler scales must not be taken for one that
/// nobody scales. The operator is then not ready and does not lead, so that one of before goes on.
async fn autoscalers(ctx: Arc<Context>, scope: String) {
    let stream = stream::<HorizontalPodAutoscaler>(&ctx.reads, &scope, base());
    let kind = ("HorizontalPodAutoscaler", scope.as_str());
    let changed = |change: Change<'_, _>| on_change(&ctx, change, concerns::autoscaler);
    feed(stream, kind, (&ctx.stores.autoscalers, &ctx.metrics), |it| Some(scaled_deployment(it)), changed).await;
}

/// A rollout without what nobody reads. The API server keeps managed fields that a write leaves out.
pub fn compact(mut rollout: ModelRollout) -> ModelRollout {
    rollout.metadata.managed_fields = None;
    rollout
}

fn key(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn on_change<T>(ctx: &Context, change: Change<'_, T>, concerned: impl Fn(&ModelRollout, &Changed<'_, T>) -> bool) {
    match change {
        Change::Put(_, Put { same: true, .. }) => {}
        Change::Put(meta, put) => {
            let Key { namespace, name } = key(meta);
            let change =
                Changed { namespace: &namespace, name: &name, old: put.old.as_deref(), new: Some(put.new.as_ref()) };
            trigger(ctx, &change, concerned);
        }
        Change::Removed(Removed { namespace, name, old, .. }) => {
            let change = Changed { namespace: &namespace, name: &name, old: Some(old.as_ref()), new: None };
            trigger(ctx, &change, concerned);
        }
        Change::Listed => ctx.check_synced(),
    }
}

fn trigger<T>(ctx: &Context, change: &Changed<'_, T>, concerned: impl Fn(&ModelRollout, &Changed<'_, T>) -> bool) {
    // before all lists are complete nothing is worked on, and then everything is
    if !ctx.is_synced() {
        return;
    }
    for rollout in ctx.stores.rollouts.list(change.namespace) {
        if concerned(&rollout, change) {
            ctx.triggers.fire(Key::of(&rollout));
        }
    }
}

/// Looks at every rollout of `namespace` soon.
pub fn trigger_all_of(ctx: &Context, namespace: &str) {
    ctx.stores.rollouts.list(namespace).iter().for_each(|rollout| ctx.triggers.fire(Key::of(rollout)));
}

/// Triggers the rollouts that share an object with that of `key`: which of them is the elder may have changed. One
/// that stopped sharing is found only at its next look.
fn trigger_sharing(ctx: &Context, key: &Key) {
    let all = ctx.stores.rollouts.list(&key.namespace);
    let Some(me) = all.iter().find(|other| other.metadata.name.as_deref() == Some(&key.name)) else { return };
    for other in all.iter().filter(|other| concerns::shares(me, other)) {
        ctx.triggers.fire(Key::of(other));
    }
}
