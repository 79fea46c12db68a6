//! Samples that fall into one bucket of a histogram again and again, counted beside it.

use crate::stats::Buckets;

/// What is still to be added to one bucket. The histogram itself lies far away, with thousands of
/// engines; this lies with what a step needs anyway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    sum: u128,
    count: u64,
    /// The least and the greatest sample of the bucket.
    least: u64,
    most: u64,
}

impl Default for Counted {
    /// No bucket.
    fn default() -> Self {
        Self { sum: 0, count: 0, least: 1, most: 0 }
    }
}

impl Counted {
    /// Adds samples that are all in the bucket of `sample`, given their number and their sum.
    #[inline]
    pub(super) fn add_all(&mut self, buckets: &mut Buckets, sample: u64, count: u64, sum: u128) {
        self.most_beside(buckets, sample);
        self.count += count;
        self.sum += sum;
    }

    /// The greatest sample that is in the bucket of this one. What is added next may be that.
    #[inline]
    pub(super) fn most_beside(&mut self, buckets: &mut Buckets, sample: u64) -> u64 {
        if !(self.least <= sample && sample <= self.most) {
            self.add_to(buckets);
            (self.count, self.sum) = (0, 0);
            (self.least, self.most) = buckets.around(sample);
        }
        self.most
    }

    /// Adds what was counted to the histogram.
    pub(super) fn add_to(&self, buckets: &mut Buckets) {
        if self.count > 0 {
            buckets.add_all(self.least, self.count, self.sum);
        }
    }
}
