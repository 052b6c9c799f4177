//! How long one call of `judge` takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use modelrollout::engine::gate::judge;
use modelrollout::engine::observed::{Answer, Counted, Counts};
use modelrollout::engine::rollout::{Gate, Rule};

use crate::{Kind, counts, evidence, gate};

const CALLS: u32 = 200_000;

pub fn print() {
    println!("one call of judge, in nanoseconds (median of 9 times {CALLS} calls)");
    let both = Rule::ErrorRate { bad: String::new(), total: String::new(), max: Some(0.05), max_increase: Some(0.03) };
    let both_latencies =
        Rule::Latency { histogram: String::new(), quantile: 0.99, max: Some(5.0), max_ratio: Some(2.0) };
    let errors = |bad, total| counts(Kind::Errors, bad, total);
    for (name, gate, now, other) in [
        ("errors, too few samples", gate(Kind::Errors, 0.05), errors(1, 40), None),
        ("errors, passing", gate(Kind::Errors, 0.05), errors(90, 10_000), None),
        ("errors, near the limit", gate(Kind::Errors, 0.05), errors(499, 10_000), None),
        ("errors, failing", gate(Kind::Errors, 0.05), errors(90, 400), None),
        (
            "errors, two limits, passing",
            Gate { rule: both.clone(), ..gate(Kind::Errors, 0.05) },
            errors(90, 10_000),
            Some(errors(800, 100_000)),
        ),
        (
            "errors, two limits, failing",
            Gate { rule: both, ..gate(Kind::Errors, 0.05) },
            errors(90, 1_000),
            Some(errors(800, 100_000)),
        ),
        ("latency, passing", gate(Kind::Slow, 0.01), counts(Kind::Slow, 30, 10_000), None),
        (
            "latency, two limits, 11 buckets",
            Gate { rule: both_latencies, ..gate(Kind::Slow, 0.01) },
            histogram(),
            Some(histogram()),
        ),
    ] {
        println!("{name:>32}: {:>6.0}", time(&gate, now, other));
    }
}

/// Prometheus' own buckets.
fn histogram() -> Counts {
    let bounds = vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    let at_most = vec![0, 10, 100, 400, 2_000, 5_000, 8_000, 9_800, 9_950, 9_990, 10_000];
    Counts { total: 10_000, bad: 0, bounds, at_most, seen: true }
}

fn time(gate: &Gate, now: Counts, other: Option<Counts>) -> f64 {
    let at = Timestamp::from_second(100).unwrap();
    let counted =
        |now: Counts| Counted { now, newest: Some(at), interval: Some(Duration::from_secs(15)), ..Counted::default() };
    let answer = Answer::Counted { candidate: counted(now), baseline: other.map(|other| Ok(counted(other))) };
    let evidence = evidence(&answer, at);
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..CALLS {
                black_box(judge(black_box(&evidence), black_box(gate)));
            }
            began.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[4]
}
