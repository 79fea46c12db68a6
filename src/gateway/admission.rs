//! Admission of a worker: so many requests hold a slot, so many wait for one in the order of
//! arrival, each for so long; the rest are turned away.
//!
//! A slot is held until the whole answer has gone out, streams included.

use std::collections::VecDeque;

use crate::config::gateway;
use crate::units::CallId;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a slot.
    Admitted,
    /// It waits.
    Queued,
    /// There is no place to wait.
    Rejected,
}

/// The slots of one worker.
#[derive(Clone, Debug)]
pub struct Slots {
    limits: Option<gateway::Admission>,
    in_flight: u32,
    queue: VecDeque<CallId>,
}

impl Slots {
    /// Free slots; without limits everything is admitted.
    #[must_use]
    pub fn new(limits: Option<gateway::Admission>) -> Self {
        Self { limits, in_flight: 0, queue: VecDeque::new() }
    }

    /// A request comes.
    pub fn arrive(&mut self, call: CallId) -> Verdict {
        let free = self.limits.is_none_or(|limits| self.in_flight < limits.max_in_flight);
        // Who waits goes first.
        if free && self.queue.is_empty() {
            self.in_flight += 1;
            return Verdict::Admitted;
        }
        let places = self.limits.map_or(0, |limits| limits.max_queued as usize);
        if self.queue.len() < places {
            self.queue.push_back(call);
            return Verdict::Queued;
        }
        Verdict::Rejected
    }

    /// A slot becomes free; the request that gets it next.
    pub fn release(&mut self) -> Option<CallId> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.in_flight -= 1;
        }
        next
    }

    /// A request no longer waits.
    pub fn leave_queue(&mut self, call: CallId) {
        self.queue.retain(|waiting| *waiting != call);
    }

    /// Requests with a slot.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_to_those_who_wait_in_order() {
        let mut slots = Slots::new(Some(gateway::Admission::new(2)));
        let verdicts: Vec<Verdict> = (0..5).map(|call| slots.arrive(CallId(call))).collect();
        use Verdict::{Admitted, Queued, Rejected};
        assert_eq!(verdicts, [Admitted, Admitted, Queued, Queued, Rejected]);
        assert_eq!(slots.release(), Some(CallId(2)));
        slots.leave_queue(CallId(3));
        assert_eq!((slots.in_flight(), slots.queued()), (2, 0));
        assert_eq!(slots.release(), None);
        assert_eq!(slots.arrive(CallId(9)), Admitted);
    }

    #[test]
    fn without_limits_everything_is_admitted() {
        let mut slots = Slots::new(None);
        assert!((0..10_000).all(|call| slots.arrive(CallId(call)) == Verdict::Admitted));
    }

    #[test]
    fn no_places_to_wait_turn_away_at_once() {
        let limits = gateway::Admission { max_queued: 0, ..gateway::Admission::new(1) };
        let mut slots = Slots::new(Some(limits));
        assert_eq!(slots.arrive(CallId(0)), Verdict::Admitted);
        assert_eq!(slots.arrive(CallId(1)), Verdict::Rejected);
    }
}
