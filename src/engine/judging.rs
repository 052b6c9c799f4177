//! The gates of the stage that runs: what to ask, what the answers mean, what goes on record.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::draft::{Draft, Scene};
use super::gate::{self, Judgement};
use super::observed::{Answer, Counted, Counts, Reading};
use super::plan::{Ask, BadAndTotal, GateNeed, GateQuery};
use super::promql::{self, Names};
use super::rollout::{Gate, Rollout, Rule, Stage};
use super::{jobs, time};
use crate::api::reasons::{Reason, Verdict};
use crate::api::{Attempt, Breach, Color, Evidence, GateStatus, WaitingSince};

/// A reading older than this, apart from the scrape interval, is no evidence: whoever took it has stopped.
const STALE: Duration = Duration::from_secs(30);

/// What the gates of a stage say together. Gates that are only shown say nothing here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The first gate that failed, with its sentence.
    pub failed: Option<(String, String)>,
    /// The gates without a verdict.
    pub waiting: Vec<Waiting>,
}

/// A gate without a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub gate: String,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence.
    pub message: String,
    /// Whether anybody has looked: right after a start of the operator nobody has.
    pub read: bool,
}

/// Whether a person may pass over a gate that has no verdict for this reason: evidence that will not come. What is broken has
/// to be mended instead.
pub fn waivable(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::InsufficientSamples
            | Reason::NoTraffic
            | Reason::NoData
            | Reason::NoBaseline
            | Reason::BucketTooCoarse
            | Reason::JobDeadlineExceeded
            | Reason::JobKilled
    )
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
    /// What evidence belongs to: attempt, stage, start of the clock, settings of the gates.
    pub fn key(&self, rollout: &Rollout, attempt: &Attempt) -> String {
        let mark = self.stage.map_or_else(|| "buffer".to_owned(), |stage| stage.weight.to_string());
        let gates: Vec<&str> = rollout.gates_of(self.stage).iter().map(|gate| gate.name.as_str()).collect();
        format!("{}.{mark}.{}.{}.{}", attempt.id, self.since.as_second(), rollout.gates_hash(), gates.join(","))
    }

    /// The end of the warm-up. In the buffer there is none: the target has had traffic for long.
    pub fn counts_from(&self, gate: &Gate) -> Timestamp {
        self.stage.map_or(self.since, |stage| time::after(self.since, gate.warmup(stage.hold)))
    }

    fn over(&self, now: Timestamp) -> bool {
        self.stage.is_some_and(|stage| now >= time::after(self.since, stage.hold))
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
        let is_job = matches!(gate.rule, Rule::Job { .. });
        if is_job && window.stage.is_none() {
            // it has judged the stages, and its word stands
            let past = draft.stored.gates.iter().find(|past| past.name == gate.name && past.verdict == Verdict::Pass);
            statuses.push(past.cloned().unwrap_or_else(|| idle(gate)));
            continue;
        }
        if !gates.iter().any(|one| one.name == gate.name) {
            statuses.push(idle(gate));
            continue;
        }
        draft.wake_at(window.counts_from(gate));
        let reading = seen.readings.get(&gate.name).filter(|reading| reading.key == key && fresh(reading, now));
        let judgement = if is_job {
            gate::judge_job(&jobs::state(scene, draft, attempt, window, gate))
        } else {
            judge(scene, attempt, window, gate, reading)
        };
        let read = if is_job {
            judgement.reason != Reason::Unreadable
        } else {
            reading.is_some() || judgement.reason == Reason::InvalidQuery
        };
        if read {
            remember(attempt, gate, &judgement, reading.map_or(now, |reading| reading.at));
            wait(attempt, gate, judgement.verdict == Verdict::Hold, now);
        }
        let status = status(gate, judgement);
        match status.verdict {
            _ if gate.dry_run => {}
            Verdict::Fail if judged.failed.is_none() => {
                judged.failed = Some((gate.name.clone(), status.message.clone()));
            }
            Verdict::Hold => {
                let (gate, reason) = (gate.name.clone(), reason_of(&status));
                judged.waiting.push(Waiting { gate, reason, message: status.message.clone(), read });
            }
            _ => {}
        }
        statuses.push(status);
        match reading.map(|reading| on_record(attempt, &gate.name, reading)) {
            Some(records) if !records.is_empty() => evidence.extend(records),
            _ => evidence.extend(attempt.evidence.iter().filter(|past| past.gate == gate.name).cloned()),
        }
    }
    let queries: Vec<GateQuery> = gates.iter().filter_map(|gate| query(rollout, attempt, window, gate)).collect();
    draft.need.gates = (!queries.is_empty()).then(|| GateNeed { key, queries, resume: attempt.evidence.clone() });
    draft.gates = Some(statuses);
    attempt.evidence = evidence;
    judged
}

/// Whether a reading is young enough to be evidence. Sources are asked once per scrape.
fn fresh(reading: &Reading, now: Timestamp) -> bool {
    let interval = match &reading.answer {
        Answer::Counted { candidate, .. } => candidate.interval.unwrap_or_default(),
        _ => Duration::ZERO,
    };
    time::between(reading.at, now) < STALE + interval
}

/// The other color's counts of the stage that ends, to compare with once it has no traffic. All that was judged, not only
/// what is settled: nothing is ever added to it, so a count that is still short of what a gate needs would hold for ever.
pub fn baseline(scene: Scene<'_>, attempt: &Attempt, window: &Window<'_>) -> Vec<Evidence> {
    let key = window.key(scene.rollout, attempt);
    let judged = |gate: &str| {
        let reading = scene.seen.readings.get(gate).filter(|reading| reading.key == key)?;
        match &reading.answer {
            Answer::Counted { baseline: Some(Ok(other)), .. } => {
                Some(record(gate, attempt.from, other, &other.now, &other.warmup))
            }
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

/// How old a kept baseline may be.
const BASELINE: Duration = Duration::from_mins(30);

fn judge(
    scene: Scene<'_>,
    attempt: &Attempt,
    window: &Window<'_>,
    gate: &Gate,
    reading: Option<&Reading>,
) -> Judgement {
    let kept = attempt.baseline.iter().find(|evidence| evidence.gate == gate.name && !window.concurrent);
    // What was long ago says nothing of now. A gate that can only compare has until the end of the stage.
    let until = if gate.rule.has_absolute() { scene.now } else { window.since };
    let kept = kept.filter(|kept| time::between(kept.through.0, until) <= BASELINE).map(counts);
    // Too few to compare with will stay too few.
    let kept = kept.filter(|kept| kept.total >= gate.min_samples);
    let on_record = attempt.evidence.iter().find(|past| past.gate == gate.name && past.color == attempt.to);
    let evidence = gate::Evidence {
        answer: reading.map(|reading| &reading.answer),
        at: reading.map_or(scene.now, |reading| reading.at),
        counts_from: window.counts_from(gate),
        kept: kept.as_ref(),
        on_record: on_record.map_or(0, |past| unsigned(past.total)),
        breach: attempt.breaches.iter().find(|breach| breach.gate == gate.name),
        over: window.over(scene.now),
    };
    gate::judge(&evidence, gate)
}

/// A breach that was not seen again for so long is none.
const FORGIVEN: Duration = Duration::from_mins(5);

/// Remembers that a gate is over its limit until it is seen not to be. That nothing can be read for a while says nothing.
fn remember(attempt: &mut Attempt, gate: &Gate, judgement: &Judgement, at: Timestamp) {
    let blind = matches!(judgement.reason, Reason::QueryFailed | Reason::StaleData | Reason::NoData);
    let over = judgement.reason == Reason::OverLimit;
    attempt
        .breaches
        .retain(|breach| breach.gate != gate.name || over || blind && time::between(breach.at.0, at) <= FORGIVEN);
    if over && attempt.breaches.iter().all(|breach| breach.gate != gate.name) {
        let samples = judgement.samples.map_or(0, signed);
        attempt.breaches.push(Breach { gate: gate.name.clone(), at: time::floor(at), samples });
    }
}

/// Remembers since when a gate has had no verdict, if its user does not want to wait for one for ever.
fn wait(attempt: &mut Attempt, gate: &Gate, holds: bool, now: Timestamp) {
    if !holds || gate.max_hold.is_none() {
        attempt.waiting.retain(|waiting| waiting.gate != gate.name);
    } else if attempt.waiting.iter().all(|waiting| waiting.gate != gate.name) {
        attempt.waiting.push(WaitingSince { gate: gate.name.clone(), since: time::floor(now) });
    }
}

fn status(gate: &Gate, judgement: Judgement) -> GateStatus {
    let dry = if gate.dry_run { "dry run: " } else { "" };
    GateStatus {
        name: gate.name.clone(),
        verdict: judgement.verdict,
        reason: judgement.reason.as_str().to_owned(),
        value: judgement.value,
        baseline: judgement.baseline,
        samples: judgement.samples.map(signed),
        needed: judgement.needed.map(signed),
        eta: judgement.eta.map(time::ceil),
        message: dry.chars().chain(judgement.message.chars()).take(1024).collect(),
        evidence: judgement.evidence,
        dry_run: gate.dry_run,
    }
}

fn idle(gate: &Gate) -> GateStatus {
    status(gate, Judgement::new(Verdict::Hold, Reason::NotInThisStage, "not judged in this stage"))
}

/// The reason of a verdict.
pub fn reason_of(status: &GateStatus) -> Reason {
    Reason::ALL.iter().copied().find(|reason| reason.as_str() == status.reason).unwrap_or(Reason::NoData)
}

/// What to ask for `gate`; nothing if its selectors cannot be used, or if it asks nobody.
fn query(rollout: &Rollout, attempt: &Attempt, window: &Window<'_>, gate: &Gate) -> Option<GateQuery> {
    let metrics = gate.metrics.clone().ok()?;
    let compared = window.concurrent && gate.rule.compares();
    let fill = |text: &str, color: Color| fill(rollout, text, color);
    let other = |text: &str| compared.then(|| fill(text, attempt.from));
    let counts_from = window.counts_from(gate);
    let (since, ask) = match &gate.rule {
        Rule::ErrorRate { bad, total, .. } => {
            let ask = Ask::ErrorRate {
                candidate: BadAndTotal { bad: fill(bad, attempt.to), total: fill(total, attempt.to) },
                baseline: other(bad).zip(other(total)).map(|(bad, total)| BadAndTotal { bad, total }),
            };
            // Plain errors act in the warm-up too.
            (window.since, ask)
        }
        Rule::Latency { histogram, .. } => {
            let ask = Ask::Histogram { candidate: fill(histogram, attempt.to), baseline: other(histogram) };
            (counts_from, ask)
        }
        Rule::Value { query, .. } => (counts_from, Ask::Value { query: fill(query, attempt.to) }),
        Rule::Job { .. } => return None,
    };
    let (gate, source) = (gate.name.clone(), gate.source.clone());
    Some(GateQuery { gate, source, candidate: attempt.to, since, warm_until: counts_from, metrics, ask })
}

/// Fills in the placeholders of one color.
fn fill(rollout: &Rollout, text: &str, color: Color) -> String {
    let side = rollout.side(color);
    let names = Names { namespace: &rollout.namespace, service: &side.service, deployment: &side.deployment };
    promql::fill(text, &names)
}

fn on_record(attempt: &Attempt, gate: &str, reading: &Reading) -> Vec<Evidence> {
    let Answer::Counted { candidate, baseline } = &reading.answer else { return Vec::new() };
    let settled = |color, counted: &Counted| record(gate, color, counted, &counted.settled, &counted.warmup_settled);
    let mut records = vec![settled(attempt.to, candidate)];
    match baseline {
        Some(Ok(other)) => records.push(settled(attempt.from, other)),
        Some(Err(_)) => records
            .extend(attempt.evidence.iter().filter(|past| past.gate == gate && past.color == attempt.from).cloned()),
        None => {}
    }
    records
}

fn record(gate: &str, color: Color, counted: &Counted, counts: &Counts, warmup: &Counts) -> Evidence {
    Evidence {
        gate: gate.to_owned(),
        color,
        through: time::floor(counted.through),
        total: signed(counts.total),
        bad: signed(counts.bad),
        warmup_total: signed(warmup.total),
        warmup_bad: signed(warmup.bad),
        bounds: counts.bounds.clone(),
        counts: counts.at_most.iter().map(|count| signed(*count)).collect(),
    }
}

/// What was counted after the warm-up.
fn counts(evidence: &Evidence) -> Counts {
    let (all, warmup) = Counts::on_record(evidence);
    all.since(&warmup)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
