//! The faults: what can happen, and where. THE PLACE TO ADD ONE: a variant, its word, its line in [`Fault::table`], and
//! what it does in `hooks.rs` (a request, an event), `source.rs` (an answer of Prometheus) or `world.rs` (an instant).
//! From then on it is tried everywhere.
//!
//! A fault is written `w7=lost-reply`: at the seventh write, apply it and lose the reply. A run is a scenario and its
//! faults, such as `promotion w7=lost-reply t45000=delete`: the line that replays it.

use std::fmt;
use std::str::FromStr;

/// Where a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A write of the operator to the API server, leases and Events excepted.
    Write,
    /// A read of the operator: a list, a get, the start of a watch.
    Read,
    /// A write of a lease.
    Lease,
    /// A write of an Event.
    Note,
    /// An event of a watch.
    Event,
    /// A question to Prometheus.
    Query,
    /// A moment, in milliseconds since the start.
    Instant,
}

impl Class {
    const ALL: [(Self, char); 7] = [
        (Self::Write, 'w'),
        (Self::Read, 'r'),
        (Self::Lease, 'l'),
        (Self::Note, 'n'),
        (Self::Event, 'e'),
        (Self::Query, 'q'),
        (Self::Instant, 't'),
    ];
}

/// A place in a run: the n-th (from 1) of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point(pub Class, pub u64);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal),* $(,)?) => {
        /// What happens.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $name),* }
        impl Kind {
            /// The word in a replay line.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
            const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

kinds! {
    /// The operator dies before the request is applied; it starts again at once, after 5 or after 60 seconds.
    CrashBefore = "crash-before",
    CrashBefore5 = "crash-before-5s",
    CrashBefore60 = "crash-before-60s",
    /// It dies when the request is applied and not answered.
    CrashAfter = "crash-after",
    CrashAfter5 = "crash-after-5s",
    CrashAfter60 = "crash-after-60s",
    /// Applied; the answer is HTTP 504.
    LostReply = "lost-reply",
    /// Applied; the connection breaks.
    CutReply = "cut-reply",
    /// The connection breaks before it is applied.
    Refused = "refused",
    /// Somebody else changes the object first: 409.
    Conflict = "conflict",
    /// HTTP 429 with `Retry-After`.
    TooMany = "429",
    TooMany30 = "429-30s",
    /// HTTP 500.
    Internal = "500",
    /// From here on all requests of everybody get HTTP 503.
    Outage1 = "503-1s",
    Outage30 = "503-30s",
    Outage300 = "503-300s",
    /// From here on nobody can read or write the lease, and all else works.
    LeaseOutage30 = "lease-503-30s",
    /// Never answered, not applied.
    Hang = "hang",
    /// Never answered, applied.
    HangApplied = "hang-applied",
    Forbidden = "403",
    Invalid = "422",
    /// The object of ours was deleted by somebody.
    Deleted = "deleted",
    /// Applied, and answered when the lease is over.
    Slow = "slow",
    /// Another operator that takes itself for the leader runs beside ours for some seconds.
    Rival = "rival",

    /// The event, and all after it on that watch, comes later.
    Reorder = "reorder",
    Stale5 = "stale-5s",
    Stale60 = "stale-60s",
    /// Told only together with a later change of the same object.
    Skip = "skip",
    /// The watch breaks.
    Cut = "cut",
    /// 410: list again.
    Gone = "gone",
    /// The watch stays open and silent.
    Silence = "silence",
    /// The operator restarts and lists from an API server that is behind.
    TimeTravel = "time-travel",

    SourceRefused = "source-refused",
    SourceHangs = "source-hangs",
    Source500 = "source-500",
    SourceError = "source-error",
    SourceDown60 = "source-down-60s",
    Empty = "empty",
    Nan = "nan",
    Infinite = "inf",
    TwoSeries = "two-series",
    CountsDown = "counts-down",
    Old = "old-samples",
    WrongType = "wrong-type",
    Large = "5mb",
    Html = "html",
    Redirect = "redirect",

    /// The user edits a gate's limit.
    EditGates = "edit-gates",
    /// The user changes the target's Pod template.
    Supersede = "supersede",
    /// The user sets the target back.
    TargetBack = "target-back",
    /// The user deletes the ModelRollout.
    Delete = "delete",
    /// The user sets the act `rollback`.
    ActRollback = "act-rollback",
    /// Somebody deletes the canary, or changes its weight.
    CanaryDeleted = "canary-deleted",
    CanaryEdited = "canary-edited",
    /// Somebody switches the backend of the Ingress to the other color.
    Switched = "switched",
    /// The same, and the operator's watch tells it five seconds later: what is destroyed meanwhile must be looked up.
    SwitchedUnseen = "switched-unseen",
    /// Somebody scales the old color down by one.
    ScaledOld = "scaled-old",
    /// A node with half of the target's Pods is lost.
    NodeLost = "node-lost",
    /// All Pods of the target are not ready for ten seconds.
    TargetUnready = "target-unready",
    /// The target's Deployment is deleted.
    TargetDeleted = "target-deleted",
    /// The operator restarts on a machine whose clock is wrong by an hour.
    ClockAhead = "clock-ahead",
    ClockBehind = "clock-behind",
    /// The operator is stopped with SIGTERM, and starts again.
    Term = "term",
    /// The operator stands still for eight seconds (SIGSTOP), and so does its lease.
    Frozen = "frozen",
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    pub at: Point,
    pub kind: Kind,
}

impl Kind {
    /// What is tried at each place of a class.
    pub fn table(class: Class) -> &'static [Self] {
        use Kind::*;
        match class {
            Class::Write => &[
                CrashBefore,
                CrashBefore5,
                CrashBefore60,
                CrashAfter,
                CrashAfter5,
                CrashAfter60,
                LostReply,
                CutReply,
                Refused,
                Conflict,
                TooMany,
                TooMany30,
                Internal,
                Outage1,
                Outage30,
                Outage300,
                Hang,
                HangApplied,
                Forbidden,
                Invalid,
                Deleted,
                Slow,
                Rival,
            ],
            Class::Read => &[CrashBefore, CutReply, TooMany, Internal, Hang, Forbidden, Slow],
            Class::Lease => {
                &[CrashAfter, LostReply, CutReply, Conflict, Internal, LeaseOutage30, Hang, HangApplied, Slow]
            }
            Class::Note => &[CrashAfter, LostReply, Internal, Hang, Forbidden],
            Class::Event => &[Reorder, Stale5, Stale60, Skip, Cut, Gone, Silence, TimeTravel],
            Class::Query => &[
                SourceRefused,
                SourceHangs,
                Source500,
                SourceError,
                SourceDown60,
                Empty,
                Nan,
                Infinite,
                TwoSeries,
                CountsDown,
                Old,
                WrongType,
                Large,
                Html,
                Redirect,
            ],
            Class::Instant => &[
                EditGates,
                Supersede,
                TargetBack,
                Delete,
                ActRollback,
                CanaryDeleted,
                CanaryEdited,
                Switched,
                SwitchedUnseen,
                ScaledOld,
                NodeLost,
                TargetUnready,
                TargetDeleted,
                ClockAhead,
                ClockBehind,
                Term,
                Frozen,
            ],
        }
    }

    /// Whether somebody does it on purpose, or breaks a workload: then the end may be another one.
    pub fn changes_the_end(self) -> bool {
        use Kind::*;
        matches!(
            self,
            EditGates
                | Supersede
                | TargetBack
                | Delete
                | ActRollback
                | Switched
                | SwitchedUnseen
                | ScaledOld
                | NodeLost
                | TargetUnready
                | TargetDeleted
                | ClockAhead
                | ClockBehind
        )
    }

    /// Whether the operator can do nothing for longer than some buffers last.
    pub fn is_long(self) -> bool {
        use Kind::*;
        matches!(self, CrashBefore60 | CrashAfter60 | Outage30 | Outage300 | LeaseOutage30)
    }

    /// The process dies in the middle of what it does.
    pub fn kills(self) -> bool {
        use Kind::*;
        matches!(self, CrashBefore | CrashBefore5 | CrashBefore60 | CrashAfter | CrashAfter5 | CrashAfter60)
    }

    /// How long it lasts at most, until the operator notices and is back, in seconds.
    pub fn seconds(self) -> u64 {
        use Kind::*;
        match self {
            Outage300 => 300,
            CrashBefore60 | CrashAfter60 | Stale60 | SourceDown60 | ClockAhead | ClockBehind => 60,
            Outage30 | LeaseOutage30 => 30,
            // a watch that is silent is begun again
            Silence | Skip => 65,
            _ => 15,
        }
    }

    /// Whether the operator cannot know better for a while: what it sees is old.
    pub fn makes_blind(self) -> bool {
        use Kind::*;
        matches!(self, Reorder | Stale5 | Stale60 | Skip | Silence | TimeTravel | SwitchedUnseen | Frozen)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point(class, number) = self.at;
        let letter = Class::ALL.iter().find(|one| one.0 == class).map_or('?', |one| one.1);
        write!(f, "{letter}{number}={}", self.kind.word())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: a fault is written like w7=lost-reply");
        let (at, word) = text.split_once('=').ok_or_else(wrong)?;
        let letter = at.chars().next().ok_or_else(wrong)?;
        let class = Class::ALL.iter().find(|one| one.1 == letter).ok_or_else(wrong)?.0;
        let number = at[1..].parse().map_err(|_| wrong())?;
        let kind = Kind::ALL.iter().find(|kind| kind.word() == word);
        let kind = *kind.ok_or_else(|| format!("{text}: there is no fault named {word}"))?;
        if !Kind::table(class).contains(&kind) {
            return Err(format!("{text}: {word} does not happen there"));
        }
        Ok(Self { at: Point(class, number), kind })
    }
}

#[test]
fn faults_are_written_as_they_are_read() {
    for (class, _) in Class::ALL {
        for kind in Kind::table(class) {
            let fault = Fault { at: Point(class, 7), kind: *kind };
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
    }
    assert!("w7=nan".parse::<Fault>().is_err());
    assert!("w=500".parse::<Fault>().is_err());
}
