//! The scheduler of one engine: who runs in a step, with how many tokens, in which blocks.
//!
//! Decision by decision as vLLM 0.29 takes them (one full-attention KV group, chunked prefill, no
//! speculative decoding). There are no prefill and decode phases: a request has *known* tokens
//! (prompt and outputs so far) and *computed* ones, and a step lets computed catch up with known.
//! Running requests come first, in list order, then waiting ones from the head of the queue. This
//! is the plain form, one request and one step at a time; it has no clock.

use std::collections::VecDeque;

use super::batch::{Batch, Output, Row, RowKind, Slot};
use super::blocked::Blocked;
use super::cache::BlockCache;
use super::config::{EngineConfig, Policy};
use super::kv::KvCache;
use super::request::Request;
use crate::trace::lineage::Path;
use crate::trace::record::Finish;
use crate::units::{Blocks, RequestId, SegmentId, Time, Tokens};

pub(super) mod abort;
mod outgrown;

#[derive(Debug)]
pub(super) struct State<H> {
    pub(super) request: Request,
    /// Order of handing over: decides ties.
    pub(super) arrival: u64,
    pub(super) outputs: u64,
    /// Tokens whose batch has been scheduled and not taken in: they count as known to the next
    /// batch, although nobody has seen them.
    pub(super) in_flight: u64,
    pub(super) computed: u64,
    pub(super) blocks: H,
    /// Blocks set aside for layers with a sliding window.
    pub(super) window: H,
    /// Leading blocks whose content is in the cache under its key.
    pub(super) cached_blocks: u64,
    pub(super) preemptions: u32,
    pub(super) prefilled: u64,
    /// Found in the cache at the first admission.
    pub(super) cached: Tokens,
    pub(super) last_output: Time,
}

impl<H> State<H> {
    pub(super) fn known(&self) -> u64 {
        self.request.prompt.0 + self.outputs
    }

    /// Whether the tokens in flight are its last: a batch more would be for nothing, and the limit
    /// says so beforehand.
    pub(super) fn ends_in_flight(&self) -> bool {
        self.in_flight > 0
            && self.request.finish == Finish::Length
            && self.outputs + self.in_flight >= self.request.output.0
    }

    /// The segments of the blocks that are not cached yet, of those that `end` tokens fill.
    pub(super) fn segments_upto(
        &self,
        end: u64,
        block_size: u64,
    ) -> impl Iterator<Item = SegmentId> + Clone + '_ {
        // By the last token of the first and of the last block.
        let from = (self.cached_blocks + 1) * block_size;
        let upto = end / block_size * block_size;
        let runs = self.request.path.runs();
        let first = runs.iter().rposition(|run| run.end.0 < from).map_or(0, |run| run + 1);
        let start = move |run: usize| if run == 0 { 0 } else { runs[run - 1].end.0 };
        let runs_of = (first..runs.len()).take_while(move |&run| from <= upto && start(run) < upto);
        runs_of.map(move |run| runs[run].segment)
    }

    fn rank(&self) -> (i32, u64) {
        (self.request.priority, self.arrival)
    }
}

/// The scheduler of one engine, with its KV cache. What every step needs comes first.
#[derive(Debug)]
#[repr(C)]
pub struct Scheduler<C: BlockCache = KvCache> {
    pub(super) running: Vec<Slot>,
    pub(super) waiting: VecDeque<Slot>,
    pub(super) config: EngineConfig,
    pub(super) kv: C,
    pub(super) table: Vec<Option<State<C::Held>>>,
    pub(super) arrivals: u64,
    pub(super) empty_slots: Vec<Slot>,
    pub(super) blocked: Option<Blocked>,
    pub(super) hits: C::Hits,
    /// What requests that ended have held: empty, and its memory is used again.
    let_go: Vec<C::Held>,
    /// Releases at the last look at every block.
    pub(super) checked_at: u64,
}

impl Scheduler {
    /// A scheduler without requests, with a KV cache block by block.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self::with_cache(config)
    }
}

impl<C: BlockCache> Scheduler<C> {
    /// A scheduler without requests, with the KV cache of this kind.
    #[must_use]
    pub fn with_cache(config: EngineConfig) -> Self {
        let kv = C::new(config.pool, config.block_size, config.enable_prefix_caching);
        Self {
            config,
            kv,
            table: Vec::new(),
            empty_slots: Vec::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            arrivals: 0,
            blocked: None,
            hits: C::Hits::default(),
            let_go: Vec::new(),
            checked_at: 0,
        }
    }

    /// The engine's flags.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The engine's KV cache.
    #[must_use]
    pub fn kv(&self) -> &C {
        &self.kv
    }

    /// Length of the running list.
    #[inline]
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Length of the waiting queue.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether any request is running or waiting.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !(self.running.is_empty() && self.waiting.is_empty())
    }

    /// The first of those that run, else of those that wait, and the blocks of its known tokens.
    #[must_use]
    pub fn first(&self) -> Option<(RequestId, Blocks)> {
        let state = self.state(*self.running.first().or(self.waiting.front())?);
        let blocks = Tokens(state.known()).blocks_ceil(self.config.block_size);
        Some((state.request.id, blocks + self.config.window_blocks))
    }

    /// The requests that have not ended, with the tokens that came out of each so far.
    pub fn unfinished(&self) -> impl Iterator<Item = (RequestId, Tokens)> + '_ {
        let states = self.table.iter().flatten();
        states.map(|state| (state.request.id, Tokens(state.outputs)))
    }

    /// Hands over a request.
    pub fn add(&mut self, request: Request) {
        debug_assert!(request.output.0 > 0, "a request that generates nothing");
        let state = State {
            request,
            arrival: self.arrivals,
            outputs: 0,
            in_flight: 0,
            computed: 0,
            blocks: self.let_go.pop().unwrap_or_default(),
            window: C::Held::default(),
            cached_blocks: 0,
            preemptions: 0,
            prefilled: 0,
            cached: Tokens::ZERO,
            last_output: Time::ZERO,
        };
        self.arrivals += 1;
        let slot = match self.empty_slots.pop() {
            Some(slot) => slot,
            None => {
                self.table.push(None);
                self.table.len() as Slot - 1
            }
        };
        self.table[slot as usize] = Some(state);
        match self.config.policy {
            Policy::Fcfs => self.waiting.push_back(slot),
            Policy::Priority => self.enqueue_by_rank(slot),
        }
    }

    /// Puts content into the cache as if somebody had computed it and let go of it: the first
    /// `tokens` of `path`, in whole blocks.
    pub fn warm(&mut self, path: &Path, tokens: Tokens) {
        let whole = tokens.min(path.len()).blocks_floor(self.config.block_size).0;
        if !self.config.enable_prefix_caching {
            return;
        }
        self.kv.lookup(path, whole, &mut self.hits);
        let cached = C::hit_blocks(&self.hits);
        let mut held = C::Held::default();
        self.kv.touch(path, &self.hits, &mut held);
        self.kv.allocate(Blocks(whole) - cached, &mut held);
        self.kv.insert(path, cached.0, whole, &mut held);
        self.kv.release(&mut held);
    }

    /// Decides the next step.
    pub fn schedule(&mut self, batch: &mut Batch) {
        batch.clear();
        let mut budget = self.config.max_num_batched_tokens.0;
        self.schedule_running(&mut budget, batch);
        // A step that had to take blocks away admits nobody.
        if batch.preempted.is_empty() {
            self.schedule_waiting(&mut budget, batch);
        }
        self.commit(batch);
        self.check_books(batch);
    }

    /// The rows of a step count as computed from here on.
    pub(super) fn commit(&mut self, batch: &mut Batch) {
        for row in &mut batch.rows {
            let state = self.table[row.slot as usize].as_mut().expect("the slot is taken");
            state.computed += row.tokens.0;
            row.emits = state.computed == state.known() + state.in_flight;
            if row.emits {
                state.in_flight += 1;
            }
            row.decodes = row.tokens == Tokens(1) && row.computed_before >= state.request.prompt;
            if !row.decodes {
                state.prefilled += row.tokens.0;
            }
        }
    }

    fn schedule_running(&mut self, budget: &mut u64, batch: &mut Batch) {
        let mut position = 0;
        while position < self.running.len() && *budget > 0 {
            let slot = self.running[position];
            let state = self.state(slot);
            let wanted = match state.ends_in_flight() {
                true => 0,
                false => state.known() + state.in_flight - state.computed,
            };
            let tokens = self.capped(wanted, state.computed, *budget);
            if tokens == 0 {
                position += 1;
                continue;
            }
            if !self.make_room(slot, tokens, &mut position, budget, batch) {
                if self.goes_on_after_preempting_the_asker() {
                    continue;
                }
                break;
            }
            let computed = self.state(slot).computed;
            self.take_blocks(slot, computed + tokens);
            batch.rows.push(self.row(slot, tokens, RowKind::Running));
            *budget -= tokens;
            position += 1;
        }
    }

    /// Whether the running requests behind one that had to go have their turn in the same step.
    fn goes_on_after_preempting_the_asker(&self) -> bool {
        self.config.policy == Policy::Priority && self.config.vllm.goes_on_after_self_preemption()
    }

    /// Of the tokens that a request with `computed` ones wants, those that it may have in a step.
    fn capped(&self, wanted: u64, computed: u64, budget: u64) -> u64 {
        let mut tokens = wanted;
        let threshold = self.config.long_prefill_token_threshold.0;
        let alone = self.running.len() + self.waiting.len() == 1;
        if threshold > 0 && !(alone && self.config.vllm.spares_a_lone_request_the_threshold()) {
            tokens = tokens.min(threshold);
        }
        tokens.min(budget).min((self.config.max_model_len.0 - 1).saturating_sub(computed))
    }

    /// Preempts until the blocks for `tokens` more of `slot` are free. False if `slot` itself had
    /// to go. `position` is that of `slot` in the running list.
    fn make_room(
        &mut self,
        slot: Slot,
        tokens: u64,
        position: &mut usize,
        budget: &mut u64,
        batch: &mut Batch,
    ) -> bool {
        let upto = Tokens(self.state(slot).computed + tokens);
        let needed = upto.blocks_ceil(self.config.block_size);
        let held = C::held_blocks(&self.state(slot).blocks);
        while needed.saturating_sub(held) > self.kv.free_blocks() {
            let victim = self.victim();
            let at = self.running.iter().position(|&slot| slot == victim);
            let at = at.expect("a victim is running");
            self.running.remove(at);
            if let Some(row) = batch.rows.iter().position(|row| row.slot == victim) {
                *budget += batch.rows.remove(row).tokens.0;
                // Only then does vLLM step back in its list. A victim that was passed over, since
                // its last token is in flight, thus costs the one behind the asker its turn.
                *position -= 1;
            }
            self.preempt(victim, batch);
            if victim == slot {
                self.note_outgrown(slot, upto, batch);
                return false;
            }
        }
        true
    }

    fn victim(&self) -> Slot {
        let mut running = self.running.iter().copied();
        let victim = match self.config.policy {
            Policy::Fcfs => running.next_back(),
            Policy::Priority => running.max_by_key(|&slot| self.state(slot).rank()),
        };
        victim.expect("somebody runs, since somebody asks")
    }

    pub(super) fn preempt(&mut self, slot: Slot, batch: &mut Batch) {
        let state = self.table[slot as usize].as_mut().expect("the slot is taken");
        self.kv.release(&mut state.blocks);
        self.kv.release(&mut state.window);
        let lost = std::mem::take(&mut state.computed);
        state.cached_blocks = 0;
        state.preemptions += 1;
        batch.preempted.push((state.request.id, Tokens(lost)));
        match self.config.policy {
            Policy::Fcfs => self.waiting.push_front(slot),
            Policy::Priority => self.enqueue_by_rank(slot),
        }
    }

    fn schedule_waiting(&mut self, budget: &mut u64, batch: &mut Batch) {
        while *budget > 0 && self.running.len() < self.config.max_num_seqs {
            let Some(&slot) = self.waiting.front() else { break };
            if self.is_still_blocked(slot, *budget) {
                break;
            }
            let Some(tokens) = self.admit(slot, *budget, batch) else { break };
            self.waiting.pop_front();
            self.running.push(slot);
            *budget -= tokens;
        }
    }

    /// The most blocks that a prompt may hit: at least the last token is computed, so that there is
    /// something to sample from.
    pub(super) fn hits_at_most(&self, prompt: Tokens) -> u64 {
        prompt.0.saturating_sub(1) / self.config.block_size
    }

    /// Gives the head of the queue its hits and its first blocks. `None` if they do not fit.
    pub(super) fn admit(&mut self, slot: Slot, budget: u64, batch: &mut Batch) -> Option<u64> {
        let block_size = self.config.block_size;
        let known = self.state(slot).known();
        let limit = self.hits_at_most(Tokens(known));
        let mut hits = std::mem::take(&mut self.hits);
        self.kv.lookup(&self.state(slot).request.path, limit, &mut hits);
        let hit_blocks = C::hit_blocks(&hits);
        let cached = hit_blocks.tokens(block_size).0;
        let tokens = self.capped(known - cached, cached, budget);
        if !self.fits(slot, &hits, cached + tokens, limit, budget) {
            self.hits = hits;
            return None;
        }
        let state = self.table[slot as usize].as_mut().expect("the slot is taken");
        self.kv.touch(&state.request.path, &hits, &mut state.blocks);
        self.kv.allocate(self.config.window_blocks, &mut state.window);
        state.computed = cached;
        state.cached_blocks = hit_blocks.0;
        let resumed = state.preemptions > 0;
        if !resumed {
            state.cached = Tokens(cached);
        }
        let counters = &mut batch.counters;
        let (queries, found) = if resumed {
            (&mut counters.preempted_queries, &mut counters.preempted_hits)
        } else {
            (&mut counters.queries, &mut counters.hits)
        };
        if self.config.enable_prefix_caching {
            *queries += known;
            *found += cached;
        }
        self.hits = hits;
        self.take_blocks(slot, cached + tokens);
        let kind = if resumed { RowKind::Resumed } else { RowKind::New };
        batch.rows.push(self.row(slot, tokens, kind));
        Some(tokens)
    }

    /// The gates of an admission: the whole present length, if asked for, and this step's tokens.
    fn fits(&mut self, slot: Slot, hits: &C::Hits, upto: u64, limit: u64, budget: u64) -> bool {
        let block_size = self.config.block_size;
        let mut reserved = self.config.window_blocks;
        if !self.running.is_empty() {
            reserved += self.config.watermark_blocks();
        }
        let free = self.kv.free_blocks();
        let hit_blocks = C::hit_blocks(hits);
        let state = self.state(slot);
        if Tokens(state.known()).blocks_ceil(block_size) + reserved <= free {
            // Even if all that is hit is free.
            return true;
        }
        reserved += self.kv.count_free(&state.request.path, hits);
        let lacks = |tokens: u64| {
            let needed = Tokens(tokens).blocks_ceil(block_size);
            needed.saturating_sub(hit_blocks) + reserved > free
        };
        let whole = self.config.scheduler_reserve_full_isl && lacks(self.state(slot).known());
        if !whole && !lacks(upto) {
            return true;
        }
        // A cap that does not hold for a lone request may come down.
        if whole || self.config.long_prefill_token_threshold == Tokens::ZERO {
            let next = Some(hit_blocks.0).filter(|&next| next < limit);
            let released = self.kv.released_total();
            let budget = if whole { 0 } else { budget };
            self.blocked = Some(Blocked { slot, released, next, budget });
        }
        false
    }

    pub(super) fn is_still_blocked(&mut self, slot: Slot, budget: u64) -> bool {
        let still = self.blocked.is_some_and(|blocked| {
            blocked.slot == slot
                && blocked.released == self.kv.released_total()
                && blocked.budget <= budget
                && blocked
                    .next
                    .is_none_or(|next| !self.kv.is_cached(&self.state(slot).request.path, next))
        });
        if !still {
            self.blocked = None;
        }
        still
    }

    /// Takes the blocks for the first `upto` tokens and caches those that are full by then: a
    /// block can be hit as soon as the step that fills it is scheduled.
    pub(super) fn take_blocks(&mut self, slot: Slot, upto: u64) {
        let state = self.table[slot as usize].as_mut().expect("the slot is taken");
        let needed = Tokens(upto).blocks_ceil(self.config.block_size);
        let missing = needed.saturating_sub(C::held_blocks(&state.blocks));
        self.kv.allocate(missing, &mut state.blocks);
        let known = upto.min(state.known());
        self.cache_blocks(slot, known);
    }

    /// Caches the blocks that the first `upto` tokens fill. Their content must be known.
    pub(super) fn cache_blocks(&mut self, slot: Slot, upto: u64) {
        let state = self.table[slot as usize].as_mut().expect("the slot is taken");
        let full = upto / self.config.block_size;
        if state.cached_blocks < full {
            self.kv.insert(&state.request.path, state.cached_blocks, full, &mut state.blocks);
            state.cached_blocks = full;
        }
    }

    /// Takes in what a step computed: tokens come out, requests end, their blocks become free.
    pub fn update(&mut self, now: Time, batch: &Batch, outputs: &mut Vec<Output>) {
        for row in batch.rows.iter().filter(|row| row.emits) {
            self.take_in(now, row, outputs);
        }
    }

    /// Takes in what came out of one row.
    pub(super) fn take_in(&mut self, now: Time, row: &Row, outputs: &mut Vec<Output>) {
        // Without a request the token is for nothing: a stop token that nobody foresaw came out of
        // the batch before, while this one was scheduled already.
        if !self.is_there(row) {
            return;
        }
        let ends = self.next_output_ends(row.slot);
        let asynchronous = self.config.async_scheduling;
        let state = self.state_mut(row.slot);
        state.in_flight -= 1;
        state.outputs += 1;
        outputs.push(if state.outputs == 1 {
            let computed = state.request.prompt - state.cached;
            Output::First { request: row.request, computed }
        } else {
            Output::Next { gap: now - state.last_output }
        });
        state.last_output = now;
        let (output, prefilled) = (Tokens(state.outputs), Tokens(state.prefilled));
        if asynchronous && C::held_blocks(&state.blocks) > Blocks::ZERO {
            // What was scheduled before its content was known can be hit from here on.
            let known = state.computed - state.in_flight;
            self.cache_blocks(row.slot, known);
        }
        if ends {
            outputs.push(Output::Last { request: row.request, output, prefilled });
            self.finish(row.slot);
        }
    }

    /// Whether the request of a row has not ended.
    pub(super) fn is_there(&self, row: &Row) -> bool {
        let state = self.table[row.slot as usize].as_ref();
        state.is_some_and(|state| state.arrival == row.arrival)
    }

    /// Whether the next token that comes out of a request ends it.
    pub(super) fn next_output_ends(&self, slot: Slot) -> bool {
        let state = self.state(slot);
        state.outputs + 1 >= state.request.output.0
            || state.known() + 1 >= self.config.max_model_len.0
    }

    pub(super) fn finish(&mut self, slot: Slot) {
        let place = &mut self.table[slot as usize];
        let state = place.as_mut().expect("a finished request is there");
        self.kv.release(&mut state.blocks);
        self.kv.release(&mut state.window);
        self.let_go.push(std::mem::take(&mut state.blocks));
        *place = None;
        match self.running.iter().position(|&other| other == slot) {
            Some(at) => drop(self.running.remove(at)),
            // The token that ends it may come out after it was preempted.
            None => self.waiting.retain(|&other| other != slot),
        }
        self.empty_slots.push(slot);
    }

    fn enqueue_by_rank(&mut self, slot: Slot) {
        let rank = self.state(slot).rank();
        let at = self.waiting.partition_point(|&other| self.state(other).rank() < rank);
        self.waiting.insert(at, slot);
    }

    pub(super) fn row(&self, slot: Slot, tokens: u64, kind: RowKind) -> Row {
        let state = self.state(slot);
        Row {
            slot,
            arrival: state.arrival,
            request: state.request.id,
            tokens: Tokens(tokens),
            computed_before: Tokens(state.computed),
            kind,
            emits: false,
            decodes: false,
        }
    }

    #[inline]
    pub(super) fn state_mut(&mut self, slot: Slot) -> &mut State<C::Held> {
        self.table[slot as usize].as_mut().expect("the slot is taken")
    }

    #[inline]
    pub(super) fn state(&self, slot: Slot) -> &State<C::Held> {
        self.table[slot as usize].as_ref().expect("the slot is taken")
    }

    /// In debug builds: the budget is kept, and no block is lost. The latter looks at every block,
    /// so it is done as often as blocks are released, but in large pools now and then only.
    fn check_books(&mut self, batch: &Batch) {
        if cfg!(debug_assertions) {
            let tokens: Tokens = batch.rows.iter().map(|row| row.tokens).sum();
            assert!(tokens <= self.config.max_num_batched_tokens, "the budget is overdrawn");
            assert!(self.running.len() <= self.config.max_num_seqs, "too many requests run");
            let released = self.kv.released_total();
            if released > self.checked_at + self.kv.blocks().0 / 64 {
                self.checked_at = released;
                self.check_blocks();
            }
        }
    }

    /// Checks that every block is free or held by the requests that say so.
    ///
    /// # Panics
    /// If the books do not balance.
    pub fn check_blocks(&self) {
        let states = self.table.iter().flatten();
        let held = states
            .map(|state| C::held_blocks(&state.blocks) + C::held_blocks(&state.window))
            .sum::<Blocks>();
        self.kv.check(held.0);
    }
}
