//! What users of Argo CD, Flux and Kustomize copy from `examples/`: the health that Argo CD and Flux read from a
//! `ModelRollout`, and the names that Kustomize builds. The tests that build overlays need `kubectl` on the PATH or built
//! by `hack/cluster/build`: `cargo test --test gitops -- --ignored`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

#[path = "bad_input/refusal.rs"]
mod refusal;
#[path = "bad_input/structural.rs"]
mod structural;

use std::path::Path;
use std::process::Command;

use kube::core::cel::Validator;
use mlua::{Lua, LuaOptions, StdLib};
use modelrollout::api::crd;
use modelrollout::api::names::ANNOTATION_MODEL;
use modelrollout::api::reasons::Phase;
use serde::Deserialize as _;
use serde_json::{Value, json};

const COLORS: [&str; 2] = ["blue", "green"];
const OVERLAYS: [&str; 2] = ["staging", "production"];
/// The fields that the operator writes, as Argo CD is told of them.
const BACKENDS: &str = ".spec.rules[]?.http.paths[]?.backend.service.name";
const REPLICAS: &str = ".spec.replicas";

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn document(path: &str) -> Value {
    serde_yaml::from_str(&text(path)).unwrap()
}

/// A `ModelRollout` that the operator has seen.
fn seen(phase: &str) -> Value {
    json!({
        "metadata": { "generation": 7 },
        "status": { "observedGeneration": 7, "phase": phase, "summary": { "message": "what it waits for" } },
    })
}

// --- Argo CD ------------------------------------------------------------------------------------------------------------

fn to_lua(lua: &Lua, json: &Value) -> mlua::Value {
    match json {
        Value::Null => mlua::Value::Nil,
        Value::Bool(flag) => mlua::Value::Boolean(*flag),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap()),
        Value::String(text) => mlua::Value::String(lua.create_string(text).unwrap()),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            mlua::Value::Table(lua.create_sequence_from(items).unwrap())
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| (key.as_str(), to_lua(lua, field)));
            mlua::Value::Table(lua.create_table_from(fields).unwrap())
        }
    }
}

/// Status and message that `health.lua` gives. As Argo CD runs it: Lua 5.1, `obj` a global, no standard libraries.
fn health(object: &Value) -> (String, String) {
    let lua = Lua::new_with(StdLib::NONE, LuaOptions::default()).unwrap();
    lua.globals().set("obj", to_lua(&lua, object)).unwrap();
    let health: mlua::Table = lua.load(text("examples/argo-cd/health.lua")).eval().unwrap();
    (health.get("status").unwrap(), health.get("message").unwrap())
}

#[test]
fn every_phase_has_a_health_in_argo_cd() {
    for phase in Phase::ALL {
        let expected = match phase {
            Phase::Stable => "Healthy",
            Phase::AwaitingApproval | Phase::Paused => "Suspended",
            Phase::RolledBack | Phase::Invalid => "Degraded",
            Phase::Preparing
            | Phase::Progressing
            | Phase::Holding
            | Phase::Promoting
            | Phase::Buffering
            | Phase::RollingBack
            | Phase::Restoring => "Progressing",
        };
        let (status, message) = health(&seen(phase.as_str()));
        assert_eq!(status, expected, "{phase}");
        assert_eq!(message, format!("{phase}: what it waits for"));
        // `or "Progressing"` in the script must not be what gave the right answer.
        assert!(
            text("examples/argo-cd/health.lua").contains(&format!("  {phase} = \"{expected}\",")),
            "{phase} is not listed"
        );
    }
}

#[test]
fn what_is_not_known_is_progressing_in_argo_cd() {
    let mut no_summary = seen("Stable");
    no_summary["status"].as_object_mut().unwrap().remove("summary");
    assert_eq!(health(&no_summary), ("Healthy".to_owned(), "Stable".to_owned()));

    let mut stale = seen("Stable");
    stale["metadata"]["generation"] = json!(8);
    let mut no_phase = seen("Stable");
    no_phase["status"].as_object_mut().unwrap().remove("phase");
    let mut no_observed = seen("Stable");
    no_observed["status"].as_object_mut().unwrap().remove("observedGeneration");
    let no_status = json!({ "metadata": { "generation": 1 } });
    for object in [stale, no_phase, no_observed, no_status, seen("OfANewerOperator")] {
        let (status, message) = health(&object);
        assert_eq!(status, "Progressing", "{object}");
        assert!(!message.is_empty());
    }
}

#[test]
fn argocd_cm_has_the_same_script() {
    let map = document("examples/argo-cd/argocd-cm.yaml");
    assert_eq!((&map["metadata"]["name"], &map["metadata"]["namespace"]), (&json!("argocd-cm"), &json!("argocd")));
    let crd = crd();
    let key = format!("resource.customizations.health.{}_{}", crd.spec.group, crd.spec.names.kind);
    assert_eq!(map["data"].as_object().unwrap().keys().collect::<Vec<_>>(), [&key]);
    assert_eq!(map["data"][&key], text("examples/argo-cd/health.lua"));
}

// --- Flux ---------------------------------------------------------------------------------------------------------------

/// What Flux makes of `object`: the first expression that holds, in the order in which Flux asks them. An expression that
/// cannot be evaluated is an `Err`, and Flux goes on waiting.
fn flux(object: &Value) -> Result<&'static str, String> {
    let kustomization = document("examples/flux/kustomization.yaml");
    let checks = &kustomization["spec"]["healthCheckExprs"][0];
    for name in ["inProgress", "failed", "current"] {
        // Flux hands over the fields of the object, our evaluator the object itself.
        let rule =
            checks[name].as_str().unwrap().replace("status.", "self.status.").replace("metadata.", "self.metadata.");
        let schema =
            json!({ "type": "object", "x-kubernetes-validations": [{ "rule": rule, "message": "does not hold" }] });
        match Validator::new().validate(&schema, object, None) {
            Ok(()) => return Ok(name),
            Err(errors) => {
                if let Some(error) = errors.into_vec().into_iter().find(|error| error.message != "does not hold") {
                    return Err(error.message);
                }
            }
        }
    }
    Err("none holds".to_owned())
}

#[test]
fn every_phase_has_a_health_in_flux() {
    for phase in Phase::ALL {
        let failed = matches!(phase, Phase::RolledBack | Phase::Invalid);
        let expected = if failed { "failed" } else { "current" };
        assert_eq!(flux(&seen(phase.as_str())), Ok(expected), "{phase}");
    }
    let mut stale = seen("RolledBack");
    stale["metadata"]["generation"] = json!(8);
    let mut no_phase = seen("Stable");
    no_phase["status"].as_object_mut().unwrap().remove("phase");
    for object in [stale, no_phase] {
        assert_eq!(flux(&object), Ok("inProgress"), "{object}");
    }
    assert_ne!(flux(&json!({ "metadata": { "generation": 1 } })), Ok("current"));
}

// --- Kustomize ----------------------------------------------------------------------------------------------------------

fn kubectl() -> String {
    let script = r#"eval "$(hack/cluster/env)" && command -v kubectl"#;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("bash").args(["-c", script]).current_dir(root).output().unwrap();
    ["kubectl".to_owned(), String::from_utf8(output.stdout).unwrap().trim().to_owned()]
        .into_iter()
        .find(|kubectl| Command::new(kubectl).arg("help").output().is_ok_and(|output| output.status.success()))
        .unwrap_or_else(|| panic!("kubectl is neither on the PATH nor built: run make cluster, or install kubectl"))
}

/// The objects of an overlay.
fn built(folder: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(kubectl()).arg("kustomize").arg(root.join(folder)).output().unwrap();
    assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
    serde_yaml::Deserializer::from_slice(&output.stdout).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn overlay(name: &str) -> Vec<Value> {
    built(&format!("examples/kustomize/overlays/{name}"))
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &Value) -> &'a Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == *name)
        .unwrap_or_else(|| panic!("no {kind} {name} was built"))
}

fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut all = objects.iter().filter(|object| object["kind"] == kind);
    let one = all.next().unwrap_or_else(|| panic!("no {kind} was built"));
    assert!(all.next().is_none(), "more than one {kind} was built");
    one
}

#[test]
#[ignore = "needs kubectl: make cluster builds it"]
fn the_names_of_every_overlay_arrive_in_the_model_rollout() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let namespace = &objects[0]["metadata"]["namespace"];
        assert!(namespace.is_string() && objects.iter().all(|object| object["metadata"]["namespace"] == *namespace));

        let rollout = only(&objects, "ModelRollout");
        assert_ne!(rollout["metadata"]["name"], "support-bot", "{name} has a prefix or a suffix");
        let ingress = only(&objects, "Ingress");
        assert_eq!(rollout["spec"]["traffic"]["ingress"]["names"], json!([ingress["metadata"]["name"]]));
        let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"];
        assert_eq!(*backend, rollout["spec"]["blue"]["serviceName"], "{name}");

        for color in COLORS {
            let side = &rollout["spec"][color];
            find(&objects, "Service", &side["serviceName"]);
            let deployment = find(&objects, "Deployment", &side["deploymentName"]);
            let template = &deployment["spec"]["template"];
            assert_eq!(template["metadata"]["labels"]["service"], side["serviceName"], "what the gates select by");
            let model = [&side["model"]["name"], &side["model"]["version"]].map(|part| part.as_str().unwrap());
            assert_eq!(template["metadata"]["annotations"][ANNOTATION_MODEL], model.join("@"));

            let prompt = find(&objects, "ConfigMap", &side["promptTemplate"]["configMapName"]);
            assert_eq!(template["spec"]["volumes"][0]["configMap"]["name"], prompt["metadata"]["name"]);
            assert_eq!(prompt["data"]["version"], side["promptTemplate"]["version"]);
            assert_eq!(prompt["immutable"], true);
            let (stem, hash) = prompt["metadata"]["name"].as_str().unwrap().rsplit_once('-').unwrap();
            assert!(stem.contains(color) && hash.len() == 10, "{stem}-{hash} is one prompt's own name");
        }
    }
}

#[test]
#[ignore = "needs kubectl: make cluster builds it"]
fn every_overlay_passes_the_schema_and_its_rules() {
    let crd = serde_json::to_value(crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for name in OVERLAYS {
        let objects = overlay(name);
        let rollout = only(&objects, "ModelRollout");
        assert_eq!(structural::refusals(schema, &structural::without_nulls(rollout)), [], "{name}");
        let answer = Validator::new().validate(schema, rollout, None);
        assert!(answer.is_ok(), "{name}: {answer:?}");
    }
}

/// A release edits the prompt of the idle color. What a rollback needs is still built, and so is not pruned.
#[test]
#[ignore = "needs kubectl: make cluster builds it"]
fn a_new_prompt_of_one_color_leaves_the_other_colors_config_map() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kustomize");
    let _ = std::fs::remove_dir_all(&copy);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kustomize");
    assert!(Command::new("cp").arg("-r").arg(source).arg(&copy).status().unwrap().success());
    let folder = copy.join("overlays/production");
    let folder = folder.to_str().unwrap();

    let name = |objects: &[Value], color: &str| {
        only(objects, "ModelRollout")["spec"][color]["promptTemplate"]["configMapName"].clone()
    };
    let before = built(folder);
    std::fs::write(copy.join("overlays/production/prompts/green.txt"), "A new prompt.\n").unwrap();
    let after = built(folder);
    assert_eq!(name(&before, "blue"), name(&after, "blue"));
    assert_ne!(name(&before, "green"), name(&after, "green"));
    assert_eq!(find(&before, "ConfigMap", &name(&before, "blue")), find(&after, "ConfigMap", &name(&after, "blue")));
}

#[test]
#[ignore = "needs kubectl: make cluster builds it"]
fn argo_cd_and_flux_leave_alone_what_the_operator_writes() {
    let application = document("examples/argo-cd/application.yaml");
    let path = application["spec"]["source"]["path"].as_str().unwrap();
    let objects = built(path);
    let options = application["spec"]["syncPolicy"]["syncOptions"].as_array().unwrap();
    assert!(options.contains(&json!("RespectIgnoreDifferences=true")));
    let ignored = application["spec"]["ignoreDifferences"].as_array().unwrap();
    for object in &objects {
        let (group, field) = match object["kind"].as_str().unwrap() {
            "Ingress" => ("networking.k8s.io", BACKENDS),
            "Deployment" => ("apps", REPLICAS),
            _ => continue,
        };
        let name = &object["metadata"]["name"];
        assert!(
            ignored.iter().any(|rule| rule["group"] == group
                && rule["kind"] == object["kind"]
                && rule["name"] == *name
                && rule["jqPathExpressions"] == json!([field])),
            "{field} of {name}"
        );
    }
    assert_eq!(ignored.len(), 3, "and nothing else is ignored");

    let kustomization = document("examples/flux/kustomization.yaml");
    assert_eq!(kustomization["spec"]["path"].as_str().unwrap().trim_start_matches("./"), path);
    let annotations = &only(&objects, "Ingress")["metadata"]["annotations"];
    assert_eq!(annotations["kustomize.toolkit.fluxcd.io/ssa"], "IfNotPresent");
    for deployment in objects.iter().filter(|object| object["kind"] == "Deployment") {
        assert!(deployment["spec"].get("replicas").is_none(), "Flux would set them");
    }
    let rollout = only(&objects, "ModelRollout");
    let check = &kustomization["spec"]["healthChecks"][0];
    for pointer in ["/apiVersion", "/kind"] {
        assert_eq!(check.pointer(pointer), rollout.pointer(pointer));
        assert_eq!(kustomization["spec"]["healthCheckExprs"][0].pointer(pointer), rollout.pointer(pointer));
    }
    assert_eq!(
        (&check["name"], &check["namespace"]),
        (&rollout["metadata"]["name"], &rollout["metadata"]["namespace"])
    );
}
