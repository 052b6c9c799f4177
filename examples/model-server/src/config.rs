//! What the server is told by its environment (each setting is also a flag).

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// All settings of one server; read once, at the start.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "modelrollout-model-server", version, about)]
pub struct Config {
    /// The address to listen on
    #[arg(long, env = "LISTEN_ADDRESS", default_value = "0.0.0.0")]
    pub address: std::net::IpAddr,
    /// The port to listen on; 0 lets the system choose one
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// The name of the model
    #[arg(long, env = "MODEL_NAME")]
    pub model_name: String,
    /// The version of the model
    #[arg(long, env = "MODEL_VERSION")]
    pub model_version: String,
    /// The file with the prompt template
    #[arg(long, env = "PROMPT_FILE", default_value = "/etc/prompt/template.txt")]
    pub prompt_file: PathBuf,
    /// The version of the prompt; when absent it is read from the version file
    #[arg(long, env = "PROMPT_VERSION")]
    pub prompt_version: Option<String>,
    /// The file with the version of the prompt
    #[arg(long, env = "PROMPT_VERSION_FILE", default_value = "/etc/prompt/version")]
    pub prompt_version_file: PathBuf,
    /// How long the model takes to load; the server is not ready until then
    #[arg(long, env = "LOAD_SECONDS", default_value = "1", value_parser = seconds)]
    pub load_seconds: Duration,
    /// How long new requests are still answered after SIGTERM
    #[arg(long, env = "DRAIN_SECONDS", default_value = "5", value_parser = seconds)]
    pub drain_seconds: Duration,
    /// The share of answers that fail with an injected 500 (0 to 100)
    #[arg(long, env = "FAIL_PERCENT", default_value = "0", value_parser = percent)]
    pub fail_percent: f64,
    /// The share of answers that are slowed down (0 to 100)
    #[arg(long, env = "SLOW_PERCENT", default_value = "0", value_parser = percent)]
    pub slow_percent: f64,
    /// What a slowed answer takes longer
    #[arg(long, env = "SLOW_SECONDS", default_value = "1", value_parser = seconds)]
    pub slow_seconds: Duration,
    /// The share of answers, of those that do not fail, that lack `choices` (0 to 100)
    #[arg(long, env = "BREAK_SCHEMA_PERCENT", default_value = "0", value_parser = percent)]
    pub break_schema_percent: f64,
    /// The latency of every answer, before its first byte
    #[arg(long, env = "ANSWER_MILLISECONDS", default_value = "10", value_parser = milliseconds)]
    pub answer_milliseconds: Duration,
    /// The number of content chunks of a streamed answer
    #[arg(long, env = "STREAM_TOKENS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub stream_tokens: u32,
    /// The time before each content chunk of a streamed answer
    #[arg(long, env = "TOKEN_MILLISECONDS", default_value = "20", value_parser = milliseconds)]
    pub token_milliseconds: Duration,
}

fn number(text: &str) -> Result<f64, String> {
    text.trim().parse::<f64>().map_err(|error| error.to_string())
}

/// Reads a time in seconds, such as `0.5`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number(text)?).map_err(|error| error.to_string())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number(text)? / 1000.0).map_err(|error| error.to_string())
}

fn percent(text: &str) -> Result<f64, String> {
    match number(text)? {
        share if (0.0..=100.0).contains(&share) => Ok(share),
        other => Err(format!("{other} is not between 0 and 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(extra: &[&str]) -> Result<Config, clap::Error> {
        let base = ["server", "--model-name", "bot", "--model-version", "1"];
        Config::try_parse_from(base.iter().chain(extra))
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.port, 8080);
        assert_eq!(config.load_seconds, Duration::from_secs(1));
        assert_eq!(config.drain_seconds, Duration::from_secs(5));
        assert_eq!(config.answer_milliseconds, Duration::from_millis(10));
        assert_eq!(config.stream_tokens, 20);
        assert_eq!(config.token_milliseconds, Duration::from_millis(20));
        assert_eq!(config.prompt_file, PathBuf::from("/etc/prompt/template.txt"));
    }

    #[test]
    fn fractions_are_accepted_and_nonsense_is_not() {
        assert_eq!(parse(&["--load-seconds", "0.25"]).unwrap().load_seconds, Duration::from_millis(250));
        assert!((parse(&["--fail-percent", "2.5"]).unwrap().fail_percent - 2.5).abs() < f64::EPSILON);
        for bad in [
            ["--fail-percent", "101"],
            ["--break-schema-percent", "100.1"],
            ["--slow-seconds=-1", "--port=1"],
            ["--slow-percent", "NaN"],
        ] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
        assert!(parse(&["--stream-tokens", "0"]).is_err());
    }
}
