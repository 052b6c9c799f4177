//! Sends a bounded load to a chat API and reports what came back.
//!
//! The exit code is 0 when every answer was whole or injected, 1 when something failed, and 2
//! when the run did not start. Ctrl-C ends a run early, with its report.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use modelrollout_load::{Load, LoadConfig, LoadError, Pair, Report};

#[derive(Debug, Parser)]
#[command(name = "load-generator", version, about)]
struct Flags {
    /// Where to send, such as <http://10.99.0.2/> (only loopback and private addresses)
    #[arg(long)]
    url: String,
    /// The Host header; by default that of the URL
    #[arg(long, default_value = "")]
    host: String,
    /// Requests started per second, of all kinds together
    #[arg(long, default_value_t = 40.0)]
    rate: f64,
    /// Seconds until the run ends
    #[arg(long, default_value_t = 10.0)]
    duration: f64,
    /// Kept connections with plain requests
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Plain requests on new connections, at a time
    #[arg(long, default_value_t = 2)]
    fresh: usize,
    /// Streamed requests, at a time
    #[arg(long, default_value_t = 8)]
    streams: usize,
    /// Seconds that a plain request may take
    #[arg(long, default_value_t = 10.0)]
    timeout: f64,
    /// Seconds that a streamed request may take
    #[arg(long, default_value_t = 60.0)]
    stream_timeout: f64,
    /// The model field of the requests
    #[arg(long, default_value = "default")]
    model: String,
    /// A model and a prompt version that belong together, as bot@2=v7; may be repeated
    #[arg(long = "expect", value_parser = pair)]
    expect: Vec<Pair>,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

fn pair(text: &str) -> Result<Pair, String> {
    let (model, prompt) = text.rsplit_once('=').ok_or("write it as model=prompt-version")?;
    Ok(Pair::new(model, prompt))
}

fn seconds(value: f64) -> Result<Duration, LoadError> {
    Duration::try_from_secs_f64(value).map_err(|error| LoadError::Limit(format!("{value}: {error}")))
}

impl Flags {
    fn config(&self) -> Result<LoadConfig, LoadError> {
        Ok(LoadConfig {
            base_url: self.url.clone(),
            host: self.host.clone(),
            model: self.model.clone(),
            rate: self.rate,
            connections: self.connections,
            fresh: self.fresh,
            streams: self.streams,
            timeout: seconds(self.timeout)?,
            stream_timeout: seconds(self.stream_timeout)?,
            max_duration: seconds(self.duration)?,
            expected_pairs: self.expect.clone(),
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    let report = match run(&flags).await {
        Ok(report) => report,
        Err(error) => {
            eprintln!("load-generator: {error}");
            return ExitCode::from(2);
        }
    };
    match flags.format {
        Format::Table => print!("{report}"),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default()),
    }
    if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(flags: &Flags) -> Result<Report, LoadError> {
    let mut handle = Load::start(flags.config()?).await?;
    tokio::select! {
        () = handle.finished() => {}
        _ = tokio::signal::ctrl_c() => eprintln!("load-generator: stopping, waiting for the answers that are due"),
    }
    Ok(handle.stop().await)
}
