//! From the caches to what the engine sees. Reads memory only: no request, no write, no decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::Context;
use super::stores::Stores;
use crate::api::names::{anchor_name, canary_name};
use crate::api::{ColorSpec, ModelRollout};
use crate::engine;
use crate::engine::observed::{ByColor, ColorSeen, IngressSeen, Labels, Lookup, Observed, ServiceSeen};

/// What is known of everything that `rollout` refers to.
pub fn observe(ctx: &Context, rollout: &ModelRollout) -> Observed {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let uid = rollout.metadata.uid.as_deref().unwrap_or_default();
    let ingress = |name: &str| owned(ctx.stores.ingresses.get(namespace, name));
    let rollouts = ctx.stores.rollouts.list(namespace);
    Observed {
        colors: ByColor {
            blue: color(ctx, namespace, &rollout.spec.blue),
            green: color(ctx, namespace, &rollout.spec.green),
        },
        ingresses: rollout.spec.traffic.ingress.names.iter().map(|name| (name.clone(), ingress(name))).collect(),
        others: ctx.stores.ingresses.pick(namespace, |_, seen| is_other(rollout, seen).then(|| seen.clone())),
        canary: ingress(&canary_name(name)),
        anchor: ingress(&anchor_name(name)),
        readings: ctx.pollers.readings(uid),
        jobs: ctx.dynamic.jobs(namespace, uid),
        job_templates: job_templates(ctx, namespace, rollout),
        job_refusals: ctx.refusals.of(namespace),
        elder: engine::elder(rollout, rollouts.iter().map(|other| &**other)),
        settle: ctx.settle,
    }
}

/// Whether an Ingress is neither ours nor named and yet has a part in this: it uses one of our Services, or is a canary.
fn is_other(rollout: &ModelRollout, seen: &IngressSeen) -> bool {
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let uid = rollout.metadata.uid.as_deref().unwrap_or_default();
    let ours = seen.is_owned_by(uid) || seen.name == canary_name(name) || seen.name == anchor_name(name);
    let named = rollout.spec.traffic.ingress.names.contains(&seen.name);
    let uses = |color: &ColorSpec| seen.uses(&color.service_name);
    !ours && !named && (seen.is_canary() || uses(&rollout.spec.blue) || uses(&rollout.spec.green))
}

fn color(ctx: &Context, namespace: &str, spec: &ColorSpec) -> ColorSeen {
    let deployment = owned(ctx.stores.deployments.get(namespace, &spec.deployment_name));
    let pods = match &deployment {
        Lookup::Found(seen) => ctx.dynamic.pods(namespace, &seen.selector),
        Lookup::Missing => Lookup::Unreadable("there is no Deployment".to_owned()),
        Lookup::Unreadable(why) => Lookup::Unreadable(why.clone()),
    };
    let prompt = spec.prompt_template.as_ref();
    let service = owned(ctx.stores.services.get(namespace, &spec.service_name));
    ColorSeen {
        selected: service.found().map(|service| selected(&ctx.stores, namespace, service)).unwrap_or_default(),
        autoscaler: autoscaler(&ctx.stores, namespace, &spec.deployment_name),
        deployment,
        service,
        pods,
        endpoints: ctx.dynamic.endpoints(namespace, &spec.service_name),
        prompt: prompt.map_or(Lookup::Missing, |prompt| ctx.dynamic.prompt(namespace, &prompt.config_map_name)),
    }
}

/// The PodTemplates of its `job` gates.
fn job_templates(ctx: &Context, namespace: &str, rollout: &ModelRollout) -> BTreeMap<String, Lookup<Labels>> {
    let names = rollout.spec.gates.iter().filter_map(|gate| gate.job.as_ref()).map(|job| &job.pod_template_name);
    names.map(|name| (name.clone(), ctx.dynamic.job_template(namespace, name))).collect()
}

/// Names of the Deployments whose Pods `service` selects.
fn selected(stores: &Stores, namespace: &str, service: &ServiceSeen) -> BTreeSet<String> {
    stores.deployments.pick(namespace, |name, seen| service.selects(&seen.labels).then(|| name.to_owned()))
}

/// The autoscaler of a Deployment; of several the first by name.
fn autoscaler(stores: &Stores, namespace: &str, deployment: &str) -> Option<String> {
    let scales = |name: &str, scaled: &Option<String>| (scaled.as_deref() == Some(deployment)).then(|| name.to_owned());
    stores.autoscalers.pick::<_, Vec<_>>(namespace, scales).into_iter().next()
}

fn owned<T: Clone>(lookup: Lookup<Arc<T>>) -> Lookup<T> {
    match lookup {
        Lookup::Found(value) => Lookup::Found(Arc::unwrap_or_clone(value)),
        Lookup::Missing => Lookup::Missing,
        Lookup::Unreadable(why) => Lookup::Unreadable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::NGINX_CANARY;
    use crate::shell::testing::{ingress, rollout};

    #[test]
    fn others_are_neither_named_nor_ours() {
        let bot = rollout("bot");
        assert!(is_other(&bot, &ingress("admin", "bot-green")));
        assert!(!is_other(&bot, &ingress("admin", "elsewhere")));
        for ours in ["bot", "bot-canary", "bot-anchor"] {
            assert!(!is_other(&bot, &ingress(ours, "bot-green")), "{ours}");
        }
        let owned = IngressSeen { owner_uid: Some("uid-bot".into()), ..ingress("renamed", "bot-green") };
        assert!(!is_other(&bot, &owned));
        let annotations = [(NGINX_CANARY.to_owned(), "true".to_owned())].into();
        assert!(is_other(&bot, &IngressSeen { annotations, ..ingress("foreign", "elsewhere") }));
    }

    #[test]
    fn an_autoscaler_is_found_by_what_it_scales() {
        let mut stores = Stores::new(&["ml".to_owned()]);
        stores.autoscalers = crate::shell::testing::store("hpa", Some("bot-blue".to_owned()));
        assert_eq!(autoscaler(&stores, "ml", "bot-blue").as_deref(), Some("hpa"));
        assert_eq!(autoscaler(&stores, "ml", "bot-green"), None);
    }
}
