//! One number that a query gives. It has no counts, so one reading decides nothing bad: two in a row do.

use std::time::Duration;

use super::{Evidence, Judgement, fail, hold, on, pass, text, time, warming_up};
use crate::api::LimitEvidence;
use crate::api::reasons::{LimitKind, Reason, Span, Test};

/// Readings that are closer together may be of one and the same scrape.
const APART: Duration = Duration::from_secs(10);

/// Judges by the smallest and the largest value, of which at least one is given.
pub fn judge(evidence: &Evidence<'_>, value: f64, min: Option<f64>, max: Option<f64>) -> Judgement {
    if evidence.at < evidence.counts_from {
        return warming_up(evidence);
    }
    if !value.is_finite() {
        return hold(Reason::InvalidData, format!("the query gave {value}"));
    }
    let range = match (min, max) {
        (Some(min), Some(max)) => format!("limits {} to {}", text::trim(min), text::trim(max)),
        (Some(min), None) => format!("limit at least {}", text::trim(min)),
        (None, Some(max)) => format!("limit at most {}", text::trim(max)),
        (None, None) => "there is no limit".to_owned(),
    };
    let low = min.filter(|min| value < *min).map(|min| (LimitKind::Min, min));
    let over = low.or(max.filter(|max| value > *max).map(|max| (LimitKind::Max, max)));
    let repeated = evidence.breach.is_some_and(|breach| evidence.at >= time::after(breach.at.0, APART));
    let message = format!("the value is {}, {range}", text::trim(value));
    let by = |(limit, threshold): (LimitKind, f64), bad: u64| LimitEvidence {
        value: Some(value),
        ..on(limit, Test::Value, Span::Stage, threshold, bad, bad.max(1))
    };
    let both = || min.map(|min| (LimitKind::Min, min)).into_iter().chain(max.map(|max| (LimitKind::Max, max)));
    let judgement = match (over, repeated) {
        (None, _) => pass(message).by(both().map(|limit| by(limit, 0))),
        (Some(limit), true) => fail(message).by([by(limit, 2)]),
        (Some(limit), false) => {
            hold(Reason::OverLimit, format!("{message}; it fails if a later reading says the same")).by([by(limit, 1)])
        }
    };
    Judgement { value: Some(text::trim(value)), ..judgement }
}
