//! The gates of the stage that runs: what to ask, what the answers mean, what goes on record.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::draft::{Draft, Scene};
use super::gate::{self, Judgement};
use super::observed::{Answer, Counted, Counts, Reading};
use super::plan::{Ask, BadAndTotal, GateNeed, GateQuery};
use super::rollout::{Gate, Rollout, Rule, Stage};
use super::time;
use crate::api::reasons::{Reason, Verdict};
use crate::api::{Attempt, Color, Evidence, GateStatus};

/// A reading older than this is no evidence: whoever took it has stopped.
const STALE: Duration = Duration::from_secs(30);

/// What the gates of a stage say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The first gate that failed, with its sentence.
    pub failed: Option<(String, String)>,
    /// The gates without a verdict, each with its reason and sentence.
    pub waiting: Vec<(String, Reason, String)>,
}

/// Whether a person may pass over a gate that has no verdict for this reason: evidence that will not come. What is broken has
/// to be mended instead.
pub fn waivable(reason: Reason) -> bool {
    matches!(reason, Reason::InsufficientSamples | Reason::NoData | Reason::NoBaseline | Reason::BucketTooCoarse)
}

/// Since when requests count, and under which key readings are taken.
pub struct Window<'a> {
    /// The stage; none in the buffer.
    pub stage: Option<&'a Stage>,
    /// Requests after this instant count.
    pub since: Timestamp,
    /// Whether the other color has traffic too.
    pub concurrent: bool,
}

impl Window<'_> {
    fn key(&self, rollout: &Rollout, attempt: &Attempt) -> String {
        let mark = self.stage.map_or_else(|| "buffer".to_owned(), |stage| stage.weight.to_string());
        let gates: Vec<&str> = rollout.gates_of(self.stage).iter().map(|gate| gate.name.as_str()).collect();
        format!("{}.{mark}.{}.{}.{}", attempt.id, self.since.as_second(), rollout.gates_hash(), gates.join(","))
    }
}

/// Judges every gate of `window`, says what to ask next, and puts verdicts and evidence on record.
pub fn run(scene: Scene<'_>, draft: &mut Draft, attempt: &mut Attempt, window: &Window<'_>) -> Judged {
    let Scene { rollout, seen, now } = scene;
    let key = window.key(rollout, attempt);
    let gates = rollout.gates_of(window.stage);
    let mut judged = Judged::default();
    let mut statuses = Vec::new();
    let mut evidence = Vec::new();
    for gate in &rollout.gates {
        if !gates.iter().any(|one| one.name == gate.name) {
            statuses.push(idle(gate));
            continue;
        }
        let reading = seen.readings.get(&gate.name).filter(|reading| reading.key == key);
        let reading = reading.filter(|reading| time::between(reading.at, now) < STALE);
        let status = judge(draft, attempt, window, gate, reading);
        match status.verdict {
            Verdict::Fail if judged.failed.is_none() => {
                judged.failed = Some((gate.name.clone(), status.message.clone()));
            }
            Verdict::Hold => {
                judged.waiting.push((gate.name.clone(), reason_of(&status), status.message.clone()));
            }
            _ => {}
        }
        statuses.push(status);
        match reading.map(|reading| on_record(attempt, &gate.name, reading)) {
            Some(records) if !records.is_empty() => evidence.extend(records),
            _ => evidence.extend(attempt.evidence.iter().filter(|past| past.gate == gate.name).cloned()),
        }
    }
    draft.need.gates = (!gates.is_empty()).then(|| GateNeed {
        key,
        since: window.since,
        queries: gates.iter().map(|gate| query(rollout, attempt, window, gate)).collect(),
        resume: attempt.evidence.clone(),
    });
    draft.gates = Some(statuses);
    attempt.evidence = evidence;
    judged
}

/// The other color's counts of the stage that ends, to compare with once it has no traffic. All that was judged, not only
/// what is settled: nothing is ever added to it, so a count that is still short of what a gate needs would hold for ever.
pub fn baseline(scene: Scene<'_>, attempt: &Attempt, window: &Window<'_>) -> Vec<Evidence> {
    let key = window.key(scene.rollout, attempt);
    let judged = |gate: &str| {
        let reading = scene.seen.readings.get(gate).filter(|reading| reading.key == key)?;
        match &reading.answer {
            Answer::Counted { baseline: Some(other), .. } => Some(record(gate, attempt.from, other, &other.now)),
            _ => None,
        }
    };
    let recorded = attempt.evidence.iter().filter(|evidence| evidence.color == attempt.from);
    let mut kept: Vec<_> =
        recorded.map(|evidence| judged(&evidence.gate).unwrap_or_else(|| evidence.clone())).collect();
    // A gate that this stage did not judge keeps what an earlier one counted.
    let earlier: Vec<_> =
        attempt.baseline.iter().filter(|old| kept.iter().all(|new| new.gate != old.gate)).cloned().collect();
    kept.extend(earlier);
    kept
}

fn judge(draft: &Draft, attempt: &Attempt, window: &Window<'_>, gate: &Gate, reading: Option<&Reading>) -> GateStatus {
    let past = draft.stored.gates.iter().find(|past| past.name == gate.name);
    let breached = past.and_then(|past| past.breached_at.clone());
    // Too few to compare with will stay too few.
    let kept = attempt.baseline.iter().find(|evidence| evidence.gate == gate.name).map(counts);
    let kept = kept.filter(|kept| kept.total >= gate.min_samples);
    let evidence = match reading {
        None => gate::Evidence::None,
        Some(reading) => gate::Evidence::Answer {
            answer: &reading.answer,
            baseline: match &reading.answer {
                Answer::Counted { baseline: Some(baseline), .. } if window.concurrent => Some(&baseline.now),
                _ if window.concurrent => None,
                _ => kept.as_ref(),
            },
            repeated: breached.as_ref().is_some_and(|first| reading.at >= time::after(first.0, Duration::from_secs(2))),
        },
    };
    let judgement = gate::judge(&evidence, gate);
    let over = judgement.reason == Reason::OverLimit && matches!(gate.rule, Rule::Value { .. });
    let breached_at = over.then(|| breached.or_else(|| reading.map(|reading| time::floor(reading.at)))).flatten();
    GateStatus { breached_at, ..status(gate, judgement) }
}

fn status(gate: &Gate, judgement: Judgement) -> GateStatus {
    let count = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
    GateStatus {
        name: gate.name.clone(),
        verdict: judgement.verdict,
        reason: judgement.reason.as_str().to_owned(),
        value: judgement.value,
        baseline: judgement.baseline,
        samples: count(judgement.samples),
        needed: count(judgement.needed),
        message: judgement.message.chars().take(1024).collect(),
        breached_at: None,
    }
}

fn idle(gate: &Gate) -> GateStatus {
    let message = "not judged in this stage".to_owned();
    let judgement = Judgement {
        verdict: Verdict::Hold,
        reason: Reason::NotInThisStage,
        value: None,
        baseline: None,
        samples: None,
        needed: None,
        message,
    };
    status(gate, judgement)
}

/// The reason of a verdict.
pub fn reason_of(status: &GateStatus) -> Reason {
    Reason::ALL.iter().copied().find(|reason| reason.as_str() == status.reason).unwrap_or(Reason::NoData)
}

fn query(rollout: &Rollout, attempt: &Attempt, window: &Window<'_>, gate: &Gate) -> GateQuery {
    let compared = window.concurrent && gate.rule.compares();
    let fill = |text: &str, color: Color| fill(rollout, text, color);
    let other = |text: &str| compared.then(|| fill(text, attempt.from));
    let ask = match &gate.rule {
        Rule::ErrorRate { bad, total, .. } => Ask::ErrorRate {
            candidate: BadAndTotal { bad: fill(bad, attempt.to), total: fill(total, attempt.to) },
            baseline: other(bad).zip(other(total)).map(|(bad, total)| BadAndTotal { bad, total }),
        },
        Rule::Latency { histogram, .. } => {
            Ask::Histogram { candidate: fill(histogram, attempt.to), baseline: other(histogram) }
        }
        Rule::Value { query, .. } => Ask::Value { query: fill(query, attempt.to) },
    };
    GateQuery { gate: gate.name.clone(), source: gate.source.clone(), candidate: attempt.to, ask }
}

/// Fills in the placeholders of one color. The values are names that Kubernetes has checked: nothing in them needs
/// escaping in PromQL.
fn fill(rollout: &Rollout, text: &str, color: Color) -> String {
    let side = rollout.side(color);
    text.replace("{{namespace}}", &rollout.namespace)
        .replace("{{service}}", &side.service)
        .replace("{{deployment}}", &side.deployment)
}

fn on_record(attempt: &Attempt, gate: &str, reading: &Reading) -> Vec<Evidence> {
    let Answer::Counted { candidate, baseline } = &reading.answer else { return Vec::new() };
    let mut records = vec![record(gate, attempt.to, candidate, &candidate.settled)];
    records.extend(baseline.as_ref().map(|other| record(gate, attempt.from, other, &other.settled)));
    records
}

fn record(gate: &str, color: Color, counted: &Counted, counts: &Counts) -> Evidence {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Evidence {
        gate: gate.to_owned(),
        color,
        through: time::floor(counted.through),
        total: number(counts.total),
        bad: number(counts.bad),
        bounds: counts.bounds.clone(),
        counts: counts.at_most.iter().map(|count| number(*count)).collect(),
    }
}

fn counts(evidence: &Evidence) -> Counts {
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    Counts {
        total: number(evidence.total),
        bad: number(evidence.bad),
        bounds: evidence.bounds.clone(),
        at_most: evidence.counts.iter().map(|count| number(*count)).collect(),
        seen: true,
    }
}
