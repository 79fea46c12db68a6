//! Requests that are taken back before their end.
//!
//! vLLM takes an abort in before it takes in what the running step computed: from there on the
//! request's tokens are nobody's, its blocks are free, and what of them was cached can be hit. Of
//! a batch that is scheduled already it stays a part, computed for nothing.

use super::super::cache::BlockCache;
use super::{Scheduler, Slot};
use crate::units::RequestId;

/// A request that is to be taken back, told apart from a later one in the same slot.
pub(in crate::engine) type Abort = (Slot, u64);

impl<C: BlockCache> Scheduler<C> {
    /// The request of this name that is there, of several the last one.
    pub(in crate::engine) fn find(&self, request: RequestId) -> Option<Abort> {
        let states = self.table.iter().enumerate();
        let found = states.filter_map(|(slot, state)| Some((slot as Slot, state.as_ref()?)));
        let named = found.filter(|(_, state)| state.request.id == request);
        named.map(|(slot, state)| (slot, state.arrival)).max_by_key(|(_, arrival)| *arrival)
    }

    /// Whether a request that is to be taken back has not ended by itself.
    pub(in crate::engine) fn has(&self, (slot, arrival): Abort) -> bool {
        let state = self.table[slot as usize].as_ref();
        state.is_some_and(|state| state.arrival == arrival)
    }

    /// A request is gone, and its blocks are free.
    pub(in crate::engine) fn take_back(&mut self, slot: Slot) {
        self.finish(slot);
        if self.blocked.is_some_and(|blocked| blocked.slot == slot) {
            self.blocked = None;
        }
    }
}
