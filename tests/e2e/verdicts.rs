//! Reckons verdicts again from the numbers that are on record, by other means than the operator: what a user could do with
//! a pocket calculator and a table of the binomial distribution.

use std::io::Write as _;

use modelrollout::api::decision::{Decision, DecisionGate};
use modelrollout::api::reasons::{LimitKind, Test, Verdict as Word};
use modelrollout::api::{GateRecord, GateStatus, LimitEvidence, ModelRollout};

/// A verdict, and what it was reached by.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub word: Word,
    pub reason: String,
    pub needed: i64,
    pub evidence: Vec<LimitEvidence>,
}

impl From<&GateRecord> for Verdict {
    fn from(gate: &GateRecord) -> Self {
        let (reason, needed, evidence) = (gate.reason.clone(), gate.needed.unwrap_or(0), gate.evidence.clone());
        Self { word: gate.verdict, reason, needed, evidence }
    }
}

impl From<&GateStatus> for Verdict {
    fn from(gate: &GateStatus) -> Self {
        Self::from(&DecisionGate::from(gate))
    }
}

impl From<&DecisionGate> for Verdict {
    fn from(gate: &DecisionGate) -> Self {
        let (reason, needed, evidence) = (gate.reason.clone(), gate.needed.unwrap_or(0), gate.evidence.clone());
        Self { word: gate.verdict, reason, needed, evidence }
    }
}

/// The verdicts in a status, each with its place: those of now, and those in which attempts ended.
pub fn of(object: &ModelRollout) -> Vec<(String, Verdict)> {
    let version = object.metadata.resource_version.clone().unwrap_or_default();
    let Some(status) = &object.status else { return Vec::new() };
    let now = status.gates.iter().map(|gate| (format!("status {version} {}", gate.name), gate.into()));
    let ended = status.history.iter().flat_map(|entry| {
        entry.gates.iter().map(|gate| (format!("history {} {}", entry.attempt, gate.name), gate.into()))
    });
    now.chain(ended).collect()
}

/// The decisions in the logs of the operators, in their order.
pub fn decisions(logs: &[(String, String)]) -> Vec<Decision> {
    let lines = logs.iter().flat_map(|(_, log)| log.lines()).filter(|line| line.contains(r#""kind":"Decision""#));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// One line on how much was checked.
pub fn checked(statuses: usize, decisions: usize) {
    let _ = writeln!(std::io::stderr(), "    verdicts reckoned again: {statuses} of statuses, {decisions} decisions");
}

/// Asserts that a verdict is what its numbers say.
pub fn check(place: &str, it: &Verdict) {
    let by_job = it.reason.starts_with("Job");
    let said: Vec<Option<Word>> = it.evidence.iter().map(|one| reckon(one, it.needed)).collect();
    match it.word {
        Word::Pass | Word::Fail if by_job => {}
        Word::Pass => {
            assert!(
                !said.is_empty() && said.iter().all(|one| *one == Some(Word::Pass)),
                "{place}: {it:?}, reckoned {said:?}"
            );
        }
        Word::Fail => assert!(said.contains(&Some(Word::Fail)), "{place}: {it:?}, reckoned {said:?}"),
        // over its limit once, or decided by what is not in it
        Word::Hold => assert!(it.reason == "OverLimit" || !said.contains(&Some(Word::Fail)), "{place}: {it:?}"),
    }
}

fn reckon(one: &LimitEvidence, needed: i64) -> Option<Word> {
    let word = |over: bool| Some(if over { Word::Fail } else { Word::Pass });
    let share = |bad: i64, samples: i64| bad as f64 / samples as f64;
    let alpha = 1.0 - one.confidence.unwrap_or(1.0);
    let other = one.baseline_samples.zip(one.baseline_bad);
    match (one.test, other) {
        (Test::Value, _) => {
            let value = one.value?;
            let over = if one.limit == LimitKind::Min { value < one.threshold } else { value > one.threshold };
            if over && one.samples < 2 { None } else { word(over) }
        }
        (Test::Early, other) => {
            let (limit, alpha) = match other {
                None => (one.threshold, alpha),
                Some((samples, bad)) => (upper(bad, samples, alpha / 2.0) + one.threshold, alpha / 2.0),
            };
            let evidence = mixture(one.bad, one.samples, limit);
            // the very edge depends on the last digits of either way to reckon it
            (one.samples >= 10 && evidence >= (1.0 - 1e-6) / alpha).then_some(Word::Fail)
        }
        (Test::Share, None) if one.samples >= needed => word(share(one.bad, one.samples) > one.threshold + 1e-9),
        (Test::Share, Some((samples, bad))) if one.samples >= needed && samples >= needed => {
            word(share(one.bad, one.samples) - share(bad, samples) > one.threshold + 1e-9)
        }
        (Test::NoSlower, Some((samples, bad))) if one.samples >= needed => {
            (share(one.bad, one.samples) <= upper(bad, samples, alpha / 2.0) + 1e-9).then_some(Word::Pass)
        }
        _ => None,
    }
}

/// How much better a worse share than `limit` explains the numbers, averaged over all worse shares: a plain sum.
fn mixture(bad: i64, samples: i64, limit: f64) -> f64 {
    const STEPS: i32 = 20_000;
    let (bad, good) = (bad as f64, (samples - bad) as f64);
    let width = (1.0 - limit) / f64::from(STEPS);
    let at = |step: i32| {
        let share = limit + width * (f64::from(step) + 0.5);
        (bad * (share / limit).ln() + good * ((1.0 - share) / (1.0 - limit)).ln()).exp()
    };
    (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
}

/// The share at which so few bad requests would be as rare as `alpha`: Clopper and Pearson's bound, by halving.
fn upper(bad: i64, samples: i64, alpha: f64) -> f64 {
    let at_most = |share: f64| {
        let mut log = samples as f64 * (1.0 - share).ln();
        let mut sum = 0.0;
        for count in 0..=bad {
            sum += log.exp();
            log += ((samples - count) as f64 / (count + 1) as f64).ln() + (share / (1.0 - share)).ln();
        }
        sum
    };
    if bad >= samples {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(middle) > alpha { low = middle } else { high = middle }
    }
    high
}
