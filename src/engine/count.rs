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

/// Adds up what `series` counted after `from`, up to and including `to` (unix times in seconds).
///
/// The step from the last sample at or before `from` to the first after it counts, so the counts of two spans that meet
/// add up to that of both. A series without a sample at or before `from` was born inside and counts from zero: the
/// samples that are handed in must reach back far enough before `from`.
pub fn tally(series: &[Series], from: f64, to: f64) -> Tally {
    let mut sum = 0.0_f64;
    for one in series {
        let mut last = 0.0_f64;
        for &(at, value) in &one.samples {
            if !value.is_finite() || value < 0.0 {
                return Tally::NotACounter;
            }
            if at > to {
                break;
            }
            if at > from {
                sum += if value >= last { value - last } else { value };
            }
            last = value;
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
