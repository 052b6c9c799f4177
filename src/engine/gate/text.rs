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

/// A number without needless zeros, of at most four decimals. By whole numbers: that is several times as fast as by floats,
/// and each judgement has several of them.
pub fn trim(value: f64) -> String {
    if value != 0.0 && (value.abs() < 0.001 || value.abs() >= 1e9) {
        return format!("{value:e}");
    }
    let ten_thousandths = (value.abs() * 10_000.0).round() as u64;
    let (whole, rest) = (ten_thousandths / 10_000, ten_thousandths % 10_000);
    let sign = if value < 0.0 { "-" } else { "" };
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let mut text = format!("{sign}{whole}.{rest:04}");
    text.truncate(text.trim_end_matches('0').len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_needless_zeros() {
        for (value, text) in [
            (0.0, "0"),
            (2.5, "2.5"),
            (-0.25, "-0.25"),
            (100.0, "100"),
            (1.0 / 3.0, "0.3333"),
            (0.99995, "1"),
            (0.0001, "1e-4"),
            (0.001, "0.001"),
            (12_345.678_91, "12345.6789"),
            (2.5e9, "2.5e9"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(trim(value), text);
        }
        assert_eq!(percent(1, 3), "33.333 %");
        assert_eq!(percent_of(0.007), "0.7 %");
        assert_eq!(points(0.03), "3 points");
    }
}
