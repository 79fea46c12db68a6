//! Attention data parallelism: one replica of several ranks that step together.
//!
//! Each rank has its own scheduler, its own KV cache and its own prefix cache; the ranks share the
//! experts, so that all of them start a step together and the step lasts as long as the slowest
//! takes. A rank without work computes one token for nothing; once no rank has work, all rest. The
//! front end of the replica sends each request to the rank that its [`Balancer`] names.
//!
//! The group is an [`Engine`] like any other, around ranks of either kind. Steps in which fast
//! ranks only decode the same requests are [skipped](skip) together; ranks of the plain kind take
//! every step.

use super::config::EngineConfig;
use super::metrics::EngineMetrics;
use super::request::{Effect, Level, Request, StepRun, StepSummary};
use super::scheduler::Scheduler;
use super::step_time::{Carry, Series, StepCost, StepLoad};
use super::{Due, Engine, Gauges, Stuck};
use crate::engine::cache::BlockCache;
use crate::trace::lineage::Path;
use crate::units::{Blocks, RequestId, Span, Time, Tokens};

mod balancer;
mod skip;
#[cfg(test)]
mod tests;

use balancer::Balancer;
use skip::{Skip, Untold};

/// What an engine holds at this instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Length of the running list.
    pub running: u64,
    /// Length of the waiting queue.
    pub waiting: u64,
    /// Blocks that requests hold.
    pub used: Blocks,
    /// Blocks that can be handed out.
    pub blocks: Blocks,
}

impl Occupancy {
    pub(super) fn of<C: BlockCache>(scheduler: &Scheduler<C>) -> Self {
        Self {
            running: scheduler.running() as u64,
            waiting: scheduler.waiting() as u64,
            used: scheduler.kv().used_blocks(),
            blocks: scheduler.kv().blocks(),
        }
    }
}

/// An engine whose steps can be started and ended by somebody else, who knows how long they take.
/// Its own [`due`](Engine::due) means nothing then.
pub trait Rank: Engine {
    /// Whether it has anything to compute in the next step.
    fn has_work(&self) -> bool;

    /// A step starts: the batch that runs is the one that was scheduled behind the last, or is
    /// scheduled now.
    fn pick(&mut self, effects: &mut Vec<Effect>);

    /// What that batch computes.
    fn load(&self) -> StepLoad;

    /// Under async scheduling, schedules the batch behind the one that runs.
    fn schedule_behind(&mut self, effects: &mut Vec<Effect>);

    /// The step ends: what came out of the batch is taken in.
    fn end_step(&mut self, now: Time, effects: &mut Vec<Effect>);

    /// Nobody waits for a request any more, if it has it: as [`Engine::abort`], at the end of the
    /// step if it takes part in one.
    fn withdraw(&mut self, request: RequestId);

    /// What it holds now.
    fn occupancy(&self) -> Occupancy;

    /// How many steps behind the running one only decode the same requests. None, if it takes every
    /// step by itself.
    fn equal_steps(&self) -> u64 {
        0
    }

    /// By how much the contexts of its decodes grow from step to step, and what windowed layers see
    /// of them.
    fn growth(&self) -> (u64, u64) {
        (0, 0)
    }

    /// So many of the equal steps are skipped, from `at` on, and take as long as the group says;
    /// `used` blocks were held when the running step began.
    fn skip(&mut self, at: Time, steps: u64, series: Series, used: Blocks) {
        let _ = (at, steps, series, used);
    }

    /// The first so many of the skipped steps have begun, and the last of them runs: the skip ends
    /// there.
    fn take(&mut self, steps: u64) {
        let _ = steps;
    }
}

/// The ranks of one replica.
#[derive(Debug)]
pub struct RankGroup<R> {
    ranks: Vec<R>,
    balancer: Balancer,
    cost: StepCost,
    carry: Carry,
    /// The same of the steps' decodes.
    decode_carry: Carry,
    /// What each rank computes in the step that runs.
    loads: Vec<StepLoad>,
    /// The decodes of it.
    decode_loads: Vec<StepLoad>,
    /// Blocks that each rank held when it began.
    used: Vec<Blocks>,
    /// The steps that follow it and are not taken one by one.
    skip: Option<Skip>,
    untold: Untold,
    /// Steps of the group.
    steps: u64,
    due: Option<Due>,
}

impl<R: Rank> RankGroup<R> {
    /// Idle ranks, as many as the step time knows, made by `rank`.
    #[must_use]
    pub fn new(
        config: &EngineConfig,
        cost: &StepCost,
        rank: impl Fn(EngineConfig, StepCost) -> R,
    ) -> Self {
        Self::of(cost.ranks(), config, cost, rank)
    }

    fn of(
        number: usize,
        config: &EngineConfig,
        cost: &StepCost,
        rank: impl Fn(EngineConfig, StepCost) -> R,
    ) -> Self {
        Self {
            ranks: (0..number).map(|_| rank(config.clone(), cost.clone())).collect(),
            balancer: Balancer::new(config.vllm),
            cost: cost.clone(),
            carry: Carry::default(),
            decode_carry: Carry::default(),
            loads: vec![cost.empty_load(); number],
            decode_loads: vec![cost.empty_load(); number],
            used: vec![Blocks::ZERO; number],
            skip: None,
            untold: Untold::default(),
            steps: 0,
            due: None,
        }
    }

    fn start_step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.due = None;
        for (rank, load) in self.ranks.iter_mut().zip(&mut self.loads) {
            load.clear();
            if rank.has_work() {
                rank.pick(effects);
                *load = rank.load();
            }
        }
        let Some(summary) = self.price() else { return };
        effects.push(Effect::StepStarted(summary));
        let end = now + summary.span;
        self.due = Some(Due::StepEnds(end));
        for ((rank, load), used) in self.ranks.iter_mut().zip(&self.loads).zip(&mut self.used) {
            if load.tokens() > 0 {
                *used = rank.occupancy().used;
                rank.schedule_behind(effects);
            }
        }
        self.skip_ahead(end);
    }

    /// How long the step takes that the ranks have picked, and what they do in it together. `None`
    /// if nobody does anything.
    fn price(&mut self) -> Option<StepSummary> {
        let (_, ticks) = self.cost.slowest(&mut self.loads)?;
        debug_assert!(
            self.loads.iter().all(|load| load.tokens() == 0 || self.cost.ticks(load) <= ticks),
            "a step is shorter than that of a rank"
        );
        let span = self.carry.step(ticks);
        let sum = |part: fn(&StepLoad) -> u64| self.loads.iter().map(part).sum::<u64>();
        let decode_seqs = sum(StepLoad::decode_seqs);
        let prefill_tokens = Tokens(sum(StepLoad::prefill_tokens));
        let decode_span = match (decode_seqs, prefill_tokens.0) {
            (_, 0) => span,
            (0, _) => Span::ZERO,
            _ => {
                for (decodes, load) in self.decode_loads.iter_mut().zip(&self.loads) {
                    let (all, windowed) = (load.decode_context(), load.decode_context_windowed());
                    decodes.clear();
                    decodes.add_decodes(load.decode_seqs(), all, windowed);
                }
                let (_, ticks) = self.cost.slowest(&mut self.decode_loads)?;
                self.decode_carry.step(ticks)
            }
        };
        let Occupancy { running, waiting, used, .. } = self.occupancy();
        let used_blocks = used;
        Some(StepSummary {
            span,
            decode_span,
            decode_seqs,
            prefill_tokens,
            used_blocks,
            running,
            waiting,
        })
    }

    /// What all ranks hold together.
    fn occupancy(&self) -> Occupancy {
        self.ranks.iter().map(Rank::occupancy).fold(Occupancy::default(), |sum, one| Occupancy {
            running: sum.running + one.running,
            waiting: sum.waiting + one.waiting,
            used: sum.used + one.used,
            blocks: sum.blocks + one.blocks,
        })
    }

    fn end_step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for (rank, load) in self.ranks.iter_mut().zip(&self.loads) {
            if load.tokens() > 0 {
                rank.end_step(now, effects);
            }
        }
        self.steps += 1;
        let goes_on = self.ranks.iter().any(Rank::has_work);
        self.due = goes_on.then_some(Due::StepStarts(now));
    }
}

impl<R: Rank> Engine for RankGroup<R> {
    fn submit(&mut self, now: Time, request: Request) {
        self.catch_up(now);
        let rank = self.balancer.choose(self.ranks.iter().map(Rank::occupancy));
        self.ranks[rank].submit(now, request);
        self.due.get_or_insert(Due::StepStarts(now));
    }

    /// By whichever rank has it.
    fn abort(&mut self, now: Time, request: RequestId) {
        self.catch_up(now);
        self.ranks.iter_mut().for_each(|rank| rank.withdraw(request));
    }

    /// On every rank: nobody knows yet which will be asked.
    fn warm(&mut self, path: &Path, tokens: Tokens) {
        debug_assert!(self.skip.is_none(), "warmed before the first request");
        self.ranks.iter_mut().for_each(|rank| rank.warm(path, tokens));
    }

    /// On the rank that would find most; the balancer may choose another.
    fn cached(&mut self, now: Time, path: &Path, prompt: Tokens) -> Tokens {
        self.catch_up(now);
        let found = self.ranks.iter_mut().map(|rank| rank.cached(now, path, prompt));
        found.max().unwrap_or(Tokens::ZERO)
    }

    fn due(&self) -> Option<Due> {
        self.due
    }

    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let Some(steps) = self.skip.map(|skip| skip.steps) {
            self.take_steps(steps);
        }
        match self.due {
            Some(Due::StepStarts(_)) => self.start_step(now, effects),
            Some(Due::StepEnds(_)) => self.end_step(now, effects),
            None => {}
        }
    }

    fn take_runs(&mut self, take: impl FnMut(&StepRun, &[Level])) {
        self.untold.take(take);
    }

    fn settle(&mut self, until: Time) {
        if let Some(begun) = self.skip.map(|skip| skip.begun(until)) {
            self.take_steps(begun);
        }
    }

    fn stuck(&self) -> Option<Stuck> {
        self.ranks.iter().find_map(Engine::stuck)
    }

    fn gauges(&mut self, now: Time) -> Gauges {
        self.catch_up(now);
        let Occupancy { running, waiting, used, blocks } = self.occupancy();
        Gauges {
            num_requests_running: running,
            num_requests_waiting: waiting,
            kv_cache_usage_perc: used.as_f64() / blocks.as_f64().max(1.0),
        }
    }

    /// The sums over the ranks; the steps are those of the group, the share of the KV cache is that
    /// of all their caches.
    fn metrics(&self) -> EngineMetrics {
        let mut all = EngineMetrics::default();
        self.ranks.iter().for_each(|rank| all.add_rank(&rank.metrics()));
        let Occupancy { used, blocks, .. } = self.occupancy();
        all.steps = self.steps;
        all.kv_cache_usage_perc = used.as_f64() / blocks.as_f64().max(1.0);
        all
    }
}
