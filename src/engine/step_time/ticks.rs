//! Step times as whole numbers, so that many steps add up exactly.
//!
//! A step's time is kept in *ticks* of 2^-32 ns. What does not fill a nanosecond is carried to the
//! engine's next step, so the time of any number of steps is the sum of their ticks, rounded once.
//! While the same requests decode or the same chunk size is prefilled, each step takes the same
//! number of ticks longer than the one before: an arithmetic series.

use crate::units::Span;

/// Binary digits behind the nanosecond.
const FRACTION_BITS: u32 = 32;

/// A length of time in units of 2^-32 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u128);

impl Ticks {
    /// This many milliseconds, rounded. A float-to-int cast saturates.
    pub(super) fn from_ms(ms: f64) -> Self {
        const TICKS_PER_MS: f64 = 1e6 * (1u64 << FRACTION_BITS) as f64;
        Self((ms * TICKS_PER_MS).round() as u128)
    }

    /// Whole nanoseconds in it.
    #[must_use]
    pub fn whole(self) -> Span {
        Span((self.0 >> FRACTION_BITS) as u64)
    }
}

/// What is left of the steps so far: less than a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carry(u64);

/// Half a nanosecond, so that sums are rounded rather than cut off.
impl Default for Carry {
    fn default() -> Self {
        Self(1 << (FRACTION_BITS - 1))
    }
}

impl Carry {
    /// The span of the next step.
    pub fn step(&mut self, ticks: Ticks) -> Span {
        let series = Series { rest: *self, first: ticks, slope: Ticks(0) };
        *self = series.rest_after(1);
        series.sum(1)
    }
}

/// Steps of which each takes `slope` longer than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// What is carried into the first step.
    pub rest: Carry,
    /// The time of the first step.
    pub first: Ticks,
    /// By how much each step is longer than the one before.
    pub slope: Ticks,
}

impl Series {
    fn exact(&self, steps: u64) -> u128 {
        let pairs = u128::from(steps) * u128::from(steps.saturating_sub(1)) / 2;
        u128::from(self.rest.0) + u128::from(steps) * self.first.0 + pairs * self.slope.0
    }

    /// The time of its first `steps` steps.
    #[must_use]
    pub fn sum(&self, steps: u64) -> Span {
        Ticks(self.exact(steps)).whole()
    }

    /// What is carried on behind its first `steps` steps.
    #[must_use]
    pub fn rest_after(&self, steps: u64) -> Carry {
        Carry(self.exact(steps) as u64 & ((1 << FRACTION_BITS) - 1))
    }

    /// The same steps without the first ones.
    #[must_use]
    pub fn skip(&self, steps: u64) -> Self {
        let first = Ticks(self.first.0 + u128::from(steps) * self.slope.0);
        Self { rest: self.rest_after(steps), first, slope: self.slope }
    }

    /// The shortest and the longest that one of its first `steps` steps can be.
    #[must_use]
    pub fn bounds(&self, steps: u64) -> (Span, Span) {
        let last = self.first.0 + u128::from(steps.saturating_sub(1)) * self.slope.0;
        (self.first.whole(), Ticks(last).whole() + Span(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_its_steps_one_by_one() {
        let first = Ticks::from_ms(7.123_456_789_1);
        let series = Series { rest: Carry(3_000_000_000), first, slope: Ticks(12_345_678_901) };
        let (mut carry, mut total) = (series.rest, Span::ZERO);
        for step in 0..1_000 {
            assert_eq!((series.sum(step), series.rest_after(step)), (total, carry));
            let rest = series.skip(step);
            let span = carry.step(rest.first);
            assert_eq!(rest.sum(1), span);
            let (least, most) = series.skip(step).bounds(1);
            assert!((least..=most).contains(&span));
            total += span;
        }
    }

    #[test]
    fn no_time_is_lost_between_steps() {
        let mut carry = Carry(0);
        let third = Ticks((1 << 32) / 3 + 1);
        let spans: Vec<u64> = (0..6).map(|_| carry.step(third).0).collect();
        assert_eq!(spans, [0, 0, 1, 0, 0, 1]);
    }
}
