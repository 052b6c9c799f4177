//! Randomness from a seed: the same seed gives the same run.

/// The generator splitmix64: fast, and good enough to draw events.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator of its own for each `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product: without a division, and no more biased than a remainder.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether an event of `probability` happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Time until the next of events that come `per_second` on average, in milliseconds, at least 1.
    pub fn until_next(&mut self, per_second: f64) -> u64 {
        let milliseconds = -(1.0 - self.unit()).ln() / per_second * 1000.0;
        (milliseconds as u64).max(1)
    }

    /// Between `low` and `high`, where each doubling is as likely as any other.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }
}

/// Scatters the bits of `value`.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A number that stands for `text`, the same in every run.
pub fn hash(text: &str) -> u64 {
    mix(text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        assert_eq!((random.bits(), random.bits()), (6_457_827_717_110_365_317, 3_203_168_211_198_807_973));
    }

    #[test]
    fn draws_are_as_likely_as_they_say() {
        let mut random = Random::new(7);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut || random.below(11) as f64) - 5.0).abs() < 0.1);
        assert!((mean(&mut || random.until_next(10.0) as f64) - 100.0).abs() < 3.0);
        assert!((mean(&mut || f64::from(u8::from(random.chance(0.2)))) - 0.2).abs() < 0.01);
        assert!((0..1000).all(|_| (5..=7).contains(&random.between(5, 7))));
        assert!((0..1000).all(|_| (2.0..=240.0).contains(&random.log_uniform(2.0, 240.0))));
    }
}
