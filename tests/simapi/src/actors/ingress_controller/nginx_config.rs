//! From Ingresses to locations and backends: the steps of ingress-nginx' `controller.go`, in its order, with its traps.

use std::collections::{BTreeMap, HashMap};

use super::Snapshot;
use super::objects::{self, Ingress, Path};
use super::tables::{Locations, PathType, Place, Shaping, Upstream};
use crate::actors::random::{hash, mix};

/// Backends by number. None: a worker that is asked for it answers 503.
pub type Backends = Vec<Option<Upstream>>;

/// Numbers of upstreams, the same for the whole life of the controller: old workers go on using old ones.
pub type Numbers = HashMap<String, u32>;

struct Draft {
    upstream: Upstream,
    /// Only a canary names it: locations do not (`NoServer`).
    no_server: bool,
    /// Only the first is ever used (#5848).
    alternatives: Vec<u32>,
}

/// `<namespace>-<service>-<port as written>`: so `80` and `http` are two upstreams, and a canary applies to one.
fn number(numbers: &mut Numbers, ingress: &Ingress, path: &Path) -> u32 {
    let next = numbers.len() as u32;
    *numbers.entry(format!("{}-{}-{}", ingress.namespace, path.service, path.port)).or_insert(next)
}

type Drafts = BTreeMap<u32, Draft>;
/// In the order of their making, each with its root location first.
type Servers = Vec<(String, Vec<Place>)>;

/// Builds the configuration.
pub fn build(snapshot: &Snapshot, class: &str, numbers: &mut Numbers) -> (Locations, Backends) {
    let ingresses = objects::ingresses(snapshot, class);
    let mut drafts = upstreams(snapshot, &ingresses, numbers);
    let mut servers = servers(&ingresses);
    for ingress in &ingresses {
        add_locations(ingress, &drafts, &mut servers, numbers);
    }
    if ingresses.iter().any(|one| one.canary.is_none()) {
        for ingress in ingresses.iter().filter(|one| one.canary.is_some()) {
            merge(ingress, &mut drafts, &servers, numbers);
        }
    }
    let mut backends: Backends = Vec::new();
    for (number, Draft { mut upstream, alternatives, .. }) in drafts {
        upstream.alternative = alternatives.first().copied();
        backends.resize(number as usize, None);
        backends.push(Some(upstream));
    }
    // By name, so that a configuration does not differ by the order of its Ingresses.
    servers.sort_by(|left, right| left.0.cmp(&right.0));
    let mut locations = Locations { hosts: servers };
    locations.sort();
    (locations, backends)
}

/// `createUpstreams`: the oldest Ingress that names a Service:port decides whether it is a canary's or not (#8004, #9458).
fn upstreams(snapshot: &Snapshot, ingresses: &[Ingress], numbers: &mut Numbers) -> Drafts {
    let mut drafts = Drafts::new();
    for ingress in ingresses {
        for path in ingress.rules.iter().flat_map(|rule| &rule.paths) {
            drafts.entry(number(numbers, ingress, path)).or_insert_with(|| Draft {
                upstream: Upstream {
                    service: path.service.as_str().into(),
                    pods: objects::pods(snapshot, &ingress.namespace, &path.service, &path.port).unwrap_or_default(),
                    alternative: None,
                    shaping: ingress.canary.clone().unwrap_or(Shaping { total: 100, ..Shaping::default() }),
                },
                no_server: ingress.canary.is_some(),
                alternatives: Vec::new(),
            });
        }
    }
    drafts
}

/// `createServers`: a canary makes none. Each begins with a root location that answers 404.
fn servers(ingresses: &[Ingress]) -> Servers {
    let root = || vec![Place { path: "/".to_owned(), kind: PathType::Prefix, target: None, settings: 0 }];
    let mut servers = vec![("_".to_owned(), root())];
    for rule in ingresses.iter().filter(|one| one.canary.is_none()).flat_map(|one| &one.rules) {
        if !servers.iter().any(|(host, _)| *host == rule.host) {
            servers.push((rule.host.clone(), root()));
        }
    }
    servers
}

/// The loop of `getBackendServers`: of the same path and type the oldest Ingress has it, and what a canary claimed first has
/// no location at all (#8004, #11563, #3952).
fn add_locations(ingress: &Ingress, drafts: &Drafts, servers: &mut Servers, numbers: &mut Numbers) {
    let settings = mix(hash(&ingress.name) ^ ingress.settings);
    for rule in &ingress.rules {
        let server = servers.iter().position(|(host, _)| *host == rule.host).unwrap_or(0);
        for path in &rule.paths {
            let number = number(numbers, ingress, path);
            if drafts.get(&number).is_some_and(|draft| draft.no_server) {
                continue;
            }
            let places = &mut servers[server].1;
            let there = places.iter_mut().find(|place| place.path == path.text && place.kind == path.kind);
            match there {
                Some(place) if place.target.is_none() => (place.target, place.settings) = (Some(number), settings),
                Some(_) => {}
                None => {
                    places.push(Place { path: path.text.clone(), kind: path.kind, target: Some(number), settings });
                }
            }
        }
    }
}

/// `mergeAlternativeBackends`: each path of a canary looks for its exact partner; the canary is then attached to the
/// partner's upstream, and so to every location that uses it (#4667). One path without a partner deletes the canary's
/// upstream, for all of its paths (#9830).
fn merge(canary: &Ingress, drafts: &mut Drafts, servers: &Servers, numbers: &mut Numbers) {
    for rule in &canary.rules {
        for path in &rule.paths {
            let alternative = number(numbers, canary, path);
            let Some((_, places)) = servers.iter().find(|(host, _)| *host == rule.host) else { continue };
            if !drafts.contains_key(&alternative) {
                continue;
            }
            let (mut merged, mut equal) = (false, false);
            for place in places {
                let Some(primary) = place.target else { continue };
                // The first location of the host that the canary's Service already serves ends the search.
                equal = primary == alternative;
                if equal {
                    break;
                }
                let partner = place.path == path.text && place.kind == path.kind;
                if let Some(draft) = drafts.get_mut(&primary).filter(|draft| partner && !merged && !draft.no_server) {
                    if !draft.alternatives.contains(&alternative) {
                        draft.alternatives.push(alternative);
                    }
                    merged = true;
                }
            }
            if !equal && !merged {
                drafts.remove(&alternative);
            }
        }
    }
}
