//! Between the engine's status and the model's: everything that the engine reads again is carried over, texts are not.
//!
//! Instants that can decide nothing any more are put to a fixed value, so that the past of a rollout does not multiply
//! its states. [`Status::age`] lets time pass and does the same.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use modelrollout::api::reasons::{ConditionType, Outcome, Reason, Step, Verdict};
use modelrollout::api::{self, Color, ModelRolloutStatus};

use super::scope::Scope;
use super::state::{Act, Attempt, Rev, Sec, Status};

/// The instant that every plan is made at.
pub fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn time(at: Sec) -> Time {
    Time(now() + SignedDuration::from_secs(i64::from(at)))
}

fn sec(time: &Time) -> Sec {
    Sec::try_from(time.0.as_second() - now().as_second()).unwrap_or(Sec::MAX)
}

fn seconds(span: Duration) -> Sec {
    Sec::try_from(span.as_secs()).unwrap_or(Sec::MAX)
}

/// The texts behind the numbers of [`Rev`] and of hashes.
#[derive(Debug, Default)]
pub struct Texts {
    revisions: RwLock<BTreeMap<(Color, u8), String>>,
    contents: RwLock<BTreeMap<u8, String>>,
}

impl Texts {
    fn rev(&self, text: &str) -> Rev {
        let mut parts = text.split('-');
        let color = if parts.next() == Some("blue") { Color::Blue } else { Color::Green };
        let template = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        if !self.revisions.read().unwrap().contains_key(&(color, template)) {
            self.revisions.write().unwrap().insert((color, template), text.to_owned());
        }
        Rev { color, template }
    }

    fn text(&self, rev: Rev) -> String {
        self.revisions.read().unwrap()[&(rev.color, rev.template)].clone()
    }

    fn content(&self, text: &str) -> u8 {
        let number = u8::from_str_radix(&text[..2], 16).unwrap();
        if !self.contents.read().unwrap().contains_key(&number) {
            self.contents.write().unwrap().insert(number, text.to_owned());
        }
        number
    }

    /// The model's picture of `status`.
    pub fn compact(&self, scope: &Scope, status: &ModelRolloutStatus) -> Status {
        let ready = status.conditions.iter().find(|one| one.type_ == ConditionType::Ready.as_str());
        let reason = |text: &str| Reason::ALL.iter().copied().find(|reason| reason.as_str() == text);
        let drift = |name: &str| {
            let times = status.drift.iter().find(|drift| drift.ingress == name).map(|drift| &drift.times);
            let mut out = [None; 3];
            for (place, at) in out.iter_mut().zip(times.into_iter().flatten()) {
                *place = Some(sec(at));
            }
            out
        };
        let act = status.acts.first().map(|act| Act {
            attempt: u8::try_from(act.attempt).unwrap(),
            applied: act.effect.starts_with(Reason::ActApplied.as_str()),
            at: sec(&act.time),
        });
        let mut out = Status {
            active: status.active_color,
            failed: status.failed_revision.as_ref().map(|text| self.rev(text)),
            phase: status.phase,
            reason: ready.and_then(|ready| reason(&ready.reason)),
            verdict: status.gates.first().and_then(|gate| {
                // the operator takes these for one
                let early = [Reason::WarmingUp, Reason::NoTraffic, Reason::NoData];
                let reason = reason(&gate.reason)?;
                Some((gate.verdict, if early.contains(&reason) { Reason::InsufficientSamples } else { reason }))
            }),
            attempt: status.attempt.as_ref().map(|attempt| self.attempt(attempt)),
            last_ended: status.history.first().map(|last| sec(&last.ended_at)),
            act,
            drift: [drift("bot-canary"), drift("bot")],
        };
        out.forget(scope);
        out
    }

    fn attempt(&self, it: &api::Attempt) -> Attempt {
        let small = |number: i32| u8::try_from(number).unwrap();
        Attempt {
            id: u8::try_from(it.id).unwrap(),
            open: it.open,
            to: it.to,
            revision: self.rev(&it.revision),
            from_revision: it.from_revision.as_ref().map(|text| self.rev(text)),
            from_content: it.from_content.as_ref().map(|text| self.content(text)),
            restore: it.restore,
            step: it.step,
            stage: small(it.stage_index),
            weight: small(it.weight_intended),
            started: sec(&it.started_at),
            clock: it.stage_started_at.as_ref().map(sec),
            counted: !it.evidence.is_empty(),
            judged_by: it.gates_hash.is_some(),
            replicas_before: small(it.replicas_before),
            active_replicas: small(it.active_replicas),
            short_since: it.short_since.as_ref().map(sec),
            buffer_started: it.buffer_started_at.as_ref().map(sec),
            buffer_ends: it.buffer_ends_at.as_ref().map(sec),
            cause: it.cause,
            ended: it.ended_at.as_ref().map(sec),
            drain_until: it.drain_until.as_ref().map(sec),
        }
    }

    /// A status that the engine reads as `status`.
    pub fn inflate(&self, status: &Status, gates_hash: &str) -> ModelRolloutStatus {
        let drift = ["bot-canary", "bot"].into_iter().zip(&status.drift).filter(|(_, times)| times[0].is_some());
        ModelRolloutStatus {
            observed_generation: Some(1),
            phase: status.phase,
            active_color: status.active,
            idle_color: status.active.map(Color::other),
            attempt: status.attempt.as_ref().map(|attempt| self.inflate_attempt(attempt, gates_hash)),
            failed_revision: status.failed.map(|rev| self.text(rev)),
            drift: drift
                .map(|(ingress, times)| api::Drift {
                    ingress: ingress.to_owned(),
                    manager: "somebody".to_owned(),
                    times: times.iter().flatten().map(|at| time(*at)).collect(),
                })
                .collect(),
            acts: status
                .act
                .iter()
                .map(|act| api::ActRecord {
                    act: "rollback".to_owned(),
                    attempt: i64::from(act.attempt),
                    value: "model".to_owned(),
                    effect: if act.applied { "ActApplied: model" } else { "ActIgnored: model" }.to_owned(),
                    time: time(act.at),
                })
                .collect(),
            gates: status.verdict.map(gate).into_iter().collect(),
            conditions: status.reason.iter().map(|reason| ready(*reason)).collect(),
            history: status.last_ended.iter().map(|ended| self.inflate_history(status, *ended)).collect(),
            ..ModelRolloutStatus::default()
        }
    }

    fn inflate_attempt(&self, it: &Attempt, gates_hash: &str) -> api::Attempt {
        let evidence = api::Evidence {
            gate: "errors".to_owned(),
            color: it.to,
            through: time(0),
            total: super::engine::REQUESTS,
            bad: 0,
            warmup_total: 0,
            warmup_bad: 0,
            bounds: vec![],
            counts: vec![],
        };
        api::Attempt {
            id: i64::from(it.id),
            open: it.open,
            from: it.to.other(),
            to: it.to,
            revision: self.text(it.revision),
            from_revision: it.from_revision.map(|rev| self.text(rev)),
            from_content: it.from_content.map(|number| self.contents.read().unwrap()[&number].clone()),
            deployment_uid: Some(format!("deployment-{}", it.to)),
            ingresses: vec!["bot/main".to_owned()],
            restore: it.restore,
            step: it.step,
            stage_index: i32::from(it.stage),
            weight_intended: i32::from(it.weight),
            started_at: time(it.started),
            stage_started_at: it.clock.map(time),
            approved_stage: None,
            waived_stage: None,
            promote_requested: false,
            manual_weight: None,
            gates_hash: it.judged_by.then(|| gates_hash.to_owned()),
            evidence: if it.counted { vec![evidence] } else { vec![] },
            baseline: vec![],
            breaches: vec![],
            waiting: vec![],
            jobs: vec![],
            replicas_before: i32::from(it.replicas_before),
            active_replicas: i32::from(it.active_replicas),
            short_since: it.short_since.map(time),
            buffer_started_at: it.buffer_started.map(time),
            buffer_ends_at: it.buffer_ends.map(time),
            cause: it.cause,
            cause_message: it.cause.map(|cause| format!("{cause:?}")),
            ended_at: it.ended.map(time),
            drain_until: it.drain_until.map(time),
        }
    }

    fn inflate_history(&self, status: &Status, ended: Sec) -> api::HistoryEntry {
        let attempt = status.attempt.expect("whatever has ended was an attempt");
        api::HistoryEntry {
            attempt: 1,
            from: attempt.to.other(),
            to: attempt.to,
            outcome: Outcome::Aborted,
            cause: None,
            message: None,
            revision: self.text(attempt.revision),
            from_revision: None,
            model: String::new(),
            prompt: None,
            prompt_hash: None,
            images: vec![],
            weight: 0,
            started_at: time(ended),
            ended_at: time(ended),
            gates: vec![],
            acts: vec![],
        }
    }
}

fn gate((verdict, reason): (Verdict, Reason)) -> api::GateStatus {
    api::GateStatus {
        name: "errors".to_owned(),
        verdict,
        reason: reason.as_str().to_owned(),
        value: None,
        baseline: None,
        samples: None,
        needed: None,
        eta: None,
        message: String::new(),
        evidence: vec![],
        dry_run: false,
    }
}

fn ready(reason: Reason) -> Condition {
    Condition {
        type_: ConditionType::Ready.as_str().to_owned(),
        status: "Unknown".to_owned(),
        reason: reason.as_str().to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: time(0),
    }
}

impl Status {
    /// Lets `span` pass.
    pub fn age(&mut self, scope: &Scope, span: Sec) {
        if let Some(it) = &mut self.attempt {
            it.started -= span;
            let times = [&mut it.clock, &mut it.short_since, &mut it.buffer_started, &mut it.buffer_ends];
            times.into_iter().chain([&mut it.ended, &mut it.drain_until]).flatten().for_each(|at| *at -= span);
        }
        self.last_ended.iter_mut().chain(self.act.iter_mut().map(|act| &mut act.at)).for_each(|at| *at -= span);
        self.drift.iter_mut().flatten().flatten().for_each(|at| *at -= span);
        self.forget(scope);
    }

    /// Puts what can decide nothing any more to a fixed value.
    fn forget(&mut self, scope: &Scope) {
        let (hold, settle, buffer) = (seconds(scope.hold), seconds(scope.settle), seconds(scope.buffer));
        let floor = |at: &mut Option<Sec>, lowest: Sec| *at = at.map(|at| at.max(lowest));
        floor(&mut self.last_ended, -settle - 1);
        if let Some(act) = &mut self.act {
            act.at = act.at.max(-60);
        }
        for times in &mut self.drift {
            // Two times say no more than their number; the third begins a conflict, whose times count.
            let conflict = times[1].is_some();
            times.iter_mut().flatten().for_each(|at| *at = if conflict { (*at).max(-600) } else { 0 });
        }
        let Some(it) = &mut self.attempt else { return };
        if !it.open {
            (it.started, it.clock, it.short_since, it.buffer_started) = (0, None, None, None);
            // that it was over says that a color may have been scaled down; for how long that counts is not modeled
            it.buffer_ends = it.buffer_ends.filter(|ends| it.ended >= Some(*ends)).map(|_| -settle);
            (it.stage, it.weight, it.counted, it.judged_by) = (0, 0, false, true);
            floor(&mut it.ended, -settle);
            floor(&mut it.drain_until, 0);
            return;
        }
        let waits = matches!(it.step, Step::Preparing | Step::Restoring);
        it.started = if waits { it.started.max(-seconds(scope.deadline)) } else { 0 };
        match it.step {
            Step::Buffering => it.clock = None,
            _ => floor(&mut it.clock, -hold),
        }
        floor(&mut it.short_since, -30);
        floor(&mut it.buffer_started, -buffer.max(settle));
        floor(&mut it.buffer_ends, 0);
    }

    /// The attempt under way.
    pub fn open(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|attempt| attempt.open)
    }

    /// What is waited for: the earliest instant from now on at which something that is on record comes due.
    pub fn timers(&self, scope: &Scope) -> impl Iterator<Item = Sec> {
        let settle = seconds(scope.settle);
        let hold = seconds(scope.hold);
        let it = self.attempt;
        let of = move |at: fn(&Attempt) -> Option<Sec>| it.as_ref().and_then(at);
        let open = move |span: Sec, at: fn(&Attempt) -> Option<Sec>| {
            it.as_ref().filter(|it| it.open).and_then(at).map(|at| at + span)
        };
        let waits = |it: &Attempt| matches!(it.step, Step::Preparing | Step::Restoring).then_some(it.started);
        [
            open(0, |it| it.clock),
            open(hold, |it| it.clock),
            open(30, |it| it.short_since),
            open(settle, |it| it.buffer_started),
            open(0, |it| it.buffer_ends),
            open(seconds(scope.deadline), waits),
            of(|it| it.ended).map(|at| at + settle),
            of(|it| it.drain_until),
            self.last_ended.map(|at| at + settle + 1),
        ]
        .into_iter()
        .flatten()
        .filter(|at| *at > 0)
    }
}
