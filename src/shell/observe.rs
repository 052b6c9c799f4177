//! From the caches to what the engine sees. Reads memory only: no request, no write, no decision.

use std::sync::Arc;

use super::context::Context;
use crate::api::names::{anchor_name, canary_name};
use crate::api::{ColorSpec, ModelRollout};
use crate::engine;
use crate::engine::observed::{ByColor, ColorSeen, Lookup, Observed};

/// What is known of everything that `rollout` refers to.
pub fn observe(ctx: &Context, rollout: &ModelRollout) -> Observed {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let uid = rollout.metadata.uid.as_deref().unwrap_or_default();
    let ingress = |name: &str| owned(ctx.stores.ingresses.get(namespace, name));
    let others = ctx.stores.rollouts.list(namespace);
    Observed {
        colors: ByColor {
            blue: color(ctx, namespace, &rollout.spec.blue),
            green: color(ctx, namespace, &rollout.spec.green),
        },
        ingress: rollout.spec.traffic.ingress.names.first().map_or(Lookup::Missing, |name| ingress(name)),
        canary: ingress(&canary_name(name)),
        anchor: ingress(&anchor_name(name)),
        readings: ctx.pollers.readings(uid),
        elder: engine::elder(rollout, others.iter().map(|other| &**other)),
        settle: ctx.settle,
    }
}

fn color(ctx: &Context, namespace: &str, spec: &ColorSpec) -> ColorSeen {
    let deployment = owned(ctx.stores.deployments.get(namespace, &spec.deployment_name));
    let pods = match &deployment {
        Lookup::Found(seen) => ctx.dynamic.pods(namespace, &seen.selector),
        Lookup::Missing => Lookup::Unreadable("there is no Deployment".to_owned()),
        Lookup::Unreadable(why) => Lookup::Unreadable(why.clone()),
    };
    let prompt = spec.prompt_template.as_ref();
    ColorSeen {
        deployment,
        service: owned(ctx.stores.services.get(namespace, &spec.service_name)),
        pods,
        endpoints: ctx.dynamic.endpoints(namespace, &spec.service_name),
        prompt: prompt.map_or(Lookup::Missing, |prompt| ctx.dynamic.prompt(namespace, &prompt.config_map_name)),
    }
}

fn owned<T: Clone>(lookup: Lookup<Arc<T>>) -> Lookup<T> {
    match lookup {
        Lookup::Found(value) => Lookup::Found(Arc::unwrap_or_clone(value)),
        Lookup::Missing => Lookup::Missing,
        Lookup::Unreadable(why) => Lookup::Unreadable(why),
    }
}
