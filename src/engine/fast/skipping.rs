//! When steps can be skipped, and how they are made up for.

use crate::engine::Due;
use crate::engine::batch::{Row, Slot};
use crate::engine::cache::BlockCache;
use crate::engine::config::Policy;
use crate::engine::ranks::Rank;
use crate::engine::request::{Effect, Request, StepRun, StepSummary};
use crate::engine::step_time::{Contexts, Reach, Series, Ticks};
use crate::stats::Buckets;
use crate::units::{Span, Time, Tokens};

use super::lockstep::NEVER;
use super::skip::{Chunk, Skip};
use super::{FastEngine, Price};

impl FastEngine {
    /// Looks how many steps after the one that runs will do the same, and skips to the last. False
    /// if none will.
    pub(super) fn skip_ahead(&mut self, end: Time, price: &Price) -> bool {
        debug_assert!(self.skip.is_none(), "a skip begins in another");
        let Some(chunk) = self.repeated_rows() else { return false };
        let (growth, windowed) = self.lock.growth();
        let Some((steps, open)) = self.equal_steps(chunk.as_ref()) else { return false };
        let slope = self.slope(chunk.as_ref(), growth, windowed);
        let mixed = chunk.is_some() && growth > 0;
        let decode = mixed.then(|| {
            let contexts =
                Contexts { decode: growth, decode_windowed: windowed, ..Contexts::default() };
            let slope = self.cost.context_ticks(false, &contexts);
            let first = Ticks(price.decode_ticks.0 + slope.0);
            Series { rest: self.decode_carry, first, slope }
        });
        let first = Ticks(price.ticks.0 + slope.0);
        let series = Series { rest: self.carry, first, slope };
        let tick = self.running.tick + 1;
        self.skip = Some(Skip {
            at: end,
            steps,
            open,
            shows: false,
            series,
            decode,
            tick,
            members: growth,
            windowed,
            chunk,
            used: price.used.0,
            told: 0,
        });
        self.await_end(end + series.sum(steps), tick + steps - 1);
        true
    }

    /// The step of this tick runs next, or already, until `end`. If nothing comes out of it that
    /// anybody could see, its end is taken in together with the start of the step behind it.
    pub(super) fn await_end(&mut self, end: Time, tick: u64) {
        let shows = self.lock.next_end() <= tick
            || !self.ending.is_empty()
            || self.running.rows.iter().any(|row| row.emits);
        self.due = Some(if shows { Due::StepEnds(end) } else { Due::StepStarts(end) });
    }

    /// The chunk that every step prefills, if the batches do nothing else but decode. `None` if
    /// they will not be repeated.
    pub(super) fn repeated_rows(&self) -> Option<Option<Chunk>> {
        if !self.locked || self.tangled || !self.joining.is_empty() || !self.ending.is_empty() {
            return None;
        }
        let is_async = self.scheduler.config().async_scheduling;
        if is_async && self.queued.members != self.running.members {
            return None;
        }
        if self.running.ghosts > 0 || self.may_admit() {
            return None;
        }
        let repeats = |row: &Row| !row.emits && !row.decodes && self.scheduler.is_there(row);
        let chunk = match self.running.rows.as_slice() {
            [] => None,
            [row] if repeats(row) => Some(Chunk {
                slot: row.slot,
                tokens: row.tokens.0,
                before: row.computed_before.0 + row.tokens.0,
            }),
            _ => return None,
        };
        if is_async {
            let same = match (self.queued.rows.as_slice(), &chunk) {
                ([], None) => true,
                ([row], Some(chunk)) => repeats(row) && row.tokens.0 == chunk.tokens,
                _ => false,
            };
            let (growth, windowed) = self.lock.growth();
            let (context, within) = self.running.contexts;
            if !same || self.queued.contexts != (context + growth, within + windowed) {
                return None;
            }
        } else if chunk.is_none() && self.partial.is_some() {
            return None;
        }
        (self.lock.count() > 0 || chunk.is_some()).then_some(chunk)
    }

    /// Whether the next scheduling may admit somebody.
    fn may_admit(&self) -> bool {
        let Some(&head) = self.scheduler.waiting.front() else { return false };
        self.looks_at_queue() && !self.stays_blocked(head)
    }

    /// Whether the next schedulings look at the waiting queue at all.
    fn looks_at_queue(&self) -> bool {
        let config = self.scheduler.config();
        let latest = if config.async_scheduling { &self.queued } else { &self.running };
        // A prompt that is part-way takes what is left of the budget.
        let exhausted = latest.rows.last().is_some_and(|row| !row.emits)
            || latest.members >= config.max_num_batched_tokens.0;
        !exhausted && self.scheduler.running.len() < config.max_num_seqs
    }

    /// Whether the head of the queue cannot be admitted while blocks are only taken and nobody
    /// joins those that decode.
    fn stays_blocked(&self, head: Slot) -> bool {
        let Some(blocked) = self.scheduler.blocked else { return false };
        if blocked.slot != head || blocked.released != self.scheduler.kv.released_total() {
            return false;
        }
        let budget = self.scheduler.config().max_num_batched_tokens.0;
        if blocked.budget > budget.saturating_sub(self.lock.count()) {
            return false;
        }
        let Some(next) = blocked.next else { return true };
        let block_size = self.scheduler.config().block_size;
        let runs = self.scheduler.state(head).request.path.runs();
        let run = runs.iter().find(|run| run.end.0 >= (next + 1) * block_size);
        run.is_some_and(|run| !self.lock.writers.contains_key(&run.segment))
    }

    /// How many steps behind the running one do the same, and whether what follows the last of
    /// them is decided otherwise.
    ///
    /// With async scheduling the step behind the running one is decided already, and each step
    /// decides the one after the next. A skip is *open* if its last step decides otherwise, and if
    /// that can be made up for later: nobody is admitted or preempted then.
    fn equal_steps(&self, chunk: Option<&Chunk>) -> Option<(u64, bool)> {
        let decided = self.equal_schedulings(chunk)?;
        let priced = self.equally_priced(chunk);
        if self.scheduler.config().async_scheduling
            && decided < priced
            && self.admits_nobody(chunk.is_some())
            && self.leaves_blocks(decided + 1, chunk)
        {
            return Some((decided + 1, true));
        }
        let steps = self.with_blocks(decided.min(priced), chunk);
        (steps > 0).then_some((steps, false))
    }

    /// How many more schedulings decide the same, blocks apart.
    pub(super) fn equal_schedulings(&self, chunk: Option<&Chunk>) -> Option<u64> {
        let latest = self.lock.tick;
        let mut steps = u64::MAX;
        let (end, outgrown) = (self.lock.next_end(), self.lock.next_outgrown());
        if end != NEVER {
            steps = end.saturating_sub(latest);
        }
        if outgrown != NEVER {
            steps = steps.min(outgrown.saturating_sub(latest + 1));
        }
        if let Some(chunk) = chunk {
            let state = self.scheduler.state(chunk.slot);
            let left = state.known() - state.computed;
            steps = steps.min(left.saturating_sub(1) / chunk.tokens);
            if chunk.tokens == 1 {
                // A single token behind the prompt counts as a decode.
                steps = steps.min(state.request.prompt.0.saturating_sub(chunk.before + 1));
            }
        }
        (steps < u64::MAX).then_some(steps)
    }

    /// How many steps behind the running one each take as much longer than the one before.
    fn equally_priced(&self, chunk: Option<&Chunk>) -> u64 {
        let (Some(prefill), Some(window)) = (chunk, self.cost.empty_load().window()) else {
            return u64::MAX;
        };
        match window {
            Reach::Sliding(window) => {
                // The reach of the running step, as the load counts it.
                let reach = 2 * prefill.before - prefill.tokens;
                if reach >= 2 * window {
                    return u64::MAX;
                }
                (2 * window - reach) / (2 * prefill.tokens)
            }
            // Whole chunks of attention take the same wherever they begin.
            Reach::Chunked(chunk) if prefill.tokens.is_multiple_of(chunk) => u64::MAX,
            Reach::Chunked(chunk) => {
                // The running step and those behind it, up to the end of a chunk of attention.
                let room = chunk - (prefill.before - prefill.tokens) % chunk;
                (room / prefill.tokens).saturating_sub(1)
            }
        }
    }

    /// Whether a scheduling with budget left would not admit anybody either, as the queue is. What
    /// is prefilled meanwhile may be what the head of the queue lacks.
    fn admits_nobody(&self, prefills: bool) -> bool {
        let full = self.scheduler.running.len() >= self.scheduler.config().max_num_seqs;
        let stays = |&head| !prefills && self.stays_blocked(head);
        full || self.scheduler.waiting.front().is_none_or(stays)
    }

    /// As many of the schedulings as there are blocks for.
    pub(super) fn with_blocks(&self, steps: u64, chunk: Option<&Chunk>) -> u64 {
        let free = self.scheduler.kv.free_blocks().0;
        if self.blocks_at_most(steps, chunk) <= free || self.blocks(steps, chunk) <= free {
            return steps;
        }
        let (mut enough, mut too_many) = (0, steps);
        while too_many - enough > 1 {
            let middle = enough + (too_many - enough) / 2;
            if self.blocks(middle, chunk) <= free {
                enough = middle;
            } else {
                too_many = middle;
            }
        }
        enough
    }

    /// Whether there are blocks for so many schedulings, the last of which may decide otherwise:
    /// members that end leave their part of the budget to the chunk.
    fn leaves_blocks(&self, steps: u64, chunk: Option<&Chunk>) -> bool {
        let block_size = self.scheduler.config().block_size;
        let more = chunk.map_or(0, |_| self.lock.count() / block_size + 1);
        let free = self.scheduler.kv.free_blocks().0;
        self.blocks_at_most(steps, chunk).saturating_add(more) <= free
            || self.blocks(steps, chunk) + more <= free
    }

    /// Blocks that so many more schedulings take.
    fn blocks(&self, steps: u64, chunk: Option<&Chunk>) -> u64 {
        self.lock.blocks_in(steps) + self.chunk_blocks(steps, chunk)
    }

    /// No less than that, told faster.
    pub(super) fn blocks_at_most(&self, steps: u64, chunk: Option<&Chunk>) -> u64 {
        self.lock.blocks_in_at_most(steps).saturating_add(self.chunk_blocks(steps, chunk))
    }

    fn chunk_blocks(&self, steps: u64, chunk: Option<&Chunk>) -> u64 {
        let Some(chunk) = chunk else { return 0 };
        let decided = self.lock.tick - self.running.tick;
        chunk.blocks(decided, steps, self.scheduler.config().block_size)
    }

    /// By how much each step is longer than the one before.
    fn slope(&self, chunk: Option<&Chunk>, growth: u64, windowed: u64) -> Ticks {
        let mut contexts =
            Contexts { decode: growth, decode_windowed: windowed, ..Contexts::default() };
        if let Some(chunk) = chunk {
            let more = 2 * chunk.tokens * chunk.tokens;
            contexts.half_pairs = more;
            let reach = 2 * chunk.before - chunk.tokens;
            let bounded = match self.cost.empty_load().window() {
                Some(Reach::Sliding(window)) => reach >= 2 * window,
                Some(Reach::Chunked(window)) => chunk.tokens.is_multiple_of(window),
                None => false,
            };
            contexts.half_pairs_windowed = if bounded { 0 } else { more };
        }
        self.cost.context_ticks(chunk.is_some() && growth > 0, &contexts)
    }

    /// The first `steps` of the skipped steps have begun, the last of them runs: brings everything
    /// there.
    pub(super) fn take_steps(&mut self, steps: u64) {
        let mut effects = Vec::new();
        self.take_steps_telling(steps, &mut effects);
        debug_assert!(effects.is_empty(), "a skip hides what somebody should see: {effects:?}");
    }

    /// The last of the skipped steps starts now. It is told by itself, since the queue is not what
    /// it was, and so is what it decides.
    pub(super) fn show_last(&mut self, effects: &mut Vec<Effect>) {
        let Some(skip) = &mut self.skip else { return };
        let steps = skip.steps;
        debug_assert!(skip.told == steps - 1 && skip.chunk.is_none(), "it is told otherwise");
        let (ticks, end) = (skip.ticks(steps - 1), skip.start(steps));
        let (span, decode_seqs) = (end - skip.start(steps - 1), skip.members);
        self.pass_steps(steps);
        let used_blocks = self.scheduler.kv().used_blocks();
        effects.push(Effect::StepStarted(StepSummary {
            span,
            decode_span: span,
            decode_seqs,
            prefill_tokens: Tokens::ZERO,
            used_blocks,
            running: self.scheduler.running() as u64,
            waiting: self.scheduler.waiting() as u64,
        }));
        self.decide_otherwise(effects);
        self.go_on(end, &Price { ticks, decode_ticks: ticks, used: used_blocks });
    }

    fn take_steps_telling(&mut self, steps: u64, effects: &mut Vec<Effect>) {
        self.tell_steps(steps);
        if self.pass_steps(steps) {
            self.decide_otherwise(effects);
        }
    }

    /// Brings everything to where the last of these steps has begun, and not decided anything.
    /// Whether it decides otherwise than the others.
    fn pass_steps(&mut self, steps: u64) -> bool {
        let Some(skip) = &self.skip else { return false };
        if steps == 0 {
            self.skip = None;
            return false;
        }
        let members = skip.members;
        // All of them but the last.
        let ended = skip.series.sum(steps - 1);
        // The step before them has ended, too.
        if members > 0 {
            let latency = &mut self.metrics.inter_token_latency;
            let gap = skip.at - self.last_update;
            latency.add_all(gap.0, members, u128::from(gap.0) * u128::from(members));
            if steps > 1 {
                add_steps(latency, &skip.series, steps - 1, ended, members);
            }
        }
        let tokens = u128::from(members) * u128::from(steps);
        self.metrics.iteration_tokens.add_all(members, steps, tokens);
        self.metrics.steps += steps;
        self.last_update = skip.at + ended;
        self.carry = skip.series.rest_after(steps);
        if let Some(decode) = &skip.decode {
            self.decode_carry = decode.rest_after(steps);
        }
        let (windowed, chunk) = (skip.windowed, skip.chunk);
        let otherwise = skip.open && steps == skip.steps;
        self.skip = None;
        let times = if otherwise { steps - 1 } else { steps };
        if times > 0 {
            self.decide_equally(times, (members, windowed), chunk);
        }
        otherwise
    }

    /// Schedules as many times what was scheduled before. From step to step contexts grow by so
    /// much, all of them and up to the window.
    fn decide_equally(&mut self, times: u64, growth: (u64, u64), chunk: Option<Chunk>) {
        self.scheduler.kv.take(self.lock.blocks_in(times));
        self.lock.advance(times);
        for batch in [&mut self.running, &mut self.queued] {
            batch.tick += times;
            batch.contexts.0 += times * growth.0;
            batch.contexts.1 += times * growth.1;
        }
        if let Some(chunk) = chunk {
            let tokens = times * chunk.tokens;
            for row in self.running.rows.iter_mut().chain(&mut self.queued.rows) {
                row.computed_before.0 += tokens;
            }
            let state = self.scheduler.state_mut(chunk.slot);
            state.computed += tokens;
            state.prefilled += tokens;
            let computed = state.computed;
            self.scheduler.take_blocks(chunk.slot, computed);
        }
    }

    /// The last step of an open skip has begun, and decided what follows it.
    fn decide_otherwise(&mut self, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.running, &mut self.queued);
        self.queued.clear();
        self.schedule(true, effects);
    }

    /// Tells of the first `steps` of the skipped steps, as the queue is now.
    fn tell_steps(&mut self, steps: u64) {
        let Some(skip) = &mut self.skip else { return };
        if skip.told >= steps {
            return;
        }
        let block_size = self.scheduler.config().block_size;
        let first = skip.told;
        skip.tell(steps, &self.lock, block_size, &mut self.cycle, &mut self.levels);
        let run = StepRun {
            at: skip.start(first),
            steps: steps - first,
            series: skip.series.skip(first),
            decode: skip.decode_share(first),
            decode_seqs: skip.members,
            prefill_tokens: Tokens(skip.chunk.map_or(0, |chunk| chunk.tokens)),
            running: self.scheduler.running() as u64,
            waiting: self.scheduler.waiting() as u64,
        };
        self.runs.push((run, self.levels.len()));
    }

    /// A request is about to arrive: skipped steps are settled as far as they have begun, and end
    /// there if the next scheduling may admit it.
    pub(super) fn before_arrival(&mut self, now: Time, request: &Request) {
        let Some(skip) = &self.skip else { return };
        let (begun, open, steps) = (skip.begun(now), skip.open, skip.steps);
        if open && begun == steps {
            // What follows was decided before.
            self.take_steps(begun);
            return;
        }
        if self.looks_at_queue() && self.comes_first(request) {
            let decided = begun < steps && self.scheduler.config().async_scheduling;
            if decided && skip.chunk.is_none() {
                self.show_next(begun);
            } else {
                self.end_skip(now, begun);
            }
            return;
        }
        self.tell_steps(begun);
        let full = self.scheduler.running.len() >= self.scheduler.config().max_num_seqs;
        if open && !full && self.comes_first(request) {
            // Its last step may admit it.
            let steps = steps - 1;
            if begun == steps {
                self.end_skip(now, begun);
            } else if let Some(skip) = &mut self.skip {
                (skip.steps, skip.open) = (steps, false);
                let (end, tick) = (skip.start(steps), skip.tick + steps - 1);
                self.await_end(end, tick);
            }
        }
    }

    /// The step behind those that have begun is decided already, and the last that is skipped: it
    /// may admit somebody to the one behind it.
    fn show_next(&mut self, begun: u64) {
        self.tell_steps(begun);
        let Some(skip) = &mut self.skip else { return };
        (skip.steps, skip.open, skip.shows) = (begun + 1, true, true);
        self.due = Some(Due::StepStarts(skip.start(begun)));
    }

    /// A skip ends with the steps that have begun.
    pub(super) fn end_skip(&mut self, now: Time, begun: u64) {
        let Some(skip) = &self.skip else { return };
        let end = skip.start(begun);
        self.take_steps(begun);
        self.await_end(end, self.running.tick);
        if end == now && self.due == Some(Due::StepEnds(end)) {
            let mut effects = Vec::new();
            self.end_step(now, &mut effects);
            debug_assert!(effects.is_empty(), "something happens in a step that was skipped");
        }
    }

    /// Whether a request would be the head of the queue.
    fn comes_first(&self, request: &Request) -> bool {
        let Some(&head) = self.scheduler.waiting.front() else { return true };
        let head = &self.scheduler.state(head).request;
        self.scheduler.config().policy == Policy::Priority && request.priority < head.priority
    }
}

/// Adds the spans of the first `steps` steps of a series, which take `all` together, each as often
/// as `weight`.
fn add_steps(buckets: &mut Buckets, series: &Series, steps: u64, all: Span, weight: u64) {
    let shortest = series.first.whole();
    let bound = buckets.bound(shortest.0);
    if bound.is_none_or(|bound| series.steps_within(Span(bound), steps) == steps) {
        // Nearly always: all of them are in one bucket.
        let sum = u128::from(all.0) * u128::from(weight);
        buckets.add_all(shortest.0, steps * weight, sum);
        return;
    }
    add_steps_by_bucket(buckets, *series, steps, weight);
}

fn add_steps_by_bucket(buckets: &mut Buckets, mut series: Series, steps: u64, weight: u64) {
    let mut left = steps;
    while left > 0 {
        let shortest = series.first.whole();
        let bound = buckets.bound(shortest.0);
        let together = bound.map_or(left, |bound| series.steps_within(Span(bound), left));
        // One whose rounding decides between two buckets is added by itself.
        let count = together.max(1);
        let total = series.sum(count);
        let sample = if together == 0 { total } else { shortest };
        buckets.add_all(sample.0, count * weight, u128::from(total.0) * u128::from(weight));
        left -= count;
        if left > 0 {
            series = series.skip(count);
        }
    }
}
