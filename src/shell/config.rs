//! The command line: flags, each with an environment variable, and what follows from them. Reads no cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use k8s_openapi::jiff::SignedDuration;

use crate::api::DEFAULT_SOURCE;
use crate::ops::telemetry::LogFormat;

/// Moves production traffic to a new AI model and its prompt, in judged stages, and back at once when the evidence is
/// bad.
#[derive(Debug, Parser)]
#[command(name = "modelrollout-operator", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; `run` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator.
    Run(Box<RunArgs>),
    /// Print the `CustomResourceDefinition` as YAML.
    Crd,
}

/// Flags of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Namespace to work in; repeat it or separate several by commas. Left out: all namespaces.
    #[arg(long = "namespace", value_name = "NAMESPACE", value_delimiter = ',', env = "MODELROLLOUT_NAMESPACES")]
    pub namespaces: Vec<String>,
    /// Base URL of the Prometheus that gates ask if they name no other source.
    #[arg(long, value_name = "URL", env = "MODELROLLOUT_PROMETHEUS_URL")]
    pub prometheus_url: Option<String>,
    /// A further Prometheus that gates can name in `source`; repeat it or separate several by commas.
    #[arg(long = "metric-source", value_name = "NAME=URL", value_delimiter = ',', env = "MODELROLLOUT_METRIC_SOURCES")]
    pub metric_sources: Vec<String>,
    /// Time that the ingress controller is given to follow a write, before a stage's clock starts.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration, env = "MODELROLLOUT_TRAFFIC_SETTLE")]
    pub traffic_settle: Duration,
    /// Whether to hold a Lease before writing anything; needed for more than one replica.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", env = "MODELROLLOUT_LEADER_ELECT")]
    pub leader_elect: bool,
    /// Name of the Lease.
    #[arg(long, value_name = "NAME", default_value = "modelrollout-operator", env = "MODELROLLOUT_LEASE_NAME")]
    pub lease_name: String,
    /// Namespace of the Lease. Left out: the one that the operator runs in.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of this process in the Lease and in Events; must be unique. Left out: host name and process id.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
    /// Address of /metrics, /healthz and /readyz.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080", env = "MODELROLLOUT_LISTEN")]
    pub listen: SocketAddr,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "MODELROLLOUT_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a filter such as `info,modelrollout=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "MODELROLLOUT_LOG_LEVEL")]
    pub log_level: String,
    /// How many rollouts are worked on at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..),
        env = "MODELROLLOUT_CONCURRENCY")]
    pub concurrency: u16,
}

impl RunArgs {
    /// The scopes to watch: namespaces, or one empty text for all of them.
    pub fn scopes(&self) -> Vec<String> {
        let mut scopes: Vec<String> = self.namespaces.iter().filter(|name| !name.is_empty()).cloned().collect();
        scopes.sort();
        scopes.dedup();
        if scopes.is_empty() { vec![String::new()] } else { scopes }
    }

    /// Base URLs of the metrics sources, by name.
    pub fn source_urls(&self) -> Result<BTreeMap<String, String>, String> {
        let mut urls = BTreeMap::new();
        if let Some(url) = self.prometheus_url.as_ref().filter(|url| !url.is_empty()) {
            urls.insert(DEFAULT_SOURCE.to_owned(), url.clone());
        }
        for source in self.metric_sources.iter().filter(|source| !source.is_empty()) {
            let Some((name, url)) = source.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err("--metric-source must be NAME=URL".to_owned());
            };
            if urls.insert(name.to_owned(), url.to_owned()).is_some() {
                return Err(format!("--metric-source {name}: there are two sources of that name"));
            }
        }
        Ok(urls)
    }

    /// The name of this process.
    pub fn identity(&self) -> String {
        let given = self.identity.clone().filter(|name| !name.is_empty());
        given.unwrap_or_else(|| {
            let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
            let host =
                host.or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|host| host.trim().to_owned()));
            format!("{}-{}", host.unwrap_or_else(|| "operator".to_owned()), std::process::id())
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a duration such as 500ms, 5s or 1m");
    let duration: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(duration).ok().filter(|it| *it <= Duration::from_mins(10)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<RunArgs, String> {
        let all = std::iter::once("modelrollout-operator").chain(args.iter().copied());
        let cli = Cli::try_parse_from(all).map_err(|error| error.to_string())?;
        Ok(match cli.command {
            Some(Command::Run(run)) => *run,
            _ => cli.run,
        })
    }

    #[test]
    fn run_is_what_it_does_if_nothing_is_said() {
        let bare = parse(&[]).unwrap();
        assert_eq!((bare.traffic_settle, bare.concurrency, bare.leader_elect), (Duration::from_secs(5), 32, true));
        assert_eq!(bare.scopes(), [""]);
        let run = parse(&["run", "--namespace", "b,a", "--namespace", "a", "--leader-elect=false"]).unwrap();
        assert_eq!(run.scopes(), ["a", "b"]);
        assert!(!run.leader_elect);
        assert!(matches!(Cli::try_parse_from(["x", "crd"]).unwrap().command, Some(Command::Crd)));
    }

    #[test]
    fn sources_have_names() {
        let args = parse(&["--prometheus-url", "http://a", "--metric-source", "eu=http://b,us=http://c"]).unwrap();
        let names: Vec<_> = args.source_urls().unwrap().into_keys().collect();
        assert_eq!(names, ["default", "eu", "us"]);
        assert!(parse(&["--metric-source", "http://b"]).unwrap().source_urls().is_err());
        let twice = parse(&["--prometheus-url", "http://a", "--metric-source", "default=http://b"]).unwrap();
        assert!(twice.source_urls().is_err());
    }

    #[test]
    fn durations_are_for_people() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1m"), Ok(Duration::from_mins(1)));
        for wrong in ["", "5", "-5s", "20m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
