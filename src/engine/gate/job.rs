//! A Job that judges: its exit code is the verdict.

use super::{JobOutcome, Judgement, Reason, Verdict, hold};

/// What is known of the Job of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Its time has not come.
    NotYet,
    /// It is to be made.
    Wanted,
    /// It could not be made; the text says why.
    Refused(String),
    /// It cannot be read.
    Unreadable(String),
    /// The PodTemplate of this name is missing.
    NoTemplate(String),
    /// It runs.
    Running(String),
    /// It has ended.
    Ended(String, JobOutcome),
}

/// Judges a `job` gate by its Job.
pub fn judge(state: &JobState) -> Judgement {
    match state {
        JobState::NotYet => hold(Reason::WarmingUp, "the stage warms up; then the Job is made"),
        JobState::Wanted => hold(Reason::JobRunning, "the Job is being made"),
        JobState::Refused(why) => {
            hold(Reason::JobNotCreated, format!("the Job cannot be made, and it is tried again: {why}"))
        }
        JobState::Unreadable(why) => hold(Reason::Unreadable, why.clone()),
        JobState::NoTemplate(name) => {
            let message = format!("create the PodTemplate {name} that the gate names, or correct the name");
            hold(Reason::JobTemplateMissing, message)
        }
        JobState::Running(name) => hold(Reason::JobRunning, format!("the Job {name} runs")),
        JobState::Ended(name, JobOutcome::Succeeded) => {
            Judgement::new(Verdict::Pass, Reason::JobSucceeded, format!("the Job {name} succeeded"))
        }
        JobState::Ended(name, JobOutcome::Failed) => {
            let message = format!("the Job {name} failed: its log (kubectl logs job/{name}) says why");
            Judgement::new(Verdict::Fail, Reason::JobFailed, message)
        }
        JobState::Ended(name, JobOutcome::Killed) => {
            let message =
                format!("the Pods of Job {name} were killed each time: give them more memory, or see who deletes them");
            hold(Reason::JobKilled, message)
        }
        JobState::Ended(name, JobOutcome::DeadlineExceeded) => {
            let message = format!(
                "the Job {name} was not done in time: give it a longer deadline, or see why its Pod did not end"
            );
            hold(Reason::JobDeadlineExceeded, message)
        }
    }
}
