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

/// Faults of the product that the model has found and that are not mended: the model does not go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The old color was scaled down at the end of the buffer, the attempt is not closed yet, and the target has no ready Pod
    /// for a moment: all traffic goes back to a color that wants no Pods, and has to wait until they are started.
    BothDown,
    /// A new process catches up on a raise before it has read the gates once. The clock starts again with it, so what failed
    /// before the last process ended is void. It takes a raise that was lost, and a process that dies with a FAIL.
    UnreadRaise,
    /// The buffer is shorter than the controller and the write of a rollback take together: the Pods go too early, for they
    /// are kept from the plan on, not from its write. The worlds have a longer one.
    ShortBuffer,
    /// The color that serves is to be started again, and a new attempt begins in the same plan: it is not started, and the
    /// attempt takes it for one that needs no Pods. It takes [`Known::BothDown`] or a late write, and an edit at that moment.
    ReviveForgotten,
    /// The status of a leader that was paused between its look at the lease and its request, for longer than the lease, and
    /// lands between the traffic and the status of the next one's rollback: what failed is known to nobody then.
    LateStatus,
    /// The same pause, until the next leader has gone back and has promoted another revision, before a scale-down: its old
    /// color loses its Pods in the buffer, for the fresh read before it asks only where the traffic is.
    LateScale,
    /// The same pause, until the next leader has begun another attempt, before the create of a share: nothing takes the share
    /// away before the first stage, or before the switch back.
    LateCreate,
}

impl Known {
    pub const ALL: [Known; 7] = [
        Known::BothDown,
        Known::UnreadRaise,
        Known::ShortBuffer,
        Known::ReviveForgotten,
        Known::LateStatus,
        Known::LateScale,
        Known::LateCreate,
    ];

    /// It is found only where a second attempt begins: that takes long.
    pub fn takes_another_attempt(self) -> bool {
        matches!(self, Known::ReviveForgotten | Known::LateScale | Known::LateCreate)
    }
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
