//! The cluster that the scenarios run on, by `KUBECONFIG`. Addresses are those of the local one (hack/cluster/README.md)
//! unless these say otherwise: `E2E_INGRESS_URL`, `E2E_PROMETHEUS_URL`, `E2E_INGRESS_CLASS`, `E2E_MODEL_SERVER_IMAGE`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Where requests of users go, with a `Host` header.
pub const INGRESS_URL: (&str, &str) = ("E2E_INGRESS_URL", "http://10.99.0.2/");
/// Prometheus, as the operator's process reaches it.
pub const PROMETHEUS_URL: (&str, &str) = ("E2E_PROMETHEUS_URL", "http://10.96.0.90:9090");
const MANAGER: &str = "e2e";

/// An environment variable, or its default.
pub fn variable((name, default): (&str, &str)) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// A client with the rights of `KUBECONFIG`, on a cluster that has the CRD of this tree.
pub async fn client() -> Client {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let client = Client::try_default().await.expect("KUBECONFIG: run make cluster, then eval \"$(hack/cluster/env)\"");
    INSTALLED.get_or_init(|| install_crd(&client)).await;
    client
}

async fn install_crd(client: &Client) {
    let path = root().join("crds/modelrollouts.yaml");
    let crd: CustomResourceDefinition = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&crd)).await.unwrap();
    let established = await_condition(api, &name, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(30), established).await.unwrap().unwrap();
}

/// The top of the source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A new namespace.
pub async fn create_namespace(client: &Client, name: &str) -> String {
    let labels = json!({ "modelrollout.dev/e2e": "true" });
    let body = json!({ "metadata": { "generateName": format!("e2e-{name}-"), "labels": labels } });
    let namespace: Namespace = serde_json::from_value(body).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap().name_any()
}

/// Deletes a namespace, whatever in it waits for an operator that is gone. Does not wait for the end.
pub async fn delete_namespace(client: &Client, namespace: &str) {
    let rollouts: Api<modelrollout::api::ModelRollout> = Api::namespaced(client.clone(), namespace);
    for rollout in rollouts.list(&kube::api::ListParams::default()).await.unwrap() {
        let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let _ = rollouts.patch(&rollout.name_any(), &PatchParams::default(), &release).await;
    }
    let _ = Api::<Namespace>::all(client.clone()).delete(namespace, &DeleteParams::default()).await;
}

/// Any kind of object in a namespace, by what its manifest says it is.
fn api_of(client: &Client, namespace: &str, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Creates an object from its manifest.
pub async fn create(client: &Client, namespace: &str, object: &Value) {
    let mut body: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    body.metadata.namespace = None;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let created = api_of(client, namespace, object).create(&params, &body).await;
    created.unwrap_or_else(|error| panic!("{}: {error}", object["metadata"]["name"]));
}

/// The rights of the chart in its namespaced mode: its `ServiceAccount`, Roles and bindings. Gives the account's name.
pub async fn grant(client: &Client, namespace: &str) -> String {
    let chart = root().join("charts/modelrollout");
    let watch = format!("watchNamespaces={{{namespace}}}");
    let output = tool("helm")
        .args(["template", "operator", &chart.to_string_lossy(), "--namespace", namespace])
        .args(["--set", &watch, "--set", "crds.install=false"])
        .output()
        .expect("helm: run hack/cluster/build, or put helm 3 on the PATH");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut account = None;
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).unwrap();
        let kind = object["kind"].as_str().unwrap_or_default();
        assert!(!kind.starts_with("Cluster"), "the namespaced mode needs a {kind}");
        if kind == "ServiceAccount" {
            account = object["metadata"]["name"].as_str().map(ToOwned::to_owned);
        }
        if matches!(kind, "ServiceAccount" | "Role" | "RoleBinding") {
            create(client, namespace, &object).await;
        }
    }
    account.unwrap()
}

/// A command of the local cluster's folder of programs, or of the PATH.
pub fn tool(name: &str) -> Command {
    let find = format!("eval \"$(hack/cluster/env)\" && command -v {name}");
    let found = Command::new("bash").args(["-c", &find]).current_dir(root()).output();
    let path = found.ok().filter(|found| found.status.success()).map(|found| found.stdout);
    let path = path.map(|path| String::from_utf8_lossy(&path).trim().to_owned());
    Command::new(path.filter(|path| !path.is_empty()).unwrap_or_else(|| name.to_owned()))
}

/// What kubectl prints, or its error.
pub fn kubectl(namespace: &str, arguments: &[&str]) -> String {
    let output = tool("kubectl").args(["--namespace", namespace]).args(arguments).output();
    let output = output.expect("kubectl: put it on the PATH");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
