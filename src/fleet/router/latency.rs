//! The lowest mean latency of late, as LiteLLM's `latency-based-routing`: of the last ten calls of
//! each replica. One that has none counts as 0, so that it is tried first; an hour after its last
//! call a replica's samples are forgotten.

use std::collections::VecDeque;

use crate::units::{ReplicaId, Span, Time};

/// Samples of each replica.
const SAMPLES: usize = 10;
/// How long after the last one they are kept.
const TTL: Span = Span::from_secs(3_600);

/// Late latencies of every replica.
#[derive(Debug)]
pub(super) struct Latencies(Vec<Late>);

#[derive(Clone, Debug, Default)]
struct Late {
    samples: VecDeque<u64>,
    last: Time,
}

impl Latencies {
    pub(super) fn new(replicas: u32) -> Self {
        Self(vec![Late::default(); replicas as usize])
    }

    /// One more replica.
    pub(super) fn grow(&mut self) {
        self.0.push(Late::default());
    }

    /// A call there took so long.
    pub(super) fn took(&mut self, now: Time, replica: ReplicaId, nanos: u64) {
        let late = &mut self.0[replica.index()];
        if now.saturating_since(late.last) >= TTL {
            late.samples.clear();
        }
        if late.samples.len() == SAMPLES {
            late.samples.pop_front();
        }
        late.samples.push_back(nanos);
        late.last = now;
    }

    /// Another process is there, or will be.
    pub(super) fn forget(&mut self, replica: ReplicaId) {
        self.0[replica.index()].samples.clear();
    }

    /// The mean of late, in nanoseconds.
    pub(super) fn mean(&self, now: Time, replica: ReplicaId) -> u64 {
        let late = &self.0[replica.index()];
        if late.samples.is_empty() || now.saturating_since(late.last) >= TTL {
            return 0;
        }
        let sum: u128 = late.samples.iter().map(|&nanos| u128::from(nanos)).sum();
        (sum / late.samples.len() as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_the_last_ten_and_of_nothing_after_an_hour() {
        let mut late = Latencies::new(2);
        let there = ReplicaId(1);
        assert_eq!(late.mean(Time(0), there), 0);
        for nanos in 0..20 {
            late.took(Time(nanos), there, nanos);
        }
        // 10 to 19.
        assert_eq!(late.mean(Time(20), there), 14);
        assert_eq!(late.mean(Time(19) + TTL, there), 0);
        late.took(Time(19) + TTL, there, 7);
        assert_eq!(late.mean(Time(20) + TTL, there), 7);
        assert_eq!(late.mean(Time(20), ReplicaId(0)), 0);
    }
}
