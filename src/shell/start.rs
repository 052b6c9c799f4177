//! Puts the parts together, starts them in order, and ends them in order: first no new work, then the lease.

use std::sync::Arc;
use std::time::Duration;

use futures::future;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::BoxError;

use super::apply::Refusals;
use super::clock::Clock;
use super::config::RunArgs;
use super::context::{ByRollout, Context};
use super::dynamic::Dynamic;
use super::fresh::Compared;
use super::leader::{Elector, Leadership};
use super::notes::{self, Publisher};
use super::prometheus::{Pollers, Sources};
use super::stores::Stores;
use super::triggers::{Key, Triggers};
use super::{controller, watches};
use crate::api::ModelRollout;
use crate::ops::metrics::Metrics;
use crate::ops::server::{self, Health};
use crate::ops::{shutdown, telemetry};

const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(3);
/// An answer to a list, or to the start of a watch, has begun by then: else it is asked for again. Without it a server that
/// takes a request and never answers would hold up a rollout for ever.
const BEGINNING: Duration = Duration::from_secs(15);
const CRD_RETRY: Duration = Duration::from_secs(2);

/// What the shell is started with; a simulation makes its own.
pub struct Settings {
    /// For watches.
    pub reads: Client,
    /// For writes.
    pub writes: Client,
    /// The time of day.
    pub clock: Clock,
    /// Namespaces to watch, or one empty text for all of them.
    pub scopes: Vec<String>,
    /// Time that the ingress controller is given to follow a write.
    pub settle: Duration,
    /// Metrics sources.
    pub sources: Sources,
    /// Whether we lead.
    pub leadership: Leadership,
    /// Name of this process.
    pub identity: String,
    /// How many rollouts are worked on at once.
    pub concurrency: u16,
    /// The operator's metrics.
    pub metrics: Arc<Metrics>,
    /// What the probes answer.
    pub health: Arc<Health>,
}

/// The parts that run together: watches, the loop, and who tells of it.
pub struct Parts {
    /// What they share.
    pub ctx: Arc<Context>,
    queue: futures::channel::mpsc::UnboundedReceiver<Key>,
    publisher: Publisher,
    scopes: Vec<String>,
    concurrency: u16,
}

impl Parts {
    /// All parts, not running yet.
    pub fn new(settings: Settings) -> Self {
        let (triggers, queue) = Triggers::new();
        let metrics = settings.metrics;
        let reads = impatient(settings.reads);
        let (notes, publisher) = notes::queue(reads.clone(), &settings.identity, &metrics);
        let ctx = Context {
            refusals: Refusals::default(),
            dynamic: Dynamic::new(reads.clone(), triggers.clone(), Arc::clone(&metrics)),
            pollers: Pollers::new(settings.sources, settings.clock, triggers.clone(), Arc::clone(&metrics)),
            reads,
            writes: settings.writes,
            clock: settings.clock,
            settle: settings.settle,
            stores: Stores::new(&settings.scopes),
            triggers,
            leadership: settings.leadership,
            notes,
            metrics,
            health: settings.health,
            failures: ByRollout::default(),
            paces: ByRollout::default(),
            compared: Compared::default(),
            synced: watch::Sender::new(false),
        };
        let (scopes, concurrency) = (settings.scopes, settings.concurrency);
        Self { ctx: Arc::new(ctx), queue, publisher, scopes, concurrency }
    }

    /// Runs until `stop`; what is being written then is written to its end. Whoever drops this ends all of it.
    pub async fn run(self, stop: CancellationToken) {
        let _publishing = AbortOnDropHandle::new(tokio::spawn(self.publisher.run()));
        let watching = watches::run(Arc::clone(&self.ctx), self.scopes);
        let _watching = AbortOnDropHandle::new(tokio::spawn(watching));
        controller::run(self.ctx, self.queue, self.concurrency, stop).await;
    }
}

/// The command `run`: runs the operator until SIGTERM. An error is one sentence for a person.
pub async fn run(args: RunArgs) -> Result<(), String> {
    telemetry::start(args.log_format, &args.log_level)?;
    let sources = Sources::new(&args.source_urls()?)?;
    let stop = shutdown::on_signal().map_err(|error| format!("signals cannot be received: {error}"))?;
    let config = Config::infer().await.map_err(|error| format!("no cluster is configured: {error}"))?;
    let namespace = args.lease_namespace.clone().filter(|name| !name.is_empty());
    let lease_namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    let (reads, writes) = clients(config)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|error| format!("--listen {}: {error}", args.listen))?;
    let metrics = Arc::new(Metrics::new());
    let health = Arc::new(Health::default());
    let serving = server::serve(listener, Arc::clone(&metrics), Arc::clone(&health), stop.clone());
    let serving = tokio::spawn(serving);

    let scopes = args.scopes();
    let identity = args.identity();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?scopes, identity, "starting");
    if !served(&reads, &scopes, &stop).await {
        return Ok(());
    }
    let clock = Clock::System;
    let place = (lease_namespace.as_str(), args.lease_name.as_str());
    let (elector, leadership) = Elector::new(writes.clone(), place, &identity, clock, stop.clone());
    let elector = args.leader_elect.then_some(elector);
    let leadership = if args.leader_elect { leadership } else { Leadership::always(stop.clone()) };
    let parts = Parts::new(Settings {
        reads,
        writes,
        clock,
        scopes,
        settle: args.traffic_settle,
        sources,
        leadership,
        identity,
        concurrency: args.concurrency,
        metrics,
        health: Arc::clone(&health),
    });
    let result = lead(parts, elector, &stop).await;
    health.set_ended();
    stop.cancel();
    // an idle connection must not hold up the end
    let _ = tokio::time::timeout(Duration::from_millis(200), serving).await;
    result
}

/// Runs all parts, and the election beside them; a simulation begins here.
pub async fn lead(parts: Parts, elector: Option<Elector>, stop: &CancellationToken) -> Result<(), String> {
    let ctx = Arc::clone(&parts.ctx);
    let working = async {
        parts.run(stop.clone()).await;
        if stop.is_cancelled() { Ok(()) } else { Err("the reconcile loop ended".to_owned()) }
    };
    let gained = || {
        ctx.metrics.set_leader(true);
        ctx.trigger_all();
    };
    let Some(elector) = elector else {
        ctx.metrics.set_leader(true);
        return working.await;
    };
    let electing = async {
        // whoever cannot read everything must not keep the lease from one that can
        tokio::select! { biased; () = stop.cancelled() => {}, () = ctx.filled() => {} }
        elector.run(stop, gained).await.map_err(|lost| lost.to_string())
    };
    let ((), held) = future::try_join(working, electing).await?;
    if let Some(lease) = held {
        elector.release(&lease).await;
    }
    Ok(())
}

/// Two clients: for watches, and for writes with timeouts. Neither repeats a request by itself: after an outage of the
/// API server a repeated write could sleep for minutes, while we know better what to write by then.
fn clients(mut config: Config) -> Result<(Client, Client), String> {
    let client = |config: &Config| {
        Client::try_from(config.clone()).map_err(|error| format!("the client of the cluster cannot start: {error}"))
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT * 5);
    let reads = client(&config)?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.write_timeout = Some(ANSWER);
    Ok((reads, client(&config)?))
}

/// The same client, for which a request fails whose answer has not begun in time.
fn impatient(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move {
            let answer = tokio::time::timeout(BEGINNING, client.send(request)).await;
            answer.map_err(BoxError::from)?.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

/// Waits until the API server serves our resource. Gives false if it was stopped before.
async fn served(client: &Client, scopes: &[String], stop: &CancellationToken) -> bool {
    let scope = scopes.first().map(String::as_str).unwrap_or_default();
    let api: Api<ModelRollout> =
        if scope.is_empty() { Api::all(client.clone()) } else { Api::namespaced(client.clone(), scope) };
    loop {
        let params = ListParams::default().limit(1);
        let answer = tokio::time::timeout(ANSWER * 2, api.list_metadata(&params)).await;
        match answer {
            Ok(Ok(_)) => return true,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                tracing::error!(
                    "the CustomResourceDefinition of ModelRollout is not installed: \
                    `modelrollout-operator crd | kubectl apply -f -`; looking again"
                );
            }
            Ok(Err(error)) => tracing::error!(%error, "ModelRollouts cannot be listed; trying again"),
            Err(_) => tracing::error!("the API server does not answer; trying again"),
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(CRD_RETRY) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Refuses each request on its own connection, and counts them.
    async fn refuses(listener: TcpListener, asked: Arc<AtomicUsize>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            asked.fetch_add(1, Ordering::Relaxed);
            let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }

    #[tokio::test]
    async fn a_request_that_is_refused_is_asked_once_and_we_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let server = AbortOnDropHandle::new(tokio::spawn(refuses(listener, asked.clone())));
        let (reads, writes) = clients(Config::new(url)).unwrap();
        for client in [reads, writes] {
            asked.store(0, Ordering::Relaxed);
            let api: Api<ConfigMap> = Api::namespaced(client, "ml");
            let told = tokio::time::timeout(Duration::from_secs(5), api.get("prompt")).await;
            assert!(told.is_ok_and(|answer| answer.is_err()), "a layer below us goes on asking");
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        }
        drop(server);
    }
}
