//! The wire contract: the `ModelRollout` resource, the names that leave the process, and the reasons.
//!
//! Serde and schema only. Nothing here decides, reads or writes; the engine parses these types once
//! (`engine::rollout`) and never looks at the raw spec again.

pub mod names;
pub mod reasons;
mod scalars;
mod spec;
mod status;

pub use scalars::{Color, DurationText, Percent};
pub use spec::*;
pub use status::*;

/// The version served and stored.
pub const API_VERSION: &str = "modelrollout.dev/v1alpha1";

/// The CustomResourceDefinition as it is shipped in `crds/` and in the chart.
///
/// The status of a rollout is as large as its history, so the schema bounds every list and string.
pub fn crd() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    use kube::CustomResourceExt as _;
    ModelRollout::crd()
}
