//! A histogram of whole numbers of any size, in buckets of equal relative width.

/// Counts of samples by size, in 2^`BITS` buckets for each doubling. Samples below twice that
/// number are kept exactly, larger ones to half a bucket: 0.2 % with 8 bits, 0.1 % with 9. It takes
/// 8 bytes a bucket from the least sample's doubling to the largest's, 100 KB with 8 bits for
/// samples from 0 up to 2^58.
#[derive(Clone, Debug, Default)]
pub struct LogHistogram<const BITS: u32 = 8> {
    /// The first bucket that is kept: those below it have no samples.
    first: usize,
    counts: Vec<u64>,
    sum: u128,
}

impl<const BITS: u32> LogHistogram<BITS> {
    const PER_DOUBLING: u64 = 1 << BITS;

    /// Adds a sample.
    pub fn add(&mut self, sample: u64) {
        let bucket = Self::bucket(sample);
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => self.add_outside(bucket, 1),
        }
        self.sum += u128::from(sample);
    }

    /// Adds each of these.
    pub fn add_each(&mut self, samples: &[u64]) {
        let mut sum = 0;
        for &sample in samples {
            let bucket = Self::bucket(sample);
            match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
                Some(count) => *count += 1,
                None => self.add_outside(bucket, 1),
            }
            sum += u128::from(sample);
        }
        self.sum += sum;
    }

    /// Adds to a bucket that is not kept so far: whole doublings are, from the least sample's to
    /// the largest's.
    #[cold]
    fn add_outside(&mut self, bucket: usize, count: u64) {
        let doubling = 1 << BITS;
        let first = bucket / doubling * doubling;
        if self.counts.is_empty() {
            self.first = first;
        }
        let missing = self.first.saturating_sub(first);
        self.counts.splice(..0, std::iter::repeat_n(0, missing));
        self.first -= missing;
        let upto = (first + doubling - self.first).max(self.counts.len());
        self.counts.resize(upto, 0);
        self.counts[bucket - self.first] += count;
    }

    /// Adds all samples of another.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.numbered() {
            match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
                Some(mine) => *mine += count,
                None => self.add_outside(bucket, count),
            }
        }
        self.sum += other.sum;
    }

    /// What was added since it was as `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (bucket, count) in before.numbered() {
            if let Some(mine) = since.counts.get_mut(bucket.wrapping_sub(self.first)) {
                *mine -= count;
            }
        }
        since.sum -= before.sum;
        since
    }

    /// Every bucket that has samples, in ascending order: its number, and how many.
    fn numbered(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = (self.first..).zip(self.counts.iter().copied());
        counts.filter(|(_, count)| *count > 0)
    }

    /// Samples added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean, exactly. `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Every bucket that has samples, in ascending order: its middle, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.numbered().map(|(bucket, count)| (Self::middle(bucket), count))
    }

    /// The nearest-rank quantile, as the middle of its bucket. `None` without samples.
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<f64> {
        let total = self.count();
        let rank = super::quantile::ceil_of_share(p, total as f64) as u64;
        let rank = rank.clamp(1, total.max(1));
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        at.filter(|_| total > 0).map(|at| Self::middle(self.first + at))
    }

    fn bucket(sample: u64) -> usize {
        let doublings = (u64::BITS - sample.leading_zeros()).saturating_sub(BITS + 1);
        (u64::from(doublings) * Self::PER_DOUBLING + (sample >> doublings)) as usize
    }

    /// The middle of a bucket's samples.
    fn middle(bucket: usize) -> f64 {
        let bucket = bucket as u64;
        let doublings = (bucket / Self::PER_DOUBLING).saturating_sub(1);
        let first = (bucket - doublings * Self::PER_DOUBLING) as f64;
        let width = (doublings as f64).exp2();
        first * width + (width - 1.0) / 2.0
    }
}

/// The same samples, as far as buckets tell them apart.
impl<const BITS: u32> PartialEq for LogHistogram<BITS> {
    fn eq(&self, other: &Self) -> bool {
        self.sum == other.sum && self.numbered().eq(other.numbered())
    }
}

impl<const BITS: u32> Eq for LogHistogram<BITS> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_samples_does_not_matter() {
        let samples = [70_000, 3, 1 << 40, 900, 0, 5_000_000];
        let (mut up, mut down, mut merged) =
            (LogHistogram::<8>::default(), LogHistogram::default(), LogHistogram::default());
        let mut sorted = samples;
        sorted.sort_unstable();
        sorted.iter().for_each(|sample| up.add(*sample));
        sorted.reverse();
        down.add_each(&sorted);
        for sample in samples {
            let mut one = LogHistogram::default();
            one.add(sample);
            assert_ne!(merged, up);
            merged.merge(&one);
            merged.merge(&LogHistogram::default());
        }
        assert!(up == down && up == merged);
        assert_eq!((up.count(), up.buckets().count()), (6, 6));
    }

    #[test]
    fn small_samples_are_exact_and_large_ones_nearly() {
        for sample in (0..600).chain([1_023, 1_024, 68_000, 1 << 40, u64::MAX / 3]) {
            let mut one: LogHistogram = LogHistogram::default();
            one.add(sample);
            let found = one.quantile(0.5).unwrap();
            let off = (found - sample as f64).abs();
            assert!(
                if sample < 512 { off == 0.0 } else { off <= sample as f64 / 512.0 },
                "{sample}"
            );
        }
    }

    #[test]
    fn buckets_follow_one_another() {
        let mut last = 0;
        for sample in 0..5_000 {
            let at = LogHistogram::<8>::bucket(sample);
            assert!(at == last || at == last + 1, "{sample}");
            last = at;
        }
    }

    #[test]
    fn what_was_added_since() {
        let mut all: LogHistogram = LogHistogram::default();
        (0..50).for_each(|sample| all.add(sample));
        let before = all.clone();
        (1_000..1_100).for_each(|sample| all.add(sample));
        let since = all.since(&before);
        assert_eq!((since.count(), since.mean()), (100, Some(1_049.5)));
        assert!(since.quantile(0.0).unwrap() > 990.0);
    }

    #[test]
    fn ranks_and_mean_by_hand() {
        let mut odd: LogHistogram = LogHistogram::default();
        let mut even = LogHistogram::default();
        (1..=100)
            .for_each(|sample| if sample % 2 == 1 { odd.add(sample) } else { even.add(sample) });
        odd.merge(&even);
        assert_eq!((odd.count(), odd.mean()), (100, Some(50.5)));
        assert_eq!((odd.quantile(0.07), odd.quantile(0.5)), (Some(7.0), Some(50.0)));
        assert_eq!((odd.quantile(0.0), odd.quantile(1.0)), (Some(1.0), Some(100.0)));
        assert!(odd.buckets().map(|(at, count)| (at as u64, count)).eq((1..=100).map(|n| (n, 1))));
        let none: LogHistogram = LogHistogram::default();
        assert_eq!((none.quantile(0.5), none.mean()), (None, None));
    }
}
