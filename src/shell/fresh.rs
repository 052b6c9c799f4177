//! Reads what decides about traffic anew, past the caches. A standby's watches may be behind when it begins to lead: before
//! the first write for a rollout its own object, its Ingresses and its Deployments are compared with the API server, once.
//! Caches never go back in time, so once is enough. Decides nothing, writes nothing.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::{try_join, try_join_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::Ingress;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::apply::CALL_DEADLINE;
use super::context::Context;
use super::error::Error;
use super::stores::Store;
use super::triggers::Key;
use super::watches::{compact, trigger_all_of};
use crate::api::ModelRollout;
use crate::api::names::{anchor_name, canary_name};
use crate::engine::observed::Lookup;

/// The rollouts whose objects this process has compared.
#[derive(Debug, Default)]
pub struct Compared(Mutex<BTreeSet<Key>>);

impl Compared {
    /// Whether it is one of them.
    pub fn has(&self, key: &Key) -> bool {
        self.lock().contains(key)
    }

    /// Forgets a rollout that is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the rollout, and then its Ingresses and its Deployments, into the caches, which never go back in time.
pub async fn compare(ctx: &Context, key: &Key) -> Result<(), Error> {
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    // of a rollout that is gone the watch tells, and of everything that goes with it
    let (_, news) = read::<ModelRollout, _>(ctx, &ctx.stores.rollouts, namespace, name, compact).await?;
    let Lookup::Found(rollout) = ctx.stores.rollouts.get(namespace, name) else { return Ok(()) };
    let ours = [canary_name(name), anchor_name(name)];
    let ingresses = rollout
        .spec
        .traffic
        .ingress
        .names
        .iter()
        .chain(&ours)
        .map(|name| renew::<Ingress, _>(ctx, &ctx.stores.ingresses, namespace, name, |it| (&it).into()));
    let deployments = [&rollout.spec.blue, &rollout.spec.green].map(|side| {
        renew::<Deployment, _>(ctx, &ctx.stores.deployments, namespace, &side.deployment_name, |it| (&it).into())
    });
    let (ingresses, deployments) = try_join(try_join_all(ingresses), try_join_all(deployments)).await?;
    if news || ingresses.into_iter().chain(deployments).any(|news| news) {
        // others may share what was learned, and no watch tells it again
        trigger_all_of(ctx, namespace);
    }
    if ctx.stores.rollouts.uid(namespace, name) == rollout.metadata.uid {
        ctx.compared.lock().insert(key.clone());
    }
    Ok(())
}

/// Reads one object into its cache; one that is not there is taken out. Gives whether anything was learned.
async fn renew<K, T: PartialEq>(
    ctx: &Context,
    store: &Store<T>,
    namespace: &str,
    name: &str,
    convert: impl FnOnce(K) -> T,
) -> Result<bool, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    // whoever is created while the answer is on its way has another uid
    let before = store.uid(namespace, name);
    let (there, news) = read(ctx, store, namespace, name, convert).await?;
    let Some(uid) = before.filter(|_| !there) else { return Ok(news) };
    store.remove_uid(namespace, name, &uid);
    Ok(true)
}

/// Reads one object into its cache. Gives whether it is there, and whether anything was learned.
async fn read<K, T: PartialEq>(
    ctx: &Context,
    store: &Store<T>,
    namespace: &str,
    name: &str,
    convert: impl FnOnce(K) -> T,
) -> Result<(bool, bool), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(ctx.writes.clone(), namespace);
    let what = "compare";
    match timeout(CALL_DEADLINE, api.get_opt(name)).await {
        Ok(Ok(Some(object))) => {
            let meta = object.meta().clone();
            let put = store.put(&meta, convert(object));
            Ok((true, put.is_some_and(|put| !put.same)))
        }
        Ok(Ok(None)) => Ok((false, false)),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            // it was granted to list and watch them: the caches are then all that there is
            tracing::warn!(namespace, name, error = status.message, "this may not be read by itself: grant `get`");
            Ok((true, false))
        }
        Ok(Err(error)) => Err(Error::from_api(what, error, false)),
        Err(_) => Err(Error::Deadline { what }),
    }
}
