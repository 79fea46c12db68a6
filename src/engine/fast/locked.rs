//! Scheduling in lock step, and the ways into it and out of it.

use std::collections::hash_map::Entry;

use crate::engine::batch::{Row, RowKind, Slot};
use crate::engine::cache::BlockCache;
use crate::engine::extents::ExtentCache;
use crate::engine::request::Effect;
use crate::trace::record::Finish;
use crate::units::{Blocks, Tokens};

use super::{BLOCK_SIZE_MAX, FastEngine};

impl FastEngine {
    /// Whether the scheduler's state can go on in lock step from this scheduling on.
    pub(super) fn can_lock(&mut self, in_flight: bool) -> bool {
        self.joining.clear();
        self.partial = None;
        self.tangled = false;
        let config = self.scheduler.config();
        if config.long_prefill_token_threshold > Tokens::ZERO || config.block_size > BLOCK_SIZE_MAX
        {
            return false;
        }
        let last = self.scheduler.running.len().saturating_sub(1);
        for (position, &slot) in self.scheduler.running.iter().enumerate() {
            let state = self.scheduler.state(slot);
            let lacks = (state.known() + state.in_flight).saturating_sub(state.computed);
            if state.in_flight > 0 {
                // Its row in the batch in flight tells that it joins, or that it ends.
                if state.in_flight > 1 || !(lacks == 1 || self.ends_in_flight(slot)) {
                    return false;
                }
                continue;
            }
            let decodes = lacks == 1 && state.outputs > 0 && state.last_output == self.last_update;
            if decodes && !in_flight && !self.scheduler.config().async_scheduling {
                self.joining.push(slot);
            } else if position == last && lacks > 0 && self.has_room(slot) {
                self.partial = Some(slot);
            } else {
                return false;
            }
        }
        // Outputs of a request that was preempted meanwhile are taken in one by one.
        !in_flight
            || self.running.rows.iter().all(|row| {
                !self.scheduler.is_there(row)
                    || ExtentCache::held_blocks(&self.scheduler.state(row.slot).blocks)
                        > Blocks::ZERO
            })
    }

    /// Whether the context has room for a token behind those that are known.
    fn has_room(&self, slot: Slot) -> bool {
        self.scheduler.state(slot).known() < self.scheduler.config().max_model_len.0
    }

    /// Whether the token in flight is a request's last, and the scheduler knows.
    fn ends_in_flight(&self, slot: Slot) -> bool {
        let state = self.scheduler.state(slot);
        let end = self.scheduler.config().max_model_len.0;
        state.ends_in_flight() || (state.in_flight > 0 && state.known() + state.in_flight >= end)
    }

    /// Decides a step in lock step. False, with nothing decided, if that does not go.
    pub(super) fn schedule_locked(&mut self, in_flight: bool) -> bool {
        if self.tangled {
            return false;
        }
        if in_flight {
            self.foresee_ends();
            self.note_joining();
        }
        if !self.joining.is_empty() && !self.join_all(in_flight) {
            return false;
        }
        let Some(budget) =
            self.scheduler.config().max_num_batched_tokens.0.checked_sub(self.lock.count())
        else {
            return false;
        };
        self.serve_running(budget, in_flight)
    }

    /// Those that the batch in flight ends need no further step, if their end is foreseen.
    fn foresee_ends(&mut self) {
        if self.lock.next_end() > self.running.tick {
            return;
        }
        self.lock.ending(self.running.tick, &mut self.ending);
        self.joined_before = self.lock.joined();
        for at in 0..self.ending.len() {
            let slot = self.ending[at];
            if !self.lock.member(slot).foreseen {
                continue;
            }
            let computed = self.lock.computed(slot);
            let member = self.lock.member(slot);
            self.lock.remove(slot);
            self.set_blocks(slot, computed, computed - 1);
            self.forget_writer(slot);
            let state = self.scheduler.state_mut(slot);
            state.computed = computed;
            state.in_flight = 1;
            state.outputs = member.outputs + (member.finish - 1 - member.since);
        }
    }

    /// Those whose prompt the batch in flight completes decode from now on.
    fn note_joining(&mut self) {
        for at in 0..self.running.rows.len() {
            let row = self.running.rows[at];
            if row.emits && self.scheduler.is_there(&row) && !self.ends_in_flight(row.slot) {
                self.joining.push(row.slot);
            }
        }
    }

    /// They decode from now on. False if one of them writes what another one does.
    fn join_all(&mut self, in_flight: bool) -> bool {
        for at in 0..self.joining.len() {
            if !self.join(self.joining[at], in_flight) {
                return false;
            }
        }
        self.joining.clear();
        self.partial.is_none_or(|slot| !self.is_written(slot))
    }

    /// A request decodes from now on. False if another one writes the same content.
    fn join(&mut self, slot: Slot, in_flight: bool) -> bool {
        let max_model_len = self.scheduler.config().max_model_len.0;
        let state = self.scheduler.state(slot);
        let request = &state.request;
        let outputs = state.outputs + u64::from(in_flight);
        let room = max_model_len - request.prompt.0;
        let all = request.output.0.min(room);
        let foreseen = request.finish == Finish::Length || request.output.0 >= room;
        let computed = state.computed;
        if !self.become_writer(slot, request_end(request.prompt.0, all)) {
            return false;
        }
        self.lock.join(slot, computed, outputs, all - outputs, foreseen);
        true
    }

    /// Notes which segments a request will write. False if another member writes one of them.
    fn become_writer(&mut self, slot: Slot, end: u64) -> bool {
        let config = self.scheduler.config();
        if !config.enable_prefix_caching {
            return true;
        }
        let state = self.scheduler.state(slot);
        let own = state.segments_upto(end, config.block_size);
        let writers = &mut self.lock.writers;
        if own.clone().any(|segment| writers.contains_key(&segment)) {
            return false;
        }
        for segment in own {
            writers.insert(segment, slot);
        }
        true
    }

    /// Whether a member writes what is still to be prefilled of a request.
    fn is_written(&self, slot: Slot) -> bool {
        if self.lock.writers.is_empty() {
            return false;
        }
        let state = self.scheduler.state(slot);
        let mut left = state.segments_upto(state.known(), self.scheduler.config().block_size);
        left.any(|segment| self.lock.writers.contains_key(&segment))
    }

    pub(super) fn forget_writer(&mut self, slot: Slot) {
        let request = &self.scheduler.state(slot).request;
        for run in request.path.runs().iter().rev().take_while(|run| run.end > request.prompt) {
            if let Entry::Occupied(writer) = self.lock.writers.entry(run.segment)
                && *writer.get() == slot
            {
                writer.remove();
            }
        }
    }

    /// Serves the running list, then the queue. False, with nothing decided, if blocks are short
    /// and that does not go in lock step.
    fn serve_running(&mut self, all: u64, in_flight: bool) -> bool {
        let mut budget = all;
        let members = self.lock.blocks_now();
        if self.partial.is_none()
            && self.scheduler.waiting.is_empty()
            && Blocks(members) <= self.scheduler.kv.free_blocks()
        {
            // Most often: those in lock step go on, and that is all.
            self.scheduler.kv.take(members);
            return true;
        }
        let chunk = self.partial.filter(|_| budget > 0).map(|slot| {
            let state = self.scheduler.state(slot);
            let tokens = (state.known() - state.computed).min(budget);
            (slot, state.computed, tokens)
        });
        let block_size = self.scheduler.config().block_size;
        let needed = chunk.map_or(Blocks::ZERO, |(slot, computed, tokens)| {
            let held = ExtentCache::held_blocks(&self.scheduler.state(slot).blocks);
            Tokens(computed + tokens).blocks_ceil(block_size).saturating_sub(held)
        });
        if Blocks(members) + needed > self.scheduler.kv.free_blocks() {
            let goes = self.can_serve_short();
            if goes {
                self.serve_short(in_flight);
            }
            return goes;
        }
        self.scheduler.kv.take(members);
        if let Some((slot, computed, tokens)) = chunk {
            self.scheduler.take_blocks(slot, computed + tokens);
            self.decided.rows.push(self.scheduler.row(slot, tokens, RowKind::Running));
            budget -= tokens;
        }
        self.admit(&mut budget);
        self.scheduler.commit(&mut self.decided);
        if let Some((last, before)) = self.decided.rows.split_last() {
            self.partial = (!last.emits).then_some(last.slot);
            self.tangled |= before.iter().any(|row| !row.emits);
        }
        true
    }

    fn admit(&mut self, budget: &mut u64) {
        let seqs = self.scheduler.config().max_num_seqs;
        while *budget > 0 && self.scheduler.running.len() < seqs {
            let Some(&slot) = self.scheduler.waiting.front() else { break };
            self.label_for(slot);
            if self.scheduler.is_still_blocked(slot, *budget) {
                break;
            }
            let Some(tokens) = self.scheduler.admit(slot, *budget, &mut self.decided) else {
                break;
            };
            self.scheduler.waiting.pop_front();
            self.scheduler.running.push(slot);
            *budget -= tokens;
            self.tangled |= !self.has_room(slot) || self.is_written(slot);
        }
    }

    /// Labels what members have written of a request's content: it may find it, or copy it.
    fn label_for(&mut self, slot: Slot) {
        if self.lock.writers.is_empty() {
            return;
        }
        for run in 0..self.scheduler.state(slot).request.path.runs().len() {
            let segment = self.scheduler.state(slot).request.path.runs()[run].segment;
            if let Some(&writer) = self.lock.writers.get(&segment) {
                self.label(writer);
            }
        }
    }

    /// Labels a member's blocks as far as they can be hit once it has been served.
    pub(super) fn label(&mut self, slot: Slot) {
        let computed = self.lock.computed(slot) + 1;
        let known = computed - u64::from(self.scheduler.config().async_scheduling);
        self.set_blocks(slot, computed, known);
    }

    /// Gives a request the blocks of its `computed` tokens, of which `known` can be hit.
    pub(super) fn set_blocks(&mut self, slot: Slot, computed: u64, known: u64) {
        let blocks = Tokens(computed).blocks_ceil(self.scheduler.config().block_size);
        ExtentCache::give_blank(&mut self.scheduler.state_mut(slot).blocks, blocks.0);
        self.scheduler.cache_blocks(slot, known);
    }

    /// Ends the members whose last tokens come out of the batch of this tick.
    pub(super) fn end_members(&mut self, tick: u64, effects: &mut Vec<Effect>) {
        if self.locked && !self.scheduler.config().async_scheduling {
            self.lock.ending(tick, &mut self.ending);
        }
        for at in 0..self.ending.len() {
            let slot = self.ending[at];
            let member = self.lock.member(slot);
            let output = member.outputs + (member.finish - member.since);
            let state = self.scheduler.state(slot);
            let end = request_end(state.request.prompt.0, output);
            let mut computed = end;
            if self.lock.is_member(slot) {
                if self.scheduler.config().async_scheduling {
                    // It is in the next batch already, for nothing.
                    computed += 1;
                    self.queued.ghosts += 1;
                }
                // Up to here it alone wrote what it wrote.
                self.lock.remove(slot);
                self.forget_writer(slot);
            } else if self.joined_before != self.lock.joined() {
                // Since its end was foreseen, others may have begun to write the same.
                self.label_before(slot, end);
            }
            self.set_blocks(slot, computed, end);
            let state = self.scheduler.state(slot);
            effects.push(Effect::Finished {
                request: state.request.id,
                output: Tokens(output),
                prefilled: Tokens(state.prefilled),
            });
            self.scheduler.finish(slot);
        }
        self.ending.clear();
    }

    /// Where members write what a request is about to label as well, theirs is older.
    pub(super) fn label_before(&mut self, slot: Slot, end: u64) {
        if self.lock.writers.is_empty() {
            return;
        }
        let state = self.scheduler.state(slot);
        let segments = state.segments_upto(end, self.scheduler.config().block_size);
        let writers = segments.filter_map(|segment| self.lock.writers.get(&segment).copied());
        let mut others = std::mem::take(&mut self.others);
        others.extend(writers.filter(|&writer| writer != slot));
        for writer in others.drain(..) {
            self.label(writer);
        }
        self.others = others;
    }

    /// What must be known before the output of a row is taken in. A stop token may end a request
    /// that has just joined: the next batch holds it for nothing.
    pub(super) fn before_row_ends(&mut self, slot: Slot) {
        if !self.lock.is_member(slot) {
            // A member alone writes what it writes.
            self.label_before(slot, self.scheduler.state(slot).computed);
        } else if self.scheduler.next_output_ends(slot) {
            let computed = self.lock.computed(slot) + 1;
            self.set_blocks(slot, computed, 0);
            self.lock.remove(slot);
            self.forget_writer(slot);
            self.queued.ghosts += 1;
        }
    }

    /// Leaves lock step: everything is in the scheduler's state again, as if its own steps had
    /// brought it there.
    pub(super) fn unlock(&mut self, in_flight: bool) {
        let mut rows = std::mem::take(&mut self.rows);
        for at in 0..self.scheduler.running.len() {
            rows.extend(self.leave(self.scheduler.running[at], in_flight));
        }
        rows.append(&mut self.running.rows);
        self.rows = std::mem::replace(&mut self.running.rows, rows);
        (self.running.members, self.running.ghosts) = (0, 0);
        (self.locked, self.tangled, self.partial) = (false, false, None);
        self.joining.clear();
        self.ending.clear();
        self.lock.clear();
    }

    /// Everything of a request is in the scheduler's state again. If it decodes in the batch in
    /// flight, the row of it.
    pub(super) fn leave(&mut self, slot: Slot, in_flight: bool) -> Option<Row> {
        let (tick, flying) = (self.lock.tick, u64::from(in_flight));
        let last_update = self.last_update;
        if self.lock.is_member(slot) {
            let member = self.lock.member(slot);
            if member.since + 1 == tick {
                return None;
            }
            let computed = self.lock.computed(slot);
            self.set_blocks(slot, computed, computed - flying);
            let state = self.scheduler.state_mut(slot);
            state.computed = computed;
            state.in_flight = flying;
            state.outputs = member.outputs + (tick - 1 - flying - member.since);
            state.last_output = last_update;
        } else if self.ending.contains(&slot) {
            self.scheduler.state_mut(slot).last_output = last_update;
        } else {
            return None;
        }
        in_flight.then(|| self.row_in_flight(slot))
    }

    /// A former member's part of the batch in flight.
    fn row_in_flight(&self, slot: Slot) -> Row {
        let row = self.scheduler.row(slot, 1, RowKind::Running);
        let computed_before = row.computed_before - Tokens(1);
        Row { computed_before, emits: true, decodes: true, ..row }
    }
}

/// Tokens whose KV a request of this prompt and output has computed when it ends: the last one's
/// never is.
fn request_end(prompt: u64, output: u64) -> u64 {
    prompt + output - 1
}
