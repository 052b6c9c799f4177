//! How soundly, how soon and how fast gates judge: simulated stages, beside two rules that others use.
//!
//! `cargo bench --bench judgement` (or `make bench`). Needs no cluster. `STAGES` sets the simulated stages per cell (10000).
//! Chance comes from a fixed seed, so that two runs print the same table; only the times differ.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod chance;
mod speed;

use std::time::Duration;

use chance::{Binomial, Chance};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use modelrollout::api::Breach;
use modelrollout::api::reasons::{Reason, Span, Verdict};
use modelrollout::engine::gate::{Evidence, judge};
use modelrollout::engine::observed::{Answer, Counted, Counts};
use modelrollout::engine::rollout::{Gate, Rule};

/// Polls of a stage: five minutes at a scrape every 15 seconds.
const POLLS: usize = 20;
const SCRAPE: i64 = 15;
/// True rates, in multiples of the limit.
const RATES: [f64; 7] = [0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0];

fn main() {
    let stages = std::env::var("STAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    println!("{stages} stages per cell, {POLLS} polls each, one scrape every {SCRAPE} s.");
    println!("back: rolled back; on: promoted; the rest is held for more samples.");
    println!("requests: of the target, when it was sent back (p50/p90/p99 of those that were).");
    println!("one: back when one window is over the limit. five: back when five windows in total are.\n");
    let mut goals = Goals::default();
    for (kind, limit) in [(Kind::Errors, 0.05), (Kind::Errors, 0.01), (Kind::Slow, 0.01)] {
        println!("{} limit {} %", kind.name(), limit * 100.0);
        println!(
            "{:>9} {:>9} | {:>9} {:>9} {:>18} | {:>9} {:>9}",
            "per poll", "true rate", "ours back", "ours on", "requests", "one back", "five back"
        );
        for per_poll in [15, 150, 1500] {
            for times in RATES {
                let cell = Cell { kind, limit, per_poll, rate: (limit * times).min(1.0), times };
                let found = cell.run(stages);
                println!("{}", found.line(&cell));
                goals.look(&cell, &found);
            }
        }
        println!();
    }
    let soon = detection(stages.min(4000));
    goals.soon(soon);
    speed::print();
    goals.print();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Errors,
    Slow,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Errors => "error rate,",
            Kind::Slow => "p99 of latency: slow requests,",
        }
    }
}

/// One kind of target under one kind of traffic.
struct Cell {
    kind: Kind,
    limit: f64,
    per_poll: u64,
    rate: f64,
    times: f64,
}

#[derive(Default)]
struct Found {
    stages: usize,
    back: Vec<u64>,
    promoted: usize,
    one: usize,
    five: usize,
}

impl Cell {
    fn run(&self, stages: usize) -> Found {
        let seed = self.per_poll * 1_000_003 + (self.rate * 1e6) as u64 * 7 + u64::from(self.kind == Kind::Slow);
        let mut chance = Chance::new(seed);
        let polls = Binomial::new(self.per_poll, self.rate);
        let gate = gate(self.kind, self.limit);
        let mut found = Found { stages, ..Found::default() };
        for _ in 0..stages {
            let bad: Vec<u64> = (0..POLLS).map(|_| polls.draw(&mut chance)).collect();
            match stage(self.kind, &gate, &bad, self.per_poll) {
                Outcome::Back(requests) => found.back.push(requests),
                Outcome::Promoted => found.promoted += 1,
                Outcome::Held => {}
            }
            let over = bad.iter().filter(|bad| **bad as f64 > self.limit * self.per_poll as f64).count();
            found.one += usize::from(over >= 1);
            found.five += usize::from(over >= 5);
        }
        found.back.sort_unstable();
        found
    }
}

enum Outcome {
    Back(u64),
    Promoted,
    Held,
}

/// One stage, judged after every poll as the operator does.
fn stage(kind: Kind, gate: &Gate, bad: &[u64], per_poll: u64) -> Outcome {
    let mut breach: Option<Breach> = None;
    let mut verdict = Verdict::Hold;
    for poll in 1..=bad.len() {
        let sum = |from: usize| counts(kind, bad[from..poll].iter().sum(), per_poll * (poll - from) as u64);
        let minute = (60 / SCRAPE) as usize;
        let recent = (poll > minute).then(|| (Span::LastMinute, sum(poll - minute)));
        let at = Timestamp::from_second(poll as i64 * SCRAPE).unwrap();
        let candidate = Counted {
            now: sum(0),
            recent: recent.into_iter().collect(),
            newest: Some(at),
            interval: Some(Duration::from_secs(SCRAPE as u64)),
            ..Counted::default()
        };
        let samples = candidate.now.total;
        let answer = Answer::Counted { candidate, baseline: None };
        let judged =
            judge(&Evidence { breach: breach.as_ref(), over: poll == bad.len(), ..evidence(&answer, at) }, gate);
        verdict = judged.verdict;
        if verdict == Verdict::Fail {
            return Outcome::Back(samples);
        }
        breach = match judged.reason {
            Reason::OverLimit => breach.or(Some(Breach { gate: "g".into(), at: Time(at), samples: samples as i64 })),
            _ => None,
        };
    }
    if verdict == Verdict::Pass { Outcome::Promoted } else { Outcome::Held }
}

fn evidence(answer: &Answer, at: Timestamp) -> Evidence<'_> {
    Evidence {
        answer: Some(answer),
        at,
        counts_from: Timestamp::UNIX_EPOCH,
        kept: None,
        on_record: 0,
        breach: None,
        over: false,
    }
}

fn counts(kind: Kind, bad: u64, total: u64) -> Counts {
    match kind {
        Kind::Errors => Counts { total, bad, seen: true, ..Counts::default() },
        Kind::Slow => {
            Counts { total, bounds: vec![0.5, 1.0, 5.0], at_most: vec![0, 0, total - bad], seen: true, bad: 0 }
        }
    }
}

/// A gate as it is when the user sets nothing but its limit.
fn gate(kind: Kind, limit: f64) -> Gate {
    let rule = match kind {
        Kind::Errors => {
            Rule::ErrorRate { bad: String::new(), total: String::new(), max: Some(limit), max_increase: None }
        }
        Kind::Slow => {
            Rule::Latency { histogram: String::new(), quantile: 1.0 - limit, max: Some(5.0), max_ratio: None }
        }
    };
    Gate {
        name: "g".into(),
        source: "default".into(),
        rule,
        min_samples: (15.0 / limit - 1e-6).ceil() as u64,
        alpha: 0.001,
        warmup: None,
        max_hold: None,
        dry_run: false,
        metrics: Ok(Vec::new()),
    }
}

impl Found {
    fn line(&self, cell: &Cell) -> String {
        let percent = |count: usize| format!("{:.2} %", count as f64 / self.stages as f64 * 100.0);
        let requests = if self.back.is_empty() { "-".to_owned() } else { quantiles(&self.back) };
        format!(
            "{:>9} {:>9} | {:>9} {:>9} {:>18} | {:>9} {:>9}",
            cell.per_poll,
            format!("{:.2} %", cell.rate * 100.0),
            percent(self.back.len()),
            percent(self.promoted),
            requests,
            percent(self.one),
            percent(self.five)
        )
    }
}

fn quantiles(sorted: &[u64]) -> String {
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    format!("{}/{}/{}", at(0.5), at(0.9), at(0.99))
}

/// Requests until a plain failure when every request is looked at, and the longest of a target that fails all.
fn detection(runs: usize) -> u64 {
    println!("requests until a plain failure, looked at after each request (p50/p90/p99 of {runs} targets)");
    println!("{:>8} | {:>10} | {:>16}", "limit", "true rate", "requests");
    let mut longest = 0;
    for (limit, rates) in [(0.05, [1.0, 0.5, 0.3, 0.2, 0.15, 0.1]), (0.01, [1.0, 0.5, 0.2, 0.1, 0.05, 0.03])] {
        let gate = gate(Kind::Errors, limit);
        for rate in rates {
            let mut chance = Chance::new((rate * 1e6) as u64 + (limit * 1e6) as u64);
            let mut needed: Vec<u64> = (0..runs).map(|_| until_failed(&gate, rate, &mut chance)).collect();
            needed.sort_unstable();
            println!(
                "{:>8} | {:>10} | {:>16}",
                format!("{} %", limit * 100.0),
                format!("{} %", rate * 100.0),
                quantiles(&needed)
            );
            if rate >= 1.0 {
                longest = longest.max(*needed.last().unwrap());
            }
        }
    }
    println!();
    longest
}

fn until_failed(gate: &Gate, rate: f64, chance: &mut Chance) -> u64 {
    let mut bad = 0;
    let patient = Gate { min_samples: u64::MAX, ..gate.clone() };
    for total in 1..20_000 {
        bad += u64::from(chance.unit() < rate);
        let at = Timestamp::from_second(1).unwrap();
        let answer = Answer::Counted {
            candidate: Counted { now: counts(Kind::Errors, bad, total), newest: Some(at), ..Counted::default() },
            baseline: None,
        };
        if total >= 10 && judge(&evidence(&answer, at), &patient).verdict == Verdict::Fail {
            return total;
        }
    }
    20_000
}

/// What the figures should be.
#[derive(Default)]
struct Goals {
    worst_healthy: f64,
    worst_double: f64,
    longest: u64,
}

impl Goals {
    fn look(&mut self, cell: &Cell, found: &Found) {
        let back = found.back.len() as f64 / found.stages as f64;
        if cell.times <= 0.2 {
            self.worst_healthy = self.worst_healthy.max(back);
        }
        let enough = cell.per_poll as f64 * POLLS as f64 >= 15.0 / cell.limit - 1e-6;
        if (cell.times - 2.0).abs() < 1e-9 && enough {
            self.worst_double = self.worst_double.max(1.0 - back);
        }
    }

    fn soon(&mut self, longest: u64) {
        self.longest = longest;
    }

    fn print(&self) {
        let word = |met: bool| if met { "met" } else { "MISSED" };
        println!("\ngoals");
        let (healthy, double) = (self.worst_healthy * 100.0, (1.0 - self.worst_double) * 100.0);
        println!(
            "at a fifth of the limit at most 0.1 % go back, whatever the traffic: {healthy:.3} % ({})",
            word(healthy <= 0.1)
        );
        println!("at twice the limit 99 % are stopped, with samples enough: {double:.2} % ({})", word(double >= 99.0));
        println!("who fails everything is stopped within 10 requests: {} ({})", self.longest, word(self.longest <= 10));
    }
}
