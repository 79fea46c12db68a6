//! Histograms with fixed bucket bounds, as Prometheus keeps them.

use std::fmt;
use std::sync::Arc;

use super::nearby::Nearby;

/// Counts of whole-numbered samples (nanoseconds, tokens) by upper bound.
#[derive(Clone)]
pub struct Buckets {
    sum: u128,
    last: Nearby,
    /// Samples in the bucket of the last one that are not in `counts` so far: where many histograms
    /// are added to in turn, one that need not look at its counts is much faster.
    fresh: u64,
    counts: Box<[u64]>,
    bounds: Arc<Bounds>,
}

/// Inclusive upper ends in ascending order, shared by clones.
#[derive(Debug, PartialEq, Eq)]
struct Bounds {
    /// By binary digits of a sample: the first bucket that it may be in.
    by_digits: [u8; u64::BITS as usize + 1],
    upper: Box<[u64]>,
}

impl Bounds {
    fn bucket(&self, sample: u64) -> Nearby {
        let digits = u64::BITS - sample.leading_zeros();
        let mut place = usize::from(self.by_digits[digits as usize]);
        while self.upper.get(place).is_some_and(|&bound| bound < sample) {
            place += 1;
        }
        let least = place.checked_sub(1).map_or(0, |below| self.upper[below] + 1);
        Nearby { place, least, most: self.upper.get(place).copied().unwrap_or(u64::MAX) }
    }
}

impl fmt::Debug for Buckets {
    /// What was added, wherever it is kept.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Buckets")
            .field("sum", &self.sum)
            .field("counts", &self.counts().collect::<Vec<_>>())
            .field("bounds", &self.bounds.upper)
            .finish()
    }
}

impl Buckets {
    /// No samples yet; `bounds` are the inclusive upper ends, in ascending order.
    #[must_use]
    pub fn new(bounds: impl Into<Box<[u64]>>) -> Self {
        let upper = bounds.into();
        debug_assert!(upper.is_sorted(), "bucket bounds out of order");
        let counts = vec![0; upper.len() + 1].into_boxed_slice();
        let by_digits = std::array::from_fn(|digits| {
            let least = (digits as u32).checked_sub(1).map_or(0, |zeros| 1 << zeros);
            let first = upper.partition_point(|&bound| bound < least);
            u8::try_from(first).unwrap_or(u8::MAX)
        });
        let bounds = Arc::new(Bounds { by_digits, upper });
        Self { sum: 0, last: Nearby::default(), fresh: 0, counts, bounds }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: u64) {
        self.add_all(sample, 1, u128::from(sample));
    }

    /// Adds samples that are all in the bucket of `sample`, given their number and their sum.
    #[inline]
    pub fn add_all(&mut self, sample: u64, count: u64, sum: u128) {
        if !self.last.holds(sample) {
            self.turn_to(sample);
        }
        self.fresh += count;
        self.sum += sum;
    }

    /// Adds a sample that says nothing of where the next ones are.
    pub fn add_apart(&mut self, sample: u64) {
        self.counts[self.bounds.bucket(sample).place] += 1;
        self.sum += u128::from(sample);
    }

    /// The next samples are in the bucket of this one.
    fn turn_to(&mut self, sample: u64) {
        self.counts[self.last.place] += self.fresh;
        self.fresh = 0;
        self.last = self.bounds.bucket(sample);
    }

    /// Adds the samples of another histogram with the same bounds.
    pub fn add_from(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds, "histograms with other bounds");
        for (count, more) in self.counts.iter_mut().zip(other.counts()) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// The upper bound of the bucket of a sample; `None` for the last, which has none.
    #[must_use]
    pub fn bound(&self, sample: u64) -> Option<u64> {
        let bucket = if self.last.holds(sample) { self.last } else { self.bounds.bucket(sample) };
        // A last bucket that ends with the greatest number holds every sample, bound or not.
        (bucket.most < u64::MAX).then_some(bucket.most)
    }

    /// All counts, by bucket.
    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        let fresh = |place| if place == self.last.place { self.fresh } else { 0 };
        self.counts.iter().enumerate().map(move |(place, count)| count + fresh(place))
    }

    /// Samples added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Upper bounds with the number of samples up to each; the last has no bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let bounds = self.bounds.upper.iter().copied().map(Some).chain([None]);
        let mut upto = 0;
        bounds.zip(self.counts()).map(move |(bound, count)| {
            upto += count;
            (bound, upto)
        })
    }
}

/// The same samples, as far as buckets tell them apart.
impl PartialEq for Buckets {
    fn eq(&self, other: &Self) -> bool {
        let same = self.sum == other.sum && self.bounds == other.bounds;
        same && self.counts().eq(other.counts())
    }
}

impl Eq for Buckets {}

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
    #[test]
    fn what_was_added_together_is_what_was_added_one_by_one() {
        let none = Buckets::new([10, 20, 1_000]);
        let (mut one_by_one, mut together, mut parts) = (none.clone(), none.clone(), none.clone());
        for sample in [7, 3, 11, 11, 20, 4_000, 4_000, 5, 5, 21] {
            for _ in 0..3 {
                one_by_one.add(sample);
            }
            together.add_all(sample, 3, 3 * u128::from(sample));
            let mut part = none.clone();
            part.add_all(sample, 3, 3 * u128::from(sample));
            parts.add_from(&part);
            assert_eq!((&parts, together.count()), (&together, one_by_one.count()), "{sample}");
            assert_eq!(one_by_one, together, "{sample}");
            assert!(one_by_one.cumulative().eq(together.cumulative()), "{sample}");
        }
    }
}
