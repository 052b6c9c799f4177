//! The listener, the routes and the drain.
//!
//! After the signal the server goes through two phases. First, for `DRAIN_SECONDS`, it is not
//! ready but still answers everything, each answer with `Connection: close`, so that clients move
//! while the endpoints do. Then it stops listening, closes idle connections, lets running
//! requests and streams finish however long they take, and returns when the last one is through.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE, InvalidHeaderValue};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::chat::{chat, unix_seconds};
use crate::config::Config;
use crate::prompt::Prompt;
use crate::state::{App, Identity};
use crate::{api, metrics};

/// Why a server does not start, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The prompt cannot be read, or the port cannot be bound.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The model or the version of the prompt cannot stand in a header.
    #[error("the model and the prompt version must be fit for a header: {0}")]
    Name(#[from] InvalidHeaderValue),
}

/// A server that is bound to its port.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

impl Server {
    /// Reads the prompt and binds the port; from here on the model "loads".
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let prompt = Prompt::load(&config)?;
        Self::bind_with(config, prompt).await
    }

    /// Like [`Server::bind`], with a prompt that comes from elsewhere than a file.
    pub async fn bind_with(config: Config, prompt: Prompt) -> Result<Self, StartError> {
        let identity = Identity::new(&config, prompt)?;
        let listener = TcpListener::bind((config.address, config.port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, app: Arc::new(App::new(config, identity)) })
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The model and the prompt, to be shown.
    pub fn identity(&self) -> String {
        self.app.identity.to_string()
    }

    /// Serves until `terminate` is done, then drains; see the module.
    pub async fn run(self, terminate: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let router = router(Arc::clone(&self.app));
        let app = self.app;
        let drained = async move {
            terminate.await;
            app.begin_drain();
            sleep(app.config.drain_seconds).await;
        };
        // Without it, small chunks of a stream would wait for the client's delayed acknowledgments.
        let listener = self.listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, router).with_graceful_shutdown(drained).await
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/metrics", get(show_metrics))
        .route("/readyz", get(ready))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), add_headers))
        .with_state(app)
}

/// Names model and prompt on every answer, and ends the connection while draining.
async fn add_headers(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert("x-model", app.identity.model_header.clone());
    headers.insert("x-prompt-version", app.identity.prompt_header.clone());
    if app.draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn models(State(app): State<Arc<App>>) -> Response {
    Json(api::models(&app.identity.model, unix_seconds())).into_response()
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match (app.ready(), app.draining()) {
        (true, _) => (StatusCode::OK, "ready\n"),
        (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "loading\n"),
    }
}

async fn show_metrics(State(app): State<Arc<App>>) -> Response {
    match app.metrics.encode() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
