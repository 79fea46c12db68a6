//! Histograms with fixed bucket bounds, as Prometheus keeps them.

use super::nearby::Nearby;

/// Counts of whole-numbered samples (nanoseconds, tokens) by upper bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    bounds: Box<[u64]>,
    counts: Box<[u64]>,
    sum: u128,
    last: Nearby,
}

impl Buckets {
    /// No samples yet; `bounds` are the inclusive upper ends, in ascending order.
    #[must_use]
    pub fn new(bounds: impl Into<Box<[u64]>>) -> Self {
        let bounds = bounds.into();
        debug_assert!(bounds.is_sorted(), "bucket bounds out of order");
        let counts = vec![0; bounds.len() + 1].into_boxed_slice();
        Self { bounds, counts, sum: 0, last: Nearby::default() }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: u64) {
        self.add_all(sample, 1, u128::from(sample));
    }

    /// Adds samples that are all in the bucket of `sample`, given their number and their sum.
    pub fn add_all(&mut self, sample: u64, count: u64, sum: u128) {
        if !self.last.holds(sample) {
            self.last = self.bucket(sample);
        }
        self.counts[self.last.place] += count;
        self.sum += sum;
    }

    /// Adds the samples of another histogram with the same bounds.
    pub fn add_from(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds, "histograms with other bounds");
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// The upper bound of the bucket of a sample; `None` for the last, which has none.
    #[must_use]
    pub fn bound(&self, sample: u64) -> Option<u64> {
        let bucket = if self.last.holds(sample) { self.last } else { self.bucket(sample) };
        self.bounds.get(bucket.place).copied()
    }

    fn bucket(&self, sample: u64) -> Nearby {
        let place = self.bounds.partition_point(|&bound| bound < sample);
        let least = place.checked_sub(1).map_or(0, |below| self.bounds[below] + 1);
        Nearby { place, least, most: self.bounds.get(place).copied().unwrap_or(u64::MAX) }
    }

    /// Samples added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Upper bounds with the number of samples up to each; the last has no bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        let mut upto = 0;
        bounds.zip(&self.counts).map(move |(bound, count)| {
            upto += count;
            (bound, upto)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_counts_cumulative() {
        let mut buckets = Buckets::new([10, 20]);
        for sample in [5, 10, 11, 20, 21, 99] {
            buckets.add(sample);
        }
        let cumulative: Vec<_> = buckets.cumulative().collect();
        assert_eq!(cumulative, [(Some(10), 2), (Some(20), 4), (None, 6)]);
        assert_eq!((buckets.count(), buckets.sum()), (6, 166));
    }
}
