//! The fast engine: the same results as step by step, with work for what changes only.
//!
//! Three things make it fast. The KV cache is kept [in extents](super::extents). Requests that
//! decode are [in lock step](lockstep): a step costs the same however many they are. And while
//! nothing changes, [many steps are one](skip).
//!
//! Where [blocks run short](short), the last ones leave lock step. Where lock step does not fit
//! (somebody is preempted by priority, the budget does not reach all, prompts are capped, two
//! requests write the same content), the engine takes the step request by request, by the
//! reference's own scheduler, and goes back to lock step as soon as it can.

use super::batch::{Batch, Output, PrefixCounters, Row, Slot};
use super::config::EngineConfig;
use super::extents::ExtentCache;
use super::metrics::EngineMetrics;
use super::plain::tell;
use super::ranks::{Occupancy, Rank};
use super::request::{Effect, Level, Request, StepRun, StepSummary};
use super::scheduler::Scheduler;
use super::scheduler::abort::Abort;
use super::step_time::{Carry, Series, StepCost, StepLoad, Ticks};
use super::{Due, Engine, Gauges, Stuck, StuckCause};
use crate::engine::cache::BlockCache;
use crate::trace::lineage::Path;
use crate::units::{Blocks, RequestId, Time, Tokens};

mod abort;
mod locked;
mod lockstep;
mod lookup;
mod prices;
mod ranked;
mod short;
mod skip;
mod skipping;
#[cfg(test)]
pub(super) mod tests;

use lockstep::LockStep;
use prices::Prices;
use skip::Skip;

/// Blocks larger than this are never counted in lock step.
const BLOCK_SIZE_MAX: u64 = 1 << 16;

/// One engine that does not take every step by itself.
///
/// Each event of a large fleet finds its engine outside the processor's first caches. So the fields
/// are in this order, with those together that an event reads, and those last that few need.
#[derive(Debug)]
#[repr(C)]
pub struct FastEngine {
    due: Option<Due>,
    /// When outputs were last taken in.
    last_update: Time,
    carry: Carry,
    /// The same of the steps' decodes.
    decode_carry: Carry,
    stuck: Option<Box<Stuck>>,
    /// The last of the running list, if its prompt is part-way.
    partial: Option<Slot>,
    /// Whether lock step says how far those that decode are; else the scheduler does.
    locked: bool,
    /// Something came up that does not go in lock step.
    tangled: bool,
    /// The batch that runs, if `due` is the end of a step.
    running: FastBatch,
    /// With async scheduling: the batch that runs next. Empty if there is none.
    queued: FastBatch,
    /// Requests that decode from the next scheduling on.
    joining: Vec<Slot>,
    /// Requests that the batch in flight ends.
    ending: Vec<Slot>,
    /// Requests that were aborted in the running step.
    aborts: Vec<Abort>,
    lock: LockStep,
    /// What is decided of the batch that is being scheduled: empty but then.
    decided: Batch,
    scheduler: Scheduler<ExtentCache>,
    cost: StepCost,
    prices: Prices,
    /// The steps that follow the running one and are not taken one by one.
    skip: Option<Skip>,
    /// Steps that were taken and not told.
    runs: Vec<(StepRun, usize)>,
    /// The blocks held in them; a run's end where its number says.
    levels: Vec<Level>,
    /// How many had joined those in lock step before the present ends were foreseen.
    joined_before: u64,
    outputs: Vec<Output>,
    /// Room for the steps of a cycle in which blocks are taken.
    cycle: Vec<(u64, u64)>,
    /// Members that are labelled before somebody else: empty but then.
    others: Vec<Slot>,
    /// Room for the rows of a batch that leaves lock step: empty but then.
    rows: Vec<Row>,
    metrics: EngineMetrics,
}

/// What one step does: those in lock step as sums, all others row by row.
#[derive(Debug, Default)]
struct FastBatch {
    /// The rows behind those in lock step.
    rows: Vec<Row>,
    /// The number of its scheduling.
    tick: u64,
    /// Requests in lock step.
    members: u64,
    /// Of these, computed for nothing: a stop token ended them before.
    ghosts: u64,
    /// The sum of the members' contexts, and the same up to the window.
    contexts: (u64, u64),
}

impl FastBatch {
    fn clear(&mut self) {
        self.rows.clear();
        (self.members, self.ghosts, self.contexts) = (0, 0, (0, 0));
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.members == 0 && self.rows.is_empty()
    }
}

/// A step's time, and the blocks held in it.
#[derive(Clone, Copy, Debug)]
struct Price {
    ticks: Ticks,
    decode_ticks: Ticks,
    used: Blocks,
}

impl FastEngine {
    /// An idle engine with an empty cache.
    #[must_use]
    pub fn new(config: EngineConfig, cost: StepCost) -> Self {
        // Without lock step its counters are not needed.
        let counted = if config.block_size > BLOCK_SIZE_MAX { 1 } else { config.block_size };
        Self {
            lock: LockStep::new(counted, cost.empty_load().window()),
            prices: Prices::new(config.max_num_batched_tokens.0),
            scheduler: Scheduler::with_cache(config),
            cost,
            carry: Carry::default(),
            decode_carry: Carry::default(),
            running: FastBatch::default(),
            queued: FastBatch::default(),
            decided: Batch::default(),
            locked: false,
            tangled: false,
            joining: Vec::new(),
            others: Vec::new(),
            ending: Vec::new(),
            joined_before: 0,
            aborts: Vec::new(),
            partial: None,
            skip: None,
            runs: Vec::new(),
            levels: Vec::new(),
            cycle: Vec::new(),
            rows: Vec::new(),
            outputs: Vec::new(),
            last_update: Time::ZERO,
            due: None,
            stuck: None,
            metrics: EngineMetrics::default(),
        }
    }

    fn start_step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.due = None;
        self.pick(effects);
        if self.running.is_empty() {
            return;
        }
        let (price, summary) = self.price();
        effects.push(Effect::StepStarted(summary));
        self.schedule_behind(effects);
        self.go_on(now + summary.span, &price);
    }

    /// A step has started that lasts until `end`, and the one behind it is decided.
    fn go_on(&mut self, end: Time, price: &Price) {
        if !self.skip_ahead(end, price) {
            self.await_end(end, self.running.tick);
        }
    }

    /// Schedules the batch to run now, with nothing in flight.
    fn schedule_something(&mut self, effects: &mut Vec<Effect>) {
        loop {
            let preempts = self.schedule(false, effects);
            if !self.running.is_empty() {
                return;
            }
            // As in the plain engine: without a preemption nothing will ever change.
            if !preempts {
                let cause = match self.scheduler.running() {
                    0 => StuckCause::Admission,
                    _ => StuckCause::Context,
                };
                if let Some((head, needed)) = self.scheduler.first() {
                    self.give_up(head, cause, needed);
                }
                return;
            }
        }
    }

    /// Decides the next step: the one to run now, or the one after the batch in flight. Whether
    /// anybody is preempted.
    fn schedule(&mut self, in_flight: bool, effects: &mut Vec<Effect>) -> bool {
        self.lock.advance(1);
        if !self.locked {
            self.locked = self.can_lock(in_flight);
        }
        if self.locked && !self.schedule_locked(in_flight) {
            self.unlock(in_flight);
        }
        if !self.locked {
            self.scheduler.schedule(&mut self.decided);
        }
        let preempts = !self.decided.is_quiet() && self.tell_decided(effects);
        let batch = if in_flight { &mut self.queued } else { &mut self.running };
        std::mem::swap(&mut batch.rows, &mut self.decided.rows);
        debug_assert!(self.decided.rows.is_empty(), "a batch is scheduled in place of another");
        // Nobody is in lock step where the scheduler decided alone.
        (batch.tick, batch.ghosts) = (self.lock.tick, 0);
        (batch.members, batch.contexts) = (self.lock.count(), self.lock.contexts());
        preempts
    }

    /// Counts and tells what was decided, the rows apart. Whether anybody is preempted.
    fn tell_decided(&mut self, effects: &mut Vec<Effect>) -> bool {
        self.metrics.count(&self.decided);
        tell(&self.decided, effects);
        if let Some((request, needed)) = self.decided.outgrown.take() {
            self.give_up(request, StuckCause::Growth, needed);
        }
        self.decided.counters = PrefixCounters::default();
        let preempts = !self.decided.preempted.is_empty();
        self.decided.preempted.clear();
        preempts
    }

    fn give_up(&mut self, head: RequestId, cause: StuckCause, needed: Blocks) {
        let blocks = self.scheduler.config().usable_blocks();
        let (running, waiting) = (self.scheduler.running(), self.scheduler.waiting());
        let stuck = || Box::new(Stuck { head, cause, needed, blocks, running, waiting });
        self.stuck.get_or_insert_with(stuck);
    }

    fn price(&mut self) -> (Price, StepSummary) {
        let used_blocks = self.scheduler.kv().used_blocks();
        let running = self.scheduler.running() as u64;
        let waiting = self.scheduler.waiting() as u64;
        let mut summary = StepSummary { used_blocks, running, waiting, ..StepSummary::default() };
        let FastBatch { members, contexts, .. } = self.running;
        if self.running.rows.is_empty() {
            let ticks = self.prices.of_decodes(&self.cost, members, contexts);
            summary.span = self.carry.step(ticks);
            (summary.decode_span, summary.decode_seqs) = (summary.span, members);
            return (Price { ticks, decode_ticks: ticks, used: used_blocks }, summary);
        }
        let load = self.load();
        let ticks = self.prices.ticks(&self.cost, &load);
        summary.span = self.carry.step(ticks);
        summary.decode_seqs = load.decode_seqs();
        summary.prefill_tokens = Tokens(load.prefill_tokens());
        let decode_ticks = match (load.decode_seqs(), load.prefill_tokens()) {
            (_, 0) => {
                summary.decode_span = summary.span;
                ticks
            }
            (0, _) => Ticks::default(),
            _ => {
                let ticks = self.prices.decode_ticks(&self.cost, &load);
                summary.decode_span = self.decode_carry.step(ticks);
                ticks
            }
        };
        (Price { ticks, decode_ticks, used: used_blocks }, summary)
    }

    /// Takes in what came out of one row; gives the tokens that count for the iteration.
    fn end_row(&mut self, now: Time, row: &Row, effects: &mut Vec<Effect>) -> u64 {
        if self.locked && self.scheduler.is_there(row) {
            self.before_row_ends(row.slot);
        }
        self.outputs.clear();
        self.scheduler.take_in(now, row, &mut self.outputs);
        let (mut iteration_tokens, mut ended) = (0, self.outputs.is_empty());
        for output in &self.outputs {
            match *output {
                Output::First { request, computed } => {
                    iteration_tokens += computed.0 + 1;
                    effects.push(Effect::FirstToken { request });
                }
                Output::Next { gap } => {
                    iteration_tokens += 1;
                    self.metrics.inter_token_latency.add(gap.0);
                }
                Output::Last { request, output, prefilled } => {
                    ended = true;
                    effects.push(Effect::Finished { request, output, prefilled });
                }
            }
        }
        if self.locked && !ended && !self.scheduler.config().async_scheduling {
            self.joining.push(row.slot);
        }
        iteration_tokens
    }
}

impl Rank for FastEngine {
    fn has_work(&self) -> bool {
        self.scheduler.has_requests() || !self.queued.is_empty()
    }

    fn pick(&mut self, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.running, &mut self.queued);
        self.queued.clear();
        if self.running.is_empty() {
            self.schedule_something(effects);
        }
    }

    fn load(&self) -> StepLoad {
        let mut load = self.cost.empty_load();
        let FastBatch { members, contexts: (context, windowed), .. } = self.running;
        load.add_decodes(members, context, windowed);
        for row in &self.running.rows {
            if row.decodes {
                load.add_decode(row.computed_before.0 + 1);
            } else {
                load.add_prefill(row.computed_before.0, row.tokens.0, row.emits);
            }
        }
        load
    }

    fn schedule_behind(&mut self, effects: &mut Vec<Effect>) {
        if self.scheduler.config().async_scheduling && self.scheduler.has_requests() {
            self.schedule(true, effects);
        }
    }

    fn end_step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.take_back_aborted();
        let mut iteration_tokens = 0;
        let decoded = self.running.members - self.running.ghosts;
        if decoded > 0 {
            let gap = now - self.last_update;
            let sum = u128::from(gap.0) * u128::from(decoded);
            self.metrics.inter_token_latency.add_all(gap.0, decoded, sum);
            iteration_tokens += decoded;
        }
        self.end_members(self.running.tick, effects);
        for at in 0..self.running.rows.len() {
            let row = self.running.rows[at];
            if row.emits {
                iteration_tokens += self.end_row(now, &row, effects);
            }
        }
        self.last_update = now;
        self.running.clear();
        self.metrics.steps += 1;
        let buckets = &mut self.metrics.iteration_tokens;
        if iteration_tokens == decoded {
            buckets.add(decoded);
        } else {
            // A prompt is among them: the next step is elsewhere again.
            buckets.add_apart(iteration_tokens);
        }
        self.due = self.has_work().then_some(Due::StepStarts(now));
    }

    /// What is due says nothing here: a request that comes while a step runs sets it.
    fn withdraw(&mut self, request: RequestId) {
        self.find_and_take_back(request);
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::of(&self.scheduler)
    }

    fn equal_steps(&self) -> u64 {
        self.equal_decodes()
    }

    fn growth(&self) -> (u64, u64) {
        self.lock.growth()
    }

    fn skip(&mut self, at: Time, steps: u64, series: Series, used: Blocks) {
        self.skip_decodes(at, steps, series, used);
    }

    fn take(&mut self, steps: u64) {
        self.take_steps(steps);
    }
}

impl Engine for FastEngine {
    fn submit(&mut self, now: Time, request: Request) {
        self.before_arrival(now, &request);
        self.scheduler.add(request);
        self.due.get_or_insert(Due::StepStarts(now));
    }

    fn abort(&mut self, now: Time, request: RequestId) {
        self.abort_request(now, request);
    }

    fn warm(&mut self, path: &Path, tokens: Tokens) {
        self.scheduler.warm(path, tokens);
    }

    fn cached(&mut self, now: Time, path: &Path, prompt: Tokens) -> Tokens {
        self.look_up(now, path, prompt)
    }

    fn due(&self) -> Option<Due> {
        self.due
    }

    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let Some(skip) = &self.skip {
            if skip.shows {
                return self.show_last(effects);
            }
            self.take_steps(skip.steps);
        }
        match self.due {
            Some(Due::StepStarts(_)) => {
                if !self.running.is_empty() {
                    self.end_step(now, effects);
                }
                if self.due.is_some() {
                    self.start_step(now, effects);
                }
            }
            Some(Due::StepEnds(_)) => self.end_step(now, effects),
            None => {}
        }
    }

    fn take_runs(&mut self, mut take: impl FnMut(&StepRun, &[Level])) {
        let mut from = 0;
        for (run, upto) in &self.runs {
            take(run, &self.levels[from..*upto]);
            from = *upto;
        }
        self.runs.clear();
        self.levels.clear();
    }

    fn settle(&mut self, until: Time) {
        if let Some(begun) = self.skip.as_ref().map(|skip| skip.begun(until)) {
            self.take_steps(begun);
        }
    }

    fn stuck(&self) -> Option<Stuck> {
        self.stuck.as_deref().copied()
    }

    fn gauges(&mut self, now: Time) -> Gauges {
        let used = self.used_blocks(now);
        Gauges::new(&self.scheduler, used)
    }

    fn metrics(&self) -> EngineMetrics {
        let kv = self.scheduler.kv();
        EngineMetrics {
            num_requests_running: self.scheduler.running() as u64,
            num_requests_waiting: self.scheduler.waiting() as u64,
            kv_cache_usage_perc: kv.used_blocks().as_f64() / kv.blocks().as_f64().max(1.0),
            evicted_blocks: kv.evicted_total(),
            ..self.metrics.clone()
        }
    }
}
