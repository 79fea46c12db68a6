//! The busiest minute of a run, found while it goes on.
//!
//! Of the minutes that begin with a dispatch the one in which most calls are dispatched, the first
//! of several. Only the calls of the last minute and of the busiest so far are remembered.

use std::collections::VecDeque;

use super::replica::Window;
use crate::units::{Span, Time};

const MINUTE: Span = Span::from_secs(60);

/// The busiest minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Its first dispatch.
    pub start: Time,
    /// Time in the queue of each call dispatched in it that got into one; of those that wait at the
    /// end, so far.
    pub waits: Vec<Span>,
    /// Calls dispatched in it.
    pub calls: u64,
    /// From its end until no more calls waited than before it, if that came.
    pub drain: Option<Span>,
}

/// A call that was dispatched.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    /// Calls that waited in queues just before it.
    waiting: u64,
    wait: Wait,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    /// It did not come to the queue, or was refused there.
    None,
    /// In the queue since.
    Since(Time),
    /// So long.
    Was(Span),
}

/// A minute, by the numbers of its calls.
#[derive(Debug)]
struct Minute {
    first: u64,
    calls: VecDeque<Sent>,
    drain: Option<Span>,
}

/// Looks for the busiest minute.
#[derive(Debug)]
pub struct BurstWatch {
    window: Window,
    /// Calls of the last minute, the oldest with the number `first`.
    recent: VecDeque<Sent>,
    first: u64,
    best: Option<Minute>,
    waiting: u64,
    /// Calls that waited before the latest instant at which that changed, and that instant.
    before: (u64, Time),
}

impl BurstWatch {
    /// Nothing has been sent yet.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self {
            window,
            recent: VecDeque::new(),
            first: 0,
            best: None,
            waiting: 0,
            before: (0, Time::ZERO),
        }
    }

    /// A call is sent to a replica; the number that it has here.
    pub fn dispatched(&mut self, now: Time) -> u64 {
        self.pass_to(now);
        let number = self.first + self.recent.len() as u64;
        if self.window.holds(now) {
            let waiting = self.waiting_before(now);
            self.recent.push_back(Sent { at: now, waiting, wait: Wait::None });
            return number;
        }
        u64::MAX
    }

    /// It comes into a queue.
    pub fn queued(&mut self, now: Time, number: u64) {
        self.change(now, 1);
        self.set(number, Wait::Since(now));
    }

    /// It is scheduled for the first time, after it has waited so long.
    pub fn scheduled(&mut self, now: Time, number: u64, wait: Span) {
        self.change(now, -1);
        self.set(number, Wait::Was(wait));
    }

    /// The run is over.
    #[must_use]
    pub fn finish(mut self, end: Time) -> Option<Burst> {
        self.instant_is_over();
        // What was sent within the last minute may still be the most.
        while !self.recent.is_empty() {
            self.judge_first();
        }
        let Minute { calls, drain, .. } = self.best?;
        let wait = |sent: &Sent| match sent.wait {
            Wait::None => None,
            Wait::Since(at) => Some(end.saturating_since(at)),
            Wait::Was(span) => Some(span),
        };
        let start = calls.front()?.at;
        let waits = calls.iter().filter_map(wait).collect();
        Some(Burst { start, waits, calls: calls.len() as u64, drain })
    }

    fn waiting_before(&self, now: Time) -> u64 {
        if self.before.1 == now { self.before.0 } else { self.waiting }
    }

    fn change(&mut self, now: Time, by: i64) {
        self.pass_to(now);
        if self.before.1 != now {
            self.before = (self.waiting, now);
        }
        self.waiting = self.waiting.saturating_add_signed(by);
    }

    /// The latest instant at which anything changed is over: the order in which it did does not
    /// matter.
    fn instant_is_over(&mut self) {
        if let Some(best) = &mut self.best
            && best.drain.is_none()
            && let Some(first) = best.calls.front()
            && self.waiting <= first.waiting
        {
            best.drain = Some(self.before.1.saturating_since(first.at + MINUTE));
        }
    }

    fn set(&mut self, number: u64, wait: Wait) {
        let in_recent = number.checked_sub(self.first).map(|place| place as usize);
        if let Some(sent) = in_recent.and_then(|place| self.recent.get_mut(place)) {
            sent.wait = wait;
        }
        let Some(best) = &mut self.best else { return };
        let in_best = number.checked_sub(best.first).map(|place| place as usize);
        if let Some(sent) = in_best.and_then(|place| best.calls.get_mut(place)) {
            sent.wait = wait;
        }
    }

    /// Judges the minutes that are over.
    fn pass_to(&mut self, now: Time) {
        if now > self.before.1 {
            self.instant_is_over();
        }
        while self.recent.front().is_some_and(|first| first.at + MINUTE <= now) {
            self.judge_first();
        }
    }

    /// The minute of the oldest call holds all that were sent since.
    fn judge_first(&mut self) {
        let best = self.best.get_or_insert_with(|| Minute {
            first: 0,
            calls: VecDeque::new(),
            drain: None,
        });
        if self.recent.len() > best.calls.len() {
            let end = best.first + best.calls.len() as u64;
            if end <= self.first {
                best.calls.clear();
            } else {
                best.calls.drain(..(self.first - best.first) as usize);
            }
            best.first = self.first;
            best.calls.extend(self.recent.range(best.calls.len()..));
            let before = best.calls[0].waiting;
            best.drain = (self.waiting <= before).then_some(Span::ZERO);
        }
        self.recent.pop_front();
        self.first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: Window = Window { from: Time::ZERO, until: Time::MAX };

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn the_busiest_minute_begins_with_a_dispatch_and_drains_later() {
        let mut watch = BurstWatch::new(ALWAYS);
        // Three calls at 0 s, 50 s and 100 s; then four within 30 s, each of which waits.
        for secs in [0, 50, 100] {
            let number = watch.dispatched(at(secs));
            watch.queued(at(secs), number);
            watch.scheduled(at(secs), number, Span::ZERO);
        }
        let burst: Vec<u64> = [200, 210, 220, 230].map(|secs| watch.dispatched(at(secs))).into();
        for number in &burst {
            watch.queued(at(240), *number);
        }
        for (number, secs) in burst[..3].iter().zip([250, 260, 300]) {
            watch.scheduled(at(secs), *number, Span::from_secs(secs - 240));
        }
        let found = watch.finish(at(400)).unwrap();
        assert_eq!((found.start, found.calls, found.drain), (at(200), 4, None));
        assert_eq!(found.waits, [10, 20, 60, 160].map(Span::from_secs));
    }

    #[test]
    fn a_later_minute_must_have_more() {
        let mut watch = BurstWatch::new(ALWAYS);
        let one = watch.dispatched(at(0));
        watch.queued(at(1), one);
        watch.scheduled(at(90), one, Span::from_secs(89));
        let found = watch.finish(at(100)).unwrap();
        assert_eq!((found.start, found.drain), (at(0), Some(Span::from_secs(30))));
        let mut watch = BurstWatch::new(ALWAYS);
        for secs in [0, 10, 100, 110] {
            watch.dispatched(at(secs));
        }
        assert_eq!(watch.finish(at(200)).unwrap().start, at(0));
        let mut watch = BurstWatch::new(ALWAYS);
        for secs in [0, 10, 65, 66, 69, 130] {
            watch.dispatched(at(secs));
        }
        let found = watch.finish(at(200)).unwrap();
        assert_eq!((found.start, found.calls), (at(10), 4));
    }

    #[test]
    fn what_happens_first_in_an_instant_does_not_matter() {
        let drained = |in_order: bool| {
            let mut watch = BurstWatch::new(ALWAYS);
            let one = watch.dispatched(at(0));
            watch.queued(at(1), one);
            watch.dispatched(at(61));
            // As one leaves the queue another comes: it is never seen empty.
            let two = watch.dispatched(at(80));
            match in_order {
                true => {
                    watch.scheduled(at(90), one, Span::from_secs(89));
                    watch.queued(at(90), two);
                }
                false => {
                    watch.queued(at(90), two);
                    watch.scheduled(at(90), one, Span::from_secs(89));
                }
            }
            watch.scheduled(at(130), two, Span::from_secs(40));
            watch.finish(at(300)).unwrap()
        };
        assert_eq!(drained(true), drained(false));
    }

    #[test]
    fn only_dispatches_in_the_window_count() {
        let mut watch = BurstWatch::new(Window { from: at(100), until: at(1_000) });
        for secs in [10, 20, 30, 200] {
            watch.dispatched(at(secs));
        }
        let found = watch.finish(at(1_000)).unwrap();
        assert_eq!((found.start, found.calls), (at(200), 1));
        assert_eq!(BurstWatch::new(ALWAYS).finish(at(9)), None);
    }
}
