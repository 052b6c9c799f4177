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
use crate::engine::plan::{IngressWant, PathWant};
use crate::engine::preflight::place;
use crate::engine::rollout::{Rollout, Users};

/// Characters that may stand in a path that we copy: no others, since Ingress paths have been a way to inject
/// configuration into controllers (CVE-2026-24512).
const PATH_EXTRA: &str = "/._~%-";

/// Whether every path that carries our traffic can be carried to a canary.
pub fn check(rollout: &Rollout, ingress: &IngressSeen) -> Result<(), (Reason, String)> {
    let ours = |path: &&PathSeen| path.service.as_deref().is_some_and(|service| rollout.color_of(service).is_some());
    for path in ingress.paths.iter().filter(ours) {
        let text = path.path.as_deref().unwrap_or_default();
        let place = place(ingress, path);
        let unsupported = |what: String| Err((Reason::UnsupportedPath, format!("{place} {what}")));
        if !matches!(path.path_type.as_str(), "Exact" | "Prefix") {
            return unsupported(format!("is of type {}: use Prefix or Exact", path.path_type));
        }
        if !text.starts_with('/') || !text.chars().all(|c| c.is_ascii_alphanumeric() || PATH_EXTRA.contains(c)) {
            return unsupported(format!("has characters other than letters, digits and {PATH_EXTRA}"));
        }
        if path.port.is_none() {
            return unsupported("names no port of its Service".to_owned());
        }
    }
    Ok(())
}

/// The share of traffic that a canary gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    /// The color that gets it.
    pub to: Color,
    /// In percent.
    pub weight: i32,
    /// Users who get `to` whatever the weight.
    pub users: Option<&'a Users>,
}

/// The canary Ingress that gives `share` of all that `mains` send to the two Services.
///
/// Paths that the switch has moved already stay in it: an Ingress that is half switched needs no other canary.
pub fn canary(rollout: &Rollout, mains: &[&IngressSeen], there: Option<&IngressSeen>, share: Share<'_>) -> IngressWant {
    let service = &rollout.side(share.to).service;
    let mut annotations = class_annotation(mains);
    annotations.push((names::NGINX_CANARY.to_owned(), "true".to_owned()));
    if let Some(users) = share.users {
        annotations.push((names::NGINX_CANARY_HEADER.to_owned(), users.header.clone()));
        annotations.push((names::NGINX_CANARY_HEADER_PATTERN.to_owned(), pattern(&users.values)));
    }
    annotations.push((names::NGINX_CANARY_WEIGHT.to_owned(), share.weight.to_string()));
    let ours = |path: &&PathSeen| path.service.as_deref().is_some_and(|service| rollout.color_of(service).is_some());
    let paths = mains
        .iter()
        .flat_map(|main| main.paths.iter().filter(ours))
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
    let mut tls = Vec::new();
    for entry in mains.iter().flat_map(|main| &main.tls) {
        if !tls.contains(entry) {
            tls.push(entry.clone());
        }
    }
    IngressWant {
        name: names::canary_name(&rollout.name),
        replaces: there.map(identity),
        class: class(mains),
        annotations,
        paths,
        tls,
        required: true,
    }
}

/// A pattern that matches just these values. The schema allows letters, digits and `. _ ~ : -`: of these only the dot has a
/// meaning in PCRE (ingress-nginx) and RE2 (Traefik).
fn pattern(values: &[String]) -> String {
    let escaped: Vec<String> = values.iter().map(|value| value.replace('.', "\\.")).collect();
    format!("^({})$", escaped.join("|"))
}

/// The anchor Ingress that keeps the Services of `colors` named while the backend is switched. The first is the outgoing
/// one. Its host ends in `.invalid` (RFC 2606), so no request ever matches it.
pub fn anchor(rollout: &Rollout, mains: &[&IngressSeen], there: Option<&IngressSeen>, colors: &[Color]) -> IngressWant {
    let port = mains
        .iter()
        .flat_map(|main| &main.paths)
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
        class: class(mains),
        annotations: class_annotation(mains),
        paths,
        tls: Vec::new(),
        required: true,
    }
}

/// The weight that `canary` has, as the controller reads it: anything but a whole number is 0.
pub fn weight(canary: &IngressSeen) -> i32 {
    canary.annotations.get(names::NGINX_CANARY_WEIGHT).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn identity(seen: &IngressSeen) -> (String, String) {
    (seen.uid.clone(), seen.resource_version.clone())
}

/// All named Ingresses are of one class (`preflight::backends`).
fn class(mains: &[&IngressSeen]) -> Option<String> {
    mains.first().and_then(|main| main.class.clone())
}

fn class_annotation(mains: &[&IngressSeen]) -> Vec<(String, String)> {
    let key = names::ANNOTATION_INGRESS_CLASS;
    mains
        .first()
        .and_then(|main| main.annotations.get(key))
        .map(|class| (key.to_owned(), class.clone()))
        .into_iter()
        .collect()
}
