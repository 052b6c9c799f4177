//! Whole rollouts on a real cluster under constant load, each with an operator process that has exactly the rights of the
//! chart. Every scenario ends with: no request failed, no stream was cut, model and prompt always belonged together.
//!
//! `make cluster`, `hack/build-images --load`, `eval "$(hack/cluster/env)"`, then
//! `cargo test -p modelrollout --test e2e -- --ignored --test-threads 4`.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by them"
)]

mod cluster;
mod fault_proxy;
mod harness;
mod history;
mod http;
mod looks;
mod manifests;
mod operator;
mod proxy;
mod scenarios_acts;
mod scenarios_autoscalers;
mod scenarios_binding;
mod scenarios_capacity;
mod scenarios_drift;
mod scenarios_edges;
mod scenarios_faults;
mod scenarios_gates;
mod scenarios_ingresses;
mod scenarios_live_faults;
mod scenarios_names;
mod scenarios_paused;
mod scenarios_plain;
mod scenarios_preflight;
mod scenarios_promotion;
mod scenarios_record;
mod scenarios_restoring;
mod scenarios_rollback;
mod scenarios_runbook;
mod scenarios_users;
mod verdicts;
