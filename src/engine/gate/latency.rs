//! A quantile of a histogram: "slower than a bucket bound" is what is bad, and `1 - quantile` is the share that may be.
//!
//! Where a limit lies between two bounds, only what is slower than the upper one fails, and only what is not slower than
//! the lower one passes: the coarseness of buckets can do neither.

use std::fmt::Write as _;

use super::{
    Evidence, Judgement, Other, SLACK, against, breached, enough, fail, hold, on, pass, plainly_over, ratio, spans,
    sure, text,
};
use crate::api::LimitEvidence;
use crate::api::reasons::{LimitKind, Reason, Span, Test, Verdict};
use crate::engine::observed::{Counted, Counts};
use crate::engine::rollout::{Gate, slow_share};
use crate::engine::stats;

/// Judges by the longest time and the largest ratio, of which at least one is given.
pub fn judge(
    evidence: &Evidence<'_>,
    candidate: &Counted,
    other: &Other<'_>,
    gate: &Gate,
    (quantile, max, max_ratio): (f64, Option<f64>, Option<f64>),
) -> Judgement {
    let judged = candidate.judged();
    let base = other.judged.as_deref();
    let rule = Latency { gate, quantile, max, max_ratio };
    let value = text::quantile(&judged, quantile);
    let baseline = base.and_then(|counts| text::quantile(counts, quantile));
    let shown = (value.as_deref().unwrap_or_default(), baseline.as_deref().unwrap_or_default());
    let out = rule.early(candidate, other).unwrap_or_else(|| rule.by_share(evidence, &judged, other, shown));
    Judgement { value, baseline, ..out }
}

/// Whether no more requests are slow than the other color's share of slow ones may well be.
pub fn no_slower((slow, total): (u64, u64), (slow_other, total_other): (u64, u64), alpha: f64) -> bool {
    ratio(slow, total) <= stats::upper_bound(slow_other, total_other, alpha / 2.0)
}

/// The settings of a latency gate.
struct Latency<'a> {
    gate: &'a Gate,
    quantile: f64,
    max: Option<f64>,
    max_ratio: Option<f64>,
}

impl Latency<'_> {
    fn share(&self) -> f64 {
        slow_share(self.quantile)
    }

    fn name(&self) -> String {
        format!("p{}", text::trim(self.quantile * 100.0))
    }

    /// A plain failure, in any span, whatever the number of samples.
    fn early(&self, candidate: &Counted, other: &Other<'_>) -> Option<Judgement> {
        for (span, counts) in spans(candidate) {
            let base = other.in_span(span).filter(|base| base.total >= self.gate.min_samples);
            let absolute = self.max.map(|max| (LimitKind::Max, at_or_above(counts, max)));
            let compared = self.max_ratio.zip(base.filter(|base| base.bounds == counts.bounds)).map(|(ratio, base)| {
                let (_, upper) = bucket_of(base, self.quantile);
                (LimitKind::MaxRatio, upper.and_then(|upper| at_or_above(counts, ratio * upper)))
            });
            for (limit, bound) in absolute.into_iter().chain(compared) {
                let (slow, total) = (slower(counts, bound), counts.total);
                if plainly_over(slow, total, self.share(), self.gate.alpha) {
                    let said = format!(
                        "{slow} of {total} requests took longer than {}{}",
                        bound_text(counts, bound),
                        text::span(span)
                    );
                    let said = format!("{said}; at {} at most {} may", self.name(), text::percent_of(self.share()));
                    let evidence = self.on(limit, Test::Early, span, counts, bound);
                    return Some(fail(said).by([sure(evidence, self.gate)]));
                }
            }
        }
        None
    }

    /// The verdict by the shares themselves, once there are samples enough.
    fn by_share(
        &self,
        evidence: &Evidence<'_>,
        counts: &Counts,
        other: &Other<'_>,
        (value, baseline): (&str, &str),
    ) -> Judgement {
        if let Err(held) = enough(evidence, counts, self.gate.min_samples) {
            return held;
        }
        let said = format!("{} of {} requests is {value}", self.name(), counts.total);
        let absolute = self.absolute(evidence, counts, said);
        let Some(ratio_max) = self.max_ratio else { return absolute };
        if absolute.reason == Reason::OverLimit {
            return absolute;
        }
        let compared = self.compared(evidence, counts, other, &absolute, (ratio_max, baseline));
        let compared = compared.unwrap_or_else(|judgement| judgement);
        // Whatever the one limit cannot tell, over the other one is over.
        if absolute.verdict == Verdict::Hold && compared.reason != Reason::OverLimit { absolute } else { compared }
    }

    /// By the longest time; without one it passes.
    fn absolute(&self, evidence: &Evidence<'_>, counts: &Counts, mut said: String) -> Judgement {
        let Some(max) = self.max else { return pass(said) };
        // Writing to a String cannot fail.
        let _ = write!(said, ", limit {}", text::seconds(max));
        let limits = Limits { pass: at_or_below(counts, max), fail: at_or_above(counts, max) };
        if let Err(over) = self.slow_enough(evidence, counts, LimitKind::Max, &limits, &said) {
            return over;
        }
        if !self.within(counts, limits.pass) {
            return coarse(&said);
        }
        pass(said).by([self.on(LimitKind::Max, Test::Share, Span::Stage, counts, limits.pass)])
    }

    /// By the largest ratio, given what the longest time says. `Err`: it does not pass, or there is nothing to compare with.
    fn compared(
        &self,
        evidence: &Evidence<'_>,
        counts: &Counts,
        other: &Other<'_>,
        absolute: &Judgement,
        (ratio_max, baseline): (f64, &str),
    ) -> Result<Judgement, Judgement> {
        let passed = absolute.evidence.clone();
        let base = other
            .comparable(evidence, self.gate.min_samples, self.max.is_some(), &absolute.message)
            .map_err(|judgement| judgement.by(passed.clone()))?;
        if base.bounds != counts.bounds {
            return Err(hold(Reason::InvalidData, "the two colors' histograms have different buckets"));
        }
        let said = format!(
            "{}, of the other color {baseline}: limit {} times as long",
            absolute.message,
            text::trim(ratio_max)
        );
        let (lower, upper) = bucket_of(base, self.quantile);
        let limits = Limits {
            pass: at_or_below(counts, ratio_max * lower),
            fail: upper.and_then(|upper| at_or_above(counts, ratio_max * upper)),
        };
        self.slow_enough(evidence, counts, LimitKind::MaxRatio, &limits, &said)?;
        if self.within(counts, limits.pass) {
            let by = self.on(LimitKind::MaxRatio, Test::Share, Span::Stage, counts, limits.pass);
            return Ok(pass(said).by(passed.into_iter().chain([by])));
        }
        if upper.is_none() {
            return Err(hold(
                Reason::BucketTooCoarse,
                format!("{said}; the histogram has no bucket above the other color's: add larger ones"),
            ));
        }
        let alike = self.alike(counts, base, lower, upper).ok_or_else(|| coarse(&said))?;
        let said = said + "; no more of its requests are slow, as far as the buckets tell";
        Ok(pass(said).by(passed.into_iter().chain(alike)))
    }

    /// Ends in a breach if more than the share are surely slower than the limit.
    fn slow_enough(
        &self,
        evidence: &Evidence<'_>,
        counts: &Counts,
        limit: LimitKind,
        limits: &Limits,
        said: &str,
    ) -> Result<(), Judgement> {
        if ratio(slower(counts, limits.fail), counts.total) <= self.share() + SLACK {
            return Ok(());
        }
        let by = self.on(limit, Test::Share, Span::Stage, counts, limits.fail);
        Err(breached(evidence, counts.total, said).by([by]))
    }

    /// Whether no more than the share can be slower than the limit.
    fn within(&self, counts: &Counts, bound: Option<usize>) -> bool {
        bound.is_some() && ratio(slower(counts, bound), counts.total) <= self.share() + SLACK
    }

    /// Two colors whose quantiles lie in one bucket cannot be told apart by it: with Prometheus' own buckets a ratio of 2
    /// would hold even equal ones. What can be told is whether more of the target's requests are slower than the bounds of
    /// that bucket; if not, that is as good as buckets get.
    fn alike(&self, counts: &Counts, base: &Counts, lower: f64, upper: Option<f64>) -> Option<Vec<LimitEvidence>> {
        let bounds = [at_or_below(counts, lower).filter(|_| lower > 0.0), at_or_above(counts, upper?)];
        let compare = |bound: Option<usize>| {
            let (slow, slow_other) = (slower(counts, bound), slower(base, bound));
            no_slower((slow, counts.total), (slow_other, base.total), self.gate.alpha).then(|| {
                let evidence = self.on(LimitKind::MaxRatio, Test::NoSlower, Span::Stage, counts, bound);
                sure(against(evidence, slow_other, base.total), self.gate)
            })
        };
        bounds.into_iter().filter(Option::is_some).map(compare).collect()
    }

    fn on(&self, limit: LimitKind, test: Test, span: Span, counts: &Counts, bound: Option<usize>) -> LimitEvidence {
        let longer_than = bound.and_then(|index| counts.bounds.get(index)).copied();
        LimitEvidence { longer_than, ..on(limit, test, span, self.share(), slower(counts, bound), counts.total) }
    }
}

/// The bounds by which a limit passes and fails.
struct Limits {
    pass: Option<usize>,
    fail: Option<usize>,
}

fn coarse(said: &str) -> Judgement {
    hold(
        Reason::BucketTooCoarse,
        format!("{said}; the histogram's buckets are too coarse to tell: add a bucket at the limit"),
    )
}

/// Requests slower than the bound at `index`; without one, slower than infinity: none.
fn slower(counts: &Counts, index: Option<usize>) -> u64 {
    index.and_then(|index| counts.at_most.get(index)).map_or(0, |at_most| counts.total.saturating_sub(*at_most))
}

fn bound_text(counts: &Counts, index: Option<usize>) -> String {
    index.and_then(|index| counts.bounds.get(index)).map(|bound| text::seconds(*bound)).unwrap_or_default()
}

fn at_or_below(counts: &Counts, limit: f64) -> Option<usize> {
    counts.bounds.iter().rposition(|bound| *bound <= limit * (1.0 + 1e-12))
}

fn at_or_above(counts: &Counts, limit: f64) -> Option<usize> {
    counts.bounds.iter().position(|bound| *bound >= limit * (1.0 - 1e-12))
}

/// Bounds of the bucket that holds the quantile; no upper one beyond the last bound.
pub fn bucket_of(counts: &Counts, quantile: f64) -> (f64, Option<f64>) {
    let rank = quantile * counts.total as f64;
    let mut lower = 0.0;
    for (bound, at_most) in counts.bounds.iter().zip(&counts.at_most) {
        if *at_most as f64 >= rank - SLACK {
            return (lower, Some(*bound));
        }
        lower = *bound;
    }
    (lower, None)
}
