//! Statistics: what `bad` out of `total` requests say about a limit on the share of bad ones.
//!
//! Pure functions of whole numbers. They know nothing of verdicts, gates or time, and must not: what follows from a
//! number is decided elsewhere. They return a defined number for every input, never NaN, and always end.
//!
//! Own code, because `statrs` 0.19.1 is not exact enough: by its `ln_beta` and `beta_reg`, [`ln_e`] is off by up to 4 %
//! at 10^7 requests (and infinite where `beta_reg` underflows), and `inv_beta_reg` did not end for 0 of 10^7. Here the
//! error is below 1e-9 up to there: see the tests and `tests/fixtures/binomial.tsv`.

use std::f64::consts::TAU;

/// The natural logarithm of the e-value of `bad` out of `total` requests against "each was bad with a probability of at
/// most `limit`".
///
/// The e-value is a likelihood ratio: the mean of the likelihoods of all probabilities from `limit` to 1, over that of
/// `limit` itself. If no request's probability was above `limit`, it ever reaches 1/a with a probability of at most a,
/// however often one looks (Ville's inequality). It rises with `bad`, and falls as `total` grows with the same `bad`.
///
/// 0 without requests: no evidence either way. Negative infinity for input without a meaning: `bad` above `total`, or
/// `limit` not a normal number inside (0, 1). Up to 10^7 requests the error is below 1e-9 of the value, or below 1e-12
/// where the value is near 0. From 10^12 on it may be rough within a few standard deviations of `limit`, where it is
/// far below 0.
///
/// Source: H. Robbins, Statistical methods related to the law of the iterated logarithm, 1970.
pub fn ln_e(bad: u64, total: u64, limit: f64) -> f64 {
    if bad > total || !limit.is_normal() || !(0.0..1.0).contains(&limit) {
        return f64::NEG_INFINITY;
    }
    let (k, n, m) = (bad as f64, total as f64, (total - bad) as f64);
    let rest = 1.0 - limit;
    // E = 1 / (total + 1); not minus 0 for none of none
    if bad == 0 {
        return 0.0 - n.ln_1p();
    }
    // E = (1 - limit^(total + 1)) / ((total + 1) (1 - limit) limit^total)
    if bad == total {
        let ln_limit = limit.ln();
        return (-((n + 1.0) * ln_limit).exp_m1()).ln() - n.ln_1p() - rest.ln() - n * ln_limit;
    }
    // E = P(X <= bad) / ((total + 1) (1 - limit) pmf), with X of total + 1 requests and pmf of total. The continued
    // fraction converges fast for the smaller tail only. Where that is P(X <= bad), the pmf cancels: no underflow.
    if limit * (n + 4.0) >= k + 2.0 {
        return (limit / beta_fraction(m + 1.0, k + 1.0, rest, limit)).ln();
    }
    let ln_pmf = ln_pmf(k, n, m, limit);
    let above = limit * rest * (n + 1.0) * ln_pmf.exp() / beta_fraction(k + 1.0, m + 1.0, limit, rest);
    most(ln_pmf, n, rest) + (-above.min(ALMOST_ONE)).ln_1p()
}

/// Whether [`ln_e`] is at least `ln_threshold`, for less than its cost where it clearly is not.
pub fn crosses(bad: u64, total: u64, limit: f64, ln_threshold: f64) -> bool {
    if 0 < bad && bad < total && 0.0 < limit && limit < 1.0 && ln_threshold > 0.0 {
        let (k, n, m) = (bad as f64, total as f64, (total - bad) as f64);
        // from bad / total on the likelihood only falls: none of those in the mean reaches that of `limit`
        if k <= limit * n || most(ln_pmf(k, n, m, limit), n, 1.0 - limit) < ln_threshold {
            return false;
        }
    }
    ln_e(bad, total, limit) >= ln_threshold
}

/// The upper bound of Clopper and Pearson on the probability of a bad request after `bad` out of `total`, one-sided: if
/// the true probability were above it, so few bad ones would have had a probability below `alpha`.
///
/// It is the p at which the regularised incomplete beta function `I_p(bad + 1, total - bad)` is 1 - `alpha`, and lies
/// between `bad / total` and 1. It is 1 (anything is possible) without requests, if all were bad, and for input without
/// a meaning: `bad` above `total`, or `alpha` not a normal number in (0, 0.5]. Up to 10^7 requests the error is below
/// 1e-9 of the value.
///
/// Source: C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits, 1934.
pub fn upper_bound(bad: u64, total: u64, alpha: f64) -> f64 {
    if bad >= total || !alpha.is_normal() || !(0.0..=0.5).contains(&alpha) {
        return 1.0;
    }
    let (k, n, m) = (bad as f64, total as f64, (total - bad) as f64);
    let ln_alpha = alpha.ln();
    if bad == 0 {
        return -(ln_alpha / n).exp_m1();
    }
    if total - bad == 1 {
        return ((-alpha).ln_1p() / n).exp();
    }
    let share = k / n;
    let (mut low, mut high) = (share, 1.0);
    let mut p = beta_quantile_guess(k + 1.0, m, normal_quantile_guess(ln_alpha));
    for _ in 0..MAX_STEPS {
        if !(low < p && p < high) {
            p = f64::midpoint(low, high);
            // no number left between them
            if !(low < p && p < high) {
                break;
            }
        }
        // Newton's method on the logarithm of P(X <= bad), which is concave in p
        let fraction = beta_fraction(m, k + 1.0, 1.0 - p, p);
        let excess = ln_pmf(k, n, m, p) + (p * m / fraction).ln() - ln_alpha;
        if excess > 0.0 {
            low = p;
        } else {
            high = p;
        }
        p += excess * p * (1.0 - p) / fraction;
        // each step about squares the excess
        if excess.abs() <= 1e-6 {
            break;
        }
    }
    p.min(1.0).max(share)
}

/// Steps of Newton's method or bisection: three or four are enough for any usual alpha, some fifty for the smallest.
const MAX_STEPS: u32 = 100;

/// Terms of the continued fraction. The most it needs, near the mean, is 1,000 for 10^7 requests and 20,000 for 10^11.
const MAX_TERMS: u32 = 100_000;

/// The largest number below 1.
const ALMOST_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

/// An upper bound of [`ln_e`], by P(X <= bad) <= 1.
fn most(ln_pmf: f64, n: f64, rest: f64) -> f64 {
    -ln_pmf - ((n + 1.0) * rest).ln()
}

/// The continued fraction c in `I_x(a, b)` = x^a y^b / (B(a, b) c), where `y` is 1 - `x`.
///
/// It is the even part of the one in DLMF 8.17.22, by Lentz's method. For x <= (a + 1) / (a + b) all its parts are
/// positive, so that nothing is lost by cancellation. It ends by itself after `b` terms, if that is a whole number.
fn beta_fraction(a: f64, b: f64, x: f64, y: f64) -> f64 {
    // positive already, but for rounding beyond 2^53
    let lead = (a * y - b * x + 1.0).max(x.min(y));
    let mut below = 1.0 / (a + 1.0);
    let mut value = a * lead * below;
    let (mut rise, mut fall) = (value, 0.0);
    let mut turn = 0.0;
    for _ in 0..MAX_TERMS {
        turn += 1.0;
        let before = below;
        below = 1.0 / (a + 2.0 * turn + 1.0);
        let inner = turn * (b - turn) * x * before;
        let numerator = (a + turn - 1.0) * (a + b + turn - 1.0) * x * before * inner;
        let denominator = turn + inner + (a + turn) * (lead + turn * (1.0 + y)) * below;
        fall = 1.0 / (denominator + numerator * fall);
        rise = denominator + numerator / rise;
        let factor = rise * fall;
        value *= factor;
        if (factor - 1.0).abs() <= 2.0 * f64::EPSILON {
            break;
        }
    }
    value
}

/// The logarithm of the probability of `k` bad ones out of `n`, where `m` = `n` - `k` and neither is 0.
///
/// C. Loader, Fast and accurate computation of binomial probabilities, 2000: differences of `ln_gamma` would lose
/// 1e-8 at 10^7.
fn ln_pmf(k: f64, n: f64, m: f64, p: f64) -> f64 {
    let shape = stirling_error(n) - stirling_error(k) - stirling_error(m);
    shape - deviance(k, n * p) - deviance(m, n * (1.0 - p)) - 0.5 * (TAU * k * (m / n)).ln()
}

/// What Stirling's formula lacks: ln n! - ln(sqrt(2 pi n) (n / e)^n), for whole `n` from 1.
fn stirling_error(n: f64) -> f64 {
    /// for n from 0 to 15, where the series is not exact enough
    const SMALL: [f64; 16] = [
        0.0,
        0.081_061_466_795_327_26,
        0.041_340_695_955_409_3,
        0.027_677_925_684_998_34,
        0.020_790_672_103_765_093,
        0.016_644_691_189_821_193,
        0.013_876_128_823_070_748,
        0.011_896_709_945_891_77,
        0.010_411_265_261_972_096,
        0.009_255_462_182_712_733,
        0.008_330_563_433_362_87,
        0.007_573_675_487_951_841,
        0.006_942_840_107_209_53,
        0.006_408_994_188_004_207,
        0.005_951_370_112_758_847_5,
        0.005_554_733_551_962_801,
    ];
    if let Some(&error) = SMALL.get(n as usize) {
        return error;
    }
    let square = n * n;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / 1188.0 / square) / square) / square) / square)
        / n
}

/// Half the deviance of `x` from its mean, x ln(x / mean) + mean - x, without the loss of digits where they are close.
fn deviance(x: f64, mean: f64) -> f64 {
    let gap = x - mean;
    let v = gap / (x + mean);
    if v.abs() >= 0.1 {
        return x * (x / mean).ln() - gap;
    }
    let mut sum = gap * v;
    let mut power = 2.0 * x * v;
    let mut odd = 1.0;
    // v is below 0.1, so that each turn brings two digits
    for _ in 0..12 {
        power *= v * v;
        odd += 2.0;
        sum += power / odd;
    }
    sum
}

/// The quantile of the normal distribution at 1 - alpha, to 4.5e-4 (Abramowitz and Stegun 26.2.23).
fn normal_quantile_guess(ln_alpha: f64) -> f64 {
    let t = (-2.0 * ln_alpha).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// The quantile of the beta distribution, roughly, from that of the normal one (Abramowitz and Stegun 26.5.22).
fn beta_quantile_guess(a: f64, b: f64, z: f64) -> f64 {
    let (one, other) = (1.0 / (2.0 * a - 1.0), 1.0 / (2.0 * b - 1.0));
    let lambda = (z * z - 3.0) / 6.0;
    let mean = 2.0 / (one + other);
    let shift = (other - one) * (lambda + 5.0 / 6.0 - 2.0 / (3.0 * mean));
    let half_ln_odds = z * (mean + lambda).max(0.0).sqrt() / mean + shift;
    a / (a + b * (-2.0 * half_ln_odds).exp())
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
