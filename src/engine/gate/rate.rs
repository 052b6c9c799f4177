//! Bad requests of all requests: a share of its own, and how much more than the other color's.

use std::fmt::Write as _;

use super::{
    Evidence, Judgement, Other, SLACK, against, breached, enough, fail, on, pass, plainly_over, ratio, spans, sure,
    text,
};
use crate::api::reasons::{LimitKind, Span, Test};
use crate::engine::observed::{Counted, Counts};
use crate::engine::rollout::Gate;
use crate::engine::stats;

/// Judges by the largest share and the largest increase, of which at least one is given.
pub fn judge(
    evidence: &Evidence<'_>,
    candidate: &Counted,
    other: &Other<'_>,
    gate: &Gate,
    (max, increase): (Option<f64>, Option<f64>),
) -> Judgement {
    let judged = candidate.judged();
    let percent = |counts: &Counts| (counts.total > 0).then(|| text::percent(counts.bad, counts.total));
    let (value, baseline) = (percent(&judged), other.judged.as_deref().and_then(percent));
    let shown = (value.as_deref().unwrap_or_default(), baseline.as_deref().unwrap_or_default());
    let out = early(candidate, other, gate, (max, increase))
        .unwrap_or_else(|| by_share(evidence, &judged, other, gate, (max, increase), shown));
    Judgement { value, baseline, ..out }
}

/// A plain failure, in any span, whatever the number of samples. Requests of the warm-up count too: errors are errors.
fn early(
    candidate: &Counted,
    other: &Other<'_>,
    gate: &Gate,
    (max, increase): (Option<f64>, Option<f64>),
) -> Option<Judgement> {
    for (span, counts) in spans(candidate) {
        let Counts { bad, total, .. } = *counts;
        if let Some(max) = max.filter(|max| plainly_over(bad, total, *max, gate.alpha)) {
            let limit = text::percent_of(max);
            let message = format!(
                "{bad} of {total} requests failed ({}){}, limit {limit}",
                text::percent(bad, total),
                text::span(span)
            );
            let evidence = on(LimitKind::Max, Test::Early, span, max, bad, total);
            return Some(fail(message).by([sure(evidence, gate)]));
        }
        let Some((increase, base)) = increase.zip(other.in_span(span)) else { continue };
        if plainly_more((bad, total), (base.bad, base.total), increase, gate.alpha) {
            let message = format!(
                "{bad} of {total} requests failed ({}){}, of the other color {} of {} ({}): limit {} more",
                text::percent(bad, total),
                text::span(span),
                base.bad,
                base.total,
                text::percent(base.bad, base.total),
                text::points(increase)
            );
            let evidence = on(LimitKind::MaxIncrease, Test::Early, span, increase, bad, total);
            let evidence = against(evidence, base.bad, base.total);
            return Some(fail(message).by([sure(evidence, gate)]));
        }
    }
    None
}

/// Whether the share of bad requests is plainly more than `increase` above the other color's, of which only the upper bound
/// is taken for granted. Each of the two may err with half of `alpha`.
pub fn plainly_more((bad, total): (u64, u64), other: (u64, u64), increase: f64, alpha: f64) -> bool {
    let (bad_other, total_other) = other;
    let half = alpha / 2.0;
    // The bound is above the share itself, and costs much more: only what passes here needs it.
    total_other > 0
        && bad_other <= total_other
        && plainly_over(bad, total, ratio(bad_other, total_other) + increase, half)
        && plainly_over(bad, total, stats::upper_bound(bad_other, total_other, half) + increase, half)
}

/// The verdict by the shares themselves, once there are samples enough.
fn by_share(
    evidence: &Evidence<'_>,
    counts: &Counts,
    other: &Other<'_>,
    gate: &Gate,
    (max, increase): (Option<f64>, Option<f64>),
    (value, baseline): (&str, &str),
) -> Judgement {
    let Counts { bad, total, .. } = *counts;
    let share = |max| on(LimitKind::Max, Test::Share, Span::Stage, max, bad, total);
    if let Err(held) = enough(evidence, counts, gate.min_samples) {
        return held.by(max.map(share));
    }
    let rate = ratio(bad, total);
    let mut said = format!("{bad} of {total} requests failed ({value})");
    if let Some(max) = max.filter(|max| rate > *max + SLACK) {
        return breached(evidence, total, &format!("{said}, limit {}", text::percent_of(max))).by([share(max)]);
    }
    let Some(increase) = increase else {
        return pass(format!("{said}, limit {}", max.map(text::percent_of).unwrap_or_default())).by(max.map(share));
    };
    let base = match other.comparable(evidence, gate.min_samples, max.is_some(), &said) {
        Ok(base) => base,
        Err(judgement) => return judgement.by(max.map(share)),
    };
    // Writing to a String cannot fail.
    let _ = write!(
        said,
        ", of the other color {} of {} ({baseline}): limit {} more",
        base.bad,
        base.total,
        text::points(increase)
    );
    let compared = on(LimitKind::MaxIncrease, Test::Share, Span::Stage, increase, bad, total);
    let compared = against(compared, base.bad, base.total);
    if rate - ratio(base.bad, base.total) > increase + SLACK {
        breached(evidence, total, &said).by([compared])
    } else {
        pass(said).by(max.map(share).into_iter().chain([compared]))
    }
}
