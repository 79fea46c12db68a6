//! What the gateway does by itself, in the order of time and, within an instant, of setting.

use std::collections::BTreeMap;

use crate::units::Time;

/// A timer that can be called off.
pub type TimerId = (Time, u64);

/// Timers of one kind of event.
#[derive(Clone, Debug)]
pub struct Timers<E> {
    set: BTreeMap<TimerId, E>,
    count: u64,
}

impl<E> Default for Timers<E> {
    fn default() -> Self {
        Self { set: BTreeMap::new(), count: 0 }
    }
}

impl<E> Timers<E> {
    /// Sets a timer.
    pub fn set(&mut self, at: Time, event: E) -> TimerId {
        self.count += 1;
        self.set.insert((at, self.count), event);
        (at, self.count)
    }

    /// Calls one off, if it has not gone off.
    pub fn cancel(&mut self, timer: TimerId) {
        self.set.remove(&timer);
    }

    /// When the first one goes off.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.set.keys().next().map(|(at, _)| *at)
    }

    /// The first one, if it goes off by `now`.
    pub fn pop(&mut self, now: Time) -> Option<E> {
        let entry = self.set.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_off_in_order_unless_called_off() {
        let mut timers = Timers::default();
        timers.set(Time(5), 'c');
        timers.set(Time(3), 'a');
        let off = timers.set(Time(3), 'b');
        timers.cancel(off);
        assert_eq!(timers.next(), Some(Time(3)));
        assert_eq!(timers.pop(Time(4)), Some('a'));
        assert_eq!(timers.pop(Time(4)), None);
        assert_eq!(timers.pop(Time(5)), Some('c'));
    }
}
