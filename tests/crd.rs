//! `crds/modelrollouts.yaml` and the chart's copy are what the types say. `make crds` rewrites both: it runs this test
//! with `UPDATE=1`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

use std::path::Path;

use modelrollout::api::{crd, crd_yaml};

/// For `kubectl apply`, and what the chart installs.
const COPIES: [&str; 2] = ["crds/modelrollouts.yaml", "charts/modelrollout/files/crd.yaml"];

const HEADER: &str = "# Generated from src/api by `make crds`. Do not edit.\n";

#[test]
fn the_committed_crd_is_what_the_types_say() {
    let fresh = format!("{HEADER}{}", crd_yaml().unwrap());
    for copy in COPIES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(copy);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &fresh).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == fresh, "{copy} is stale: run `make crds`");
    }
}

#[test]
fn the_yaml_says_the_same_as_the_type() {
    let read: serde_json::Value = serde_yaml::from_str(&crd_yaml().unwrap()).unwrap();
    let read: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
        serde_json::from_value(read).unwrap();
    assert_eq!(read, crd());
}

/// A `null` that is kept would make `has()` true in a rule.
#[test]
fn nothing_is_nullable() {
    assert!(!crd_yaml().unwrap().contains("nullable"));
}
