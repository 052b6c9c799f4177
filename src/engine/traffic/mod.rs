//! Traffic is a desired state: which color is the backend, which share the target has. One provider turns it into the
//! exact change; another dialect is another file beside `nginx.rs`.

pub mod nginx;

use super::observed::IngressSeen;
use super::rollout::Rollout;
use crate::api::Color;

/// Which color the paths of the production Ingress name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// All paths that name one of the two Services name this color's.
    One(Color),
    /// Some name blue's, some green's.
    Mixed,
    /// No path names either.
    Neither,
}

/// Reads the backend of `ingress`.
pub fn backend(rollout: &Rollout, ingress: &IngressSeen) -> Backend {
    let mut found = Backend::Neither;
    for path in &ingress.paths {
        let Some(color) = path.service.as_deref().and_then(|service| rollout.color_of(service)) else { continue };
        found = match found {
            Backend::Neither => Backend::One(color),
            Backend::One(other) if other == color => found,
            Backend::One(_) | Backend::Mixed => Backend::Mixed,
        };
    }
    found
}
