//! What changes during a run, in stretches of time whose length follows that of the run.

use super::records::{CallOutcome, CallRecord};
use super::replica::StepUse;
use crate::units::{Span, Time};

/// A run has at most so many stretches, and more than half of them once it is long.
pub const STRETCHES_MAX: usize = 120;

/// Length of a stretch as long as the run is short.
const SHORTEST: Span = Span::from_secs(1);

/// Sums over stretches of equal length. Where a run goes on beyond the last of them, each two
/// become one, so that nothing need be known of its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretches<const N: usize> {
    length: Span,
    sums: Vec<[u128; N]>,
}

impl<const N: usize> Default for Stretches<N> {
    fn default() -> Self {
        Self { length: SHORTEST, sums: Vec::new() }
    }
}

impl<const N: usize> Stretches<N> {
    /// Length of each.
    #[must_use]
    pub fn length(&self) -> Span {
        self.length
    }

    /// The sums of the stretch of this number; nothing behind the last that anything is in.
    #[must_use]
    pub fn sums(&self, number: usize) -> [u128; N] {
        self.sums.get(number).copied().unwrap_or([0; N])
    }

    /// Makes stretches so long, or the next power of two of seconds.
    pub fn widen(&mut self, length: Span) {
        while self.length < length {
            self.halve();
        }
    }

    /// What happened at `at`.
    pub fn add(&mut self, at: Time, amounts: [u64; N]) {
        let number = self.number(at);
        for (sum, amount) in self.sums[number].iter_mut().zip(amounts) {
            *sum += u128::from(amount);
        }
    }

    /// What lasted from `start` to `end`, each level times how long.
    pub fn add_levels(&mut self, start: Time, end: Time, levels: [u64; N]) {
        if end <= start {
            return;
        }
        self.number(Time(end.0 - 1));
        let mut at = start;
        while at < end {
            let number = (at.0 / self.length.0) as usize;
            let until = end.0.min((at.0 / self.length.0 + 1).saturating_mul(self.length.0));
            for (sum, level) in self.sums[number].iter_mut().zip(levels) {
                *sum += u128::from(level) * u128::from(until - at.0);
            }
            at = Time(until);
        }
    }

    /// The stretch that an instant lies in, made if it is not there.
    fn number(&mut self, at: Time) -> usize {
        while at.0 / self.length.0 >= STRETCHES_MAX as u64 {
            self.halve();
        }
        let number = (at.0 / self.length.0) as usize;
        if self.sums.len() <= number {
            self.sums.resize(number + 1, [0; N]);
        }
        number
    }

    fn halve(&mut self) {
        let pair = |pair: &[[u128; N]]| {
            let mut both = pair[0];
            for other in &pair[1..] {
                both.iter_mut().zip(other).for_each(|(sum, more)| *sum += more);
            }
            both
        };
        self.sums = self.sums.chunks(2).map(pair).collect();
        self.length = Span(self.length.0.saturating_mul(2));
    }
}

/// One replica over time: block, running and waiting nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct UseOverTime(pub Stretches<3>);

impl UseOverTime {
    /// A step lasted from `at` to `end`.
    pub fn step(&mut self, at: Time, end: Time, step: &StepUse) {
        self.0.add_levels(at, end, [step.used_blocks.0, step.running, step.waiting]);
    }
}

/// The hits of a whole fleet over time: tokens found in a cache and tokens of prompts, of calls
/// when they were first scheduled.
#[derive(Clone, Debug, Default)]
pub struct HitsOverTime(pub Stretches<2>);

impl HitsOverTime {
    /// A call has ended.
    pub fn call(&mut self, call: &CallRecord) {
        if call.outcome == CallOutcome::Completed {
            self.0.add(call.scheduled, [call.cached.0, call.prompt.0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u64) -> Time {
        Time::ZERO + Span::from_secs(at)
    }

    #[test]
    fn levels_are_shared_out_by_time() {
        let mut one = Stretches::<1>::default();
        let half = Span(SHORTEST.0 / 2);
        one.add_levels(second(1) + half, second(4), [2]);
        let nanos = u128::from(SHORTEST.0);
        assert_eq!([0, 1, 2, 3, 4].map(|n| one.sums(n)[0]), [0, nanos, 2 * nanos, 2 * nanos, 0]);
    }

    #[test]
    fn a_long_run_has_long_stretches_and_loses_nothing() {
        let mut one = Stretches::<1>::default();
        (0..1_000).for_each(|at| one.add(second(at), [1]));
        assert_eq!(one.length(), Span::from_secs(16));
        assert_eq!(one.sums(0), [16]);
        assert_eq!((0..STRETCHES_MAX).map(|n| one.sums(n)[0]).sum::<u128>(), 1_000);
        one.widen(Span::from_secs(64));
        assert_eq!((one.length(), one.sums(15)), (Span::from_secs(64), [40]));
    }
}
