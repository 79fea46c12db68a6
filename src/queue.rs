//! The event queue: what happens next, in an order that never depends on anything but the events.
//!
//! Events come out by time, at one instant in the order in which they were pushed. Time never goes
//! back: pushing into the past is a fault of the caller and stops a debug build.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::units::Time;

/// A queue of events of type `E`.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    pushed: u64,
    now: Time,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    /// Time, then order, as one number: one comparison, which does not branch.
    fn key(&self) -> u128 {
        u128::from(self.at.0) << 64 | u128::from(self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0, now: Time::ZERO }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event that happens `at` some instant from now on.
    pub fn push(&mut self, at: Time, event: E) {
        debug_assert!(at >= self.now, "an event at {at:?} is pushed at {:?}", self.now);
        self.heap.push(Reverse(Entry { at, number: self.pushed, event }));
        self.pushed += 1;
    }

    /// Nothing is to come, and time begins again.
    pub fn clear(&mut self) {
        self.heap.clear();
        (self.pushed, self.now) = (0, Time::ZERO);
    }

    /// Events that are to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes out the next event with its time.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse(entry) = self.heap.pop()?;
        debug_assert!(entry.at >= self.now, "time went back to {:?}", entry.at);
        self.now = entry.at;
        Some((entry.at, entry.event))
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_then_order_of_pushing() {
        let mut queue = EventQueue::default();
        queue.push(Time(5), "first");
        queue.push(Time(6), "last");
        queue.push(Time(5), "second");
        queue.push(Time(4), "earlier");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop().map(|(_, event)| event)).collect();
        assert_eq!(order, ["earlier", "first", "second", "last"]);
    }
}
