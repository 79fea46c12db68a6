//! What is kept of samples that are too many to keep.

use super::LogHistogram;

/// Samples of one quantity, in whole numbers: number, mean, least and most exactly, percentiles to
/// within 0.1 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    histogram: LogHistogram<9>,
    least: u64,
    most: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self { histogram: LogHistogram::default(), least: u64::MAX, most: 0 }
    }
}

impl Samples {
    /// Adds a sample.
    pub fn add(&mut self, sample: u64) {
        self.least = self.least.min(sample);
        self.most = self.most.max(sample);
        self.histogram.add(sample);
    }

    /// Samples added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// Their mean, exactly. `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.histogram.mean()
    }

    /// The largest, exactly. `None` without samples.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.most)
    }

    /// The nearest-rank quantile, to within 0.1 % and never outside the samples. `None` without
    /// samples.
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let found = self.histogram.quantile(p)?;
        Some(found.clamp(self.least as f64, self.most as f64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::quantile;

    proptest! {
        #[test]
        fn percentiles_are_those_of_all_samples_to_within_a_thousandth(
            samples in prop::collection::vec((0u32..50, any::<u64>()), 1..200),
            p in 0.0..=1.0f64,
        ) {
            let samples = samples.into_iter().map(|(bits, any)| any & ((1 << bits) - 1));
            let samples: Vec<u64> = samples.collect();
            let mut kept = Samples::default();
            samples.iter().for_each(|sample| kept.add(*sample));
            let mut sorted = samples.clone();
            sorted.sort_unstable();
            let exact = quantile(&sorted, p).unwrap() as f64;
            let found = kept.quantile(p).unwrap();
            prop_assert!((found - exact).abs() <= exact / 1_000.0, "{found} is not {exact}");
            let sum: u64 = samples.iter().sum();
            prop_assert_eq!(kept.mean(), Some(sum as f64 / samples.len() as f64));
            prop_assert_eq!(kept.max(), sorted.last().copied());
        }
    }

    #[test]
    fn one_sample_is_known_exactly() {
        let mut one = Samples::default();
        one.add(123_456_789);
        assert_eq!(one.quantile(0.9), Some(123_456_789.0));
        assert_eq!((Samples::default().quantile(0.5), Samples::default().max()), (None, None));
    }
}
