//! Which answers fail or slow down, when the server is told to spoil a share of them.
//!
//! The choice is a pure function of the number of the request: the multiples of an irrational
//! number, cut to their fractions, fall into an interval as often as it is long. Any run of
//! requests then holds close to its share, and the spoiled ones are spread out, not clumped. With
//! two numbers as unrelated as these, failing and slowing do not go hand in hand either.

/// 2⁶⁴ times the fraction of the golden ratio.
const STEP_FAIL: u64 = 0x9E37_79B9_7F4A_7C15;
/// 2⁶⁴ times the fraction of the square root of two.
const STEP_SLOW: u64 = 0x6A09_E667_F3BC_C909;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Injection {
    /// Answer 500 with `x-injected-error`.
    pub fail: bool,
    /// Add the extra latency.
    pub slow: bool,
}

/// The shares, in percent.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// How many of a hundred answers fail.
    pub fail: f64,
    /// How many of a hundred answers are slow.
    pub slow: f64,
}

impl Shares {
    /// Decides about request number `n`.
    pub fn decide(self, n: u64) -> Injection {
        Injection { fail: within(n, STEP_FAIL, self.fail), slow: within(n, STEP_SLOW, self.slow) }
    }
}

fn within(n: u64, step: u64, percent: f64) -> bool {
    let point = n.wrapping_add(1).wrapping_mul(step) >> 11;
    let fraction = point as f64 / (1_u64 << 53) as f64;
    fraction < percent / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(percent: f64, from: u64, count: u64) -> Vec<u64> {
        let shares = Shares { fail: percent, slow: 0.0 };
        (from..from + count).filter(|n| shares.decide(*n).fail).collect()
    }

    #[test]
    fn none_and_all() {
        assert!(hits(0.0, 0, 10_000).is_empty());
        assert_eq!(hits(100.0, 0, 10_000).len(), 10_000);
    }

    #[test]
    fn every_window_holds_its_share() {
        for percent in [1.0, 5.0, 10.0, 25.0, 50.0, 90.0] {
            for from in (0..20_000).step_by(37) {
                let found = hits(percent, from, 200).len() as f64;
                assert!((found - 2.0 * percent).abs() <= 4.0, "{percent}%: {found} of 200 from {from}");
            }
        }
    }

    #[test]
    fn hits_are_spread_out() {
        let found = hits(10.0, 0, 10_000);
        let gaps: Vec<u64> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (3..=30).contains(gap)), "{gaps:?}");
    }

    #[test]
    fn failing_and_slowing_are_independent() {
        let shares = Shares { fail: 20.0, slow: 50.0 };
        let both = (0..10_000).map(|n| shares.decide(n)).filter(|it| it.fail && it.slow).count();
        assert!((900..=1100).contains(&both), "{both}");
    }
}
