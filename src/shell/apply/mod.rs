//! THE ONLY PLACE THAT WRITES. Carries out a plan in its order, each call with its precondition, a deadline and a look
//! at the lease, and stops at the first failure. Decides nothing.

mod jobs;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use tokio::time::{Instant, timeout};

use super::context::Context;
use super::error::Error;
use super::notes::About;
use super::requests;
use super::watches::compact;
use crate::api::names::{MANAGER_META, MANAGER_SCALE, MANAGER_STATUS, MANAGER_TRAFFIC};
use crate::api::reasons::Verdict;
use crate::api::{ModelRollout, ModelRolloutStatus};
use crate::engine::observed::{DeploymentSeen, IngressSeen, Lookup, Observed, ReplicasBy};
use crate::engine::plan::{Action, IngressWant, Order, PathSwitch, Plan, ServingCheck};

pub use jobs::Refusals;

/// How often an Ingress is tried that spares requests and that nothing waits for.
const TRIES: u32 = 3;
/// The longest that one call may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(3);

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Applied {
    /// Something was written.
    pub wrote: bool,
    /// Our finalizer was removed from an object that is being deleted: there is nothing left to do.
    pub gone: bool,
}

/// A kind of call.
#[derive(Clone, Copy)]
struct Call {
    what: &'static str,
    /// It moves traffic.
    traffic: bool,
    /// It is a JSON Patch with tests.
    tested: bool,
}

impl Call {
    const fn new(what: &'static str) -> Self {
        Self { what, traffic: false, tested: false }
    }

    const fn traffic(what: &'static str) -> Self {
        Self { traffic: true, ..Self::new(what) }
    }

    const fn tested(self) -> Self {
        Self { tested: true, ..self }
    }
}

/// Whether `plan`, which was made from `rollout`, writes anything.
pub fn writes(rollout: &ModelRollout, plan: &Plan) -> bool {
    !plan.actions.is_empty() || !plan.after.is_empty() || differs(rollout.status.as_ref(), &plan.status)
}

/// Carries out `plan`, which was made from `rollout` and `seen`.
pub async fn apply(ctx: &Context, rollout: Arc<ModelRollout>, seen: &Observed, plan: &Plan) -> Result<Applied, Error> {
    let attempt = rollout.status.as_ref().and_then(|status| status.attempt.as_ref());
    let mut turn = Turn {
        ctx,
        was_open: attempt.is_some_and(|attempt| attempt.open),
        namespace: rollout.metadata.namespace.clone().unwrap_or_default(),
        rollout,
        done: Applied::default(),
        leftover: None,
    };
    let mut told = false;
    if plan.order == Order::StatusFirst && turn.status(&plan.status).await? {
        turn.tell(plan);
        told = true;
    }
    turn.actions(&plan.actions).await?;
    if plan.order == Order::TrafficFirst {
        turn.measure(seen, plan);
        turn.status(&plan.status).await?;
    }
    if !told {
        turn.tell(plan);
    }
    turn.actions(&plan.after).await?;
    turn.leftover.map_or(Ok(turn.done), Err)
}

/// One plan being carried out.
struct Turn<'a> {
    ctx: &'a Context,
    namespace: String,
    /// The object that the plan was made from, moved on by our own writes only.
    rollout: Arc<ModelRollout>,
    /// Whether an attempt was open before.
    was_open: bool,
    done: Applied,
    /// What is still to be done about a canary that could only be made harmless.
    leftover: Option<Error>,
}

impl Turn<'_> {
    fn tell(&self, plan: &Plan) {
        let at = self.ctx.clock.precise();
        let about = About { rollout: &self.rollout, status: &plan.status, was_open: self.was_open, at };
        self.ctx.notes.publish(&about, &plan.notes);
    }

    /// From the reading that failed a gate to now, when traffic is back.
    fn measure(&self, seen: &Observed, plan: &Plan) {
        let failed = plan.status.gates.iter().filter(|gate| gate.verdict == Verdict::Fail);
        let breach = failed.filter_map(|gate| seen.readings.get(&gate.name)).map(|reading| reading.at).min();
        if let Some(at) = breach.filter(|_| self.done.wrote) {
            let took = self.ctx.clock.precise().duration_since(at);
            self.ctx.metrics.rolled_back(Duration::try_from(took).unwrap_or(Duration::ZERO));
        }
    }

    async fn actions(&mut self, actions: &[Action]) -> Result<(), Error> {
        for action in actions {
            if self.done.gone {
                return Ok(());
            }
            self.act(action).await?;
        }
        Ok(())
    }

    async fn act(&mut self, action: &Action) -> Result<(), Error> {
        match action {
            Action::AddFinalizer => match requests::add_finalizer(&self.rollout) {
                Some(patch) => self.meta(Call::new("add_finalizer").tested(), patch).await,
                None => Ok(()),
            },
            Action::RemoveFinalizer => match requests::remove_finalizer(&self.rollout) {
                Some(patch) => self.meta(Call::new("remove_finalizer").tested(), patch).await,
                None => Ok(()),
            },
            Action::RemoveAct { annotation, value } => {
                let patch = requests::remove_act(&self.rollout, annotation, value);
                self.meta(Call::new("remove_act").tested(), patch).await
            }
            Action::WriteIngress(want) if want.required => self.write_ingress(want).await,
            Action::WriteIngress(want) => {
                self.try_ingress(want).await;
                Ok(())
            }
            Action::DeleteIngress { name, uid, urgent } => self.delete_ingress(name, uid, *urgent).await,
            Action::SwitchBackend { ingress, resource_version, paths } => {
                self.switch(ingress, resource_version.as_deref(), paths).await
            }
            Action::CreateJob(want) => {
                self.create_job(want).await;
                Ok(())
            }
            Action::DeleteJob { name, uid } => self.delete_job(name, uid).await,
            Action::Scale { deployment, replicas, resource_version, unless_serving } => {
                if let Some(check) = unless_serving {
                    self.check_not_serving(check).await?;
                }
                self.scale(deployment, *replicas, resource_version).await
            }
        }
    }

    /// One write: the lease, the deadline, the metrics.
    async fn call<T>(&mut self, call: Call, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
        let began = Instant::now();
        let result = if self.ctx.leadership.valid_for(CALL_DEADLINE) {
            within_deadline(call, request).await
        } else {
            Err(Error::NotLeader { what: call.what })
        };
        let category = result.as_ref().map_or_else(Error::category, |_| "ok");
        self.ctx.metrics.wrote(call.what, category, began.elapsed(), call.traffic);
        tracing::debug!(namespace = self.namespace, rollout = self.rollout.metadata.name, write = call.what,
            result = category, took = ?began.elapsed(), "wrote");
        self.done.wrote |= result.is_ok();
        result
    }

    /// Writes the status if it differs. The whole status is replaced, so that what is no longer in it vanishes. Gives
    /// whether it was written.
    async fn status(&mut self, status: &ModelRolloutStatus) -> Result<bool, Error> {
        if self.done.gone || !differs(self.rollout.status.as_ref(), status) {
            return Ok(false);
        }
        let mut object = ModelRollout::clone(&self.rollout);
        object.status = Some(status.clone());
        let name = self.name();
        let params = PostParams { field_manager: Some(MANAGER_STATUS.to_owned()), ..PostParams::default() };
        let api = self.rollouts();
        let result = self.call(Call::new("status"), api.replace_status(&name, &params, &object)).await;
        let Err(error) = self.took(result).await else { return Ok(true) };
        // A write without an answer may have been done all the same: then what it tells must not be lost.
        if matches!(error, Error::Deadline { .. })
            && let Lookup::Found(now) = self.ctx.stores.rollouts.get(&self.namespace, &name)
            && !differs(now.status.as_ref(), status)
        {
            self.rollout = now;
            self.done.wrote = true;
            return Ok(true);
        }
        Err(error)
    }

    async fn meta(&mut self, call: Call, patch: json_patch::Patch) -> Result<(), Error> {
        let name = self.name();
        let api = self.rollouts();
        let params = manager(MANAGER_META);
        let patch: Patch<()> = Patch::Json(patch);
        let result = self.call(call, api.patch(&name, &params, &patch)).await;
        self.took(result).await
    }

    /// Takes in the rollout that a write returned; after a conflict, the one that is there now.
    async fn took(&mut self, result: Result<ModelRollout, Error>) -> Result<(), Error> {
        match result {
            Ok(object) => {
                let object = compact(object);
                self.rollout = Arc::new(object.clone());
                let meta = &object.metadata;
                if meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
                    self.done.gone = true;
                    let uid = meta.uid.clone().unwrap_or_default();
                    self.ctx.stores.rollouts.remove_uid(&self.namespace, &self.name(), &uid);
                } else {
                    self.ctx.stores.rollouts.put(&object.metadata.clone(), object);
                }
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::Conflict { .. } | Error::Deadline { .. }) {
                    let api = self.rollouts();
                    if let Ok(Ok(object)) = timeout(CALL_DEADLINE, api.get(&self.name())).await {
                        let object = compact(object);
                        self.ctx.stores.rollouts.put(&object.metadata.clone(), object);
                    }
                }
                Err(error)
            }
        }
    }

    async fn write_ingress(&mut self, want: &IngressWant) -> Result<(), Error> {
        let object = requests::ingress(want, &self.rollout);
        let params = PostParams { field_manager: Some(MANAGER_TRAFFIC.to_owned()), ..PostParams::default() };
        let api = self.ingresses();
        let result = if want.replaces.is_none() {
            self.call(Call::traffic("create_ingress"), api.create(&params, &object)).await
        } else {
            self.call(Call::traffic("replace_ingress"), api.replace(&want.name, &params, &object)).await
        };
        self.took_ingress(&want.name, result).await
    }

    /// Writes an Ingress that spares requests and that nothing waits for: some times more if it failed, since going on
    /// without it loses some. While the API server is slow, that has waited long enough.
    async fn try_ingress(&mut self, want: &IngressWant) {
        let began = Instant::now();
        let mut next = want.clone();
        for tries_left in (0..TRIES).rev() {
            let Err(error) = self.write_ingress(&next).await else { return };
            // after a write without an answer it was asked what has become of it
            let seen = self.ctx.stores.ingresses.get(&self.namespace, &want.name);
            if seen.found().is_some_and(|seen| want.matches(seen)) {
                return;
            }
            if began.elapsed() >= CALL_DEADLINE * tries_left || matches!(error, Error::NotLeader { .. }) {
                tracing::warn!(namespace = self.namespace, ingress = want.name, %error,
                    "this Ingress could not be written; what comes next does not wait for it");
                return;
            }
            let known = seen.found().filter(|seen| want.replaces.as_ref().is_some_and(|(uid, _)| *uid == seen.uid));
            let replaces = known.map(|seen| (seen.uid.clone(), seen.resource_version.clone()));
            // what somebody has deleted meanwhile is made anew
            let old = next.replaces.take().filter(|_| !error.is_not_found());
            next.replaces = replaces.filter(|_| old.is_some()).or(old);
        }
    }

    async fn switch(&mut self, name: &str, version: Option<&str>, paths: &[PathSwitch]) -> Result<(), Error> {
        let patch: Patch<()> = Patch::Json(requests::switch(version, paths));
        let api = self.ingresses();
        let params = manager(MANAGER_TRAFFIC);
        let result = self.call(Call::traffic("switch_backend").tested(), api.patch(name, &params, &patch)).await;
        self.took_ingress(name, result).await
    }

    async fn took_ingress(&mut self, name: &str, result: Result<Ingress, Error>) -> Result<(), Error> {
        match result {
            Ok(object) => self.put_ingress(&object),
            Err(error) => {
                if matches!(error, Error::Conflict { .. } | Error::Deadline { .. }) {
                    let api = self.ingresses();
                    if let Ok(Ok(object)) = timeout(CALL_DEADLINE, api.get(name)).await {
                        self.put_ingress(&object);
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn put_ingress(&self, object: &Ingress) {
        self.ctx.stores.ingresses.put(&object.metadata, IngressSeen::from(object));
    }

    async fn delete_ingress(&mut self, name: &str, uid: &str, urgent: bool) -> Result<(), Error> {
        let Err(first) = self.try_delete(name, uid).await else { return Ok(()) };
        if !urgent || matches!(first, Error::NotLeader { .. }) {
            return Err(first);
        }
        tracing::warn!(namespace = self.namespace, ingress = name, error = %first,
            "the canary could not be deleted: taking its weight and its named users away instead");
        let api = self.ingresses();
        let patch = Patch::Merge(requests::defuse(uid));
        let params = manager(MANAGER_TRAFFIC);
        let defused = self.call(Call::traffic("defuse_canary"), api.patch(name, &params, &patch)).await;
        if let Ok(object) = &defused {
            self.put_ingress(object);
        }
        match self.try_delete(name, uid).await {
            // It gets nothing any more: the rest of the way back does not wait for its end, which is tried again.
            Err(error) if defused.is_ok() => self.leftover = Some(error),
            result => return result,
        }
        Ok(())
    }

    async fn try_delete(&mut self, name: &str, uid: &str) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api = self.ingresses();
        match self.call(Call::traffic("delete_ingress"), api.delete(name, &params)).await {
            Ok(answer) => match answer.left() {
                // somebody's finalizer keeps it for a while
                Some(object) if object.metadata.finalizers.is_some() => self.put_ingress(&object),
                _ => self.ctx.stores.ingresses.remove_uid(&self.namespace, name, uid),
            },
            Err(error) if error.is_not_found() => {
                self.done.wrote = true;
                self.ctx.stores.ingresses.remove_uid(&self.namespace, name, uid);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The fresh reads: a color that still gets traffic is never scaled down, whatever the caches say.
    async fn check_not_serving(&self, check: &ServingCheck) -> Result<(), Error> {
        let api = self.ingresses();
        for name in &check.ingresses {
            let read = within_deadline(Call::new("check_ingress"), api.get_opt(name)).await?;
            let Some(object) = read else { continue };
            self.put_ingress(&object);
            if IngressSeen::from(&object).uses(&check.service) {
                return Err(Error::StillServing { ingress: name.clone(), service: check.service.clone() });
            }
        }
        Ok(())
    }

    async fn scale(&mut self, name: &str, replicas: i32, version: &str) -> Result<(), Error> {
        let api: Api<Deployment> = Api::namespaced(self.ctx.writes.clone(), &self.namespace);
        let patch = Patch::Merge(requests::scale(version, replicas));
        let params = manager(MANAGER_SCALE);
        let scale = self.call(Call::new("scale"), api.patch_scale(name, &params, &patch)).await?;
        // the generation has moved: nothing may take the Deployment for complete before its controller has looked
        self.ctx.stores.deployments.amend(&scale.metadata, |seen| DeploymentSeen {
            desired: replicas,
            replicas_by: ReplicasBy::Operator,
            generation: seen.generation + i64::from(seen.desired != replicas),
            resource_version: scale.metadata.resource_version.clone().unwrap_or_default(),
            ..seen.clone()
        });
        Ok(())
    }

    fn name(&self) -> String {
        self.rollout.metadata.name.clone().unwrap_or_default()
    }

    fn rollouts(&self) -> Api<ModelRollout> {
        Api::namespaced(self.ctx.writes.clone(), &self.namespace)
    }

    fn ingresses(&self) -> Api<Ingress> {
        Api::namespaced(self.ctx.writes.clone(), &self.namespace)
    }
}

async fn within_deadline<T>(call: Call, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
    match timeout(CALL_DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Error::from_api(call.what, error, call.tested)),
        Err(_) => Err(Error::Deadline { what: call.what }),
    }
}

fn manager(name: &str) -> PatchParams {
    PatchParams { field_manager: Some(name.to_owned()), ..PatchParams::default() }
}

/// Whether `want` differs from what is stored, as the API stores it: a time keeps whole seconds only.
fn differs(stored: Option<&ModelRolloutStatus>, want: &ModelRolloutStatus) -> bool {
    let none = ModelRolloutStatus::default();
    let stored = stored.unwrap_or(&none);
    stored != want && serde_json::to_value(stored).ok() != serde_json::to_value(want).ok()
}
