//! Can a color carry traffic? From Pod conditions, at the Deployment's observed generation, and from ready endpoints;
//! never from a Pod's phase.

use super::observed::{ColorSeen, DeploymentSeen, Lookup};

/// How ready one color is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Pods that are Ready and reachable through the Service; none while that cannot be told.
    pub ready: Option<i32>,
    /// What the Deployment wants.
    pub desired: i32,
    /// The Deployment is complete at its observed generation, and as many Pods and endpoints are ready as it wants.
    pub complete: bool,
    /// The Deployment's own rollout is over: what is ready is what its template says.
    pub rolled_out: bool,
    /// What is missing, in words; empty when complete.
    pub why: String,
}

/// Reads the readiness of one color.
pub fn of(seen: &ColorSeen) -> Readiness {
    let deployment = match &seen.deployment {
        Lookup::Found(deployment) => deployment,
        Lookup::Missing => return absent(Some(0), "its Deployment is missing"),
        Lookup::Unreadable(_) => return absent(None, "its Deployment cannot be read"),
    };
    let desired = deployment.desired;
    let (Lookup::Found(pods), Some(endpoints)) = (&seen.pods, endpoints(seen)) else {
        return Readiness {
            ready: None,
            desired,
            complete: false,
            rolled_out: false,
            why: "its Pods are not read yet".to_owned(),
        };
    };
    // Pods above what is wanted are about to go, however ready they are.
    let ready = pods.ready.min(endpoints).min(desired);
    let rolled_out = deployment.observed_generation >= deployment.generation
        && deployment.updated == desired
        && deployment.total == desired;
    let complete = desired > 0 && rolled_out && ready >= desired;
    let why = if complete {
        String::new()
    } else if desired == 0 {
        "its Deployment wants 0 replicas".to_owned()
    } else if pods.ready < desired {
        let reasons = if pods.reasons.is_empty() { String::new() } else { format!(" ({})", pods.reasons.join("; ")) };
        format!("{} of {desired} Pods are ready{reasons}", pods.ready)
    } else if endpoints < desired {
        format!("{endpoints} of {desired} endpoints of its Service are ready")
    } else {
        format!("its Deployment is still rolling out ({} of {desired} updated)", deployment.updated)
    };
    Readiness { ready: Some(ready), desired, complete, rolled_out, why }
}

/// Ready Pods as well as they are known: by the Pods if they are watched, else by the Deployment's own status. Good
/// enough to ask whether a color carries anything at all, never to raise its share.
pub fn at_least_known(seen: &ColorSeen) -> Option<i32> {
    of(seen).ready.or(match &seen.deployment {
        Lookup::Found(deployment) => Some(deployment.ready.min(deployment.desired)),
        Lookup::Missing => Some(0),
        Lookup::Unreadable(_) => None,
    })
}

/// Whether the replicas may be of the operator's making and the Deployment's controller has yet to look at its newest change.
/// After a scale-down and up in quick succession the Pods that are still listed may be those that the scale-down takes away.
pub fn restarting(seen: &ColorSeen) -> bool {
    let fresh = |it: &DeploymentSeen| it.replicas_by.may_be_ours() && it.observed_generation < it.generation;
    seen.deployment.found().is_some_and(fresh)
}

/// Ready Pods that a share of `weight` percent needs, of the `active` replicas that carry everything.
pub fn needed(weight: i32, active: i32) -> i32 {
    let needed = (i64::from(weight) * i64::from(active.max(0))).div_euclid(100)
        + i64::from((i64::from(weight) * i64::from(active.max(0))).rem_euclid(100) != 0);
    i32::try_from(needed).unwrap_or(i32::MAX).max(1)
}

fn endpoints(seen: &ColorSeen) -> Option<i32> {
    match &seen.endpoints {
        Lookup::Found(ready) => Some(*ready),
        Lookup::Missing => Some(0),
        Lookup::Unreadable(_) => None,
    }
}

fn absent(ready: Option<i32>, why: &str) -> Readiness {
    Readiness { ready, desired: 0, complete: false, rolled_out: false, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::observed::{PodsSeen, ServiceSeen};

    fn color(desired: i32, pods: i32, endpoints: i32) -> ColorSeen {
        ColorSeen {
            deployment: Lookup::Found(DeploymentSeen {
                desired,
                total: desired,
                updated: desired,
                generation: 3,
                observed_generation: 3,
                ..DeploymentSeen::default()
            }),
            service: Lookup::Found(ServiceSeen::default()),
            pods: Lookup::Found(PodsSeen { ready: pods, reasons: vec![] }),
            endpoints: Lookup::Found(endpoints),
            prompt: Lookup::Missing,
            selected: [].into(),
            autoscaler: None,
        }
    }

    #[test]
    fn zero_desired_is_never_ready() {
        assert!(!of(&color(0, 0, 0)).complete);
    }

    #[test]
    fn pods_and_endpoints_must_both_be_ready() {
        assert!(of(&color(2, 2, 2)).complete);
        assert!(!of(&color(2, 2, 1)).complete);
        assert!(!of(&color(2, 1, 2)).complete);
        assert_eq!(of(&color(2, 2, 1)).ready, Some(1));
        assert_eq!(of(&color(2, 1, 1)).why, "1 of 2 Pods are ready");
        assert_eq!(of(&color(2, 2, 1)).why, "1 of 2 endpoints of its Service are ready");
        let mut old = color(2, 2, 2);
        if let Lookup::Found(deployment) = &mut old.deployment {
            deployment.updated = 1;
        }
        assert_eq!(of(&old).why, "its Deployment is still rolling out (1 of 2 updated)");
    }

    #[test]
    fn pods_that_a_scale_down_is_about_to_take_do_not_count() {
        assert_eq!(of(&color(0, 2, 2)).ready, Some(0));
        assert_eq!(at_least_known(&color(1, 2, 2)), Some(1));
    }

    #[test]
    fn an_unobserved_generation_is_not_ready() {
        let mut seen = color(2, 2, 2);
        if let Lookup::Found(deployment) = &mut seen.deployment {
            deployment.generation = 4;
        }
        assert!(!of(&seen).complete);
    }

    #[test]
    fn pods_that_are_not_read_are_not_zero() {
        let seen = ColorSeen { pods: Lookup::Unreadable("not synced".into()), ..color(2, 2, 2) };
        assert_eq!(of(&seen).ready, None);
        assert_eq!(at_least_known(&seen), Some(0));
    }

    #[test]
    fn a_share_needs_its_part_of_the_replicas_rounded_up() {
        assert_eq!(needed(5, 4), 1);
        assert_eq!(needed(25, 4), 1);
        assert_eq!(needed(26, 4), 2);
        assert_eq!(needed(100, 4), 4);
        assert_eq!(needed(50, 0), 1);
    }
}
