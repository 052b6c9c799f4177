//! Which runs are made, how a run is compared with the undisturbed one, and how a violation is made small.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::fault::{Class, Fault, Kind, Point};
use crate::invariants::Violation;
use crate::run::{End, Outcome, run};
use crate::scenario::{Scenario, all};

/// The seed of every reference run: of delays, requests and scrapes.
pub const SEED: u64 = 7;
/// Moments are tried at this distance, in milliseconds.
const MOMENT_MS: u64 = 5_000;

/// A run may come to rest so many seconds later than undisturbed, beside what its faults last.
const LATE_S: u64 = 60;
/// A bad version may keep its share so many seconds longer than undisturbed, or than the last fault lasts.
const BAD_S: u64 = 15;

/// A prime: every so-manieth of a list, round and round, takes it out of its order.
pub const APART: usize = 100_003;

/// A scenario and what it is undisturbed.
pub struct Reference {
    pub scenario: Scenario,
    pub outcome: Outcome,
}

impl Reference {
    /// Runs it undisturbed.
    pub fn of(scenario: Scenario) -> Self {
        let outcome = run(&scenario, &[], SEED, false);
        Self { scenario, outcome }
    }

    /// Every place of these classes with every fault of its table.
    pub fn singles(&self, classes: &[Class]) -> Vec<Fault> {
        let mut faults = Vec::new();
        for class in classes {
            for at in self.places(*class) {
                faults.extend(Kind::table(*class).iter().map(|kind| Fault { at, kind: *kind }));
            }
        }
        faults
    }

    /// All places of a class.
    pub fn places(&self, class: Class) -> Vec<Point> {
        if class == Class::Instant {
            let moments = (20_500..self.outcome.took.saturating_sub(30_000)).step_by(MOMENT_MS as usize);
            return moments.map(|at| Point(class, at)).collect();
        }
        let count = self.outcome.places.get(&class).copied().unwrap_or(0);
        (1..=count).map(|number| Point(class, number)).collect()
    }

    /// Runs it with faults, and compares: gives what was broken.
    pub fn try_with(&self, faults: &[Fault]) -> (Outcome, Vec<Violation>) {
        match std::panic::catch_unwind(|| run(&self.scenario, faults, SEED, false)) {
            Ok(outcome) => {
                let broken = self.broken(&outcome);
                (outcome, broken)
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
                (Outcome::default(), vec![Violation { rule: "panic", at: 0, text }])
            }
        }
    }

    /// What was broken on the way, and at the end.
    pub fn broken(&self, outcome: &Outcome) -> Vec<Violation> {
        [outcome.violations.clone(), self.compare(outcome)].concat()
    }

    /// O1 and O2: the same end as undisturbed, if nobody did anything else on purpose; L1, L2 and L4: as soon, but for what
    /// the faults cost.
    fn compare(&self, outcome: &Outcome) -> Vec<Violation> {
        let mut broken = Vec::new();
        let happened = |what: fn(Kind) -> bool| outcome.happened.iter().any(|fault| what(fault.kind));
        // of two leaders the one whose view is old may write late: see S2
        let late = happened(|kind| kind == Kind::Rival) && happened(Kind::makes_blind);
        if late || happened(Kind::changes_the_end) {
            return broken;
        }
        let mut wrong = |rule, text: String| broken.push(Violation { rule, at: outcome.took, text });
        let lasted: u64 = outcome.happened.iter().map(|fault| fault.kind.seconds() * 1000).sum();
        let late = outcome.rests_since.saturating_sub(self.outcome.rests_since + lasted) / 1000;
        if late > LATE_S {
            wrong(
                if happened(Kind::makes_blind) { "L4" } else { "L1" },
                format!("it comes to rest {late} s later than undisturbed"),
            );
        }
        if let ((Some(was_bad), Some(was_gone)), (Some(bad), gone)) = (self.outcome.bad, outcome.bad) {
            let due = (bad + was_gone - was_bad).max(outcome.over_at) + BAD_S * 1000;
            if gone.is_none_or(|gone| gone > due) {
                let text = format!("bad answers from {bad} ms on, no share at {gone:?} ms, due until {due} ms");
                wrong("L2", text);
            }
        }
        let (was, is): (&End, &End) = (&self.outcome.end, &outcome.end);
        for (key, value) in &was.state {
            let other = is.state.get(key).map(String::as_str).unwrap_or_default();
            // who was away for long finds what it did, and not always why
            let away = happened(Kind::is_long);
            if *key == "history" && away && without_causes(value) == without_causes(other) {
                continue;
            }
            if other != value {
                wrong("O1", format!("{key}: undisturbed {value:?}, now {other:?}"));
            }
        }
        let theirs = happened(|kind| matches!(kind, Kind::Deleted | Kind::CanaryDeleted));
        // whoever died before it had recorded why it went back asks again, and believes what it is told
        let lied_to = happened(Kind::kills) && happened(|kind| kind == Kind::Old);
        // whoever was blind twice learns late of what the script changed, and has more to take back, never less
        let silences = outcome.happened.iter().filter(|fault| fault.kind == Kind::Silence).count();
        let more = was.objects.keys().eq(is.objects.keys())
            && was
                .objects
                .values()
                .zip(is.objects.values())
                .all(|(was, is)| (*was..=was + silences as u64).contains(is));
        let blind = silences > 1 && !self.scenario.script.is_empty() && more;
        if was.objects != is.objects && !theirs && !lied_to && !blind {
            wrong("O2", format!("made and deleted undisturbed {:?}, now {:?}", was.objects, is.objects));
        }
        broken
    }
}

/// Outcomes alone.
fn without_causes(history: &str) -> String {
    history.split_whitespace().filter_map(|entry| entry.split('(').next()).collect::<Vec<_>>().join(" ")
}

/// The line that replays a run.
pub fn line(scenario: &Scenario, faults: &[Fault]) -> String {
    let mut line = scenario.name.to_owned();
    for fault in faults {
        let _ = write!(line, " {fault}");
    }
    line
}

/// Removes faults for as long as the same rule is broken.
pub fn shrink(reference: &Reference, faults: &[Fault], rule: &str) -> Vec<Fault> {
    let mut small = faults.to_vec();
    let mut index = 0;
    while index < small.len() && small.len() > 1 {
        let mut fewer = small.clone();
        fewer.remove(index);
        let (_, broken) = reference.try_with(&fewer);
        if broken.iter().any(|one| one.rule == rule) {
            small = fewer;
        } else {
            index += 1;
        }
    }
    small
}

/// What a search found.
#[derive(Default)]
pub struct Report {
    pub runs: usize,
    /// Faults that happened, by word.
    pub faults: BTreeMap<&'static str, usize>,
    /// Runs with a violation: the line, and what was broken.
    pub broken: Vec<(String, Vec<Violation>)>,
    pub requests: u64,
    pub seconds: f64,
    /// Simulated time, in hours.
    pub hours: f64,
}

impl Report {
    /// Takes in what another search found.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.requests += other.requests;
        self.seconds += other.seconds;
        self.hours += other.hours;
        for (word, count) in other.faults {
            *self.faults.entry(word).or_default() += count;
        }
        self.broken.extend(other.broken);
    }

    /// In words.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} runs, {} faults of {} kinds, {} requests, {:.0} simulated hours in {:.1} s ({:.2} ms a run and core): {} runs with a violation\n",
            self.runs,
            self.faults.values().sum::<usize>(),
            self.faults.len(),
            self.requests,
            self.hours,
            self.seconds,
            self.seconds * 1000.0 * threads() as f64 / self.runs.max(1) as f64,
            self.broken.len()
        );
        let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, violations) in &self.broken {
            for one in violations {
                *rules.entry(one.rule).or_default() += 1;
            }
        }
        let _ = writeln!(text, "  by rule: {rules:?}");
        for (line, violations) in self.broken.iter().take(60) {
            let _ = writeln!(text, "  make test-faults-replay RUN='{line}'");
            for one in violations.iter().take(3) {
                let _ = writeln!(text, "      {} at {:.3} s: {}", one.rule, one.at as f64 / 1000.0, one.text);
            }
        }
        text
    }
}

/// Whether it is over with the first violation: who only asks whether there is one need not wait for the rest.
pub fn only_first() -> bool {
    std::env::var_os("FAULTS_FIRST").is_some()
}

/// So many runs at once.
pub fn threads() -> usize {
    let given = std::env::var("FAULTS_THREADS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Runs all of `count` jobs, each a reference and its faults.
pub fn search<'a>(count: usize, job: impl Fn(usize) -> (&'a Reference, Vec<Fault>) + Sync) -> Report {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let first = only_first();
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let (reference, faults) = job(index);
                    if std::env::var_os("FAULTS_TELL").is_some_and(|value| value == "all") {
                        eprintln!("{:?} {index} {}", std::thread::current().id(), line(&reference.scenario, &faults));
                    }
                    let (outcome, broken) = reference.try_with(&faults);
                    let small = broken.first().map(|one| shrink(reference, &faults, one.rule));
                    let mut report = report.lock().expect("no panic");
                    report.runs += 1;
                    report.requests += outcome.requests;
                    report.hours += outcome.took as f64 / 3_600_000.0;
                    for fault in &outcome.happened {
                        *report.faults.entry(fault.kind.word()).or_default() += 1;
                    }
                    if let Some(small) = small {
                        if std::env::var_os("FAULTS_TELL").is_some() {
                            eprintln!("{} # {:?}", line(&reference.scenario, &small), broken.first());
                        }
                        report.broken.push((line(&reference.scenario, &small), broken));
                        if first {
                            next.store(count, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no panic");
    report.seconds = began.elapsed().as_secs_f64();
    report.broken.sort_by(|one, other| one.0.cmp(&other.0));
    report
}

/// The references of the scenarios whose names begin with `FAULTS_SCENARIO`.
pub fn references() -> Vec<Reference> {
    let wanted = std::env::var("FAULTS_SCENARIO").unwrap_or_default();
    all().into_iter().filter(|one| one.name.starts_with(&wanted)).map(Reference::of).collect()
}
