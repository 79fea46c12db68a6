//! Histograms with fixed bucket bounds, as Prometheus keeps them.

use super::nearby::Nearby;

/// Counts of whole-numbered samples (nanoseconds, tokens) by upper bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    bounds: Box<[u64]>,
    /// By binary digits of a sample: the first bucket that it may be in.
    by_digits: [u8; u64::BITS as usize + 1],
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
        let by_digits = std::array::from_fn(|digits| {
            let least = (digits as u32).checked_sub(1).map_or(0, |zeros| 1 << zeros);
            let first = bounds.partition_point(|&bound| bound < least);
            u8::try_from(first).unwrap_or(u8::MAX)
        });
        Self { bounds, by_digits, counts, sum: 0, last: Nearby::default() }
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

    /// The least and the greatest sample of the bucket of this one.
    #[must_use]
    pub fn around(&self, sample: u64) -> (u64, u64) {
        let Nearby { least, most, .. } = self.bucket(sample);
        (least, most)
    }

    fn bucket(&self, sample: u64) -> Nearby {
        let digits = u64::BITS - sample.leading_zeros();
        let mut place = usize::from(self.by_digits[digits as usize]);
        while self.bounds.get(place).is_some_and(|&bound| bound < sample) {
            place += 1;
        }
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

    #[test]
    fn every_sample_finds_its_bucket() {
        let bounds = [0, 1, 3, 4, 5, 6, 7, 8, 1_000, 1_024, 1_025, 1 << 40, u64::MAX - 1];
        for sample in (0..1_100).chain([1 << 40, (1 << 40) + 1, u64::MAX - 1, u64::MAX]) {
            let mut buckets = Buckets::new(bounds);
            buckets.add(sample);
            let before = bounds.iter().take_while(|&&bound| bound < sample).count();
            let found = buckets.cumulative().position(|(_, upto)| upto > 0);
            assert_eq!(found, Some(before), "{sample}");
        }
    }
}
