//! What is on record when something is done: S3, S4, S5, S6, S12, L3, L5, L6, L7.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use modelrollout::api::reasons::{Cause, ConditionType, Phase, Step};
use modelrollout::api::{Attempt, Color, ModelRollout, ModelRolloutStatus};

use super::traffic::BLIND;
use super::{Invariants, Pair};
use crate::world::SCRAPE_MS;

/// What is remembered of earlier records.
#[derive(Default)]
pub struct Record {
    /// End of the buffer, by attempt, and by what setting.
    buffers: BTreeMap<i64, (String, Option<Time>)>,
    /// When each stage was first on record, in milliseconds.
    begun: BTreeMap<(i64, i32), u64>,
    /// When each color gave the answers that gates count, in milliseconds.
    answers: Pair<Vec<u64>>,
    /// Start of each stage's clock.
    clocks: BTreeMap<(i64, i32), Time>,
    /// Revisions that failed and that nobody asked for again.
    failed: BTreeSet<String>,
    /// What was asked for since.
    generation: Option<i64>,
    /// Good answers of Prometheus before the newest stage began.
    answers_before: u64,
}

impl Record {
    /// How many answers the target has given in its stage, since that is on record and by the clock that is. By a clock that
    /// was wrong a stage may have begun before it is on record, and answers from then on count for it.
    fn answers_in_stage(&self, attempt: &Attempt, clock_wrong: bool) -> usize {
        let Some(started) = &attempt.stage_started_at else { return 0 };
        let clock = started.0.as_millisecond() - crate::names::BASE_MS;
        let begun = self.begun.get(&(attempt.id, attempt.stage_index)).copied().filter(|_| !clock_wrong).unwrap_or(0);
        // Counters are counted from their last sample before the clock on, and that is later than the share.
        let counts =
            |ended: &&u64| **ended >= begun && i64::try_from(**ended + SCRAPE_MS).is_ok_and(|ended| ended >= clock);
        self.answers.of(attempt.to).iter().rev().take_while(counts).count()
    }
}

impl Invariants {
    /// A raise of the target's share goes on from what is on record.
    pub fn scheduled(&mut self, attempt: &Attempt, color: Color, (was, is): (i32, i32), now: u64) {
        let Some(rollout) = self.rollout.clone() else { return };
        let by_hand = attempt.manual_weight.is_some() || attempt.promote_requested || attempt.restore.is_some();
        if is > attempt.weight_intended && !by_hand && attempt.step == Step::Stage {
            self.broken("S5", now, format!("{color} gets {is} %, intended are {} %", attempt.weight_intended));
        }
        let scheduled = rollout.spec.stages.iter().any(|stage| stage.weight == is);
        // the switch of a half-done promotion, or of one whose last stage is 100
        let switch = is == 100 && matches!(attempt.step, Step::Promoting | Step::Buffering);
        if !(scheduled || switch || by_hand || self.disturbed) {
            self.broken("S4", now, format!("{color} goes from {was} to {is} %, which is in no stage"));
        }
        if self.record.failed.contains(&attempt.revision) {
            self.broken("S12", now, format!("{color} gets {is} % with the revision that failed"));
        }
    }

    /// S3: the old color stays until the end of its buffer.
    pub fn scaled_down(&mut self, color: Color, now: u64) {
        let Some(status) = self.rollout.as_ref().and_then(|rollout| rollout.status.clone()) else { return };
        let Some(attempt) = status.attempt else { return };
        if attempt.open && color == attempt.from && attempt.step != Step::Buffering {
            self.broken("S3", now, format!("{color}, which serves, is scaled down in {:?}", attempt.step));
        }
        let ends = attempt.buffer_ends_at.map(|time| time.0.as_millisecond());
        let time = i64::try_from(now).unwrap_or(0) + crate::names::BASE_MS;
        if color == attempt.from && attempt.open && ends.is_some_and(|ends| ends > time) && !self.disturbed {
            self.broken("S3", now, format!("{color} is scaled down before the end of its buffer"));
        }
    }

    /// The rollout was written, by the operator or by a user.
    pub fn recorded(&mut self, old: Option<&ModelRollout>, ours: bool, now: u64) {
        let Some(rollout) = self.rollout.clone() else { return };
        if rollout.metadata.generation != self.record.generation {
            self.record.generation = rollout.metadata.generation;
            // another spec is asked for: what failed may be tried as the engine's own rules say
            if old.is_some_and(|old| old.spec.target != rollout.spec.target) {
                self.record.failed.clear();
            }
        }
        if !ours {
            self.over_at = self.over_at.max(now);
        }
        let was = old.and_then(|old| old.status.clone()).unwrap_or_default();
        let is = rollout.status.clone().unwrap_or_default();
        let acts =
            |rollout: Option<&ModelRollout>| rollout.and_then(|it| it.metadata.annotations.clone()).unwrap_or_default();
        if acts(Some(&rollout)).contains_key("modelrollout.dev/retry") {
            self.record.failed.clear();
        }
        if !ours {
            return;
        }
        self.explained(&is, now);
        let Some(attempt) = is.attempt else { return };
        self.record.begun.entry((attempt.id, attempt.stage_index)).or_insert(now);
        if self.tried.last().is_none_or(|last| last.1 != attempt.to) {
            self.tried.push((now, attempt.to));
        }
        self.begins(was.attempt.as_ref(), &attempt, now);
        let before = was.attempt.filter(|before| before.id == attempt.id);
        self.buffer(&rollout, &attempt, now);
        self.clock(&attempt, before.as_ref(), now);
        let next = before.as_ref().is_some_and(|before| before.open && attempt.stage_index > before.stage_index);
        if next && let Some(before) = &before {
            let skipped = attempt.stage_index - before.stage_index > 1;
            let waived = |stage: i32| attempt.waived_stage == Some(stage) || before.waived_stage == Some(stage);
            let by_hand = attempt.promote_requested || before.promote_requested || waived(before.stage_index);
            let edited = old.is_some_and(|old| old.spec.stages != rollout.spec.stages) || self.disturbed;
            if skipped && !by_hand && !edited {
                self.broken("S4", now, format!("from stage {} to {}", before.stage_index + 1, attempt.stage_index + 1));
            }
            let needed = rollout
                .spec
                .gates
                .iter()
                .filter(|gate| gate.error_rate.is_some() && !gate.dry_run)
                .filter_map(|gate| gate.min_samples)
                .max();
            let answers = self.record.answers_in_stage(before, self.clock_wrong);
            if let Some(needed) = needed.filter(|needed| answers < usize::try_from(*needed).unwrap_or(0) && !by_hand) {
                self.broken("S5", now, format!("the next stage begins after {answers} answers, {needed} are needed"));
            }
            if !rollout.spec.gates.is_empty() && !by_hand && self.good_answers <= self.record.answers_before {
                self.broken("S6", now, "the next stage begins, and Prometheus gave no answer in the last one");
            }
        }
        if next || before.is_none() {
            self.record.answers_before = self.good_answers;
        }
        self.left(&attempt, before.as_ref(), now);
        self.kept_too_long(&attempt, before.as_ref(), now);
    }

    /// A color has answered a request that gates count.
    pub fn counted(&mut self, color: Color, ended: u64) {
        self.record.answers.of_mut(color).push(ended);
    }

    /// S3: the end of a buffer is stored once.
    fn buffer(&mut self, rollout: &ModelRollout, attempt: &Attempt, now: u64) {
        let setting = format!("{:?}", rollout.spec.rollback.buffer);
        let known = self.record.buffers.entry(attempt.id).or_insert_with(|| (setting.clone(), None));
        let earlier = known.1.as_ref().zip(attempt.buffer_ends_at.as_ref()).is_some_and(|(was, is)| is.0 < was.0);
        let same = known.0 == setting;
        *known = (setting, attempt.buffer_ends_at.clone());
        if earlier && same && attempt.open {
            self.broken("S3", now, "the end of the buffer moves to an earlier moment");
        }
    }

    /// L5: half a minute after its buffer, or after what kept everybody from ending it, nobody keeps the old color any more.
    fn kept_too_long(&mut self, attempt: &Attempt, before: Option<&Attempt>, now: u64) {
        let promoted = !attempt.open && attempt.cause.is_none() && before.is_some_and(|before| before.open);
        let Some(ends) = attempt.buffer_ends_at.as_ref().filter(|_| promoted && !self.disturbed) else { return };
        let ends = u64::try_from(ends.0.as_millisecond() - crate::names::BASE_MS).unwrap_or(0).max(self.over_at);
        if now > ends + 30_000 {
            self.broken("L5", now, format!("the old color was kept for {} s too long", (now - ends) / 1000));
        }
    }

    /// L6: who holds says why, in a word and in a sentence.
    fn explained(&mut self, status: &ModelRolloutStatus, now: u64) {
        let waits = matches!(status.phase, Some(Phase::Holding | Phase::AwaitingApproval));
        let says = |it: &Condition| it.type_ == ConditionType::Progressing.to_string() && !it.reason.is_empty();
        if waits && !(status.summary.message.contains(' ') && status.conditions.iter().any(says)) {
            self.broken("L6", now, format!("{:?} without a reason: {:?}", status.phase, status.conditions));
        }
    }

    /// L7: an attempt begins with all traffic on the color that it starts from.
    fn begins(&mut self, last: Option<&Attempt>, attempt: &Attempt, now: u64) {
        let new = attempt.open && last.is_none_or(|last| last.id != attempt.id) && attempt.restore.is_none();
        let share = *self.share().of(attempt.to);
        if new && share > 0 && !self.disturbed {
            self.broken("L7", now, format!("an attempt begins, and {} has {share} % already", attempt.to));
        }
    }

    /// L3: the clock of a stage starts once, whoever goes on with it.
    fn clock(&mut self, attempt: &Attempt, before: Option<&Attempt>, now: u64) {
        let (Some(started), Step::Stage) = (&attempt.stage_started_at, attempt.step) else { return };
        let stage = (attempt.id, attempt.stage_index);
        let void = before.is_some_and(|before| {
            before.gates_hash != attempt.gates_hash || before.manual_weight != attempt.manual_weight
        });
        // a clock that was only intended starts when the share is there
        if *self.share().of(attempt.to) != attempt.weight_intended {
            return;
        }
        let known = self.record.clocks.insert(stage, started.clone());
        // who sees an older state, or is told of one, does not know that the share was there, and begins once more
        let cannot_know = self.is_late() || now < self.old_until || self.lied_to;
        if known.is_some_and(|known| known != *started) && !void && !self.disturbed && !cannot_know {
            self.broken("L3", now, format!("the clock of stage {} starts again", attempt.stage_index + 1));
        }
    }

    /// S12: who failed has no share any more when that is on record, and is remembered.
    fn left(&mut self, attempt: &Attempt, before: Option<&Attempt>, now: u64) {
        let going_back =
            |attempt: &Attempt| attempt.step == Step::RollingBack || (!attempt.open && attempt.cause.is_some());
        if !going_back(attempt) || before.is_some_and(going_back) {
            return;
        }
        let share = *self.share().of(attempt.to);
        // Pods that nobody wants any more are about to go
        let ready = *self.wanted.of(attempt.from) > 0 && *self.ready_now().of(attempt.from) > 0;
        let switched = attempt.cause == Some(Cause::ExternalSwitch);
        let recently = self.by_hand.is_some_and(|at| now < at + BLIND);
        let unseen = self.unseen || recently && self.blind;
        if share > 0 && ready && !switched && !self.rival && !unseen {
            let cause = attempt.cause;
            self.broken("S12", now, format!("{:?} is on record and {} still has {share} %", cause, attempt.to));
        }
        if attempt.cause != Some(Cause::RevisionChanged) {
            self.record.failed.insert(attempt.revision.clone());
        }
    }
}
