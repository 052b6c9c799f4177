use proptest::prelude::*;

use super::*;

/// kind, k, n, limit or alpha, value
type Row = (&'static str, u64, u64, f64, f64);

fn reference() -> Vec<Row> {
    let rows = include_str!("../../tests/fixtures/binomial.tsv").lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, k, n, x, value] = cells[..] else { panic!("five cells: {line}") };
        (kind, k.parse().unwrap(), n.parse().unwrap(), x.parse().unwrap(), value.parse().unwrap())
    })
    .collect()
}

/// Within 1e-9 of the value, or, where that is closer to 0 than 1e-3, within 1e-12.
fn close(got: f64, value: f64) -> bool {
    (got - value).abs() <= 1e-9 * value.abs().max(1e-3)
}

#[test]
fn every_row_of_the_reference_is_met() {
    let rows = reference();
    let wrong: Vec<_> = rows
        .iter()
        .map(|&row @ (kind, k, n, x, value)| match kind {
            "ln_e" => (row, ln_e(k, n, x), value),
            "upper" => (row, upper_bound(k, n, x), value),
            _ => panic!("{row:?}"),
        })
        .filter(|&(_, got, value)| !close(got, value))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for kind in ["ln_e", "upper"] {
        assert!(rows.iter().filter(|row| row.0 == kind).count() > 100, "{kind}");
    }
}

#[test]
fn the_worked_examples() {
    // the limit of an increase of 3 points over a baseline with 100 bad ones out of 10,000
    let increase = upper_bound(100, 10_000, 0.0005) + 0.03;
    let (once, twice) = (1000_f64.ln(), 2000_f64.ln());
    let examples = [
        //  k     n   limit     ln E      threshold, reached
        (3, 3, 0.05, 7.6522, once, true),
        (2, 20, 0.05, -1.4143, once, false),
        (4, 10, 0.05, 4.5969, once, false),
        (5, 10, 0.05, 7.3591, once, true),
        (16, 300, 0.05, -3.7513, once, false),
        (60, 1000, 0.05, -2.9993, once, false),
        (0, 500, 0.01, -6.2166, once, false),
        (6, 60, 0.01, 6.3441, once, false),
        (7, 60, 0.01, 8.8962, once, true),
        (31, 2000, 0.01, -2.3519, once, false),
        (9, 1500, 0.01, -6.5454, once, false),
        (18, 400, increase, -4.0944, twice, false),
        (30, 200, increase, 14.2431, twice, true),
        (24, 1500, 0.01, -2.5040, once, false),
        (34, 2994, 0.05, -7.7495, once, false),
    ];
    for (k, n, limit, value, threshold, reached) in examples {
        assert!((ln_e(k, n, limit) - value).abs() < 1e-4, "{k}/{n} at {limit}: {}", ln_e(k, n, limit));
        assert_eq!(crosses(k, n, limit, threshold), reached, "{k}/{n} at {limit}");
    }
    let bounds = [(100, 10_000, 0.0005, 0.013_711_83), (200, 5000, 0.0005, 0.049_932_47), (0, 500, 0.05, 0.005_974)];
    for (k, n, alpha, value) in bounds {
        assert!((upper_bound(k, n, alpha) - value).abs() < 5e-7, "{k}/{n}: {}", upper_bound(k, n, alpha));
    }
    // the lower bound is the upper one of the good requests
    assert!((1.0 - upper_bound(940, 1000, 0.05) - 0.048_124).abs() < 5e-7);
}

/// A bad guess would be mended by Newton's method, and cost the steps that [`MAX_STEPS`] does not have for the smallest alpha.
#[test]
fn the_first_guess_is_as_close_as_its_sources_say() {
    let normal = [
        (0.5, 0.0),
        (0.25, 0.674_489_750),
        (0.05, 1.644_853_627),
        (0.01, 2.326_347_874),
        (0.0005, 3.290_526_731),
        (1e-6, 4.753_424_309),
        (1e-9, 5.997_807_015),
    ];
    for (alpha, quantile) in normal {
        let guess = normal_quantile_guess(f64::ln(alpha));
        assert!((guess - quantile).abs() < 4.5e-4, "{alpha}: {guess}");
    }
    for (k, n) in [(1, 10), (2, 20), (5, 100), (50, 1000), (300, 1000), (95, 100), (8, 10)] {
        for alpha in [0.05, 0.0005] {
            let (bad, good) = (k as f64, (n - k) as f64);
            let guess = beta_quantile_guess(bad + 1.0, good, normal_quantile_guess(f64::ln(alpha)));
            let (bound, share) = (upper_bound(k, n, alpha), bad / n as f64);
            assert!((guess - bound).abs() < 0.015 * (bound - share), "{k} of {n} at {alpha}: {guess}, {bound}");
        }
    }
}

/// The very number, zeros of either sign apart.
fn is(got: f64, value: f64) -> bool {
    got.total_cmp(&value).is_eq()
}

#[test]
fn input_without_a_meaning_is_no_evidence() {
    for limit in [f64::NAN, -0.1, -0.0, 0.0, 1e-320, 1.0, 1.5, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(is(ln_e(5, 10, limit), f64::NEG_INFINITY), "{limit}");
        assert!(!crosses(5, 10, limit, 1.0), "{limit}");
    }
    assert!(is(ln_e(12, 10, 0.05), f64::NEG_INFINITY));
    assert!(!crosses(12, 10, 0.05, 1.0));
    assert!(!crosses(5, 5, 0.05, f64::NAN));
    assert!(is(ln_e(0, 0, 0.05), 0.0));
    for alpha in [f64::NAN, -0.1, 0.0, 1e-320, 0.6, 1.0, 2.0, f64::INFINITY] {
        assert!(is(upper_bound(1, 10, alpha), 1.0), "{alpha}");
    }
    assert!(is(upper_bound(0, 0, 0.05), 1.0));
    assert!(is(upper_bound(10, 10, 0.05), 1.0));
    assert!(is(upper_bound(12, 10, 0.05), 1.0));
}

#[test]
fn the_largest_numbers_are_finite() {
    const MAX: u64 = u64::MAX;
    for limit in [f64::MIN_POSITIVE, 1e-12, 0.05, 0.5, 1.0 - 1e-12, ALMOST_ONE] {
        let near = (limit * MAX as f64) as u64;
        let around = [near.saturating_sub(2000), near, near.saturating_add(2000)];
        for k in [0, 1, 2, MAX / 20, MAX / 2, MAX / 2 + 1, MAX - 2, MAX - 1, MAX].into_iter().chain(around) {
            assert!(ln_e(k, MAX, limit).is_finite(), "{k} at {limit}");
            let bound = upper_bound(k, MAX, limit.min(0.5));
            assert!((k as f64 / MAX as f64..=1.0).contains(&bound), "{k}: {bound}");
        }
    }
    assert!(crosses(MAX / 10, MAX, 0.05, 1000_f64.ln()));
}

/// `k` of `n`, with `n` of any order of magnitude up to 10^7 and every kind of share.
fn counts() -> impl Strategy<Value = (u64, u64)> {
    let n = (0.0..7.0_f64).prop_map(|digits| 10_f64.powf(digits) as u64);
    (n, prop_oneof![0.0..=1.0_f64, 0.0..0.1_f64, Just(0.0), Just(1.0)])
        .prop_map(|(n, share)| ((share * n as f64).round() as u64, n))
}

fn limits() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.05), Just(0.01), 0.0001..0.9999_f64]
}

/// Any double, and often one that could be a limit or an alpha.
fn doubles() -> impl Strategy<Value = f64> {
    prop_oneof![proptest::num::f64::ANY, 0.0..1.0_f64]
}

proptest! {
    #[test]
    fn every_input_gives_a_number(k: u64, n: u64, x in doubles(), threshold in doubles()) {
        let near = (x * n as f64) as u64;
        for (k, n) in [(k, n), (k.min(n), k.max(n)), (k >> 32, n >> 32), (near.min(n), n), (near >> 9, n >> 9)] {
            prop_assert!(!ln_e(k, n, x).is_nan());
            prop_assert_eq!(crosses(k, n, x, threshold), ln_e(k, n, x) >= threshold);
            let bound = upper_bound(k, n, x);
            prop_assert!((0.0..=1.0).contains(&bound), "{bound}");
        }
    }

    #[test]
    fn bad_requests_add_evidence((k, n) in counts(), limit in limits()) {
        prop_assume!(k < n);
        let (fewer, more) = (ln_e(k, n, limit), ln_e(k + 1, n, limit));
        prop_assert!(more > fewer - 1e-12 * fewer.abs(), "{fewer} {more}");
    }

    #[test]
    fn good_requests_take_evidence_away((k, n) in counts(), limit in limits()) {
        let (fewer, more) = (ln_e(k, n, limit), ln_e(k, n + 1, limit));
        prop_assert!(more < fewer + 1e-12 * fewer.abs(), "{fewer} {more}");
    }

    /// The mean of the tenth powers is at least the tenth power of the mean.
    #[test]
    fn ten_times_the_same_is_not_less_evidence((k, n) in counts(), limit in limits(), threshold in 0.01..50.0_f64) {
        let one = ln_e(k, n, limit);
        let ten = ln_e(10 * k, 10 * n, limit);
        prop_assert!(ten >= 10.0 * one - 1e-9 * one.abs(), "{one} {ten}");
        prop_assert!(!crosses(k, n, limit, threshold) || crosses(10 * k, 10 * n, limit, threshold));
    }

    #[test]
    fn crosses_is_what_ln_e_says((k, n) in counts(), limit in limits(), threshold in -20.0..50.0_f64) {
        let value = ln_e(k, n, limit);
        for threshold in [threshold, value, value.next_up(), value.next_down(), 0.0] {
            prop_assert_eq!(crosses(k, n, limit, threshold), value >= threshold, "{} {}", value, threshold);
        }
    }

    #[test]
    fn an_upper_bound_lies_above_the_share((k, n) in counts(), alpha in 1e-9..0.5_f64) {
        let bound = upper_bound(k, n, alpha);
        prop_assert!(bound <= 1.0 && bound * n as f64 >= k as f64, "{bound}");
        prop_assert!(upper_bound(k, n + 1, alpha) <= bound + 1e-12);
        prop_assert!(upper_bound(k, n, alpha / 2.0) >= bound - 1e-12);
    }
}

/// The fewest bad ones that cross at each number of requests from `from` on, up to `to`; before that, more than there
/// are. `crosses` is asked only here, so that millions of requests can be played.
fn boundary(limit: f64, from: u64, to: u64) -> Vec<u64> {
    let mut k = 0;
    (0..=to)
        .map(|n| {
            if n < from {
                return n + 1;
            }
            while k <= n && !crosses(k, n, limit, 1000_f64.ln()) {
                k += 1;
            }
            k
        })
        .collect()
}

#[test]
fn one_in_a_thousand_is_failed_early_at_the_limit_by_exact_sums() {
    for limit in [0.01, 0.05, 0.5] {
        let boundary = boundary(limit, 10, 2000);
        let mut crossed = 0.0;
        // the probability of each number of bad ones without having crossed
        let mut alive = vec![1.0];
        for &fewest in boundary.iter().skip(1) {
            let mut next = vec![0.0; alive.len() + 1];
            for (k, probability) in alive.iter().enumerate() {
                next[k] += probability * (1.0 - limit);
                next[k + 1] += probability * limit;
            }
            let kept = next.len().min(usize::try_from(fewest).unwrap());
            crossed += next.drain(kept..).sum::<f64>();
            alive = next;
        }
        assert!((crossed + alive.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(crossed > 0.0 && crossed <= 0.001, "{limit}: {crossed}");
    }
}

#[test]
fn one_in_a_thousand_is_failed_early_at_the_limit_by_simulation() {
    const RUNS: u32 = 100_000;
    let limit = 0.05;
    let boundary = boundary(limit, 10, 500);
    let bad_below = (limit * 2_f64.powi(64)) as u64;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut failed = 0_u32;
    for _ in 0..RUNS {
        let mut bad = 0;
        for &fewest in &boundary[1..] {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            if state.wrapping_mul(0x2545_f491_4f6c_dd1d) < bad_below {
                bad += 1;
            }
            if bad >= fewest {
                failed += 1;
                break;
            }
        }
    }
    let expected = 0.001 * f64::from(RUNS);
    assert!(failed > 0 && f64::from(failed) <= expected + 3.0 * expected.sqrt(), "{failed}");
}
