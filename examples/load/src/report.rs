//! What a run found, as plain data.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::outcome::{FailureKind, Flow, Pair};

/// A point in time, by each clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// By the clock of this process; to compare with other instants of it.
    #[serde(skip)]
    pub at: Instant,
    /// Milliseconds since the start of the run.
    pub offset_ms: u64,
    /// Milliseconds since 1970 by the wall clock.
    pub unix_ms: u64,
}

impl Moment {
    pub(crate) fn new(began: Instant, wall: SystemTime, offset: Duration) -> Self {
        let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default() + offset;
        Self { at: began + offset, offset_ms: offset.as_millis() as u64, unix_ms: unix.as_millis() as u64 }
    }
}

/// All counts of a run so far. `total` is `whole` + `injected` + `failed`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// When the run began.
    pub began: Moment,
    /// How long it has been running, in milliseconds.
    pub elapsed_ms: u64,
    /// Requests that were sent; the rest of them still run.
    pub sent: u64,
    /// Requests that ended.
    pub total: u64,
    /// Whole valid answers.
    pub whole: u64,
    /// Answers that the server was told to spoil.
    pub injected: u64,
    /// Everything else.
    pub failed: u64,
    /// Of the total, the plain ones.
    pub plain: u64,
    /// Of the total, the streamed ones.
    pub streamed: u64,
    /// Of the plain ones, those on new connections.
    pub fresh: u64,
    /// Of the failed, streams that began and were cut before their `[DONE]`.
    pub cut_streams: u64,
    /// Of the failed, answers whose model and prompt do not belong together.
    pub mismatched_pairs: u64,
    /// The failed by kind.
    pub failures: BTreeMap<FailureKind, u64>,
    /// The first errors.
    pub first_errors: Vec<ErrorSample>,
    /// When the first injected answer ended.
    pub first_injected: Option<Moment>,
    /// When the last injected answer ended.
    pub last_injected: Option<Moment>,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Kept connections that the server had closed between two requests; see the crate.
    pub reconnects: u64,
    /// Answers by pair, in the order in which the pairs first answered.
    pub by_pair: Vec<PairReport>,
    /// How long whole answers took.
    pub latency: Latencies,
}

impl Report {
    /// The report about one pair, if it has answered.
    pub fn pair(&self, pair: &Pair) -> Option<&PairReport> {
        self.by_pair.iter().find(|found| found.pair == *pair)
    }

    /// How many requests failed in one way.
    pub fn failures_of(&self, kind: FailureKind) -> u64 {
        self.failures.get(&kind).copied().unwrap_or(0)
    }
}

/// What one pair answered. First and last are over whole, injected and mismatched answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairReport {
    /// The model and its prompt version.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whole answers.
    pub answers: u64,
    /// Of the whole answers, the streamed ones.
    pub streamed: u64,
    /// Injected answers.
    pub injected: u64,
    /// Answers that were whole or injected, by a pair that was not expected.
    pub mismatched: u64,
    /// When its first answer was whole.
    pub first: Moment,
    /// When its last answer was whole; of a stream, that is its end.
    pub last: Moment,
    /// When the last request was sent that this pair answered. Traffic has left a pair when this
    /// stands still; a stream that it already had may still run on.
    pub last_sent: Moment,
}

/// One of the first errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorSample {
    /// When, in milliseconds since the start of the run.
    pub offset_ms: u64,
    /// The kind of the request.
    pub flow: Flow,
    /// The kind of the failure.
    pub kind: FailureKind,
    /// What happened.
    pub message: String,
}

/// How long whole answers took; failed and injected ones are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Plain answers, to their end; on new connections with connecting.
    pub plain: Latency,
    /// Streamed answers, to their first token.
    pub first_token: Latency,
    /// Streamed answers, to their end.
    pub stream: Latency,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many answers there were.
    pub count: u64,
    /// Half of them took at most this.
    pub p50_ms: f64,
    /// 90% of them took at most this.
    pub p90_ms: f64,
    /// 99% of them took at most this.
    pub p99_ms: f64,
    /// All of them took at most this.
    pub max_ms: f64,
}

impl Latency {
    /// Computes the percentiles by the nearest rank.
    pub(crate) fn of(mut micros: Vec<u64>) -> Self {
        micros.sort_unstable();
        let rank = |percent: usize| {
            let index = (micros.len() * percent).div_ceil(100).saturating_sub(1);
            micros.get(index).map_or(0.0, |micros| *micros as f64 / 1000.0)
        };
        let count = micros.len() as u64;
        Self { count, p50_ms: rank(50), p90_ms: rank(90), p99_ms: rank(99), max_ms: rank(100) }
    }
}

/// How many answers a pair gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairCount {
    /// The model and its prompt version.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whole answers.
    pub answers: u64,
    /// Injected answers.
    pub injected: u64,
}

/// One span of the timeline. Spans without any event are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Its beginning, in milliseconds since the start of the run.
    pub offset_ms: u64,
    /// By pair.
    pub pairs: Vec<BucketPair>,
    /// Requests that failed in it.
    pub failed: u64,
}

/// What one pair did in one span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BucketPair {
    /// The model and its prompt version.
    #[serde(flatten)]
    pub pair: Pair,
    /// Requests sent in this span that the pair answered, then or later.
    pub sent: u64,
    /// Whole answers that ended in it.
    pub answers: u64,
    /// Injected answers that ended in it.
    pub injected: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let latency = Latency::of((1..=200).rev().map(|n| n * 1000).collect());
        let expected = Latency { count: 200, p50_ms: 100.0, p90_ms: 180.0, p99_ms: 198.0, max_ms: 200.0 };
        assert_eq!(latency, expected);
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }
}
