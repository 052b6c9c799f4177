//! How long an object waits after failures, and when it is written too often. Pure: no clock, no randomness.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

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

/// The last writes of an object's status alone. A rollout never needs so many: somebody else writes it too, such as an
/// operator of a second installation, and that dispute must not be held at the speed of the API server.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    recent: VecDeque<Instant>,
}

/// So many writes fit into [`PACE`].
const MOST: usize = 12;
const PACE: Duration = Duration::from_secs(1);

impl Pace {
    /// One more is to be written. Gives how long it has to wait; else it is counted.
    pub fn next(&mut self, now: Instant) -> Option<Duration> {
        self.recent.retain(|at| now < *at + PACE);
        if let Some(oldest) = self.recent.front().filter(|_| self.recent.len() >= MOST) {
            return Some((*oldest + PACE).duration_since(now));
        }
        self.recent.push_back(now);
        None
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
    fn more_than_twelve_writes_in_a_second_wait() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let at = |millis| start + Duration::from_millis(millis);
        for millis in 0..12 {
            assert_eq!(pace.next(at(10 * millis)), None);
        }
        assert_eq!(pace.next(at(200)), Some(Duration::from_millis(800)));
        assert_eq!(pace.next(at(999)), Some(Duration::from_millis(1)));
        assert_eq!(pace.next(at(1000)), None, "the first is a second ago");
        assert_eq!(pace.next(at(1000)), Some(Duration::from_millis(10)), "the second is not");
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        assert_eq!(waits(Failure::Other, 1000).last(), Some(&5000));
    }
}
