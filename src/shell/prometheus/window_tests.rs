//! No request is lost and none counts twice, whatever the polls, the restarts and the gaps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::api::Color;

/// A counter that was scraped at these times.
fn series(samples: &[(f64, f64)]) -> Series {
    Series { labels: BTreeMap::from([("pod".to_owned(), "a".to_owned())]), samples: samples.to_vec() }
}

fn rate(samples: &[(f64, f64)], from: f64, to: f64) -> Fetched {
    let inside: Vec<_> = samples.iter().copied().filter(|(at, _)| *at > from && *at <= to).collect();
    let total = if inside.is_empty() { Vec::new() } else { vec![series(&inside)] };
    Fetched::Rate { bad: Vec::new(), total }
}

fn poll(window: &mut Window, samples: &[(f64, f64)], now: f64, interval: Option<f64>) -> Counted {
    let reach = window.reach(now, interval) as f64;
    window.advance(rate(samples, now - reach, now), now).unwrap()
}

fn evidence(counted: &Counted) -> Evidence {
    Evidence {
        gate: "errors".into(),
        color: Color::Green,
        through: Time(counted.through),
        total: counted.settled.total as i64,
        bad: counted.settled.bad as i64,
        bounds: counted.settled.bounds.clone(),
        counts: counted.settled.at_most.iter().map(|count| *count as i64).collect(),
    }
}

#[test]
fn a_gap_longer_than_the_look_back_makes_no_new_series() {
    let samples = [(1000.0, 500.0), (1001.0, 501.0), (1061.0, 520.0)];
    let mut window = Window::new(1000.0, None);
    for now in [1001.0, 1005.0, 1030.0, 1060.0] {
        assert_eq!(poll(&mut window, &samples, now, Some(1.0)).now.total, 1);
    }
    assert_eq!(poll(&mut window, &samples, 1062.0, Some(1.0)).now.total, 20);
}

#[test]
fn nothing_of_a_missing_counter_is_seen() {
    let mut window = Window::new(1000.0, None);
    let counted = poll(&mut window, &[], 1010.0, None);
    assert_eq!((counted.now.seen, counted.now.total), (false, 0));
    assert!(poll(&mut window, &[(1011.0, 3.0)], 1012.0, None).now.seen);
}

#[test]
fn bounds_must_stay() {
    let bucket = |le: &str, at: f64| Series {
        labels: BTreeMap::from([("le".to_owned(), le.to_owned())]),
        samples: vec![(at, 1.0)],
    };
    let mut window = Window::new(1000.0, None);
    let first = Fetched::Buckets(vec![bucket("0.5", 1001.0), bucket("+Inf", 1001.0)]);
    assert_eq!(window.advance(first, 1010.0).unwrap().settled.at_most, [1]);
    let second = Fetched::Buckets(vec![bucket("0.7", 1011.0), bucket("+Inf", 1011.0)]);
    assert_eq!(window.advance(second, 1020.0).unwrap_err().0, Reason::InvalidData);
}

#[test]
fn a_fraction_is_no_counter_and_moves_nothing() {
    let mut window = Window::new(1000.0, None);
    let before = window.clone();
    let wrong = Fetched::Rate { bad: Vec::new(), total: vec![series(&[(1001.0, 0.5)])] };
    assert_eq!(window.advance(wrong, 1010.0).unwrap_err().0, Reason::InvalidData);
    assert_eq!(window, before);
}

#[test]
fn the_interval_is_the_smallest_gap() {
    assert_eq!(rate(&[(1.0, 0.0), (16.0, 0.0), (31.0, 0.0)], 0.0, 40.0).interval(), Some(15.0));
    assert_eq!(rate(&[(1.0, 0.0)], 0.0, 40.0).interval(), None);
    let window = Window::new(1000.0, None);
    assert_eq!(window.reach(1010.0, None), 310);
    assert_eq!(window.reach(1010.0, Some(15.0)), 130);
    assert_eq!(window.reach(1010.0, Some(0.1)), 20);
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
        let mut window = Window::new(1000.0, None);
        let mut now = 1000.0;
        for (pause, restart) in polls {
            now += f64::from(pause) / 1000.0;
            let counted = poll(&mut window, &samples, now, Some(1.0));
            prop_assert_eq!(Tally::Count(counted.now.total), tally(&[series(&samples)], 1000.0, now));
            let through = unix(counted.through);
            prop_assert_eq!(Tally::Count(counted.settled.total), tally(&[series(&samples)], 1000.0, through));
            if restart {
                window = Window::new(1000.0, Some(&evidence(&counted)));
            }
        }
    }
}
