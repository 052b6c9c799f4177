//! The settings of gates, with the defaults that are right for someone who sets nothing.

use std::time::Duration;

use super::{SpecError, duration, error};
use crate::api::{self, GateSpec};
use crate::engine::{promql, time};

/// One gate.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// Name of its source.
    pub source: String,
    /// What is judged by what limit.
    pub rule: Rule,
    /// Requests needed for a verdict.
    pub min_samples: u64,
    /// The chance that an early failure may be wrong, for a target that is just at its limit.
    pub alpha: f64,
    /// The beginning of a stage that does not count, if the user has set it.
    pub warmup: Option<Duration>,
    /// How long after the hold the stage may wait for a verdict.
    pub max_hold: Option<Duration>,
    /// Whether it is shown only.
    pub dry_run: bool,
    /// Names of the metrics that it counts, or why its selectors or its query cannot be used.
    pub metrics: Result<Vec<String>, String>,
}

/// The warm-up that nobody has set.
const WARMUP: Duration = Duration::from_mins(1);

impl Gate {
    /// The limit that it is judged by, for people.
    pub fn limit(&self) -> String {
        let points = |share: f64| (share * 1e5).round() / 1e3;
        let mut parts = Vec::new();
        match &self.rule {
            Rule::ErrorRate { max, max_increase, .. } => {
                parts.extend(max.map(|max| format!("max {} %", points(max))));
                parts.extend(max_increase.map(|max| format!("at most {} points more", points(max))));
            }
            Rule::Latency { quantile, max, max_ratio, .. } => {
                parts.extend(max.map(|max| format!("p{} max {max} s", points(*quantile))));
                parts.extend(max_ratio.map(|ratio| format!("p{} at most {ratio} times", points(*quantile))));
            }
            Rule::Value { min, max, .. } => {
                parts.extend(min.map(|min| format!("min {min}")));
                parts.extend(max.map(|max| format!("max {max}")));
                return parts.join(", ");
            }
            Rule::Job { template, deadline } => {
                return format!("the Job of PodTemplate {template} succeeds within {}", time::show(*deadline));
            }
        }
        parts.push(format!("at least {} samples", self.min_samples));
        parts.join(", ")
    }

    /// How long a stage of `hold` is not counted: a default that is longer than the stage would hold it up.
    pub fn warmup(&self, hold: Duration) -> Duration {
        self.warmup.unwrap_or_else(|| Duration::from_secs(WARMUP.min(hold / 5).as_secs()))
    }

    /// Below so many samples chance decides.
    pub fn least_samples(&self) -> u64 {
        samples(&self.rule, 5.0)
    }
}

/// What is judged by what limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Bad of all requests, as shares from 0 to 1, both excluded.
    ErrorRate {
        /// Selector of bad requests.
        bad: String,
        /// Selector of all requests.
        total: String,
        /// Largest share.
        max: Option<f64>,
        /// Largest difference to the other color's share.
        max_increase: Option<f64>,
    },
    /// A quantile of a histogram.
    Latency {
        /// Selector of its buckets.
        histogram: String,
        /// From 0 to 1, both excluded.
        quantile: f64,
        /// Longest, in seconds.
        max: Option<f64>,
        /// Largest ratio to the other color's.
        max_ratio: Option<f64>,
    },
    /// One number.
    Value {
        /// The query.
        query: String,
        /// Smallest.
        min: Option<f64>,
        /// Largest.
        max: Option<f64>,
    },
    /// A Job that judges by its exit code.
    Job {
        /// Name of the PodTemplate that it is made from.
        template: String,
        /// How long it may take.
        deadline: Duration,
    },
}

impl Rule {
    /// Whether the other color is looked at too.
    pub fn compares(&self) -> bool {
        match self {
            Rule::ErrorRate { max_increase, .. } => max_increase.is_some(),
            Rule::Latency { max_ratio, .. } => max_ratio.is_some(),
            Rule::Value { .. } | Rule::Job { .. } => false,
        }
    }

    /// Whether it has a limit that needs no other color.
    pub fn has_absolute(&self) -> bool {
        match self {
            Rule::ErrorRate { max, .. } | Rule::Latency { max, .. } => max.is_some(),
            Rule::Value { .. } | Rule::Job { .. } => true,
        }
    }

    /// Whether it counts requests.
    pub fn counts(&self) -> bool {
        matches!(self, Rule::ErrorRate { .. } | Rule::Latency { .. })
    }
}

/// Reads one gate of a spec.
pub(super) fn parse(spec: &GateSpec) -> Result<Gate, SpecError> {
    let field = format!("spec.gates[{}]", spec.name);
    let rule = parse_rule(spec, &field)?;
    let min_samples = match spec.min_samples {
        Some(wanted) => {
            u64::try_from(wanted).map_err(|_| error(field.clone() + ".minSamples", "must be at least 1"))?
        }
        None => samples(&rule, 15.0),
    };
    Ok(Gate {
        name: spec.name.clone(),
        source: spec.source.clone(),
        metrics: metrics(&rule),
        rule,
        min_samples,
        alpha: spec.confidence.as_ref().map_or(Ok(ALPHA), |text| alpha(text, &field))?,
        warmup: spec.warmup.as_ref().map(|text| warmup(text, &field)).transpose()?,
        max_hold: spec.max_hold.as_ref().map(|text| duration(text, &(field + ".maxHold"))).transpose()?,
        dry_run: spec.dry_run,
    })
}

fn parse_rule(spec: &GateSpec, field: &str) -> Result<Rule, SpecError> {
    Ok(match (&spec.error_rate, &spec.latency, &spec.value, &spec.job) {
        (Some(gate), None, None, None) => Rule::ErrorRate {
            bad: gate.bad.clone(),
            total: gate.total.clone(),
            max: gate.max.as_ref().map(|max| percent(max, field)).transpose()?,
            max_increase: gate.max_increase.as_ref().map(|max| percent(max, field)).transpose()?,
        },
        (None, Some(gate), None, None) => Rule::Latency {
            histogram: gate.histogram.clone(),
            quantile: quantile(&gate.quantile, field)?,
            max: gate.max.as_ref().map(|max| seconds(&max.0, field)).transpose()?,
            max_ratio: gate.max_ratio,
        },
        (None, None, Some(gate), None) => Rule::Value { query: gate.query.clone(), min: gate.min, max: gate.max },
        (None, None, None, Some(gate)) => Rule::Job {
            template: gate.pod_template_name.clone(),
            deadline: duration(&gate.deadline, &format!("{field}.job.deadline"))?,
        },
        _ => return Err(error(field, "must have exactly one of errorRate, latency, value and job")),
    })
}

/// Reads the selectors or the query: the metrics that are counted, or what is wrong.
fn metrics(rule: &Rule) -> Result<Vec<String>, String> {
    let selector = |name: &str, text: &str| {
        promql::selector(text).map(|selector| selector.metric_name).map_err(|error| format!("{name}: {error}"))
    };
    let names = match rule {
        Rule::ErrorRate { bad, total, .. } => vec![selector("bad", bad)?, selector("total", total)?],
        Rule::Latency { histogram, .. } => vec![selector("histogram", histogram)?],
        Rule::Value { query, .. } => {
            promql::query(query).map_err(|error| format!("query: {error}"))?;
            Vec::new()
        }
        Rule::Job { .. } => Vec::new(),
    };
    Ok(names.into_iter().flatten().collect())
}

/// The chance of a wrong early failure that nobody has set.
const ALPHA: f64 = 0.001;

/// The share of requests that may be slower than a quantile: 1 - 0.99 is not 0.01 in floats.
pub fn slow_share(quantile: f64) -> f64 {
    ((1.0 - quantile) * 1e9).round() / 1e9
}

/// As many requests as hold `bad` bad ones at the limit.
fn samples(rule: &Rule, bad: f64) -> u64 {
    let limit = match rule {
        // the tighter of the two: it needs more
        Rule::ErrorRate { max, max_increase, .. } => max.unwrap_or(1.0).min(max_increase.unwrap_or(1.0)),
        Rule::Latency { quantile, .. } => slow_share(*quantile),
        Rule::Value { .. } | Rule::Job { .. } => return 1,
    };
    // A limit of exactly 1 % needs 1500, whatever the last bit of a float says.
    (bad / limit - 1e-6).ceil() as u64
}

fn alpha(text: &api::Confidence, field: &str) -> Result<f64, SpecError> {
    let percent = text.0.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    // rounded: 1 - 0.999 is not 0.001 in floats
    percent
        .filter(|percent| (90.0..100.0).contains(percent))
        .map(|percent| ((100.0 - percent) * 1e4).round() / 1e6)
        .ok_or_else(|| error(format!("{field}.confidence"), "must be from 90% to 99.9999%"))
}

fn warmup(text: &api::WarmupText, field: &str) -> Result<Duration, SpecError> {
    time::parse(&text.0)
        .filter(|span| *span <= Duration::from_hours(1))
        .ok_or_else(|| error(format!("{field}.warmup"), "must be a duration from 0s to 1h"))
}

fn seconds(text: &str, field: &str) -> Result<f64, SpecError> {
    let span = time::parse(text).filter(|span| !span.is_zero());
    span.map(|span| span.as_secs_f64())
        .ok_or_else(|| error(format!("{field}.latency.max"), "must be a duration above 0, such as 250ms or 5s"))
}

fn percent(text: &api::Percent, field: &str) -> Result<f64, SpecError> {
    let share = text.0.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()).map(|number| number / 100.0);
    share
        .filter(|share| *share > 0.0 && *share < 1.0)
        .ok_or_else(|| error(format!("{field}.errorRate"), "must have limits above 0% and below 100%"))
}

fn quantile(text: &str, field: &str) -> Result<f64, SpecError> {
    let quantile = text.parse::<f64>().ok().filter(|q| *q > 0.0 && *q < 1.0);
    quantile.ok_or_else(|| error(format!("{field}.latency.quantile"), "must be above 0 and below 1, such as \"0.99\""))
}
