//! The usual figures of a set of samples, all exact.

use std::cmp::Ordering;

use super::quantile;
use crate::units::Span;

/// What can be summarised: a totally ordered number with a mean.
pub trait Sample: Copy {
    /// The order of samples.
    fn order(&self, other: &Self) -> Ordering;

    /// The mean of samples in ascending order; there is at least one.
    fn mean_of(sorted: &[Self]) -> f64;
}

impl Sample for u64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn mean_of(sorted: &[Self]) -> f64 {
        let sum: u128 = sorted.iter().copied().map(u128::from).sum();
        sum as f64 / sorted.len() as f64
    }
}

/// The mean is in nanoseconds, like the samples.
impl Sample for Span {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn mean_of(sorted: &[Self]) -> f64 {
        let sum: u128 = sorted.iter().map(|span| u128::from(span.0)).sum();
        sum as f64 / sorted.len() as f64
    }
}

/// The sum is taken in ascending order, so the order of arrival cannot change a digit of it.
impl Sample for f64 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }

    fn mean_of(sorted: &[Self]) -> f64 {
        sorted.iter().sum::<f64>() / sorted.len() as f64
    }
}

/// Size, mean and nearest-rank percentiles of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary<T> {
    /// Number of samples, at least one.
    pub n: usize,
    /// Arithmetic mean, in the unit of the samples.
    pub mean: f64,
    /// Smallest sample.
    pub min: T,
    /// Median.
    pub p50: T,
    /// 90th percentile.
    pub p90: T,
    /// 95th percentile.
    pub p95: T,
    /// 99th percentile.
    pub p99: T,
    /// Largest sample.
    pub max: T,
}

impl<T: Sample> Summary<T> {
    /// Sorts the samples and summarises them. `None` without samples.
    #[must_use]
    pub fn of(samples: &mut [T]) -> Option<Self> {
        samples.sort_unstable_by(T::order);
        Self::of_sorted(samples)
    }

    /// Summarises samples that are in ascending order already. `None` without samples.
    #[must_use]
    pub fn of_sorted(sorted: &[T]) -> Option<Self> {
        debug_assert!(sorted.is_sorted_by(|a, b| a.order(b).is_le()), "samples out of order");
        Some(Self {
            n: sorted.len(),
            min: *sorted.first()?,
            mean: T::mean_of(sorted),
            p50: quantile(sorted, 0.50)?,
            p90: quantile(sorted, 0.90)?,
            p95: quantile(sorted, 0.95)?,
            p99: quantile(sorted, 0.99)?,
            max: *sorted.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_integers() {
        let mut samples: Vec<u64> = (1..=100).rev().collect();
        let expected =
            Summary { n: 100, mean: 50.5, min: 1, p50: 50, p90: 90, p95: 95, p99: 99, max: 100 };
        assert_eq!(Summary::of(&mut samples), Some(expected));
    }

    #[test]
    fn spans_and_floats() {
        let spans = Summary::of(&mut [Span(4), Span(1), Span(1)]).unwrap();
        assert_eq!((spans.mean, spans.min, spans.p50, spans.p90), (2.0, Span(1), Span(1), Span(4)));
        let floats = Summary::of(&mut [0.5, -1.5, 4.0, 1.0]).unwrap();
        assert_eq!((floats.mean, floats.min, floats.p50, floats.max), (1.0, -1.5, 0.5, 4.0));
    }

    #[test]
    fn the_mean_neither_overflows_nor_depends_on_order() {
        assert_eq!(Summary::of(&mut [u64::MAX, u64::MAX]).unwrap().mean, u64::MAX as f64);
        let forward = Summary::of(&mut [0.1, 0.2, 0.3, 1e9]).unwrap();
        let backward = Summary::of(&mut [1e9, 0.3, 0.2, 0.1]).unwrap();
        assert_eq!(forward.mean.to_bits(), backward.mean.to_bits());
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::<u64>::of(&mut []), None);
    }
}
