//! Arithmetic on instants that cannot fail: what is stored has whole seconds, rounded so that nothing ends early.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// `at` + `span`, at most the end of time.
pub fn after(at: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// `at` rounded up to a whole second, as it can be stored.
pub fn ceil(at: Timestamp) -> Time {
    let whole = if at.subsec_nanosecond() == 0 { at.as_second() } else { at.as_second().saturating_add(1) };
    Time(Timestamp::from_second(whole).unwrap_or(Timestamp::MAX))
}

/// `at` rounded down to a whole second, as it can be stored.
pub fn floor(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// How long from `earlier` to `later`; zero if it is the other way round.
pub fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or(Duration::ZERO)
}

/// A length of time for people: `1h5m`, `12m`, `45s`.
pub fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes, rest) {
        (0, 0, s) => format!("{s}s"),
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, 0, _) => format!("{h}h"),
        (h, m, _) => format!("{h}h{m}m"),
    }
}

/// The time of day in UTC, for people: `14:03:12`.
pub fn clock(at: Timestamp) -> String {
    let seconds = at.as_second().rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Reads a Gateway API duration: one to four of `<digits>h`, `m`, `s` or `ms`.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    for _ in 0..4 {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 || digits > 5 {
            return None;
        }
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        let unit = rest.get(digits..)?;
        let (length, span) = if unit.starts_with("ms") {
            (2, Duration::from_millis(number))
        } else if unit.starts_with('h') {
            (1, Duration::from_secs(number * 3600))
        } else if unit.starts_with('m') {
            (1, Duration::from_secs(number * 60))
        } else if unit.starts_with('s') {
            (1, Duration::from_secs(number))
        } else {
            return None;
        };
        total += span;
        rest = unit.get(length..)?;
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_the_gateway_api_writes_them() {
        assert_eq!(parse("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(parse("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse("1h1m1s1ms"), Some(Duration::from_millis(3_661_001)));
        for bad in ["", "5", "m", "1d", "5 m", "1.5h", "123456s", "1s1s1s1s1s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn stored_instants_never_end_early() {
        let at = Timestamp::from_millisecond(1_500).expect("in range");
        assert_eq!(ceil(at).0.as_second(), 2);
        assert_eq!(floor(at).0.as_second(), 1);
        assert_eq!(ceil(Timestamp::from_second(7).expect("in range")).0.as_second(), 7);
    }
}
