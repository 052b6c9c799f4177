//! The Jobs that judge: making them from a PodTemplate, and ending them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions, PropagationPolicy};

use super::{Call, Turn, within_deadline};
use crate::api::names::MANAGER_JOBS;
use crate::engine::observed::JobSeen;
use crate::engine::plan::JobWant;
use crate::shell::convert::JobRead;
use crate::shell::error::Error;
use crate::shell::requests;

/// Why Jobs could not be made lately, by namespace and name.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<(String, String), (String, Timestamp)>>);

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), (String, Timestamp)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a namespace.
    pub fn of(&self, namespace: &str) -> BTreeMap<String, (String, Timestamp)> {
        let all = self.lock();
        let here = all.iter().filter(|((place, _), _)| place == namespace);
        here.map(|((_, name), why)| (name.clone(), why.clone())).collect()
    }

    fn put(&self, namespace: &str, name: &str, why: Option<(String, Timestamp)>) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut all = self.lock();
        match why {
            Some(why) => drop(all.insert(key, why)),
            None => drop(all.remove(&key)),
        }
        // an attempt that is over asks no more: what is old helps nobody
        if let Some(newest) = all.values().map(|(_, at)| *at).max() {
            all.retain(|_, (_, at)| newest.duration_since(*at).as_secs() < 3600);
        }
    }
}

impl Turn<'_> {
    /// Makes a Job. What stands in the way is kept to be told, and stops nothing else.
    pub(super) async fn create_job(&mut self, want: &JobWant) {
        let result = self.try_create_job(want).await;
        let now = self.ctx.clock.precise();
        let why = result.err().map(|error| {
            tracing::warn!(namespace = self.namespace, job = want.name, %error, "this Job could not be made");
            (why(&error), now)
        });
        self.ctx.refusals.put(&self.namespace, &want.name, why);
        // either way there is something new to plan with
        self.done.wrote = true;
    }

    async fn try_create_job(&mut self, want: &JobWant) -> Result<(), Error> {
        let resource = ApiResource::erase::<PodTemplate>(&());
        let templates: Api<DynamicObject> = Api::namespaced_with(self.ctx.writes.clone(), &self.namespace, &resource);
        let template = within_deadline(Call::new("read_pod_template"), templates.get(&want.template)).await?;
        let job = requests::job(want, template.data.get("template").unwrap_or(&serde_json::Value::Null), &self.rollout);
        let params = PostParams { field_manager: Some(MANAGER_JOBS.to_owned()), ..PostParams::default() };
        let api = self.jobs();
        let resource = ApiResource::erase::<Job>(&());
        let writes: Api<DynamicObject> = Api::namespaced_with(self.ctx.writes.clone(), &self.namespace, &resource);
        let (meta, seen) = match self.call(Call::new("create_job"), writes.create(&params, &job)).await {
            // it was made by an earlier pass whose answer was lost, or it is somebody else's
            Err(error @ Error::Conflict { .. }) => {
                let there = within_deadline(Call::new("read_job"), api.get(&want.name)).await?;
                let owners = there.metadata.owner_references.iter().flatten();
                if !owners.into_iter().any(|owner| owner.uid == self.uid()) {
                    return Err(error);
                }
                let seen = JobSeen::from(&there);
                (there.metadata, seen)
            }
            Err(error) => return Err(error),
            Ok(made) => {
                let uid = made.metadata.uid.clone().unwrap_or_default();
                (made.metadata, JobSeen { uid, outcome: None })
            }
        };
        self.ctx.dynamic.put_job(&self.namespace, self.uid(), &meta, seen);
        Ok(())
    }

    /// Ends a Job and its Pods.
    pub(super) async fn delete_job(&mut self, name: &str, uid: &str) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let api = self.jobs();
        match self.call(Call::new("delete_job"), api.delete(name, &params)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                self.ctx.dynamic.remove_job(&self.namespace, self.uid(), name, uid);
                Ok(())
            }
        }
    }

    fn uid(&self) -> &str {
        self.rollout.metadata.uid.as_deref().unwrap_or_default()
    }

    fn jobs(&self) -> Api<JobRead> {
        Api::namespaced(self.ctx.writes.clone(), &self.namespace)
    }
}

/// What the API server said, for the user: it is about objects of theirs.
fn why(error: &Error) -> String {
    match error {
        Error::Api { source, .. } => match &**source {
            kube::Error::Api(status) => status.message.chars().filter(|it| !it.is_control()).take(300).collect(),
            _ => "the API server cannot be reached".to_owned(),
        },
        other => other.to_string(),
    }
}
