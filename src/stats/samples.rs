//! What is kept of samples that are too many to keep.

use std::borrow::Cow;

use super::LogHistogram;

/// Samples of one quantity, in whole numbers: number, mean, least and most exactly, percentiles to
/// within 0.1 %.
///
/// Some samples are kept until they are added together: one by one, where others of other
/// quantities come in between, the histogram has left the processor's cache before each.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    fresh: Vec<u64>,
    added: Added,
}

/// So many are added together.
const TOGETHER: usize = 128;

/// What is known of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Added {
    histogram: LogHistogram<9>,
    least: u64,
    most: u64,
}

impl Default for Added {
    fn default() -> Self {
        Self { histogram: LogHistogram::default(), least: u64::MAX, most: 0 }
    }
}

impl Added {
    fn add(&mut self, samples: &[u64]) {
        let (mut least, mut most) = (self.least, self.most);
        for &sample in samples {
            least = least.min(sample);
            most = most.max(sample);
        }
        (self.least, self.most) = (least, most);
        self.histogram.add_each(samples);
    }
}

impl Samples {
    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, sample: u64) {
        self.fresh.push(sample);
        if self.fresh.len() == TOGETHER {
            self.settle();
        }
    }

    #[inline(never)]
    fn settle(&mut self) {
        self.added.add(&self.fresh);
        self.fresh.clear();
    }

    /// What is known of all of them.
    fn all(&self) -> Cow<'_, Added> {
        if self.fresh.is_empty() {
            return Cow::Borrowed(&self.added);
        }
        let mut all = self.added.clone();
        all.add(&self.fresh);
        Cow::Owned(all)
    }

    /// Samples added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.added.histogram.count() + self.fresh.len() as u64
    }

    /// Their mean, exactly. `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.all().histogram.mean()
    }

    /// The largest, exactly. `None` without samples.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        let most = self.fresh.iter().copied().max().unwrap_or(0).max(self.added.most);
        (self.count() > 0).then_some(most)
    }

    /// The nearest-rank quantile, to within 0.1 % and never outside the samples. `None` without
    /// samples.
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let all = self.all();
        let found = all.histogram.quantile(p)?;
        Some(found.clamp(all.least as f64, all.most as f64))
    }
}

/// The same samples, as far as they are known.
impl PartialEq for Samples {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Samples {}

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
    fn samples_that_wait_to_be_added_are_known() {
        let mut kept = Samples::default();
        let mut plain = Added::default();
        for number in 0..1_000u64 {
            let sample = number * number * 7_919 % 1_000_003;
            kept.add(sample);
            plain.add(&[sample]);
            let (mean, quantile) = (plain.histogram.mean(), plain.histogram.quantile(0.9));
            let within = quantile.map(|at| at.clamp(plain.least as f64, plain.most as f64));
            assert_eq!((kept.count(), kept.max()), (number + 1, Some(plain.most)));
            assert_eq!((kept.mean(), kept.quantile(0.9)), (mean, within));
            let all = Samples { fresh: Vec::new(), added: plain.clone() };
            assert_eq!(kept, all);
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
