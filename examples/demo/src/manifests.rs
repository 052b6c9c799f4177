//! The versions of the story, and the manifests that a user would apply for them.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use modelrollout::api::Color;
use modelrollout_load::Pair;
use serde::Deserialize as _;

/// The namespace of the demo; `hack/demo` makes it.
pub const NAMESPACE: &str = "demo";
/// The name of the `ModelRollout` and of the Ingress.
pub const NAME: &str = "support-bot";
/// The host that the Ingress answers for.
pub const HOST: &str = "support-bot.example";
/// By this label `hack/demo` finds what an earlier run left.
const LABEL: (&str, &str) = ("app.kubernetes.io/part-of", "modelrollout-demo");

const COLOR: &str = include_str!("../manifests/color.yaml");
const INGRESS: &str = include_str!("../manifests/ingress.yaml");
const ROLLOUT: &str = include_str!("../manifests/rollout.yaml");

/// A model and its prompt, and what is wrong with it.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    pub model: &'static str,
    /// The version of the model.
    pub release: &'static str,
    pub prompt: &'static str,
    pub prompt_text: &'static str,
    /// The share of its answers that are errors.
    pub fail_percent: u32,
    /// The share of its answers that come three seconds late.
    pub slow_percent: u32,
}

/// What serves at first.
pub const FIRST: Version = Version {
    model: "llama-3.1-8b-instruct",
    release: "2026-05-01",
    prompt: "v7",
    prompt_text: "You answer questions of customers. Be brief.",
    fail_percent: 0,
    slow_percent: 0,
};

/// The good one.
pub const SECOND: Version = Version {
    model: "llama-3.3-70b-instruct",
    release: "2026-11-01",
    prompt: "v8",
    prompt_text: "You answer questions of customers. Be brief, be kind, and name the page of the manual.",
    fail_percent: 0,
    slow_percent: 0,
};

/// Fails.
pub const THIRD: Version = Version {
    model: "llama-3.3-70b-instruct",
    release: "2026-11-15",
    prompt: "v9",
    prompt_text: "You answer questions of customers. Be brief, be kind, and quote the manual.",
    fail_percent: 10,
    slow_percent: 0,
};

/// Is slow.
pub const FOURTH: Version = Version {
    model: "llama-3.3-70b-instruct",
    release: "2026-11-22",
    prompt: "v10",
    prompt_text: "You answer questions of customers. Think it over before you answer.",
    fail_percent: 0,
    slow_percent: 30,
};

impl Version {
    /// What its answers say of themselves.
    pub fn pair(&self) -> Pair {
        Pair::new(&format!("{}@{}", self.model, self.release), self.prompt)
    }

    /// ConfigMap, Deployment and Service. Their image has the tag `tag`; the number of Pods is set
    /// only at first.
    pub fn color(&self, color: Color, tag: &str, replicas: Option<u32>) -> Result<Vec<Object>, String> {
        let text = fill(
            COLOR,
            &[
                ("color", color.as_str()),
                ("tag", tag),
                ("model", self.model),
                ("modelVersion", self.release),
                ("prompt", self.prompt),
                ("promptText", self.prompt_text),
                ("failPercent", &self.fail_percent.to_string()),
                ("slowPercent", &self.slow_percent.to_string()),
            ],
        );
        let mut objects = parse(&text)?;
        for object in objects.iter_mut().filter(|object| object.resource.kind == "Deployment") {
            if let (Some(replicas), Some(spec)) = (replicas, object.object.data.get_mut("spec")) {
                spec["replicas"] = replicas.into();
            }
        }
        Ok(objects)
    }
}

/// The Ingress.
pub fn ingress() -> Result<Vec<Object>, String> {
    parse(INGRESS)
}

/// The `ModelRollout`.
pub fn rollout(blue: &Version, green: &Version, target: Color) -> Result<Vec<Object>, String> {
    parse(&fill(
        ROLLOUT,
        &[
            ("blueModel", blue.model),
            ("blueModelVersion", blue.release),
            ("bluePrompt", blue.prompt),
            ("greenModel", green.model),
            ("greenModelVersion", green.release),
            ("greenPrompt", green.prompt),
            ("target", target.as_str()),
        ],
    ))
}

/// An object to apply, and where.
#[derive(Debug)]
pub struct Object {
    pub resource: ApiResource,
    pub object: DynamicObject,
}

fn fill(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

fn parse(text: &str) -> Result<Vec<Object>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("a manifest of the demo cannot be read: {error}");
    let documents = serde_yaml::Deserializer::from_str(text);
    let objects = documents.map(|document| {
        let mut object = DynamicObject::deserialize(document).map_err(|error| wrong(&error))?;
        let types = object.types.clone().ok_or_else(|| wrong(&"it has no kind"))?;
        let gvk = GroupVersionKind::try_from(&types).map_err(|error| wrong(&error))?;
        let (label, value) = LABEL;
        object.metadata.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned());
        object.metadata.namespace = Some(NAMESPACE.to_owned());
        Ok(Object { resource: ApiResource::from_gvk_with_plural(&gvk, plural(&gvk.kind)), object })
    });
    objects.collect()
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" => "configmaps",
        "Deployment" => "deployments",
        "Service" => "services",
        "Ingress" => "ingresses",
        _ => "modelrollouts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use modelrollout::api::ModelRollout;

    #[test]
    fn manifests_are_filled_in_and_fit_together() {
        for version in [FIRST, SECOND, THIRD, FOURTH] {
            let objects = version.color(Color::Blue, "dev", Some(3)).unwrap();
            let kinds: Vec<_> = objects.iter().map(|object| object.resource.plural.as_str()).collect();
            assert_eq!(kinds, ["configmaps", "deployments", "services"]);
            let text = serde_json::to_string(&objects[1].object).unwrap();
            assert!(!text.contains("${"), "{text}");
            assert!(text.contains(&version.pair().model), "{text}");
            assert!(text.contains(objects[0].object.metadata.name.as_deref().unwrap()), "{text}");
            assert!(text.contains(r#""replicas":3"#), "{text}");
        }
        assert!(!format!("{:?}", SECOND.color(Color::Green, "dev", None).unwrap()).contains("replicas"));
        assert_eq!(ingress().unwrap()[0].object.metadata.name.as_deref(), Some(NAME));
    }

    #[test]
    fn the_rollout_is_one_that_the_operator_reads() {
        let objects = rollout(&FIRST, &SECOND, Color::Green).unwrap();
        let value = serde_json::to_value(&objects[0].object).unwrap();
        let read: ModelRollout = serde_json::from_value(value).unwrap();
        assert_eq!(read.spec.target, Color::Green);
        assert_eq!(read.spec.green.model.version, SECOND.release);
        assert!(read.spec.gates[0].error_rate.as_ref().unwrap().bad.contains("{{service}}"));
    }
}
