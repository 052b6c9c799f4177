//! Chance from a seed: the same numbers in every run.

/// `SplitMix64` (Steele, Lea and Flood, 2014).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How many of so many requests are bad, by a table of what is how likely.
pub struct Binomial {
    at_most: Vec<f64>,
}

impl Binomial {
    pub fn new(requests: u64, rate: f64) -> Self {
        if rate >= 1.0 {
            let mut at_most = vec![0.0; requests as usize];
            at_most.push(1.0);
            return Self { at_most };
        }
        let mut log = requests as f64 * (-rate).ln_1p();
        let mut sum = 0.0;
        let mut at_most = Vec::new();
        for bad in 0..=requests {
            sum += log.exp();
            at_most.push(sum);
            log += ((requests - bad) as f64 / (bad + 1) as f64).ln() + rate.ln() - (-rate).ln_1p();
        }
        Self { at_most }
    }

    pub fn draw(&self, chance: &mut Chance) -> u64 {
        let unit = chance.unit();
        self.at_most.partition_point(|sum| *sum <= unit).min(self.at_most.len() - 1) as u64
    }
}
