//! Counting: from the raw samples of counters to whole numbers of requests.
//!
//! Prometheus' `increase()` extrapolates to the edges of its window and misses the first burst of a new series. We take
//! the samples themselves, per series, and add up the steps between them; a fall is a reset.

use std::collections::BTreeMap;

/// The samples of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels; of these only `le` is read here.
    pub labels: BTreeMap<String, String>,
    /// `(unix time in seconds, value)`, in rising order of time.
    pub samples: Vec<(f64, f64)>,
    /// What came up to this instant is counted already.
    pub after: f64,
}

impl Series {
    /// A series of which nothing is counted yet.
    pub fn new(labels: BTreeMap<String, String>, samples: Vec<(f64, f64)>) -> Self {
        Self { labels, samples, after: f64::NEG_INFINITY }
    }
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
pub fn tally<'a>(series: impl IntoIterator<Item = &'a Series>, from: f64, to: f64) -> Tally {
    let mut sum = 0.0_f64;
    for one in series {
        let from = from.max(one.after);
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
    /// More than [`MOST_BUCKETS`] of them.
    TooMany(usize),
    /// The samples are not those of a counter.
    NotACounter,
    /// A larger bucket counted less than a smaller one.
    NotCumulative,
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

/// The most bounds that a histogram may have: all of them are kept in status.
pub const MOST_BUCKETS: usize = 64;

/// Adds up the buckets of all `series` between `from` and `to`, like [`tally`]. Only bounds that all histograms among them
/// have are counted: with others what is missing in one would count as slow.
pub fn buckets(series: &[Series], from: f64, to: f64) -> Result<Buckets, BucketProblem> {
    // one for each set of labels but `le`
    let mut histograms: BTreeMap<Labels<'_>, Vec<(f64, &Series)>> = BTreeMap::new();
    for one in series {
        let bound = one.labels.get("le").and_then(|le| bound(le)).ok_or(BucketProblem::NoBound)?;
        let others = one.labels.iter().filter(|(name, _)| *name != "le");
        let key = others.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        histograms.entry(key).or_default().push((bound, one));
    }
    let Some(first) = histograms.values().next() else { return Ok(Buckets::default()) };
    let is = |one: f64, other: f64| one.total_cmp(&other).is_eq();
    let mut bounds: Vec<f64> = first.iter().map(|(bound, _)| *bound).collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds.retain(|bound| histograms.values().all(|one| one.iter().any(|(other, _)| is(*other, *bound))));
    if bounds.last().is_none_or(|last| last.is_finite()) {
        return Err(BucketProblem::NoInfinity);
    }
    if bounds.len() > MOST_BUCKETS + 1 {
        return Err(BucketProblem::TooMany(bounds.len() - 1));
    }
    let mut out = Buckets::default();
    let mut before = 0;
    for bound in bounds {
        let group = histograms.values().flatten().filter(|(other, _)| is(*other, bound)).map(|(_, series)| *series);
        let Tally::Count(count) = tally(group, from, to) else { return Err(BucketProblem::NotACounter) };
        if count < before {
            return Err(BucketProblem::NotCumulative);
        }
        before = count;
        if bound.is_infinite() {
            out.total = count;
        } else {
            out.bounds.push(bound);
            out.at_most.push(count);
        }
    }
    Ok(out)
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

/// The finest bounds that native histograms are read by: so many per power of two.
const PER_OCTAVE: f64 = 4.0;
/// The powers of two between which native histograms are read: 8 ms to 256 s.
const OCTAVES: (f64, f64) = (-7.0, 8.0);

/// Native histograms as classic ones, with four bounds per power of two from 8 ms to 256 s, or with fewer if any of them is
/// coarser: its bounds are powers of two with exponents that are multiples of the width of its buckets. So no bound lies
/// inside of a bucket, and what is counted stays exact.
pub fn native(histograms: &[(BTreeMap<String, String>, Vec<NativeSample>)]) -> Vec<Series> {
    let buckets = histograms.iter().flat_map(|(_, samples)| samples).flat_map(|sample| &sample.buckets);
    let widths = buckets.filter(|(lower, ..)| *lower > 0.0).map(|(lower, upper, _)| (upper / lower).log2());
    let coarsest = widths.filter(|width| width.is_finite()).fold(1.0 / PER_OCTAVE, f64::max).min(16.0);
    // the widths are whole powers of two: 1/4, 1/2, 1, 2, …
    let step = coarsest.log2().round().exp2();
    let (first, last) = ((OCTAVES.0 / step).ceil() as i32, (OCTAVES.1 / step).floor() as i32);
    let bounds: Vec<f64> = (first..=last).map(|number| (f64::from(number) * step).exp2()).collect();
    histograms.iter().flat_map(|(labels, samples)| classic(labels, samples, &bounds)).collect()
}

fn classic(labels: &BTreeMap<String, String>, samples: &[NativeSample], bounds: &[f64]) -> Vec<Series> {
    let series = |le: String, count: &dyn Fn(&NativeSample) -> f64| {
        let mut labels = labels.clone();
        labels.insert("le".to_owned(), le);
        Series::new(labels, samples.iter().map(|sample| (sample.at, count(sample))).collect())
    };
    let below = |bound: f64| {
        let within = move |sample: &NativeSample| {
            let below = sample.buckets.iter().filter(|(_, upper, _)| *upper <= bound * (1.0 + 1e-9));
            below.map(|(_, _, count)| count).sum()
        };
        series(bound.to_string(), &within)
    };
    bounds.iter().map(|bound| below(*bound)).chain([series("+Inf".to_owned(), &|sample| sample.count)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(f64, f64)]) -> Series {
        Series::new(BTreeMap::new(), samples.to_vec())
    }

    fn bucket(pod: &str, le: &str, samples: &[(f64, f64)]) -> Series {
        let labels = [("le", le), ("pod", pod)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        Series { labels: labels.into(), ..series(samples) }
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
        // five times it goes on from what was saved a little earlier: seldom enough for a counter
        let mut saved = Vec::new();
        for from in 1..=6 {
            saved.extend((0..5).map(|step| f64::from(40 + 10 * from + 10 * step)));
        }
        let saved: Vec<_> = saved.into_iter().enumerate().map(|(at, value)| (at as f64, value)).collect();
        let rises = 50 + 6 * 40;
        assert_eq!(tally(&[series(&saved)], -1.0, 30.0), Tally::Count(rises + 60 + 70 + 80 + 90 + 100));
        // to the half is a restart still, to more than that is a gauge
        let saw = |low: f64| {
            let values = (0..10).map(|at| (f64::from(at), if at % 2 == 0 { 10.0 } else { low }));
            tally(&[series(&values.collect::<Vec<_>>())], -1.0, 9.0)
        };
        assert_eq!((saw(5.0), saw(6.0)), (Tally::Count(10 + 9 * 5), Tally::NotACounter));
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
        let all = native(&[(BTreeMap::new(), vec![sample(1.0, [5.0, 3.0, 0.0]), sample(2.0, [9.0, 3.0, 2.0])])]);
        let counted = buckets(&all, 1.0, 2.0).unwrap();
        assert_eq!(counted.total, 6);
        let at =
            |bound: f64| counted.at_most[counted.bounds.iter().position(|one| (one - bound).abs() < 1e-9).unwrap()];
        assert_eq!((at(0.5), at(1.0), at(4.0), at(step(18))), (0, 4, 4, 6));
        // of two Pods one is coarser: neither has a bound inside of a bucket, whichever of them are in use
        let pod = |name: &str| BTreeMap::from([("pod".to_owned(), name.to_owned())]);
        let coarse = NativeSample { at: 1.0, count: 1.0, buckets: vec![(1.0, 2.0, 1.0)] };
        let all = native(&[(pod("a"), vec![coarse]), (pod("b"), vec![sample(1.0, [5.0, 3.0, 0.0])])]);
        let counted = buckets(&all, 0.0, 1.0).unwrap();
        let bounds = counted.bounds;
        assert_eq!(counted.total, 9);
        assert!(
            bounds.contains(&1.0) && bounds.contains(&2.0) && !bounds.iter().any(|b| *b > 1.0 && *b < 2.0),
            "{bounds:?}"
        );
        assert!(bounds.len() <= 64);
    }

    #[test]
    fn buckets_of_several_pods_add_up() {
        let all = [
            bucket("a", "0.5", &[(1.0, 0.0), (2.0, 3.0)]),
            bucket("a", "+Inf", &[(1.0, 0.0), (2.0, 4.0)]),
            bucket("b", "0.5", &[(2.0, 1.0)]),
            bucket("b", "+Inf", &[(2.0, 1.0)]),
        ];
        assert_eq!(buckets(&all, 1.0, 2.0), Ok(Buckets { bounds: vec![0.5], at_most: vec![4], total: 5 }));
    }

    #[test]
    fn only_bounds_that_all_have_are_counted() {
        let all = [
            bucket("a", "0.5", &[(1.0, 3.0)]),
            bucket("a", "1", &[(1.0, 4.0)]),
            bucket("a", "+Inf", &[(1.0, 4.0)]),
            bucket("b", "1", &[(1.0, 7.0)]),
            bucket("b", "+Inf", &[(1.0, 8.0)]),
        ];
        assert_eq!(buckets(&all, 0.0, 2.0), Ok(Buckets { bounds: vec![1.0], at_most: vec![11], total: 12 }));
        let many: Vec<Series> =
            (0..80).map(|le| bucket("a", &format!("{le}.5"), &[])).chain([bucket("a", "+Inf", &[])]).collect();
        assert_eq!(buckets(&many, 0.0, 2.0), Err(BucketProblem::TooMany(80)));
        let most = &many[many.len() - 1 - MOST_BUCKETS..];
        assert_eq!(buckets(most, 0.0, 2.0).map(|counted| counted.bounds.len()), Ok(MOST_BUCKETS));
    }

    #[test]
    fn buckets_that_make_no_sense_are_refused() {
        assert_eq!(buckets(&[series(&[(1.0, 1.0)])], 0.0, 2.0), Err(BucketProblem::NoBound));
        assert_eq!(buckets(&[bucket("a", "1", &[(1.0, 1.0)])], 0.0, 2.0), Err(BucketProblem::NoInfinity));
        let falling = [bucket("a", "1", &[(1.0, 5.0)]), bucket("a", "+Inf", &[(1.0, 4.0)])];
        assert_eq!(buckets(&falling, 0.0, 2.0), Err(BucketProblem::NotCumulative));
    }
}
