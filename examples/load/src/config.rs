//! What to send, how much of it, and the limits that hold whatever is asked for.

use std::io;
use std::time::Duration;

use crate::outcome::Pair;

const MAX_RATE: f64 = 1000.0;
const MAX_WORKERS: usize = 512;
const MAX_DURATION: Duration = Duration::from_hours(1);

/// The settings of one run.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    /// Where to send, such as `http://10.99.0.2/`; only `http`, only loopback or private.
    pub base_url: String,
    /// The `Host` header; when empty, that of the base URL.
    pub host: String,
    /// The `model` field of each request.
    pub model: String,
    /// How many requests start per second at most, of all kinds together. They take turns, so
    /// with a low rate fewer streams run at a time than [`LoadConfig::streams`].
    pub rate: f64,
    /// How many kept connections carry plain requests.
    pub connections: usize,
    /// How many plain requests on new connections run at a time.
    pub fresh: usize,
    /// How many streamed requests run at a time, each on a kept connection of its own.
    pub streams: usize,
    /// How long a plain request may take, connecting included.
    pub timeout: Duration,
    /// How long a streamed request may take, connecting included.
    pub stream_timeout: Duration,
    /// When the run ends by itself.
    pub max_duration: Duration,
    /// The models and prompt versions that belong together; when empty, any pair will do.
    pub expected_pairs: Vec<Pair>,
}

impl LoadConfig {
    /// A moderate load with a `Host` header, without expectations about pairs.
    pub fn new(base_url: &str, host: &str) -> Self {
        Self {
            base_url: base_url.to_owned(),
            host: host.to_owned(),
            model: "default".to_owned(),
            rate: 40.0,
            connections: 4,
            fresh: 2,
            streams: 8,
            timeout: Duration::from_secs(10),
            stream_timeout: Duration::from_mins(1),
            max_duration: Duration::from_mins(10),
            expected_pairs: Vec::new(),
        }
    }

    /// Checks the limits.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        if !(self.rate > 0.0 && self.rate <= MAX_RATE) {
            return Err(LoadError::Limit(format!("the rate must be above 0 and at most {MAX_RATE}")));
        }
        let workers = self.connections.saturating_add(self.fresh).saturating_add(self.streams);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(LoadError::Limit(format!("connections must be 1 to {MAX_WORKERS} in all")));
        }
        if self.max_duration > MAX_DURATION {
            return Err(LoadError::Limit(format!("the duration must be at most {} s", MAX_DURATION.as_secs())));
        }
        Ok(())
    }
}

/// Why a run does not start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A setting is beyond its limit.
    #[error("{0}")]
    Limit(String),
    /// The base URL or the host cannot be used.
    #[error("{0}")]
    Target(String),
    /// The address is neither loopback nor private.
    #[error("refused to send to {0}: it is neither loopback nor a private address")]
    Public(std::net::IpAddr),
    /// The host of the base URL cannot be resolved.
    #[error("cannot resolve {0}: {1}")]
    Resolve(String, io::Error),
}
