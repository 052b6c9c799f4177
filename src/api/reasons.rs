//! Words with a meaning on the wire: steps, phases, causes, condition types and reasons. A closed set, each with
//! `as_str`, so that a word in a document can be found in one place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defines a closed set of words that are written exactly as the variants are named.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $word:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$doc])* $word),+ }

        impl $name {
            /// Every word, in a fixed order.
            pub const ALL: &[$name] = &[$($name::$word),+];

            /// As it is written.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$word => stringify!($word)),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Where an attempt stands. This, and never the phase, is what the engine reads.
    Step {
        /// The target is scaled up, becomes ready and is bound to its model and prompt. No traffic has moved.
        Preparing,
        /// The target has the share of a stage.
        Stage,
        /// The Ingress backend is being switched to the target.
        Promoting,
        /// The target carries all traffic; the old color is kept.
        Buffering,
        /// Traffic goes back, or has gone back.
        RollingBack,
        /// The old color, which was no longer kept, is started and gets all traffic back in one switch.
        Restoring,
    }
}

words! {
    /// One word for people.
    Phase {
        /// Nothing to do.
        Stable,
        /// The target is made ready.
        Preparing,
        /// A stage runs.
        Progressing,
        /// A stage cannot go on; the message says why.
        Holding,
        /// A stage waits for a person.
        AwaitingApproval,
        /// `spec.paused` is set: nothing is raised, switched or scaled down.
        Paused,
        /// The backend is being switched.
        Promoting,
        /// The target carries all traffic; the old color is kept.
        Buffering,
        /// Traffic goes back.
        RollingBack,
        /// The old color is started and gets all traffic back.
        Restoring,
        /// The target was tried and traffic went back.
        RolledBack,
        /// The spec or the cluster does not allow a rollout; the message says what to do.
        Invalid,
    }
}

words! {
    /// What part a color plays.
    Role {
        /// It carries production traffic.
        Stable,
        /// It is being tried.
        Canary,
        /// It has lost its traffic and is kept for a while.
        Draining,
        /// It carries nothing.
        Idle,
    }
}

words! {
    /// What the evidence says of a gate.
    Verdict {
        /// Within the limit, on enough samples.
        Pass,
        /// Over the limit.
        Fail,
        /// No verdict yet; the reason says why.
        Hold,
    }
}

words! {
    /// A limit of a gate.
    LimitKind {
        /// The largest share of bad requests, the longest latency, or the largest value.
        Max,
        /// The smallest value.
        Min,
        /// How much more of the requests may be bad than of the other color.
        MaxIncrease,
        /// How many times the other color's latency is fine.
        MaxRatio,
    }
}

words! {
    /// How a limit was tested.
    Test {
        /// Before all samples are in: a sequential test that may be looked at any number of times.
        Early,
        /// By the share itself, once there are samples enough.
        Share,
        /// Whether no more requests are slow than of the other color, where the buckets can tell no more.
        NoSlower,
        /// By the number itself.
        Value,
    }
}

words! {
    /// The span of time that was counted.
    Span {
        /// The stage, or the buffer, so far.
        Stage,
        /// About the last five minutes.
        LastFiveMinutes,
        /// About the last minute.
        LastMinute,
    }
}

words! {
    /// How a Job that judges ended.
    JobOutcome {
        /// It succeeded: the gate passes.
        Succeeded,
        /// It failed: the gate fails.
        Failed,
        /// It was not done in time: the gate has no verdict.
        DeadlineExceeded,
        /// Its Pods were killed each time before they had a word: the gate has no verdict.
        Killed,
    }
}

words! {
    /// Why an attempt went back.
    Cause {
        /// A gate failed.
        GateFailed,
        /// A gate had no verdict for longer than its `maxHold`.
        MaxHoldExceeded,
        /// The target lost the Pods that its share needs.
        ReadinessLost,
        /// Somebody asked for it by the act `modelrollout.dev/rollback`.
        RollbackRequested,
        /// `spec.target` was set back.
        TargetTurnedBack,
        /// The target was not ready in time.
        ProgressDeadlineExceeded,
        /// Somebody else switched the backend.
        ExternalSwitch,
        /// The target's Deployment, model or prompt changed.
        RevisionChanged,
        /// The Ingress is gone, is another one, or no longer names either Service.
        IngressLost,
    }
}

words! {
    /// How an attempt ended.
    Outcome {
        /// The target carries production traffic and the buffer is over.
        Promoted,
        /// Traffic went back.
        RolledBack,
        /// An earlier color was started again and carries production traffic.
        Restored,
        /// It ended before any traffic had moved.
        Aborted,
    }
}

words! {
    /// Types of the conditions.
    ConditionType {
        /// The summary: traffic is where the spec wants it, or on its way.
        Ready,
        /// What the rollout refers to exists and fits together.
        Preflight,
        /// An attempt is under way and moves.
        Progressing,
        /// Every gate passes.
        GatesPassing,
        /// The target's Pods are of the model that the spec names.
        ModelBound,
        /// The target's Pods refer to the prompt that the spec names.
        PromptBound,
        /// The ingress controller was seen to follow the last write.
        TrafficVerified,
        /// Going back is possible, and how fast.
        RollbackReady,
        /// The target was tried and traffic went back.
        RolledBack,
    }
}

words! {
    /// Reasons of conditions, holds and Events.
    Reason {
        // Preflight
        /// All is well.
        Passed,
        /// The Deployment is missing.
        DeploymentMissing,
        /// The Service is missing.
        ServiceMissing,
        /// The Ingress is missing.
        IngressMissing,
        /// No path of the Ingress names either Service.
        BackendMismatch,
        /// Paths of the Ingress name both Services.
        AmbiguousActiveColor,
        /// A path is of a type that cannot be carried to a canary.
        UnsupportedPath,
        /// Named Ingresses are of different classes, and one canary can be of one class only.
        IngressClassMismatch,
        /// A Service selects Pods of another Deployment too.
        ServicesOverlap,
        /// A Service does not select the Pods of its color's Deployment.
        ServiceMissesDeployment,
        /// A Service lacks a port that a path names.
        PortMismatch,
        /// A Service publishes the addresses of Pods that are not ready.
        PublishesNotReady,
        /// An Ingress that is not named uses one of the two Services.
        UnlistedIngress,
        /// Somebody else's canary has the host and path of ours.
        ForeignCanary,
        /// The Deployment or Service of the color that stands by is missing; the target serves.
        StandbyMissing,
        /// Somebody declares the replicas of a Deployment, and may set them back.
        ReplicasDeclaredElsewhere,
        /// An autoscaler sets the replicas of a Deployment; the operator does not.
        AutoscalerPresent,
        /// A Deployment gives its Pods too little time to end their streams.
        ShutdownTooShort,
        /// An object has the name that ours would have.
        NameTaken,
        /// An older ModelRollout uses the same objects.
        Conflict,
        /// The spec cannot be read.
        InvalidSpec,
        /// Something could not be read from the API server.
        Unreadable,
        // Progress and holds
        /// Nothing to do.
        AtTarget,
        /// An attempt was rolled back; nothing starts by itself.
        RevisionFailed,
        /// An attempt began.
        AttemptStarted,
        /// The target becomes ready.
        WaitingForReadiness,
        /// The target has too few ready Pods for the next share.
        CapacityShort,
        /// The Pod template names another model than the spec.
        TemplateDisagrees,
        /// The ConfigMap of the prompt is missing.
        PromptMissing,
        /// The Pod template does not refer to the ConfigMap.
        PromptNotReferenced,
        /// A stage began.
        StageStarted,
        /// A stage is held for its time.
        StageRunning,
        /// Too few samples.
        InsufficientSamples,
        /// The warm-up of the stage is not over.
        WarmingUp,
        /// The counters are there, and no request was counted yet.
        NoTraffic,
        /// A gate has no data.
        NoData,
        /// The newest sample is older than two scrapes.
        StaleData,
        /// A gate's query failed.
        QueryFailed,
        /// A gate's query or selector cannot be used as it is written.
        InvalidQuery,
        /// A gate's answer makes no sense.
        InvalidData,
        /// What was given as a counter is none.
        NotACounter,
        /// A gate's minSamples are so few that chance decides.
        GateUnderpowered,
        /// The PodTemplate of a `job` gate is missing.
        JobTemplateMissing,
        /// A Job that judges could not be made.
        JobNotCreated,
        /// A Job that judges runs.
        JobRunning,
        /// A Job that judges succeeded.
        JobSucceeded,
        /// A Job that judges failed.
        JobFailed,
        /// A Job that judges was not done in time.
        JobDeadlineExceeded,
        /// The Pods of a Job that judges were killed each time.
        JobKilled,
        /// The operator knows no source of that name.
        UnknownSource,
        /// The histogram's buckets are too coarse for a verdict.
        BucketTooCoarse,
        /// There is nothing to compare with.
        NoBaseline,
        /// Within the limit.
        WithinLimit,
        /// Over the limit.
        OverLimit,
        /// Not judged in this stage.
        NotInThisStage,
        /// A stage waits for `modelrollout.dev/approve`.
        ApprovalRequired,
        /// A stage was approved.
        StageApproved,
        /// A stage was passed by a person although samples were missing.
        ApprovedWithoutEvidence,
        /// `spec.paused` is set.
        Paused,
        /// `spec.paused` is no longer set.
        Resumed,
        /// The share was set by `spec.manualWeight`.
        ManualWeight,
        /// The live color has no ready Pod and the target is ready, or the operator starts the live color again.
        LiveNotReady,
        /// The color that a rollback would go to changed.
        RollbackTargetChanged,
        /// The Pod template of the color that serves changed outside of a rollout.
        ActiveTemplateChanged,
        /// A person asked for the switch without the remaining stages.
        PromoteRequested,
        /// The old color is started to take all traffic back.
        Restoring,
        /// Traffic is back on a color that had to be started for it.
        Restored,
        /// The backend is being switched.
        Switching,
        /// The backend was switched.
        Promoted,
        /// The old color is kept.
        BufferRunning,
        /// The buffer ended while a gate had no verdict.
        BufferEndedUnjudged,
        /// The attempt is complete.
        Completed,
        /// Traffic went back.
        RolledBack,
        /// Going back waits: the live color has no ready Pod.
        RollbackBlocked,
        /// An attempt ended before any traffic had moved.
        AttemptAborted,
        /// A changed or deleted canary was put back.
        CanaryRestored,
        /// Somebody else switched the backend to a color that can carry the traffic.
        ExternalSwitch,
        /// The backend was switched to a color that cannot carry the traffic, or by a write of ours that came late; it was
        /// written back.
        BackendRestored,
        /// Somebody else keeps changing a field of ours.
        FieldConflict,
        /// Somebody scaled up a color that had been scaled to zero.
        ScaleContested,
        /// The color that carries traffic was read from the Ingress.
        Adopted,
        // Gates, binding, verification
        /// There are no gates.
        NoGates,
        /// Every gate passes.
        AllPassing,
        /// A gate failed.
        GateFailed,
        /// Gates wait for evidence.
        Judging,
        /// The Pod template carries no annotation of its model.
        NotDeclared,
        /// It is bound.
        Bound,
        /// It exists; who reads it is not checked.
        Declared,
        /// There is no prompt in the spec.
        NoPrompt,
        /// No probe was made: the write was read back and given time.
        NotProbed,
        /// Nothing is in flight.
        AtRest,
        // Rollback readiness
        /// One write takes the target's share away.
        OneWrite,
        /// The old color is up; one write switches back.
        Buffered,
        /// The old color is up although it is no longer kept; one switch goes back to it.
        StillUp,
        /// The old color is started first, then one switch goes back to it.
        ColdStart,
        /// The old color has no ready Pod.
        OldColorDown,
        /// There is no earlier color.
        NothingToRollBackTo,
        // Acts
        /// An act ran.
        ActApplied,
        /// An act was stale or unknown and did nothing.
        ActIgnored,
        /// A condition has not been looked at yet.
        NotChecked,
    }
}
