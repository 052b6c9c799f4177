//! What the judge is told by its environment (each setting is also a flag).
//!
//! The operator gives `SERVICE`, `MODEL` and `PROMPT_VERSION` to the Jobs that it makes.

use std::time::Duration;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;

use crate::config::seconds;

/// All settings of one judge.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "answer-judge", version, about = "Judges a model by the answers of its chat API")]
pub struct JudgeConfig {
    /// The name of the Service to ask
    #[arg(long, env = "SERVICE", value_parser = host)]
    pub service: String,
    /// The port of the Service
    #[arg(long, env = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// The model that each answer must name, such as bot@2
    #[arg(long, env = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub model: String,
    /// The version of the prompt that each answer must name; when empty it is not checked
    #[arg(long, env = "PROMPT_VERSION", default_value = "")]
    pub prompt_version: String,
    /// How many questions to ask, half of them for a streamed answer
    #[arg(long, env = "QUESTIONS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub questions: u32,
    /// How long one whole answer may take
    #[arg(long, env = "TIMEOUT_SECONDS", default_value = "30", value_parser = seconds)]
    pub timeout_seconds: Duration,
    /// How long connections may be refused before the first one is accepted
    #[arg(long, env = "START_SECONDS", default_value = "10", value_parser = seconds)]
    pub start_seconds: Duration,
}

/// Nothing that would make the URL another one.
fn host(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if !text.is_empty() && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("this is not the name of a Service".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<JudgeConfig, clap::Error> {
        JudgeConfig::try_parse_from(["judge", "--model=bot@2"].iter().chain(flags))
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let config = parse(&["--service=bot-green"]).unwrap();
        assert_eq!((config.port, config.questions, config.prompt_version.as_str()), (80, 20, ""));
        assert_eq!((config.timeout_seconds, config.start_seconds), (Duration::from_secs(30), Duration::from_secs(10)));
    }

    #[test]
    fn a_service_is_a_name_and_nothing_else() {
        for bad in ["", "a/b", "a@b", "a:80", "a b", "a?b", "a#b", "http://a"] {
            assert!(parse(&[&format!("--service={bad}")]).is_err(), "{bad}");
        }
        assert!(parse(&["--service=a", "--questions=0"]).is_err());
        assert!(parse(&["--service=a", "--model="]).is_err());
    }
}
