//! The nginx annotation dialect: a share of traffic is the weight of a second, "canary" Ingress of our own with the same
//! host and path; the switch is a change of the production Ingress' backend.
//!
//! Two traps shape this file. ingress-nginx answers 503 while it reloads if the Service that just lost its traffic is
//! named nowhere any more (kubernetes/ingress-nginx#4469, #6557): the anchor Ingress keeps it named. And a Service that
//! is an older Ingress' backend silently gets 0 % as a canary (#9458): the anchor never names the canary's Service while
//! the canary exists.

use crate::api::Color;
use crate::api::names;
use crate::api::reasons::Reason;
use crate::engine::observed::{IngressSeen, PathSeen};
use crate::engine::plan::{Action, IngressWant, PathSwitch, PathWant};
use crate::engine::rollout::Rollout;

/// Characters that may stand in a path that we copy: no others, since Ingress paths have been a way to inject
/// configuration into controllers (CVE-2026-24512).
const PATH_EXTRA: &str = "/._~%-";

/// Whether every path that carries our traffic can be carried to a canary.
pub fn check(rollout: &Rollout, ingress: &IngressSeen) -> Result<(), (Reason, String)> {
    let ours = |service: Option<&str>| service.is_some_and(|service| rollout.color_of(service).is_some());
    if ours(ingress.default_backend.as_deref()) {
        return Err((
            Reason::UnsupportedPath,
            format!(
                "spec.defaultBackend of Ingress {} cannot have a canary: name the Service in a rule with host and path",
                ingress.name
            ),
        ));
    }
    for path in ingress.paths.iter().filter(|path| ours(path.service.as_deref())) {
        let text = path.path.as_deref().unwrap_or_default();
        let place =
            format!("path \"{text}\" of host \"{}\" in Ingress {}", path.host.as_deref().unwrap_or("*"), ingress.name);
        if !matches!(path.path_type.as_str(), "Exact" | "Prefix") {
            return Err((
                Reason::UnsupportedPath,
                format!("{place} is of type {}: use Prefix or Exact", path.path_type),
            ));
        }
        if !text.starts_with('/') || !text.chars().all(|c| c.is_ascii_alphanumeric() || PATH_EXTRA.contains(c)) {
            return Err((
                Reason::UnsupportedPath,
                format!("{place} has characters other than letters, digits and {PATH_EXTRA}"),
            ));
        }
        if path.port.is_none() {
            return Err((Reason::UnsupportedPath, format!("{place} names no port of its Service")));
        }
    }
    Ok(())
}

/// The paths of `ingress` whose backend is the Service of `color`.
fn paths_of<'a>(rollout: &'a Rollout, ingress: &'a IngressSeen, color: Color) -> impl Iterator<Item = &'a PathSeen> {
    let service = rollout.side(color).service.as_str();
    ingress.paths.iter().filter(move |path| path.service.as_deref() == Some(service))
}

/// The canary Ingress that gives `to` the share `weight` of all that the Ingress sends to `from`.
pub fn canary(
    rollout: &Rollout,
    main: &IngressSeen,
    there: Option<&IngressSeen>,
    from: Color,
    weight: i32,
) -> IngressWant {
    let service = &rollout.side(from.other()).service;
    let mut annotations = class_annotation(main);
    annotations.push((names::NGINX_CANARY.to_owned(), "true".to_owned()));
    annotations.push((names::NGINX_CANARY_WEIGHT.to_owned(), weight.to_string()));
    let paths = paths_of(rollout, main, from)
        .filter_map(|path| {
            Some(PathWant {
                host: path.host.clone(),
                path: path.path.clone(),
                path_type: path.path_type.clone(),
                service: service.clone(),
                port: path.port.clone()?,
            })
        })
        .collect();
    IngressWant {
        name: names::canary_name(&rollout.name),
        replaces: there.map(identity),
        class: main.class.clone(),
        annotations,
        paths,
        tls: main.tls.clone(),
        required: true,
    }
}

/// The anchor Ingress that keeps the Services of `colors` named while the backend is switched. The first is the outgoing
/// one. Its host ends in `.invalid` (RFC 2606), so no request ever matches it.
pub fn anchor(rollout: &Rollout, main: &IngressSeen, there: Option<&IngressSeen>, colors: &[Color]) -> IngressWant {
    let port = main
        .paths
        .iter()
        .find(|path| path.service.as_deref().is_some_and(|service| rollout.color_of(service).is_some()))
        .and_then(|path| path.port.clone());
    let paths = colors
        .iter()
        .zip(["/", "/live"])
        .filter_map(|(color, path)| {
            Some(PathWant {
                host: Some(format!("{}.anchor.invalid", rollout.uid)),
                path: Some(path.to_owned()),
                path_type: "Prefix".to_owned(),
                service: rollout.side(*color).service.clone(),
                port: port.clone()?,
            })
        })
        .collect();
    IngressWant {
        name: names::anchor_name(&rollout.name),
        replaces: there.map(identity),
        class: main.class.clone(),
        annotations: class_annotation(main),
        paths,
        tls: Vec::new(),
        required: true,
    }
}

/// The write that moves every path of `main` from the Service of `from` to that of the other color. `guarded`: the
/// object must be just as it was read (a raise); otherwise only host, path and Service are tested (a rollback).
pub fn switch(rollout: &Rollout, main: &IngressSeen, from: Color, guarded: bool) -> Action {
    let to = &rollout.side(from.other()).service;
    let paths = paths_of(rollout, main, from)
        .map(|path| PathSwitch {
            rule: path.rule,
            index: path.index,
            host: path.host.clone(),
            path: path.path.clone(),
            from: rollout.side(from).service.clone(),
            to: to.clone(),
        })
        .collect();
    Action::SwitchBackend {
        ingress: main.name.clone(),
        resource_version: guarded.then(|| main.resource_version.clone()),
        paths,
    }
}

/// The write that takes the canary away: weight 0 would leave sticky and named users on it.
pub fn remove(seen: &IngressSeen, urgent: bool) -> Action {
    Action::DeleteIngress { name: seen.name.clone(), uid: seen.uid.clone(), urgent }
}

/// The weight that `canary` has, as the controller reads it: anything but a whole number is 0.
pub fn weight(canary: &IngressSeen) -> i32 {
    canary.annotations.get(names::NGINX_CANARY_WEIGHT).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn identity(seen: &IngressSeen) -> (String, String) {
    (seen.uid.clone(), seen.resource_version.clone())
}

fn class_annotation(main: &IngressSeen) -> Vec<(String, String)> {
    let key = names::ANNOTATION_INGRESS_CLASS;
    main.annotations.get(key).map(|class| (key.to_owned(), class.clone())).into_iter().collect()
}
