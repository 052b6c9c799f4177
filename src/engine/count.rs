//! Counting: from the raw samples of counters to whole numbers of requests.
//!
//! Prometheus' `increase()` extrapolates to the edges of its window and misses the first burst of a new series. We take
//! the samples themselves, per series, and add up the steps between them; a fall is a reset.

use std::collections::BTreeMap;

/// The samples of one series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its labels; of these only `le` is read here.
    pub labels: BTreeMap<String, String>,
    /// `(unix time in seconds, value)`, in rising order of time.
    pub samples: Vec<(f64, f64)>,
}

/// What the samples of counters say of one span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tally {
    /// That many events.
    Count(u64),
    /// The samples are not those of a counter: negative, fractional or not finite.
    NotACounter,
}

/// A counter that starts anew falls to about zero. A series that falls by less than half so often, and at every third
/// change, is a gauge.
const FALLS: u32 = 5;

/// Adds up what `series` counted after `from`, up to and including `to` (unix times in seconds).
///
/// The step from the last sample at or before `from` to the first after it counts, so the counts of two spans that meet
/// add up to that of both. A series without a sample at or before `from` was born inside and counts from zero: the
/// samples that are handed in must reach back far enough before `from`.
pub fn tally(series: &[Series], from: f64, to: f64) -> Tally {
    let mut sum = 0.0_f64;
    for one in series {
        let mut last = 0.0_f64;
        let (mut changes, mut falls) = (0, 0);
        for &(at, value) in &one.samples {
            if !value.is_finite() || value < 0.0 {
                return Tally::NotACounter;
            }
            if at > to {
                break;
            }
            changes += u32::from(value.total_cmp(&last).is_ne());
            falls += u32::from(value < last && value > last / 2.0);
            if at > from {
                sum += if value >= last { value - last } else { value };
            }
            last = value;
        }
        if falls >= FALLS && falls * 3 >= changes {
            return Tally::NotACounter;
        }
    }
    if sum.fract() != 0.0 || sum >= 9_007_199_254_740_992.0 {
        return Tally::NotACounter;
    }
    Tally::Count(sum as u64)
}

/// What the buckets of a classic histogram counted in one span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// Upper bounds in seconds, rising, without `+Inf`.
    pub bounds: Vec<f64>,
    /// Observations up to the bound of the same place.
    pub at_most: Vec<u64>,
    /// All observations.
    pub total: u64,
}

/// Why buckets could not be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketProblem {
    /// A series has no readable label `le`.
    NoBound,
    /// No bucket `+Inf`.
    NoInfinity,
    /// The samples are not those of a counter.
    NotACounter,
    /// A larger bucket counted less than a smaller one.
    NotCumulative,
}

/// Adds up the buckets of all `series` between `from` and `to`, like [`tally`].
pub fn buckets(series: &[Series], from: f64, to: f64) -> Result<Buckets, BucketProblem> {
    let mut by_bound: Vec<(f64, Vec<Series>)> = Vec::new();
    for one in series {
        let bound = one.labels.get("le").and_then(|le| bound(le)).ok_or(BucketProblem::NoBound)?;
        match by_bound.iter_mut().find(|(other, _)| other.total_cmp(&bound).is_eq()) {
            Some((_, group)) => group.push(one.clone()),
            None => by_bound.push((bound, vec![one.clone()])),
        }
    }
    by_bound.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut out = Buckets::default();
    let mut complete = false;
    let mut before = 0;
    for (bound, group) in &by_bound {
        let Tally::Count(count) = tally(group, from, to) else { return Err(BucketProblem::NotACounter) };
        if count < before {
            return Err(BucketProblem::NotCumulative);
        }
        before = count;
        if bound.is_infinite() {
            out.total = count;
            complete = true;
        } else {
            out.bounds.push(*bound);
            out.at_most.push(count);
        }
    }
    if complete || by_bound.is_empty() { Ok(out) } else { Err(BucketProblem::NoInfinity) }
}

fn bound(le: &str) -> Option<f64> {
    if le == "+Inf" {
        return Some(f64::INFINITY);
    }
    le.parse().ok().filter(|bound: &f64| bound.is_finite())
}

/// A sample of a native histogram: the buckets that hold observations, as `(lower bound, upper bound, observations)`, not
/// cumulative, and the count of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeSample {
    /// Unix time in seconds.
    pub at: f64,
    /// All observations.
    pub count: f64,
    /// The buckets.
    pub buckets: Vec<(f64, f64, f64)>,
}

/// Bounds of native histograms at resolution (schema) 2 are powers of the fourth root of two.
const PER_OCTAVE: i32 = 4;
/// The powers of two between which native histograms are read: 8 ms to 256 s.
const OCTAVES: (i32, i32) = (-7, 8);

/// A native histogram as a classic one, with four bounds per octave from 8 ms to 256 s. Bounds that lie inside of one of its
/// buckets are left out: what is counted stays exact.
pub fn native(labels: &BTreeMap<String, String>, samples: &[NativeSample]) -> Vec<Series> {
    let bounds = (OCTAVES.0 * PER_OCTAVE..=OCTAVES.1 * PER_OCTAVE).map(|step| f64::from(step) / f64::from(PER_OCTAVE));
    let bounds = bounds.map(f64::exp2).filter(|bound| {
        let inside = |lower: f64, upper: f64| lower < bound * (1.0 - 1e-9) && upper > bound * (1.0 + 1e-9);
        !samples.iter().flat_map(|sample| &sample.buckets).any(|(lower, upper, _)| inside(*lower, *upper))
    });
    let series = |le: String, count: &dyn Fn(&NativeSample) -> f64| {
        let mut labels = labels.clone();
        labels.insert("le".to_owned(), le);
        Series { labels, samples: samples.iter().map(|sample| (sample.at, count(sample))).collect() }
    };
    let mut out: Vec<Series> = bounds
        .map(|bound| {
            let within = |sample: &NativeSample| {
                let below = sample.buckets.iter().filter(|(_, upper, _)| *upper <= bound * (1.0 + 1e-9));
                below.map(|(_, _, count)| count).sum()
            };
            series(bound.to_string(), &within)
        })
        .collect();
    out.push(series("+Inf".to_owned(), &|sample| sample.count));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(f64, f64)]) -> Series {
        Series { labels: BTreeMap::new(), samples: samples.to_vec() }
    }

    fn bucket(le: &str, samples: &[(f64, f64)]) -> Series {
        Series { labels: BTreeMap::from([("le".to_owned(), le.to_owned())]), ..series(samples) }
    }

    #[test]
    fn the_step_over_the_start_counts_once() {
        let one = [series(&[(1.0, 10.0), (2.0, 14.0), (3.0, 20.0)])];
        assert_eq!(tally(&one, 1.5, 3.0), Tally::Count(10));
        assert_eq!(tally(&one, 0.0, 1.5), Tally::Count(10));
        assert_eq!(tally(&one, 1.5, 2.0), Tally::Count(4));
        assert_eq!(tally(&one, 2.0, 3.0), Tally::Count(6));
    }

    #[test]
    fn a_series_born_inside_counts_from_zero() {
        assert_eq!(tally(&[series(&[(5.0, 7.0), (6.0, 9.0)])], 4.0, 10.0), Tally::Count(9));
    }

    #[test]
    fn a_reset_counts_what_came_after_it() {
        assert_eq!(tally(&[series(&[(1.0, 100.0), (2.0, 3.0), (3.0, 5.0)])], 1.0, 3.0), Tally::Count(5));
    }

    #[test]
    fn a_gauge_is_no_counter() {
        assert_eq!(tally(&[series(&[(1.0, 0.25), (2.0, 0.5)])], 0.0, 3.0), Tally::NotACounter);
        assert_eq!(tally(&[series(&[(1.0, -1.0)])], 0.0, 3.0), Tally::NotACounter);
        assert_eq!(tally(&[series(&[(1.0, f64::NAN)])], 0.0, 3.0), Tally::NotACounter);
    }

    #[test]
    fn an_integer_gauge_is_told_by_its_falls_and_a_restarted_counter_is_not_one() {
        let running: Vec<_> = [3.0, 2.0, 4.0, 3.0, 5.0, 4.0, 6.0, 5.0, 7.0, 6.0]
            .iter()
            .enumerate()
            .map(|(at, v)| (at as f64, *v))
            .collect();
        assert_eq!(tally(&[series(&running)], 0.0, 19.0), Tally::NotACounter);
        let restarts = [(0.0, 90.0), (1.0, 3.0), (2.0, 50.0), (3.0, 1.0), (4.0, 30.0), (5.0, 2.0), (6.0, 8.0)];
        assert_eq!(tally(&[series(&restarts)], 0.0, 9.0), Tally::Count(3 + 47 + 1 + 29 + 2 + 6));
    }

    #[test]
    fn a_native_histogram_is_counted_by_the_bounds_that_are_its_own() {
        let step = |steps: i32| f64::exp2(f64::from(steps) / 8.0);
        // resolution 3: eight buckets per octave
        let sample = |at, counts: [f64; 3]| NativeSample {
            at,
            count: counts.iter().sum(),
            buckets: vec![
                (step(-1), step(0), counts[0]),
                (step(0), step(1), counts[1]),
                (step(16), step(17), counts[2]),
            ],
        };
        let all = native(&BTreeMap::new(), &[sample(1.0, [5.0, 3.0, 0.0]), sample(2.0, [9.0, 3.0, 2.0])]);
        let counted = buckets(&all, 1.0, 2.0).unwrap();
        assert_eq!(counted.total, 6);
        let at =
            |bound: f64| counted.at_most[counted.bounds.iter().position(|one| (one - bound).abs() < 1e-9).unwrap()];
        assert_eq!((at(0.5), at(1.0), at(4.0), at(step(18))), (0, 4, 4, 6));
        // a coarse one has no bound inside of a bucket
        let coarse = NativeSample { at: 1.0, count: 1.0, buckets: vec![(1.0, 2.0, 1.0)] };
        let all = native(&BTreeMap::new(), &[coarse]);
        let bounds = buckets(&all, 0.0, 1.0).unwrap().bounds;
        assert!(
            bounds.contains(&1.0) && bounds.contains(&2.0) && !bounds.iter().any(|b| *b > 1.0 && *b < 2.0),
            "{bounds:?}"
        );
        assert!(bounds.len() <= 64);
    }

    #[test]
    fn buckets_of_several_pods_add_up() {
        let all = [
            bucket("0.5", &[(1.0, 0.0), (2.0, 3.0)]),
            bucket("+Inf", &[(1.0, 0.0), (2.0, 4.0)]),
            bucket("0.5", &[(2.0, 1.0)]),
            bucket("+Inf", &[(2.0, 1.0)]),
        ];
        assert_eq!(buckets(&all, 1.0, 2.0), Ok(Buckets { bounds: vec![0.5], at_most: vec![4], total: 5 }));
    }

    #[test]
    fn buckets_that_make_no_sense_are_refused() {
        assert_eq!(buckets(&[series(&[(1.0, 1.0)])], 0.0, 2.0), Err(BucketProblem::NoBound));
        assert_eq!(buckets(&[bucket("1", &[(1.0, 1.0)])], 0.0, 2.0), Err(BucketProblem::NoInfinity));
        let falling = [bucket("1", &[(1.0, 5.0)]), bucket("+Inf", &[(1.0, 4.0)])];
        assert_eq!(buckets(&falling, 0.0, 2.0), Err(BucketProblem::NotCumulative));
    }
}
