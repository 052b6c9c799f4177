//! What can go wrong in the shell. The engine has no errors.

use super::backoff::Failure;

/// A failed read or write.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A precondition did not hold: somebody else wrote, or our cache was behind.
    #[error("{what}: changed meanwhile: {message}")]
    Conflict {
        /// The call.
        what: &'static str,
        /// What the API server said.
        message: String,
    },
    /// No answer in time. The write may have happened.
    #[error("{what}: no answer within the deadline")]
    Deadline {
        /// The call.
        what: &'static str,
    },
    /// The lease does not last long enough for a write.
    #[error("{what}: not written, since the lease may end first")]
    NotLeader {
        /// The call.
        what: &'static str,
    },
    /// A scale-down was refused.
    #[error("Ingress {ingress} still names Service {service}: not scaled down")]
    StillServing {
        /// The Ingress.
        ingress: String,
        /// The Service.
        service: String,
    },
    /// The API server refused, or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// The call.
        what: &'static str,
        /// Why.
        source: Box<kube::Error>,
    },
    /// A patch could not be built.
    #[error("{what}: cannot be written as JSON: {source}")]
    Json {
        /// The call.
        what: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

impl Error {
    /// A word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Error::Conflict { .. } => "conflict",
            Error::Deadline { .. } => "deadline",
            Error::NotLeader { .. } => "not_leader",
            Error::StillServing { .. } => "still_serving",
            Error::Api { .. } => "error",
            Error::Json { .. } => "json",
        }
    }

    /// How to wait after it; `urgent` while a rollback is pending.
    pub fn failure(&self, urgent: bool) -> Failure {
        match self {
            Error::Conflict { .. } => Failure::Conflict,
            _ if urgent => Failure::Urgent,
            _ => Failure::Other,
        }
    }

    /// Sorts an answer of the API server. It answers 422 to a JSON Patch (`tested`) whose `test` fails.
    pub fn from_api(what: &'static str, source: kube::Error, tested: bool) -> Self {
        match source {
            kube::Error::Api(status) if status.code == 409 || (tested && status.code == 422) => {
                Error::Conflict { what, message: status.message.clone() }
            }
            source => Error::Api { what, source: Box::new(source) },
        }
    }

    /// Whether the API server says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 404))
    }
}
