//! How requests end, and how many did in which way.

use std::collections::BTreeMap;
use std::sync::Arc;

/// How many failures are kept with all that is known of them.
const KEPT: usize = 8;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An answer in one piece.
    Plain,
    /// A stream.
    Streamed,
    /// Plain, by the named user of that place in the configuration.
    Named(usize),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// With a whole answer.
    Answered,
    /// With an error of the model itself.
    ModelError,
    /// The user went away before the end; the model server counts it as 499.
    Abandoned,
    /// The Pod did not listen.
    Refused,
    /// The Pod, or the worker of the ingress controller, ended before the answer did.
    Cut,
    /// The ingress controller had no Pod for it.
    NotRouted,
}

impl Outcome {
    /// Whether it was lost on the way, through no fault of the model: what a rollout must never do.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Refused | Self::Cut | Self::NotRouted)
    }
}

/// One request that ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it asked for.
    pub kind: Kind,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status that the user saw: 502 if the connection was refused; a stream that is cut has 200.
    pub status: u16,
    /// Of a failure, what failed; else empty.
    pub why: &'static str,
    /// When it was sent, in milliseconds since the start.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// The Service; empty if it was not routed.
    pub service: Arc<str>,
    /// The Pod; empty if it was not routed.
    pub pod: Arc<str>,
    /// Which process of that Pod.
    pub incarnation: u64,
    /// As [`Serving::version`](super::Serving::version); empty if nobody served it.
    pub version: Arc<str>,
}

impl Finished {
    /// How long it took.
    pub fn seconds(&self) -> f64 {
        (self.ended_ms - self.started_ms) as f64 / 1000.0
    }

    /// Whether the model server has counted it: it lived to see the end.
    pub fn is_counted(&self) -> bool {
        matches!(self.outcome, Outcome::Answered | Outcome::ModelError | Outcome::Abandoned)
    }
}

/// How many requests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Whole answers.
    pub answered: u64,
    /// Errors of the model.
    pub model_errors: u64,
    /// Left by the user.
    pub abandoned: u64,
    /// Lost: refused, cut or not routed.
    pub lost: u64,
}

impl Tally {
    /// All that ended.
    pub fn total(&self) -> u64 {
        self.answered + self.model_errors + self.abandoned + self.lost
    }

    fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Answered => &mut self.answered,
            Outcome::ModelError => &mut self.model_errors,
            Outcome::Abandoned => &mut self.abandoned,
            Outcome::Refused | Outcome::Cut | Outcome::NotRouted => &mut self.lost,
        } += 1;
    }
}

/// A Service and a version behind it.
pub type Versions = (Arc<str>, Arc<str>);

/// What became of all requests.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Sent so far.
    pub sent: u64,
    /// All that ended.
    pub all: Tally,
    /// By Service and version; both are empty for what nobody served.
    pub by_version: Vec<(Versions, Tally)>,
    /// By status and what failed.
    pub failures: BTreeMap<(Outcome, u16, &'static str), u64>,
    /// The first that were lost.
    pub first_lost: Vec<Finished>,
}

impl Counts {
    pub(super) fn add(&mut self, finished: &Finished) {
        self.all.add(finished.outcome);
        let is = |of: &Versions| *of.0 == *finished.service && *of.1 == *finished.version;
        if let Some((_, tally)) = self.by_version.iter_mut().find(|(of, _)| is(of)) {
            tally.add(finished.outcome);
        } else {
            let mut tally = Tally::default();
            tally.add(finished.outcome);
            self.by_version.push(((Arc::clone(&finished.service), Arc::clone(&finished.version)), tally));
        }
        if finished.outcome != Outcome::Answered {
            *self.failures.entry((finished.outcome, finished.status, finished.why)).or_default() += 1;
        }
        if finished.outcome.is_lost() && self.first_lost.len() < KEPT {
            self.first_lost.push(finished.clone());
        }
    }
}
