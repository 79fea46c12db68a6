//! Requests that are taken back, in lock step or not.

use crate::engine::Due;
use crate::engine::batch::Slot;
use crate::engine::cache::BlockCache;
use crate::units::{Blocks, RequestId, Time};

use super::FastEngine;
use crate::engine::ranks::Rank;

impl FastEngine {
    pub(super) fn abort_request(&mut self, now: Time, request: RequestId) {
        self.catch_up(now);
        if self.due == Some(Due::StepStarts(now)) && !self.running.is_empty() {
            // The end of this step was to be taken in with the next one's start.
            let mut effects = Vec::new();
            self.end_step(now, &mut effects);
            debug_assert!(effects.is_empty(), "something happens in a step that shows nothing");
        }
        if self.find_and_take_back(request)
            && let Some(Due::StepStarts(end)) = self.due
        {
            self.due = Some(Due::StepEnds(end));
        }
    }

    /// Takes a request back, if it is there: at once if no step runs. Whether one does.
    pub(super) fn find_and_take_back(&mut self, request: RequestId) -> bool {
        let Some(abort) = self.scheduler.find(request) else { return false };
        let runs = !self.running.is_empty();
        match runs {
            true => self.aborts.push(abort),
            false => self.take_back(abort.0),
        }
        runs
    }

    /// The running step has ended: takes back what was aborted meanwhile.
    pub(super) fn take_back_aborted(&mut self) {
        for at in 0..self.aborts.len() {
            let abort = self.aborts[at];
            if self.scheduler.has(abort) {
                self.take_back(abort.0);
            }
        }
        self.aborts.clear();
    }

    fn take_back(&mut self, slot: Slot) {
        if self.locked && self.lock.is_member(slot) {
            self.take_back_member(slot);
        } else if self.ending.contains(&slot) {
            self.running.ghosts += 1;
        }
        self.ending.retain(|&other| other != slot);
        self.joining.retain(|&other| other != slot);
        self.partial = self.partial.filter(|&other| other != slot);
        self.scheduler.take_back(slot);
    }

    /// In the batches that hold it, it is computed for nothing. What it wrote is labelled as far as
    /// it could be hit by now.
    fn take_back_member(&mut self, slot: Slot) {
        let since = self.lock.member(slot).since;
        for batch in [&mut self.running, &mut self.queued] {
            if !batch.is_empty() && since < batch.tick {
                batch.ghosts += 1;
            }
        }
        let computed = self.lock.computed(slot) + 1;
        let known = computed - u64::from(self.scheduler.config().async_scheduling);
        self.lock.remove(slot);
        self.lock.forget_end(slot);
        self.forget_writer(slot);
        self.label_before(slot, known);
        self.set_blocks(slot, computed, known);
    }

    /// Blocks that requests hold at this instant.
    pub(super) fn used_blocks(&mut self, now: Time) -> Blocks {
        self.catch_up(now);
        self.scheduler.kv().used_blocks()
    }
}
