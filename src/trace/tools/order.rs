//! Sessions put in the order of their start, as soon as no earlier one can come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::diag::Result;
use crate::trace::canonical::Sink;
use crate::trace::record::Session;
use crate::units::Span;

/// Holds sessions back until it is their turn.
#[derive(Debug, Default)]
pub struct Sorter {
    waiting: BinaryHeap<Reverse<Waiting>>,
    taken: u64,
}

/// By start, then in the order in which they came.
#[derive(Debug)]
struct Waiting {
    key: (Span, u64),
    session: Session,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Sorter {
    /// Takes a session in.
    pub fn take(&mut self, session: Session) {
        let start = session.calls.first().map_or(Span::ZERO, |call| call.at);
        self.waiting.push(Reverse(Waiting { key: (start, self.taken), session }));
        self.taken += 1;
    }

    /// Hands on what starts before `start`: nothing that comes later does.
    pub fn hand_on(&mut self, start: Span, sink: &mut dyn Sink) -> Result<()> {
        while self.waiting.peek().is_some_and(|Reverse(first)| first.key.0 < start) {
            self.hand_on_first(sink)?;
        }
        Ok(())
    }

    /// Hands on everything.
    pub fn finish(mut self, sink: &mut dyn Sink) -> Result<()> {
        while !self.waiting.is_empty() {
            self.hand_on_first(sink)?;
        }
        Ok(())
    }

    fn hand_on_first(&mut self, sink: &mut dyn Sink) -> Result<()> {
        match self.waiting.pop() {
            Some(Reverse(first)) => sink.session(&first.session),
            None => Ok(()),
        }
    }
}
