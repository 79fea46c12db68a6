//! How far processes have computed shared contexts.
//!
//! Any session may bring a context to any process, and it is never forgotten that it was there. So
//! a run may know as many pairs as it has sessions. Nearly always a process has computed all of a
//! segment: that takes one bit.

use rustc_hash::FxHashMap;

use super::{ProcessId, Reach};
use crate::units::SegmentId;

/// By shared segment and process.
#[derive(Debug, Default)]
pub(super) struct Reaches {
    segments: FxHashMap<SegmentId, Shared>,
    /// Where a process has not computed all of it, but some or soon.
    partly: FxHashMap<(SegmentId, ProcessId), Reach>,
}

/// A shared segment.
#[derive(Debug)]
struct Shared {
    end: u32,
    /// The processes that have computed all of it, a bit for each.
    by: Vec<u64>,
}

impl Shared {
    fn place(process: ProcessId) -> (usize, u64) {
        (process.0 as usize / 64, 1 << (process.0 % 64))
    }

    fn is_computed_by(&self, process: ProcessId) -> bool {
        let (word, bit) = Self::place(process);
        self.by.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn computed_by(&mut self, process: ProcessId) {
        let (word, bit) = Self::place(process);
        if self.by.len() <= word {
            self.by.resize(word + 1, 0);
        }
        self.by[word] |= bit;
    }
}

impl Reaches {
    /// A shared segment that ends at this position of its contexts.
    pub(super) fn add(&mut self, segment: SegmentId, end: u32) {
        self.segments.insert(segment, Shared { end, by: Vec::new() });
    }

    /// Where a segment ends.
    pub(super) fn end_of(&self, segment: SegmentId) -> u32 {
        self.segments.get(&segment).map_or(0, |shared| shared.end)
    }

    /// How far a process has computed a segment.
    pub(super) fn of(&self, segment: SegmentId, process: ProcessId) -> Reach {
        match self.segments.get(&segment) {
            Some(shared) if shared.is_computed_by(process) => {
                Reach { begun: shared.end, done: shared.end }
            }
            _ => self.partly.get(&(segment, process)).copied().unwrap_or_default(),
        }
    }

    /// A process begins to compute a segment up to `end`, or has done so.
    pub(super) fn reach(
        &mut self,
        segment: SegmentId,
        process: ProcessId,
        end: u32,
        is_done: bool,
    ) {
        let Some(shared) = self.segments.get_mut(&segment) else {
            debug_assert!(false, "a shared segment that nobody has told of");
            return;
        };
        debug_assert!(end <= shared.end, "computed beyond the end of a shared segment");
        if shared.is_computed_by(process) {
            return;
        }
        if is_done && end >= shared.end {
            self.partly.remove(&(segment, process));
            shared.computed_by(process);
            return;
        }
        let reach = self.partly.entry((segment, process)).or_default();
        reach.begun = reach.begun.max(end);
        if is_done {
            reach.done = reach.done.max(end);
        }
    }

    /// No segment is known.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.partly.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_whole_takes_no_place_of_its_own() {
        let mut reaches = Reaches::default();
        let (segment, other) = (SegmentId(3), SegmentId(9));
        reaches.add(segment, 100);
        reaches.add(other, 50);
        let mut plain: FxHashMap<(SegmentId, ProcessId), Reach> = FxHashMap::default();
        for step in 0..8_000u64 {
            let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let process = ProcessId((mixed % 150) as u32);
            let (of, most) = if mixed / 150 % 2 == 0 { (segment, 100) } else { (other, 50) };
            let end = (mixed / 300 % 4 * most / 3) as u32;
            let is_done = mixed / 1_200 % 2 == 0;
            reaches.reach(of, process, end, is_done);
            let reach = plain.entry((of, process)).or_default();
            reach.begun = reach.begun.max(end);
            reach.done = if is_done { reach.done.max(end) } else { reach.done };
            // What is computed was begun.
            if reach.done as u64 == most {
                reach.begun = reach.done;
            }
            assert_eq!(reaches.of(of, process), *reach);
        }
        let whole = |of: &Reach| of.done;
        let (all, partly) = (plain.len(), reaches.partly.len());
        let of_all = plain.iter().filter(|((of, _), reach)| whole(reach) < reaches.end_of(*of));
        assert_eq!((partly, all > 200), (of_all.count(), true));
        assert!(partly < all / 4, "{partly} of {all}");
    }
}
