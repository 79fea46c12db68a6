//! The cores of a pod, shared equally by everything that runs on them.
//!
//! A job takes one core at most, so `n` jobs on `c` cores go at full speed while `n <= c` and at
//! `c/n` of it beyond, as a fair scheduler gives them. All jobs go equally fast, so one clock of
//! work done by each of them tells when the next one ends.

use std::collections::BTreeSet;

use crate::units::{Span, Time};

/// Parts of a nanosecond in which work is counted.
const FINE: u128 = 1 << 16;

/// A job, by the number that [`Cores::start`] was given.
type JobId = u64;

/// Cores with the jobs on them.
#[derive(Clone, Debug)]
pub struct Cores {
    millicores: u64,
    /// Work that each job has had since the beginning, in parts of a nanosecond.
    clock: u128,
    since: Time,
    /// The clock at which each job is done.
    jobs: BTreeSet<(u128, JobId)>,
    /// Core time used, in parts of a nanosecond.
    used: u128,
}

impl Cores {
    /// Idle cores, so many thousandths of one.
    ///
    /// # Panics
    /// If there is none: nothing would ever end.
    #[must_use]
    pub fn new(millicores: u32, now: Time) -> Self {
        assert!(millicores > 0, "no jobs end on no core");
        Self {
            millicores: u64::from(millicores),
            clock: 0,
            since: now,
            jobs: BTreeSet::new(),
            used: 0,
        }
    }

    /// Speed of a job as a fraction: so many parts in a thousand times the number of jobs.
    fn speed(&self) -> (u128, u128) {
        let jobs = self.jobs.len() as u128;
        let full = jobs * 1_000;
        (full.min(u128::from(self.millicores)), full.max(1))
    }

    /// Lets the time up to `now` pass.
    fn pass(&mut self, now: Time) {
        let span = u128::from(now.saturating_since(self.since).0) * FINE;
        let (numerator, denominator) = self.speed();
        let gone = span * numerator / denominator;
        self.clock += gone;
        self.used += gone * self.jobs.len() as u128;
        self.since = self.since.max(now);
    }

    /// Puts a job on the cores. Numbers of running jobs must differ.
    pub fn start(&mut self, now: Time, job: JobId, work: Span) {
        self.pass(now);
        self.jobs.insert((self.clock + u128::from(work.0) * FINE, job));
    }

    /// When the next job is done, if nothing changes until then.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let (done, _) = self.jobs.first()?;
        let (numerator, denominator) = self.speed();
        let left = done.saturating_sub(self.clock);
        let nanos = (left * denominator).div_ceil(numerator * FINE);
        Some(self.since + Span(u64::try_from(nanos).unwrap_or(u64::MAX >> 1)))
    }

    /// Takes a job off that is done now, the one with the lowest number of several.
    pub fn finish(&mut self, now: Time) -> Option<JobId> {
        self.pass(now);
        let (done, job) = *self.jobs.first()?;
        // What is left of a nanosecond does not show in whole ones.
        if done > self.clock + FINE {
            return None;
        }
        self.jobs.remove(&(done, job));
        Some(job)
    }

    /// Jobs that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.jobs.len()
    }

    /// Core time used up to `now`.
    #[must_use]
    pub fn used(&self, now: Time) -> Span {
        let mut copy = self.clone();
        copy.pass(now);
        Span(u64::try_from(copy.used / FINE).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cores: u32, works: &[u64]) -> Vec<(u64, f64)> {
        let mut pod = Cores::new(cores, Time::ZERO);
        for (job, work) in (0..).zip(works) {
            pod.start(Time::ZERO, job, Span::from_millis(*work));
        }
        let mut ends = Vec::new();
        while let Some(at) = pod.next() {
            while let Some(job) = pod.finish(at) {
                ends.push((job, (at.secs() * 1e6).round() / 1e3));
            }
        }
        ends
    }

    #[test]
    fn jobs_below_the_number_of_cores_run_at_full_speed() {
        assert_eq!(run(4_000, &[100, 50, 100]), [(1, 50.0), (0, 100.0), (2, 100.0)]);
    }

    #[test]
    fn jobs_beyond_it_share_them() {
        assert_eq!(run(1_000, &[100, 100]), [(0, 200.0), (1, 200.0)]);
        // Both at half speed until the short one is done.
        assert_eq!(run(1_000, &[100, 50]), [(1, 100.0), (0, 150.0)]);
        assert_eq!(run(500, &[100]), [(0, 200.0)]);
    }

    #[test]
    fn core_time_used_is_the_work_done() {
        let mut pod = Cores::new(1_000, Time::ZERO);
        for job in 0..3 {
            pod.start(Time::ZERO, job, Span::from_millis(30));
        }
        assert_eq!(pod.used(Time(45_000_000)), Span::from_millis(45));
        let end = pod.next().unwrap();
        while pod.finish(end).is_some() {}
        assert_eq!(pod.running(), 0);
        assert_eq!(pod.used(end + Span::from_secs(1)), Span::from_millis(90));
    }

    #[test]
    fn odd_shares_lose_no_more_than_a_nanosecond() {
        let mut pod = Cores::new(1_000, Time::ZERO);
        for job in 0..7 {
            pod.start(Time(job), job, Span(1_000_003));
        }
        let mut last = Time::ZERO;
        while let Some(at) = pod.next() {
            assert!(pod.finish(at).is_some(), "nothing ends when it is said to");
            last = at;
        }
        assert!(last.0.abs_diff(7_000_021) <= 7, "{last:?}");
    }
}
