//! Tells what happened: one log line per note (`kind: Decision`), and an Event that is published in the background.
//! Never delays a write; under pressure Events are dropped, log lines are not.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use tokio::sync::mpsc;

use crate::api::{ModelRollout, ModelRolloutStatus};
use crate::engine::plan::Note;
use crate::ops::metrics::Metrics;

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
    pub fn publish(&self, rollout: &ModelRollout, status: &ModelRolloutStatus, notes: &[Note]) {
        for note in notes {
            log(rollout, status, note);
            let pending = Pending { note: note.clone(), about: rollout.object_ref(&()) };
            if self.sender.try_send(pending).is_err() {
                self.metrics.event("dropped");
            }
        }
    }
}

fn log(rollout: &ModelRollout, status: &ModelRolloutStatus, note: &Note) {
    let attempt = status.attempt.as_ref();
    tracing::info!(
        target: "decision",
        kind = "Decision",
        schema = 1,
        namespace = rollout.metadata.namespace,
        rollout = rollout.metadata.name,
        uid = rollout.metadata.uid,
        attempt = attempt.map(|attempt| attempt.id),
        step = attempt.map(|attempt| attempt.step.as_str()),
        stage = attempt.map(|attempt| attempt.stage_index + 1),
        weight = attempt.map(|attempt| attempt.weight_intended),
        warning = note.warning,
        reason = note.reason.as_str(),
        action = note.action,
        "{}",
        note.message
    );
}

impl Publisher {
    /// Publishes one after the other, until every queue is gone.
    pub async fn run(mut self) {
        while let Some(Pending { note, about }) = self.receiver.recv().await {
            let event = Event {
                type_: if note.warning { EventType::Warning } else { EventType::Normal },
                reason: note.reason.as_str().to_owned(),
                note: Some(note.message.chars().take(MESSAGE).collect()),
                action: note.action,
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
