//! Tells what happened: one line per note (a [`Decision`]), and an Event that is published in the background. Never
//! delays a write; under pressure Events are dropped, lines are not.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::api::decision::{DECISION_VERSION, Decision, DecisionKind};
use crate::api::reasons::Step;
use crate::api::{Attempt, Color, ModelRollout, ModelRolloutStatus};
use crate::engine::plan::Note;
use crate::engine::rollout::hex;
use crate::ops::metrics::Metrics;
use crate::ops::telemetry;

/// Events that wait to be published.
const WAITING: usize = 128;
const DEADLINE: Duration = Duration::from_secs(5);
/// The API allows a kilobyte.
const MESSAGE: usize = 1000;

struct Pending {
    note: Note,
    about: ObjectReference,
}

/// Where notes go.
#[derive(Debug)]
pub struct NoteQueue {
    sender: mpsc::Sender<Pending>,
    metrics: Arc<Metrics>,
}

/// The other end of a [`NoteQueue`].
pub struct Publisher {
    receiver: mpsc::Receiver<Pending>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

/// A queue and its publisher.
pub fn queue(client: Client, identity: &str, metrics: &Arc<Metrics>) -> (NoteQueue, Publisher) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let reporter = Reporter { controller: "modelrollout".to_owned(), instance: Some(identity.to_owned()) };
    let recorder = Recorder::new(client, reporter);
    let queue = NoteQueue { sender, metrics: Arc::clone(metrics) };
    (queue, Publisher { receiver, recorder, metrics: Arc::clone(metrics) })
}

impl NoteQueue {
    /// Logs `notes` and hands them on.
    pub fn publish(&self, about: &About<'_>, notes: &[Note]) {
        for note in notes {
            log(&about.decision(note));
            let pending = Pending { note: note.clone(), about: about.rollout.object_ref(&()) };
            if self.sender.try_send(pending).is_err() {
                self.metrics.event("dropped");
            }
        }
    }
}

/// What notes are about.
#[derive(Debug)]
pub struct About<'a> {
    /// The object.
    pub rollout: &'a ModelRollout,
    /// Its status with what was decided.
    pub status: &'a ModelRolloutStatus,
    /// Whether an attempt was open before that.
    pub was_open: bool,
    /// When it is told.
    pub at: Timestamp,
}

impl About<'_> {
    fn decision(&self, note: &Note) -> Decision {
        let (meta, status) = (&self.rollout.metadata, self.status);
        let attempt = status.attempt.as_ref();
        let open = attempt.map(|attempt| attempt.open);
        // at rest they are those of an attempt that ended long ago
        let spec = &self.rollout.spec;
        let side = attempt.map(|attempt| if attempt.to == Color::Blue { &spec.blue } else { &spec.green });
        let gates = if self.was_open || open == Some(true) { status.gates.as_slice() } else { &[] };
        Decision {
            kind: DecisionKind::Decision,
            schema_version: DECISION_VERSION,
            time: format!("{:.3}", self.at),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            attempt: attempt.map(|attempt| attempt.id),
            open,
            step: attempt.map(|attempt| attempt.step),
            stage: attempt.map(|attempt| attempt.stage_index.saturating_add(1)),
            weight: attempt.map(Attempt::share),
            active_color: status.active_color,
            from: attempt.map(|attempt| attempt.from),
            to: attempt.map(|attempt| attempt.to),
            revision: attempt.map(|attempt| attempt.revision.clone()),
            model: side.map(|side| format!("{}@{}", side.model.name, side.model.version)),
            prompt: side.and_then(|side| side.prompt_template.as_ref()).map(|prompt| prompt.version.clone()),
            from_revision: attempt.and_then(|attempt| attempt.from_revision.clone()),
            cause: attempt.and_then(|attempt| attempt.cause),
            reason: note.reason,
            action: note.action.clone(),
            warning: note.warning,
            message: note.message.clone(),
            gates: gates.iter().map(Into::into).collect(),
        }
    }
}

/// As a line of JSON, or as a log line for people.
fn log(decision: &Decision) {
    if telemetry::record(decision) {
        return;
    }
    tracing::info!(
        target: "decision",
        kind = "Decision",
        schema = decision.schema_version,
        namespace = decision.namespace,
        rollout = decision.name,
        uid = decision.uid,
        attempt = decision.attempt,
        step = decision.step.map(Step::as_str),
        stage = decision.stage,
        weight = decision.weight,
        warning = decision.warning,
        reason = decision.reason.as_str(),
        action = decision.action,
        "{}",
        decision.message
    );
}

/// Events are folded by reason and action, whatever they say: what says something else is another action.
fn fingerprint(message: &str) -> String {
    let digest = Sha256::digest(message.as_bytes());
    hex(&digest, 3)
}

impl Publisher {
    /// Publishes one after the other, until every queue is gone.
    pub async fn run(mut self) {
        while let Some(Pending { note, about }) = self.receiver.recv().await {
            let event = Event {
                type_: if note.warning { EventType::Warning } else { EventType::Normal },
                reason: note.reason.as_str().to_owned(),
                note: Some(note.message.chars().take(MESSAGE).collect()),
                action: format!("{}.{}", note.action, fingerprint(&note.message)),
                secondary: None,
            };
            let result = match tokio::time::timeout(DEADLINE, self.recorder.publish(&event, &about)).await {
                Ok(Ok(())) => "ok",
                Ok(Err(error)) => {
                    tracing::warn!(%error, reason = event.reason, "an Event could not be published");
                    "error"
                }
                Err(_) => "deadline",
            };
            self.metrics.event(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::reasons::Reason;
    use crate::shell::testing::rollout;

    fn status(open: bool) -> ModelRolloutStatus {
        let attempt = json!({ "id": 3, "open": open, "from": "blue", "to": "green", "revision": "r2", "step": "Stage",
            "stageIndex": 1, "weightIntended": 25, "startedAt": "2026-01-01T00:00:00Z", "replicasBefore": 0,
            "activeReplicas": 2 });
        let gate = json!({ "name": "errors", "verdict": "Fail", "reason": "OverLimit", "message": "8 of 90" });
        serde_json::from_value(json!({ "activeColor": "blue", "attempt": attempt, "gates": [gate] })).unwrap()
    }

    fn told(status: &ModelRolloutStatus, was_open: bool) -> Decision {
        let at = Timestamp::from_millisecond(1_767_225_600_120).unwrap();
        let note =
            Note { warning: true, reason: Reason::RolledBack, action: "RollBack".into(), message: "a\nb".into() };
        About { rollout: &rollout("bot"), status, was_open, at }.decision(&note)
    }

    #[test]
    fn a_decision_tells_where_the_attempt_stands() {
        let decision = told(&status(true), true);
        assert_eq!(decision.time, "2026-01-01T00:00:00.120Z");
        assert_eq!((decision.attempt, decision.stage, decision.weight), (Some(3), Some(2), Some(25)));
        assert_eq!((decision.name.as_str(), decision.uid.as_str(), decision.generation), ("bot", "uid-bot", 1));
        assert!(!serde_json::to_string(&decision).unwrap().contains('\n'), "one line");
    }

    #[test]
    fn gates_are_told_as_long_as_the_attempt_is_or_was_open() {
        assert_eq!(told(&status(true), false).gates.len(), 1);
        assert_eq!(told(&status(false), true).gates.len(), 1, "it ends by this decision");
        assert!(told(&status(false), false).gates.is_empty());
        let before = told(&ModelRolloutStatus::default(), false);
        assert_eq!((before.attempt, before.open, before.weight), (None, None, None));
    }
}
