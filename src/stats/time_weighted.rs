//! How long a level stood where: used KV blocks, running requests, queue length.

use std::fmt;
use std::num::NonZeroU64;

use super::quantile::ceil_of_share;
use crate::units::Span;

/// Bins between an empty and a full capacity, so that one bin is 0.1 % of it.
const BINS: u64 = 1_000;

/// A piecewise-constant whole-numbered level between 0 and a known capacity, summed up over time.
///
/// Bin 0 holds the time spent at level 0 and bin `b` the time above `b - 1` and up to `b`
/// thousandths of the capacity. Mean, maximum and the share of time above a whole number of
/// thousandths are exact; quantiles are exact up to a capacity of 1,000 and too high by less than
/// 0.1 % of the capacity beyond. Adding takes no memory.
#[derive(Clone)]
pub struct TimeWeighted {
    capacity: u64,
    /// 2^64 over the capacity, rounded up: multiplying is much faster than dividing. None where
    /// that would not give the same.
    inverse: Option<NonZeroU64>,
    /// The bin of the last level above 0.
    last: usize,
    /// Time in it that is not in `bins` so far, and time at 0, which never is: where many levels
    /// are added to in turn, one that need not look at its bins is much faster.
    fresh: Span,
    at_zero: Span,
    total: Span,
    max: u64,
    /// Level times nanoseconds.
    area: u128,
    bins: Box<[Span]>,
}

impl fmt::Debug for TimeWeighted {
    /// What was seen, wherever it is kept.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TimeWeighted")
            .field("capacity", &self.capacity)
            .field("total", &self.total)
            .field("max", &self.max)
            .field("area", &self.area)
            .field("bins", &self.times().collect::<Vec<_>>())
            .finish()
    }
}

impl TimeWeighted {
    /// Nothing seen yet, of something that holds at most `capacity`.
    ///
    /// # Panics
    /// If the capacity is zero.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        assert!(capacity > 0, "a level without capacity cannot be measured against it");
        let bins = vec![Span::ZERO; BINS as usize + 1].into_boxed_slice();
        Self {
            capacity,
            inverse: inverse(capacity),
            last: 0,
            fresh: Span::ZERO,
            at_zero: Span::ZERO,
            total: Span::ZERO,
            max: 0,
            area: 0,
            bins,
        }
    }

    /// The level stood at `level` for `span`. A span of zero leaves no mark, not even on the
    /// maximum: the level was never seen to stand there.
    ///
    /// # Panics
    /// If the level is above the capacity.
    #[inline]
    pub fn add(&mut self, level: u64, span: Span) {
        assert!(level <= self.capacity, "level {level} above a capacity of {}", self.capacity);
        self.total += span;
        if level == 0 || span == Span::ZERO {
            self.at_zero += span;
            return;
        }
        let bin = self.bin(level);
        if bin != self.last {
            self.bins[self.last] += self.fresh;
            (self.last, self.fresh) = (bin, Span::ZERO);
        }
        self.fresh += span;
        self.area += u128::from(level) * u128::from(span.0);
        self.max = self.max.max(level);
    }

    /// The level stood at one after the other: the same as adding each, but faster.
    ///
    /// # Panics
    /// If a level is above the capacity.
    pub fn add_each(&mut self, levels: impl Iterator<Item = (u64, Span)>) {
        // What is still to be added to the last bin, and to the sums.
        let (mut last, mut fresh) = (self.last, self.fresh);
        let (mut total, mut area, mut max, mut highest) = (Span::ZERO, 0, self.max, 0);
        for (level, span) in levels {
            highest = highest.max(level);
            total += span;
            if level == 0 || span == Span::ZERO {
                self.at_zero += span;
                continue;
            }
            let bin = self.bin(level);
            if bin != last {
                self.bins[last] += fresh;
                (last, fresh) = (bin, Span::ZERO);
            }
            fresh += span;
            area += u128::from(level) * u128::from(span.0);
            max = max.max(level);
        }
        assert!(highest <= self.capacity, "level {highest} above a capacity of {}", self.capacity);
        (self.last, self.fresh, self.max) = (last, fresh, max);
        self.total += total;
        self.area += area;
    }

    /// The bin of a level.
    #[inline]
    fn bin(&self, level: u64) -> usize {
        match self.inverse {
            Some(inverse) => {
                let rounding_up = level.wrapping_mul(BINS).wrapping_add(self.capacity - 1);
                ((u128::from(rounding_up) * u128::from(inverse.get())) >> u64::BITS) as usize
            }
            None => self.divided(level),
        }
    }

    /// The same by a division.
    #[cold]
    fn divided(&self, level: u64) -> usize {
        (u128::from(level) * u128::from(BINS)).div_ceil(u128::from(self.capacity)) as usize
    }

    /// Time by bin.
    fn times(&self) -> impl Iterator<Item = Span> + '_ {
        let also = |place| {
            let fresh = if place == self.last { self.fresh } else { Span::ZERO };
            if place == 0 { fresh + self.at_zero } else { fresh }
        };
        self.bins.iter().enumerate().map(move |(place, span)| *span + also(place))
    }

    /// Adds everything that another level of the same capacity has seen.
    ///
    /// # Panics
    /// If the capacities differ.
    pub fn absorb(&mut self, other: &Self) {
        assert_eq!(self.capacity, other.capacity, "levels of different capacities");
        for (mine, theirs) in self.bins.iter_mut().zip(other.times()) {
            *mine += theirs;
        }
        self.total += other.total;
        self.area += other.area;
        self.max = self.max.max(other.max);
    }

    /// The capacity that levels are measured against.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Time seen in all.
    #[must_use]
    pub const fn total(&self) -> Span {
        self.total
    }

    /// The highest level that stood for any time. `None` if no time was seen.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.seen().then_some(self.max)
    }

    /// The mean level over time. `None` if no time was seen.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.seen().then(|| self.area as f64 / self.total.as_f64())
    }

    /// The level that was not exceeded for a share `p` of the time, as the highest level of the
    /// bin that it lies in. `None` if no time was seen.
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<u64> {
        let wanted = Span(ceil_of_share(p, self.total.as_f64()) as u64).max(Span(1));
        let mut passed = Span::ZERO;
        let bin = self.times().position(|span| {
            passed += span;
            passed >= wanted.min(self.total)
        });
        let bin = bin.filter(|_| self.seen())?;
        let highest = bin as u128 * u128::from(self.capacity) / u128::from(BINS);
        Some((highest as u64).min(self.max))
    }

    /// The share of time that the level was above `bins` thousandths of the capacity, exactly.
    /// `None` if no time was seen.
    #[must_use]
    pub fn share_above(&self, bins: usize) -> Option<f64> {
        let above: Span = self.times().skip(bins + 1).sum();
        self.seen().then(|| above.as_f64() / self.total.as_f64())
    }

    fn seen(&self) -> bool {
        self.total > Span::ZERO
    }
}

/// 2^64 over a capacity, rounded up, if a product with it can stand for a division: a numerator
/// times it is too much by less than the numerator over 2^64, which must not be as much as one over
/// the capacity.
fn inverse(capacity: u64) -> Option<NonZeroU64> {
    let largest = capacity.checked_mul(BINS + 1)?;
    largest.checked_mul(capacity)?;
    NonZeroU64::new((u64::MAX / capacity).checked_add(1)?)
}

/// The same time at the same levels, as far as bins tell them apart.
impl PartialEq for TimeWeighted {
    fn eq(&self, other: &Self) -> bool {
        let sums = |of: &Self| (of.capacity, of.total, of.max, of.area);
        sums(self) == sums(other) && self.times().eq(other.times())
    }
}

impl Eq for TimeWeighted {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absorbing_is_seeing_both() {
        let (mut one, mut other, mut both) =
            (TimeWeighted::new(10), TimeWeighted::new(10), TimeWeighted::new(10));
        for (level, span) in [(3, Span(7)), (9, Span(2))] {
            one.add(level, span);
            both.add(level, span);
        }
        other.add(5, Span(4));
        both.add(5, Span(4));
        one.absorb(&other);
        assert_eq!(one, both);
    }

    #[test]
    fn one_after_the_other_is_each() {
        for capacity in [1, 7, 999, 1_000, 1_001, 27_000, u64::MAX / 3] {
            let step = capacity / 4_321 + 1;
            let levels = (0..9_000u64).map(|at| {
                let level = (at * step).min(capacity) / (1 + at % 3 / 2);
                (level, Span(at % 5 * 7))
            });
            let (mut each, mut together) =
                (TimeWeighted::new(capacity), TimeWeighted::new(capacity));
            levels.clone().for_each(|(level, span)| each.add(level, span));
            together.add_each(levels);
            assert_eq!(each, together);
        }
    }

    #[test]
    fn multiplying_tells_the_same_bin_as_dividing() {
        let widest = 1 << 27;
        let around = (1..70).chain(990..1_010).chain(26_990..27_010).chain(widest - 3..widest + 3);
        let mut by_product = 0;
        for capacity in around.chain([7_919 * 8_191, 1 << 26, (1 << 26) + 1, u64::MAX]) {
            let level = TimeWeighted::new(capacity);
            by_product += u64::from(level.inverse.is_some());
            // The first and the last of each bin, and what is beside them.
            for bin in 0..=BINS {
                let last = (u128::from(bin) * u128::from(capacity) / u128::from(BINS)) as u64;
                for at in last.saturating_sub(2)..=last.saturating_add(2).min(capacity) {
                    assert_eq!(level.bin(at), level.divided(at), "{at} of {capacity}");
                }
            }
        }
        assert!(by_product > 100, "{by_product}");
    }

    #[test]
    fn whatever_is_added_how_the_times_are_those_of_every_level() {
        for capacity in [1, 13, 999, 1_000, 1_001, 27_000, u64::MAX / 1_002, u64::MAX] {
            // A walk of small steps and jumps, with rests at 0 and at the top.
            let levels = (0..5_000u64).map(|at| match at % 11 {
                0 => 0,
                1 => capacity,
                step => (capacity / 700 * (at / 7 % 700) + step).min(capacity),
            });
            let levels: Vec<_> =
                levels.zip(0u64..).map(|(level, at)| (level, Span(at * at % 97))).collect();
            let mut plain = vec![Span::ZERO; BINS as usize + 1];
            let (mut area, mut max, mut total) = (0, 0, Span::ZERO);
            let (mut found, mut other) = (TimeWeighted::new(capacity), TimeWeighted::new(capacity));
            for (number, some) in levels.chunks(37).enumerate() {
                for (level, span) in some.iter().filter(|(_, span)| *span > Span::ZERO) {
                    let bin = (u128::from(*level) * 1_000).div_ceil(capacity.into());
                    plain[bin as usize] += *span;
                    total += *span;
                    area += u128::from(*level) * u128::from(span.0);
                    max = max.max(*level);
                }
                match number % 3 {
                    0 => some.iter().for_each(|(level, span)| found.add(*level, *span)),
                    1 => found.add_each(some.iter().copied()),
                    _ => other.add_each(some.iter().copied()),
                }
                let mut both = other.clone();
                both.absorb(&found);
                assert!(both.times().eq(plain.iter().copied()), "{capacity}, {number}");
                assert_eq!((both.area, both.max, both.total), (area, max, total));
                found.absorb(&TimeWeighted::new(capacity));
            }
            for share in [0, 1, 500, 999] {
                let above: Span = plain[share + 1..].iter().copied().sum();
                other.absorb(&found);
                let both = std::mem::replace(&mut other, TimeWeighted::new(capacity));
                assert_eq!(both.share_above(share), Some(above.as_f64() / total.as_f64()));
                found = both;
            }
        }
    }

    #[test]
    #[should_panic(expected = "above a capacity")]
    fn more_than_the_capacity_is_a_bug_one_after_the_other_as_well() {
        TimeWeighted::new(5_000).add_each([(5_000, Span(1)), (5_001, Span(1))].into_iter());
    }

    #[test]
    fn by_hand() {
        let mut level = TimeWeighted::new(10);
        level.add(0, Span(50));
        level.add(4, Span(30));
        level.add(9, Span(20));
        assert_eq!(level.total(), Span(100));
        assert_eq!(level.mean(), Some(3.0));
        assert_eq!(level.max(), Some(9));
        for (p, expected) in [(0.0, 0), (0.5, 0), (0.51, 4), (0.8, 4), (0.81, 9), (1.0, 9)] {
            assert_eq!(level.quantile(p), Some(expected), "p = {p}");
        }
        assert_eq!(level.share_above(0), Some(0.5));
        assert_eq!(level.share_above(399), Some(0.5));
        assert_eq!(level.share_above(400), Some(0.2));
        assert_eq!(level.share_above(900), Some(0.0));
        assert_eq!(level.share_above(5_000), Some(0.0));
    }

    #[test]
    fn at_the_threshold_is_not_above_it() {
        let mut level = TimeWeighted::new(20_000);
        level.add(19_000, Span(3));
        level.add(19_001, Span(1));
        assert_eq!(level.share_above(950), Some(0.25));
        assert_eq!(level.share_above(951), Some(0.0));
    }

    #[test]
    fn a_quantile_is_less_than_a_bin_too_high_and_never_above_the_maximum() {
        let mut level = TimeWeighted::new(1_000_000);
        level.add(1, Span(9));
        level.add(500_001, Span(1));
        assert_eq!(level.quantile(0.5), Some(1_000));
        assert_eq!(level.quantile(1.0), Some(500_001));
    }

    #[test]
    fn small_capacities_are_exact() {
        for capacity in [1, 3, 7, 999, 1_000] {
            let mut level = TimeWeighted::new(capacity);
            (0..=capacity).for_each(|at| level.add(at, Span(1)));
            for at in 0..=capacity {
                let p = (at + 1) as f64 / (capacity + 1) as f64;
                assert_eq!(level.quantile(p), Some(at), "{at} of {capacity}");
            }
        }
    }

    #[test]
    fn no_time_no_figure() {
        let mut level = TimeWeighted::new(10);
        level.add(10, Span::ZERO);
        assert_eq!((level.mean(), level.max()), (None, None));
        assert_eq!((level.quantile(0.5), level.share_above(0)), (None, None));
    }

    #[test]
    fn a_year_at_full_capacity_does_not_overflow() {
        let mut level = TimeWeighted::new(u64::MAX);
        level.add(u64::MAX, Span::from_secs(365 * 86_400));
        assert_eq!(level.max(), Some(u64::MAX));
        assert_eq!(level.quantile(0.99), Some(u64::MAX));
        assert_eq!(level.share_above(999), Some(1.0));
    }

    #[test]
    #[should_panic(expected = "above a capacity")]
    fn more_than_the_capacity_is_a_bug() {
        TimeWeighted::new(10).add(11, Span(1));
    }
}
