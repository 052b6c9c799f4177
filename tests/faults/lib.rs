//! Every fault at every place: the unmodified operator on a simulated cluster in paused time. See `tests/README.md`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    clippy::match_same_arms,
    clippy::needless_for_each,
    clippy::struct_excessive_bools,
    clippy::inconsistent_struct_constructor,
    clippy::maybe_infinite_iter,
    clippy::enum_glob_use,
    clippy::too_many_lines
)]

mod chains;
mod fault;
mod hooks;
mod invariants;
mod many;
mod names;
mod objects;
mod run;
mod scenario;
mod search;
mod source;
mod world;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use fault::{Class, Fault, Kind};
use scenario::Scenario;
use search::{Reference, SEED, references, search};

const ALL: [Class; 7] =
    [Class::Write, Class::Read, Class::Lease, Class::Note, Class::Event, Class::Query, Class::Instant];

/// The one that `FAULTS_CLASS` names, or all.
fn classes() -> Vec<Class> {
    let wanted = std::env::var("FAULTS_CLASS").unwrap_or_default();
    if wanted.is_empty() {
        return ALL.to_vec();
    }
    ALL.into_iter().filter(|class| format!("{class:?}").to_lowercase() == wanted).collect()
}

/// Undisturbed, every scenario ends as it should, and breaks nothing.
#[test]
fn undisturbed_rollouts_end_as_they_should() {
    for reference in references() {
        let Reference { scenario, outcome } = &reference;
        println!(
            "{:<18} {:>6.1} s {:>5} requests, {:?}\n    {:?}\n    {:?}",
            scenario.name,
            outcome.took as f64 / 1000.0,
            outcome.requests,
            outcome.places,
            outcome.end.state,
            outcome.end.objects
        );
        assert!(outcome.violations.is_empty(), "{}: {:#?}", scenario.name, outcome.violations);
        let serves = format!("bot=bot-{}", scenario.serves);
        assert!(outcome.end.state["backends"].contains(&serves), "{}: {:?}", scenario.name, outcome.end.state);
    }
}

/// The same run twice is the same run, line by line: what a violation prints replays it, and "every place" is every one.
#[test]
fn a_run_is_the_same_again() {
    let mut met = std::collections::BTreeSet::new();
    for reference in references() {
        // one fault of each class at a time, at different places and of different kinds
        let some = (0..3).map(|turn| {
            let one = |class: &Class| {
                let (places, kinds) = (reference.places(*class), Kind::table(*class));
                let kind = *kinds.iter().cycle().nth(reference.scenario.name.len() + turn)?;
                Some(Fault { at: *places.get(places.len() * (turn + 1) / 4)?, kind })
            };
            ALL.iter().filter_map(one).collect()
        });
        for faults in std::iter::once(Vec::new()).chain(some) {
            let [one, other] = [(); 2].map(|()| run::run(&reference.scenario, &faults, SEED, true));
            let run = search::line(&reference.scenario, &faults);
            assert_eq!((one.took, one.requests, one.bad), (other.took, other.requests, other.bad), "{run}");
            assert_eq!((&one.end, one.violations.len()), (&other.end, other.violations.len()), "{run}");
            assert_eq!(one.happened, other.happened, "{run}");
            met.extend(one.happened.iter().map(|fault| fault.at.0));
            let (one, other) = (trace(&one), trace(&other));
            for (index, (one, other)) in one.iter().zip(&other).enumerate() {
                assert_eq!(one, other, "{run}: line {index}");
            }
            assert_eq!(one.len(), other.len(), "{run}");
        }
    }
    assert_eq!(met, ALL.into(), "a fault of every class happened");
    let scenario = Scenario::named("promotion").unwrap();
    let [one, other] = [SEED, SEED + 1].map(|seed| trace(&run::run(&scenario, &[], seed, true)));
    assert_ne!(one, other, "another seed is another run");
}

/// All requests, events of watches and notes of a run, by their names, without the names of Events: kube makes those from
/// the time of day.
fn trace(outcome: &run::Outcome) -> Vec<String> {
    let unnamed = |line: &String| line.split("/events/bot.").next().unwrap_or_default().to_owned();
    outcome.trace.iter().map(unnamed).collect()
}

/// What was found here and mended: each line broke the rule that is named.
const MENDED: [(&str, &str); 30] = [
    // a plan whose intent could not be written asked for other samples than the next one, without an end and a pause: L1
    ("rollback-errors", "w9=503-300s"),
    ("promotion", "w9=503-30s"),
    // the way back lost requests when the anchor was refused once: O5
    ("rollback-two", "w24=429"),
    // a list, or the start of a watch, that nobody answered was waited for for ever: L1
    ("promotion-two", "r1=hang"),
    ("rollback-two", "r7=hang"),
    ("rollback-act", "r12=hang"),
    // a way back whose process died before the record was taken for a switch by hand: O1
    ("rollback-buffer", "w24=crash-after"),
    // a watch that was silent at rest was noticed after five minutes: O1
    ("restoring", "e48=silence"),
    // a canary that was deleted during the switch ended the attempt: O1
    ("promotion-two", "t80500=canary-deleted"),
    // the finalizer stayed when the Deployment was gone: S17
    ("promotion", "t45500=target-deleted"),
    // a way back to a color that somebody had scaled down was blocked for ever: L1
    ("supersede", "t35500=scaled-old"),
    // two operators that disagreed wrote their status in turns, ten thousand times a second: L1
    ("supersede", "w23=rival"),
    // changed while the API was away, the target's old color was taken at the buffer's end before that was known: S12
    ("act-retry", "w32=503-300s t100500=supersede"),
    // an act whose removal had failed for minutes was taken for a word on the next attempt: O1
    ("act-retry", "w9=503-300s w11=hang"),
    // one answer that was no number was taken in as what had been there before, and held for ever: L1
    ("deletion-buffer", "w4=503-300s q81=nan"),
    ("promotion-two", "w12=503-300s q81=nan"),
    // the deadline passed while nobody could see the Pods, and ended the attempt: O1
    ("rollback-errors", "w3=503-300s w4=503-300s"),
    ("restoring", "w35=503-300s w37=503-300s"),
    // the target got as many replicas as the active color had left, and was held for as many as it had had: L1
    ("promotion", "w3=crash-before-60s t50500=scaled-old"),
    // the way back lost requests when the anchor's write got no answer: O5
    ("rollback-two", "w19=slow w24=hang"),
    ("rollback-two", "w22=503-300s w24=hang"),
    // nobody knew any more who had scaled the old color to nothing, and nobody started it again when it was wanted back: L1
    ("promotion", "w26=crash-after-5s t105500=target-back"),
    ("plain", "w15=hang-applied t70500=act-rollback"),
    ("rollback-two", "e45=silence q129=source-down-60s"),
    // the way back lost requests when the anchor was refused twice: O5
    ("rollback-two", "w26=422 w27=429"),
    // the lease was over for half a second, and what should have been done then was never done: L1
    ("plain", "r30=hang l13=hang l14=hang-applied"),
    // a list of a server that was behind lacked the canary, and nobody could make it believe that there is one: S17
    ("rollback-unready", "e22=time-travel e26=gone"),
    // what only a mutant has shown: a scale-down must look up who serves, since the caches may not know yet: S2
    ("promotion", "t100500=switched-unseen"),
    // and a switch that was refused is not done: S12
    ("rollback-two", "w24=conflict"),
    // and an act is removed when it is on record, not before: O1
    ("rollback-act", "w13=crash-after"),
];

#[test]
fn what_was_mended_stays_mended() {
    for (name, faults) in MENDED {
        let reference = Reference::of(Scenario::named(name).unwrap());
        let faults: Vec<Fault> = faults.split(' ').map(|fault| fault.parse().unwrap()).collect();
        let (outcome, broken) = reference.try_with(&faults);
        assert!(broken.is_empty(), "{name} {faults:?}: {broken:#?}");
        assert_eq!(outcome.happened.len(), faults.len(), "{name}: not all of {faults:?} happened");
    }
}

/// T2: every single fault at every place.
#[test]
fn every_single_fault_is_survived() {
    let references = references();
    let jobs: Vec<(usize, Fault)> = references
        .iter()
        .enumerate()
        .flat_map(|(index, reference)| reference.singles(&classes()).into_iter().map(move |fault| (index, fault)))
        .collect();
    let stride = std::env::var("FAULTS_STRIDE").ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(1);
    let jobs: Vec<_> = jobs.into_iter().step_by(stride).collect();
    // out of their order for who only looks for the first: what one rollout alone meets comes soon
    let next = if search::only_first() { search::APART } else { 1 };
    let report = search(jobs.len(), |index| {
        let (reference, fault) = jobs[index * next % jobs.len()];
        (&references[reference], vec![fault])
    });
    println!("{}", report.text());
    assert!(report.broken.is_empty(), "{}", report.text());
}

/// Replays one line, with all that happened: `RUN='promotion w7=lost-reply'`.
#[test]
#[ignore = "replays the run of RUN"]
fn replay() {
    let text = std::env::var("RUN").expect("RUN='promotion w7=lost-reply'");
    let mut words = text.split_whitespace();
    let scenario = Scenario::named(words.next().unwrap_or_default()).expect("a scenario");
    let faults: Vec<Fault> = words.map(|word| word.parse().unwrap()).collect();
    let reference = Reference::of(scenario);
    let outcome = run::run(&reference.scenario, &faults, SEED, true);
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("undisturbed: {:#?}\nnow: {:#?}\nhappened: {:?}", reference.outcome.end, outcome.end, outcome.happened);
    let broken = reference.broken(&outcome);
    for one in &broken {
        println!("{} at {:.3} s: {}", one.rule, one.at as f64 / 1000.0, one.text);
    }
    assert!(broken.is_empty());
}
