//! The bodies of our writes, built from what the engine wants. Pure: nothing is sent from here.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::api::ModelRollout;
use crate::api::names::{
    FINALIZER, LABEL_MANAGED_BY, LABEL_ROLLOUT_UID, MANAGED_BY, NGINX_CANARY_WEIGHT, NGINX_PREFIX,
};
use crate::engine::observed::{PortSeen, TlsSeen};
use crate::engine::plan::{IngressWant, JobWant, PathSwitch, PathWant};

/// An Ingress of ours, owned by `rollout`.
pub fn ingress(want: &IngressWant, rollout: &ModelRollout) -> Ingress {
    let (uid, version) = want.replaces.clone().unzip();
    Ingress {
        metadata: ObjectMeta {
            name: Some(want.name.clone()),
            namespace: rollout.metadata.namespace.clone(),
            uid,
            resource_version: version,
            annotations: Some(want.annotations.iter().cloned().collect()),
            labels: Some([(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned())].into()),
            owner_references: Some(vec![owner(rollout)]),
            ..ObjectMeta::default()
        },
        spec: Some(IngressSpec {
            ingress_class_name: want.class.clone(),
            rules: Some(want.paths.iter().map(rule).collect()),
            tls: (!want.tls.is_empty()).then(|| want.tls.iter().map(tls).collect()),
            ..IngressSpec::default()
        }),
        status: None,
    }
}

/// So long a Job stays when it has ended: for its log to be read.
const KEPT_SECONDS: u32 = 3600;
/// How often a Pod that ended without a word of its own is tried again.
const RETRIES: u32 = 3;
/// Exit codes that are a word: all but 0, and but those of a process that was killed, by the kernel for its memory or by
/// whoever deleted its Pod.
const NO_WORD: [i32; 3] = [0, 137, 143];

/// A Job that judges, made from the `template` of a PodTemplate. Its exit code is its word, and the first one counts; a
/// Pod that a drained node took away said nothing.
pub fn job(want: &JobWant, template: &Value, rollout: &ModelRollout) -> DynamicObject {
    let ours = json!({ LABEL_MANAGED_BY: MANAGED_BY, LABEL_ROLLOUT_UID: rollout.metadata.uid });
    let of = |place: &str| template.pointer(place).cloned().unwrap_or_default();
    let mut labels = of("/metadata/labels");
    merge(&mut labels, &ours);
    let mut pod = of("/spec");
    tell(&mut pod, &want.env);
    merge(&mut pod, &json!({ "restartPolicy": "Never" }));
    let said_no = json!({ "action": "FailJob", "onExitCodes": { "operator": "NotIn", "values": NO_WORD } });
    let disrupted =
        json!({ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] });
    let spec = json!({
        "activeDeadlineSeconds": want.deadline.as_secs(),
        "backoffLimit": RETRIES,
        "podFailurePolicy": { "rules": [disrupted, said_no] },
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {
            "metadata": { "labels": labels, "annotations": of("/metadata/annotations") },
            "spec": pod,
        },
    });
    let mut job = DynamicObject::new(&want.name, &ApiResource::erase::<Job>(&())).data(json!({ "spec": spec }));
    job.metadata.namespace.clone_from(&rollout.metadata.namespace);
    job.metadata.labels = serde_json::from_value(ours).ok();
    job.metadata.owner_references = Some(vec![owner(rollout)]);
    job
}

/// Tells every container what it judges; what the template says of the same name gives way.
fn tell(pod: &mut Value, variables: &[(String, String)]) {
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let theirs = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
            let ours = variables.iter().map(|(name, value)| json!({ "name": name, "value": value }));
            let is_ours = |one: &Value| variables.iter().any(|(name, _)| one.get("name").is_some_and(|it| it == name));
            // first, so that the template's own may refer to them
            let env: Vec<Value> = ours.chain(theirs.into_iter().filter(|one| !is_ours(one))).collect();
            merge(container, &json!({ "env": env }));
        }
    }
}

/// Sets the fields of `more` in `object`, or makes it one of just these.
fn merge(object: &mut Value, more: &Value) {
    match (object.as_object_mut(), more.as_object()) {
        (Some(object), Some(more)) => object.extend(more.clone()),
        _ => object.clone_from(more),
    }
}

fn owner(rollout: &ModelRollout) -> OwnerReference {
    OwnerReference {
        api_version: ModelRollout::api_version(&()).into_owned(),
        kind: ModelRollout::kind(&()).into_owned(),
        name: rollout.metadata.name.clone().unwrap_or_default(),
        uid: rollout.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

fn rule(path: &PathWant) -> IngressRule {
    let port = match &path.port {
        PortSeen::Name(name) => ServiceBackendPort { name: Some(name.clone()), number: None },
        PortSeen::Number(number) => ServiceBackendPort { name: None, number: Some(*number) },
    };
    let service = IngressServiceBackend { name: path.service.clone(), port: Some(port) };
    let path_value = HTTPIngressPath {
        path: path.path.clone(),
        path_type: path.path_type.clone(),
        backend: IngressBackend { service: Some(service), resource: None },
    };
    IngressRule { host: path.host.clone(), http: Some(HTTPIngressRuleValue { paths: vec![path_value] }) }
}

fn tls(tls: &TlsSeen) -> IngressTLS {
    IngressTLS { hosts: Some(tls.hosts.clone()), secret_name: tls.secret_name.clone() }
}

/// Switches backends. Everything that is replaced is tested first.
///
/// JSON Patch cannot test that something is absent. Without a host or path the tests are the Service's name at that
/// place and, in a promotion, the resourceVersion; that is enough to never write over another Service.
pub fn switch(resource_version: Option<&str>, paths: &[PathSwitch]) -> Patch {
    let mut operations = Vec::new();
    if let Some(version) = resource_version {
        operations.push(test(&["metadata", "resourceVersion"], version.into()));
    }
    for one in paths {
        let (rule, index) = (one.rule.to_string(), one.index.to_string());
        if let Some(host) = &one.host {
            operations.push(test(&["spec", "rules", &rule, "host"], host.as_str().into()));
        }
        if let Some(path) = &one.path {
            operations.push(test(&["spec", "rules", &rule, "http", "paths", &index, "path"], path.as_str().into()));
        }
        let service = ["spec", "rules", &rule, "http", "paths", &index, "backend", "service", "name"];
        operations.push(test(&service, one.from.as_str().into()));
        let replace = ReplaceOperation { path: pointer(&service), value: one.to.as_str().into() };
        operations.push(PatchOperation::Replace(replace));
    }
    Patch(operations)
}

/// Takes all traffic from a canary that cannot be deleted: no weight, no named users. Only on the object of that uid.
pub fn defuse(uid: &str) -> Value {
    let mut annotations = serde_json::Map::new();
    annotations.insert(NGINX_CANARY_WEIGHT.to_owned(), "0".into());
    let headers = ["canary-by-header", "canary-by-header-value", "canary-by-header-pattern", "canary-by-cookie"];
    for one in headers {
        annotations.insert(format!("{NGINX_PREFIX}{one}"), Value::Null);
    }
    json!({ "metadata": { "uid": uid, "annotations": annotations } })
}

/// Sets the replicas through the `scale` subresource.
pub fn scale(resource_version: &str, replicas: i32) -> Value {
    json!({ "metadata": { "resourceVersion": resource_version }, "spec": { "replicas": replicas } })
}

/// Adds our finalizer; none if it is there.
pub fn add_finalizer(rollout: &ModelRollout) -> Option<Patch> {
    let finalizers = rollout.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|one| one == FINALIZER) {
        return None;
    }
    let (path, value) = if finalizers.is_empty() {
        (pointer(&["metadata", "finalizers"]), json!([FINALIZER]))
    } else {
        (pointer(&["metadata", "finalizers", "-"]), FINALIZER.into())
    };
    Some(Patch(vec![unchanged(rollout), PatchOperation::Add(AddOperation { path, value })]))
}

/// Removes our finalizer; none if it is not there.
pub fn remove_finalizer(rollout: &ModelRollout) -> Option<Patch> {
    let finalizers = rollout.metadata.finalizers.as_deref().unwrap_or_default();
    let place = finalizers.iter().position(|one| one == FINALIZER)?.to_string();
    let path = ["metadata", "finalizers", &place];
    let remove = PatchOperation::Remove(RemoveOperation { path: pointer(&path) });
    Some(Patch(vec![unchanged(rollout), test(&path, FINALIZER.into()), remove]))
}

/// Removes an act, if it still has the value that was seen.
pub fn remove_act(rollout: &ModelRollout, annotation: &str, value: &str) -> Patch {
    let path = ["metadata", "annotations", annotation];
    let remove = PatchOperation::Remove(RemoveOperation { path: pointer(&path) });
    Patch(vec![unchanged(rollout), test(&path, value.into()), remove])
}

/// The object is the one that the plan was made from: what the server returns then differs by our own change only, and
/// a later write with its resourceVersion cannot pass over an edit that nobody has looked at.
fn unchanged(rollout: &ModelRollout) -> PatchOperation {
    test(&["metadata", "resourceVersion"], rollout.metadata.resource_version.clone().into())
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: pointer(path), value })
}

fn pointer(parts: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(parts.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::observed::IngressSeen;
    use crate::shell::testing::rollout;

    fn text(patch: &Patch) -> Vec<String> {
        patch.0.iter().map(|one| serde_json::to_string(one).unwrap()).collect()
    }

    #[test]
    fn a_switch_tests_all_that_it_replaces() {
        let path = PathSwitch {
            rule: 1,
            index: 2,
            host: Some("a.example".into()),
            path: None,
            from: "blue".into(),
            to: "green".into(),
        };
        let lines = text(&switch(Some("7"), &[path]));
        assert_eq!(
            lines,
            [
                r#"{"op":"test","path":"/metadata/resourceVersion","value":"7"}"#,
                r#"{"op":"test","path":"/spec/rules/1/host","value":"a.example"}"#,
                r#"{"op":"test","path":"/spec/rules/1/http/paths/2/backend/service/name","value":"blue"}"#,
                r#"{"op":"replace","path":"/spec/rules/1/http/paths/2/backend/service/name","value":"green"}"#,
            ]
        );
    }

    #[test]
    fn an_annotation_is_escaped_in_its_pointer() {
        let lines = text(&remove_act(&rollout("bot"), "modelrollout.dev/approve", "1/2"));
        assert_eq!(lines[1], r#"{"op":"test","path":"/metadata/annotations/modelrollout.dev~1approve","value":"1/2"}"#);
        assert_eq!(lines[2], r#"{"op":"remove","path":"/metadata/annotations/modelrollout.dev~1approve"}"#);
    }

    #[test]
    fn finalizers_are_added_and_removed_once() {
        let mut object = rollout("bot");
        assert!(remove_finalizer(&object).is_none());
        assert!(text(&add_finalizer(&object).unwrap())[1].contains(r#"["modelrollout.dev/traffic"]"#));
        object.metadata.finalizers = Some(vec!["other".into()]);
        assert!(text(&add_finalizer(&object).unwrap())[1].contains("/metadata/finalizers/-"));
        object.metadata.finalizers = Some(vec!["other".into(), FINALIZER.into()]);
        assert!(add_finalizer(&object).is_none());
        assert!(text(&remove_finalizer(&object).unwrap())[2].contains("/metadata/finalizers/1"));
    }

    #[test]
    fn what_is_written_is_what_was_wanted() {
        let want = IngressWant {
            name: "bot-canary".into(),
            replaces: Some(("u".into(), "3".into())),
            class: Some("nginx".into()),
            annotations: vec![(NGINX_CANARY_WEIGHT.into(), "5".into())],
            paths: vec![PathWant {
                host: Some("a.example".into()),
                path: Some("/".into()),
                path_type: "Prefix".into(),
                service: "bot-green".into(),
                port: PortSeen::Name("http".into()),
            }],
            tls: vec![TlsSeen { hosts: vec!["a.example".into()], secret_name: None }],
            required: true,
        };
        let object = ingress(&want, &rollout("bot"));
        let seen = IngressSeen::from(&object);
        assert!(want.matches(&seen));
        assert_eq!(seen.owner_uid.as_deref(), Some("uid-bot"));
        assert_eq!((seen.uid.as_str(), seen.resource_version.as_str()), ("u", "3"));
    }

    #[test]
    fn a_job_is_the_users_pod_with_our_variables_and_an_end() {
        let want = JobWant {
            name: "bot-schema-1".into(),
            template: "schema".into(),
            deadline: std::time::Duration::from_mins(2),
            env: vec![("COLOR".into(), "green".into())],
        };
        let template = json!({
            "metadata": { "labels": { "app": "judge" }, "annotations": { "a": "b" } },
            "spec": {
                "restartPolicy": "Always",
                "serviceAccountName": "judge",
                "initContainers": [{ "name": "wait" }],
                "containers": [{ "name": "judge", "env": [
                    { "name": "COLOR", "value": "blue" }, { "name": "URL", "value": "http://$(COLOR)" },
                ] }],
            },
        });
        let job = job(&want, &template, &rollout("bot"));
        let spec = &job.data["spec"];
        assert_eq!(spec["activeDeadlineSeconds"], 120);
        let pod = &spec["template"];
        assert_eq!(pod["metadata"]["labels"]["app"], "judge");
        assert_eq!(pod["metadata"]["labels"][LABEL_ROLLOUT_UID], "uid-bot");
        assert_eq!(
            (&pod["metadata"]["annotations"]["a"], &pod["spec"]["restartPolicy"]),
            (&json!("b"), &json!("Never"))
        );
        assert_eq!(pod["spec"]["serviceAccountName"], "judge");
        let green = json!({ "name": "COLOR", "value": "green" });
        assert_eq!(pod["spec"]["initContainers"][0]["env"], json!([green]));
        let url = json!({ "name": "URL", "value": "http://$(COLOR)" });
        assert_eq!(pod["spec"]["containers"][0]["env"], json!([green, url]));
        assert_eq!(job.metadata.labels.unwrap()[LABEL_ROLLOUT_UID], "uid-bot");
        assert_eq!(job.metadata.owner_references.unwrap()[0].uid, "uid-bot");
        assert_eq!(job.types.unwrap().api_version, "batch/v1");
        // a template of nothing is refused by the API server, in its own words
        assert_eq!(
            super::job(&want, &Value::Null, &rollout("bot")).data["spec"]["template"]["spec"]["restartPolicy"],
            "Never"
        );
    }
}
