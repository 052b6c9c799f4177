//! A model of a Kubernetes API server and of what surrounds it, for tests that run in paused time.
//!
//! - [`server`]: the API server: a state machine without clock, tasks or randomness. Checked against a real one.
//! - [`client`]: a `kube::Client` that talks to it, and the hooks where faults and observers sit.
//! - [`actors`]: what else lives in a cluster: the Deployment controller, EndpointSlices, an ingress controller, users,
//!   Prometheus.
//!
//! It knows nothing of the operator that is tested on it.
// A model for tests: what it is given comes from tests, and it follows the shape of what it models.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unnecessary_box_returns,
    clippy::similar_names,
    clippy::format_push_string,
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    clippy::items_after_statements,
    clippy::needless_pass_by_value,
    clippy::match_same_arms,
    clippy::if_same_then_else,
    clippy::wrong_self_convention,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    clippy::option_option,
    clippy::format_collect,
    clippy::too_many_lines,
    clippy::cmp_owned,
    clippy::sliced_string_as_bytes,
    clippy::needless_for_each
)]

pub mod actors;
pub mod client;
pub mod server;
