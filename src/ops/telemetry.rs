//! Logs to standard error, as text or as one JSON object per line.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether logs are lines of JSON: like the subscriber itself, one for the whole process.
static JSON: AtomicBool = AtomicBool::new(false);

/// Starts logging; `level` is a level or a filter such as `info,modelrollout=debug`.
pub fn start(format: LogFormat, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("--log-level {level}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    started.map_err(|error| format!("logging cannot start: {error}"))?;
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
    Ok(())
}

/// Writes `record` as a line of JSON of its own, whatever the level. Gives false, and writes nothing, if logs are text.
pub fn record(record: &impl Serialize) -> bool {
    let json = JSON.load(Ordering::Relaxed);
    if let Some(line) = json.then(|| line(record)).flatten() {
        // one call for the whole line, so that it stays one; nothing waits for a log that cannot be written
        let _ = std::io::stderr().lock().write_all(&line);
    }
    json
}

fn line(record: &impl Serialize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(record).ok()?;
    line.push(b'\n');
    Some(line)
}
