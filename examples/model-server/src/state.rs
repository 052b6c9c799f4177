//! What all handlers share: who the server is, how far its life has come, and its counters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use axum::http::HeaderValue;
use axum::http::header::InvalidHeaderValue;

use crate::config::Config;
use crate::injection::{Injection, Shares};
use crate::metrics::Metrics;
use crate::prompt::Prompt;

/// The model and the prompt that each answer names.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `<name>@<version>`.
    pub model: String,
    /// The prompt with its version.
    pub prompt: Prompt,
    /// The model as the header `x-model`.
    pub model_header: HeaderValue,
    /// The version of the prompt as the header `x-prompt-version`.
    pub prompt_header: HeaderValue,
}

impl Identity {
    /// Puts the names together; both must be able to stand in a header.
    pub fn new(config: &Config, prompt: Prompt) -> Result<Self, InvalidHeaderValue> {
        let model = format!("{}@{}", config.model_name, config.model_version);
        let (model_header, prompt_header) = (model.parse()?, prompt.version.parse()?);
        Ok(Self { model, prompt, model_header, prompt_header })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model {} with prompt {}", self.model, self.prompt.version)
    }
}

/// The shared state.
pub struct App {
    /// The settings.
    pub config: Config,
    /// Who answers.
    pub identity: Identity,
    /// The counters.
    pub metrics: Arc<Metrics>,
    started: Instant,
    draining: AtomicBool,
    requests: AtomicU64,
}

impl App {
    /// Starts the life of a server: the model begins to load now.
    pub fn new(config: Config, identity: Identity) -> Self {
        Self {
            config,
            identity,
            metrics: Arc::new(Metrics::new()),
            started: Instant::now(),
            draining: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    /// Whether the model is loaded; only then can it answer.
    pub fn loaded(&self) -> bool {
        self.started.elapsed() >= self.config.load_seconds
    }

    /// Whether new requests should be sent here.
    pub fn ready(&self) -> bool {
        self.loaded() && !self.draining()
    }

    /// Whether the server is on its way out.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Readiness ends at once; answers go on.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Numbers the next request and decides what is injected into it.
    pub fn next_request(&self) -> (u64, Injection) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let Config { fail_percent: fail, slow_percent: slow, break_schema_percent: broken, .. } = self.config;
        (number, Shares { fail, slow, broken }.decide(number))
    }
}
