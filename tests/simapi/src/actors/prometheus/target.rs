//! One Pod: what its model server has counted, and the series that scrapes made of it.

use std::sync::Arc;

use super::store::{Labels, STALE, Table};
use crate::actors::users::{Finished, Outcome};

/// Upper bounds of the model server's buckets, in seconds, without the last.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The same as labels.
const LE: [&str; 12] = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"];
/// How an answer ended.
const REASONS: [&str; 3] = ["stop", "error", "abort"];
/// Series for each status: requests, buckets, sum, count.
const PER_CODE: usize = 15;
/// The statuses that a model server shows before any request.
const FIRST: [u16; 2] = [200, 500];

/// Names, types and texts of what the model server shows.
pub const FAMILIES: [(&str, &str, &str); 3] = [
    ("http_requests", "counter", "Chat requests that ended, by status code"),
    ("http_request_duration_seconds", "histogram", "Time to the end of the whole answer, in seconds"),
    ("chat_requests_finished", "counter", "Chat requests that ended, by how"),
];

#[derive(Clone, Debug)]
struct Code {
    status: u16,
    /// Of each bucket by itself.
    buckets: [u64; 12],
    sum: f64,
    /// Whether the running process has it.
    shown: bool,
    /// Where its series begin.
    first: Option<usize>,
}

impl Code {
    fn new(code: u16, shown: bool) -> Self {
        Self { status: code, buckets: [0; 12], sum: 0.0, shown, first: None }
    }
}

/// One Pod.
#[derive(Debug)]
pub struct Target {
    pub pod: Arc<str>,
    /// Labels that all of its series have.
    common: Labels,
    incarnation: u64,
    codes: Vec<Code>,
    reasons: [u64; 3],
    /// Where the series of `reasons` begin.
    first_reason: Option<usize>,
    /// Whether it answers a scrape.
    pub up: bool,
    /// It is no target any more: its next scrape ends its series.
    pub ends: bool,
    /// When it is scraped next; never is `u64::MAX`.
    pub next: u64,
    /// Its scrapes are at this time, modulo the interval.
    pub phase: u64,
    pub table: Table,
}

impl Target {
    pub fn new(pod: &Arc<str>, service: &Arc<str>, namespace: &str, place: usize, phase: u64) -> Self {
        let common = vec![
            ("handler", "/v1/chat/completions".into()),
            ("instance", format!("10.0.{}.{}:8080", place / 250, place % 250 + 1).into()),
            ("job", "pods".into()),
            ("method", "POST".into()),
            ("namespace", namespace.into()),
            ("pod", Arc::clone(pod)),
            ("service", Arc::clone(service)),
        ];
        Self {
            pod: Arc::clone(pod),
            common,
            incarnation: 0,
            codes: FIRST.map(|code| Code::new(code, true)).into(),
            reasons: [0; 3],
            first_reason: None,
            up: false,
            ends: false,
            next: u64::MAX,
            phase,
            table: Table::default(),
        }
    }

    /// A later process counts from zero.
    pub fn restart(&mut self, incarnation: u64) {
        if incarnation <= self.incarnation {
            return;
        }
        self.incarnation = incarnation;
        self.reasons = [0; 3];
        for code in &mut self.codes {
            *code = Code { first: code.first, ..Code::new(code.status, FIRST.contains(&code.status)) };
        }
    }

    /// What an earlier process would have counted is lost with it.
    pub fn count(&mut self, finished: &Finished) {
        if finished.incarnation != self.incarnation {
            return;
        }
        let place = self.codes.iter().position(|code| code.status == finished.status).unwrap_or_else(|| {
            self.codes.push(Code::new(finished.status, true));
            self.codes.len() - 1
        });
        let code = &mut self.codes[place];
        let seconds = finished.seconds();
        code.shown = true;
        code.buckets[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        code.sum += seconds;
        let reason = match finished.outcome {
            Outcome::Answered => 0,
            Outcome::Abandoned => 2,
            _ => 1,
        };
        self.reasons[reason] += 1;
    }

    /// A scrape that failed: all series end.
    pub fn lose(&mut self, stamp: u64) {
        if !self.table.columns.is_empty() {
            self.table.begin(stamp);
            self.table.end_all();
        }
    }

    pub fn scrape(&mut self, stamp: u64) {
        self.table.begin(stamp);
        for code in &mut self.codes {
            let first = *code.first.get_or_insert_with(|| add_code(&mut self.table, &self.common, code.status));
            let shown = |value: f64| if code.shown { value } else { STALE };
            let mut count = 0;
            for (place, bucket) in code.buckets.iter().enumerate() {
                count += bucket;
                self.table.push(first + 1 + place, shown(count as f64));
            }
            self.table.push(first, shown(count as f64));
            self.table.push(first + PER_CODE - 2, shown(code.sum));
            self.table.push(first + PER_CODE - 1, shown(count as f64));
        }
        let first = *self.first_reason.get_or_insert_with(|| add_reasons(&mut self.table, &self.common));
        for (place, reason) in self.reasons.iter().enumerate() {
            self.table.push(first + place, *reason as f64);
        }
    }
}

fn add_code(table: &mut Table, common: &Labels, code: u16) -> usize {
    let first = table.columns.len();
    let code: Arc<str> = code.to_string().into();
    let mut add = |name: &str, le: Option<&str>| {
        let mut labels = common.clone();
        labels.push(("__name__", name.into()));
        labels.push(("code", Arc::clone(&code)));
        labels.extend(le.map(|le| ("le", le.into())));
        table.add(labels);
    };
    add("http_requests_total", None);
    for le in LE {
        add("http_request_duration_seconds_bucket", Some(le));
    }
    add("http_request_duration_seconds_sum", None);
    add("http_request_duration_seconds_count", None);
    first
}

fn add_reasons(table: &mut Table, common: &Labels) -> usize {
    let first = table.columns.len();
    for reason in REASONS {
        let mut labels = common.clone();
        labels.retain(|(name, _)| !matches!(*name, "method" | "handler"));
        labels.push(("__name__", "chat_requests_finished_total".into()));
        labels.push(("finish_reason", reason.into()));
        table.add(labels);
    }
    first
}
