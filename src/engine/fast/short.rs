//! Steps in which blocks run short: the last of the running list lose theirs, and the others stay
//! in lock step.

use crate::engine::batch::{RowKind, Slot};
use crate::engine::cache::BlockCache;
use crate::engine::config::Policy;
use crate::engine::extents::ExtentCache;
use crate::units::{Blocks, Tokens};

use super::FastEngine;

impl FastEngine {
    /// Whether such a step goes in lock step: those that lose their blocks must stand behind those
    /// that keep them.
    pub(super) fn can_serve_short(&self) -> bool {
        self.scheduler.config().policy == Policy::Fcfs
    }

    /// Serves the running list one by one, as far as there are blocks. Nobody is admitted.
    pub(super) fn serve_short(&mut self, in_flight: bool) {
        let block_size = self.scheduler.config().block_size;
        let mut position = 0;
        while let Some(&slot) = self.scheduler.running.get(position) {
            position += 1;
            if self.lock.is_member(slot) {
                let computed = self.lock.computed(slot);
                let missing = u64::from(computed.is_multiple_of(block_size));
                if !self.make_room(slot, computed + 1, Blocks(missing), in_flight) {
                    break;
                }
                self.scheduler.kv.take(missing);
            } else if self.partial == Some(slot) && !self.serve_partial(slot, in_flight) {
                break;
            }
        }
        self.scheduler.commit(&mut self.decided);
        if let Some(last) = self.decided.rows.last() {
            self.partial = (!last.emits).then_some(last.slot);
        }
    }

    /// Serves the prompt that is part-way, behind all members. False if it had to go.
    fn serve_partial(&mut self, slot: Slot, in_flight: bool) -> bool {
        let config = self.scheduler.config();
        let (block_size, all) = (config.block_size, config.max_num_batched_tokens.0);
        let state = self.scheduler.state(slot);
        let tokens = (state.known() - state.computed).min(all - self.lock.count());
        if tokens == 0 {
            return true;
        }
        let upto = state.computed + tokens;
        let needed = Tokens(upto).blocks_ceil(block_size);
        let missing = needed.saturating_sub(ExtentCache::held_blocks(&state.blocks));
        if !self.make_room(slot, upto, missing, in_flight) {
            return false;
        }
        self.scheduler.take_blocks(slot, upto);
        self.decided.rows.push(self.scheduler.row(slot, tokens, RowKind::Running));
        true
    }

    /// Preempts until so many blocks are free. False if `slot`, which asks for them to have those
    /// of `upto` tokens, had to go itself.
    fn make_room(&mut self, slot: Slot, upto: u64, missing: Blocks, in_flight: bool) -> bool {
        while missing > self.scheduler.kv.free_blocks() {
            let Some(&victim) = self.scheduler.running.last() else { return false };
            self.preempt(victim, in_flight);
            if victim == slot {
                self.scheduler.note_outgrown(slot, Tokens(upto), &mut self.decided);
                return false;
            }
        }
        true
    }

    /// The last of the running list loses its blocks. A token of it that is in flight is taken in
    /// by itself.
    fn preempt(&mut self, slot: Slot, in_flight: bool) {
        if let Some(row) = self.leave(slot, in_flight) {
            self.running.members -= 1;
            self.running.rows.insert(0, row);
        }
        if self.lock.is_member(slot) {
            self.lock.remove(slot);
            self.lock.forget_end(slot);
            self.forget_writer(slot);
        }
        self.ending.retain(|&other| other != slot);
        self.partial = self.partial.filter(|&other| other != slot);
        self.scheduler.running.pop();
        self.scheduler.preempt(slot, &mut self.decided);
    }
}
