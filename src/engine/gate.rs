//! Judging one gate: `judge(evidence, rule) -> verdict`. Pure arithmetic on whole numbers of requests.
//!
//! No data, too few samples and an outage hold: they never pass and never fail. A failure may come before all samples
//! are in: once so many were bad that the limit would be passed even if every missing one were good (curtailed sampling).

use super::observed::{Answer, Counts};
use super::rollout::{Gate, Rule};
use crate::api::reasons::{Reason, Verdict};

/// What is known of one gate.
#[derive(Clone, Debug, PartialEq)]
pub enum Evidence<'a> {
    /// The newest answer of the source, with the counts to compare with.
    Answer {
        /// The answer.
        answer: &'a Answer,
        /// The other color's counts: of the same time, or of the last stage in which both had traffic.
        baseline: Option<&'a Counts>,
        /// Whether a `value` was over its limit in an earlier reading too.
        repeated: bool,
    },
    /// Nothing was read for this stage yet.
    None,
}

/// The verdict on one gate, and what to tell of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the evidence says.
    pub verdict: Verdict,
    /// A word for why.
    pub reason: Reason,
    /// The target's value.
    pub value: Option<String>,
    /// The other color's.
    pub baseline: Option<String>,
    /// The target's requests so far.
    pub samples: Option<u64>,
    /// Those needed.
    pub needed: Option<u64>,
    /// One sentence.
    pub message: String,
}

impl Judgement {
    fn new(verdict: Verdict, reason: Reason, message: String) -> Self {
        Self { verdict, reason, value: None, baseline: None, samples: None, needed: None, message }
    }
}

fn hold(reason: Reason, message: String) -> Judgement {
    Judgement::new(Verdict::Hold, reason, message)
}

/// Judges `gate` by `evidence`.
pub fn judge(evidence: &Evidence<'_>, gate: &Gate) -> Judgement {
    let Evidence::Answer { answer, baseline, repeated } = evidence else { return not_read(gate) };
    match (answer, &gate.rule) {
        (Answer::Problem(reason, message), _) => hold(*reason, message.clone()),
        (Answer::Counted { candidate, .. }, Rule::ErrorRate { max, max_increase, .. }) => {
            error_rate(&candidate.now, *baseline, *max, *max_increase, gate.min_samples)
        }
        (Answer::Counted { candidate, .. }, Rule::Latency { quantile, max, max_ratio, .. }) => {
            latency(&candidate.now, *baseline, *quantile, *max, *max_ratio, gate.min_samples)
        }
        (Answer::Value(value), Rule::Value { min, max, .. }) => scalar(*value, *min, *max, *repeated),
        _ => hold(Reason::InvalidData, "the source answered another question".to_owned()),
    }
}

/// A stage has just begun. For counts that is the same as none so far, so that the first answer changes no verdict.
fn not_read(gate: &Gate) -> Judgement {
    if matches!(gate.rule, Rule::Value { .. }) {
        return hold(Reason::NoData, "nothing was read yet".to_owned());
    }
    let needed = gate.min_samples;
    let held = hold(Reason::InsufficientSamples, format!("0 of {needed} requests so far"));
    Judgement { samples: Some(0), needed: Some(needed), ..held }
}

fn error_rate(
    counts: &Counts,
    baseline: Option<&Counts>,
    max: Option<f64>,
    increase: Option<f64>,
    needed: u64,
) -> Judgement {
    let (bad, total) = (counts.bad, counts.total);
    let mut out = match enough(counts, needed) {
        Ok(()) if bad > total => {
            hold(Reason::InvalidData, format!("{bad} bad of {total} requests: `bad` must select a part of `total`"))
        }
        Ok(()) => {
            let text = format!("{bad} of {total} requests failed ({})", percent(bad, total));
            rate_verdict(&text, counts, baseline, max, increase, needed)
        }
        Err(_) if max.is_some_and(|max| bad <= total && certain(bad, needed, max)) => {
            let limit = percent_of(max.unwrap_or_default());
            let message = format!(
                "{bad} of {total} requests failed; even if every missing one of {needed} were good, that is over {limit}"
            );
            Judgement::new(Verdict::Fail, Reason::OverLimit, message)
        }
        Err(held) => held,
    };
    if total > 0 {
        out.value = Some(percent(bad, total));
    }
    out.baseline = baseline.filter(|counts| counts.total > 0).map(|counts| percent(counts.bad, counts.total));
    out.samples = Some(total);
    out.needed = Some(needed);
    out
}

/// Limits are decimal fractions: 7 of 1000 is not above 0.7 %, whatever the last bit of a float says.
const SLACK: f64 = 1e-9;

/// The verdict once there are samples enough.
fn rate_verdict(
    text: &str,
    counts: &Counts,
    baseline: Option<&Counts>,
    max: Option<f64>,
    increase: Option<f64>,
    needed: u64,
) -> Judgement {
    let rate = ratio(counts.bad, counts.total);
    if let Some(max) = max.filter(|max| rate > *max + SLACK) {
        return Judgement::new(Verdict::Fail, Reason::OverLimit, format!("{text}, the limit is {}", percent_of(max)));
    }
    let Some(increase) = increase else {
        return pass(format!("{text}, the limit is {}", max.map(percent_of).unwrap_or_default()));
    };
    let base = match comparable(baseline, needed, max.is_some(), text) {
        Ok(base) => base,
        Err(judgement) => return judgement,
    };
    let text = format!("{text}, of the other color {} of {} ({})", base.bad, base.total, percent(base.bad, base.total));
    let limit = format!("at most {} points more are fine", percent_of(increase).trim_end_matches('%').trim_end());
    if rate - ratio(base.bad, base.total) > increase + SLACK {
        Judgement::new(Verdict::Fail, Reason::OverLimit, format!("{text}: {limit}"))
    } else {
        pass(format!("{text}: {limit}"))
    }
}

fn latency(
    counts: &Counts,
    baseline: Option<&Counts>,
    quantile: f64,
    max: Option<f64>,
    ratio_max: Option<f64>,
    needed: u64,
) -> Judgement {
    let slow = 1.0 - quantile;
    let name = format!("p{}", trim(quantile * 100.0));
    let mut out = match enough(counts, needed) {
        Ok(()) => latency_verdict(&name, counts, baseline, slow, max, ratio_max, needed),
        Err(held) => match max.map(|max| slower(counts, at_or_above(counts, max))) {
            Some(bad) if counts.seen && certain(bad, needed, slow) => Judgement::new(
                Verdict::Fail,
                Reason::OverLimit,
                format!(
                    "{bad} of {} requests took longer than {}; even if every missing one of {needed} were fast, {name} is over it",
                    counts.total,
                    seconds(max)
                ),
            ),
            _ => held,
        },
    };
    out.value = quantile_text(counts, quantile);
    out.baseline = baseline.and_then(|counts| quantile_text(counts, quantile));
    out.samples = Some(counts.total);
    out.needed = Some(needed);
    out
}

fn latency_verdict(
    name: &str,
    counts: &Counts,
    baseline: Option<&Counts>,
    slow: f64,
    max: Option<f64>,
    ratio_max: Option<f64>,
    needed: u64,
) -> Judgement {
    let mut text =
        format!("{name} of {} requests is {}", counts.total, quantile_text(counts, 1.0 - slow).unwrap_or_default());
    if let Some(max) = max {
        let limits = Limits { pass: at_or_below(counts, max), fail: at_or_above(counts, max) };
        text = format!("{text}, the limit is {}", seconds(Some(max)));
        if let Some(verdict) = beyond(counts, &limits, slow, &text) {
            return verdict;
        }
    }
    let Some(ratio_max) = ratio_max else { return pass(text) };
    let base = match comparable(baseline, needed, max.is_some(), &text) {
        Ok(base) => base,
        Err(judgement) => return judgement,
    };
    if base.bounds != counts.bounds {
        return hold(Reason::InvalidData, "the two colors' histograms have different buckets".to_owned());
    }
    let text = format!(
        "{text}, of the other color {}: at most {} times as long is fine",
        quantile_text(base, 1.0 - slow).unwrap_or_default(),
        trim(ratio_max)
    );
    let (lower, upper) = bucket_of(base, 1.0 - slow);
    // Within the baseline's own bucket nothing can be told apart: that is no regression.
    let pass_at = upper.and_then(|upper| at_or_below(counts, (ratio_max * lower).max(upper)));
    let limits = Limits { pass: pass_at, fail: upper.and_then(|upper| at_or_above(counts, ratio_max * upper)) };
    beyond(counts, &limits, slow, &text).unwrap_or_else(|| pass(text))
}

/// The buckets by which a limit passes and fails: bucket error can do neither.
struct Limits {
    pass: Option<usize>,
    fail: Option<usize>,
}

/// A verdict unless `counts` are within the limit.
fn beyond(counts: &Counts, limits: &Limits, slow: f64, text: &str) -> Option<Judgement> {
    if ratio(slower(counts, limits.fail), counts.total) > slow + SLACK {
        return Some(Judgement::new(Verdict::Fail, Reason::OverLimit, text.to_owned()));
    }
    let surely_within = limits.pass.is_some_and(|at| ratio(slower(counts, Some(at)), counts.total) <= slow + SLACK);
    (!surely_within).then(|| {
        hold(
            Reason::BucketTooCoarse,
            format!("{text}; the histogram's buckets are too coarse to tell: add a bucket at the limit"),
        )
    })
}

fn scalar(value: f64, min: Option<f64>, max: Option<f64>, repeated: bool) -> Judgement {
    if !value.is_finite() {
        return hold(Reason::InvalidData, format!("the query gave {value}"));
    }
    let range = match (min, max) {
        (Some(min), Some(max)) => format!("{} to {} is fine", trim(min), trim(max)),
        (Some(min), None) => format!("at least {} is fine", trim(min)),
        (None, Some(max)) => format!("at most {} is fine", trim(max)),
        (None, None) => "there is no limit".to_owned(),
    };
    let over = min.is_some_and(|min| value < min) || max.is_some_and(|max| value > max);
    let message = format!("the value is {}, {range}", trim(value));
    let mut out = match (over, repeated) {
        (false, _) => pass(message),
        (true, true) => Judgement::new(Verdict::Fail, Reason::OverLimit, message),
        (true, false) => hold(Reason::OverLimit, format!("{message}; it fails if the next reading says the same")),
    };
    out.value = Some(trim(value));
    out
}

fn pass(message: String) -> Judgement {
    Judgement::new(Verdict::Pass, Reason::WithinLimit, message)
}

/// The other color's counts, if there are enough to compare with; else what follows from that.
fn comparable<'a>(
    baseline: Option<&'a Counts>,
    needed: u64,
    has_absolute: bool,
    text: &str,
) -> Result<&'a Counts, Judgement> {
    let base = baseline.filter(|base| base.total > 0).ok_or_else(|| compared_with_nothing(has_absolute, text))?;
    if base.total < needed {
        let message = format!("{} of {needed} requests of the other color so far", base.total);
        return Err(hold(Reason::InsufficientSamples, message));
    }
    Ok(base)
}

fn compared_with_nothing(has_absolute: bool, text: &str) -> Judgement {
    if has_absolute {
        pass(format!("{text}; there is no traffic of the other color to compare with"))
    } else {
        hold(Reason::NoBaseline, "there was no stage in which both colors had traffic: add one below 100, or give the gate an absolute limit".to_owned())
    }
}

fn enough(counts: &Counts, needed: u64) -> Result<(), Judgement> {
    if !counts.seen {
        return Err(hold(Reason::NoData, "the selector matches no series of the target: check its labels".to_owned()));
    }
    if counts.total < needed {
        return Err(hold(Reason::InsufficientSamples, format!("{} of {needed} requests so far", counts.total)));
    }
    Ok(())
}

/// Whether `bad` is so many that the share is over `limit` even if all missing requests up to `needed` were good.
fn certain(bad: u64, needed: u64, limit: f64) -> bool {
    bad > 0 && bad as f64 > limit * needed as f64 + 1e-9
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Requests slower than the bound at `index`; without one, slower than infinity: none.
fn slower(counts: &Counts, index: Option<usize>) -> u64 {
    index.and_then(|index| counts.at_most.get(index)).map_or(0, |at_most| counts.total.saturating_sub(*at_most))
}

fn at_or_below(counts: &Counts, limit: f64) -> Option<usize> {
    counts.bounds.iter().rposition(|bound| *bound <= limit * (1.0 + 1e-12))
}

fn at_or_above(counts: &Counts, limit: f64) -> Option<usize> {
    counts.bounds.iter().position(|bound| *bound >= limit * (1.0 - 1e-12))
}

/// Bounds of the bucket that holds the quantile; no upper one beyond the last bound.
fn bucket_of(counts: &Counts, quantile: f64) -> (f64, Option<f64>) {
    let rank = quantile * counts.total as f64;
    let mut lower = 0.0;
    for (bound, at_most) in counts.bounds.iter().zip(&counts.at_most) {
        if *at_most as f64 >= rank {
            return (lower, Some(*bound));
        }
        lower = *bound;
    }
    (lower, None)
}

fn quantile_text(counts: &Counts, quantile: f64) -> Option<String> {
    if counts.total == 0 || counts.bounds.is_empty() {
        return None;
    }
    Some(match bucket_of(counts, quantile) {
        (lower, Some(upper)) => format!("{}–{}", trim(lower), seconds(Some(upper))),
        (lower, None) => format!("over {}", seconds(Some(lower))),
    })
}

fn seconds(value: Option<f64>) -> String {
    value.map(|value| format!("{}s", trim(value))).unwrap_or_default()
}

fn percent(part: u64, whole: u64) -> String {
    percent_of(ratio(part, whole))
}

fn percent_of(share: f64) -> String {
    format!("{} %", trim((share * 100_000.0).round() / 1000.0))
}

/// A number without needless zeros.
fn trim(value: f64) -> String {
    if value != 0.0 && (value.abs() < 0.001 || value.abs() >= 1e9) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::observed::Counted;
    use k8s_openapi::jiff::Timestamp;

    fn counted(counts: Counts) -> Answer {
        let settled = counts.clone();
        Answer::Counted { candidate: Counted { now: counts, settled, through: Timestamp::UNIX_EPOCH }, baseline: None }
    }

    fn errors(bad: u64, total: u64) -> Counts {
        Counts { total, bad, seen: true, ..Counts::default() }
    }

    fn gate(rule: Rule, min_samples: u64) -> Gate {
        Gate { name: "g".into(), source: "default".into(), rule, min_samples }
    }

    fn rate(max: Option<f64>, max_increase: Option<f64>) -> Rule {
        Rule::ErrorRate { bad: String::new(), total: String::new(), max, max_increase }
    }

    #[allow(clippy::needless_pass_by_value)] // reads better in the tables below
    fn verdict(counts: Counts, baseline: Option<Counts>, gate: &Gate) -> (Verdict, Reason) {
        let answer = counted(counts);
        let judged = judge(&Evidence::Answer { answer: &answer, baseline: baseline.as_ref(), repeated: false }, gate);
        (judged.verdict, judged.reason)
    }

    #[test]
    fn too_few_samples_hold_whatever_their_rate() {
        let gate = gate(rate(Some(0.05), None), 100);
        assert_eq!(verdict(errors(3, 3), None, &gate), (Verdict::Hold, Reason::InsufficientSamples));
        assert_eq!(verdict(errors(0, 99), None, &gate), (Verdict::Hold, Reason::InsufficientSamples));
        assert_eq!(verdict(Counts::default(), None, &gate), (Verdict::Hold, Reason::NoData));
    }

    #[test]
    fn the_limit_itself_is_fine_and_one_more_is_not() {
        let gate = gate(rate(Some(0.05), None), 100);
        assert_eq!(verdict(errors(5, 100), None, &gate).0, Verdict::Pass);
        assert_eq!(verdict(errors(6, 100), None, &gate).0, Verdict::Fail);
    }

    #[test]
    fn a_hopeless_case_fails_before_all_samples_are_in() {
        let gate = gate(rate(Some(0.05), None), 100);
        assert_eq!(verdict(errors(5, 10), None, &gate).0, Verdict::Hold);
        assert_eq!(verdict(errors(6, 10), None, &gate), (Verdict::Fail, Reason::OverLimit));
    }

    #[test]
    fn more_bad_than_all_is_invalid() {
        assert_eq!(verdict(errors(120, 110), None, &gate(rate(Some(0.05), None), 100)).1, Reason::InvalidData);
        assert_eq!(verdict(errors(12, 10), None, &gate(rate(Some(0.05), None), 100)).0, Verdict::Hold);
    }

    #[test]
    fn an_increase_is_judged_against_the_other_color() {
        let gate = gate(rate(None, Some(0.03)), 300);
        assert_eq!(verdict(errors(18, 400), Some(errors(100, 10_000)), &gate).0, Verdict::Fail);
        assert_eq!(verdict(errors(12, 400), Some(errors(100, 10_000)), &gate).0, Verdict::Pass);
        assert_eq!(verdict(errors(12, 400), Some(errors(0, 100)), &gate), (Verdict::Hold, Reason::InsufficientSamples));
        assert_eq!(verdict(errors(12, 400), None, &gate), (Verdict::Hold, Reason::NoBaseline));
    }

    fn histogram(at_most: &[u64], total: u64) -> Counts {
        Counts { total, bad: 0, bounds: vec![0.5, 1.0, 2.5, 5.0, 10.0], at_most: at_most.to_vec(), seen: true }
    }

    fn p99(max: Option<f64>, max_ratio: Option<f64>) -> Gate {
        gate(Rule::Latency { histogram: String::new(), quantile: 0.99, max, max_ratio }, 1500)
    }

    #[test]
    fn latency_counts_the_slow_ones() {
        let gate = p99(Some(5.0), None);
        assert_eq!(verdict(histogram(&[600, 1180, 1462, 1491, 1499], 1500), None, &gate).0, Verdict::Pass);
        assert_eq!(verdict(histogram(&[600, 1180, 1462, 1480, 1499], 1500), None, &gate).0, Verdict::Fail);
    }

    #[test]
    fn a_limit_between_bounds_can_neither_pass_nor_fail_by_bucket_error() {
        let gate = p99(Some(4.0), None);
        assert_eq!(
            verdict(histogram(&[600, 1180, 1462, 1491, 1499], 1500), None, &gate),
            (Verdict::Hold, Reason::BucketTooCoarse)
        );
        assert_eq!(verdict(histogram(&[600, 1180, 1490, 1495, 1499], 1500), None, &gate).0, Verdict::Pass);
    }

    #[test]
    fn latency_ratio_compares_with_the_other_color() {
        let gate = p99(None, Some(2.0));
        let blue = histogram(&[5200, 8600, 9870, 9985, 9998], 10_000);
        assert_eq!(
            verdict(histogram(&[600, 1180, 1462, 1491, 1499], 1500), Some(blue.clone()), &gate).0,
            Verdict::Pass
        );
        let coarse = verdict(histogram(&[500, 1000, 1380, 1420, 1490], 1500), Some(blue.clone()), &gate);
        assert_eq!(coarse, (Verdict::Hold, Reason::BucketTooCoarse));
        assert_eq!(verdict(histogram(&[500, 1000, 1380, 1420, 1476], 1500), Some(blue), &gate).0, Verdict::Fail);
    }

    #[test]
    fn equal_colors_pass_a_ratio_whatever_the_buckets() {
        let same = histogram(&[1500, 1500, 1500, 1500, 1500], 1500);
        assert_eq!(verdict(same.clone(), Some(same), &p99(None, Some(2.0))).0, Verdict::Pass);
    }

    #[test]
    fn a_value_fails_at_the_second_reading_over_its_limit() {
        let gate = gate(Rule::Value { query: String::new(), min: None, max: Some(3.0) }, 1);
        let judge_value = |value, repeated| {
            judge(&Evidence::Answer { answer: &Answer::Value(value), baseline: None, repeated }, &gate).verdict
        };
        assert_eq!(judge_value(3.0, false), Verdict::Pass);
        assert_eq!(judge_value(3.1, false), Verdict::Hold);
        assert_eq!(judge_value(3.1, true), Verdict::Fail);
        assert_eq!(judge_value(f64::NAN, true), Verdict::Hold);
        assert_eq!(judge_value(f64::INFINITY, true), Verdict::Hold);
    }
}
