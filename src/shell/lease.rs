//! What a Lease says and what to do about it. Pure; the requests are made by [`super::leader`].
//!
//! Whether a lease has ended is judged by how long *we* have seen it unchanged, never by comparing its times with our
//! clock: the clocks of two machines may differ.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

/// How long a lease lasts after its last renewal.
pub const DURATION: Duration = Duration::from_secs(6);

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nobody holds it: take it.
    Take,
    /// Look again after this, or as soon as it changes.
    Wait(Duration),
}

/// What `me` does about `lease`, which has not changed for `unchanged`.
pub fn step(lease: Option<&Lease>, me: &str, unchanged: Duration) -> Step {
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return Step::Take };
    match holder(spec) {
        // our own from before a restart in place: two processes of one identity cannot run at once
        None => Step::Take,
        Some(holder) if holder == me => Step::Take,
        Some(_) => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let left = seconds.map_or(DURATION, Duration::from_secs).saturating_sub(unchanged);
            if left.is_zero() { Step::Take } else { Step::Wait(left) }
        }
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Whether `me` holds `lease`.
pub fn held_by(lease: &Lease, me: &str) -> bool {
    lease.spec.as_ref().and_then(holder) == Some(me)
}

/// When it was renewed last, in microseconds: the API keeps no more.
pub fn renewed(lease: &Lease) -> Option<i64> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0.as_microsecond())
}

/// A lease that is new.
pub fn create(namespace: &str, name: &str, me: &str, now: Timestamp) -> Lease {
    let metadata =
        ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
    claim(&Lease { metadata, spec: None }, me, now)
}

/// `lease` held by `me` from `now` on. Its resourceVersion stays: it is the precondition of the write.
pub fn claim(lease: &Lease, me: &str, now: Timestamp) -> Lease {
    let old = lease.spec.clone().unwrap_or_default();
    let kept = holder(&old) == Some(me);
    // a lease that is only being created changes hands for the first time later
    let transitions = old.lease_transitions.map_or(0, |count| count + i32::from(!kept));
    let spec = LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(DURATION.as_secs() as i32),
        acquire_time: if kept { old.acquire_time.clone() } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..old
    };
    Lease { metadata: bare(&lease.metadata), spec: Some(spec) }
}

/// `lease` held by nobody.
pub fn release(lease: &Lease, now: Timestamp) -> Lease {
    let old = lease.spec.clone().unwrap_or_default();
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        renew_time: Some(MicroTime(now)),
        ..old
    };
    Lease { metadata: bare(&lease.metadata), spec: Some(spec) }
}

/// Metadata without what the API server keeps for itself.
fn bare(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta { managed_fields: None, ..meta.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_lease_is_taken_when_nobody_holds_it() {
        let lease = create("ns", "l", "a", at(10));
        assert_eq!(step(None, "b", Duration::ZERO), Step::Take);
        assert_eq!(step(Some(&lease), "b", Duration::from_secs(2)), Step::Wait(Duration::from_secs(4)));
        assert_eq!(step(Some(&lease), "b", Duration::from_secs(6)), Step::Take);
        assert_eq!(step(Some(&lease), "a", Duration::ZERO), Step::Take);
        assert_eq!(step(Some(&release(&lease, at(11))), "b", Duration::ZERO), Step::Take);
    }

    #[test]
    fn a_claim_keeps_the_precondition_and_counts_transitions() {
        let mut lease = create("ns", "l", "a", at(10));
        lease.metadata.resource_version = Some("7".into());
        let renewed = claim(&lease, "a", at(12));
        assert_eq!(renewed.metadata.resource_version.as_deref(), Some("7"));
        let spec = renewed.spec.clone().unwrap();
        assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(0), Some(MicroTime(at(10)))));
        let taken = claim(&release(&renewed, at(13)), "b", at(20)).spec.unwrap();
        assert_eq!((taken.lease_transitions, taken.acquire_time), (Some(1), Some(MicroTime(at(20)))));
        assert_eq!(taken.lease_duration_seconds, Some(6));
    }
}
