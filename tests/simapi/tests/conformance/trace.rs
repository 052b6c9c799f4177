//! Traces: lists of requests, written by hand, and how they become requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use modelrollout_simapi::server::Request;
use serde::Deserialize;
use serde_json::Value;

/// A named list of requests in one namespace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Name of its file.
    #[serde(skip)]
    pub name: String,
    /// What it looks at.
    #[allow(dead_code, reason = "for who reads the file")]
    about: String,
    /// Objects that its steps refer to, besides those of `objects.yaml`.
    #[serde(default)]
    pub objects: BTreeMap<String, Value>,
    /// A controller writes at the same second as a step or at the next, so that the order of managed fields is anybody's.
    #[serde(default)]
    pub unordered: bool,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its name, by which later steps refer to its answer.
    pub id: String,
    /// `METHOD path?query`; a path that begins with a plural of [`PLACES`] is in the trace's namespace.
    #[serde(rename = "do")]
    pub line: String,
    /// Of the body: `json`, `merge`, `strategic`, `apply`, or a content type.
    #[serde(rename = "type")]
    pub content: Option<String>,
    /// The user agent.
    pub agent: Option<String>,
    /// What is accepted.
    pub accept: Option<String>,
    /// The body: one of the objects by name,
    pub object: Option<String>,
    /// or the answer of an earlier step,
    pub from: Option<String>,
    /// or this,
    pub body: Option<Value>,
    /// or this text as it is;
    pub text: Option<String>,
    /// with this merge patch,
    pub with: Option<Value>,
    /// and with this JSON patch.
    pub ops: Option<Value>,
    /// Asked again until the answer has these values at these pointers, or this `status`: a controller is at work.
    pub until: Option<BTreeMap<String, Value>>,
    /// What the controllers of a real cluster do meanwhile; only the model is asked for these.
    #[serde(default)]
    pub meanwhile: Vec<Step>,
    /// Pointers in the answer that are not compared.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The model forgets all history before it answers, as etcd does in time.
    #[serde(default)]
    pub compact: bool,
}

/// Where resources are.
const PLACES: [(&str, &str); 16] = [
    ("configmaps", "/api/v1"),
    ("pods", "/api/v1"),
    ("podtemplates", "/api/v1"),
    ("serviceaccounts", "/api/v1"),
    ("services", "/api/v1"),
    ("deployments", "/apis/apps/v1"),
    ("replicasets", "/apis/apps/v1"),
    ("horizontalpodautoscalers", "/apis/autoscaling/v2"),
    ("jobs", "/apis/batch/v1"),
    ("leases", "/apis/coordination.k8s.io/v1"),
    ("endpointslices", "/apis/discovery.k8s.io/v1"),
    ("events", "/apis/events.k8s.io/v1"),
    ("ingresses", "/apis/networking.k8s.io/v1"),
    ("modelrollouts", "/apis/modelrollout.dev/v1alpha1"),
    ("unknowns", "/apis/apps/v1"),
    ("secondments", "/apis/modelrollout.dev/v1alpha1"),
];

/// Who asks, unless a step says otherwise.
const AGENT: &str = "conformance/1.0";

/// The folder with traces and recorded answers.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    folder.canonicalize().expect("the folder of the traces")
}

/// The operator's `CustomResourceDefinition`.
pub fn definition() -> Value {
    read(&folder().join("../../../crds/modelrollouts.yaml"))
}

/// All traces, by name; `TRACE` in the environment picks those whose name contains it.
pub fn all() -> Vec<Trace> {
    let only = std::env::var("TRACE").unwrap_or_default();
    let shared: BTreeMap<String, Value> = read(&folder().join("objects.yaml"));
    let files = std::fs::read_dir(folder().join("traces")).expect("traces");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let mut traces = Vec::new();
    for file in files {
        let mut trace: Trace = read(&file);
        trace.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for (name, object) in &shared {
            trace.objects.entry(name.clone()).or_insert_with(|| object.clone());
        }
        if trace.name.contains(&only) {
            traces.push(trace);
        }
    }
    traces
}

/// Reads a YAML file.
pub fn read<T: serde::de::DeserializeOwned>(file: &Path) -> T {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// What was answered so far, as it came.
pub struct Told<'a> {
    /// The namespace of this run.
    pub namespace: &'a str,
    /// The answers by step.
    pub answers: &'a BTreeMap<String, Value>,
}

impl Step {
    /// The request; an error tells what it refers to in vain.
    pub fn request(&self, trace: &Trace, told: &Told<'_>) -> Result<Request, String> {
        let line = told.fill(&self.line)?;
        let (method, rest) = line.split_once(' ').ok_or("no method")?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = query.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (key.to_owned(), value.to_owned())
        });
        let content = match self.content.as_deref() {
            None => "application/json",
            Some("json") => "application/json-patch+json",
            Some("merge") => "application/merge-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            Some(other) => other,
        };
        Ok(Request {
            method: method.to_owned(),
            path: place(path, told.namespace),
            query: query.collect(),
            content_type: content.to_owned(),
            accept: self.accept.clone().unwrap_or_else(|| "application/json".to_owned()),
            user_agent: self.agent.clone().unwrap_or_else(|| AGENT.to_owned()),
            body: self.bytes(trace, told)?,
        })
    }

    fn bytes(&self, trace: &Trace, told: &Told<'_>) -> Result<Vec<u8>, String> {
        if let Some(text) = &self.text {
            return Ok(told.fill(text)?.into_bytes());
        }
        let base = match (&self.object, &self.from, &self.body) {
            (Some(name), None, None) => trace.objects.get(name).ok_or_else(|| format!("no object {name}"))?.clone(),
            (None, Some(step), None) => told.answers.get(step).ok_or_else(|| format!("no step {step}"))?.clone(),
            (None, None, Some(body)) => body.clone(),
            (None, None, None) => return Ok(Vec::new()),
            _ => return Err("more than one body".to_owned()),
        };
        let mut body = told.filled(&base)?;
        if let Some(with) = &self.with {
            json_patch::merge(&mut body, &told.filled(with)?);
        }
        if let Some(ops) = &self.ops {
            let patch: json_patch::Patch =
                serde_json::from_value(told.filled(ops)?).map_err(|error| error.to_string())?;
            json_patch::patch(&mut body, &patch).map_err(|error| error.to_string())?;
        }
        Ok(serde_json::to_vec(&body).expect("JSON"))
    }

    /// Whether it writes, and as whom: two that write at different seconds are told apart by their times.
    pub fn writer(request: &Request) -> Option<String> {
        if request.method == "GET" {
            return None;
        }
        let agent = request.user_agent.split('/').next().unwrap_or_default();
        let manager = request.query.get("fieldManager").map_or(agent, String::as_str);
        let subresource = request.path.rsplit('/').next().filter(|it| matches!(*it, "status" | "scale"));
        let applied = request.content_type.contains("apply");
        Some(format!("{manager} {applied} {}", subresource.unwrap_or_default()))
    }
}

fn place(path: &str, namespace: &str) -> String {
    let plural = path.split('/').next().unwrap_or_default();
    match PLACES.iter().find(|(name, _)| *name == plural) {
        Some((_, prefix)) => format!("{prefix}/namespaces/{namespace}/{path}"),
        None => path.to_owned(),
    }
}

impl Told<'_> {
    /// `text` with `{ns}` and each `${step/pointer}` filled in.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (reference, end) = after.split_once('}').ok_or("a reference without an end")?;
            out.push_str(before);
            match self.look(reference)? {
                Value::String(text) => out.push_str(&text),
                other => out.push_str(&other.to_string()),
            }
            rest = end;
        }
        out.push_str(rest);
        Ok(out.replace("{ns}", self.namespace))
    }

    fn look(&self, reference: &str) -> Result<Value, String> {
        let (step, pointer) = reference.split_once('/').ok_or_else(|| format!("{reference} has no pointer"))?;
        let answer = self.answers.get(step).ok_or_else(|| format!("there is no step {step} before"))?;
        let found = answer.pointer(&format!("/{pointer}"));
        found.cloned().ok_or_else(|| format!("the answer of {step} has nothing at /{pointer}"))
    }

    fn filled(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => match text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
                Some(reference) if !reference.contains('}') => self.look(reference)?,
                _ => Value::String(self.fill(text)?),
            },
            Value::Array(items) => Value::Array(items.iter().map(|item| self.filled(item)).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(key, value)| Ok((self.fill(key)?, self.filled(value)?)));
                Value::Object(filled.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }
}
