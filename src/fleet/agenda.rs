//! What the engines do next by themselves: one entry an engine, and the first of them at hand.
//!
//! A tournament: every engine's next step is a leaf, and every node above knows the earlier of its
//! two. A change costs a walk to the root, and no outdated entry is left behind.

use crate::engine::Due;
use crate::units::{ReplicaId, Time};

/// An engine that does nothing by itself.
const NEVER: u64 = u64::MAX;

/// What the engines do next.
#[derive(Debug)]
pub(super) struct Agenda {
    /// By replica, and filled up to a power of two: twice the time, plus one for a start, so that
    /// at one instant ends come first.
    keys: Vec<u64>,
    /// By node, from the root at 1: the replica that comes first below it.
    first: Vec<u32>,
}

impl Agenda {
    /// No engine does anything.
    pub(super) fn new(replicas: u32) -> Self {
        let leaves = replicas.next_power_of_two();
        let mut first: Vec<u32> = vec![0; leaves as usize];
        first.extend(0..leaves);
        let mut agenda = Self { keys: vec![NEVER; leaves as usize], first };
        for node in (1..leaves as usize).rev() {
            agenda.first[node] = agenda.earlier_below(node);
        }
        agenda
    }

    /// At one instant the lower number comes first.
    fn earlier_below(&self, node: usize) -> u32 {
        let (left, right) = (self.first[2 * node], self.first[2 * node + 1]);
        if self.keys[right as usize] < self.keys[left as usize] { right } else { left }
    }

    /// An engine does this next.
    pub(super) fn set(&mut self, replica: ReplicaId, due: Option<Due>) {
        let key = match due {
            Some(Due::StepEnds(at)) => 2 * at.0,
            Some(Due::StepStarts(at)) => 2 * at.0 + 1,
            None => NEVER,
        };
        if self.keys[replica.index()] == key {
            return;
        }
        self.keys[replica.index()] = key;
        let mut node = (self.keys.len() + replica.index()) / 2;
        while node > 0 {
            self.first[node] = self.earlier_below(node);
            node /= 2;
        }
    }

    /// The engine that does something first, and what.
    pub(super) fn first(&self) -> Option<(Due, ReplicaId)> {
        let replica = ReplicaId(if self.keys.len() == 1 { 0 } else { self.first[1] });
        let key = self.keys[replica.index()];
        let at = Time(key / 2);
        let due = if key.is_multiple_of(2) { Due::StepEnds(at) } else { Due::StepStarts(at) };
        (key != NEVER).then_some((due, replica))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_whatever_changes() {
        for replicas in [1, 2, 5, 8] {
            let mut agenda = Agenda::new(replicas);
            let mut plain: Vec<Option<Due>> = vec![None; replicas as usize];
            assert_eq!(agenda.first(), None);
            for step in 0..500u64 {
                let mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                let replica = ReplicaId((mixed % u64::from(replicas)) as u32);
                let due = match mixed / 8 % 5 {
                    0 => None,
                    1 | 2 => Some(Due::StepEnds(Time(mixed / 64 % 7))),
                    _ => Some(Due::StepStarts(Time(mixed / 64 % 7))),
                };
                agenda.set(replica, due);
                plain[replica.index()] = due;
                let order = |due: Due| match due {
                    Due::StepEnds(at) => (at, 0),
                    Due::StepStarts(at) => (at, 1),
                };
                let all =
                    plain.iter().zip(0..).filter_map(|(due, replica)| Some(((*due)?, replica)));
                let first = all.min_by_key(|(due, replica)| (order(*due), *replica));
                assert_eq!(agenda.first(), first.map(|(due, id)| (due, ReplicaId(id))));
            }
        }
    }
}
