//! Traffic is a desired state: which color is the backend, which share the target has. One provider turns shares into the
//! exact change; another dialect is another file beside `nginx.rs`. The switch of the backend is the same for all.

pub mod nginx;

use super::observed::{IngressSeen, PathSeen};
use super::plan::{Action, PathSwitch};
use super::rollout::{Dialect, Rollout};
use crate::api::Color;
use crate::api::reasons::Reason;

/// Which color the paths of the production Ingresses name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// All paths that name one of the two Services name this color's.
    One(Color),
    /// Some name blue's, some green's.
    Mixed,
    /// No path names either.
    Neither,
}

impl Backend {
    /// Whether a path names `color`'s Service.
    pub fn names(self, color: Color) -> bool {
        self == Self::Mixed || self == Self::One(color)
    }
}

/// Reads the backend of `ingresses`, taken together.
pub fn backend<'a>(rollout: &Rollout, ingresses: impl IntoIterator<Item = &'a IngressSeen>) -> Backend {
    let mut found = Backend::Neither;
    for path in ingresses.into_iter().flat_map(|ingress| &ingress.paths) {
        let Some(color) = path.service.as_deref().and_then(|service| rollout.color_of(service)) else { continue };
        found = match found {
            Backend::Neither => Backend::One(color),
            Backend::One(other) if other == color => found,
            Backend::One(_) | Backend::Mixed => Backend::Mixed,
        };
    }
    found
}

/// Whether every path that carries our traffic can be moved as the dialect needs it.
pub fn check(rollout: &Rollout, ingress: &IngressSeen) -> Result<(), (Reason, String)> {
    if ingress.default_backend.as_deref().is_some_and(|service| rollout.color_of(service).is_some()) {
        let message = format!(
            "spec.defaultBackend of Ingress {} cannot be switched: name the Service in a rule with host and path",
            ingress.name
        );
        return Err((Reason::UnsupportedPath, message));
    }
    match rollout.dialect {
        Dialect::Nginx => nginx::check(rollout, ingress),
        Dialect::Plain => Ok(()),
    }
}

/// The paths of `ingress` whose backend is the Service of `color`.
fn paths_of<'a>(rollout: &'a Rollout, ingress: &'a IngressSeen, color: Color) -> impl Iterator<Item = &'a PathSeen> {
    let service = rollout.side(color).service.as_str();
    ingress.paths.iter().filter(move |path| path.service.as_deref() == Some(service))
}

/// The writes that move every path of `ingresses` from the Service of `from` to that of the other color: one for each
/// Ingress that has such a path. `guarded`: the object must be just as it was read (a raise); otherwise only host, path and
/// Service are tested (a rollback).
pub fn switch(rollout: &Rollout, ingresses: &[&IngressSeen], from: Color, guarded: bool) -> Vec<Action> {
    let (old, new) = (&rollout.side(from).service, &rollout.side(from.other()).service);
    let mut writes = Vec::new();
    for ingress in ingresses {
        let paths: Vec<PathSwitch> = paths_of(rollout, ingress, from)
            .map(|path| PathSwitch {
                rule: path.rule,
                index: path.index,
                host: path.host.clone(),
                path: path.path.clone(),
                from: old.clone(),
                to: new.clone(),
            })
            .collect();
        if !paths.is_empty() {
            let resource_version = guarded.then(|| ingress.resource_version.clone());
            writes.push(Action::SwitchBackend { ingress: ingress.name.clone(), resource_version, paths });
        }
    }
    writes
}
