//! Does what the rollout refers to exist and fit together? Looked at before anything is written; what is wrong becomes a
//! condition with a sentence that says what to do.

use super::observed::{Lookup, Observed};
use super::rollout::Rollout;
use super::traffic::{self, Backend};
use crate::api::reasons::Reason;
use crate::api::{Color, ModelRollout};

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A word for it.
    pub reason: Reason,
    /// What to do.
    pub message: String,
}

fn problem(reason: Reason, message: String) -> Problem {
    Problem { reason, message }
}

/// Checks everything that a rollout needs of `color`'s side.
pub fn side(rollout: &Rollout, seen: &Observed, color: Color) -> Result<(), Problem> {
    let side = rollout.side(color);
    let facts = seen.colors.get(color);
    match &facts.deployment {
        Lookup::Found(_) => {}
        Lookup::Missing => {
            return Err(problem(
                Reason::DeploymentMissing,
                format!("create the Deployment {} that spec.{color}.deploymentName names", side.deployment),
            ));
        }
        Lookup::Unreadable(why) => {
            return Err(problem(Reason::Unreadable, format!("Deployment {}: {why}", side.deployment)));
        }
    }
    match &facts.service {
        Lookup::Found(service) if service.has_selector => Ok(()),
        Lookup::Found(_) => Err(problem(
            Reason::ServiceMissing,
            format!(
                "the Service {} selects no Pods: give it the selector of Deployment {}",
                side.service, side.deployment
            ),
        )),
        Lookup::Missing => Err(problem(
            Reason::ServiceMissing,
            format!("create the Service {} that spec.{color}.serviceName names", side.service),
        )),
        Lookup::Unreadable(why) => Err(problem(Reason::Unreadable, format!("Service {}: {why}", side.service))),
    }
}

/// Checks the Ingress, and gives the color that its paths name.
pub fn ingress(rollout: &Rollout, seen: &Observed) -> Result<Color, Problem> {
    let name = &rollout.ingress;
    let ingress = match &seen.ingress {
        Lookup::Found(ingress) => ingress,
        Lookup::Missing => {
            return Err(problem(
                Reason::IngressMissing,
                format!("create the Ingress {name} that spec.traffic.ingress.names names"),
            ));
        }
        Lookup::Unreadable(why) => return Err(problem(Reason::Unreadable, format!("Ingress {name}: {why}"))),
    };
    let (blue, green) = (&rollout.sides.blue.service, &rollout.sides.green.service);
    traffic::nginx::check(rollout, ingress).map_err(|(reason, message)| problem(reason, message))?;
    match traffic::backend(rollout, ingress) {
        Backend::One(color) => Ok(color),
        Backend::Mixed => Err(problem(
            Reason::AmbiguousActiveColor,
            format!("paths of Ingress {name} name both {blue} and {green}: let all of them name the one that serves"),
        )),
        Backend::Neither => Err(problem(
            Reason::BackendMismatch,
            format!("no path of Ingress {name} names {blue} or {green}: let its backend name the one that serves"),
        )),
    }
}

/// Whether the names that our own objects need are free or ours.
pub fn own_names(rollout: &Rollout, seen: &Observed) -> Result<(), Problem> {
    for object in [&seen.canary, &seen.anchor] {
        match object {
            Lookup::Found(ingress) if !ingress.is_owned_by(&rollout.uid) => {
                return Err(problem(
                    Reason::NameTaken,
                    format!(
                        "the Ingress {} is not ours and has the name that ours needs: delete or rename it",
                        ingress.name
                    ),
                ));
            }
            Lookup::Unreadable(why) => return Err(problem(Reason::Unreadable, format!("our own Ingresses: {why}"))),
            Lookup::Found(_) | Lookup::Missing => {}
        }
    }
    Ok(())
}

/// The problem of an older ModelRollout that uses the same objects.
pub fn conflict(elder: &str) -> Problem {
    problem(
        Reason::Conflict,
        format!(
            "the older ModelRollout {elder} uses one of the same Deployments, Services or Ingresses: delete one of the two"
        ),
    )
}

/// Name of an older ModelRollout among `others` (all of the same namespace, `me` may be among them) that uses one of
/// `me`'s Deployments, Services or Ingresses.
pub fn elder<'a>(me: &ModelRollout, others: impl Iterator<Item = &'a ModelRollout>) -> Option<String> {
    let mut elders: Vec<&ModelRollout> = others
        .filter(|other| other.metadata.uid != me.metadata.uid && age(other) < age(me) && shares(me, other))
        .collect();
    elders.sort_by_key(|other| age(other));
    elders.first().and_then(|other| other.metadata.name.clone())
}

/// Older first; of two of the same second the one whose name comes first.
fn age(rollout: &ModelRollout) -> (i64, &str) {
    let created = rollout.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
    (created, rollout.metadata.name.as_deref().unwrap_or_default())
}

fn shares(me: &ModelRollout, other: &ModelRollout) -> bool {
    let sides = |rollout: &ModelRollout| [rollout.spec.blue.clone(), rollout.spec.green.clone()];
    let theirs = sides(other);
    sides(me).iter().any(|mine| {
        theirs.iter().any(|side| side.deployment_name == mine.deployment_name || side.service_name == mine.service_name)
    }) || me.spec.traffic.ingress.names.iter().any(|name| other.spec.traffic.ingress.names.contains(name))
}
