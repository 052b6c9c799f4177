//! Reads what decides about traffic anew, past the caches. A watch may be behind or silent: right after this process began to
//! lead nothing is written from a cache that was not compared with the API server, and while an attempt is open a silent
//! watch goes unnoticed for half a minute at most. Decides nothing, writes nothing.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::Ingress;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::apply::CALL_DEADLINE;
use super::context::Context;
use super::error::Error;
use super::stores::Store;
use super::triggers::Key;
use super::watches::compact;
use crate::api::ModelRollout;
use crate::api::names::{anchor_name, canary_name};

/// How old a comparison may be while an attempt is open.
const PERIOD: Duration = Duration::from_secs(30);

/// When the objects of each rollout were compared with the API server last, since this process began.
#[derive(Debug, Default)]
pub struct Compared(Mutex<BTreeMap<Key, Instant>>);

impl Compared {
    /// Whether that was never done.
    pub fn never(&self, key: &Key) -> bool {
        !self.lock().contains_key(key)
    }

    /// When it is due again; none if it was never done.
    pub fn due(&self, key: &Key) -> Option<Instant> {
        self.lock().get(key).map(|last| *last + PERIOD)
    }

    /// Puts the next try off: what cannot be read now stops no work that goes on.
    pub fn put_off(&self, key: &Key) {
        self.lock().insert(key.clone(), Instant::now());
    }

    /// Forgets a rollout that is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the rollout, its Ingresses and its Deployments, and takes them into the caches, which never go back in time.
pub async fn compare(ctx: &Context, key: &Key, rollout: &ModelRollout) -> Result<(), Error> {
    let began = Instant::now();
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
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
    // of a rollout that is gone the watch tells, and everything that goes with it
    let itself = read::<ModelRollout, _>(ctx, &ctx.stores.rollouts, namespace, name, compact);
    try_join(itself, try_join(try_join_all(ingresses), try_join_all(deployments))).await?;
    ctx.compared.lock().insert(key.clone(), began);
    Ok(())
}

/// Reads one object into its cache; one that is not there is taken out.
async fn renew<K, T: PartialEq>(
    ctx: &Context,
    store: &Store<T>,
    namespace: &str,
    name: &str,
    convert: impl FnOnce(K) -> T,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    // whoever is created while the answer is on its way has another uid
    let before = store.uid(namespace, name);
    if !read(ctx, store, namespace, name, convert).await? {
        before.iter().for_each(|uid| store.remove_uid(namespace, name, uid));
    }
    Ok(())
}

/// Reads one object into its cache. Gives whether it is there.
async fn read<K, T: PartialEq>(
    ctx: &Context,
    store: &Store<T>,
    namespace: &str,
    name: &str,
    convert: impl FnOnce(K) -> T,
) -> Result<bool, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(ctx.writes.clone(), namespace);
    let what = "compare";
    match timeout(CALL_DEADLINE, api.get_opt(name)).await {
        Ok(Ok(Some(object))) => {
            let meta = object.meta().clone();
            store.put(&meta, convert(object));
            Ok(true)
        }
        Ok(Ok(None)) => Ok(false),
        Ok(Err(error)) => Err(Error::from_api(what, error, false)),
        Err(_) => Err(Error::Deadline { what }),
    }
}
