//! The only place that asks for the time of day.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time of day.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// `base` plus the time that tokio's clock has moved since `start`: for simulations, whose time may be paused.
    Simulated {
        /// The time of day at `start`.
        base: Timestamp,
        /// When the simulation began.
        start: Instant,
    },
}

impl Clock {
    /// Now, exactly.
    #[allow(clippy::disallowed_methods)] // this is the place
    pub fn precise(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Simulated { base, start } => {
                let passed = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::ZERO);
                base.checked_add(passed).unwrap_or(*base)
            }
        }
    }

    /// Now in whole seconds, rounded down: the API keeps no more, and a time must equal itself after a round trip.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_second(self.precise().as_second()).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// As unix time with fractions.
pub fn unix(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}

/// From unix time with fractions.
pub fn from_unix(at: f64) -> Timestamp {
    Timestamp::from_millisecond((at * 1000.0).round() as i64).unwrap_or(Timestamp::UNIX_EPOCH)
}
