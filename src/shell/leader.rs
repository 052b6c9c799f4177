//! Leader election on a Lease, each write with its resourceVersion, so that of two candidates at most one succeeds.
//!
//! This is code of our own because kube-lease-manager writes leases without resourceVersion: a leader that renews late
//! would not notice that it has lost. A lost lease ends the process; there is no way back to standby.
//!
//! What happens at the same moment is taken in a fixed order (`biased`, here and in the rest of the shell), so that a
//! simulated run is the same again.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::watcher::Config;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::lease::{self, DURATION, Step, held_by};

const RENEW: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);
const CALL: Duration = Duration::from_millis(1500);

/// Whether this process may write.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Until when the lease is ours; no receiver: there is no election.
    until: Option<watch::Receiver<Option<Instant>>>,
    /// Once it is cancelled, nothing may be written any more.
    stop: CancellationToken,
}

impl Leadership {
    /// Without election: always the leader, until `stop`.
    pub fn always(stop: CancellationToken) -> Self {
        Self { until: None, stop }
    }

    /// Whether the lease lasts for `margin` more.
    pub fn valid_for(&self, margin: Duration) -> bool {
        let lasts = self.until.as_ref().is_none_or(|until| {
            let until = *until.borrow();
            until.is_some_and(|until| Instant::now() + margin < until)
        });
        lasts && !self.stop.is_cancelled()
    }

    /// Whether we lead.
    pub fn leads(&self) -> bool {
        self.valid_for(Duration::ZERO)
    }
}

/// The lease was lost.
#[derive(Debug, thiserror::Error)]
#[error("the lease {0} was lost")]
pub struct Lost(String);

/// A candidate.
pub struct Elector {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    clock: Clock,
    until: watch::Sender<Option<Instant>>,
}

impl Elector {
    /// A candidate for the lease `name`, and what it knows of its leadership.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        identity: &str,
        clock: Clock,
        stop: CancellationToken,
    ) -> (Self, Leadership) {
        let (sender, receiver) = watch::channel(None);
        let elector = Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            clock,
            until: sender,
        };
        (elector, Leadership { until: Some(receiver), stop })
    }

    /// Takes the lease and holds it until `stop`. `gained` is called then, and whenever it was over for a moment: what was to
    /// be done in that moment was left undone. Gives the lease if it is held.
    pub async fn run(&self, stop: &CancellationToken, gained: impl Fn()) -> Result<Option<Lease>, Lost> {
        let lease = tokio::select! {
            biased;
            // first: a lease that was just taken is to be released
            lease = self.acquire() => lease,
            () = stop.cancelled() => return Ok(None),
        };
        tracing::info!(identity = self.identity, lease = self.name, "this process leads");
        gained();
        self.hold(lease, stop, &gained).await.map(Some)
    }

    /// Gives the lease back, so that a standby need not wait for its end.
    pub async fn release(&self, held: &Lease) {
        self.until.send_replace(None);
        let lease = lease::release(held, self.clock.precise());
        match timeout(CALL, self.api.replace(&self.name, &PostParams::default(), &lease)).await {
            Ok(Ok(_)) => tracing::info!(lease = self.name, "the lease is released"),
            Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "the lease could not be released"),
            Err(_) => tracing::warn!(lease = self.name, "the lease could not be released in time"),
        }
    }

    /// Waits for the lease: watches it, and looks at its end.
    async fn acquire(&self) -> Lease {
        let config = Config::default().fields(&format!("metadata.name={}", self.name));
        let mut changes = watcher(self.api.clone(), config).default_backoff().touched_objects().boxed();
        let mut seen: Option<(Option<String>, Instant)> = None;
        loop {
            let pause = match timeout(CALL, self.api.get_opt(&self.name)).await {
                Ok(Ok(lease)) => {
                    let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
                    let since = seen.take().filter(|(old, _)| *old == version).map_or_else(Instant::now, |it| it.1);
                    seen = Some((version, since));
                    match lease::step(lease.as_ref(), &self.identity, since.elapsed()) {
                        Step::Wait(left) => left,
                        Step::Take => match self.take(lease).await {
                            Some(lease) => return lease,
                            None => RETRY,
                        },
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = self.name, "the lease cannot be read");
                    RETRY * 2
                }
                Err(_) => RETRY,
            };
            tokio::select! {
                biased;
                () = sleep(pause) => {}
                change = changes.try_next() => if change.is_err() { sleep(RETRY).await },
            }
        }
    }

    async fn take(&self, lease: Option<Lease>) -> Option<Lease> {
        let began = Instant::now();
        let now = self.clock.precise();
        let params = PostParams::default();
        let result = if let Some(lease) = lease {
            timeout(CALL, self.api.replace(&self.name, &params, &lease::claim(&lease, &self.identity, now))).await
        } else {
            let lease = lease::create(&self.namespace, &self.name, &self.identity, now);
            timeout(CALL, self.api.create(&params, &lease)).await
        };
        match result {
            Ok(Ok(lease)) => {
                self.until.send_replace(Some(began + DURATION));
                Some(lease)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = self.name, "the lease cannot be taken");
                None
            }
            Err(_) => None,
        }
    }

    /// Renews until `stop`, or until it is lost.
    async fn hold(&self, mut lease: Lease, stop: &CancellationToken, gained: &impl Fn()) -> Result<Lease, Lost> {
        let mut pause = RENEW;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(lease),
                () = sleep(pause) => {}
            }
            // counted from before the request: the API server may have seen it at once
            let began = Instant::now();
            let claim = lease::claim(&lease, &self.identity, self.clock.precise());
            let answer = timeout(CALL, self.api.replace(&self.name, &PostParams::default(), &claim)).await;
            pause = match answer {
                Ok(Ok(renewed)) => {
                    self.lasts(began, gained);
                    lease = renewed;
                    RENEW
                }
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                    lease = self.look_again(&claim, began, gained).await?.unwrap_or(lease);
                    RETRY / 5
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = self.name, "the lease could not be renewed");
                    RETRY
                }
                // it may have been written: a newer resourceVersion that is still ours
                Err(_) => {
                    lease = self.look_again(&claim, began, gained).await?.unwrap_or(lease);
                    RETRY / 5
                }
            };
            if self.until.borrow().is_none_or(|until| until <= Instant::now()) {
                return Err(self.lost());
            }
        }
    }

    /// It was renewed by what was asked from `began` on.
    fn lasts(&self, began: Instant, gained: &impl Fn()) {
        let was_over = self.until.borrow().is_none_or(|until| until <= Instant::now());
        self.until.send_replace(Some(began + DURATION));
        if was_over {
            gained();
        }
    }

    /// The lease as it is now, if it can be read and is still ours. If it says what we `claim`ed from `began` on, that
    /// was written although nobody answered, and it lasts as long as if somebody had.
    async fn look_again(&self, claim: &Lease, began: Instant, gained: &impl Fn()) -> Result<Option<Lease>, Lost> {
        match timeout(CALL, self.api.get_opt(&self.name)).await {
            Ok(Ok(Some(lease))) if held_by(&lease, &self.identity) => {
                if lease::renewed(&lease) == lease::renewed(claim) {
                    self.lasts(began, gained);
                }
                Ok(Some(lease))
            }
            Ok(Ok(_)) => Err(self.lost()),
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    fn lost(&self) -> Lost {
        self.until.send_replace(None);
        Lost(self.name.clone())
    }
}
