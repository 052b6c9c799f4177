//! The Helm chart, rendered by helm: what it installs, what it grants, and what it refuses.
//! Needs `helm` on the PATH or built by `hack/cluster/build`: `cargo test --test chart -- --ignored`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clap::{CommandFactory as _, Parser as _};
use modelrollout::shell::config::Cli;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Values that a user may give, each of which has to render and lint.
const SETTINGS: &[(&str, &str)] = &[
    ("defaults", "{}"),
    ("one replica", "replicaCount: 1"),
    ("two namespaces", "watchNamespaces: [team-a, team-b]"),
    (
        "everything",
        r"
image: { repository: localhost/modelrollout-operator, tag: dev, pullPolicy: Never }
imagePullSecrets: [{ name: pull }]
prometheus: { url: http://prometheus.monitoring.svc:9090 }
metricSources: { evals: 'http://prometheus.evals.svc:9090', billing: 'https://prometheus.billing.svc' }
caBundle: { configMap: prometheus-ca, key: bundle.pem }
trafficSettle: 1s
logFormat: text
logLevel: debug
serviceAccount: { name: mover, annotations: { owner: ml } }
podMonitor: { enabled: true, interval: 5s, labels: { release: monitoring } }
networkPolicy:
  enabled: true
  apiServer: { ports: [6443], cidrs: [10.99.0.1/32] }
  prometheus:
    ports: [9090]
    to: [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: monitoring } } }]
  metrics: { from: [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: monitoring } } }] }
podAnnotations: { team: ml }
podLabels: { team: ml }
nodeSelector: { kubernetes.io/os: linux }
tolerations: [{ key: gpu, operator: Exists }]
affinity: { nodeAffinity: {} }
priorityClassName: system-cluster-critical
",
    ),
    (
        "no CRD, no roles, no account",
        "crds: { install: false }\nrbac: { create: false }\nserviceAccount: { create: false, name: mine }",
    ),
];

/// Values that `values.schema.json` has to refuse.
const REFUSED: &[&str] = &[
    "replicas: 2",
    "replicaCount: two",
    "replicaCount: 0",
    "image: { digest: sha256:short }",
    "image: { pullPolicy: Sometimes }",
    "prometheus: { url: prometheus.monitoring.svc }",
    "prometheus: { url: 'http://a,http://b' }",
    "metricSources: { default: 'http://prometheus:9090' }",
    "metricSources: { Evals: 'http://prometheus:9090' }",
    "metricSources: [http://prometheus:9090]",
    "watchNamespaces: team-a",
    "watchNamespaces: [team-a, team-a]",
    "watchNamespaces: ['*']",
    "trafficSettle: 5 seconds",
    "logFormat: xml",
    "logLevel: verbose",
    "crds: { keep: true }",
    "networkPolicy: { apiServer: { ports: [] } }",
    "podDisruptionBudget: { enabled: 'yes' }",
];

fn helm(arguments: &[&str], values: &str) -> Output {
    let helm = ["helm".to_owned(), cluster_helm()]
        .into_iter()
        .find(|helm| Command::new(helm).arg("version").output().is_ok_and(|output| output.status.success()))
        .unwrap_or_else(|| panic!("helm is neither on the PATH nor built: run hack/cluster/build, or install helm 3"));
    let mut child = Command::new(helm)
        .args(arguments)
        .args(["--values", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(values.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Where the local cluster keeps its helm.
fn cluster_helm() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = r#"eval "$(hack/cluster/env)" && command -v helm"#;
    let output = Command::new("bash").args(["-c", script]).current_dir(root).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn chart() -> String {
    format!("{}/charts/modelrollout", env!("CARGO_MANIFEST_DIR"))
}

/// The objects that the chart makes of `values`, installed as release `modelrollout` in the namespace `ops`.
fn render(values: &str) -> Vec<Value> {
    let output =
        helm(&["template", "modelrollout", &chart(), "--namespace", "ops", "--kube-version", "1.34.4"], values);
    assert!(output.status.success(), "{values}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|object| !object.is_null())
        .collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

fn container(objects: &[Value]) -> &Value {
    &one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
}

fn env<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    container(objects)["env"].as_array().unwrap().iter().find(|variable| variable["name"] == name)
}

fn everything() -> Vec<Value> {
    render(SETTINGS.iter().find(|(name, _)| *name == "everything").unwrap().1)
}

#[test]
#[ignore = "needs helm"]
fn it_lints_and_renders_with_every_setting() {
    for (name, values) in SETTINGS {
        let output = helm(&["lint", "--strict", &chart()], values);
        assert!(output.status.success(), "{name}\n{}", String::from_utf8_lossy(&output.stdout));
        for object in render(values) {
            assert!(object["metadata"]["name"].is_string(), "{name}: {object}");
        }
    }
}

#[test]
#[ignore = "needs helm"]
fn values_that_nobody_reads_are_refused() {
    for values in REFUSED {
        let output = helm(&["template", "modelrollout", &chart()], values);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains("values don't meet the specifications"),
            "{values}\n{error}"
        );
    }
}

/// <https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>, control by control.
#[test]
#[ignore = "needs helm"]
fn the_pod_is_restricted() {
    for (name, values) in SETTINGS {
        let objects = render(values);
        let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
        for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"] {
            assert!(pod.get(field).is_none(), "{name}: {field}");
        }
        let volumes = pod["volumes"].as_array().into_iter().flatten();
        let kinds: BTreeSet<_> = volumes.flat_map(|volume| volume.as_object().unwrap().keys()).collect();
        assert!(kinds.iter().all(|kind| ["name", "configMap"].contains(&kind.as_str())), "{name}: {kinds:?}");
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{name}");
        assert_eq!(security["runAsUser"], 65532, "{name}");
        assert_eq!(security["runAsGroup"], 65532, "{name}");
        assert_eq!(security["seccompProfile"], json!({ "type": "RuntimeDefault" }), "{name}");
        assert!(security.get("sysctls").is_none(), "{name}");
        let containers = pod["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1, "{name}");
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        });
        assert_eq!(containers[0]["securityContext"], expected, "{name}");
        assert!(containers[0]["ports"].as_array().unwrap().iter().all(|port| port.get("hostPort").is_none()), "{name}");
        for (kind, resource) in [("requests", "cpu"), ("requests", "memory"), ("limits", "memory")] {
            assert!(containers[0]["resources"][kind][resource].is_string(), "{name}: {kind} {resource}");
        }
    }
}

/// What is granted, as `scope group/resource verb`.
fn grants(objects: &[Value]) -> BTreeSet<String> {
    let mut grants = BTreeSet::new();
    for role in objects.iter().filter(|object| ["Role", "ClusterRole"].contains(&object["kind"].as_str().unwrap())) {
        let aggregated =
            role["metadata"]["labels"].as_object().unwrap().keys().any(|key| key.contains("/aggregate-to-"));
        if aggregated {
            continue;
        }
        let scope = role["metadata"]["namespace"].as_str().unwrap_or("cluster");
        for rule in role["rules"].as_array().unwrap() {
            let list = |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap() };
            for (group, resource, verb) in list("apiGroups").iter().flat_map(|group| {
                list("resources").into_iter().flat_map(move |resource| {
                    list("verbs").into_iter().map(move |verb| (group.clone(), resource.clone(), verb))
                })
            }) {
                grants.insert(format!("{scope} {group}/{resource} {verb}"));
            }
        }
    }
    grants
}

/// The whole of it. A new line here is a decision.
fn expected_grants(scope: &str) -> BTreeSet<String> {
    [
        ("modelrollout.dev/modelrollouts", "get list watch patch"),
        ("modelrollout.dev/modelrollouts/status", "update"),
        ("apps/deployments", "get list watch"),
        ("apps/deployments/scale", "patch"),
        ("/services", "list watch"),
        ("/pods", "list watch"),
        ("/configmaps", "list watch"),
        ("discovery.k8s.io/endpointslices", "list watch"),
        ("autoscaling/horizontalpodautoscalers", "list watch"),
        ("networking.k8s.io/ingresses", "get list watch create update patch delete"),
        ("/podtemplates", "get list watch"),
        ("batch/jobs", "get list watch create delete"),
        ("events.k8s.io/events", "create patch"),
    ]
    .iter()
    .flat_map(|(resource, verbs)| verbs.split(' ').map(move |verb| format!("{scope} {resource} {verb}")))
    .collect()
}

fn lease_grants() -> BTreeSet<String> {
    ["get", "list", "watch", "create", "update"]
        .iter()
        .map(|verb| format!("ops coordination.k8s.io/leases {verb}"))
        .collect()
}

#[test]
#[ignore = "needs helm"]
fn rights_are_exact_in_the_whole_cluster() {
    let expected: BTreeSet<String> = expected_grants("cluster").union(&lease_grants()).cloned().collect();
    assert_eq!(grants(&render("{}")), expected);
}

#[test]
#[ignore = "needs helm"]
fn without_job_gates_nothing_may_start_pods() {
    let found = grants(&render("jobGates: { enabled: false }"));
    assert!(found.iter().all(|grant| !grant.contains("batch/") && !grant.contains("podtemplates")), "{found:?}");
    let allowed = expected_grants("cluster").union(&lease_grants()).cloned().collect::<BTreeSet<_>>();
    assert!(found.is_subset(&allowed) && found.len() == allowed.len() - 8);
}

#[test]
#[ignore = "needs helm"]
fn rights_are_exact_in_the_named_namespaces_and_there_is_no_cluster_role() {
    let objects = render("watchNamespaces: [team-a, team-b]");
    let mut expected = lease_grants();
    expected.extend(expected_grants("team-a"));
    expected.extend(expected_grants("team-b"));
    assert_eq!(grants(&objects), expected);
    assert!(of_kind(&objects, "ClusterRole").is_empty());
    assert!(of_kind(&objects, "ClusterRoleBinding").is_empty());
    assert_eq!(env(&objects, "MODELROLLOUT_NAMESPACES").unwrap()["value"], "team-a,team-b");
    assert!(env(&render("{}"), "MODELROLLOUT_NAMESPACES").is_none());
}

#[test]
#[ignore = "needs helm"]
fn nothing_dangerous_is_granted_to_anybody() {
    for (name, values) in SETTINGS {
        let objects = render(values);
        for role in objects.iter().filter(|object| ["Role", "ClusterRole"].contains(&object["kind"].as_str().unwrap()))
        {
            for rule in role["rules"].as_array().unwrap() {
                let text = rule.to_string();
                for word in
                    ["*", "secrets", "escalate", "bind", "impersonate", "exec", "nonResourceURLs", "rbac.", "customres"]
                {
                    assert!(!text.contains(word), "{name}: {word} in {text}");
                }
            }
        }
        assert!(of_kind(&objects, "Secret").is_empty(), "{name}");
    }
}

#[test]
#[ignore = "needs helm"]
fn every_binding_is_to_a_role_and_an_account_of_this_release() {
    for values in ["{}", "watchNamespaces: [team-a, team-b]", "serviceAccount: { name: mover }"] {
        let objects = render(values);
        let account = &one(&objects, "ServiceAccount")["metadata"]["name"];
        assert_eq!(&one(&objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"], account);
        let mut bindings = of_kind(&objects, "RoleBinding");
        bindings.extend(of_kind(&objects, "ClusterRoleBinding"));
        for binding in bindings {
            let role = objects.iter().find(|object| {
                object["kind"] == binding["roleRef"]["kind"]
                    && object["metadata"]["name"] == binding["roleRef"]["name"]
                    && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
            });
            assert!(role.is_some(), "{values}: {binding}");
            let subject = json!([{ "kind": "ServiceAccount", "name": account, "namespace": "ops" }]);
            assert_eq!(binding["subjects"], subject, "{values}");
        }
    }
}

#[test]
#[ignore = "needs helm"]
fn users_get_the_resource_by_aggregation_in_cluster_mode_only() {
    let aggregated = |values: &str| {
        let objects = render(values);
        of_kind(&objects, "ClusterRole")
            .iter()
            .filter(|role| role["metadata"]["labels"].to_string().contains("aggregate-to-"))
            .count()
    };
    assert_eq!(aggregated("{}"), 2);
    assert_eq!(aggregated("rbac: { aggregate: false }"), 0);
    assert_eq!(aggregated("watchNamespaces: [team-a]"), 0);
}

#[test]
#[ignore = "needs helm"]
fn the_crd_is_upgraded_and_outlives_the_release() {
    let objects = render("{}");
    let crd = one(&objects, "CustomResourceDefinition");
    assert_eq!(crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let plain: Value = serde_yaml::from_str(&modelrollout::api::crd_yaml().unwrap()).unwrap();
    assert_eq!(crd["spec"], plain["spec"]);
    assert_eq!(crd["metadata"]["name"], plain["metadata"]["name"]);
    assert!(of_kind(&render("crds: { install: false }"), "CustomResourceDefinition").is_empty());
}

#[test]
#[ignore = "needs helm"]
fn one_pod_stays_up_through_a_drain_and_an_upgrade() {
    let objects = render("{}");
    let budget = one(&objects, "PodDisruptionBudget");
    let deployment = one(&objects, "Deployment");
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    assert_eq!(deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 10);
    // with one replica a budget would only block the drain
    assert!(of_kind(&render("replicaCount: 1"), "PodDisruptionBudget").is_empty());
    assert!(of_kind(&render("podDisruptionBudget: { enabled: false }"), "PodDisruptionBudget").is_empty());
}

#[test]
#[ignore = "needs helm"]
fn selectors_match_the_pods() {
    for (name, values) in SETTINGS {
        let objects = render(values);
        let deployment = one(&objects, "Deployment");
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let selected = |selector: &Value| {
            let wanted = selector["matchLabels"].as_object().unwrap();
            !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value)
        };
        assert!(selected(&deployment["spec"]["selector"]), "{name}");
        assert!(selected(&deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]));
        for kind in ["PodDisruptionBudget", "PodMonitor"] {
            assert!(
                of_kind(&objects, kind).iter().all(|object| selected(&object["spec"]["selector"])),
                "{name}: {kind}"
            );
        }
        let policies = of_kind(&objects, "NetworkPolicy");
        assert!(policies.iter().all(|policy| selected(&policy["spec"]["podSelector"])), "{name}");
    }
}

#[test]
#[ignore = "needs helm"]
fn the_network_policy_lets_out_dns_the_api_server_and_prometheus_only() {
    assert!(of_kind(&render("{}"), "NetworkPolicy").is_empty());
    let objects = everything();
    let policy = &one(&objects, "NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let monitoring =
        json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "monitoring" } } }]);
    assert_eq!(policy["ingress"], json!([{ "ports": [{ "port": "http", "protocol": "TCP" }], "from": monitoring }]));
    let egress = json!([
        { "ports": [{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }] },
        { "ports": [{ "port": 6443, "protocol": "TCP" }], "to": [{ "ipBlock": { "cidr": "10.99.0.1/32" } }] },
        { "ports": [{ "port": 9090, "protocol": "TCP" }], "to": monitoring },
    ]);
    assert_eq!(policy["egress"], egress);
}

#[test]
#[ignore = "needs helm"]
fn settings_reach_the_operator() {
    let objects = everything();
    let value = |name: &str| env(&objects, name).unwrap()["value"].clone();
    assert_eq!(value("MODELROLLOUT_PROMETHEUS_URL"), "http://prometheus.monitoring.svc:9090");
    let sources = "billing=https://prometheus.billing.svc,evals=http://prometheus.evals.svc:9090";
    assert_eq!(value("MODELROLLOUT_METRIC_SOURCES"), sources);
    assert_eq!(value("MODELROLLOUT_TRAFFIC_SETTLE"), "1s");
    assert_eq!(container(&objects)["image"], "localhost/modelrollout-operator:dev");
    let arguments = json!([
        "--listen=0.0.0.0:8080",
        "--lease-namespace=$(POD_NAMESPACE)",
        "--log-format=text",
        "--log-level=debug",
    ]);
    assert_eq!(container(&objects)["args"], arguments);
    for (name, path) in [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")] {
        assert_eq!(env(&objects, name).unwrap()["valueFrom"]["fieldRef"]["fieldPath"], path);
    }
    for name in ["MODELROLLOUT_PROMETHEUS_URL", "MODELROLLOUT_METRIC_SOURCES"] {
        assert!(env(&render("{}"), name).is_none(), "{name}");
    }
}

/// The chart and the program agree on every flag, variable and value.
#[test]
#[ignore = "needs helm"]
fn the_operator_understands_what_the_chart_says() {
    let command = Cli::command();
    let known: BTreeSet<&str> = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()).collect();
    for (name, values) in SETTINGS {
        let objects = render(values);
        let mut arguments = vec!["modelrollout-operator".to_owned()];
        let given = container(&objects)["args"].as_array().unwrap();
        arguments.extend(given.iter().map(|argument| argument.as_str().unwrap().replace("$(POD_NAMESPACE)", "ops")));
        for variable in container(&objects)["env"].as_array().unwrap() {
            let variable_name = variable["name"].as_str().unwrap();
            if variable_name == "SSL_CERT_FILE" {
                continue; // read by the TLS library
            }
            assert!(known.contains(variable_name), "{name}: nobody reads {variable_name}");
            let argument =
                command.get_arguments().find(|it| it.get_env().is_some_and(|env| env == variable_name)).unwrap();
            if let Some(value) = variable["value"].as_str() {
                arguments.push(format!("--{}={value}", argument.get_long().unwrap()));
            }
        }
        let parsed = Cli::try_parse_from(&arguments).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(parsed.run.listen.port(), 8080, "{name}");
        assert_eq!(parsed.run.lease_namespace.as_deref(), Some("ops"), "{name}");
        assert!(parsed.run.source_urls().is_ok(), "{name}");
    }
}

#[test]
#[ignore = "needs helm"]
fn probes_and_metrics_are_on_the_port_it_listens_on() {
    let objects = render("{}");
    assert_eq!(container(&objects)["ports"], json!([{ "name": "http", "containerPort": 8080 }]));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container(&objects)[probe]["httpGet"], json!({ "path": path, "port": "http" }));
    }
    let annotations =
        |objects: &[Value]| one(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"].clone();
    assert_eq!(annotations(&objects)["prometheus.io/port"], "8080");
    // not scraped twice
    let monitored = everything();
    assert!(annotations(&monitored).get("prometheus.io/scrape").is_none());
    assert_eq!(one(&monitored, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"], "http");
}

#[test]
#[ignore = "needs helm"]
fn a_source_with_https_is_checked_by_the_certificates_that_are_given() {
    let objects = everything();
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    let mount = &container(&objects)["volumeMounts"][0];
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "prometheus-ca");
    assert_eq!(pod["volumes"][0]["configMap"]["items"], json!([{ "key": "bundle.pem", "path": "ca.crt" }]));
    let file = format!("{}/ca.crt", mount["mountPath"].as_str().unwrap());
    assert_eq!(env(&objects, "SSL_CERT_FILE").unwrap()["value"], file);
    assert_eq!(render("{}").iter().filter(|object| object.to_string().contains("SSL_CERT_FILE")).count(), 0);
}

#[test]
#[ignore = "needs helm"]
fn an_image_is_named_by_digest_or_by_tag() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let objects = render(&format!("image: {{ tag: v9, digest: '{digest}' }}"));
    assert_eq!(container(&objects)["image"], format!("modelrollout/operator@{digest}"));
    assert_eq!(container(&render("{}"))["image"], "modelrollout/operator:0.1.0");
}
