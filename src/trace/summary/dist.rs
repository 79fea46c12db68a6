//! Percentiles and rounding as the reference figures define them.

use serde::Serialize;

/// The shape of a set of values. A percentile is a value of the set, never between two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dist<T> {
    /// Values in the set.
    pub n: u64,
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: T,
    /// 10 % of the values are below it.
    pub p10: T,
    /// 25 %.
    pub p25: T,
    /// 50 %.
    pub p50: T,
    /// 75 %.
    pub p75: T,
    /// 90 %.
    pub p90: T,
    /// 95 %.
    pub p95: T,
    /// 99 %.
    pub p99: T,
    /// The largest.
    pub max: T,
    /// Their sum.
    pub sum: T,
}

impl Dist<i64> {
    /// The shape of whole numbers; `None` of an empty set.
    #[must_use]
    pub fn of(mut values: Vec<i64>) -> Option<Self> {
        values.sort_unstable();
        let sum: i64 = values.iter().sum();
        let mean = round(sum as f64 / values.len() as f64, 3);
        Self::sorted(&values, mean, sum)
    }

    /// The shape of counts; `None` of an empty set.
    #[must_use]
    pub fn of_counts(values: impl IntoIterator<Item = u64>) -> Option<Self> {
        // Counts of tokens and calls are far below 2^63 by the rules of a trace.
        Self::of(values.into_iter().map(|value| i64::try_from(value).unwrap_or(i64::MAX)).collect())
    }
}

impl Dist<f64> {
    /// The shape of measured numbers, rounded to `digits`; `None` of an empty set.
    #[must_use]
    pub fn of_rounded(mut values: Vec<f64>, digits: usize) -> Option<Self> {
        let sum: f64 = values.iter().sum();
        values.sort_unstable_by(f64::total_cmp);
        let mean = round(sum / values.len() as f64, digits);
        // Rounding keeps the order, so the percentiles can be taken afterwards.
        for value in &mut values {
            *value = round(*value, digits);
        }
        Self::sorted(&values, mean, round(sum, digits))
    }
}

impl<T: Copy> Dist<T> {
    fn sorted(values: &[T], mean: f64, sum: T) -> Option<Self> {
        let (min, max) = (*values.first()?, *values.last()?);
        let quantile = |percent: usize| {
            let place = percent * values.len() / 100;
            values.get(place).copied().unwrap_or(max)
        };
        Some(Self {
            n: values.len() as u64,
            mean,
            min,
            p10: quantile(10),
            p25: quantile(25),
            p50: quantile(50),
            p75: quantile(75),
            p90: quantile(90),
            p95: quantile(95),
            p99: quantile(99),
            max,
            sum,
        })
    }
}

/// The nearest number with so many decimal digits, ties to even, as `round` does in Python.
#[must_use]
pub fn round(value: f64, digits: usize) -> f64 {
    // Printing rounds the exact binary value; scaling by a power of ten would round twice.
    format!("{value:.digits$}").parse().unwrap_or(value)
}

/// `part / whole` rounded, or `None` where there is no whole.
#[must_use]
pub fn ratio(part: f64, whole: f64, digits: usize) -> Option<f64> {
    (whole != 0.0).then(|| round(part / whole, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_set() {
        let dist = Dist::of((1..=10).collect()).unwrap();
        assert_eq!((dist.p10, dist.p25, dist.p50, dist.p99), (2, 3, 6, 10));
        assert_eq!((dist.mean, dist.sum, dist.n), (5.5, 55, 10));
        assert_eq!(Dist::of(vec![]), None);
        let one = Dist::of(vec![-7]).unwrap();
        assert_eq!((one.min, one.p50, one.max), (-7, -7, -7));
    }

    #[test]
    fn rounding_takes_the_exact_value_and_ties_to_even() {
        assert_eq!(round(0.125, 2), 0.12);
        assert_eq!(round(0.375, 2), 0.38);
        assert_eq!(round(2.675, 2), 2.67); // the number is 2.67499999...
        assert_eq!(round(-0.5, 0), 0.0);
    }
}
