//! The reference engine: one step at a time, one request at a time.
//!
//! Without async scheduling a batch is scheduled, runs, and its tokens are taken in before the next
//! is scheduled. With it, the next batch is scheduled when a batch starts to run, and starts when
//! that one ends: the GPU never waits for the scheduler, but what arrives while a batch runs
//! enters the one after the next.

use super::batch::{Batch, Output, RowKind};
use super::cache::BlockCache;
use super::config::EngineConfig;
use super::kv::KvCache;
use super::metrics::EngineMetrics;
use super::ranks::{Occupancy, Rank};
use super::request::{Effect, Request, StepSummary};
use super::scheduler::Scheduler;
use super::scheduler::abort::Abort;
use super::step_time::{Carry, StepCost, StepLoad};
use super::{Due, Engine, Gauges, Stuck, StuckCause};
use crate::trace::lineage::Path;
use crate::units::{Blocks, RequestId, Span, Time, Tokens};

/// One engine that takes every step by itself.
#[derive(Debug)]
pub struct PlainEngine<C: BlockCache = KvCache> {
    scheduler: Scheduler<C>,
    cost: StepCost,
    carry: Carry,
    /// The same of the steps' decodes.
    decode_carry: Carry,
    /// The batch that runs, if `due` is the end of a step.
    running: Batch,
    /// With async scheduling: the batch that runs next. Empty if there is none.
    queued: Batch,
    outputs: Vec<Output>,
    /// Requests that were aborted in the running step.
    aborts: Vec<Abort>,
    due: Option<Due>,
    stuck: Option<Stuck>,
    metrics: EngineMetrics,
}

impl PlainEngine {
    /// An idle engine with an empty cache that is kept block by block.
    #[must_use]
    pub fn new(config: EngineConfig, cost: StepCost) -> Self {
        Self::with_cache(config, cost)
    }
}

impl<C: BlockCache> PlainEngine<C> {
    /// An idle engine with an empty cache of this kind.
    #[must_use]
    pub fn with_cache(config: EngineConfig, cost: StepCost) -> Self {
        Self {
            scheduler: Scheduler::with_cache(config),
            cost,
            carry: Carry::default(),
            decode_carry: Carry::default(),
            running: Batch::default(),
            queued: Batch::default(),
            outputs: Vec::new(),
            aborts: Vec::new(),
            due: None,
            stuck: None,
            metrics: EngineMetrics::default(),
        }
    }

    /// The engine's KV cache.
    #[must_use]
    pub fn kv(&self) -> &C {
        self.scheduler.kv()
    }

    /// The requests that have not ended, with the tokens that came out of each so far.
    pub fn unfinished(&self) -> impl Iterator<Item = (RequestId, Tokens)> + '_ {
        self.scheduler.unfinished()
    }

    /// Starts the next batch, and with async scheduling schedules the one after it.
    fn start_step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.due = None;
        self.pick(effects);
        if self.running.rows.is_empty() {
            return;
        }
        let summary = self.price();
        effects.push(Effect::StepStarted(summary));
        self.due = Some(Due::StepEnds(now + summary.span));
        self.schedule_behind(effects);
    }

    /// Schedules the batch to run now, with nothing in flight.
    fn schedule_something(&mut self, effects: &mut Vec<Effect>) {
        loop {
            self.scheduler.schedule(&mut self.running);
            self.metrics.count(&self.running);
            tell(&self.running, effects);
            self.note_outgrown(self.running.outgrown);
            if !self.running.rows.is_empty() {
                return;
            }
            // A step in which the only runner preempted itself computes nothing; it is followed
            // by one that can admit again. Without a preemption nothing will ever change.
            if self.running.preempted.is_empty() {
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

    fn note_outgrown(&mut self, outgrown: Option<(RequestId, Blocks)>) {
        if let Some((request, needed)) = outgrown {
            self.give_up(request, StuckCause::Growth, needed);
        }
    }

    fn give_up(&mut self, head: RequestId, cause: StuckCause, needed: Blocks) {
        let blocks = self.scheduler.config().usable_blocks();
        let (running, waiting) = (self.scheduler.running(), self.scheduler.waiting());
        self.stuck.get_or_insert(Stuck { head, cause, needed, blocks, running, waiting });
    }

    /// What the batch that runs computes, and of that the decodes.
    fn loads(&self) -> (StepLoad, StepLoad) {
        let mut load = self.cost.empty_load();
        let mut decode_load = self.cost.empty_load();
        for row in &self.running.rows {
            if row.decodes {
                load.add_decode(row.computed_before.0 + 1);
                decode_load.add_decode(row.computed_before.0 + 1);
            } else {
                load.add_prefill(row.computed_before.0, row.tokens.0, row.emits);
            }
        }
        (load, decode_load)
    }

    fn price(&mut self) -> StepSummary {
        let (load, decode_load) = self.loads();
        let (decode_seqs, prefill_tokens) = (load.decode_seqs(), Tokens(load.prefill_tokens()));
        let span = self.carry.step(self.cost.ticks(&load));
        let decode_span = match (decode_seqs, prefill_tokens.0) {
            (_, 0) => span,
            (0, _) => Span::ZERO,
            _ => self.decode_carry.step(self.cost.ticks(&decode_load)),
        };
        StepSummary {
            span,
            decode_span,
            decode_seqs,
            prefill_tokens,
            used_blocks: self.scheduler.kv().used_blocks(),
            running: self.scheduler.running() as u64,
            waiting: self.scheduler.waiting() as u64,
        }
    }
}

impl<C: BlockCache> Rank for PlainEngine<C> {
    fn has_work(&self) -> bool {
        self.scheduler.has_requests() || !self.queued.rows.is_empty()
    }

    fn pick(&mut self, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.running, &mut self.queued);
        self.queued.rows.clear();
        if self.running.rows.is_empty() {
            self.schedule_something(effects);
        }
    }

    fn load(&self) -> StepLoad {
        self.loads().0
    }

    fn schedule_behind(&mut self, effects: &mut Vec<Effect>) {
        if self.scheduler.config().async_scheduling && self.scheduler.has_requests() {
            self.scheduler.schedule(&mut self.queued);
            self.metrics.count(&self.queued);
            tell(&self.queued, effects);
            self.note_outgrown(self.queued.outgrown);
        }
    }

    fn end_step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for abort in std::mem::take(&mut self.aborts) {
            if self.scheduler.has(abort) {
                self.scheduler.take_back(abort.0);
            }
        }
        self.outputs.clear();
        self.scheduler.update(now, &self.running, &mut self.outputs);
        self.running.rows.clear();
        let mut iteration_tokens = 0;
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
                    effects.push(Effect::Finished { request, output, prefilled });
                }
            }
        }
        self.metrics.steps += 1;
        self.metrics.iteration_tokens.add(iteration_tokens);
        self.due = self.has_work().then_some(Due::StepStarts(now));
    }

    fn withdraw(&mut self, request: RequestId) {
        let Some(abort) = self.scheduler.find(request) else { return };
        match self.running.rows.is_empty() {
            true => self.scheduler.take_back(abort.0),
            false => self.aborts.push(abort),
        }
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::of(&self.scheduler)
    }
}

/// Tells who was preempted and who was admitted in a batch.
pub(super) fn tell(batch: &Batch, effects: &mut Vec<Effect>) {
    for &(request, lost) in &batch.preempted {
        effects.push(Effect::Preempted { request, lost });
    }
    for row in batch.rows.iter().filter(|row| row.kind != RowKind::Running) {
        let resumed = row.kind == RowKind::Resumed;
        effects.push(Effect::Admitted {
            request: row.request,
            cached: row.computed_before,
            resumed,
        });
    }
}

impl<C: BlockCache> Engine for PlainEngine<C> {
    fn submit(&mut self, now: Time, request: Request) {
        self.scheduler.add(request);
        self.due.get_or_insert(Due::StepStarts(now));
    }

    fn abort(&mut self, _: Time, request: RequestId) {
        self.withdraw(request);
    }

    fn warm(&mut self, path: &Path, tokens: Tokens) {
        self.scheduler.warm(path, tokens);
    }

    fn cached(&mut self, _: Time, path: &Path, prompt: Tokens) -> Tokens {
        let mut hits = C::Hits::default();
        self.scheduler.kv().lookup(path, self.scheduler.hits_at_most(prompt), &mut hits);
        C::hit_blocks(&hits).tokens(self.scheduler.config().block_size)
    }

    fn due(&self) -> Option<Due> {
        self.due
    }

    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        match self.due {
            Some(Due::StepStarts(_)) => self.start_step(now, effects),
            Some(Due::StepEnds(_)) => self.end_step(now, effects),
            None => {}
        }
    }

    fn stuck(&self) -> Option<Stuck> {
        self.stuck
    }

    fn gauges(&mut self, _: Time) -> Gauges {
        Gauges::new(&self.scheduler, self.scheduler.kv().used_blocks())
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
