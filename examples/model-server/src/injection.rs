//! Which answers fail, slow down or break, when the server is told to spoil a share of them.
//!
//! The choice is a pure function of the number of the request: the multiples of an irrational
//! number, cut to their fractions, fall into an interval as often as it is long. Any run of
//! requests then holds close to its share, and the spoiled ones are spread out, not clumped. With
//! numbers as unrelated as these, failing, slowing and breaking do not go hand in hand either.

/// 2⁶⁴ times the fraction of the golden ratio.
const STEP_FAIL: u64 = 0x9E37_79B9_7F4A_7C15;
/// 2⁶⁴ times the fraction of the square root of two.
const STEP_SLOW: u64 = 0x6A09_E667_F3BC_C909;
/// 2⁶⁴ times the fraction of the square root of three.
const STEP_BREAK: u64 = 0xBB67_AE85_84CA_A73B;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Injection {
    /// Answer 500 with `x-injected-error`.
    pub fail: bool,
    /// Add the extra latency.
    pub slow: bool,
    /// Answer 200 without `choices`.
    pub broken: bool,
}

/// The shares, in percent.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// How many of a hundred answers fail.
    pub fail: f64,
    /// How many of a hundred answers are slow.
    pub slow: f64,
    /// How many of a hundred answers lack `choices`.
    pub broken: f64,
}

impl Shares {
    /// Decides about request number `n`.
    pub fn decide(self, n: u64) -> Injection {
        Injection {
            fail: within(n, STEP_FAIL, self.fail),
            slow: within(n, STEP_SLOW, self.slow),
            broken: within(n, STEP_BREAK, self.broken),
        }
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

    fn all(percent: f64) -> Shares {
        Shares { fail: percent, slow: percent, broken: percent }
    }

    fn hits(percent: f64, from: u64, count: u64, which: fn(Injection) -> bool) -> Vec<u64> {
        let shares = all(percent);
        (from..from + count).filter(|n| which(shares.decide(*n))).collect()
    }

    const KINDS: [fn(Injection) -> bool; 3] = [|it| it.fail, |it| it.slow, |it| it.broken];

    #[test]
    fn none_and_all() {
        for which in KINDS {
            assert!(hits(0.0, 0, 10_000, which).is_empty());
            assert_eq!(hits(100.0, 0, 10_000, which).len(), 10_000);
        }
    }

    #[test]
    fn every_window_holds_its_share() {
        for percent in [1.0, 5.0, 10.0, 25.0, 50.0, 90.0] {
            for from in (0..20_000).step_by(37) {
                for which in KINDS {
                    let found = hits(percent, from, 200, which).len() as f64;
                    assert!((found - 2.0 * percent).abs() <= 4.0, "{percent}%: {found} of 200 from {from}");
                }
            }
        }
    }

    #[test]
    fn hits_are_spread_out() {
        let found = hits(10.0, 0, 10_000, |it| it.fail);
        let gaps: Vec<u64> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (3..=30).contains(gap)), "{gaps:?}");
    }

    #[test]
    fn the_kinds_are_independent() {
        let shares = Shares { fail: 20.0, slow: 50.0, broken: 50.0 };
        let count = |which: fn(&Injection) -> bool| (0..10_000).map(|n| shares.decide(n)).filter(which).count();
        let (slow, broken) = (count(|it| it.fail && it.slow), count(|it| it.fail && it.broken));
        let both = count(|it| it.slow && it.broken);
        assert!((900..=1100).contains(&slow) && (900..=1100).contains(&broken), "{slow} {broken}");
        assert!((2400..=2600).contains(&both), "{both}");
    }
}
