//! What the engines do next by themselves: one entry an engine, and the first of them at hand.

use super::tournament::{OUT, Tournament};
use crate::engine::Due;
use crate::units::{ReplicaId, Time};

/// What the engines do next. Keys are twice the time, plus one for a start, so that at one instant
/// ends come first.
#[derive(Debug)]
pub(super) struct Agenda(Tournament);

/// When something is due in the order of a run.
pub(super) fn key(due: Due) -> u64 {
    match due {
        Due::StepEnds(at) => 2 * at.0,
        Due::StepStarts(at) => 2 * at.0 + 1,
    }
}

impl Agenda {
    /// No engine does anything.
    pub(super) fn new(replicas: u32) -> Self {
        Self(Tournament::new(replicas, OUT))
    }

    /// There are so many engines from now on.
    pub(super) fn grow(&mut self, replicas: u32) {
        self.0.grow(replicas);
    }

    /// An engine does this next.
    pub(super) fn set(&mut self, replica: ReplicaId, due: Option<Due>) {
        self.0.set(replica.0, due.map_or(OUT, key));
    }

    /// The engine that does something first, and what; at one instant the lower number.
    pub(super) fn first(&self) -> Option<(Due, ReplicaId)> {
        let (replica, key) = self.0.first();
        let at = Time(key / 2);
        let due = if key.is_multiple_of(2) { Due::StepEnds(at) } else { Due::StepStarts(at) };
        (key != OUT).then_some((due, ReplicaId(replica)))
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
