//! Where sessions have been: what only one session knows is in no other cache.

use smallvec::SmallVec;

use super::router::Caches;
use crate::units::{ReplicaId, Tokens};

/// The replicas that each open session has been on, by its place.
#[derive(Debug, Default)]
pub(super) struct Visits(Vec<SmallVec<[ReplicaId; 6]>>);

impl Visits {
    /// A session begins in this place.
    pub(super) fn begin(&mut self, play: u32) {
        let place = play as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, SmallVec::new);
        }
        self.0[place].clear();
    }

    /// A call of the session goes there.
    pub(super) fn add(&mut self, play: u32, replica: ReplicaId) {
        let visits = &mut self.0[play as usize];
        if !visits.contains(&replica) {
            visits.push(replica);
        }
    }

    /// Replicas that it has been on.
    pub(super) fn of(&self, play: u32) -> &[ReplicaId] {
        &self.0[play as usize]
    }
}

/// The caches of a fleet, as a router asks for a call of one session.
pub(super) struct Known<'a, F> {
    /// Where the session has been.
    pub(super) visits: &'a [ReplicaId],
    /// Leading tokens of its context that others share: all that is known elsewhere.
    pub(super) shared: Tokens,
    /// What a replica has cached, of the whole context where it is wanted, else of the shared part.
    pub(super) cached: F,
}

impl<F: FnMut(ReplicaId, bool) -> Tokens> Caches for Known<'_, F> {
    fn at_most(&self, replica: ReplicaId) -> Tokens {
        if self.visits.contains(&replica) { Tokens(u64::MAX) } else { self.shared }
    }

    fn cached(&mut self, replica: ReplicaId) -> Tokens {
        let was_here = self.visits.contains(&replica);
        if !was_here && self.shared == Tokens::ZERO && !cfg!(debug_assertions) {
            return Tokens::ZERO;
        }
        (self.cached)(replica, was_here)
    }
}
