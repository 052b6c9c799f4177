//! What the people who run the operator see of it: logs, metrics, health, and how it stops.
//!
//! Nothing in here talks to the API server or decides anything.

pub mod metrics;
pub mod server;
pub mod shutdown;
pub mod telemetry;
