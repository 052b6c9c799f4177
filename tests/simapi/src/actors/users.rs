//! Users: people who ask, briefly or for an answer that is streamed for minutes, and who notice when they get none.

mod outcome;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

pub use self::outcome::{Counts, Finished, Kind, Outcome, Tally};
use super::ingress_controller::{IngressController, Request, Routed};
use super::random::Random;

/// The Pods' side of a request.
pub trait Servers {
    /// A request reaches `pod` at `now_ms`. None: the connection is refused, since nobody listens there.
    fn begin(&mut self, pod: &str, now_ms: u64) -> Option<Serving>;
    /// Until when that process of the Pod lives, or lived; `u64::MAX` if no end is known.
    fn alive_until(&self, pod: &str, incarnation: u64) -> u64;
}

/// What takes a request.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Which process of the Pod it is: the first, or that after so many restarts.
    pub incarnation: u64,
    /// Model and prompt, or whatever tells one version from another.
    pub version: Arc<str>,
    /// How it answers.
    pub behavior: Behavior,
}

/// How a model answers. What is wrong here is its own fault, and what gates are there to find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behavior {
    /// The share of requests that fail with `status`, 0 to 1.
    pub fails: f64,
    /// The status of those.
    pub status: u16,
    /// The share of answers that take `extra_ms` longer, 0 to 1.
    pub slow: f64,
    /// In milliseconds.
    pub extra_ms: u64,
    /// All times are multiplied by it.
    pub pace: f64,
}

impl Default for Behavior {
    fn default() -> Self {
        Self { fails: 0.0, status: 500, slow: 0.0, extra_ms: 0, pace: 1.0 }
    }
}

/// Who sends requests.
#[derive(Clone, Debug)]
pub struct Config {
    /// The host that all ask.
    pub host: String,
    /// The path.
    pub path: String,
    /// Plain requests per second.
    pub plain: f64,
    /// How long a plain answer takes, in milliseconds.
    pub plain_ms: (f64, f64),
    /// Streams begun per second.
    pub streams: f64,
    /// How long a stream takes, in milliseconds; as likely between 2 and 4 s as between 1 and 2 minutes.
    pub stream_ms: (f64, f64),
    /// Of the streams, the share that the user leaves before the end.
    pub abandoned: f64,
    /// Users that a header names.
    pub named: Vec<Named>,
}

/// One user who sends a header with every request.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name.
    pub header: String,
    /// Its value.
    pub value: String,
    /// Plain requests per second.
    pub rate: f64,
}

impl Default for Config {
    /// Ten plain requests and a stream every two seconds, to `support-bot.example`.
    fn default() -> Self {
        Self {
            host: "support-bot.example".to_owned(),
            path: "/v1/chat/completions".to_owned(),
            plain: 10.0,
            plain_ms: (50.0, 800.0),
            streams: 0.5,
            stream_ms: (2_000.0, 240_000.0),
            abandoned: 0.0,
            named: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Source {
    kind: Kind,
    rate: f64,
    next: u64,
}

/// The users.
#[derive(Debug)]
pub struct Users {
    config: Config,
    random: Random,
    sources: Vec<Source>,
    /// Ends to come: when, and where in `running`.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    running: Vec<Finished>,
    free: Vec<usize>,
    none: Arc<str>,
    /// What became of their requests.
    pub counts: Counts,
}

impl Users {
    /// Users who begin to ask at `start_ms`, at times drawn from `seed`.
    pub fn new(config: Config, seed: u64, start_ms: u64) -> Self {
        let mut random = Random::new(seed);
        let named = config.named.iter().enumerate().map(|(place, named)| (Kind::Named(place), named.rate));
        let kinds = [(Kind::Plain, config.plain), (Kind::Streamed, config.streams)].into_iter().chain(named);
        let sources = kinds.filter(|(_, rate)| *rate > 0.0).map(|(kind, rate)| {
            let next = start_ms + random.until_next(rate);
            Source { kind, rate, next }
        });
        let sources = sources.collect();
        Self {
            config,
            random,
            sources,
            ends: BinaryHeap::new(),
            running: Vec::new(),
            free: Vec::new(),
            none: "".into(),
            counts: Counts::default(),
        }
    }

    /// When the next request is sent or ends.
    pub fn wake(&self) -> u64 {
        let ends = self.ends.peek().map_or(u64::MAX, |end| end.0.0);
        self.sources.iter().map(|source| source.next).fold(ends, u64::min)
    }

    /// Nobody sends anything any more; what runs comes to its end.
    pub fn stop(&mut self) {
        self.sources.clear();
    }

    /// Requests without an end yet.
    pub fn running(&self) -> usize {
        self.ends.len()
    }

    /// All that happens up to `now_ms`, in order; tells `sink` of each request that ended.
    pub fn advance(
        &mut self,
        now_ms: u64,
        controller: &mut IngressController,
        world: &mut dyn Servers,
        sink: &mut dyn FnMut(&Finished),
    ) {
        loop {
            let at = self.wake();
            if at > now_ms {
                return;
            }
            if let Some(Reverse((end, place))) = self.ends.peek().copied().filter(|end| end.0.0 == at) {
                self.ends.pop();
                self.end(end, place, controller, world, sink);
            } else if let Some(source) = self.sources.iter_mut().find(|source| source.next == at) {
                let kind = source.kind;
                source.next = at + self.random.until_next(source.rate);
                self.send(kind, at, controller, world, sink);
            }
        }
    }

    fn send(
        &mut self,
        kind: Kind,
        now: u64,
        controller: &mut IngressController,
        world: &mut dyn Servers,
        sink: &mut dyn FnMut(&Finished),
    ) {
        self.counts.sent += 1;
        let named = if let Kind::Named(place) = kind { self.config.named.get(place) } else { None };
        let header = named.map_or(("", ""), |named| (&named.header, &named.value));
        let headers = std::slice::from_ref(&header);
        let headers = if named.is_some() { headers } else { &[] };
        let request = Request { host: &self.config.host, path: &self.config.path, headers, cookies: &[] };
        let routed = controller.route(&request, now);
        let none = || Arc::clone(&self.none);
        let mut finished = Finished {
            kind,
            outcome: Outcome::NotRouted,
            status: 502,
            why: "",
            started_ms: now,
            ended_ms: now,
            service: none(),
            pod: none(),
            incarnation: 0,
            version: none(),
        };
        let serving = match routed {
            Routed::Failed { status, why } => {
                (finished.status, finished.why) = (status, why);
                None
            }
            Routed::Pod { service, pod } => {
                (finished.outcome, finished.why) = (Outcome::Refused, "connection refused");
                let serving = world.begin(&pod, now);
                (finished.service, finished.pod) = (service, pod);
                serving
            }
        };
        let Some(Serving { incarnation, version, behavior }) = serving else {
            self.finish(&finished, sink);
            return;
        };
        (finished.incarnation, finished.version) = (incarnation, version);
        self.answer(&mut finished, behavior);
        let end = finished.ended_ms;
        let place = self.free.pop().unwrap_or(self.running.len());
        if place == self.running.len() {
            self.running.push(finished);
        } else {
            self.running[place] = finished;
        }
        self.ends.push(Reverse((end, place)));
    }

    /// How it will end, if nobody ends before it.
    fn answer(&mut self, finished: &mut Finished, behavior: Behavior) {
        let random = &mut self.random;
        let fails = random.chance(behavior.fails);
        let streamed = finished.kind == Kind::Streamed;
        // an error comes before the first token
        let (low, high) = if streamed && !fails { self.config.stream_ms } else { self.config.plain_ms };
        let mut milliseconds = random.log_uniform(low, high) * behavior.pace;
        if random.chance(behavior.slow) {
            milliseconds += behavior.extra_ms as f64;
        }
        (finished.outcome, finished.status, finished.why) = (Outcome::Answered, 200, "");
        if fails {
            (finished.outcome, finished.status, finished.why) =
                (Outcome::ModelError, behavior.status, "error of the model");
        } else if streamed && random.chance(self.config.abandoned) {
            (finished.outcome, finished.status, finished.why) = (Outcome::Abandoned, 499, "left by the user");
            milliseconds *= random.unit();
        }
        finished.ended_ms = finished.started_ms + (milliseconds as u64).max(1);
    }

    /// Ends at once what Pods, or workers, that ended by `now_ms` were answering. Otherwise that comes out when the answer
    /// would have been whole.
    pub fn cut_ended(
        &mut self,
        now_ms: u64,
        controller: &IngressController,
        world: &dyn Servers,
        sink: &mut dyn FnMut(&Finished),
    ) {
        let ended = |place: usize| {
            let one = &self.running[place];
            world.alive_until(&one.pod, one.incarnation).min(controller.cut_at(one.started_ms)) <= now_ms
        };
        let (now, later): (Vec<_>, Vec<_>) = self.ends.drain().partition(|end| ended(end.0.1));
        self.ends.extend(later);
        let mut now: Vec<_> = now.into_iter().map(|end| end.0).collect();
        now.sort_unstable();
        for (end, place) in now {
            self.end(end, place, controller, world, sink);
        }
    }

    fn end(
        &mut self,
        end: u64,
        place: usize,
        controller: &IngressController,
        world: &dyn Servers,
        sink: &mut dyn FnMut(&Finished),
    ) {
        self.free.push(place);
        let mut finished = self.running[place].clone();
        let died = world.alive_until(&finished.pod, finished.incarnation);
        let cut = controller.cut_at(finished.started_ms);
        if died.min(cut) < end {
            finished.ended_ms = died.min(cut).max(finished.started_ms);
            finished.outcome = Outcome::Cut;
            finished.why = if died <= cut { "the Pod ended" } else { "an old nginx worker was shut down" };
            // the head of a plain answer had not come yet
            finished.status = if finished.kind == Kind::Streamed { 200 } else { 502 };
        }
        self.finish(&finished, sink);
    }

    fn finish(&mut self, finished: &Finished, sink: &mut dyn FnMut(&Finished)) {
        self.counts.add(finished);
        sink(finished);
    }
}

#[cfg(test)]
mod tests;
