//! What one shard tells, kept until it is the turn of it.

use std::collections::VecDeque;

use crate::fleet::observer::{About, Observer};
use crate::observe::burst::{Burst, BurstWatch};
use crate::observe::records::{CallRecord, TaskRecord, TurnRecord};
use crate::observe::replica::Window;
use crate::units::{RequestId, Span, Time};

/// What an observer is told.
#[derive(Clone, Copy, Debug)]
pub(in crate::fleet) enum Record {
    /// A call has ended.
    Call(CallRecord),
    /// A turn has ended.
    Turn(TurnRecord),
    /// A session has ended.
    Task(TaskRecord),
}

impl Record {
    /// When it is told: at the end of what it is of.
    pub(in crate::fleet) const fn at(&self) -> Time {
        match self {
            Self::Call(call) => call.ended,
            Self::Turn(turn) => turn.ended,
            Self::Task(task) => task.ended,
        }
    }
}

/// Keeps records, and has the run pause when there are many.
#[derive(Debug)]
pub(in crate::fleet) struct Log {
    /// Those since they were last taken, in order.
    pub(in crate::fleet) records: Vec<Record>,
    room: usize,
    wants_alone: bool,
    wants_use_over_time: bool,
}

impl Log {
    /// No records yet, with room for so many, on behalf of this observer.
    pub(in crate::fleet) fn new(room: usize, observer: &impl Observer) -> Self {
        Self {
            records: Vec::new(),
            room,
            wants_alone: observer.wants_alone(),
            wants_use_over_time: observer.wants_use_over_time(),
        }
    }
}

impl Observer for Log {
    fn call(&mut self, call: &CallRecord, _: &About<'_>) {
        self.records.push(Record::Call(*call));
    }

    fn turn(&mut self, turn: &TurnRecord, _: &About<'_>) {
        self.records.push(Record::Turn(*turn));
    }

    fn task(&mut self, task: &TaskRecord, _: &About<'_>) {
        self.records.push(Record::Task(*task));
    }

    fn wants_alone(&self) -> bool {
        self.wants_alone
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.room
    }

    fn wants_use_over_time(&self) -> bool {
        self.wants_use_over_time
    }
}

/// Who is told what the busiest minute is found by.
#[derive(Debug)]
pub(in crate::fleet) enum Bursts {
    /// It is looked for here.
    Watched(BurstWatch),
    /// It is looked for over all shards.
    Logged(Vec<Busy>),
    /// Nobody wants to know.
    Unwatched,
}

/// A call on its way into an engine, by its place among those in flight.
#[derive(Clone, Copy, Debug)]
pub(in crate::fleet) struct Busy {
    /// When.
    pub(in crate::fleet) at: Time,
    place: u32,
    what: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Dispatched,
    Queued,
    Scheduled(Span),
}

impl Bursts {
    /// Looks for it here.
    pub(in crate::fleet) fn watched(window: Window) -> Self {
        Self::Watched(BurstWatch::new(window))
    }

    /// A call is sent to a replica; the number that it has here.
    pub(in crate::fleet) fn dispatched(&mut self, at: Time, request: RequestId) -> u64 {
        match self {
            Self::Watched(watch) => watch.dispatched(at),
            Self::Logged(log) => {
                log.push(Busy { at, place: request.0, what: Way::Dispatched });
                request.0.into()
            }
            Self::Unwatched => u64::MAX,
        }
    }

    /// It comes into a queue.
    pub(in crate::fleet) fn queued(&mut self, at: Time, number: u64) {
        match self {
            Self::Watched(watch) => watch.queued(at, number),
            Self::Logged(log) => log.push(Busy { at, place: number as u32, what: Way::Queued }),
            Self::Unwatched => {}
        }
    }

    /// It is scheduled for the first time, after it has waited so long.
    pub(in crate::fleet) fn scheduled(&mut self, at: Time, number: u64, wait: Span) {
        match self {
            Self::Watched(watch) => watch.scheduled(at, number, wait),
            Self::Logged(log) => {
                log.push(Busy { at, place: number as u32, what: Way::Scheduled(wait) });
            }
            Self::Unwatched => {}
        }
    }

    /// The run is over.
    pub(in crate::fleet) fn finish(self, end: Time) -> Option<Burst> {
        match self {
            Self::Watched(watch) => watch.finish(end),
            Self::Logged(_) | Self::Unwatched => None,
        }
    }

    /// What was logged since this was last asked; more is logged in `spare`.
    pub(in crate::fleet) fn take(&mut self, spare: Vec<Busy>) -> Vec<Busy> {
        match self {
            Self::Watched(_) | Self::Unwatched => Vec::new(),
            Self::Logged(log) => std::mem::replace(log, spare),
        }
    }
}

/// Tells the watch over all shards what one of them has logged.
#[derive(Debug, Default)]
pub(super) struct Retold {
    /// By place: the number that the watch knows the call by.
    numbers: Vec<u64>,
}

impl Retold {
    pub(super) fn tell(&mut self, busy: &Busy, watch: &mut BurstWatch) {
        let Busy { at, place, what } = *busy;
        let place = place as usize;
        match what {
            Way::Dispatched => {
                if self.numbers.len() <= place {
                    self.numbers.resize(place + 1, u64::MAX);
                }
                self.numbers[place] = watch.dispatched(at);
            }
            Way::Queued => watch.queued(at, self.numbers[place]),
            Way::Scheduled(wait) => watch.scheduled(at, self.numbers[place], wait),
        }
    }
}

/// The logs of all shards, one kind of entry, from which they come out in the order of time; at one
/// instant those of the lower shard first.
#[derive(Debug)]
pub(super) struct Logs<T> {
    shards: Vec<Waiting<T>>,
    /// Lists that were emptied, for whoever logs next.
    spare: Vec<Vec<T>>,
}

/// What a shard has logged and was not taken out yet.
#[derive(Debug)]
struct Waiting<T> {
    /// As they were added; none of them is empty.
    lists: VecDeque<Vec<T>>,
    /// Entries of the first list that were taken out.
    taken: usize,
    /// Entries that were not.
    left: usize,
}

impl<T> Waiting<T> {
    const fn new() -> Self {
        Self { lists: VecDeque::new(), taken: 0, left: 0 }
    }

    fn first(&self) -> Option<&T> {
        self.lists.front().map(|list| &list[self.taken])
    }

    /// Behind the first entry; gives a list that is used up, emptied.
    fn pass(&mut self) -> Option<Vec<T>> {
        self.left -= 1;
        self.taken += 1;
        let mut list = self.lists.pop_front_if(|list| self.taken == list.len())?;
        self.taken = 0;
        list.clear();
        Some(list)
    }
}

impl<T> Logs<T> {
    pub(super) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| Waiting::new()).collect(), spare: Vec::new() }
    }

    pub(super) fn add(&mut self, shard: usize, entries: Vec<T>) {
        if entries.is_empty() {
            self.spare.push(entries);
            return;
        }
        let waiting = &mut self.shards[shard];
        waiting.left += entries.len();
        waiting.lists.push_back(entries);
    }

    /// An empty list, with room if there is one.
    pub(super) fn spare(&mut self) -> Vec<T> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn waiting(&self, shard: usize) -> usize {
        self.shards[shard].left
    }

    /// Takes out all entries whose key is less than `before`.
    pub(super) fn each(
        &mut self,
        before: u64,
        key: impl Fn(&T) -> u64,
        mut take: impl FnMut(usize, &T),
    ) {
        let next = |log: &Waiting<T>| log.first().map(&key).filter(|at| *at < before);
        let mut heads: std::collections::BinaryHeap<_> = (0..)
            .zip(&self.shards)
            .filter_map(|(shard, log)| Some(std::cmp::Reverse((next(log)?, shard))))
            .collect();
        while let Some(std::cmp::Reverse((_, shard))) = heads.pop() {
            let other = heads.peek().map(|head| head.0);
            // As long as nobody else's turn comes.
            let log = &mut self.shards[shard];
            let mut mine = next(log);
            while let Some(at) = mine.filter(|at| other.is_none_or(|other| (*at, shard) < other)) {
                if let Some(entry) = log.first() {
                    take(shard, entry);
                }
                self.spare.extend(log.pass());
                mine = next(log);
                debug_assert!(mine.is_none_or(|next| next >= at), "a log out of order");
            }
            heads.extend(mine.map(|at| std::cmp::Reverse((at, shard))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_by_time_and_then_by_shard() {
        let mut logs = Logs::new(3);
        logs.add(0, vec![(1, 'a'), (4, 'd'), (9, 'z')]);
        logs.add(2, vec![(1, 'c'), (1, 'c'), (5, 'f')]);
        logs.add(1, vec![(1, 'b')]);
        logs.add(1, vec![(4, 'e'), (7, 'y')]);
        let mut order = String::new();
        logs.each(7, |entry| entry.0, |_, entry| order.push(entry.1));
        assert!(logs.spare().is_empty(), "an emptied list");
        assert_eq!(order, "abccdef");
        assert_eq!((0..3).map(|shard| logs.waiting(shard)).collect::<Vec<_>>(), [1, 1, 0]);
        logs.each(u64::MAX, |entry| entry.0, |_, entry| order.push(entry.1));
        assert_eq!(order, "abccdefyz");
    }
}
