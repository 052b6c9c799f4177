//! Names and times of the simulated world.

use modelrollout::api::Color;

/// The one namespace.
pub const NAMESPACE: &str = "ml";
/// The ModelRollout.
pub const NAME: &str = "bot";
/// The operator's Lease.
pub const LEASE: &str = "modelrollout-operator";
/// The Ingresses that carry production traffic.
pub const MAINS: [&str; 2] = ["bot", "chat"];
/// What the ingress controller is given to follow.
pub const SETTLE_MS: u64 = 5_000;
/// So long a fault takes the Pods of the target away, in milliseconds.
pub const UNREADY_MS: u64 = 10_000;
/// So long a switch by hand is not told, in milliseconds: longer than the distance of the moments that are tried.
pub const UNSEEN_MS: u64 = 5_500;
/// The time of day at the start, in milliseconds since 1970.
pub const BASE_MS: i64 = 1_800_000_000_000;

/// Name of the Deployment and of the Service of a color.
pub fn service(color: Color) -> String {
    format!("bot-{color}")
}

/// Whether an Ingress of this name carries production traffic.
pub fn is_main(name: &str) -> bool {
    MAINS.contains(&name)
}
