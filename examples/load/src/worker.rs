//! The workers: each sends one request at a time, when it is its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::Response;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::answer::{Progress, judge};
use crate::client::{Connection, Outgoing, SendFailure, request};
use crate::config::LoadConfig;
use crate::guard::Target;
use crate::outcome::{Failure, FailureKind, Finished, Flow, Verdict};
use crate::recorder::Recorder;

/// What all workers share.
pub struct Shared {
    pub config: LoadConfig,
    pub target: Target,
    pub recorder: Recorder,
    pub pacer: Pacer,
    pub stop: CancellationToken,
    questions: AtomicU64,
}

impl Shared {
    pub fn new(config: LoadConfig, target: Target) -> Self {
        Self {
            recorder: Recorder::new(config.expected_pairs.clone()),
            pacer: Pacer::new(config.rate),
            stop: CancellationToken::new(),
            questions: AtomicU64::new(1),
            config,
            target,
        }
    }

    /// A question that no other request asks, so that its answer cannot be mistaken.
    fn question(&self) -> String {
        format!("What is the answer to question #{}?", self.questions.fetch_add(1, Ordering::Relaxed))
    }
}

/// Hands out the turns, evenly spaced and in the order of asking.
pub struct Pacer {
    next: Mutex<time::Instant>,
    interval: Duration,
}

impl Pacer {
    fn new(rate: f64) -> Self {
        Self { next: Mutex::new(time::Instant::now()), interval: Duration::from_secs_f64(1.0 / rate) }
    }

    /// Waits for a turn. Turns that nobody had time for are lost, so that there are no bursts.
    async fn turn(&self) {
        let mut next = self.next.lock().await;
        time::sleep_until(*next).await;
        let late = next.elapsed() > Duration::from_millis(50);
        *next = if late { time::Instant::now() } else { *next } + self.interval;
    }
}

/// Sends requests until the run stops; the one that runs then is still finished.
pub async fn work(shared: Arc<Shared>, flow: Flow) {
    let mut kept = None;
    while shared.stop.run_until_cancelled(shared.pacer.turn()).await.is_some() {
        let finished = one(&shared, flow, &mut kept).await;
        if flow == Flow::Fresh || matches!(finished.verdict, Verdict::Failed(_)) {
            kept = None;
        }
        shared.recorder.finish(finished);
    }
}

async fn one(shared: &Shared, flow: Flow, kept: &mut Option<Connection>) -> Finished {
    let streamed = flow == Flow::Streamed;
    let limit = if streamed { shared.config.stream_timeout } else { shared.config.timeout };
    let question = shared.question();
    let request = request(&shared.target, &shared.config.model, &question, flow);
    let mut progress = Progress::default();
    let sent = Instant::now();
    shared.recorder.sent();
    let exchange = async {
        match send(shared, kept, request).await {
            Ok(response) => judge(response, &question, streamed, &mut progress).await,
            Err(failure) => Verdict::Failed(failure),
        }
    };
    let verdict = match time::timeout(limit, exchange).await {
        Ok(verdict) => verdict,
        Err(_) => Verdict::Failed(timed_out(&progress, limit)),
    };
    Finished { flow, sent, first_token: progress.first_token, verdict }
}

fn timed_out(progress: &Progress, limit: Duration) -> Failure {
    let kind = if progress.streaming { FailureKind::CutStream } else { FailureKind::Timeout };
    Failure::new(kind, format!("not whole after {} ms", limit.as_millis()))
}

/// Sends on the kept connection if there is one and it is open, and else on a new one.
async fn send(
    shared: &Shared,
    kept: &mut Option<Connection>,
    mut request: Outgoing,
) -> Result<Response<Incoming>, Failure> {
    if let Some(connection) = kept {
        if connection.reusable().await {
            match connection.send(request).await {
                Ok(response) => return Ok(response),
                Err(SendFailure::Failed(failure)) => return Err(failure),
                Err(SendFailure::Unsent(unsent)) => request = *unsent,
            }
        }
        shared.recorder.reconnected();
        *kept = None;
    }
    let connection = kept.insert(Connection::open(&shared.target).await?);
    shared.recorder.opened();
    connection.send(request).await.map_err(SendFailure::give_up)
}
