//! What the engines do next by themselves: one entry an engine, and the first of them at hand.

use super::tournament::{OUT, Tournament};
use crate::engine::Due;
use crate::units::{ReplicaId, Time};

/// What the engines do next. Keys are twice the time, plus one for a start, so that at one instant
/// ends come first.
#[derive(Debug)]
pub(super) struct Agenda(Tournament);

/// When something is due in the order of a run.
fn key(due: Due) -> u64 {
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

    /// The engine that does something first, when, and the [`key`] of it; at one instant the lower
    /// number. `None` if none does anything before clients act who act at `client`: steps end
    /// before that, and start behind it.
    #[inline]
    pub(super) fn first_before(&self, client: Option<Time>) -> Option<(Time, u64, ReplicaId)> {
        let (replica, key) = self.0.first();
        let last = client.map_or(OUT - 1, |at| at.0.saturating_mul(2).min(OUT - 1));
        (key <= last).then_some((Time(key / 2), key, ReplicaId(replica)))
    }

    /// Whether no engine does anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.first().1 == OUT
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
            assert!(agenda.is_empty());
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
                assert_eq!(agenda.is_empty(), first.is_none());
                for client in [None, Some(Time(mixed / 512 % 8))] {
                    let before = first.filter(|(due, _)| match *due {
                        Due::StepEnds(at) => client.is_none_or(|client| at <= client),
                        Due::StepStarts(at) => client.is_none_or(|client| at < client),
                    });
                    let before = before.map(|(due, id)| (order(due).0, key(due), ReplicaId(id)));
                    assert_eq!(agenda.first_before(client), before);
                }
            }
        }
    }
}
