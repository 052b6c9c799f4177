//! What lives in a cluster beside the operator. Each is a state machine that is told the time.

pub mod ingress_controller;
mod pattern;
pub mod prometheus;
pub mod random;
pub mod users;
pub mod workloads;
