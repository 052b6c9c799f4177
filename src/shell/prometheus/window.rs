//! Exact counts of one color over a growing span of time, from polls that overlap. Pure.
//!
//! Counts up to `through` are settled and kept as numbers; at each poll the samples after `through` are counted afresh,
//! and then `through` moves on to a few seconds before now, when all samples up to there have arrived. The last sample
//! of each series up to `through` is remembered, so that a series that was not scraped for longer than we look back is
//! not taken for a new one.

use std::collections::BTreeMap;

use super::client::Trouble;
use crate::api::Evidence;
use crate::api::reasons::Reason;
use crate::engine::count::{BucketProblem, Series, Tally, buckets, tally};
use crate::engine::observed::{Counted, Counts};
use crate::shell::clock::{from_unix, unix};

/// Samples may arrive so many seconds late.
const LATE: f64 = 3.0;
/// Seconds to look back while the scrape interval is unknown, and at most.
const LOOK_BACK: f64 = 300.0;
/// A series that has had no sample for so many seconds is forgotten.
const FORGET: f64 = 3600.0;

/// The samples of one color.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched {
    /// Counters of bad and of all requests.
    Rate {
        /// Bad ones.
        bad: Vec<Series>,
        /// All of them.
        total: Vec<Series>,
    },
    /// Buckets of a histogram.
    Buckets(Vec<Series>),
}

impl Fetched {
    fn groups(&mut self) -> Vec<(&'static str, &mut Vec<Series>)> {
        match self {
            Fetched::Rate { bad, total } => vec![("bad", bad), ("total", total)],
            Fetched::Buckets(all) => vec![("bucket", all)],
        }
    }

    fn all(&self) -> &[Series] {
        match self {
            Fetched::Rate { total, .. } => total,
            Fetched::Buckets(all) => all,
        }
    }

    /// The smallest time between two samples of a series: the scrape interval.
    pub fn interval(&self) -> Option<f64> {
        let gaps = self.all().iter().flat_map(|one| one.samples.iter().zip(one.samples.iter().skip(1)));
        gaps.map(|(earlier, later)| later.0 - earlier.0).filter(|gap| *gap > 0.0).min_by(f64::total_cmp)
    }

    /// The time of the newest sample.
    pub fn newest(&self) -> f64 {
        let last = self.all().iter().filter_map(|one| one.samples.last());
        last.map(|sample| sample.0).fold(0.0, f64::max)
    }
}

/// A series by its group and its labels.
type Name = (&'static str, BTreeMap<String, String>);

/// What is known of one color.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    through: f64,
    settled: Counts,
    last: BTreeMap<Name, (f64, f64)>,
}

impl Window {
    /// Counts from `since` on; or goes on from `evidence`, which is on record.
    pub fn new(since: f64, evidence: Option<&Evidence>) -> Self {
        let resumed = evidence.filter(|evidence| unix(evidence.through.0) >= since.floor());
        let (through, settled) = resumed.map_or((since, Counts::default()), |evidence| {
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            let settled = Counts {
                total: count(evidence.total),
                bad: count(evidence.bad),
                bounds: evidence.bounds.clone(),
                at_most: evidence.counts.iter().map(|number| count(*number)).collect(),
                seen: evidence.total > 0,
            };
            (unix(evidence.through.0), settled)
        });
        Self { through, settled, last: BTreeMap::new() }
    }

    /// How many seconds of samples to ask for at `now`.
    pub fn reach(&self, now: f64, interval: Option<f64>) -> u64 {
        let back = interval.map_or(LOOK_BACK, |interval| (8.0 * interval).clamp(10.0, LOOK_BACK));
        ((now - self.through).max(0.0) + back).ceil() as u64
    }

    /// Takes in what was fetched at `now`.
    pub fn advance(&mut self, mut fetched: Fetched, now: f64) -> Result<Counted, Trouble> {
        self.recall(&mut fetched);
        let fresh = count(&fetched, self.through, now)?;
        let counted_now = add(&self.settled, &fresh)?;
        // whole seconds: the API keeps no more, and the counts must be those up to the instant that is stored
        let next = (now - LATE).floor();
        if next > self.through {
            self.settled = add(&self.settled, &count(&fetched, self.through, next)?)?;
            self.remember(&mut fetched, next);
            self.through = next;
        }
        Ok(Counted { now: counted_now, settled: self.settled.clone(), through: from_unix(self.through) })
    }

    /// Puts the last sample that is known of a series before its first one, if that is a later one.
    fn recall(&self, fetched: &mut Fetched) {
        for (group, all) in fetched.groups() {
            for one in all.iter_mut() {
                let Some(&(at, value)) = self.last.get(&(group, one.labels.clone())) else { continue };
                if one.samples.first().is_some_and(|first| first.0 > at) {
                    one.samples.insert(0, (at, value));
                }
            }
        }
    }

    fn remember(&mut self, fetched: &mut Fetched, through: f64) {
        for (group, all) in fetched.groups() {
            for one in all.iter_mut() {
                let last = one.samples.iter().rev().find(|sample| sample.0 <= through).copied();
                if let Some(last) = last {
                    self.last.insert((group, std::mem::take(&mut one.labels)), last);
                }
            }
        }
        self.last.retain(|_, (at, _)| *at > through - FORGET);
    }
}

fn count(fetched: &Fetched, from: f64, to: f64) -> Result<Counts, Trouble> {
    let invalid = |text: &str| Trouble(Reason::InvalidData, text.to_owned());
    let seen = !fetched.all().is_empty();
    match fetched {
        Fetched::Rate { bad, total } => match (tally(bad, from, to), tally(total, from, to)) {
            (Tally::Count(bad), Tally::Count(total)) => Ok(Counts { total, bad, seen, ..Counts::default() }),
            (Tally::NotACounter, _) => Err(invalid("the bad requests are no whole-numbered counter")),
            (_, Tally::NotACounter) => Err(invalid("the requests are no whole-numbered counter")),
        },
        Fetched::Buckets(all) => {
            let counted = buckets(all, from, to).map_err(|problem| {
                invalid(match problem {
                    BucketProblem::NoBound => "a series of the histogram has no label le",
                    BucketProblem::NoInfinity => "the histogram has no bucket +Inf",
                    BucketProblem::NotACounter => "the histogram's buckets are no whole-numbered counters",
                    BucketProblem::NotCumulative => "a larger bucket of the histogram counts less than a smaller one",
                })
            })?;
            Ok(Counts { total: counted.total, bad: 0, bounds: counted.bounds, at_most: counted.at_most, seen })
        }
    }
}

fn add(one: &Counts, other: &Counts) -> Result<Counts, Trouble> {
    let seen = one.seen || other.seen;
    let (bounds, at_most) = match (one.bounds.as_slice(), other.bounds.as_slice()) {
        (_, []) => (one.bounds.clone(), one.at_most.clone()),
        ([], _) => (other.bounds.clone(), other.at_most.clone()),
        (known, new) if known == new => {
            (one.bounds.clone(), one.at_most.iter().zip(&other.at_most).map(|(a, b)| a + b).collect())
        }
        _ => return Err(Trouble(Reason::InvalidData, "the histogram's bucket bounds changed in mid-stage".to_owned())),
    };
    Ok(Counts { total: one.total + other.total, bad: one.bad + other.bad, bounds, at_most, seen })
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
