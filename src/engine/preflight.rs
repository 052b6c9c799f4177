//! Does what the rollout refers to exist and fit together? Looked at before anything is written, and before every raise;
//! what is wrong becomes a condition with a sentence that says what to do.

use super::jobs;
use super::observed::{ByColor, ColorSeen, IngressSeen, Lookup, NOT_YET, Observed, PathSeen, PortSeen};
use super::rollout::{Dialect, Gate, Rollout, Rule};
use super::traffic::{self, Backend};
use crate::api::reasons::Reason;
use crate::api::{Color, ModelRollout, names};

/// What stands in the way, or is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A word for it.
    pub reason: Reason,
    /// What to do.
    pub message: String,
}

fn problem<T>(reason: Reason, message: String) -> Result<T, Problem> {
    Err(Problem { reason, message })
}

/// Checks that `color`'s Deployment and Service are there.
pub fn present(rollout: &Rollout, seen: &Observed, color: Color) -> Result<(), Problem> {
    let side = rollout.side(color);
    let facts = seen.colors.get(color);
    match &facts.deployment {
        Lookup::Found(_) => {}
        Lookup::Missing => {
            let message = format!(
                "create the Deployment {} that spec.{color}.deploymentName names, or correct the name",
                side.deployment
            );
            return problem(Reason::DeploymentMissing, message);
        }
        Lookup::Unreadable(why) => {
            return problem(Reason::Unreadable, format!("Deployment {}: {why}", side.deployment));
        }
    }
    match &facts.service {
        Lookup::Found(_) => Ok(()),
        Lookup::Missing => {
            let message =
                format!("create the Service {} that spec.{color}.serviceName names, or correct the name", side.service);
            problem(Reason::ServiceMissing, message)
        }
        Lookup::Unreadable(why) => problem(Reason::Unreadable, format!("Service {}: {why}", side.service)),
    }
}

/// Checks that everything that a raise touches fits together: both sides, their ports, and what else is in the namespace.
pub fn fit(rollout: &Rollout, seen: &Observed) -> Result<(), Problem> {
    for color in Color::BOTH {
        side(rollout, seen, color)?;
    }
    others(rollout, seen)?;
    gates(rollout, seen)
}

/// Every gate that acts can be asked as it is written.
fn gates(rollout: &Rollout, seen: &Observed) -> Result<(), Problem> {
    for gate in rollout.gates.iter().filter(|gate| !gate.dry_run) {
        if let Err(fault) = &gate.metrics {
            return problem(Reason::InvalidQuery, format!("gate {}: {fault}; correct spec.gates", gate.name));
        }
        let Rule::Job { template, .. } = &gate.rule else { continue };
        match seen.job_templates.get(template) {
            Some(Lookup::Missing) => {
                let message = format!("gate {}: create the PodTemplate {template}, or correct the name", gate.name);
                return problem(Reason::JobTemplateMissing, message);
            }
            Some(Lookup::Found(labels)) => {
                if let Some(message) = jobs::serves(rollout, seen, template, labels) {
                    return problem(Reason::ServicesOverlap, format!("gate {}: {message}", gate.name));
                }
            }
            Some(Lookup::Unreadable(why)) if why != NOT_YET => {
                let message = format!(
                    "gate {}: PodTemplate {template}: {why}; the operator may make Jobs only if its chart was installed with jobGates.enabled",
                    gate.name
                );
                return problem(Reason::JobTemplateMissing, message);
            }
            // it is looked at only while an attempt is open
            Some(Lookup::Unreadable(_)) | None => {}
        }
    }
    Ok(())
}

/// Checks everything about the side of `color` that traffic needs.
pub fn side(rollout: &Rollout, seen: &Observed, color: Color) -> Result<(), Problem> {
    present(rollout, seen, color)?;
    service(rollout, &seen.colors, color)?;
    ports(rollout, seen, color)
}

/// The Service of `color` selects the Pods of its own Deployment, and no others.
fn service(rollout: &Rollout, colors: &ByColor<ColorSeen>, color: Color) -> Result<(), Problem> {
    let (side, facts) = (rollout.side(color), colors.get(color));
    let Some(service) = facts.service.found() else { return Ok(()) };
    if service.selector.is_empty() {
        let message = format!(
            "the Service {} selects no Pods: give it the selector of Deployment {}",
            side.service, side.deployment
        );
        return problem(Reason::ServiceMissesDeployment, message);
    }
    if !facts.selected.contains(&side.deployment) {
        let message = format!(
            "the Service {} does not select the Pods of Deployment {}: make its selector match the labels of the Pod template",
            side.service, side.deployment
        );
        return problem(Reason::ServiceMissesDeployment, message);
    }
    let strangers: Vec<&str> =
        facts.selected.iter().map(String::as_str).filter(|name| *name != side.deployment).collect();
    if !strangers.is_empty() {
        let message = format!(
            "the Service {} also selects the Pods of Deployment {}: add a label to its selector that only the Pods of {} have, such as color: {color}",
            side.service,
            strangers.join(", "),
            side.deployment
        );
        return problem(Reason::ServicesOverlap, message);
    }
    if service.publishes_not_ready {
        let message = format!(
            "the Service {} has publishNotReadyAddresses: true, so Pods get requests before they are ready: remove it",
            side.service
        );
        return problem(Reason::PublishesNotReady, message);
    }
    Ok(())
}

/// The Service of `color` has every port that a path names: a switch changes the Service of a path and nothing else.
fn ports(rollout: &Rollout, seen: &Observed, color: Color) -> Result<(), Problem> {
    let side = rollout.side(color);
    let Some(service) = seen.colors.get(color).service.found() else { return Ok(()) };
    for (main, path) in our_paths(rollout, seen) {
        if let Some(port) = path.port.as_ref().filter(|port| !service.has(port)) {
            let port = match port {
                PortSeen::Name(name) => format!("named {name}"),
                PortSeen::Number(number) => number.to_string(),
            };
            let message = format!(
                "the Service {} has no port {port}, which {} names: give both Services the same ports",
                side.service,
                place(main, path)
            );
            return problem(Reason::PortMismatch, message);
        }
    }
    Ok(())
}

/// Nobody else in the namespace uses what a share of traffic hangs on.
fn others(rollout: &Rollout, seen: &Observed) -> Result<(), Problem> {
    for other in &seen.others {
        let same_place = other.is_canary()
            && our_paths(rollout, seen)
                .any(|(_, path)| other.paths.iter().any(|theirs| theirs.host == path.host && theirs.path == path.path));
        if same_place && rollout.dialect == Dialect::Nginx {
            let message = format!(
                "the Ingress {} is a canary of somebody else for the same host and path, and a controller follows only one: delete it",
                other.name
            );
            return problem(Reason::ForeignCanary, message);
        }
        if let Some(color) = Color::BOTH.into_iter().find(|color| other.uses(&rollout.side(*color).service)) {
            let message = format!(
                "the Ingress {} uses the Service {} too, and would get its share of the canary: name it in spec.traffic.ingress.names, or give it a Service of its own with the same selector",
                other.name,
                rollout.side(color).service
            );
            return problem(Reason::UnlistedIngress, message);
        }
    }
    Ok(())
}

fn our_paths<'a>(rollout: &'a Rollout, seen: &'a Observed) -> impl Iterator<Item = (&'a IngressSeen, &'a PathSeen)> {
    let mains = seen.ingresses.values().filter_map(Lookup::found);
    mains
        .flat_map(|main| main.paths.iter().map(move |path| (main, path)))
        .filter(|(_, path)| path.service.as_deref().is_some_and(|service| rollout.color_of(service).is_some()))
}

/// Where a path stands, for people.
pub fn place(main: &IngressSeen, path: &PathSeen) -> String {
    let (text, host) = (path.path.as_deref().unwrap_or_default(), path.host.as_deref().unwrap_or("*"));
    format!("path \"{text}\" of host \"{host}\" in Ingress {}", main.name)
}

/// Checks the named Ingresses, and gives the color that their paths name: all of one, or a mix of both.
pub fn backends(rollout: &Rollout, seen: &Observed) -> Result<Backend, Problem> {
    let (blue, green) = (&rollout.sides.blue.service, &rollout.sides.green.service);
    let mut mains = Vec::new();
    for name in &rollout.ingresses {
        match seen.ingresses.get(name) {
            Some(Lookup::Found(main)) => mains.push(main),
            Some(Lookup::Unreadable(why)) => return problem(Reason::Unreadable, format!("Ingress {name}: {why}")),
            Some(Lookup::Missing) | None => {
                let message =
                    format!("create the Ingress {name} that spec.traffic.ingress.names names, or correct the name");
                return problem(Reason::IngressMissing, message);
            }
        }
    }
    for main in &mains {
        traffic::check(rollout, main).map_err(|(reason, message)| Problem { reason, message })?;
        if traffic::backend(rollout, [*main]) == Backend::Neither {
            let message = format!(
                "no path of Ingress {} names {blue} or {green}: let its backend name the one that serves",
                main.name
            );
            return problem(Reason::BackendMismatch, message);
        }
    }
    if let Some(other) = mains.iter().find(|main| class(main) != mains.first().map_or((None, None), |one| class(one))) {
        let message = format!(
            "the Ingress {} is of another class than Ingress {}, and one canary can be of one class only: use one ModelRollout for each class",
            other.name,
            mains.first().map_or("", |one| one.name.as_str())
        );
        return problem(Reason::IngressClassMismatch, message);
    }
    Ok(traffic::backend(rollout, mains))
}

fn class(main: &IngressSeen) -> (Option<&str>, Option<&str>) {
    (main.class.as_deref(), main.annotations.get(names::ANNOTATION_INGRESS_CLASS).map(String::as_str))
}

/// The problem of backends that name both colors before anybody knows which one serves.
pub fn ambiguous(rollout: &Rollout) -> Problem {
    let (blue, green) = (&rollout.sides.blue.service, &rollout.sides.green.service);
    let message = format!(
        "paths of Ingress {} name both {blue} and {green}: let all of them name the one that serves",
        rollout.ingress_names()
    );
    Problem { reason: Reason::AmbiguousActiveColor, message }
}

/// Whether the names that our own objects need are free or ours.
pub fn own_names(rollout: &Rollout, seen: &Observed) -> Result<(), Problem> {
    if rollout.dialect == Dialect::Plain {
        return Ok(());
    }
    for object in [&seen.canary, &seen.anchor] {
        match object {
            Lookup::Found(ingress) if !ingress.is_owned_by(&rollout.uid) => {
                return Err(taken(ingress));
            }
            Lookup::Unreadable(why) => return problem(Reason::Unreadable, format!("our own Ingresses: {why}")),
            Lookup::Found(_) | Lookup::Missing => {}
        }
    }
    Ok(())
}

/// The problem of an Ingress of somebody else that has a name that one of ours needs.
pub fn taken(ingress: &IngressSeen) -> Problem {
    let message =
        format!("the Ingress {} is not ours and has the name that ours needs: delete or rename it", ingress.name);
    Problem { reason: Reason::NameTaken, message }
}

/// What does not stand in the way but may hurt later, each with what to do about it.
pub fn advice(rollout: &Rollout, seen: &Observed) -> Vec<Problem> {
    let sides = Color::BOTH.into_iter().flat_map(|color| advice_on(rollout, seen.colors.get(color), color));
    sides.chain(rollout.gates.iter().filter_map(advice_on_gate)).collect()
}

fn advice_on_gate(gate: &Gate) -> Option<Problem> {
    if let Some(fault) = gate.metrics.as_ref().err().filter(|_| gate.dry_run) {
        let message = format!("gate {}, a dry run, is not judged: {fault}", gate.name);
        return Some(Problem { reason: Reason::InvalidQuery, message });
    }
    let least = gate.least_samples();
    (gate.rule.counts() && !gate.dry_run && gate.min_samples < least).then(|| Problem {
        reason: Reason::GateUnderpowered,
        message: format!(
            "gate {} judges by {} requests, so few that chance decides: minSamples of at least {least}, better {}, tells a good release from a bad one",
            gate.name,
            gate.min_samples,
            3 * least
        ),
    })
}

/// Answers of a model stream for minutes: less than this between preStop and the end of the grace period cuts them.
const STREAM_SECONDS: i64 = 45;

fn advice_on(rollout: &Rollout, facts: &ColorSeen, color: Color) -> Vec<Problem> {
    let name = &rollout.side(color).deployment;
    let Some(deployment) = facts.deployment.found() else { return Vec::new() };
    let mut all = Vec::new();
    let mut add = |reason, message| all.push(Problem { reason, message });
    if let Some(autoscaler) = &facts.autoscaler {
        add(
            Reason::AutoscalerPresent,
            format!(
                "HorizontalPodAutoscaler {autoscaler} sets the replicas of Deployment {name}, so the operator does not: keep its minReplicas at what {color} needs to take all traffic, also while {color} stands by for a rollback"
            ),
        );
    } else if let Some(manager) = &deployment.replicas_declared_by {
        add(
            Reason::ReplicasDeclaredElsewhere,
            format!(
                "{manager} declares spec.replicas of Deployment {name} and may set them back: leave replicas out of the manifest, or let it ignore /spec/replicas"
            ),
        );
    }
    let shutdown = &deployment.shutdown;
    if !shutdown.pre_stop {
        add(
            Reason::ShutdownTooShort,
            format!(
                "the Pods of Deployment {name} have no preStop hook: requests that arrive while a Pod is being removed fail; add a preStop sleep of 5 to 15 seconds"
            ),
        );
    }
    let left = shutdown.grace_seconds - shutdown.sleep_seconds;
    if left < STREAM_SECONDS {
        add(
            Reason::ShutdownTooShort,
            format!(
                "the Pods of Deployment {name} have {left} s to end their streams (terminationGracePeriodSeconds less the preStop sleep): raise the grace period above your longest answer, at least to {STREAM_SECONDS} s"
            ),
        );
    }
    all
}

/// The problem of an older ModelRollout that uses the same objects.
pub fn conflict(elder: &str) -> Problem {
    Problem {
        reason: Reason::Conflict,
        message: format!(
            "the older ModelRollout {elder} uses one of the same Deployments, Services or Ingresses: delete one of the two"
        ),
    }
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
