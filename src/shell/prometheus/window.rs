//! Exact counts of one color over a growing span of time, from polls that overlap. Pure.
//!
//! Each series is counted from its own last sample on, so that one that arrives late, or was not scraped for a while, is
//! neither lost nor taken for a new one. What was counted up to `through`, a few seconds before now, is settled: it goes on
//! record, and after a restart counting goes on from there.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::client::Trouble;
use crate::api::Evidence;
use crate::api::reasons::{Reason, Span};
use crate::engine::count::{BucketProblem, MOST_BUCKETS, Series, Tally, buckets, tally};
use crate::engine::observed::{Counted, Counts};
use crate::shell::clock::{from_unix, unix};

/// Samples may arrive so many seconds late.
const LATE: f64 = 3.0;
/// Seconds to look back while the scrape interval is unknown, and at most.
pub const LOOK_BACK: f64 = 300.0;
/// A gap is read back in pieces of so many seconds: a source refuses, or chokes on, days of raw samples.
const PIECE: f64 = 120.0;
/// A series that has had no sample for so many seconds is forgotten.
const FORGET: f64 = 3600.0;
/// Seconds between two counts that are kept to tell what is recent.
const STEP: f64 = 5.0;
/// What is recent, in seconds.
const RECENT: [(Span, f64); 2] = [(Span::LastFiveMinutes, 300.0), (Span::LastMinute, 60.0)];

/// The groups of series of one color.
const BAD: &str = "bad";
const TOTAL: &str = "total";
const BUCKET: &str = "bucket";

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
            Fetched::Rate { bad, total } => vec![(BAD, bad), (TOTAL, total)],
            Fetched::Buckets(all) => vec![(BUCKET, all)],
        }
    }

    fn all(&self) -> &[Series] {
        match self {
            Fetched::Rate { total, .. } => total,
            Fetched::Buckets(all) => all,
        }
    }

    /// The usual time between two samples of a series, the median: the scrape interval.
    pub fn interval(&self) -> Option<f64> {
        let pairs = self.all().iter().flat_map(|one| one.samples.iter().zip(one.samples.iter().skip(1)));
        let gaps = pairs.map(|(earlier, later)| later.0 - earlier.0);
        let mut gaps: Vec<f64> = gaps.filter(|gap| *gap > 0.0 && *gap <= FORGET).collect();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() / 2).copied()
    }

    /// The time of the last sample of each series.
    pub fn last(&self) -> impl Iterator<Item = f64> {
        self.all().iter().filter_map(|one| one.samples.last()).map(|sample| sample.0)
    }
}

/// A series by its group and its labels.
type Name = (&'static str, BTreeMap<String, String>);

/// What is known of one color.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// What came up to here is counted, or was never to be.
    start: f64,
    /// What came up to here is settled, but for what arrives late.
    through: f64,
    settled: Counts,
    warm_until: f64,
    warmup: Counts,
    /// The last settled sample of each series.
    last: BTreeMap<Name, (f64, f64)>,
    /// Counts at earlier times, oldest first.
    past: VecDeque<(f64, Counts)>,
    newest: f64,
    interval: Option<f64>,
    primed: bool,
}

impl Window {
    /// Counts from `since` on, of which what comes until `warm_until` is warm-up; or goes on from `evidence`, which is on
    /// record.
    pub fn new(since: f64, warm_until: f64, evidence: Option<&Evidence>) -> Self {
        let resumed = evidence.filter(|evidence| unix(evidence.through.0) >= since.floor());
        let (through, (settled, warmup)) =
            resumed.map_or_else(|| (since, Default::default()), |past| (unix(past.through.0), Counts::on_record(past)));
        Self {
            past: [(through, settled.clone())].into(),
            start: through,
            through,
            settled,
            warm_until,
            warmup,
            last: BTreeMap::new(),
            newest: 0.0,
            interval: None,
            primed: false,
        }
    }

    /// Whether it has been told of the series that were there before what is read first.
    pub fn is_primed(&self) -> bool {
        self.primed
    }

    /// Takes in the last values that series had at `at`, before what is read first: a counter that was there before, and was
    /// not scraped for a while, was not born in the window. What no counter can have is not taken in: it would be found
    /// wrong at every look from then on, although it was said once.
    pub fn prime(&mut self, mut known: Fetched, at: f64) -> Result<(), Trouble> {
        let mut last = BTreeMap::new();
        for (group, all) in known.groups() {
            for one in all.drain(..) {
                let Some((_, value)) = one.samples.last() else { continue };
                if !value.is_finite() || *value < 0.0 {
                    return Err(no_counter(group));
                }
                last.insert((group, one.labels), (at, *value));
            }
        }
        self.last.extend(last);
        self.primed = true;
        Ok(())
    }

    /// How many seconds of samples to ask for at `now`.
    pub fn reach(&self, now: f64) -> u64 {
        ((now - self.through).max(0.0) + self.back()).ceil() as u64
    }

    fn back(&self) -> f64 {
        self.interval.map_or(LOOK_BACK, |interval| (8.0 * interval).clamp(30.0, LOOK_BACK))
    }

    /// The end of the next piece to read, as long as there is so much to read back before `now` that it is read in pieces.
    pub fn piece(&self, now: f64) -> Option<f64> {
        let end = (self.through + PIECE).ceil();
        (end + PIECE < now).then_some(end)
    }

    /// Time between two samples, if it is known.
    pub fn interval(&self) -> Option<f64> {
        self.interval
    }

    /// Takes over what was found of the time between two samples.
    pub fn learn(&mut self, interval: Option<f64>) {
        self.interval = interval.or(self.interval);
    }

    /// Time of the newest sample so far.
    pub fn newest(&self) -> f64 {
        self.newest
    }

    /// Takes in what was fetched at `now`.
    pub fn advance(&mut self, mut fetched: Fetched, now: f64) -> Result<Counted, Trouble> {
        self.learn(fetched.interval());
        self.newest = fetched.last().filter(|at| *at <= now).fold(self.newest, f64::max);
        self.recall(&mut fetched);
        let counted_now = self.settled.and(&count(&fetched, self.start, now)?);
        let warmup_now = self.warm(&fetched, now)?;
        // whole seconds: the API keeps no more, and the counts must be those up to the instant that is stored
        let next = (now - LATE).floor();
        if next > self.through {
            let settled = self.settled.and(&count(&fetched, self.start, next)?);
            self.warmup = self.warm(&fetched, next)?;
            self.settled = settled;
            self.remember(&mut fetched, next);
            self.through = next;
        }
        let recent = self.recent(&counted_now, now);
        Ok(Counted {
            now: counted_now,
            warmup: warmup_now,
            settled: self.settled.clone(),
            warmup_settled: self.warmup.clone(),
            through: from_unix(self.through),
            recent,
            newest: (self.newest > 0.0).then(|| from_unix(self.newest)),
            interval: self.interval.and_then(|interval| Duration::try_from_secs_f64(interval).ok()),
        })
    }

    /// What came in the warm-up, up to `now`.
    fn warm(&self, fetched: &Fetched, now: f64) -> Result<Counts, Trouble> {
        if self.warm_until <= self.start {
            return Ok(self.warmup.clone());
        }
        Ok(self.warmup.and(&count(fetched, self.start, self.warm_until.min(now))?))
    }

    /// What came lately, and keeps `counts` to tell it later.
    fn recent(&mut self, counts: &Counts, now: f64) -> Vec<(Span, Counts)> {
        let before = |seconds: f64| self.past.iter().rev().find(|(at, _)| *at <= now - seconds);
        let recent = RECENT.iter().filter_map(|(span, seconds)| {
            let (_, then) = before(*seconds)?;
            // before it there was nothing: that is all of it
            (then.total > 0).then(|| (*span, counts.since(then)))
        });
        let recent = recent.collect();
        if self.past.back().is_none_or(|(at, _)| now - at >= STEP) {
            self.past.push_back((now, counts.clone()));
        }
        let longest = RECENT.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        while self.past.get(1).is_some_and(|(at, _)| *at <= now - longest) {
            self.past.pop_front();
        }
        recent
    }

    /// Tells each series what of it is settled, and puts that sample before its first one.
    fn recall(&self, fetched: &mut Fetched) {
        for (group, all) in fetched.groups() {
            for one in all.iter_mut() {
                let Some(&(at, value)) = self.last.get(&(group, one.labels.clone())) else { continue };
                one.after = at;
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

/// What is wrong with a group of series that does not count.
fn no_counter(group: &str) -> Trouble {
    let what = match group {
        BUCKET => "the histogram's buckets are not counters".to_owned(),
        _ => format!("the samples of `{group}` are not those of a counter"),
    };
    let hint = "is it a gauge? Select a counter, which only rises and counts requests one by one";
    Trouble(Reason::NotACounter, format!("{what}: {hint}"))
}

fn count(fetched: &Fetched, from: f64, to: f64) -> Result<Counts, Trouble> {
    let invalid = |text: &str| Trouble(Reason::InvalidData, text.to_owned());
    let seen = !fetched.all().is_empty();
    match fetched {
        Fetched::Rate { bad, total } => match (tally(bad, from, to), tally(total, from, to)) {
            (Tally::Count(bad), Tally::Count(total)) => Ok(Counts { total, bad, seen, ..Counts::default() }),
            (Tally::NotACounter, _) => Err(no_counter(BAD)),
            (_, Tally::NotACounter) => Err(no_counter(TOTAL)),
        },
        Fetched::Buckets(all) => {
            let counted = buckets(all, from, to).map_err(|problem| match problem {
                BucketProblem::NoBound => {
                    invalid("a series of the histogram has no label le: select its _bucket series")
                }
                BucketProblem::NoInfinity => invalid("the histogram has no bucket +Inf: select all of its buckets"),
                BucketProblem::TooMany(count) => invalid(&format!(
                    "the histogram has {count} bucket bounds, and {MOST_BUCKETS} are the most that are kept: select fewer by the label le"
                )),
                BucketProblem::NotACounter => no_counter(BUCKET),
                BucketProblem::NotCumulative => {
                    invalid("a larger bucket of the histogram counts less than a smaller one")
                }
            })?;
            Ok(Counts { total: counted.total, bad: 0, bounds: counted.bounds, at_most: counted.at_most, seen })
        }
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
