//! The end of the demo: what happened, in numbers, and whether it is what was promised.

use std::time::{Duration, Instant};

use modelrollout::api::Color;
use modelrollout_load::{PairReport, Report};

use crate::manifests::{FIRST, Version};
use crate::story::{Chapter, Story, gate};

/// How long the ingress controller may go on sending to a color after the rollout says that it was left.
const FOLLOW: Duration = Duration::from_secs(2);
/// How long a bad version may have traffic after its first bad answer.
const TOO_LONG: f64 = 30.0;

/// What a bad version did before it was sent back.
struct Damage {
    first_bad: Instant,
    last_sent: Instant,
    answers: u64,
}

impl Damage {
    fn seconds(&self) -> f64 {
        self.last_sent.saturating_duration_since(self.first_bad).as_secs_f64()
    }
}

/// Prints the summary, and returns what is not as it should be.
pub fn print(story: &Story, rate: f64) -> Vec<String> {
    println!("\n---- summary ----");
    for (number, chapter) in (1..).zip(&story.chapters) {
        print_chapter(number, chapter, &story.report);
    }
    print_requests(story);
    let problems = problems(story, rate);
    println!();
    for problem in &problems {
        println!("NOT AS IT SHOULD BE: {problem}");
    }
    if problems.is_empty() {
        println!("Nobody noticed the promotion, and both bad versions were sent back by themselves.");
    }
    problems
}

fn print_chapter(number: u32, chapter: &Chapter, report: &Report) {
    let Chapter { version, history, .. } = chapter;
    let whole = seconds(chapter.began, chapter.ended);
    let end = gate(chapter).map_or("promoted".to_owned(), |gate| format!("rolled back by the gate {gate}"));
    println!("({number}) {}, {}: {end}, {whole:.1} s in all", version.pair(), chapter.color);
    println!("    {}", phases(chapter).join(", "));
    let Some(damage) = damage(chapter, report) else { return };
    println!("    {}", history.message.clone().unwrap_or_default());
    let (bad, errors) = if version.fail_percent > 0 {
        ("error", format!("{} of them injected errors", report.injected))
    } else {
        ("answer over 2.5 s", "none of them an error".to_owned())
    };
    let (seconds, answers) = (damage.seconds(), damage.answers);
    println!("    from the first {bad} to traffic back: {seconds:.1} s; this version gave {answers} answers, {errors}");
}

/// Each phase and how long it took; the last one is where it ended.
fn phases(chapter: &Chapter) -> Vec<String> {
    let ends = chapter.spans.iter().skip(1).map(|next| next.began);
    let known = chapter.spans.iter().zip(ends);
    known.map(|(span, end)| format!("{} {:.1} s", span.label, seconds(span.began, end))).collect()
}

fn print_requests(story: &Story) {
    let report = &story.report;
    println!("\n{:<6} {:<35} {:<7} {:>8} {:>9} {:>9}", "COLOR", "MODEL", "PROMPT", "ANSWERS", "STREAMED", "INJECTED");
    let colors = story.chapters.iter().map(|chapter| (chapter.color, &chapter.version));
    for (color, version) in std::iter::once((Color::Blue, &FIRST)).chain(colors) {
        let pair = version.pair();
        let (answers, streamed) = of(report, version).map_or((0, 0), |pair| (pair.answers, pair.streamed));
        let injected = if version.fail_percent > 0 { report.injected } else { 0 };
        println!(
            "{:<6} {:<35} {:<7} {answers:>8} {streamed:>9} {injected:>9}",
            color.as_str(),
            pair.model,
            pair.prompt_version
        );
    }
    let elapsed = report.elapsed_ms as f64 / 1000.0;
    println!(
        "\n{} requests in {elapsed:.1} s ({:.0} a second): {} plain, {} of them on new connections, {} streamed",
        report.total,
        report.total as f64 / elapsed,
        report.plain,
        report.fresh,
        report.streamed
    );
    let (plain, stream) = (report.latency.plain, report.latency.stream);
    println!(
        "plain answers took {:.0} ms (p50), {:.0} ms (p99); streamed ones {:.0} ms (p50), {:.0} ms (p99)",
        plain.p50_ms, plain.p99_ms, stream.p50_ms, stream.p99_ms
    );
    println!(
        "failed {}, cut streams {}, mismatched pairs {}; injected errors that users saw: {}",
        report.failed, report.cut_streams, report.mismatched_pairs, report.injected
    );
}

/// From the first bad answer to the last request that the bad version got.
fn damage(chapter: &Chapter, report: &Report) -> Option<Damage> {
    gate(chapter)?;
    let seen = of(report, &chapter.version)?;
    let failing = chapter.version.fail_percent > 0;
    // An injected error does not say who it is from; only one version makes any.
    let (first, last, injected) = if failing {
        (report.first_injected.map(|moment| moment.at), report.last_injected.map(|moment| moment.at), report.injected)
    } else {
        (chapter.first_slow, None, 0)
    };
    Some(Damage {
        first_bad: first.unwrap_or(seen.first.at),
        last_sent: last.map_or(seen.last_sent.at, |last| last.max(seen.last_sent.at)),
        answers: seen.answers + injected,
    })
}

fn problems(story: &Story, rate: f64) -> Vec<String> {
    let report = &story.report;
    let mut found = Vec::new();
    let mut must = |so: bool, problem: String| {
        if !so {
            found.push(problem);
        }
    };
    must(report.failed == 0, format!("{} requests failed: {}", report.failed, errors(report)));
    must(report.cut_streams == 0, format!("{} streams were cut", report.cut_streams));
    must(report.mismatched_pairs == 0, format!("{} answers had the wrong model or prompt", report.mismatched_pairs));
    let real = report.total as f64 * 1000.0 / report.elapsed_ms.max(1) as f64;
    must(real > rate / 2.0, format!("only {real:.0} requests a second were sent instead of {rate}"));
    if let (Some(old), Some(promotion)) = (of(report, &FIRST), story.chapters.first()) {
        let late = seconds(promotion.ended, old.last_sent.at);
        must(
            late <= 0.0,
            format!("{} still got requests {late:.1} s after its Pods were scaled to zero", FIRST.pair()),
        );
    }
    for chapter in &story.chapters {
        let pair = chapter.version.pair();
        let Some(seen) = of(report, &chapter.version) else {
            must(false, format!("{pair} never answered"));
            continue;
        };
        let Some(damage) = damage(chapter, report) else { continue };
        let late = seconds(chapter.ended, damage.last_sent);
        must(late < FOLLOW.as_secs_f64(), format!("{pair} still got requests {late:.1} s after it was rolled back"));
        let long = damage.seconds();
        must(long < TOO_LONG, format!("{pair} had traffic for {long:.1} s after its first bad answer"));
        must(seen.first.at >= chapter.began, format!("{pair} answered before it was applied"));
        must(chapter.version.fail_percent == 0 || report.injected > 0, "no error was injected".to_owned());
    }
    found
}

fn errors(report: &Report) -> String {
    let one = |error: &modelrollout_load::ErrorSample| {
        format!("\n  +{:.3} s {:?} {:?}: {}", error.offset_ms as f64 / 1000.0, error.flow, error.kind, error.message)
    };
    report.first_errors.iter().map(one).collect()
}

fn of<'a>(report: &'a Report, version: &Version) -> Option<&'a PairReport> {
    report.pair(&version.pair())
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}
