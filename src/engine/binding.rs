//! Are model and prompt bound to the Pods, and what exactly is a revision? Model and prompt move together or not at all.

use sha2::{Digest as _, Sha256};

use super::observed::{ColorSeen, DeploymentSeen, Lookup};
use super::rollout::{Side, hex};
use crate::api::Color;
use crate::api::reasons::Reason;

/// Whether something is bound: `Ok` with the reason for its condition, or what is wrong.
pub type Bound = Result<(Reason, String), (Reason, String)>;

/// Whether the Pods of `side` are of the model that the spec names.
pub fn model(color: Color, side: &Side, seen: &ColorSeen) -> Bound {
    let Some(deployment) = seen.deployment.found() else {
        return Err((Reason::Unreadable, format!("the Deployment {} is not there to be checked", side.deployment)));
    };
    match &deployment.model {
        None => Ok((
            Reason::NotDeclared,
            format!(
                "the Pod template of {} does not say which model it serves; annotate it with {}: {}",
                side.deployment,
                crate::api::names::ANNOTATION_MODEL,
                side.model
            ),
        )),
        Some(declared) if *declared == side.model => Ok((Reason::Bound, format!("{color} serves {declared}"))),
        Some(declared) => Err((
            Reason::TemplateDisagrees,
            format!(
                "the Pod template of {} says {declared}, spec.{color}.model says {}: apply the one that is out of date",
                side.deployment, side.model
            ),
        )),
    }
}

/// Whether the Pods of `side` refer to the prompt that the spec names.
pub fn prompt(color: Color, side: &Side, seen: &ColorSeen) -> Bound {
    let Some(prompt) = &side.prompt else {
        return Ok((Reason::NoPrompt, format!("spec.{color} names no prompt template")));
    };
    match &seen.prompt {
        Lookup::Unreadable(why) => return Err((Reason::Unreadable, format!("ConfigMap {}: {why}", prompt.config_map))),
        Lookup::Missing => {
            return Err((
                Reason::PromptMissing,
                format!(
                    "create the ConfigMap {} that spec.{color}.promptTemplate.configMapName names, or correct the name",
                    prompt.config_map
                ),
            ));
        }
        Lookup::Found(_) => {}
    }
    if !prompt.in_template {
        let message = format!(
            "ConfigMap {} with prompt {} is there; who reads it is not checked",
            prompt.config_map, prompt.version
        );
        return Ok((Reason::Declared, message));
    }
    let Some(deployment) = seen.deployment.found() else {
        return Err((Reason::Unreadable, format!("the Deployment {} is not there to be checked", side.deployment)));
    };
    if deployment.config_maps.contains(&prompt.config_map) {
        Ok((Reason::Bound, format!("{color} reads prompt {} from ConfigMap {}", prompt.version, prompt.config_map)))
    } else {
        Err((
            Reason::PromptNotReferenced,
            format!(
                "the Pod template of {} does not refer to the ConfigMap {}: add it as a volume, env or envFrom, or set promptTemplate.binding to Declared if other Pods read it",
                side.deployment, prompt.config_map
            ),
        ))
    }
}

/// Stands for the revision of a color that was left while it could not be told: the first that is seen is meant.
pub fn unknown(color: Color) -> String {
    format!("{color}-unknown")
}

/// Which Deployment and which of its templates is there, in one short text. `None` while that cannot be told.
pub fn template(color: Color, seen: &ColorSeen) -> Option<String> {
    let DeploymentSeen { uid, generation, observed_generation, template_revision, .. } = seen.deployment.found()?;
    let observed = observed_generation >= generation && !template_revision.is_empty();
    observed.then(|| format!("{color}/{uid}/{template_revision}"))
}

/// What a color is by content: Deployment, Pod template, model, prompt. Unlike the revision it is the same again when a change
/// was undone. It may differ after an upgrade of the API server, so it never says that something changed.
pub fn content(side: &Side, seen: &ColorSeen) -> Option<String> {
    let DeploymentSeen { uid, template_hash, .. } = seen.deployment.found()?;
    let prompt = match (&side.prompt, &seen.prompt) {
        (None, _) => String::new(),
        (Some(prompt), Lookup::Found(found)) => format!("{}@{}", prompt.config_map, found.hash),
        (Some(_), _) => return None,
    };
    let mut hash = Sha256::new();
    hash.update(format!("{uid}\0{template_hash}\0{}\0{prompt}", side.model));
    (!template_hash.is_empty()).then(|| hex(&hash.finalize(), 8))
}

/// What a color is, in one short text: Deployment and its template revision, model, prompt and the prompt's content.
/// Replicas are no part of it. `None` while any of it cannot be told.
pub fn revision(color: Color, side: &Side, seen: &ColorSeen) -> Option<String> {
    let DeploymentSeen { uid, generation, observed_generation, template_revision, .. } = seen.deployment.found()?;
    if observed_generation < generation || template_revision.is_empty() {
        return None;
    }
    let prompt = match (&side.prompt, &seen.prompt) {
        (None, _) => String::new(),
        (Some(prompt), Lookup::Found(found)) => format!("{}@{}", prompt.config_map, found.hash),
        (Some(_), _) => return None,
    };
    let mut hash = Sha256::new();
    hash.update(format!("{uid}\0{template_revision}\0{}\0{prompt}", side.model));
    Some(format!("{color}-{template_revision}-{}", hex(&hash.finalize(), 5)))
}
