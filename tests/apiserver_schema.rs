//! The table of good and bad input against a real API server (`KUBECONFIG`): installs the CRD, and asks with a dry run.
//! Run with `cargo test --test apiserver_schema -- --ignored`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

mod bad_input;
#[path = "bad_input/refusal.rs"]
mod refusal;

use bad_input::Case;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Request};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use modelrollout::api::{ModelRollout, crd};
use refusal::Refusal;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
#[ignore = "needs a Kubernetes API server (KUBECONFIG)"]
async fn every_case_of_the_table() {
    let client = Client::try_default().await.unwrap();
    install_crd(&client).await;
    let namespace = create_namespace(&client).await;
    let mut wrong = Vec::new();
    for case in bad_input::cases() {
        let answer = ask(&client, &namespace, &case).await;
        let right = match (&case.expected, &answer) {
            (None, Ok(())) => true,
            (Some(expected), Err(refusals)) => expected.is_in(refusals),
            _ => false,
        };
        println!("{} {}", if right { "ok   " } else { "WRONG" }, case.name);
        if let Err(refusals) = &answer {
            for refusal in refusals {
                println!("        {}: {}", refusal.field, cut(&refusal.message));
            }
        }
        if !right {
            wrong.push(format!("{}\n  expected {:?}\n  answer {answer:?}", case.name, case.expected));
        }
    }
    Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await.unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `kubectl apply` would be told: `Ok`, or the refusals.
async fn ask(client: &Client, namespace: &str, case: &Case) -> Result<(), Vec<Refusal>> {
    let Some(old) = &case.old else { return create_strictly(client, namespace, &case.new).await };
    let api: Api<ModelRollout> = Api::namespaced(client.clone(), namespace);
    let object: ModelRollout = serde_json::from_value(old.clone()).unwrap();
    let name = object.name_any();
    let status = json!({ "status": old["status"] });
    api.create(&PostParams::default(), &object).await.unwrap();
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let answer = api.patch(&name, &dry_run, &Patch::Merge(&case.patch)).await;
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    answer.map(drop).map_err(refusals)
}

/// Creates with a dry run, and refuses unknown fields as kubectl does.
async fn create_strictly(client: &Client, namespace: &str, object: &Value) -> Result<(), Vec<Refusal>> {
    let path = format!("/apis/modelrollout.dev/v1alpha1/namespaces/{namespace}/modelrollouts");
    let body = serde_json::to_vec(object).unwrap();
    let mut request = Request::new(&path).create(&PostParams::default(), body).unwrap();
    *request.uri_mut() = format!("{path}?dryRun=All&fieldValidation=Strict").parse().unwrap();
    client.request::<DynamicObject>(request).await.map(drop).map_err(refusals)
}

/// The causes of a refusal; of a strict decoding error, the field that it names.
fn refusals(error: kube::Error) -> Vec<Refusal> {
    let kube::Error::Api(status) = error else { panic!("no answer: {error}") };
    if let Some((_, field)) = status.message.split_once("unknown field \"") {
        let field = field.split('"').next().unwrap_or_default().to_owned();
        return vec![Refusal { field, message: status.message.clone() }];
    }
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    assert!(!causes.is_empty(), "a refusal without a cause: {}", status.message);
    let refusal = |cause: kube::core::response::StatusCause| Refusal {
        field: cause.field.replace("<nil>", ""),
        message: cause.message,
    };
    causes.into_iter().map(refusal).collect()
}

async fn install_crd(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = crd();
    let name = crd.name_any();
    let params = PatchParams::apply("modelrollout.dev/tests").force();
    api.patch(&name, &params, &Patch::Apply(&crd)).await.unwrap();
    let established = await_condition(api, &name, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(30), established).await.unwrap().unwrap();
}

async fn create_namespace(client: &Client) -> String {
    let namespace: Namespace =
        serde_json::from_value(json!({ "metadata": { "generateName": "modelrollout-schema-" } })).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap().name_any()
}

/// The start and the end of a long message.
fn cut(message: &str) -> String {
    let chars: Vec<char> = message.chars().collect();
    if chars.len() <= 300 {
        return message.to_owned();
    }
    let (head, tail) =
        (chars.iter().take(60).collect::<String>(), chars.iter().skip(chars.len() - 200).collect::<String>());
    format!("{head} … {tail}")
}
