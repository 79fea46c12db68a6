//! The spend rows of a worker that have not reached the database yet.
//!
//! The queue is bounded in bytes. Beyond it the oldest rows are dropped, with a line in the log
//! and nothing else; the newest is always kept, however large. Rows of the statement that runs are
//! out of the queue, and come back to its front if the statement gets no connection.

use std::collections::VecDeque;

use crate::config::gateway::Spend;
use crate::units::{Bytes, Span};

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its size.
    pub bytes: Bytes,
    /// What it bills, in billionths of the currency.
    pub nano_cost: u64,
}

/// Rows and what they bill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub rows: u64,
    /// What they bill, in billionths of the currency.
    pub nano_cost: u64,
}

impl Batch {
    fn add(&mut self, row: Row) {
        self.rows += 1;
        self.nano_cost = self.nano_cost.saturating_add(row.nano_cost);
    }

    /// Adds another.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.nano_cost = self.nano_cost.saturating_add(other.nano_cost);
    }
}

/// The queue of one worker.
#[derive(Clone, Debug)]
pub struct SpendQueue {
    limits: Spend,
    rows: VecDeque<Row>,
    bytes: Bytes,
    /// Rows of the statement that runs.
    writing: Vec<Row>,
    /// Rows of the queue that the write under way still covers.
    to_write: usize,
    poll: Span,
    /// Most bytes that ever waited.
    pub max_bytes: Bytes,
    /// Rows that reached the database.
    pub written: Batch,
    /// Rows that were dropped.
    pub lost: Batch,
}

impl SpendQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: Spend) -> Self {
        Self {
            limits,
            rows: VecDeque::new(),
            bytes: Bytes::ZERO,
            writing: Vec::new(),
            to_write: 0,
            poll: limits.poll,
            max_bytes: Bytes::ZERO,
            written: Batch::default(),
            lost: Batch::default(),
        }
    }

    /// A row comes. Returns what was dropped for it.
    pub fn push(&mut self, row: Row) -> Batch {
        self.rows.push_back(row);
        self.bytes += row.bytes;
        self.drop_oldest()
    }

    fn drop_oldest(&mut self) -> Batch {
        let mut dropped = Batch::default();
        while self.bytes > self.limits.max_bytes && self.rows.len() > 1 {
            let Some(oldest) = self.rows.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.to_write = self.to_write.saturating_sub(1);
            dropped.add(oldest);
        }
        self.lost.merge(dropped);
        self.max_bytes = self.max_bytes.max(self.bytes);
        dropped
    }

    /// Whether so many rows wait that they are written at once.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.rows.len() >= self.limits.threshold_rows as usize && self.writing.is_empty()
    }

    /// The monitor or the job comes by: whatever waits is to be written. Returns the rows of the
    /// first statement, if none runs yet.
    pub fn flush(&mut self) -> Option<u64> {
        if !self.writing.is_empty() {
            return None;
        }
        self.to_write = self.rows.len();
        self.next_statement()
    }

    /// The rows of the next statement of the write under way.
    fn next_statement(&mut self) -> Option<u64> {
        let mut bytes = Bytes::ZERO;
        while self.to_write > 0 && self.writing.len() < self.limits.statement_rows as usize {
            let Some(&row) = self.rows.front() else { break };
            if !self.writing.is_empty() && bytes + row.bytes > self.limits.statement_bytes {
                break;
            }
            self.rows.pop_front();
            self.to_write -= 1;
            self.bytes -= row.bytes;
            bytes += row.bytes;
            self.writing.push(row);
        }
        (!self.writing.is_empty()).then_some(self.writing.len() as u64)
    }

    /// The statement is through. Returns the rows of the one that follows.
    pub fn statement_done(&mut self) -> Option<u64> {
        self.writing.drain(..).for_each(|row| self.written.add(row));
        self.next_statement()
    }

    /// The statement got no connection: its rows wait again, before all others. Returns what had
    /// to be dropped for them.
    pub fn statement_failed(&mut self) -> Batch {
        for row in self.writing.drain(..).rev() {
            self.bytes += row.bytes;
            self.rows.push_front(row);
        }
        self.to_write = 0;
        self.drop_oldest()
    }

    /// How long the monitor sleeps now: longer each time while the queue is short.
    pub fn next_poll(&mut self) -> Span {
        let busy = self.rows.len() >= self.limits.threshold_rows as usize;
        let now = if busy { self.limits.poll } else { self.poll };
        self.poll = Span(now.0 + now.0 / 2).min(self.limits.poll_max);
        now
    }

    /// Rows that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether none waits and none is being written.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.rows.is_empty() && self.writing.is_empty()
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Everything that waits or is being written, which a worker that is killed loses.
    pub fn abandon(&mut self) -> Batch {
        let mut gone = Batch::default();
        self.writing.drain(..).chain(self.rows.drain(..)).for_each(|row| gone.add(row));
        self.bytes = Bytes::ZERO;
        self.to_write = 0;
        self.lost.merge(gone);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64) -> Row {
        Row { bytes: Bytes(bytes), nano_cost: 1_000 }
    }

    fn queue() -> SpendQueue {
        SpendQueue::new(Spend::default())
    }

    #[test]
    fn the_oldest_rows_are_dropped_beyond_64_mb() {
        let mut queue = queue();
        for _ in 0..64 {
            assert_eq!(queue.push(row(1_000_000)).rows, 0);
        }
        assert_eq!(queue.bytes(), Bytes(64_000_000));
        assert_eq!(queue.push(row(1)), Batch { rows: 1, nano_cost: 1_000 });
        assert_eq!(queue.push(row(3_000_000)).rows, 3);
        assert_eq!((queue.lost.rows, queue.len()), (4, 62));
    }

    #[test]
    fn the_newest_row_is_kept_however_large() {
        let mut queue = queue();
        queue.push(row(10));
        assert_eq!(queue.push(row(100_000_000)).rows, 1);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn statements_have_100_rows_or_2_mb() {
        let mut queue = queue();
        for _ in 0..250 {
            let _ = queue.push(row(8_300));
        }
        assert!(queue.is_urgent());
        assert_eq!(queue.flush(), Some(100));
        assert_eq!(queue.flush(), None, "one write at a time");
        queue.push(row(8_300));
        assert_eq!(queue.statement_done(), Some(100));
        assert_eq!(queue.statement_done(), Some(50), "not the row that came meanwhile");
        assert_eq!(queue.statement_done(), None);
        assert_eq!((queue.written.rows, queue.len()), (250, 1));
        for _ in 0..3 {
            let _ = queue.push(row(900_000));
        }
        assert_eq!(queue.flush(), Some(3), "8,300 and twice 900,000 bytes");
        assert_eq!(queue.statement_failed().rows, 0);
        assert_eq!((queue.len(), queue.bytes()), (4, Bytes(2_708_300)));
        assert_eq!(queue.flush(), Some(3), "the same again");
    }

    #[test]
    fn the_monitor_sleeps_longer_while_little_waits() {
        let mut queue = queue();
        let mut polls: Vec<f64> = (0..9).map(|_| queue.next_poll().secs()).collect();
        assert_eq!(polls.split_off(7), [30.0, 30.0]);
        assert_eq!(polls, [2.0, 3.0, 4.5, 6.75, 10.125, 15.1875, 22.78125]);
        for _ in 0..100 {
            let _ = queue.push(row(1));
        }
        assert_eq!(queue.next_poll(), Span::from_secs(2));
    }
}
