//! What a scenario starts from: two colors of the example model server, an Ingress, and a ModelRollout with short holds.

use serde_json::{Value, json};

use crate::cluster::variable;

/// Name of the ModelRollout, its Ingress, and the stem of everything else.
pub const NAME: &str = "bot";
/// The image of the model server, as `hack/build-images --load` gives it to the local cluster.
pub const IMAGE: (&str, &str) = ("E2E_MODEL_SERVER_IMAGE", "localhost/modelrollout-model-server:dev");
/// The class of the Ingress.
const INGRESS_CLASS: (&str, &str) = ("E2E_INGRESS_CLASS", "nginx");

/// One color's Pods.
#[derive(Clone, Debug)]
pub struct Server {
    /// How many there are at the start.
    pub replicas: u32,
    /// What the readiness probe asks.
    pub ready_path: &'static str,
    /// Further variables, such as `FAIL_PERCENT`.
    pub env: Vec<(&'static str, &'static str)>,
}

/// The cluster before a scenario begins. `{{host}}` in an object stands for the scenario's own host.
#[derive(Clone, Debug)]
pub struct Setup {
    pub blue: Server,
    pub green: Server,
    /// `ModelRollout.spec`.
    pub spec: Value,
    /// Objects that are not created, such as `Service/bot-green`.
    pub without: Vec<&'static str>,
    /// Further objects.
    pub extra: Vec<Value>,
    /// What is set in objects: `Kind/name`, JSON pointer, value.
    pub edits: Vec<(&'static str, &'static str, Value)>,
    /// The Service that the Ingress names.
    pub backend: &'static str,
    /// Whether requests run all the time.
    pub load: bool,
    /// Where they go.
    pub hosts: Vec<&'static str>,
    /// Name of the ModelRollout and its Ingress.
    pub name: String,
    /// What the names of Deployments and Services begin with.
    pub stem: String,
}

impl Default for Setup {
    fn default() -> Self {
        let server = |replicas| Server { replicas, ready_path: "/readyz", env: Vec::new() };
        Self {
            blue: server(2),
            green: server(0),
            spec: spec(),
            without: Vec::new(),
            extra: Vec::new(),
            edits: Vec::new(),
            backend: "bot-blue",
            load: true,
            hosts: vec!["{{host}}"],
            name: NAME.to_owned(),
            stem: NAME.to_owned(),
        }
    }
}

impl Setup {
    /// No Pods and no requests: for what never gets so far.
    pub fn without_pods() -> Self {
        let mut setup = Self::default().without_load();
        setup.blue.replicas = 0;
        setup
    }

    /// The same without requests.
    pub fn without_load(mut self) -> Self {
        self.load = false;
        self
    }

    /// The same with something set in the spec, by JSON pointer.
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        set(&mut self.spec, pointer, value);
        self
    }

    /// The same with these stages, as weights and holds, and without gates.
    pub fn stages(self, stages: &[(i32, &str)]) -> Self {
        let stages: Vec<_> = stages.iter().map(|(weight, hold)| json!({ "weight": weight, "hold": hold })).collect();
        self.with("/stages", json!(stages)).with("/gates", json!([]))
    }

    /// The same with something set in an object, such as `Deployment/bot-green`, by JSON pointer.
    pub fn edit(mut self, object: &'static str, pointer: &'static str, value: Value) -> Self {
        self.edits.push((object, pointer, value));
        self
    }

    /// The same with one more object.
    pub fn and(mut self, object: Value) -> Self {
        self.extra.push(object);
        self
    }

    /// The same with a variable of green's Pods.
    pub fn green(mut self, name: &'static str, value: &'static str) -> Self {
        self.green.env.push((name, value));
        self
    }

    /// Everything but the ModelRollout.
    pub fn objects(&self, host: &str) -> Vec<Value> {
        let wanted = |object: &Value| !self.without.iter().any(|key| *key == key_of(object));
        self.all().into_iter().filter(wanted).map(|object| self.fill(&object, host)).collect()
    }

    /// One object, whether it was created or not.
    pub fn object(&self, key: &str, host: &str) -> Value {
        let found = self.all().into_iter().find(|object| key_of(object) == key);
        self.fill(&found.unwrap_or_else(|| panic!("no {key}")), host)
    }

    /// `ModelRollout.spec`, with the names of this setup.
    pub fn final_spec(&self) -> Value {
        self.fill(&self.spec, "")
    }

    fn all(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for (color, server) in [("blue", &self.blue), ("green", &self.green)] {
            objects.extend([prompt(color), deployment(color, server), service(color)]);
        }
        objects.push(ingress(NAME, "{{host}}", self.backend));
        objects.extend(self.extra.clone());
        for (key, pointer, value) in &self.edits {
            let object = objects.iter_mut().find(|object| key_of(object) == *key);
            set(object.unwrap_or_else(|| panic!("no {key}")), pointer, value.clone());
        }
        objects
    }

    /// `object` with the host and the names of this setup in place of the usual ones.
    fn fill(&self, object: &Value, host: &str) -> Value {
        let mut text = object.to_string().replace("{{host}}", host);
        for color in ["blue", "green"] {
            text = text.replace(&format!("\"bot-{color}\""), &format!("\"{}-{color}\"", self.stem));
        }
        serde_json::from_str(&text.replace("\"bot\"", &format!("\"{}\"", self.name))).unwrap()
    }
}

/// Sets a field of the object that is there already.
pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let field = field.replace("~1", "/");
    object.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"))[field.as_str()] = value;
}

fn key_of(object: &Value) -> String {
    format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
}

fn version(color: &str) -> (&'static str, &'static str) {
    if color == "blue" { ("1", "v7") } else { ("2", "v8") }
}

/// `name@version` of a color's model, and the version of its prompt.
pub fn pair(color: &str) -> modelrollout_load::Pair {
    let (model, prompt) = version(color);
    modelrollout_load::Pair::new(&format!("llama@{model}"), prompt)
}

fn color_spec(color: &str) -> Value {
    let (model, prompt) = version(color);
    json!({
        "deploymentName": format!("bot-{color}"), "serviceName": format!("bot-{color}"),
        "model": { "name": "llama", "version": model },
        "promptTemplate": { "configMapName": format!("prompt-{color}"), "version": prompt },
    })
}

fn spec() -> Value {
    json!({
        "blue": color_spec("blue"), "green": color_spec("green"), "target": "green",
        "traffic": { "ingress": { "names": [NAME], "controller": "nginx" } },
        "stages": [
            { "weight": 20, "hold": "2s" }, { "weight": 50, "hold": "2s" }, { "weight": 100, "hold": "3s" },
        ],
        "gates": [
            { "name": "errors", "minSamples": 20, "errorRate": {
                "bad": r#"http_requests_total{namespace="{{namespace}}",service="{{service}}",code=~"5.."}"#,
                "total": r#"http_requests_total{namespace="{{namespace}}",service="{{service}}"}"#,
                "max": "5%", "maxIncrease": "5%" } },
            // far above what a busy machine does by itself
            { "name": "p90", "minSamples": 20, "latency": {
                "histogram": r#"http_request_duration_seconds_bucket{namespace="{{namespace}}",service="{{service}}"}"#,
                "quantile": "0.9", "max": "2500ms" } },
        ],
        "rollback": { "buffer": "5s" },
    })
}

/// The ModelRollout `name`.
pub fn rollout(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "modelrollout.dev/v1alpha1", "kind": "ModelRollout",
        "metadata": { "name": name }, "spec": spec,
    })
}

fn prompt(color: &str) -> Value {
    let (_, version) = version(color);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("prompt-{color}") },
        "data": { "version": version, "template.txt": "You answer briefly." },
    })
}

/// The Service of a color.
pub fn service(color: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": format!("bot-{color}") },
        "spec": {
            "selector": { "app": "bot", "color": color },
            "ports": [{ "name": "http", "port": 80, "targetPort": "http" }],
        },
    })
}

/// The Ingress `name`, which names `service`.
///
/// Request bodies are buffered, which is the default of ingress-nginx but not of Traefik. Without it Traefik 3.7 on a busy
/// machine cuts one stream in some hundreds, with or without a rollout ("`ReverseProxy` read error during body copy: use of
/// closed network connection"; it looks like golang/go#40747, an answer that begins before the request was read to its end).
pub fn ingress(name: &str, host: &str, service: &str) -> Value {
    let backend = json!({ "service": { "name": service, "port": { "name": "http" } } });
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": name, "annotations": { "nginx.ingress.kubernetes.io/proxy-request-buffering": "on" } },
        "spec": { "ingressClassName": variable(INGRESS_CLASS), "rules": [
            { "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } },
        ] },
    })
}

fn deployment(color: &str, server: &Server) -> Value {
    let (model, prompt) = version(color);
    let labels = json!({ "app": "bot", "color": color, "service": format!("bot-{color}") });
    let mut env = vec![
        json!({ "name": "MODEL_NAME", "value": "llama" }),
        json!({ "name": "MODEL_VERSION", "value": model }),
        json!({ "name": "LOAD_SECONDS", "value": "0.2" }),
        json!({ "name": "DRAIN_SECONDS", "value": "1" }),
        json!({ "name": "PROMPT_VERSION", "value": prompt }),
    ];
    env.extend(server.env.iter().map(|(name, value)| json!({ "name": name, "value": value })));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": format!("bot-{color}") },
        "spec": {
            "replicas": server.replicas,
            "selector": { "matchLabels": { "app": "bot", "color": color } },
            "template": {
                "metadata": { "labels": labels, "annotations": {
                    "modelrollout.dev/model": format!("llama@{model}"),
                    "prometheus.io/scrape": "true", "prometheus.io/port": "8080", "prometheus.io/path": "/metrics",
                } },
                "spec": {
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{
                        "name": "model", "image": variable(IMAGE), "imagePullPolicy": "IfNotPresent", "env": env,
                        "ports": [{ "name": "http", "containerPort": 8080 }],
                        "readinessProbe": {
                            "httpGet": { "path": server.ready_path, "port": "http" },
                            "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 5,
                        },
                        "lifecycle": { "preStop": { "sleep": { "seconds": 3 } } },
                        "volumeMounts": [{ "name": "prompt", "mountPath": "/etc/prompt", "readOnly": true }],
                    }],
                    "volumes": [{ "name": "prompt", "configMap": { "name": format!("prompt-{color}") } }],
                },
            },
        },
    })
}
