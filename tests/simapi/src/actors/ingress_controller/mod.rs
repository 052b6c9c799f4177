//! An ingress controller of the nginx annotation dialect, with the time that it takes to notice and with its traps.
//!
//! Two flavors: ingress-nginx ([`Flavor::IngressNginx`]), as its `controller.go` and `balancer.lua` are, and Traefik's
//! provider of the same annotations ([`Flavor::Traefik`]). One value is one replica: replicas are independent, so several are
//! several values with seeds of their own.
//!
//! Not modeled: session affinity, rewrites and regular expressions in paths, `spec.defaultBackend`, TLS, the admission webhook,
//! retries on another Pod.

mod nginx;
mod nginx_config;
mod objects;
mod tables;
mod traefik;

use std::sync::Arc;

use serde_json::Value;

use self::nginx::Nginx;
use self::traefik::Traefik;

/// Whose behavior it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// kubernetes/ingress-nginx, as it was last released.
    IngressNginx,
    /// Traefik 3.7 with `kubernetesIngressNGINX`.
    Traefik,
}

/// The objects that a controller reads, as its caches hold them at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// `networking.k8s.io/v1` Ingresses.
    pub ingresses: Vec<Arc<Value>>,
    /// `v1` Services.
    pub services: Vec<Arc<Value>>,
    /// `discovery.k8s.io/v1` EndpointSlices.
    pub slices: Vec<Arc<Value>>,
}

/// What of a request decides where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// In lower case, without a port.
    pub host: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// Names and values; names in any case.
    pub headers: &'a [(&'a str, &'a str)],
    /// Names and values.
    pub cookies: &'a [(&'a str, &'a str)],
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    /// To a Pod. Whether that still listens is another question.
    Pod {
        /// The Service that it was chosen for.
        service: Arc<str>,
        /// The name of the Pod.
        pod: Arc<str>,
    },
    /// The controller answers itself.
    Failed {
        /// The HTTP status.
        status: u16,
        /// What is missing.
        why: &'static str,
    },
}

/// One replica of a controller with its data plane.
#[derive(Debug)]
pub struct IngressController(Plane);

#[derive(Debug)]
enum Plane {
    Nginx(Box<Nginx>),
    Traefik(Box<Traefik>),
}

impl IngressController {
    /// One that has seen nothing yet and serves the class `nginx`. Its timers are drawn from `seed`.
    pub fn new(flavor: Flavor, seed: u64) -> Self {
        Self::of_class(flavor, "nginx", seed)
    }

    /// One that serves Ingresses of `class`, named by field or annotation, and those that name none.
    pub fn of_class(flavor: Flavor, class: &str, seed: u64) -> Self {
        Self(match flavor {
            Flavor::IngressNginx => Plane::Nginx(Box::new(Nginx::new(class, seed))),
            Flavor::Traefik => Plane::Traefik(Box::new(Traefik::new(class, seed))),
        })
    }

    /// Something changed: the controller notices, and syncs when its rate limiter lets it; then it uses the newest snapshot.
    /// The first one is in force at once, as of a controller that was there before.
    pub fn changed(&mut self, objects: Snapshot, now_ms: u64) {
        match &mut self.0 {
            Plane::Nginx(nginx) => nginx.changed(objects, now_ms),
            Plane::Traefik(traefik) => traefik.changed(objects, now_ms),
        }
    }

    /// When it next does something by itself (a sync, a worker's timer, the end of a reload). None: what it knows is in
    /// force everywhere.
    pub fn wake(&self) -> Option<u64> {
        match &self.0 {
            Plane::Nginx(nginx) => nginx.wake(),
            Plane::Traefik(traefik) => traefik.wake(),
        }
    }

    /// Does all that is due up to `now_ms`.
    pub fn advance(&mut self, now_ms: u64) {
        match &mut self.0 {
            Plane::Nginx(nginx) => nginx.advance(now_ms),
            Plane::Traefik(traefik) => traefik.advance(now_ms),
        }
    }

    /// Where a request goes that comes at `now_ms`.
    pub fn route(&mut self, request: &Request<'_>, now_ms: u64) -> Routed {
        match &mut self.0 {
            Plane::Nginx(nginx) => nginx.route(request, now_ms),
            Plane::Traefik(traefik) => traefik.route(request, now_ms),
        }
    }

    /// The share, 0 to 1, of requests to `host` without any header or cookie that `service` gets as of the last
    /// [`advance`](Self::advance) or [`route`](Self::route): the mean of all workers, each with the path of the host where
    /// the Service has most. What fails counts for nobody.
    pub fn share_of(&self, host: &str, service: &str) -> f64 {
        match &self.0 {
            Plane::Nginx(nginx) => nginx.share_of(host, service),
            Plane::Traefik(traefik) => traefik.share_of(host, service),
        }
    }

    /// When a connection that began at `started_ms` is cut, if it is still open then: `worker-shutdown-timeout` (240 s)
    /// after the next reload. `u64::MAX` if there was none.
    pub fn cut_at(&self, started_ms: u64) -> u64 {
        match &self.0 {
            Plane::Nginx(nginx) => nginx.cut_at(started_ms),
            Plane::Traefik(_) => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trap_tests;
