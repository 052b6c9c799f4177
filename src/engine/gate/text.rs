//! Numbers for people.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::latency::bucket_of;
use crate::api::reasons::Span;
use crate::engine::observed::Counts;
use crate::engine::time;

/// How long it will take, in one clause; nothing if nobody knows.
pub fn soon(now: Timestamp, eta: Option<Timestamp>) -> String {
    let Some(left) = eta.map(|eta| time::between(now, eta)) else { return String::new() };
    let many = |number: u64, unit: &str| format!("{number} {unit}{}", if number == 1 { "" } else { "s" });
    let length = match left {
        left if left < Duration::from_secs(90) => many(left.as_secs().max(1), "second"),
        left if left < Duration::from_mins(90) => many((left.as_secs() + 30) / 60, "minute"),
        left => many((left.as_secs() + 1800) / 3600, "hour"),
    };
    format!("; at this rate about {length} more")
}

/// Which part of the stage was looked at; nothing for all of it.
pub fn span(span: Span) -> &'static str {
    match span {
        Span::Stage => "",
        Span::LastFiveMinutes => " in the last five minutes",
        Span::LastMinute => " in the last minute",
    }
}

/// The bucket that holds a quantile.
pub fn quantile(counts: &Counts, quantile: f64) -> Option<String> {
    if counts.total == 0 || counts.bounds.is_empty() {
        return None;
    }
    Some(match bucket_of(counts, quantile) {
        (lower, Some(upper)) => format!("{}–{}", trim(lower), seconds(upper)),
        (lower, None) => format!("over {}", seconds(lower)),
    })
}

/// `2.5s`.
pub fn seconds(value: f64) -> String {
    trim(value) + "s"
}

/// `12 %`.
pub fn percent(part: u64, whole: u64) -> String {
    percent_of(super::ratio(part, whole))
}

/// `12 %`.
pub fn percent_of(share: f64) -> String {
    trim((share * 100_000.0).round() / 1000.0) + " %"
}

/// `3 points`.
pub fn points(share: f64) -> String {
    trim((share * 100_000.0).round() / 1000.0) + " points"
}

/// A number without needless zeros.
pub fn trim(value: f64) -> String {
    if value != 0.0 && (value.abs() < 0.001 || value.abs() >= 1e9) {
        return format!("{value:e}");
    }
    let mut text = format!("{value:.4}");
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    text
}
