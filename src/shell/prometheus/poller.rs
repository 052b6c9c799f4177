//! One gate that is being asked: which samples to fetch, and when. Judges nothing.

use std::time::Duration;

use futures::future;
use k8s_openapi::jiff::Timestamp;

use super::client::{Source, Sources, Trouble};
use super::window::{Fetched, LOOK_BACK, Window};
use crate::api::Color;
use crate::engine::observed::Answer;
use crate::engine::plan::{Ask, BadAndTotal, GateNeed, GateQuery};
use crate::shell::clock::unix;

/// The shortest time between two looks.
const FASTEST: f64 = 0.05;
/// The longest.
const SLOWEST: f64 = 60.0;
/// While nothing is known of the scrapes.
const UNKNOWN: f64 = 1.0;
/// After a failure, and between two values, which have no samples that we could see coming.
const EVERY: f64 = 5.0;
/// Looks without any two samples, until it is no longer news that there are none.
const PATIENT: u32 = 60;
/// A sample can be asked for a little after it was taken: so many of its intervals.
const ARRIVAL: f64 = 0.03;

/// One gate that is being asked.
pub struct Gate {
    pub key: String,
    pub query: GateQuery,
    candidate: Window,
    baseline: Window,
    /// When each series had its last sample.
    last: Vec<f64>,
    /// Whether its metrics were found to be what they must be.
    checked: bool,
    failures: u32,
    looks: u32,
}

/// What to fetch for one color.
#[derive(Clone, Copy)]
enum Side<'a> {
    Rate(&'a BadAndTotal),
    Buckets(&'a str),
}

impl Gate {
    /// Nothing asked yet; goes on from what `need` has on record.
    pub fn new(query: &GateQuery, need: &GateNeed) -> Self {
        let window = |color: Color| {
            let evidence = need.resume.iter().find(|one| one.gate == query.gate && one.color == color);
            Window::new(unix(query.since), unix(query.warm_until), evidence)
        };
        Self {
            key: need.key.clone(),
            query: query.clone(),
            candidate: window(query.candidate),
            baseline: window(query.candidate.other()),
            last: Vec::new(),
            checked: false,
            failures: 0,
            looks: 0,
        }
    }

    /// Time of the newest sample so far.
    pub fn newest(&self) -> f64 {
        self.candidate.newest().max(self.baseline.newest())
    }

    /// How long to wait: until just after the next sample can be there.
    pub fn pause(&self, now: Timestamp, failed: bool) -> Duration {
        let seconds = match (&self.query.ask, self.candidate.interval(), self.baseline.interval()) {
            _ if failed => UNKNOWN * f64::from(self.failures.min(5)),
            (Ask::Value { .. }, ..) => EVERY,
            (_, Some(interval), _) => until_next(&self.last, interval, unix(now)),
            // New Pods, whose first scrape nobody knows: at what pace is known from the other color.
            (_, None, Some(interval)) => interval / 4.0,
            // nothing is there to be counted
            (_, None, None) if self.looks > PATIENT => EVERY,
            (_, None, None) => UNKNOWN,
        };
        Duration::from_secs_f64(seconds.clamp(FASTEST, SLOWEST))
    }

    /// Gives the answer.
    pub async fn ask(&mut self, sources: &Sources, at: Timestamp) -> Result<Answer, Trouble> {
        let result = self.try_ask(sources, unix(at)).await;
        self.looks = self.looks.saturating_add(1);
        self.failures = if result.is_err() { self.failures.saturating_add(1) } else { 0 };
        result
    }

    async fn try_ask(&mut self, sources: &Sources, now: f64) -> Result<Answer, Trouble> {
        let source = sources.get(&self.query.source)?;
        let ask = self.query.ask.clone();
        let (side, other) = match &ask {
            Ask::Value { query } => {
                let window = format!("{}s", ((now - unix(self.query.since)) as i64).max(1));
                return source.value(&query.replace("{{window}}", &window)).await.map(Answer::Value);
            }
            Ask::ErrorRate { candidate, baseline } => (Side::Rate(candidate), baseline.as_ref().map(Side::Rate)),
            Ask::Histogram { candidate, baseline } => {
                (Side::Buckets(candidate), baseline.as_deref().map(Side::Buckets))
            }
        };
        self.check(&source).await?;
        let other = async {
            match other {
                Some(other) => other.fetch(&source, &mut self.baseline, now).await.map(Some),
                None => Ok(None),
            }
        };
        let (fetched, other) = future::join(side.fetch(&source, &mut self.candidate, now), other).await;
        let fetched = fetched?;
        let others = other.as_ref().ok().and_then(Option::as_ref);
        self.last = fetched.last().chain(others.into_iter().flat_map(Fetched::last)).collect();
        let candidate = self.candidate.advance(fetched, now)?;
        // What is wrong with the other color says nothing against the target's own limits.
        let baseline = match other {
            Ok(None) => None,
            Ok(Some(other)) => Some(self.baseline.advance(other, now)),
            Err(trouble) => Some(Err(trouble)),
        };
        let baseline = baseline.map(|counted| counted.map_err(|Trouble(reason, message)| (reason, message)));
        Ok(Answer::Counted { candidate, baseline })
    }

    /// Asks once what the metrics are: a gauge of whole numbers looks like a counter.
    async fn check(&mut self, source: &Source) -> Result<(), Trouble> {
        if self.checked {
            return Ok(());
        }
        let checks = self.query.metrics.iter().map(|metric| source.not_a_counter(metric));
        if let Some(trouble) = future::join_all(checks).await.into_iter().flatten().next() {
            return Err(trouble);
        }
        self.checked = true;
        Ok(())
    }
}

/// Seconds until just after the next sample of any of the series whose last ones are `last`, at `now`. One that is late is
/// waited for in small steps, one that is missing is not. Many Pods are scraped all the time: five looks per scrape are
/// enough.
fn until_next(last: &[f64], interval: f64, now: f64) -> f64 {
    let due = last.iter().map(|at| at + interval * (1.0 + ARRIVAL) - now).filter(|due| *due > -interval);
    match due.min_by(f64::total_cmp) {
        Some(late) if late <= 0.0 => interval / 16.0,
        Some(due) => due.max(interval / 5.0),
        None => interval / 2.0,
    }
}

impl Side<'_> {
    /// The selector of all requests.
    fn total(&self) -> &str {
        match self {
            Side::Rate(selectors) => &selectors.total,
            Side::Buckets(selector) => selector,
        }
    }

    /// The samples that `window` still needs at `now`. What is far behind is read, and counted, in pieces.
    async fn fetch(&self, source: &Source, window: &mut Window, now: f64) -> Result<Fetched, Trouble> {
        while let Some(end) = window.piece(now) {
            let fetched = self.read_as_far(source, window, end, Some(end)).await?;
            window.advance(fetched, end)?;
        }
        self.read_as_far(source, window, now, None).await
    }

    /// The samples up to `now`, from as far back as it takes to know every series.
    async fn read_as_far(
        &self,
        source: &Source,
        window: &mut Window,
        now: f64,
        end: Option<f64>,
    ) -> Result<Fetched, Trouble> {
        if !window.is_primed() {
            let start = now - window.reach(now) as f64;
            let before = source.before(self.total(), start).await?;
            let before = match self {
                Side::Rate(selectors) => {
                    Fetched::Rate { bad: source.before(&selectors.bad, start).await?, total: before }
                }
                Side::Buckets(_) => Fetched::Buckets(before),
            };
            window.prime(before, start)?;
        }
        match self.read(source, window.reach(now), end).await {
            Err(trouble) if trouble.is_too_large() && window.interval().is_none() => {
                // Looking back less is only safe when it is known how long a series may be without a sample.
                window.learn(source.interval(self.total(), LOOK_BACK).await?);
                self.read(source, window.reach(now), end).await
            }
            read => read,
        }
    }

    async fn read(&self, source: &Source, seconds: u64, end: Option<f64>) -> Result<Fetched, Trouble> {
        match self {
            Side::Rate(selectors) => {
                // One after the other: a scrape that comes in between adds to the total only, and nothing is bad that is
                // not counted.
                let bad = source.samples(&selectors.bad, seconds, end).await?;
                let total = source.samples(&selectors.total, seconds, end).await?;
                Ok(Fetched::Rate { bad, total })
            }
            Side::Buckets(selector) => source.samples(selector, seconds, end).await.map(Fetched::Buckets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_is_just_after_the_next_sample_can_be_there() {
        let near = |left: f64, right: f64| (left - right).abs() < 1e-9;
        assert!(near(until_next(&[100.0, 97.0], 15.0, 103.0), 9.45));
        // late: soon again
        assert!(near(until_next(&[88.0], 15.0, 103.5), 0.9375));
        // gone for more than a scrape: nothing to wait for
        assert!(near(until_next(&[60.0], 15.0, 103.0), 7.5));
        assert!(near(until_next(&[60.0, 100.0], 15.0, 103.0), 12.45));
        // one of many is always just about to be scraped
        let many: Vec<f64> = (0..50).map(|pod| 88.5 + f64::from(pod) * 0.3).collect();
        assert!(near(until_next(&many, 15.0, 103.4), 3.0));
    }
}
