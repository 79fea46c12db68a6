//! Requests that will never have the blocks that they need.

use super::super::cache::BlockCache;
use super::{Batch, Scheduler, Slot};
use crate::units::Tokens;

impl<C: BlockCache> Scheduler<C> {
    /// One that preempted itself may need more blocks for its first `upto` tokens than there are.
    pub(in crate::engine) fn note_outgrown(&self, slot: Slot, upto: Tokens, batch: &mut Batch) {
        let state = self.state(slot);
        let all = upto.blocks_ceil(self.config.block_size) + self.config.window_blocks;
        // What is in flight may still turn out to be its end.
        if all > self.kv.blocks() && state.in_flight == 0 {
            batch.outgrown = Some((state.request.id, all));
        }
    }
}
