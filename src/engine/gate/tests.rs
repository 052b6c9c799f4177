//! The verdicts of the examples whose numbers were computed with scipy 1.17.1, and what must hold for all numbers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::engine::promql;

const SECONDS: i64 = 100;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn counted(now: Counts) -> Counted {
    Counted { now, newest: Some(at(SECONDS)), interval: Some(Duration::from_secs(15)), ..Counted::default() }
}

fn errors(bad: u64, total: u64) -> Counts {
    Counts { total, bad, seen: true, ..Counts::default() }
}

fn gate(rule: Rule, min_samples: u64) -> Gate {
    Gate {
        name: "g".into(),
        source: "default".into(),
        rule,
        min_samples,
        alpha: 0.001,
        warmup: None,
        max_hold: None,
        dry_run: false,
        metrics: Ok(Vec::new()),
    }
}

fn rate(max: Option<f64>, max_increase: Option<f64>, min_samples: u64) -> Gate {
    gate(Rule::ErrorRate { bad: String::new(), total: String::new(), max, max_increase }, min_samples)
}

fn p99(max: Option<f64>, max_ratio: Option<f64>, min_samples: u64) -> Gate {
    gate(Rule::Latency { histogram: String::new(), quantile: 0.99, max, max_ratio }, min_samples)
}

/// Five buckets, cumulative.
fn histogram(at_most: [u64; 5], total: u64) -> Counts {
    Counts { total, bad: 0, bounds: vec![0.5, 1.0, 2.5, 5.0, 10.0], at_most: at_most.to_vec(), seen: true }
}

/// All faster than 5 s but `slow`.
fn slow(slow: u64, total: u64) -> Counts {
    histogram([0, 0, 0, total - slow, total], total)
}

fn evidence(answer: &Answer) -> Evidence<'_> {
    Evidence {
        answer: Some(answer),
        at: at(SECONDS),
        counts_from: at(0),
        kept: None,
        on_record: 0,
        breach: None,
        over: false,
    }
}

/// The verdict at first sight, and when it is looked at again with one request more.
fn verdicts(counts: &Counts, baseline: Option<&Counts>, gate: &Gate) -> [(Verdict, Reason); 2] {
    let answer = Answer::Counted {
        candidate: counted(counts.clone()),
        baseline: baseline.map(|counts| Ok(counted(counts.clone()))),
    };
    let breach = Breach { gate: "g".into(), at: Time(at(0)), samples: number(counts.total) - 1 };
    [None, Some(&breach)].map(|breach| {
        let judged = judge(&Evidence { breach, ..evidence(&answer) }, gate);
        recheck(&judged, gate);
        (judged.verdict, judged.reason)
    })
}

/// What is put on record says the same as the verdict.
fn recheck(judged: &Judgement, gate: &Gate) {
    let reckoned = reckon(&judged.evidence, gate.min_samples);
    match judged.verdict {
        Verdict::Hold if judged.reason == Reason::OverLimit => assert!(reckoned != Some(Verdict::Pass), "{judged:?}"),
        Verdict::Hold => assert!(reckoned != Some(Verdict::Fail), "{judged:?}"),
        verdict => assert_eq!(reckoned, Some(verdict), "{judged:?}"),
    }
}

#[test]
fn what_is_on_record_of_too_little_decides_nothing() {
    let one = LimitEvidence {
        limit: LimitKind::MaxIncrease,
        test: Test::Share,
        span: Span::Stage,
        threshold: 0.03,
        samples: 500,
        bad: 10,
        longer_than: None,
        baseline_samples: Some(500),
        baseline_bad: Some(10),
        value: None,
        confidence: None,
    };
    assert_eq!(reckon(&[one], 500), Some(Verdict::Pass));
    for few in [LimitEvidence { samples: 499, ..one }, LimitEvidence { baseline_samples: Some(499), ..one }] {
        assert_eq!(reckon(&[few], 500), None);
    }
    let value = |samples, value| LimitEvidence {
        limit: LimitKind::Max,
        test: Test::Value,
        threshold: 0.5,
        samples,
        value: Some(value),
        baseline_samples: None,
        ..one
    };
    let said = [value(1, 0.5), value(1, 0.6), value(2, 0.6)].map(|one| reckon(&[one], 0));
    assert_eq!(said, [Some(Verdict::Pass), None, Some(Verdict::Fail)], "the second look decides");
    let no_slower = |samples| LimitEvidence { test: Test::NoSlower, samples, bad: 0, confidence: Some(0.999), ..one };
    assert_eq!([499, 500].map(|samples| reckon(&[no_slower(samples)], 500)), [None, Some(Verdict::Pass)]);
}

#[test]
fn the_examples_have_the_verdicts_that_were_computed() {
    use Reason::{InsufficientSamples, OverLimit, WithinLimit};
    use Verdict::{Fail, Hold, Pass};
    let suspect = [(Hold, OverLimit), (Fail, OverLimit)];
    let fails = [(Fail, OverLimit); 2];
    let holds = [(Hold, InsufficientSamples); 2];
    let passes = [(Pass, WithinLimit); 2];
    let five = rate(Some(0.05), None, 300);
    let both = rate(Some(0.05), Some(0.03), 500);
    let increase = |samples| rate(None, Some(0.03), samples);
    let seconds = p99(Some(5.0), None, 1500);
    let twice = p99(None, Some(2.0), 1500);
    let blue = histogram([5200, 8600, 9870, 9985, 9998], 10_000);
    let other = errors(100, 10_000);
    for (number, gate, counts, baseline, expected) in [
        (1, &five, errors(3, 3), None, holds),
        (2, &five, errors(2, 20), None, holds),
        (3, &five, errors(4, 10), None, holds),
        (4, &five, errors(5, 10), None, fails),
        (5, &five, errors(15, 300), None, passes),
        (6, &five, errors(16, 300), None, suspect),
        (7, &five, errors(60, 1000), None, suspect),
        (8, &rate(Some(0.01), None, 1500), errors(0, 500), None, holds),
        (8, &rate(Some(0.01), None, 500), errors(0, 500), None, passes),
        (9, &seconds, slow(6, 60), None, holds),
        (10, &seconds, slow(7, 60), None, fails),
        (11, &seconds, slow(31, 2000), None, suspect),
        (12, &seconds, slow(9, 1500), None, passes),
        (13, &increase(300), errors(18, 400), Some(&other), suspect),
        (13, &increase(300), errors(16, 400), Some(&other), passes),
        (14, &increase(500), errors(30, 200), Some(&other), fails),
        (15, &both, errors(65, 1000), Some(&errors(200, 5000)), suspect),
        (16, &both, errors(45, 1000), Some(&errors(200, 5000)), passes),
        (17, &twice, histogram([600, 1180, 1462, 1491, 1499], 1500), Some(&blue), passes),
        (18, &twice, histogram([500, 1000, 1380, 1420, 1490], 1500), Some(&blue), [(Hold, Reason::BucketTooCoarse); 2]),
        (19, &twice, histogram([500, 1000, 1380, 1420, 1476], 1500), Some(&blue), suspect),
        (20, &five, errors(0, 0), None, [(Hold, Reason::NoTraffic); 2]),
        (21, &five, errors(12, 10), None, [(Hold, Reason::InvalidData); 2]),
        (22, &five, errors(34, 2994), None, passes),
    ] {
        assert_eq!(verdicts(&counts, baseline, gate), expected, "example {number}");
    }
    // 20: a number that is none; 21: the count fell
    let value = gate_of_value(None, Some(1.0));
    assert_eq!(judge(&evidence(&Answer::Value(f64::NAN)), &value).verdict, Hold);
    let answer = Answer::Counted { candidate: counted(errors(5, 480)), baseline: None };
    let fell = judge(&Evidence { on_record: 500, ..evidence(&answer) }, &five);
    assert_eq!((fell.verdict, fell.reason), (Hold, Reason::InvalidData));
}

#[test]
fn the_examples_have_the_values_that_were_computed() {
    for (bad, total, limit, expected) in [
        (3, 3, 0.05, 7.6522),
        (2, 20, 0.05, -1.4143),
        (4, 10, 0.05, 4.5969),
        (5, 10, 0.05, 7.3591),
        (16, 300, 0.05, -3.7513),
        (60, 1000, 0.05, -2.9993),
        (0, 500, 0.01, -6.2166),
        (6, 60, 0.01, 6.3441),
        (7, 60, 0.01, 8.8962),
        (31, 2000, 0.01, -2.3519),
        (9, 1500, 0.01, -6.5454),
        (18, 400, 0.043_711_83, -4.0944),
        (30, 200, 0.043_711_83, 14.2431),
        (24, 1500, 0.01, -2.5040),
        (34, 2994, 0.05, -7.7495),
    ] {
        let found = stats::ln_e(bad, total, limit);
        assert!((found - expected).abs() < 1e-4, "ln E({bad}, {total}, {limit}) = {found}");
    }
    assert!((stats::upper_bound(100, 10_000, 0.0005) - 0.013_711_83).abs() < 1e-8);
    assert!((stats::upper_bound(200, 5000, 0.0005) - 0.049_932_47).abs() < 1e-8);
    assert!((stats::upper_bound(0, 500, 0.05) - 0.005_974).abs() < 1e-6);
}

#[test]
fn the_limit_itself_is_fine_and_a_share_over_it_fails_at_the_second_look_or_at_the_end() {
    let gate = rate(Some(0.007), None, 1000);
    assert_eq!(verdicts(&errors(7, 1000), None, &gate)[0].0, Verdict::Pass);
    let answer = Answer::Counted { candidate: counted(errors(8, 1000)), baseline: None };
    let look = |breach: Option<&Breach>, over| judge(&Evidence { breach, over, ..evidence(&answer) }, &gate).verdict;
    assert_eq!(look(None, false), Verdict::Hold);
    assert_eq!(look(None, true), Verdict::Fail, "there is no time for a second look");
    let same = Breach { gate: "g".into(), at: Time(at(90)), samples: 1000 };
    assert_eq!(look(Some(&same), false), Verdict::Hold, "the same samples are no second look");
    assert_eq!(look(Some(&Breach { samples: 999, ..same }), false), Verdict::Fail);
}

#[test]
fn errors_of_the_warm_up_send_back_when_they_are_plain_and_do_not_count_otherwise() {
    let gate = rate(Some(0.05), None, 300);
    let warming = |bad, total| Counted { warmup: errors(bad, total), ..counted(errors(bad, total)) };
    let answer = |candidate| Answer::Counted { candidate, baseline: None };
    let early = Evidence { counts_from: at(SECONDS + 10), ..evidence(&Answer::Value(0.0)) };
    let judged = |candidate: Counted, evidence: Evidence<'_>| {
        let answer = answer(candidate);
        judge(&Evidence { answer: Some(&answer), ..evidence }, &gate)
    };
    let held = judged(warming(2, 400), early);
    assert_eq!((held.verdict, held.reason), (Verdict::Hold, Reason::WarmingUp));
    assert_eq!(judged(warming(30, 40), early).verdict, Verdict::Fail);
    // 20 errors while it loaded, none since
    let late = Counted { warmup: errors(20, 100), ..counted(errors(20, 500)) };
    let passed = judged(late, evidence(&Answer::Value(0.0)));
    assert_eq!((passed.verdict, passed.samples), (Verdict::Pass, Some(400)));
}

#[test]
fn trouble_that_begins_late_does_not_drown_in_what_was_good_before() {
    let gate = rate(Some(0.05), None, 300);
    let late = Counted { recent: vec![(Span::LastMinute, errors(40, 60))], ..counted(errors(140, 10_060)) };
    let answer = Answer::Counted { candidate: late, baseline: None };
    let judged = judge(&evidence(&answer), &gate);
    assert_eq!(judged.verdict, Verdict::Fail);
    assert_eq!(judged.evidence[0].span, Span::LastMinute);
    assert!(judged.message.starts_with("40 of 60 requests failed (66.667 %) in the last minute"), "{}", judged.message);
}

#[test]
fn what_is_recent_is_compared_with_what_is_recent() {
    // something that both colors need fails for a minute
    let gate = rate(None, Some(0.03), 500);
    let both = |other: u64| {
        let recent = |bad, total| Counted {
            recent: vec![(Span::LastMinute, errors(bad, total))],
            ..counted(errors(bad, 50_000))
        };
        let answer = Answer::Counted { candidate: recent(300, 1000), baseline: Some(Ok(recent(other, 1000))) };
        judge(&evidence(&answer), &gate).verdict
    };
    assert_eq!(both(290), Verdict::Pass);
    assert_eq!(both(5), Verdict::Fail);
}

#[test]
fn trouble_with_the_other_color_says_nothing_against_the_limits_of_its_own() {
    let gate = rate(Some(0.05), Some(0.03), 500);
    let judged = |bad, other: Concurrent| {
        let answer = Answer::Counted { candidate: counted(errors(bad, 1000)), baseline: Some(other) };
        let judged = judge(&evidence(&answer), &gate);
        (judged.verdict, judged.reason)
    };
    let down = || Err((Reason::QueryFailed, "too large".to_owned()));
    assert_eq!(judged(500, down()), (Verdict::Fail, Reason::OverLimit));
    assert_eq!(judged(5, down()), (Verdict::Hold, Reason::QueryFailed));
    assert_eq!(judged(5, Ok(counted(Counts::default()))), (Verdict::Hold, Reason::NoData), "it has traffic");
    let stale = Counted { newest: Some(at(0)), ..counted(errors(5, 1000)) };
    assert_eq!(judged(5, Ok(stale)), (Verdict::Hold, Reason::StaleData));
}

#[test]
fn what_cannot_be_trusted_holds_each_for_its_own_reason() {
    let gate = rate(Some(0.05), None, 300);
    let reason = |candidate: Counted| {
        let answer = Answer::Counted { candidate, baseline: None };
        let judged = judge(&evidence(&answer), &gate);
        assert_eq!(judged.verdict, Verdict::Hold);
        judged.reason
    };
    let bad = counted(errors(400, 500));
    assert_eq!(reason(Counted { newest: Some(at(SECONDS - 36)), ..bad.clone() }), Reason::StaleData);
    assert_eq!(reason(Counted { newest: Some(at(SECONDS - 301)), interval: None, ..bad.clone() }), Reason::StaleData);
    // on record from before a restart, and nothing since
    assert_eq!(reason(Counted { newest: None, interval: None, ..bad.clone() }), Reason::StaleData);
    assert_eq!(reason(counted(Counts::default())), Reason::NoData);
    assert_eq!(reason(counted(errors(500, 400))), Reason::InvalidData);
    assert_eq!(judge(&evidence(&Answer::Value(1.0)), &gate).reason, Reason::InvalidData);
    let refused = Answer::Problem(Reason::QueryFailed, "no answer".into());
    assert_eq!(judge(&evidence(&refused), &gate).reason, Reason::QueryFailed);
    let fault = promql::selector("rate(x[5m])").unwrap_err().to_string();
    let faulty = Gate { metrics: Err(fault), ..gate.clone() };
    let answer = Answer::Counted { candidate: bad, baseline: None };
    assert_eq!(judge(&evidence(&answer), &faulty).reason, Reason::InvalidQuery);
    assert_eq!(judge(&evidence(&answer), &gate).verdict, Verdict::Fail);
}

#[test]
fn the_sentence_tells_how_long_it_will_take() {
    let gate = rate(Some(0.05), None, 300);
    let answer = Answer::Counted { candidate: counted(errors(0, 8)), baseline: None };
    let soon = Evidence { counts_from: at(SECONDS - 7), ..evidence(&answer) };
    let judged = judge(&soon, &gate);
    assert_eq!(judged.message, "8 of 300 requests so far; at this rate about 4 minutes more");
    assert_eq!((judged.samples, judged.needed), (Some(8), Some(300)));
    assert_eq!(judged.eta, Some(at(SECONDS + 256)));
    assert_eq!(
        judge(&Evidence { counts_from: at(SECONDS), ..soon }, &gate).eta,
        None,
        "after no time nothing is known"
    );
    // a day for each of 31 is told too
    let day = 24 * 60 * 60;
    let answer =
        Answer::Counted { candidate: Counted { newest: Some(at(day)), ..counted(errors(0, 1)) }, baseline: None };
    let rare = judge(&Evidence { at: at(day), ..evidence(&answer) }, &rate(Some(0.05), None, 31));
    assert_eq!(rare.eta, Some(at(31 * day)));
    let answer = Answer::Counted { candidate: counted(errors(12, 60)), baseline: None };
    let failed = judge(&Evidence { over: true, ..evidence(&answer) }, &rate(Some(0.05), None, 60));
    assert_eq!(failed.message, "12 of 60 requests failed (20 %), limit 5 %");
}

#[test]
fn an_increase_needs_enough_of_the_other_color_too() {
    let gate = rate(None, Some(0.03), 300);
    let reason = |other: Option<Counts>| verdicts(&errors(12, 400), other.as_ref(), &gate)[0];
    assert_eq!(reason(Some(errors(0, 100))), (Verdict::Hold, Reason::InsufficientSamples));
    let answer = Answer::Counted { candidate: counted(errors(12, 400)), baseline: Some(Ok(counted(errors(0, 100)))) };
    assert_eq!(judge(&evidence(&answer), &gate).eta, Some(at(3 * SECONDS)), "as many again, twice");
    assert_eq!(reason(None), (Verdict::Hold, Reason::NoBaseline));
    let both = rate(Some(0.05), Some(0.03), 300);
    assert_eq!(verdicts(&errors(12, 400), None, &both)[0].0, Verdict::Pass, "its own limit still holds");
    // what was kept of the last stage in which both had traffic
    let answer = Answer::Counted { candidate: counted(errors(40, 400)), baseline: None };
    let kept = errors(100, 10_000);
    let judged = judge(&Evidence { kept: Some(&kept), over: true, ..evidence(&answer) }, &gate);
    assert_eq!((judged.verdict, judged.evidence[0].baseline_samples), (Verdict::Fail, Some(10_000)));
    let answer = Answer::Counted { candidate: counted(errors(60, 200)), baseline: None };
    let judged = judge(&Evidence { kept: Some(&kept), ..evidence(&answer) }, &gate);
    assert_eq!((judged.verdict, judged.evidence[0].test), (Verdict::Fail, Test::Early), "plainly, before 300");
}

#[test]
fn buckets_can_neither_pass_nor_fail_anyone_by_their_coarseness() {
    let between = p99(Some(4.0), None, 1500);
    let coarse = [(Verdict::Hold, Reason::BucketTooCoarse); 2];
    assert_eq!(verdicts(&histogram([600, 1180, 1462, 1491, 1499], 1500), None, &between), coarse);
    assert_eq!(verdicts(&histogram([600, 1180, 1490, 1495, 1499], 1500), None, &between)[0].0, Verdict::Pass);
    // the quantile lies beyond the last bound
    let beyond = p99(Some(20.0), None, 1500);
    assert_eq!(verdicts(&histogram([0, 0, 0, 0, 1400], 1500), None, &beyond), coarse);
    assert_eq!(verdicts(&histogram([0, 0, 0, 0, 1499], 1500), None, &beyond)[0].0, Verdict::Pass);
}

#[test]
fn exactly_as_many_slow_ones_as_may_be_are_within_the_limit() {
    // 1 - 0.99 is a little more than 0.01, and the quantile's rank of 1000 a little less than 990
    assert_eq!(latency::bucket_of(&slow(10, 1000), 0.99), (2.5, Some(5.0)));
    assert_eq!(verdicts(&slow(10, 1000), None, &p99(Some(5.0), None, 1000))[0].0, Verdict::Pass);
    let over = (Verdict::Hold, Reason::OverLimit);
    assert_eq!(verdicts(&slow(11, 1000), None, &p99(Some(5.0), None, 1000))[0], over);
}

#[test]
fn a_ratio_multiplies_both_bounds_of_the_other_colors_bucket() {
    // the other color's quantile is between 0.5 and 1 s: twice that is passed below 1 s and failed above 2 s
    let gate = p99(None, Some(2.0), 10_000);
    let blue = histogram([9_000, 9_950, 10_000, 10_000, 10_000], 10_000);
    let above_1 = histogram([9_000, 9_850, 10_000, 10_000, 10_000], 10_000);
    assert_eq!(verdicts(&above_1, Some(&blue), &gate)[0], (Verdict::Hold, Reason::BucketTooCoarse));
    let above_2 = histogram([9_000, 9_850, 9_850, 10_000, 10_000], 10_000);
    assert_eq!(verdicts(&above_2, Some(&blue), &gate)[0], (Verdict::Hold, Reason::OverLimit));
}

#[test]
fn another_color_whose_every_request_fails_is_a_baseline_and_one_with_more_failures_than_requests_is_none() {
    let gate = rate(None, Some(0.01), 100);
    let reason = |bad| verdicts(&errors(0, 1000), Some(&errors(bad, 1000)), &gate)[0];
    assert_eq!(reason(1000), (Verdict::Pass, Reason::WithinLimit));
    assert_eq!(reason(1001), (Verdict::Hold, Reason::InvalidData));
}

#[test]
fn what_one_limit_cannot_tell_the_other_one_can() {
    let both = p99(Some(4.0), Some(2.0), 1500);
    let blue = histogram([9_950, 9_990, 10_000, 10_000, 10_000], 10_000);
    // most are slower than 2.5 s, none than 5 s: the limit of 4 s tells nothing, twice the other color's does
    let green = histogram([100, 200, 300, 1500, 1500], 1500);
    assert_eq!(verdicts(&green, Some(&blue), &both), [(Verdict::Fail, Reason::OverLimit); 2]);
    let unclear = histogram([1000, 1400, 1480, 1500, 1500], 1500);
    assert_eq!(verdicts(&unclear, Some(&unclear), &both), [(Verdict::Hold, Reason::BucketTooCoarse); 2]);
    assert_eq!(verdicts(&unclear, None, &both), [(Verdict::Hold, Reason::BucketTooCoarse); 2]);
}

#[test]
fn equal_colors_pass_a_ratio_whatever_the_buckets_and_a_slower_one_in_the_same_bucket_does_not() {
    let gate = p99(None, Some(2.0), 1500);
    for at_most in [[1500; 5], [0, 0, 1499, 1500, 1500], [0, 1400, 1500, 1500, 1500], [1490, 1500, 1500, 1500, 1500]] {
        let one = histogram(at_most, 1500);
        assert_eq!(verdicts(&one.clone(), Some(&one), &gate)[0].0, Verdict::Pass, "{at_most:?}");
    }
    // both quantiles are between 1 and 2.5 s, but a tenth of the target's requests take longer than 1 s, not a fiftieth
    let blue = histogram([0, 1470, 1500, 1500, 1500], 1500);
    let green = histogram([0, 1350, 1500, 1500, 1500], 1500);
    assert_eq!(verdicts(&green, Some(&blue), &gate)[0], (Verdict::Hold, Reason::BucketTooCoarse));
    let other = Counts { bounds: vec![1.0], at_most: vec![1500], ..blue };
    assert_eq!(verdicts(&green, Some(&other), &gate)[0], (Verdict::Hold, Reason::InvalidData));
}

fn gate_of_value(min: Option<f64>, max: Option<f64>) -> Gate {
    gate(Rule::Value { query: String::new(), min, max }, 1)
}

#[test]
fn a_value_fails_when_a_later_reading_is_over_its_limit_too() {
    let gate = gate_of_value(Some(1.0), Some(3.0));
    let breach = |seconds| Breach { gate: "g".into(), at: Time(at(seconds)), samples: 0 };
    let verdict = |value, breach: Option<&Breach>| {
        let answer = Answer::Value(value);
        let judged = judge(&Evidence { breach, ..evidence(&answer) }, &gate);
        recheck(&judged, &gate);
        judged.verdict
    };
    for right in [1.0, 3.0] {
        assert_eq!(verdict(right, None), Verdict::Pass);
    }
    for wrong in [3.1, 0.9] {
        assert_eq!(verdict(wrong, None), Verdict::Hold);
        assert_eq!(verdict(wrong, Some(&breach(SECONDS - 9))), Verdict::Hold, "it may be the same scrape");
        assert_eq!(verdict(wrong, Some(&breach(SECONDS - 10))), Verdict::Fail);
    }
    assert_eq!(verdict(f64::INFINITY, Some(&breach(0))), Verdict::Hold);
    let answer = Answer::Value(9.0);
    let warming = Evidence { counts_from: at(SECONDS + 1), breach: Some(&breach(0)), ..evidence(&answer) };
    assert_eq!(judge(&warming, &gate).reason, Reason::WarmingUp);
}

#[test]
fn a_job_passes_fails_or_holds_by_how_it_ended() {
    let verdict = |state| judge_job(&state).verdict;
    let ended = |outcome| JobState::Ended("j".into(), outcome);
    assert_eq!(verdict(ended(JobOutcome::Succeeded)), Verdict::Pass);
    assert_eq!(verdict(ended(JobOutcome::Failed)), Verdict::Fail);
    for state in [
        ended(JobOutcome::DeadlineExceeded),
        ended(JobOutcome::Killed),
        JobState::Running("j".into()),
        JobState::NoTemplate("t".into()),
    ] {
        assert_eq!(verdict(state), Verdict::Hold);
    }
}

fn one_of_each() -> [Gate; 4] {
    [
        rate(Some(0.05), None, 300),
        rate(None, Some(0.03), 500),
        rate(Some(0.01), Some(0.01), 50),
        p99(Some(5.0), Some(2.0), 1500),
    ]
}

proptest! {
    /// No numbers whatever make a panic, and what is on record says what the verdict says.
    #[test]
    fn any_counts_have_a_verdict(
        bad in any::<u64>(), total in any::<u64>(),
        other_bad in any::<u64>(), other_total in any::<u64>(),
        at_most in any::<[u64; 5]>(),
        over in any::<bool>(),
    ) {
        let counts = |bad, total| Counts { bad, ..histogram(at_most, total) };
        let answer = Answer::Counted {
            candidate: counted(counts(bad, total)),
            baseline: Some(Ok(counted(counts(other_bad, other_total)))),
        };
        for gate in one_of_each() {
            let judged = judge(&Evidence { over, ..evidence(&answer) }, &gate);
            // the API keeps signed numbers
            if [bad, total, other_bad, other_total].into_iter().all(|count| i64::try_from(count).is_ok()) {
                recheck(&judged, &gate);
            }
        }
    }

    /// The same in the range of real traffic.
    #[test]
    fn what_is_on_record_says_what_the_verdict_says(
        total in 0_u64..20_000, share in 0.0_f64..0.3,
        other_total in 0_u64..20_000, other_share in 0.0_f64..0.1,
        over in any::<bool>(), before in any::<bool>(),
    ) {
        let part = |total: u64, share: f64| (total as f64 * share) as u64;
        let counts = |total: u64, share: f64| {
            let slow = part(total, share);
            let at_most = [total / 2, total - slow - slow / 2 * u64::from(slow < total / 2), total - slow, total - slow / 2, total - slow / 4];
            let at_most = at_most.map({ let mut most = 0; move |count| { most = count.max(most); most } });
            Counts { bad: slow, ..histogram(at_most, total) }
        };
        let answer = Answer::Counted {
            candidate: counted(counts(total, share)),
            baseline: Some(Ok(counted(counts(other_total, other_share)))),
        };
        let breach = Breach { gate: "g".into(), at: Time(at(0)), samples: 0 };
        for gate in one_of_each() {
            recheck(&judge(&Evidence { over, breach: before.then_some(&breach), ..evidence(&answer) }, &gate), &gate);
        }
    }

    /// Ten times as much of the same is not better.
    #[test]
    fn a_failure_is_still_one_at_ten_times_the_traffic(total in 1_u64..3000, share in 0.0_f64..1.0) {
        let bad = (total as f64 * share) as u64;
        let gate = rate(Some(0.05), None, 300);
        let first = verdicts(&errors(bad, total), None, &gate)[1].0;
        let more = verdicts(&errors(bad * 10, total * 10), None, &gate)[1].0;
        prop_assert!(first != Verdict::Fail || more != Verdict::Pass);
    }
}

#[test]
fn samples_are_old_when_two_scrapes_and_what_the_way_takes_are_over() {
    let of = |age: i64, interval: Option<u64>| {
        let newest = Some(at(SECONDS - age));
        stale(&Counted { newest, interval: interval.map(Duration::from_secs), ..counted(errors(0, 10)) }, at(SECONDS))
    };
    assert_eq!((of(35, Some(15)).is_some(), of(36, Some(15)).is_some()), (false, true));
    // how often it is scraped is not known yet
    assert_eq!((of(300, None).is_some(), of(301, None).is_some()), (false, true));
    let never = |total| stale(&Counted { newest: None, ..counted(errors(0, total)) }, at(SECONDS)).is_some();
    assert_eq!((never(0), never(1)), (false, true));
}

#[test]
fn what_was_not_read_yet_is_none_so_far_of_as_many_as_are_needed() {
    let of = |gate: &Gate, counts_from: i64| {
        let judged =
            judge(&Evidence { answer: None, counts_from: at(counts_from), ..evidence(&Answer::Value(0.0)) }, gate);
        (judged.verdict, judged.reason, judged.samples, judged.needed)
    };
    let counts = rate(Some(0.05), None, 100);
    assert_eq!(of(&counts, SECONDS), (Verdict::Hold, Reason::NoTraffic, Some(0), Some(100)));
    assert_eq!(of(&counts, SECONDS + 1), (Verdict::Hold, Reason::WarmingUp, None, None));
    let value = gate(Rule::Value { query: String::new(), min: None, max: Some(1.0) }, 1);
    assert_eq!(of(&value, SECONDS), (Verdict::Hold, Reason::NoData, None, None));
}

#[test]
fn a_plain_failure_names_the_bound_that_was_counted_by() {
    let answer = Answer::Counted { candidate: counted(slow(30, 100)), baseline: None };
    let judged = judge(&evidence(&answer), &p99(Some(5.0), None, 1000));
    assert_eq!((judged.verdict, judged.reason), (Verdict::Fail, Reason::OverLimit));
    assert!(judged.message.starts_with("30 of 100 requests took longer than 5s;"), "{}", judged.message);
}

#[test]
fn a_plain_failure_of_a_ratio_is_counted_by_so_many_times_the_other_colors_bound() {
    let blue = histogram([9_000, 9_950, 10_000, 10_000, 10_000], 10_000);
    let green = histogram([0, 0, 40, 100, 100], 100);
    let answer = Answer::Counted { candidate: counted(green), baseline: Some(Ok(counted(blue))) };
    let judged = judge(&evidence(&answer), &p99(None, Some(2.0), 1500));
    assert!(judged.message.starts_with("60 of 100 requests took longer than 2.5s"), "{}", judged.message);
    assert_eq!((judged.verdict, judged.evidence[0].longer_than), (Verdict::Fail, Some(2.5)));
    assert!(judged.value.is_some() && judged.baseline.is_some() && judged.value != judged.baseline, "{judged:?}");
}

#[test]
fn the_other_colors_share_is_taken_for_as_high_as_it_may_well_be() {
    // the bound of 100 of 10,000 at half of 0.001 is 1.371 %
    assert_eq!([137, 138].map(|slow| latency::no_slower((slow, 10_000), (100, 10_000), 0.001)), [true, false]);
    // 1 of 100 may well be 8 %: 30 of 200 are plainly over 1 % and 3 more, not over that
    assert!(!rate::plainly_more((30, 200), (1, 100), 0.03, 0.001));
    assert!(rate::plainly_more((30, 200), (100, 10_000), 0.03, 0.001));
}
