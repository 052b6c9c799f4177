//! Times as the server writes them.

use k8s_openapi::jiff::Timestamp;

/// In whole seconds.
pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// With six digits.
pub(super) fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

pub(super) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
