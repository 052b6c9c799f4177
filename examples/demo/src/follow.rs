//! Follows the `ModelRollout`: prints each change of its line, and remembers when which phase began.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use modelrollout::api::ModelRollout;
use modelrollout::api::reasons::{Phase, Step};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::manifests::{NAME, NAMESPACE};
use crate::table::{self, Clock};

/// A phase and when it was first seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub label: String,
    pub began: Instant,
}

/// What the watch sees.
pub struct Follower {
    latest: watch::Receiver<Option<Arc<ModelRollout>>>,
    spans: Arc<Mutex<Vec<Span>>>,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    pub fn start(client: &Client, clock: Clock) -> Self {
        let (sender, latest) = watch::channel(None);
        let spans = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(follow(client.clone(), clock, sender, Arc::clone(&spans)));
        Self { latest, spans, task }
    }

    /// Waits until the rollout is as asked for.
    pub async fn until(
        &mut self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&ModelRollout) -> bool,
    ) -> Result<Arc<ModelRollout>, String> {
        let is_so = |seen: &Option<Arc<ModelRollout>>| seen.as_ref().is_some_and(|rollout| is_so(rollout));
        match timeout(limit, self.latest.wait_for(is_so)).await {
            Ok(Ok(seen)) => seen.clone().ok_or_else(|| format!("nothing was seen while waiting until {what}")),
            Ok(Err(_)) => Err(format!("the watch ended while waiting until {what}")),
            Err(_) => Err(format!("it took more than {} s until {what}", limit.as_secs())),
        }
    }

    /// What was seen last.
    pub fn latest(&self) -> Option<Arc<ModelRollout>> {
        self.latest.borrow().clone()
    }

    /// The phases that began at or after an instant.
    pub fn spans_since(&self, at: Instant) -> Vec<Span> {
        lock(&self.spans).iter().filter(|span| span.began >= at).cloned().collect()
    }
}

fn lock(spans: &Mutex<Vec<Span>>) -> MutexGuard<'_, Vec<Span>> {
    spans.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(
    client: Client,
    clock: Clock,
    sender: watch::Sender<Option<Arc<ModelRollout>>>,
    spans: Arc<Mutex<Vec<Span>>>,
) {
    let api: Api<ModelRollout> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut changes = std::pin::pin!(watcher(api, config).default_backoff().touched_objects());
    let (mut line, mut said) = (String::new(), None);
    while let Some(change) = changes.next().await {
        let Ok(rollout) = change else { continue };
        let label = label(&rollout);
        {
            let mut spans = lock(&spans);
            if spans.last().is_none_or(|last| last.label != label) {
                spans.push(Span { label, began: Instant::now() });
            }
        }
        let now = table::line(&rollout);
        if now != line {
            clock.row(&now);
            line = now;
        }
        // The numbers in a remark move all the time: once per phase and reason is enough.
        let why = table::remark(&rollout).map(|remark| (reason(&rollout), remark));
        if let Some((_, remark)) = why.as_ref().filter(|why| said.as_ref() != Some(&why.0)) {
            table::note(remark);
        }
        said = why.map(|why| why.0);
        sender.send_replace(Some(Arc::new(rollout)));
    }
}

fn reason(rollout: &ModelRollout) -> (Option<Phase>, String) {
    let status = rollout.status.as_ref();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    (status.and_then(|status| status.phase), ready.map(|ready| ready.reason.clone()).unwrap_or_default())
}

/// The phase for the summary: the share within a stage, whether it is held or not.
fn label(rollout: &ModelRollout) -> String {
    let Some(status) = &rollout.status else { return "new".to_owned() };
    match &status.attempt {
        Some(attempt) if attempt.open => match attempt.step {
            Step::Preparing => "preparing".to_owned(),
            Step::Stage => format!("{} %", attempt.weight_intended),
            Step::Promoting => "switch".to_owned(),
            Step::Buffering => "buffer".to_owned(),
            Step::RollingBack => "rolling back".to_owned(),
            Step::Restoring => "restoring".to_owned(),
        },
        _ => status.phase.map_or("new", Phase::as_str).to_lowercase(),
    }
}
