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
    #[inline]
    #[must_use]
    pub fn whole(self) -> Span {
        Span((self.0 >> FRACTION_BITS) as u64)
    }

    /// What is left of it behind these.
    #[inline]
    fn rest(self) -> Carry {
        Carry(self.0 as u64 & ((1 << FRACTION_BITS) - 1))
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
    #[inline]
    pub fn step(&mut self, ticks: Ticks) -> Span {
        let all = Ticks(u128::from(self.0) + ticks.0);
        *self = all.rest();
        all.whole()
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
    #[inline]
    fn exact(&self, steps: u64) -> u128 {
        let is_short = (self.first.0 | self.slope.0) >> 64 == 0 && steps < 1 << 31;
        let sum = if is_short {
            // Nearly always: below four seconds a step. Short products are much faster.
            let pairs = steps * steps.saturating_sub(1) / 2;
            let (first, slope) = (self.first.0 as u64, self.slope.0 as u64);
            u128::from(steps) * u128::from(first) + u128::from(pairs) * u128::from(slope)
        } else {
            let pairs = u128::from(steps) * u128::from(steps.saturating_sub(1)) / 2;
            u128::from(steps) * self.first.0 + pairs * self.slope.0
        };
        u128::from(self.rest.0) + sum
    }

    /// The time of its first `steps` steps.
    #[must_use]
    pub fn sum(&self, steps: u64) -> Span {
        Ticks(self.exact(steps)).whole()
    }

    /// A way through its first `steps` steps.
    #[must_use]
    pub fn walk(&self, steps: u64) -> Walk {
        // One step more, since a walk looks ahead to the next.
        let is_short = steps < 1 << 31 && u64::try_from(self.exact(steps + 1)).is_ok();
        let Self { rest, first, slope } = *self;
        Walk(if is_short {
            Way::Short { passed: rest.0, next: first.0 as u64, slope: slope.0 as u64 }
        } else {
            Way::Long { passed: u128::from(rest.0), next: first.0, slope: slope.0 }
        })
    }

    /// What is carried on behind its first `steps` steps.
    #[must_use]
    pub fn rest_after(&self, steps: u64) -> Carry {
        Ticks(self.exact(steps)).rest()
    }

    /// The same steps without the first ones.
    #[must_use]
    pub fn skip(&self, steps: u64) -> Self {
        if steps == 0 {
            return *self;
        }
        let first = Ticks(self.first.0 + u128::from(steps) * self.slope.0);
        Self { rest: self.rest_after(steps), first, slope: self.slope }
    }

    /// How many of its first `steps` steps begin less than `gap` behind its start.
    #[must_use]
    pub fn begun(&self, gap: Span, steps: u64) -> u64 {
        let Some(before) = gap.0.checked_sub(1) else { return 0 };
        // None is shorter than the first, and none longer than the last that may have begun.
        let shortest = self.first.whole().0;
        let mut not = before.checked_div(shortest).map_or(steps, |most| steps.min(most + 1));
        let longest = Ticks(self.first.0 + u128::from(not) * self.slope.0).whole().0 + 1;
        let mut begun = not.min(before.saturating_sub(1) / longest + 1);
        while begun < not {
            let middle = begun + (not - begun) / 2;
            if self.sum(middle) < gap {
                begun = middle + 1;
            } else {
                not = middle;
            }
        }
        begun
    }

    /// How many of its first `steps` steps, from the first on, are `bound` or less, however they
    /// are rounded.
    #[must_use]
    pub fn steps_within(&self, bound: Span, steps: u64) -> u64 {
        let limit = u128::from(bound.0) << FRACTION_BITS;
        let last = self.first.0 + u128::from(steps.saturating_sub(1)) * self.slope.0;
        if last < limit {
            return steps;
        }
        if self.first.0 >= limit {
            return 0;
        }
        // The last one is longer than the first, so there is a slope.
        let room = limit - self.first.0;
        match (u64::try_from(room), u64::try_from(self.slope.0)) {
            (Ok(room), Ok(slope)) => room.div_ceil(slope),
            _ => room.div_ceil(self.slope.0) as u64,
        }
    }
}

/// A way through the steps of a series.
#[derive(Clone, Copy, Debug)]
pub struct Walk(Way);

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Of few seconds, nearly always: short products are much faster.
    Short {
        passed: u64,
        next: u64,
        slope: u64,
    },
    Long {
        passed: u128,
        next: u128,
        slope: u128,
    },
}

impl Walk {
    /// Passes so many more steps: the time of all that were passed, as [`Series::sum`] tells it.
    #[inline]
    pub fn pass(&mut self, steps: u64) -> Span {
        match &mut self.0 {
            Way::Short { passed, next, slope } => {
                if steps == 1 {
                    *passed += *next;
                    *next += *slope;
                } else {
                    *passed += steps * *next + steps * steps.saturating_sub(1) / 2 * *slope;
                    *next += steps * *slope;
                }
                Span(*passed >> FRACTION_BITS)
            }
            Way::Long { passed, next, slope } => {
                let steps = u128::from(steps);
                *passed += steps * *next + steps * steps.saturating_sub(1) / 2 * *slope;
                *next += steps * *slope;
                Ticks(*passed).whole()
            }
        }
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
            total += span;
        }
    }

    #[test]
    fn a_walk_passes_what_a_series_sums_up() {
        let first = Ticks::from_ms(7.123_456_789_1);
        let series = Series { rest: Carry(3_000_000_000), first, slope: Ticks(12_345_678_901) };
        // The short way ends at 2^32 ns, four seconds.
        for all in [600, 601, 602, 603, 604, 710, 1 << 40] {
            let (mut walk, mut steps) = (series.walk(all), 0);
            for next in [1, 1, 0, 5, 1, 591, 1, 1, 1, 1, 1, 100] {
                steps += next;
                if steps <= all {
                    assert_eq!(walk.pass(next), series.sum(steps), "{steps} of {all} steps");
                }
            }
        }
    }

    #[test]
    fn steps_within_a_bound_are_within_it_however_rounded() {
        let first = Ticks((10 << 32) + 5);
        let series = Series { rest: Carry(0), first, slope: Ticks(1 << 30) };
        // 10 ns and a bit, a quarter more each step: four are below 11 ns, eight below 12 ns.
        for (bound, steps) in [(9, 0), (10, 0), (11, 4), (12, 8), (13, 12), (100, 20)] {
            assert_eq!(series.steps_within(Span(bound), 20), steps, "{bound}");
        }
        let flat = Series { slope: Ticks(0), ..series };
        assert_eq!([10, 11].map(|bound| flat.steps_within(Span(bound), 7)), [0, 7]);
    }

    #[test]
    fn steps_have_begun_that_start_before() {
        let slopes = [0, 1 << 20, 3 << 30, 1 << 40].map(Ticks);
        for first in [Ticks(1 << 30), Ticks(1 << 32), Ticks((7 << 32) + 12_345)] {
            for slope in slopes {
                let series = Series { rest: Carry(u64::from(u32::MAX)), first, slope };
                for gap in 0..300 {
                    for steps in [0, 1, 2, 17, 40] {
                        let one_by_one = (0..steps).filter(|&step| series.sum(step) < Span(gap));
                        assert_eq!(series.begun(Span(gap), steps), one_by_one.count() as u64);
                    }
                }
            }
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
