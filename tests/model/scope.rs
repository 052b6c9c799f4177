//! How large a world is explored, and how it is broken on purpose.

use std::time::Duration;

use super::state::{Both, Left};

/// Ways to break the operator's shell: each must be found by a rule, or the rules prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// Shares are written and backends switched whatever version is there.
    RaisesIgnoreVersions,
    /// The status is replaced whatever version is there.
    StatusIgnoresVersions,
    /// Nothing is read again before a scale-down.
    NoFreshRead,
    /// A raise writes the traffic before the status.
    TrafficBeforeIntent,
    /// Going back writes the status before the traffic.
    StatusBeforeGoingBack,
    /// A new process starts the clock of the stage again.
    FreshClock,
    /// A new process starts the rollback buffer when it begins to run: what is left of it is gone.
    FreshBuffer,
    /// What cannot be read passes.
    SilentPasses,
    /// The revision that failed is not remembered.
    FailureForgotten,
    /// The old color is scaled down as soon as the backend is switched.
    EarlyScaleDown,
    /// Stages are left without looking at the metrics.
    Unjudged,
    /// A new leader plans from what its watches have told it so far.
    NoReadAtTakeover,
    /// While no attempt is open, what a late write did is left as it is.
    NothingPutRight,
}

/// Faults of the product that the model has found and that are not mended: the model does not go there. Each takes a leader
/// that was paused between its look at the lease and its request, for longer than the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its request was a status, and lands between the traffic and the status of the next leader's rollback: what failed is
    /// known to nobody then.
    LateStatus,
    /// Its request was a scale-down, and the next leader has gone back and has promoted another revision meanwhile: its old
    /// color loses its Pods in the buffer, for the fresh read before it asks only where the traffic is.
    LateScale,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Scope {
    pub hold: Duration,
    pub settle: Duration,
    pub buffer: Duration,
    pub deadline: Duration,
    /// So many versions a cache may be behind.
    pub lag: u8,
    /// So many writes of a paused leader may land after it has lost the lease.
    pub late: u8,
    /// The second operator runs.
    pub standby: bool,
    /// Metrics may be silent.
    pub silence: bool,
    pub left: Left,
    pub broken: Broken,
    /// What is gone into although it is known; everything else of [`Known`] is left out.
    pub into: Option<Known>,
}

impl Scope {
    /// Whether a fault of the product is left out.
    pub fn leaves_out(&self, known: Known) -> bool {
        self.into != Some(known)
    }

    /// One operator, up-to-date caches, and nothing goes wrong but what the metrics say.
    pub fn calm() -> Self {
        Self {
            hold: Duration::from_secs(10),
            settle: Duration::from_secs(4),
            buffer: Duration::from_secs(20),
            deadline: Duration::from_secs(40),
            lag: 0,
            late: 0,
            standby: false,
            silence: true,
            left: Left { crashes: 0, takeovers: 0, errors: 0, losses: Both(0, 0), supersedes: 0, turns: 0, acts: 0 },
            broken: Broken::Nothing,
            into: None,
        }
    }
}
