//! Medians, with confidence intervals.

/// A median with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The lower end of the interval.
    pub low: f64,
    /// The median of the observed values.
    pub median: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// Returns the median of `values` with the interval that order statistics give. It makes no assumption about
/// the distribution and does not resample, so the same values give the same interval.
///
/// ```
/// let ratios: Vec<f64> = (1..=40).map(f64::from).collect();
/// let e = farcall_bench_method::stats::estimate(ratios).unwrap();
/// assert_eq!((e.low, e.median, e.high), (14.0, 20.5, 27.0));
/// ```
///
/// Returns `None` for no values. Fewer than 6 values have no such interval; then it is their whole range.
pub fn estimate(mut values: Vec<f64>) -> Option<Estimate> {
    let last = values.len().checked_sub(1)?;
    values.sort_by(f64::total_cmp);
    let median = (values[last / 2] + values[last.div_ceil(2)]) / 2.0;
    let low = rank(values.len());
    Some(Estimate { low: values[low], median, high: values[last - low] })
}

/// Returns the largest index `k` for which the population's median is below the `k`-th smallest of `n` values
/// with probability at most 2.5 %. So the median is between the `k`-th smallest and the `k`-th largest value
/// with 95 %.
fn rank(n: usize) -> usize {
    // P(at most i of n values are below the median) = the sum of C(n, 0..=i) / 2^n, in logarithms,
    // since 2^-n alone underflows for n over 1074.
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = log_term.exp();
    let mut k = 0;
    while sum <= 0.025 && k < n / 2 {
        log_term += ((n - k) as f64 / (k + 1) as f64).ln();
        sum += log_term.exp();
        k += 1;
    }
    k.saturating_sub(1)
}

/// Returns the value that the fraction `at` of `values` does not exceed; 0 for no values. Sorts `values`.
pub fn quantile(values: &mut [u32], at: f64) -> f64 {
    values.sort_unstable();
    let rank = (values.len() as f64 * at).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0).into()
}

/// Returns the mean of the middle half of `values`; 0 for no values. Sorts `values`. Like the median, it
/// ignores a few long laps. Unlike the median, it is not limited by the clock's resolution, which is half a
/// per cent of a short lap.
pub fn midmean(values: &mut [u32]) -> f64 {
    values.sort_unstable();
    let quarter = values.len() / 4;
    let middle = &values[quarter..values.len() - quarter];
    let sum: u64 = middle.iter().copied().map(u64::from).sum();
    sum as f64 / middle.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics: 1-based ranks 2 of 9 and 10, 6 of 20, 14 of 40, 40 of
        // 100.
        for (n, rank_from_one) in [(9, 2), (10, 2), (20, 6), (40, 14), (100, 40)] {
            assert_eq!(rank(n) + 1, rank_from_one, "of {n}");
        }
        assert!(rank(5_000) > 2_400);
    }

    #[test]
    fn few_values_give_their_range() {
        assert_eq!(estimate(vec![]), None);
        assert_eq!(estimate(vec![3.0, 1.0]), Some(Estimate { low: 1.0, median: 2.0, high: 3.0 }));
    }

    #[test]
    fn quantiles() {
        let mut values: Vec<u32> = (1..=100).rev().collect();
        assert_eq!([0.01, 0.5, 0.99, 1.0].map(|at| quantile(&mut values, at)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }

    #[test]
    fn the_mean_of_the_middle_half() {
        assert_eq!(midmean(&mut []), 0.0);
        assert_eq!(midmean(&mut [7]), 7.0);
        assert_eq!(midmean(&mut [1000, 1, 4, 2]), 3.0);
    }
}
