//! Where traffic goes: S1, S2, S4, S10, S14, and what users meet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use modelrollout::api::reasons::Reason;
use modelrollout::api::{Color, names};
use modelrollout::engine::readiness;
use modelrollout_simapi::actors::users::{Finished, Outcome};
use modelrollout_simapi::client::Call;
use modelrollout_simapi::server::{Change, Server};
use serde_json::Value;

use super::{Invariants, Pair, color_of, objects, text};
use crate::fault::Kind;
use crate::names::{NAME, SETTLE_MS, UNREADY_MS, UNSEEN_MS, is_main};

/// A watch brings news within this, in milliseconds: what was true so recently may be acted on.
const FRESH: u64 = 250;
/// The same when a fault keeps news away: a watch that is silent is given up after 35 seconds.
pub const BLIND: u64 = 66_000;

/// Within this a loss is noticed, and the ingress controller has followed what was written then, in milliseconds.
const UNDONE: u64 = 2 * SETTLE_MS;

impl Invariants {
    /// The number of ready endpoints changes.
    pub fn endpoints(&mut self, server: &Server, now: u64) {
        let mut ready = Pair::default();
        for slice in objects(server, "discovery.k8s.io/v1/endpointslices") {
            let Some(color) = color_of(text(&slice, "/metadata/labels/kubernetes.io~1service-name")) else { continue };
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            let count = endpoints.filter(|one| one["conditions"]["ready"] == true).count() as i32;
            *ready.of_mut(color) += count;
        }
        self.ready.push((now, ready));
    }

    /// The most ready endpoints that the operator may believe in.
    fn believable(&self, color: Color, now: u64) -> i32 {
        let span = if self.blind { BLIND } else { FRESH };
        let since = now.saturating_sub(span);
        let recent = self.ready.iter().enumerate().filter(|(index, _)| {
            // what was replaced after `since` was still true then
            self.ready.get(index + 1).is_none_or(|next| next.0 >= since)
        });
        recent.map(|(_, one)| *one.1.of(color)).max().unwrap_or(0)
    }

    /// An Ingress was written.
    pub fn moved(&mut self, operator: Option<&Call>, server: &Server, now: u64) {
        let before = self.share();
        let after = shares(server);
        self.weights.push((now, after));
        let tried = self.tried.last().map(|tried| tried.1);
        if self.bad.0.is_some() && tried.is_some_and(|color| *after.of(color) == 0) {
            self.bad.1.get_or_insert(now);
        }
        if operator.is_none() {
            return;
        }
        let canaries = objects(server, "networking.k8s.io/v1/ingresses").iter().filter(|one| is_canary(one)).count();
        if canaries > 1 {
            self.broken("S4", now, format!("{canaries} canary Ingresses"));
        }
        for color in [Color::Blue, Color::Green] {
            let (was, is) = (*before.of(color), *after.of(color));
            if is > was {
                self.raised(color, was, is, now);
            }
        }
    }

    fn raised(&mut self, color: Color, was: i32, is: i32, now: u64) {
        let Some(status) = self.rollout.as_ref().and_then(|rollout| rollout.status.clone()) else {
            return self.broken("S5", now, format!("{color} gets {is} % and nothing is on record"));
        };
        let attempt = status.attempt.as_ref();
        let believed = self.believable(color, now);
        let (upward, needed) = match attempt.filter(|attempt| attempt.to == color && attempt.open) {
            Some(attempt) => (true, readiness::needed(is, attempt.active_replicas)),
            None => (false, 1),
        };
        let restoring = attempt.is_some_and(|attempt| attempt.restore.is_some());
        if believed < if restoring { 1 } else { needed } {
            self.broken("S1", now, format!("{color} gets {is} % with {believed} ready endpoints, {needed} are needed"));
        }
        if upward && let Some(attempt) = attempt {
            self.scheduled(attempt, color, (was, is), now);
        }
    }

    /// Deployment was written by the operator: only its replicas, and never those of a color that serves.
    pub fn scaled(&mut self, change: &Change, now: u64) {
        let Some(old) = &change.old else { return };
        let (was, is) = (replicas(old), replicas(&change.new));
        let Some(color) = color_of(&change.name).filter(|_| is < was) else { return };
        let (asked, in_force) = (*self.share().of(color), *self.in_force.of(color));
        // who believes that the time has come cannot know better
        if !self.is_late() && (asked > 0 || in_force > 0.0 && !self.clock_wrong) {
            let text =
                format!("{color} is scaled from {was} to {is} with {asked} % asked for and {in_force} % in force");
            self.broken("S2", now, text);
        }
        let follows = in_force > 0.0 || self.weights.last().is_some_and(|last| now < last.0 + UNDONE);
        if self.clock_wrong && follows {
            self.excused.push((now..now + UNDONE, now..now));
        }
        self.scaled_down(color, now);
    }

    /// A leader whose view is old, beside one that goes on: a known limit, since two objects cannot be written as one.
    pub fn is_late(&self) -> bool {
        self.rival && self.blind
    }

    /// The Pods of the target fail for good: who has nobody else, or has it from somebody's hand, loses what it loses.
    pub fn excuse_alone(&mut self, now: u64) {
        self.excused.push((now..now, now..u64::MAX));
    }

    /// O5: users never fail because of us, and are answered by a color that has, or just had, a share.
    pub fn answered(&mut self, request: &Finished, now: u64) {
        let (kind, began) = (request.kind, request.started_ms);
        if request.outcome.is_lost() && !self.is_excused(began) && !self.is_excused(now) {
            self.broken("O5", now, format!("{kind:?} of {began} ms: {:?}, {}", request.outcome, request.why));
        }
        let Some(color) = color_of(&request.service) else { return };
        if request.outcome == Outcome::ModelError && self.tried.last().is_some_and(|tried| tried.1 == color) {
            self.bad.0.get_or_insert(now);
        }
        if request.is_counted() {
            self.counted(color, now);
        }
        // a controller that is late breaks no promise of ours: the settle time is what we count on, not what we ask of it
        let since = began.saturating_sub(2 * SETTLE_MS);
        let mut recent = self
            .weights
            .iter()
            .enumerate()
            .filter(|(index, _)| self.weights.get(index + 1).is_none_or(|next| next.0 >= since));
        let had_share = recent.any(|(_, one)| *one.1.of(color) > 0);
        // In the middle of a reload the workers of ingress-nginx ask the outgoing Service, which is kept for that: only who
        // is on trial must never answer without a share.
        let tried = self.tried.iter().rev().find(|one| one.0 <= began);
        let on_trial = tried.is_none_or(|tried| tried.1 == color);
        if !had_share && on_trial && !self.named_users() {
            self.broken("O5", now, format!("{color} answered {kind:?} of {began} ms without a share"));
        }
    }

    /// Somebody takes all Pods of the target, or switches a backend by hand to a Service that ingress-nginx has not named yet:
    /// what users meet until that can be noticed and undone is not ours.
    pub fn excuse(&mut self, kind: Kind, now: u64) {
        // the second holds while nobody else can answer
        let (until, alone) = match kind {
            Kind::Switched => (now + UNDONE, now + UNDONE),
            Kind::SwitchedUnseen => (now + UNSEEN_MS + UNDONE, now + UNSEEN_MS + UNDONE),
            Kind::TargetUnready | Kind::NodeLost => (now + UNDONE, now + UNREADY_MS + UNDONE),
            Kind::TargetDeleted => (now + UNDONE, u64::MAX),
            _ => return,
        };
        // before it is on record who serves, the backend decides that: the operator says that nobody answers, and no more
        let adopted = self
            .rollout
            .as_ref()
            .is_some_and(|rollout| rollout.status.as_ref().is_some_and(|status| status.active_color.is_some()));
        let by_hand = matches!(kind, Kind::Switched | Kind::SwitchedUnseen);
        let alone = if by_hand && !adopted { u64::MAX } else { alone };
        // who cannot act yet, because of another fault, undoes it later
        let busy = if self.over_at > now { self.over_at + UNDONE } else { now };
        self.excused.push((now..until.max(busy), now..alone.max(busy)));
    }

    /// Another fault keeps the operator from undoing until then what somebody did.
    pub fn hold_up(&mut self, now: u64, over_at: u64) {
        for one in &mut self.excused {
            for span in [&mut one.0, &mut one.1] {
                if span.contains(&now) {
                    span.end = span.end.max(over_at + UNDONE);
                }
            }
        }
    }

    fn is_excused(&self, at: u64) -> bool {
        // nobody undoes what somebody switches to when the rollout is gone
        if self.is_gone() && (self.unseen || self.by_hand.is_some()) {
            return true;
        }
        let alone = self.alone(at);
        self.excused.iter().any(|one| one.0.contains(&at) || alone && one.1.contains(&at))
    }

    /// The rollout was deleted, or is about to be.
    fn is_gone(&self) -> bool {
        self.rollout.as_ref().is_none_or(|rollout| rollout.metadata.deletion_timestamp.is_some())
    }

    /// Nobody else can answer, or nobody sees to it: the rollout was deleted, no attempt is open that could go back, or a
    /// person was told that nobody answers and how to promote at once.
    fn alone(&self, now: u64) -> bool {
        let status = self.rollout.as_ref().and_then(|rollout| rollout.status.as_ref());
        let told = |one: &Condition| one.reason == Reason::LiveNotReady.to_string();
        let rests = status.is_none_or(|status| {
            let Some(attempt) = status.attempt.as_ref().filter(|attempt| attempt.open) else { return true };
            let dead = *self.ready_now().of(attempt.from) == 0 && !attempt.promote_requested;
            dead && status.conditions.iter().any(told)
        });
        // blue may have come back a moment ago
        let since = now.saturating_sub(UNDONE);
        let recent = |index: usize| self.ready.get(index + 1).is_none_or(|next| next.0 >= since);
        self.is_gone() || rests || self.ready.iter().enumerate().any(|(index, one)| one.1.blue == 0 && recent(index))
    }

    fn named_users(&self) -> bool {
        let stages = self.rollout.iter().flat_map(|rollout| &rollout.spec.stages);
        stages.into_iter().any(|stage| stage.users.is_some())
    }
}

/// The replicas that a Deployment wants.
pub fn replicas(deployment: &Value) -> i64 {
    deployment.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn is_canary(ingress: &Value) -> bool {
    ingress["metadata"]["annotations"][names::NGINX_CANARY] == "true"
}

/// The shares that the Ingresses ask for: of a half-done switch, each color that a backend names has all.
fn shares(server: &Server) -> Pair<i32> {
    let mut shares = Pair::default();
    for ingress in objects(server, "networking.k8s.io/v1/ingresses") {
        let name = text(&ingress, "/metadata/name");
        let rules = ingress["spec"]["rules"].as_array().into_iter().flatten();
        let paths = rules.flat_map(|rule| rule["http"]["paths"].as_array().into_iter().flatten());
        let services = paths.filter_map(|path| color_of(text(path, "/backend/service/name")));
        if is_main(name) {
            services.for_each(|color| *shares.of_mut(color) = 100);
        }
    }
    if let Some(canary) =
        server.get("networking.k8s.io/v1/ingresses", crate::names::NAMESPACE, &names::canary_name(NAME))
    {
        let to = color_of(text(&canary, "/spec/rules/0/http/paths/0/backend/service/name"));
        let weight: i32 = canary["metadata"]["annotations"][names::NGINX_CANARY_WEIGHT]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        if let Some(to) = to.filter(|to| *shares.of(*to) == 0 && is_canary(&canary)) {
            *shares.of_mut(to) = weight;
            *shares.of_mut(to.other()) = 100 - weight;
        }
    }
    shares
}
