//! The long searches: all pairs of a bounded set, and random schedules. Both go on where they were ended.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use modelrollout_simapi::actors::random::Random;

use crate::ALL;
use crate::fault::{Class, Fault, Kind};
use crate::search::{APART, Reference, Report, references, search};

/// So many runs are one step of the record of what is done.
const STEP: usize = 500;

/// What is done of a search, in a file: the number of each step, and what was found.
struct Progress {
    file: PathBuf,
    done: BTreeSet<usize>,
}

impl Progress {
    fn open(name: &str, count: usize) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/faults");
        fs::create_dir_all(&folder).unwrap();
        // another number of runs is another search
        let file = folder.join(format!("{name}-{count}.txt"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let done = text.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).collect();
        Self { file, done }
    }

    fn add(&self, line: &str) {
        let mut file = File::options().create(true).append(true).open(&self.file).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Makes all runs that are not done yet, for as long as `FAULTS_SECONDS` say; prints what was found.
fn work<'a>(name: &str, count: usize, job: impl Fn(usize) -> (&'a Reference, Vec<Fault>) + Sync) {
    let progress = Progress::open(name, count);
    let seconds = std::env::var("FAULTS_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let began = std::time::Instant::now();
    let steps = count.div_ceil(STEP);
    let mut all = Report::default();
    for step in 0..steps {
        if progress.done.contains(&step) {
            continue;
        }
        if seconds.is_some_and(|seconds| began.elapsed().as_secs() >= seconds) {
            break;
        }
        let from = step * STEP;
        let report = search(STEP.min(count - from), |index| job(from + index));
        for (line, violations) in &report.broken {
            progress.add(&format!(
                "broken {line} # {}",
                violations.iter().map(|one| one.rule).collect::<Vec<_>>().join(" ")
            ));
        }
        progress.add(&format!("done {step}"));
        all.add(report);
    }
    let record = fs::read_to_string(&progress.file).unwrap_or_default();
    let (done, broken) = (
        record.lines().filter(|line| line.starts_with("done ")),
        record.lines().filter(|line| line.starts_with("broken ")),
    );
    let (done, broken): (usize, Vec<&str>) = (done.count(), broken.collect());
    println!(
        "{name}: {} of {count} runs are done, {} of them with a violation\n{}",
        (done * STEP).min(count),
        broken.len(),
        all.text()
    );
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Of the places of a class, which go with each write, and how many pairs of kinds are tried at each such pair of places.
const WITH_A_WRITE: [(Class, usize, usize); 4] =
    [(Class::Write, 1, 4), (Class::Event, 1, 1), (Class::Instant, 2, 1), (Class::Query, 8, 1)];

/// T2, pairs: at each write of the scenarios that `FAULTS_SCENARIO` names a fault, with one at each later write, at each
/// event, at every second moment and every eighth query. All pairs of kinds at all pairs of places would be 30 million
/// runs: each pair of places gets some, and which ones goes round until every pair of kinds was tried at many places.
#[test]
#[ignore = "takes long: make test-faults-pairs"]
fn pairs() {
    let references = references();
    let mut pairs: Vec<(usize, Fault, Fault)> = Vec::new();
    let firsts = Kind::table(Class::Write);
    for (class, step, times) in WITH_A_WRITE {
        let seconds = Kind::table(class);
        // both go round, and the second one starts one further each time that the first one is through
        let mut round =
            (0..).map(|turn| (firsts[turn % firsts.len()], seconds[(turn + turn / firsts.len()) % seconds.len()]));
        for (index, reference) in references.iter().enumerate() {
            for at in reference.places(Class::Write) {
                let others = reference.places(class).into_iter().step_by(step);
                for other in others.filter(|other| other.0 != Class::Write || *other > at) {
                    pairs.extend(
                        round
                            .by_ref()
                            .take(times)
                            .map(|(one, second)| (index, Fault { at, kind: one }, Fault { at: other, kind: second })),
                    );
                }
            }
        }
    }
    let scenarios = references.iter().map(|one| one.scenario.name).collect::<Vec<_>>().join("+");
    let name = if scenarios.len() > 60 { "pairs".to_owned() } else { format!("pairs-{scenarios}") };
    // out of their order: what is done is a fair sample at every time
    work(&name, pairs.len(), |index| {
        let (reference, one, other) = pairs[index * APART % pairs.len()];
        (&references[reference], vec![one, other])
    });
}

/// T2, random: `FAULTS_RUNS` schedules of three to eight faults each.
#[test]
#[ignore = "takes long: make test-faults-random"]
fn random() {
    let runs = std::env::var("FAULTS_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let references = references();
    let all: Vec<Vec<Fault>> = references.iter().map(|reference| reference.singles(&ALL)).collect();
    work("random", runs, |index| {
        let mut random = Random::new(index as u64);
        let which = random.below(references.len() as u64) as usize;
        let count = random.between(3, 8);
        let mut places = BTreeSet::new();
        let mut faults = Vec::new();
        while faults.len() < count as usize {
            let fault = all[which][random.below(all[which].len() as u64) as usize];
            if places.insert(fault.at) {
                faults.push(fault);
            }
        }
        faults.sort();
        (&references[which], faults)
    });
}
