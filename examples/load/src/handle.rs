//! Starts a run, and is asked about it while it goes on.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use crate::config::{LoadConfig, LoadError};
use crate::guard::Target;
use crate::outcome::{Flow, Pair};
use crate::report::{Bucket, PairCount, Report};
use crate::worker::{Shared, work};

/// The way to start a run.
#[derive(Debug)]
pub struct Load;

impl Load {
    /// Checks the settings and the target, and starts to send.
    pub async fn start(config: LoadConfig) -> Result<LoadHandle, LoadError> {
        config.check()?;
        let target = Target::resolve(&config).await?;
        let shared = Arc::new(Shared::new(config, target));
        let mut workers = JoinSet::new();
        let config = &shared.config;
        // Streams first: they run longest, and should run together soon.
        let flows =
            [(Flow::Streamed, config.streams), (Flow::KeepAlive, config.connections), (Flow::Fresh, config.fresh)];
        for (flow, count) in flows {
            for _ in 0..count {
                workers.spawn(work(Arc::clone(&shared), flow));
            }
        }
        workers.spawn(stop_after(Arc::clone(&shared)));
        Ok(LoadHandle { shared, workers })
    }
}

async fn stop_after(shared: Arc<Shared>) {
    shared.stop.run_until_cancelled(sleep(shared.config.max_duration)).await;
    shared.stop.cancel();
}

/// A run. When it is dropped, the run is broken off and nothing more is sent.
pub struct LoadHandle {
    shared: Arc<Shared>,
    workers: JoinSet<()>,
}

impl LoadHandle {
    /// What was found so far.
    pub fn snapshot(&self) -> Report {
        self.shared.recorder.report()
    }

    /// What happened when, in spans of one width, by the times of sending and of ending.
    pub fn timeline(&self, width: Duration) -> Vec<Bucket> {
        self.shared.recorder.timeline(width)
    }

    /// The answers that ended at or after an instant, by pair; pairs with none are left out. A
    /// pair with unexpected answers only is listed with zero.
    pub fn answers_since(&self, at: Instant) -> Vec<PairCount> {
        self.shared.recorder.answers_since(at)
    }

    /// Like [`LoadHandle::answers_since`], but only answers to requests that were sent at or after
    /// the instant, so without streams that were already running.
    pub fn sent_since(&self, at: Instant) -> Vec<PairCount> {
        self.shared.recorder.sent_since(at)
    }

    /// Expects one pair more from now on. If none was expected before, now only this one is.
    pub fn expect_pair(&self, pair: Pair) {
        self.shared.recorder.expect(pair);
    }

    /// Waits until the run has ended by itself and its last answer is in.
    pub async fn finished(&mut self) {
        while let Some(ended) = self.workers.join_next().await {
            // A worker that is gone would quietly lower the load.
            if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
                resume_unwind(panic);
            }
        }
    }

    /// Sends nothing more, waits for the answers that are still due, and reports. The handle can
    /// be asked about the run afterwards too.
    pub async fn stop(&mut self) -> Report {
        self.shared.stop.cancel();
        self.finished().await;
        self.snapshot()
    }
}
