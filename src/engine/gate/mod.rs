//! Judging one gate: `judge(evidence, gate) -> verdict`. Pure arithmetic on whole numbers of requests.
//!
//! Every count is put as "so many bad of so many, at most this share", and looked at in this order:
//! 1. what cannot be right holds (no answer, too old, impossible numbers);
//! 2. what is plainly bad fails at once, from ten requests on, by a test that may be looked at any number of times
//!    ([`stats::ln_e`]): of targets that are just at the limit it sends back at most one in a thousand, by the whole stage;
//! 3. too few samples hold: they never pass and never fail;
//! 4. a share over the limit fails when it is still over it with newer samples, or at the end of the stage;
//! 5. everything else passes.

// A judgement that ends the judging is the usual case, and on no path that is hot.
#![allow(clippy::result_large_err)]

mod job;
mod latency;
mod rate;
mod text;
mod value;

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::observed::{Answer, Counted, Counts};
use super::rollout::{Gate, Rule};
use super::{stats, time};
use crate::api::reasons::{JobOutcome, LimitKind, Reason, Span, Test, Verdict};
use crate::api::{Breach, LimitEvidence};

pub use job::{JobState, judge as judge_job};

/// From so many requests on a plain failure is one.
const EARLIEST: u64 = 10;
/// Limits are decimal fractions: 7 of 1000 is not above 0.7 %, whatever the last bit of a float says.
const SLACK: f64 = 1e-9;
/// Samples may be so much older than two scrapes before they are called old.
const LATE: Duration = Duration::from_secs(5);
/// The same while the scrape interval is not known: what Prometheus itself calls stale.
const LOST: Duration = Duration::from_mins(5);

/// What is known of one gate.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The newest answer of the source; none before the first.
    pub answer: Option<&'a Answer>,
    /// When the source was asked, or the time of the judging if it was not.
    pub at: Timestamp,
    /// Since when requests count: the end of the warm-up.
    pub counts_from: Timestamp,
    /// The other color's counts of the last stage in which both had traffic, where they no longer have. Where they do,
    /// the answer has them.
    pub kept: Option<&'a Counts>,
    /// Requests of the target that are on record already: fewer of them cannot be.
    pub on_record: u64,
    /// That the gate was over its limit when it was last judged.
    pub breach: Option<&'a Breach>,
    /// Whether the hold of the stage is over.
    pub over: bool,
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
    /// When there will be so many, at the rate so far.
    pub eta: Option<Timestamp>,
    /// One sentence.
    pub message: String,
    /// What it was judged by.
    pub evidence: Vec<LimitEvidence>,
}

impl Judgement {
    /// A verdict without numbers.
    pub fn new(verdict: Verdict, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            verdict,
            reason,
            value: None,
            baseline: None,
            samples: None,
            needed: None,
            eta: None,
            message: message.into(),
            evidence: Vec::new(),
        }
    }

    fn by(mut self, evidence: impl IntoIterator<Item = LimitEvidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }
}

fn hold(reason: Reason, message: impl Into<String>) -> Judgement {
    Judgement::new(Verdict::Hold, reason, message)
}

fn pass(message: String) -> Judgement {
    Judgement::new(Verdict::Pass, Reason::WithinLimit, message)
}

fn fail(message: String) -> Judgement {
    Judgement::new(Verdict::Fail, Reason::OverLimit, message)
}

/// Judges `gate` by `evidence`.
pub fn judge(evidence: &Evidence<'_>, gate: &Gate) -> Judgement {
    if let Err(fault) = &gate.metrics {
        return hold(Reason::InvalidQuery, format!("{fault}; correct spec.gates"));
    }
    let Some(answer) = evidence.answer else { return not_read(evidence, gate) };
    match (answer, &gate.rule) {
        (Answer::Problem(reason, message), _) => hold(*reason, message.clone()),
        (Answer::Counted { candidate, baseline }, Rule::ErrorRate { .. } | Rule::Latency { .. }) => {
            counted(evidence, candidate, baseline.as_ref(), gate)
        }
        (Answer::Value(value), Rule::Value { min, max, .. }) => value::judge(evidence, *value, *min, *max),
        _ => of_another_kind(),
    }
}

fn of_another_kind() -> Judgement {
    hold(Reason::InvalidData, "the answer is of another kind than the gate; it is asked again")
}

/// A stage has just begun. For counts that is the same as none so far, so that the first answer changes no verdict.
fn not_read(evidence: &Evidence<'_>, gate: &Gate) -> Judgement {
    if evidence.at < evidence.counts_from {
        return warming_up(evidence);
    }
    if !gate.rule.counts() {
        return hold(Reason::NoData, "nothing was read yet");
    }
    let held = hold(Reason::NoTraffic, format!("0 of {} requests so far", gate.min_samples));
    Judgement { samples: Some(0), needed: Some(gate.min_samples), ..held }
}

fn warming_up(evidence: &Evidence<'_>) -> Judgement {
    let from = time::clock(evidence.counts_from);
    hold(Reason::WarmingUp, format!("the stage warms up: what comes from {from} UTC on counts"))
}

fn counted(evidence: &Evidence<'_>, candidate: &Counted, concurrent: Option<&Concurrent>, gate: &Gate) -> Judgement {
    let now = &candidate.now;
    let mut out = if !now.seen {
        hold(
            Reason::NoData,
            "the selector matches no series of the target: no request has come yet, or its labels are wrong",
        )
    } else if let Some(message) = impossible(evidence, candidate) {
        hold(Reason::InvalidData, message)
    } else if let Some(message) = stale(candidate, evidence.at) {
        hold(Reason::StaleData, message)
    } else {
        let other = Other::of(evidence, concurrent, gate);
        match &gate.rule {
            Rule::ErrorRate { max, max_increase, .. } => {
                rate::judge(evidence, candidate, &other, gate, (*max, *max_increase))
            }
            Rule::Latency { quantile, max, max_ratio, .. } => {
                latency::judge(evidence, candidate, &other, gate, (*quantile, *max, *max_ratio))
            }
            Rule::Value { .. } | Rule::Job { .. } => of_another_kind(),
        }
    };
    out.samples = Some(candidate.judged().total);
    out.needed = Some(gate.min_samples);
    out
}

/// What no counters can say.
fn impossible(evidence: &Evidence<'_>, candidate: &Counted) -> Option<String> {
    let Counts { total, bad, .. } = candidate.now;
    if bad > total {
        return Some(format!("{bad} bad of {total} requests: `bad` must select a part of `total`"));
    }
    (total < evidence.on_record).then(|| {
        format!("{total} requests were counted and {} are on record: the source has lost samples", evidence.on_record)
    })
}

/// Whether the newest sample is older than two scrapes when the source was asked; if so, a sentence.
pub fn stale(counted: &Counted, at: Timestamp) -> Option<String> {
    let longest = counted.interval.map_or(LOST, |interval| interval.saturating_mul(2).saturating_add(LATE));
    let old = match counted.newest {
        Some(newest) => time::between(newest, at) > longest,
        // counts that are on record, and no sample since the operator started
        None => counted.now.total > 0,
    };
    old.then(|| {
        let every = counted.interval.map(|interval| format!(", scraped every {}", time::show(interval)));
        // the age at which it was called old: one that grows would be news at every look
        let (longest, every) = (time::show(longest), every.unwrap_or_default());
        format!("the newest sample is more than {longest} old{every}: is the target still scraped?")
    })
}

/// What is known of the other color.
pub type Concurrent = Result<Counted, (Reason, String)>;

/// The other color, if the gate compares.
struct Other<'a> {
    /// All that was counted at the same time, warm-up included, of the stage and of what is recent.
    whole: Vec<(Span, &'a Counts)>,
    /// Without the warm-up.
    judged: Option<Cow<'a, Counts>>,
    /// Why there is nothing to go by although both have traffic.
    problem: Option<(Reason, String)>,
    /// Whether both have traffic now.
    concurrent: bool,
}

impl<'a> Other<'a> {
    fn of(evidence: &Evidence<'a>, concurrent: Option<&'a Concurrent>, gate: &Gate) -> Self {
        let nothing = Self { whole: Vec::new(), judged: None, problem: None, concurrent: concurrent.is_some() };
        if !gate.rule.compares() {
            return nothing;
        }
        let Some(concurrent) = concurrent else {
            // There is no recent time in which both had traffic.
            let whole = evidence.kept.map(|kept| (Span::Stage, kept)).into_iter().collect();
            return Self { whole, judged: evidence.kept.map(Cow::Borrowed), ..nothing };
        };
        match concurrent.as_ref().map_err(Clone::clone).and_then(|counted| usable(counted, evidence.at)) {
            Ok(counted) => Self { whole: spans(counted).collect(), judged: Some(counted.judged()), ..nothing },
            Err(problem) => Self { problem: Some(problem), ..nothing },
        }
    }

    /// Its counts of the same time.
    fn in_span(&self, span: Span) -> Option<&'a Counts> {
        self.whole.iter().find(|(one, _)| *one == span).map(|(_, counts)| *counts)
    }

    /// The other color's counts, if there are enough to compare with; else what follows from that. `has_absolute`: the gate
    /// has a limit of its own too.
    fn comparable(
        &self,
        evidence: &Evidence<'_>,
        needed: u64,
        has_absolute: bool,
        text: &str,
    ) -> Result<&Counts, Judgement> {
        if let Some((reason, message)) = &self.problem {
            return Err(hold(*reason, message.clone()));
        }
        let judged = self.judged.as_deref().filter(|counts| counts.total > 0 || self.concurrent);
        let Some(counts) = judged else {
            return Err(if has_absolute {
                pass(format!("{text}; there is no traffic of the other color to compare with"))
            } else {
                hold(
                    Reason::NoBaseline,
                    "there was no stage in which both colors had traffic: add one below 100, or give the gate an absolute limit",
                )
            });
        };
        if counts.total < needed {
            let eta = eta(evidence, counts.total, needed);
            let soon = text::soon(evidence.at, eta);
            let message = format!("{} of {needed} requests of the other color so far{soon}", counts.total);
            return Err(Judgement { eta, ..hold(Reason::InsufficientSamples, message) });
        }
        Ok(counts)
    }
}

/// The counts of the other color, if they can be right.
fn usable(counted: &Counted, at: Timestamp) -> Result<&Counted, (Reason, String)> {
    let Counts { bad, total, seen, .. } = counted.now;
    if !seen {
        let message = "the selector matches no series of the other color, which has traffic: check its labels";
        return Err((Reason::NoData, message.to_owned()));
    }
    if bad > total {
        return Err((Reason::InvalidData, format!("{bad} bad of {total} requests of the other color")));
    }
    match stale(counted, at) {
        Some(message) => Err((Reason::StaleData, format!("of the other color, {message}"))),
        None => Ok(counted),
    }
}

/// Holds while there are too few samples.
fn enough(evidence: &Evidence<'_>, counts: &Counts, needed: u64) -> Result<(), Judgement> {
    if evidence.at < evidence.counts_from {
        return Err(warming_up(evidence));
    }
    if counts.total >= needed {
        return Ok(());
    }
    let eta = eta(evidence, counts.total, needed);
    let reason = if counts.total == 0 { Reason::NoTraffic } else { Reason::InsufficientSamples };
    let soon = text::soon(evidence.at, eta);
    Err(Judgement { eta, ..hold(reason, format!("{} of {needed} requests so far{soon}", counts.total)) })
}

/// When `needed` requests will have been counted, at the rate so far.
fn eta(evidence: &Evidence<'_>, counted: u64, needed: u64) -> Option<Timestamp> {
    let elapsed = time::between(evidence.counts_from, evidence.at);
    if counted == 0 || elapsed < Duration::from_secs(1) {
        return None;
    }
    let left = elapsed.as_secs_f64() / counted as f64 * needed.saturating_sub(counted) as f64;
    let left = Duration::try_from_secs_f64(left).ok().filter(|left| *left < Duration::from_hours(24 * 365))?;
    Some(time::ceil(time::after(evidence.at, left)).0)
}

/// The spans of time in which a plain failure is looked for: trouble that begins late must not drown in what was good
/// before.
fn spans(candidate: &Counted) -> impl Iterator<Item = (Span, &Counts)> {
    std::iter::once((Span::Stage, &candidate.now)).chain(candidate.recent.iter().map(|(span, counts)| (*span, counts)))
}

/// Whether `bad` of `total` are plainly over `limit`, with a chance of error of at most `alpha` over all looks.
fn plainly_over(bad: u64, total: u64, limit: f64, alpha: f64) -> bool {
    total >= EARLIEST && stats::crosses(bad, total, limit, -alpha.ln())
}

/// A share over its limit: it fails if it was when there were fewer samples, or if there is no more time.
fn breached(evidence: &Evidence<'_>, samples: u64, text: &str) -> Judgement {
    let seen_before =
        evidence.breach.is_some_and(|breach| u64::try_from(breach.samples).is_ok_and(|then| samples > then));
    if seen_before || evidence.over {
        return fail(text.to_owned());
    }
    hold(Reason::OverLimit, format!("{text}; it fails if it still is when there are newer samples"))
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A piece of evidence without what only some limits have.
fn on(limit: LimitKind, test: Test, span: Span, threshold: f64, bad: u64, samples: u64) -> LimitEvidence {
    LimitEvidence {
        limit,
        test,
        span,
        threshold,
        samples: number(samples),
        bad: number(bad),
        longer_than: None,
        baseline_samples: None,
        baseline_bad: None,
        value: None,
        confidence: None,
    }
}

/// The same, compared with the other color's.
fn against(evidence: LimitEvidence, bad: u64, samples: u64) -> LimitEvidence {
    LimitEvidence { baseline_samples: Some(number(samples)), baseline_bad: Some(number(bad)), ..evidence }
}

/// The same, by a test that had to be as sure as the gate wants.
fn sure(evidence: LimitEvidence, gate: &Gate) -> LimitEvidence {
    LimitEvidence { confidence: Some(1.0 - gate.alpha), ..evidence }
}

/// The verdict that follows from what was put on record of a gate: what [`judge`] said, reckoned again from numbers alone.
/// `needed` are the requests without which only a plain failure is one. None if the evidence decides nothing.
pub fn reckon(evidence: &[LimitEvidence], needed: u64) -> Option<Verdict> {
    let said: Vec<Option<Verdict>> = evidence.iter().map(|one| reckon_one(one, needed)).collect();
    if said.contains(&Some(Verdict::Fail)) {
        return Some(Verdict::Fail);
    }
    (!said.is_empty() && said.iter().all(|one| *one == Some(Verdict::Pass))).then_some(Verdict::Pass)
}

fn reckon_one(one: &LimitEvidence, needed: u64) -> Option<Verdict> {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let (bad, samples) = (count(one.bad), count(one.samples));
    let other = one.baseline_samples.map(|samples| (count(one.baseline_bad.unwrap_or(0)), count(samples)));
    let alpha = 1.0 - one.confidence.unwrap_or(1.0);
    let verdict = |over| Some(if over { Verdict::Fail } else { Verdict::Pass });
    match (one.test, other) {
        (Test::Early, None) => plainly_over(bad, samples, one.threshold, alpha).then_some(Verdict::Fail),
        (Test::Early, Some((bad_other, of))) => {
            rate::plainly_more((bad, samples), (bad_other, of), one.threshold, alpha).then_some(Verdict::Fail)
        }
        (Test::Share, None) if samples >= needed => verdict(ratio(bad, samples) > one.threshold + SLACK),
        (Test::Share, Some((bad_other, of))) if samples >= needed && of >= needed => {
            verdict(ratio(bad, samples) - ratio(bad_other, of) > one.threshold + SLACK)
        }
        (Test::NoSlower, Some((bad_other, of))) if samples >= needed => {
            latency::no_slower((bad, samples), (bad_other, of), alpha).then_some(Verdict::Pass)
        }
        (Test::Value, _) => {
            let value = one.value?;
            let over = if one.limit == LimitKind::Min { value < one.threshold } else { value > one.threshold };
            if over { (samples > 1).then_some(Verdict::Fail) } else { Some(Verdict::Pass) }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
