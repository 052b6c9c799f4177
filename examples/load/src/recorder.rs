//! Keeps what happened, and answers questions about it while the run goes on.
//!
//! Every request that ends becomes one small entry, in the order of their ends; counts are kept
//! beside them, so that a snapshot is cheap. The limits of the configuration bound the memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::outcome::{Failure, FailureKind, Finished, Flow, Pair, Verdict};
use crate::report::{Bucket, BucketPair, ErrorSample, Latencies, Latency, Moment, PairCount, PairReport, Report};

const MAX_SAMPLES: usize = 20;

/// One request that ended; times are since the start of the run.
#[derive(Debug, Clone, Copy)]
struct Entry {
    flow: Flow,
    sent: Duration,
    first_token: Option<Duration>,
    ended: Duration,
    /// The index of the pair; a failure has none.
    pair: Option<usize>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Injected,
    Mismatched,
    Failed,
}

/// The counts of one pair.
#[derive(Debug)]
struct PairState {
    pair: Pair,
    answers: u64,
    streamed: u64,
    injected: u64,
    mismatched: u64,
    first: Duration,
    last: Duration,
    last_sent: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    expected: Vec<Pair>,
    pairs: Vec<PairState>,
    entries: Vec<Entry>,
    sent: u64,
    opened: u64,
    reconnects: u64,
    whole: u64,
    flows: BTreeMap<Flow, u64>,
    failures: BTreeMap<FailureKind, u64>,
    samples: Vec<ErrorSample>,
    injected: u64,
    injected_span: Option<(Duration, Duration)>,
}

/// Shared by all workers.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    wall: SystemTime,
    inner: Mutex<Inner>,
}

impl Recorder {
    /// Starts the clock.
    pub fn new(expected: Vec<Pair>) -> Self {
        let inner = Mutex::new(Inner { expected, ..Inner::default() });
        Self { began: Instant::now(), wall: wall_clock(), inner }
    }

    pub fn expect(&self, pair: Pair) {
        self.inner().expected.push(pair);
    }

    pub fn sent(&self) {
        self.inner().sent += 1;
    }

    pub fn opened(&self) {
        self.inner().opened += 1;
    }

    pub fn reconnected(&self) {
        self.inner().reconnects += 1;
    }

    /// Takes down how a request ended. The time of its end is now, so that entries are in order.
    pub fn finish(&self, finished: Finished) {
        let mut inner = self.inner();
        let ended = self.began.elapsed();
        inner.finish(finished, self.began, ended);
    }

    pub fn report(&self) -> Report {
        let (report, latencies) = {
            let inner = self.inner();
            (self.counts(&inner), inner.latencies())
        };
        let [plain, first_token, stream] = latencies.map(Latency::of);
        Report { latency: Latencies { plain, first_token, stream }, ..report }
    }

    /// The answers that ended at or after an instant, by pair.
    pub fn answers_since(&self, at: Instant) -> Vec<PairCount> {
        let inner = self.inner();
        let since = at.saturating_duration_since(self.began);
        let from = inner.entries.partition_point(|entry| entry.ended < since);
        inner.count(inner.entries.iter().skip(from))
    }

    /// The answers to requests that were sent at or after an instant, by pair.
    pub fn sent_since(&self, at: Instant) -> Vec<PairCount> {
        let inner = self.inner();
        let since = at.saturating_duration_since(self.began);
        let from = inner.entries.partition_point(|entry| entry.ended < since);
        inner.count(inner.entries.iter().skip(from).filter(|entry| entry.sent >= since))
    }

    pub fn timeline(&self, width: Duration) -> Vec<Bucket> {
        self.inner().timeline(width.max(Duration::from_millis(1)))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, offset: Duration) -> Moment {
        Moment::new(self.began, self.wall, offset)
    }

    fn counts(&self, inner: &Inner) -> Report {
        let flow = |flow| inner.flows.get(&flow).copied().unwrap_or(0);
        let failures = |kind| inner.failures.get(&kind).copied().unwrap_or(0);
        Report {
            began: self.moment(Duration::ZERO),
            elapsed_ms: self.began.elapsed().as_millis() as u64,
            sent: inner.sent,
            total: inner.entries.len() as u64,
            whole: inner.whole,
            injected: inner.injected,
            failed: inner.failures.values().sum(),
            plain: flow(Flow::KeepAlive) + flow(Flow::Fresh),
            streamed: flow(Flow::Streamed),
            fresh: flow(Flow::Fresh),
            cut_streams: failures(FailureKind::CutStream),
            mismatched_pairs: failures(FailureKind::MismatchedPair),
            failures: inner.failures.clone(),
            first_errors: inner.samples.clone(),
            first_injected: inner.injected_span.map(|span| self.moment(span.0)),
            last_injected: inner.injected_span.map(|span| self.moment(span.1)),
            connections_opened: inner.opened,
            reconnects: inner.reconnects,
            by_pair: inner.pairs.iter().map(|state| self.pair_report(state)).collect(),
            latency: Latencies::default(),
        }
    }

    fn pair_report(&self, state: &PairState) -> PairReport {
        PairReport {
            pair: state.pair.clone(),
            answers: state.answers,
            streamed: state.streamed,
            injected: state.injected,
            mismatched: state.mismatched,
            first: self.moment(state.first),
            last: self.moment(state.last),
            last_sent: self.moment(state.last_sent),
        }
    }
}

impl Inner {
    fn finish(&mut self, finished: Finished, began: Instant, ended: Duration) {
        let Finished { flow, sent, first_token, verdict } = finished;
        let (pair, end, failure) = self.sort(verdict);
        let sent = sent.saturating_duration_since(began);
        let first_token = first_token.map(|at| at.saturating_duration_since(began));
        let pair = pair.map(|pair| self.index_of(pair, ended));
        let entry = Entry { flow, sent, first_token, ended, pair, end };
        self.entries.push(entry);
        *self.flows.entry(flow).or_insert(0) += 1;
        self.count_end(entry);
        if let Some(state) = pair.and_then(|index| self.pairs.get_mut(index)) {
            state.count(entry);
        }
        if let Some(failure) = failure {
            self.fail(flow, failure, ended);
        }
    }

    /// What a verdict means in the light of the pairs that are expected.
    fn sort(&self, verdict: Verdict) -> (Option<Pair>, End, Option<Failure>) {
        let (pair, end) = match verdict {
            Verdict::Failed(failure) => return (None, End::Failed, Some(failure)),
            Verdict::Whole(pair) => (Some(pair), End::Whole),
            Verdict::Injected(pair) => (pair, End::Injected),
        };
        match pair {
            Some(pair) if !self.expected.is_empty() && !self.expected.contains(&pair) => {
                let failure = Failure::new(FailureKind::MismatchedPair, format!("{pair} is not expected"));
                (Some(pair), End::Mismatched, Some(failure))
            }
            pair => (pair, end, None),
        }
    }

    fn index_of(&mut self, pair: Pair, now: Duration) -> usize {
        if let Some(index) = self.pairs.iter().position(|state| state.pair == pair) {
            return index;
        }
        self.pairs.push(PairState {
            pair,
            answers: 0,
            streamed: 0,
            injected: 0,
            mismatched: 0,
            first: now,
            last: now,
            last_sent: Duration::ZERO,
        });
        self.pairs.len() - 1
    }

    fn count_end(&mut self, entry: Entry) {
        match entry.end {
            End::Whole => self.whole += 1,
            End::Injected => {
                self.injected += 1;
                let first = self.injected_span.map_or(entry.ended, |span| span.0);
                self.injected_span = Some((first, entry.ended));
            }
            End::Mismatched | End::Failed => {}
        }
    }

    fn fail(&mut self, flow: Flow, failure: Failure, ended: Duration) {
        let Failure { kind, message } = failure;
        *self.failures.entry(kind).or_insert(0) += 1;
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(ErrorSample { offset_ms: ended.as_millis() as u64, flow, kind, message });
        }
    }

    /// The latencies of whole answers in microseconds: plain, to the first token, whole streams.
    fn latencies(&self) -> [Vec<u64>; 3] {
        let mut found = [const { Vec::new() }; 3];
        let [plain, first_token, stream] = &mut found;
        for entry in self.entries.iter().filter(|entry| entry.end == End::Whole) {
            let since_sent = |at: Duration| at.saturating_sub(entry.sent).as_micros() as u64;
            let whole = since_sent(entry.ended);
            if entry.flow == Flow::Streamed {
                first_token.extend(entry.first_token.map(since_sent));
                stream.push(whole);
            } else {
                plain.push(whole);
            }
        }
        found
    }

    fn count<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Vec<PairCount> {
        let mut counts = BTreeMap::<usize, (u64, u64)>::new();
        for entry in entries {
            let Some(pair) = entry.pair else { continue };
            let (answers, injected) = counts.entry(pair).or_default();
            *answers += u64::from(entry.end == End::Whole);
            *injected += u64::from(entry.end == End::Injected);
        }
        let named = counts.into_iter().filter_map(|(index, counts)| Some((self.pairs.get(index)?, counts)));
        named.map(|(state, (answers, injected))| PairCount { pair: state.pair.clone(), answers, injected }).collect()
    }

    fn timeline(&self, width: Duration) -> Vec<Bucket> {
        let slot = |at: Duration| at.as_micros() / width.as_micros();
        let mut buckets = BTreeMap::<u128, Bucket>::new();
        let empty =
            |slot: u128| Bucket { offset_ms: (slot * width.as_micros() / 1000) as u64, pairs: Vec::new(), failed: 0 };
        for entry in &self.entries {
            let (sent, ended) = (slot(entry.sent), slot(entry.ended));
            let bucket = buckets.entry(ended).or_insert_with(|| empty(ended));
            bucket.failed += u64::from(matches!(entry.end, End::Failed | End::Mismatched));
            let Some(state) = entry.pair.and_then(|index| self.pairs.get(index)) else { continue };
            let counts = in_bucket(bucket, &state.pair);
            counts.answers += u64::from(entry.end == End::Whole);
            counts.injected += u64::from(entry.end == End::Injected);
            in_bucket(buckets.entry(sent).or_insert_with(|| empty(sent)), &state.pair).sent += 1;
        }
        buckets.into_values().collect()
    }
}

impl PairState {
    fn count(&mut self, entry: Entry) {
        match entry.end {
            End::Whole => self.answers += 1,
            End::Injected => self.injected += 1,
            End::Mismatched => self.mismatched += 1,
            End::Failed => {}
        }
        self.streamed += u64::from(entry.end == End::Whole && entry.flow == Flow::Streamed);
        self.last = entry.ended;
        self.last_sent = self.last_sent.max(entry.sent);
    }
}

fn in_bucket<'a>(bucket: &'a mut Bucket, pair: &Pair) -> &'a mut BucketPair {
    let index = bucket.pairs.iter().position(|found| found.pair == *pair).unwrap_or_else(|| {
        bucket.pairs.push(BucketPair { pair: pair.clone(), sent: 0, answers: 0, injected: 0 });
        bucket.pairs.len() - 1
    });
    // The index is that of an element: it was found, or has just been pushed.
    #[expect(clippy::indexing_slicing, reason = "the element was found or has just been pushed")]
    &mut bucket.pairs[index]
}

#[expect(clippy::disallowed_methods, reason = "a load report is about real time; nothing is decided by it")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
