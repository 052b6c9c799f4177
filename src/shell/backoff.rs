//! How long an object waits after failures. Pure: no clock, no randomness.

use std::time::Duration;

/// Why it failed, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Somebody else wrote meanwhile: look again soon.
    Conflict,
    /// A rollback is pending: never wait long.
    Urgent,
    /// Anything else.
    Other,
}

/// The failures of one object in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

const FIRST: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(5);
const URGENT_CAP: Duration = Duration::from_secs(1);
const CONFLICT_FIRST: Duration = Duration::from_millis(50);
const CONFLICT_CAP: Duration = Duration::from_millis(200);
/// So many conflicts in a row are no coincidence: from then on they wait like other failures.
const CONFLICTS: u32 = 5;

impl Backoff {
    /// How long to wait after one more failure.
    pub fn next(&mut self, failure: Failure) -> Duration {
        let before = self.failures;
        self.failures = before.saturating_add(1);
        match failure {
            Failure::Conflict if before < CONFLICTS => doubled(CONFLICT_FIRST, before, CONFLICT_CAP),
            Failure::Urgent => doubled(FIRST, before, URGENT_CAP),
            Failure::Conflict | Failure::Other => doubled(FIRST, before, CAP),
        }
    }
}

fn doubled(first: Duration, times: u32, cap: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.min(16))).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(failure: Failure, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::default();
        (0..count).map(|_| backoff.next(failure).as_millis()).collect()
    }

    #[test]
    fn waits_double_up_to_a_cap() {
        assert_eq!(waits(Failure::Other, 8), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(waits(Failure::Urgent, 6), [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(waits(Failure::Conflict, 7), [50, 100, 200, 200, 200, 3200, 5000]);
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        assert_eq!(waits(Failure::Other, 1000).last(), Some(&5000));
    }
}
