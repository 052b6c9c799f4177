//! Which rollouts a change of an object concerns: those whose facts may differ by it. Pure; says nothing of what to do.

use super::stores::Store;
use crate::api::names::{anchor_name, canary_name};
use crate::api::{ColorSpec, ModelRollout};
use crate::engine::observed::{DeploymentSeen, IngressSeen, ServiceSeen};

/// An object before and after a change; none: it was not there, or is gone.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a, T> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Before.
    pub old: Option<&'a T>,
    /// After.
    pub new: Option<&'a T>,
}

impl<'a, T> Changed<'a, T> {
    /// What is known of it, before and after.
    fn states(&self) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.old.into_iter().chain(self.new)
    }

    /// Whether `part` of it is as it was.
    fn keeps<P: PartialEq>(&self, part: impl Fn(&'a T) -> P) -> bool {
        self.old.map(&part) == self.new.map(&part)
    }
}

/// A Deployment: whoever names it; and whoever's Service selects its Pods, if that is new or no longer so.
pub fn deployment(rollout: &ModelRollout, services: &Store<ServiceSeen>, change: &Changed<'_, DeploymentSeen>) -> bool {
    let selected = |color: &ColorSpec| {
        let service = services.get(change.namespace, &color.service_name);
        service.found().is_some_and(|service| change.states().any(|seen| service.selects(&seen.labels)))
    };
    names_deployment(rollout, change.name)
        || (!change.keeps(|seen| &seen.labels) && colors(rollout).into_iter().any(selected))
}

/// A Service: whoever names it.
pub fn service(rollout: &ModelRollout, change: &Changed<'_, ServiceSeen>) -> bool {
    names_service(rollout, change.name)
}

/// An Ingress: whoever names it or has it for a canary or anchor; and, if what it does is new, whoever's Service it uses,
/// and everybody if it is a canary.
pub fn ingress(rollout: &ModelRollout, change: &Changed<'_, IngressSeen>) -> bool {
    let affects =
        |seen: &IngressSeen| seen.is_canary() || colors(rollout).iter().any(|color| seen.uses(&color.service_name));
    refers_to_ingress(rollout, change.name) || (!change.keeps(effect) && change.states().any(affects))
}

/// An autoscaler, by the Deployment that it scales: whoever names that.
pub fn autoscaler(rollout: &ModelRollout, change: &Changed<'_, Option<String>>) -> bool {
    change.states().flatten().any(|name| names_deployment(rollout, name))
}

/// Whether `other` names an object that `me` names too.
pub fn shares(me: &ModelRollout, other: &ModelRollout) -> bool {
    colors(me)
        .iter()
        .any(|color| names_deployment(other, &color.deployment_name) || names_service(other, &color.service_name))
        || me.spec.traffic.ingress.names.iter().any(|name| refers_to_ingress(other, name))
}

/// What an Ingress does to the traffic of others. Not its version, its status or who wrote it.
fn effect(seen: &IngressSeen) -> impl PartialEq + use<'_> {
    let who = (&seen.uid, seen.deleting, &seen.owner_uid);
    (who, seen.is_canary(), &seen.class, &seen.default_backend, &seen.paths)
}

fn colors(rollout: &ModelRollout) -> [&ColorSpec; 2] {
    [&rollout.spec.blue, &rollout.spec.green]
}

fn names_deployment(rollout: &ModelRollout, name: &str) -> bool {
    colors(rollout).iter().any(|color| color.deployment_name == name)
}

fn names_service(rollout: &ModelRollout, name: &str) -> bool {
    colors(rollout).iter().any(|color| color.service_name == name)
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
    use crate::api::names::NGINX_CANARY;
    use crate::shell::testing::{ingress as seen_ingress, rollout, store};

    fn change<'a, T>(name: &'a str, old: Option<&'a T>, new: Option<&'a T>) -> Changed<'a, T> {
        Changed { namespace: "ml", name, old, new }
    }

    #[test]
    fn a_rollout_refers_to_what_it_names_and_to_what_is_named_after_it() {
        let bot = rollout("bot");
        assert!(names_deployment(&bot, "bot-green") && !names_deployment(&bot, "bot"));
        assert!(names_service(&bot, "bot-blue") && !names_service(&bot, "other"));
        assert!(["bot", "bot-canary", "bot-anchor"].iter().all(|name| refers_to_ingress(&bot, name)));
        assert!(!refers_to_ingress(&bot, "other-canary"));
        assert!(shares(&bot, &rollout("second")));
    }

    #[test]
    fn a_deployment_concerns_those_who_select_it_when_its_labels_change() {
        let bot = rollout("bot");
        let labels = |app: &str| [("app".to_owned(), app.to_owned())].into();
        let services = store("bot-blue", ServiceSeen { selector: labels("bot"), ..ServiceSeen::default() });
        let seen = |app: &str, ready| DeploymentSeen { labels: labels(app), ready, ..DeploymentSeen::default() };
        let (bots, busy, others) = (seen("bot", 1), seen("bot", 2), seen("other", 1));
        let concerned = |name, old, new| deployment(&bot, &services, &change(name, old, new));
        assert!(concerned("stray", None, Some(&bots)), "new");
        assert!(concerned("stray", Some(&bots), Some(&others)), "no longer selected");
        assert!(concerned("stray", Some(&bots), None), "gone");
        assert!(!concerned("stray", Some(&bots), Some(&busy)), "selected as before");
        assert!(!concerned("stray", None, Some(&others)), "never selected");
        assert!(concerned("bot-blue", Some(&bots), Some(&busy)), "named");
    }

    #[test]
    fn an_ingress_concerns_those_whose_services_it_uses_or_used() {
        let bot = rollout("bot");
        let (uses, other) = (seen_ingress("x", "bot-green"), seen_ingress("x", "other"));
        let moved = IngressSeen { resource_version: "9".into(), managers: vec!["traefik".into()], ..uses.clone() };
        let concerned = |name, old, new| ingress(&bot, &change(name, old, new));
        assert!(concerned("x", None, Some(&uses)) && concerned("x", Some(&uses), None));
        assert!(concerned("x", Some(&uses), Some(&other)) && concerned("x", Some(&other), Some(&uses)));
        assert!(!concerned("x", None, Some(&other)));
        assert!(!concerned("x", Some(&uses), Some(&moved)), "only its status was written");
        assert!(concerned("bot", Some(&uses), Some(&moved)), "named");
    }

    #[test]
    fn a_canary_concerns_everybody() {
        let bot = rollout("bot");
        let plain = seen_ingress("x", "other");
        let canary =
            IngressSeen { annotations: [(NGINX_CANARY.to_owned(), "true".to_owned())].into(), ..plain.clone() };
        let concerned = |old, new| ingress(&bot, &change("x", old, new));
        assert!(concerned(None, Some(&canary)) && concerned(Some(&canary), None));
        assert!(concerned(Some(&canary), Some(&plain)), "it was one");
    }

    #[test]
    fn an_autoscaler_concerns_those_who_name_what_it_scales() {
        let bot = rollout("bot");
        let (ours, other) = (Some("bot-blue".to_owned()), Some("other".to_owned()));
        let concerned = |old, new| autoscaler(&bot, &change("hpa", old, new));
        assert!(concerned(None, Some(&ours)) && concerned(Some(&ours), Some(&other)));
        assert!(!concerned(None, Some(&other)) && !concerned(None, Some(&None)));
    }
}
