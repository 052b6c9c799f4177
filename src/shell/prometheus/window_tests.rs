//! No request is lost and none counts twice, whatever the polls, the restarts and the gaps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::api::Color;

/// A counter that was scraped at these times.
fn series(samples: &[(f64, f64)]) -> Series {
    Series::new(BTreeMap::from([("pod".to_owned(), "a".to_owned())]), samples.to_vec())
}

fn rate(samples: &[(f64, f64)], from: f64, to: f64) -> Fetched {
    let inside: Vec<_> = samples.iter().copied().filter(|(at, _)| *at > from && *at <= to).collect();
    let total = if inside.is_empty() { Vec::new() } else { vec![series(&inside)] };
    Fetched::Rate { bad: Vec::new(), total }
}

fn poll(window: &mut Window, samples: &[(f64, f64)], now: f64) -> Counted {
    let reach = window.reach(now) as f64;
    window.advance(rate(samples, now - reach, now), now).unwrap()
}

fn evidence(counted: &Counted) -> Evidence {
    Evidence {
        gate: "errors".into(),
        color: Color::Green,
        through: Time(counted.through),
        total: counted.settled.total as i64,
        bad: counted.settled.bad as i64,
        warmup_total: counted.warmup_settled.total as i64,
        warmup_bad: counted.warmup_settled.bad as i64,
        bounds: counted.settled.bounds.clone(),
        counts: counted.settled.at_most.iter().map(|count| *count as i64).collect(),
    }
}

#[test]
fn what_no_counter_can_have_is_not_taken_in_as_what_was_there_before() {
    let mut window = Window::new(100.0, 100.0, None);
    for value in [f64::NAN, f64::INFINITY, -1.0] {
        let Err(Trouble(reason, text)) = window.prime(rate(&[(60.0, value)], 0.0, 90.0), 90.0) else {
            panic!("{value} is taken in")
        };
        assert_eq!(reason, Reason::NotACounter, "{text}");
        assert!(!window.is_primed(), "it is asked again");
    }
    window.prime(rate(&[(60.0, 40.0)], 0.0, 90.0), 90.0).unwrap();
    assert_eq!(poll(&mut window, &[(110.0, 50.0)], 112.0).now.total, 10);
}

#[test]
fn a_gap_longer_than_the_look_back_makes_no_new_series() {
    let samples = [(1000.0, 500.0), (1001.0, 501.0), (1061.0, 520.0)];
    let mut window = Window::new(1000.0, 1000.0, None);
    for now in [1001.0, 1005.0, 1030.0, 1060.0] {
        assert_eq!(poll(&mut window, &samples, now).now.total, 1);
    }
    assert_eq!(poll(&mut window, &samples, 1062.0).now.total, 20);
}

#[test]
fn nothing_of_a_missing_counter_is_seen() {
    let mut window = Window::new(1000.0, 1000.0, None);
    let counted = poll(&mut window, &[], 1010.0);
    assert_eq!((counted.now.seen, counted.now.total), (false, 0));
    assert!(poll(&mut window, &[(1011.0, 3.0)], 1012.0).now.seen);
}

#[test]
fn of_bounds_that_change_those_that_stay_go_on() {
    let bucket = |le: &str, at: f64, value: f64| {
        Series::new(BTreeMap::from([("le".to_owned(), le.to_owned())]), vec![(at, value)])
    };
    let mut window = Window::new(1000.0, 1000.0, None);
    let first = ["0.5", "1", "+Inf"].map(|le| bucket(le, 1001.0, 3.0));
    assert_eq!(window.advance(Fetched::Buckets(first.into()), 1010.0).unwrap().settled.at_most, [3, 3]);
    // a server with other bounds is another process: it counts from zero
    let second = ["0.7", "1", "+Inf"].map(|le| bucket(le, 1011.0, 2.0));
    let counted = window.advance(Fetched::Buckets(second.into()), 1020.0).unwrap();
    assert_eq!((counted.now.bounds, counted.now.at_most, counted.now.total), (vec![1.0], vec![5], 5));
}

fn counts(window: &Window) -> (Counts, Counts, f64) {
    (window.settled.clone(), window.warmup.clone(), window.through)
}

#[test]
fn a_fraction_is_no_counter_and_moves_nothing() {
    let mut window = Window::new(1000.0, 1000.0, None);
    let before = counts(&window);
    let wrong = Fetched::Rate { bad: Vec::new(), total: vec![series(&[(1001.0, 0.5)])] };
    assert_eq!(window.advance(wrong, 1010.0).unwrap_err().0, Reason::NotACounter);
    assert_eq!(counts(&window), before);
}

#[test]
fn the_interval_is_the_usual_gap() {
    assert_eq!(rate(&[(1.0, 0.0), (16.0, 0.0), (31.0, 0.0)], 0.0, 40.0).interval(), Some(15.0));
    assert_eq!(rate(&[(1.0, 0.0)], 0.0, 40.0).interval(), None);
    let reach = |interval| {
        let mut window = Window::new(1000.0, 1000.0, None);
        window.learn(interval);
        window.reach(1010.0)
    };
    assert_eq!([reach(None), reach(Some(15.0)), reach(Some(0.1))], [310, 130, 40]);
    // one that is much shorter than the others is no other scrape interval
    assert_eq!(rate(&[(1.0, 0.0), (16.0, 0.0), (17.0, 0.0), (32.0, 0.0)], 0.0, 40.0).interval(), Some(15.0));
}

#[test]
fn the_warm_up_is_told_apart_to_the_sample_also_after_a_restart() {
    let samples: Vec<(f64, f64)> =
        (0..60).map(|second| (1000.5 + f64::from(second), f64::from(second) * 2.0)).collect();
    let mut window = Window::new(1000.0, 1020.0, None);
    for now in [1004.0, 1012.0, 1018.0, 1025.0, 1041.0, 1059.0] {
        let counted = poll(&mut window, &samples, now);
        let warm = tally(&[series(&samples)], 1000.0, 1020_f64.min(now));
        assert_eq!(Tally::Count(counted.warmup.total), warm, "at {now}");
        assert_eq!(Tally::Count(counted.judged().total), tally(&[series(&samples)], 1020.0, now), "at {now}");
        window = Window::new(1000.0, 1020.0, Some(&evidence(&counted)));
    }
}

/// A sample has the time at which its scrape began, and may be there many seconds later: whole Pods lag, remote writes lag.
#[test]
fn a_sample_that_arrives_late_is_counted_when_it_is_there() {
    let pods = [("a", 0.0), ("b", 9.0)];
    let samples: Vec<(f64, f64)> = (0..90).map(|second| (990.5 + f64::from(second), f64::from(second) * 3.0)).collect();
    let mut window = Window::new(1000.0, 1010.0, None);
    let mut last = Counts::default();
    for second in 1..=100 {
        let now = 1000.0 + f64::from(second);
        let from = now - window.reach(now) as f64;
        let seen = pods.map(|(pod, delay)| {
            let there = |at: f64| at > from && at + delay <= now;
            let inside = samples.iter().copied().filter(|(at, _)| there(*at)).collect();
            Series::new(BTreeMap::from([("pod".to_owned(), pod.to_owned())]), inside)
        });
        let seen = seen.into_iter().filter(|one| !one.samples.is_empty()).collect();
        let counted = window.advance(Fetched::Rate { bad: Vec::new(), total: seen }, now).unwrap();
        assert!(counted.now.total >= last.total);
        last = counted.now;
    }
    let Tally::Count(all) = tally(&[series(&samples)], 1000.0, 1100.0) else { panic!() };
    assert_eq!(last.total, 2 * all);
    assert_eq!(Tally::Count(window.warmup.total / 2), tally(&[series(&samples)], 1000.0, 1010.0));
}

#[test]
fn what_is_recent_is_the_last_minute_and_the_last_five() {
    let samples: Vec<(f64, f64)> = (0..900).map(|second| (1000.5 + f64::from(second), f64::from(second))).collect();
    let mut window = Window::new(1000.0, 1000.0, None);
    for second in 1..=600 {
        let now = 1000.0 + f64::from(second);
        let counted = poll(&mut window, &samples, now);
        for (span, seconds) in [(Span::LastMinute, 60), (Span::LastFiveMinutes, 300)] {
            let found = counted.recent.iter().find(|(one, _)| *one == span).map(|(_, counts)| counts.total);
            if second < seconds {
                assert_eq!(found, None, "nothing is told of a window that is younger than that");
            } else if second > seconds + 10 {
                let most = (seconds + 6) as u64;
                assert!(
                    found.is_some_and(|total| total >= seconds as u64 && total <= most),
                    "{span} {found:?} at {second}"
                );
            }
        }
    }
    assert!(window.past.len() < 70, "{}", window.past.len());
}

#[test]
fn what_is_far_behind_is_read_in_pieces() {
    let samples: Vec<(f64, f64)> = (0..40_000).map(|step| (1000.5 + f64::from(step), f64::from(step))).collect();
    let mut window = Window::new(1000.0, 1000.0, None);
    poll(&mut window, &samples, 1010.0);
    let mut pieces = 0;
    while let Some(end) = window.piece(40_000.0) {
        assert!(window.reach(end) < 500, "a piece is small");
        poll(&mut window, &samples, end);
        pieces += 1;
    }
    assert!((300..400).contains(&pieces), "{pieces}");
    let counted = poll(&mut window, &samples, 40_000.0);
    assert_eq!(Tally::Count(counted.now.total), tally(&[series(&samples)], 1000.0, 40_000.0));
}

proptest! {
    /// Polls at any times and restarts in between end with the same count as one look at everything.
    #[test]
    fn no_count_is_lost_or_doubled(
        steps in prop::collection::vec(0_u32..9, 40..80),
        resets in prop::collection::btree_set(1_usize..40, 0..3),
        polls in prop::collection::vec((1_u32..7_000, any::<bool>()), 1..20),
    ) {
        let mut samples = Vec::new();
        let mut value = 17.0;
        for (index, step) in steps.iter().enumerate() {
            value = if resets.contains(&index) { f64::from(*step) } else { value + f64::from(*step) };
            samples.push((990.5 + index as f64, value));
        }
        let mut window = Window::new(1000.0, 1000.0, None);
        let mut now = 1000.0;
        for (pause, restart) in polls {
            now += f64::from(pause) / 1000.0;
            let counted = poll(&mut window, &samples, now);
            prop_assert_eq!(Tally::Count(counted.now.total), tally(&[series(&samples)], 1000.0, now));
            let through = unix(counted.through);
            prop_assert_eq!(Tally::Count(counted.settled.total), tally(&[series(&samples)], 1000.0, through));
            if restart {
                window = Window::new(1000.0, 1000.0, Some(&evidence(&counted)));
            }
        }
    }

    /// Pods that come and go, restart in place, are scraped late or not at all: polls, pieces and restarts of the operator
    /// end with the counts that a look at all samples of all time gives.
    #[test]
    fn every_sample_of_every_series_counts_once(
        pods in prop::collection::vec(pod(), 1..6),
        polls in prop::collection::vec((1_u32..12_000, prop::bool::weighted(0.1)), 1..25),
    ) {
        let labels = |number: usize| BTreeMap::from([("pod".to_owned(), number.to_string())]);
        let all: Vec<Series> =
            pods.iter().enumerate().map(|(number, samples)| Series::new(labels(number), samples.clone())).collect();
        let mut window = Window::new(1000.0, 1015.0, None);
        let mut now = 1000.0;
        for (pause, restart) in polls {
            now += f64::from(pause) / 1000.0;
            let from = now - window.reach(now) as f64;
            let seen = all.iter().filter_map(|one| {
                let inside: Vec<_> = one.samples.iter().copied().filter(|(at, _)| *at > from && *at <= now).collect();
                (!inside.is_empty()).then(|| Series::new(one.labels.clone(), inside))
            });
            let fetched = Fetched::Rate { bad: Vec::new(), total: seen.collect() };
            let counted = window.advance(fetched, now).unwrap();
            prop_assert_eq!(Tally::Count(counted.now.total), tally(&all, 1000.0, now));
            prop_assert_eq!(Tally::Count(counted.judged().total), tally(&all, 1015_f64.min(now), now));
            let through = unix(counted.through);
            prop_assert_eq!(Tally::Count(counted.settled.total), tally(&all, 1000.0, through));
            if restart {
                window = Window::new(1000.0, 1015.0, Some(&evidence(&counted)));
            }
        }
    }
}

/// The samples of one Pod's counter: born before or in the stage, restarted in place, with scrapes that are missing, and
/// gone at some time.
fn pod() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let scrape = (0_u32..9, prop::bool::weighted(0.05), prop::bool::weighted(0.15));
    (0_u32..60, 0_u32..100, prop::collection::vec(scrape, 2..80)).prop_map(|(born, offset, scrapes)| {
        let first = 960.0 + f64::from(born) + f64::from(offset) / 100.0;
        let mut value = if born < 40 { 1000.0 } else { 0.0 };
        let mut samples = Vec::new();
        for (number, (more, restarted, missing)) in scrapes.into_iter().enumerate() {
            value = if restarted { f64::from(more) } else { value + f64::from(more) };
            if !missing {
                samples.push((first + number as f64, value));
            }
        }
        samples
    })
}
