//! One replica of the served model: scheduler, KV cache, step time.
//!
//! An [`Engine`] is told what arrives, is asked when it next does something by itself, and answers
//! with [`Effect`]s. It does no input or output and never sees the event queue, so that another
//! implementation with equal answers can stand in its place; [`plain::PlainEngine`] is the
//! reference that takes one step at a time. A [`ranks::RankGroup`] is a replica of several engines
//! in lock step.

pub mod batch;
mod blocked;
pub mod cache;
pub mod config;
pub mod extents;
pub mod fast;
pub mod kv;
pub mod metrics;
pub mod plain;
pub mod ranks;
pub mod request;
pub mod scheduler;
pub mod step_time;

use std::fmt;

use crate::trace::lineage::Path;
use crate::units::{Blocks, RequestId, Time, Tokens};
use cache::BlockCache;
use metrics::EngineMetrics;
use request::{Effect, Level, Request, StepRun};
use scheduler::Scheduler;

/// What an engine does next by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A step ends at this instant, before anything that arrives in it.
    StepEnds(Time),
    /// A step starts at this instant, with everything that has arrived in it.
    StepStarts(Time),
}

/// Why an engine can do nothing more for a request, nor for those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which request.
    pub head: RequestId,
    /// What holds it up.
    pub cause: StuckCause,
    /// Blocks that it takes.
    pub needed: Blocks,
    /// Blocks that there are, if they are limited.
    pub blocks: Option<Blocks>,
    /// Length of the running list.
    pub running: usize,
    /// Length of the waiting queue.
    pub waiting: usize,
}

/// What holds a request up for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckCause {
    /// It is the head of the waiting queue, nothing runs, and there is no room for it.
    Admission,
    /// It runs alone and needs more blocks than there are: it preempts itself again and again.
    Growth,
    /// It runs, and its prompt leaves no room for an output in the context.
    Context,
}

impl fmt::Display for Stuck {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.cause {
            StuckCause::Admission => "can never be admitted",
            StuckCause::Growth => "outgrows the KV cache and preempts itself for ever",
            StuckCause::Context => "has no room for an output in the context",
        })?;
        write!(out, ": it takes {} blocks", self.needed)?;
        if let Some(blocks) = self.blocks {
            write!(out, " and there are {blocks}")?;
        }
        write!(out, "; running {}, waiting {}", self.running, self.waiting)
    }
}

/// One engine in simulated time.
pub trait Engine {
    /// A request reaches the engine's queue.
    fn submit(&mut self, now: Time, request: Request);

    /// Nobody waits for a request any more. Nothing is told of it from here on. Its blocks are free
    /// at the end of the step that runs, before what that computed is taken in; at once if none
    /// does. Its name may be used again.
    fn abort(&mut self, now: Time, request: RequestId);

    /// The first `tokens` of `path` are in the cache from here on, as if computed before.
    fn warm(&mut self, path: &Path, tokens: Tokens);

    /// Tokens of a prompt with this content that it would find in the cache if it were admitted
    /// now. Nothing changes by it, but what is [due](Self::due) may be told in smaller parts.
    fn cached(&mut self, now: Time, path: &Path, prompt: Tokens) -> Tokens;

    /// What it does next; `None` if nothing until a request arrives.
    fn due(&self) -> Option<Due>;

    /// Does what is due now, appending what comes of it to `effects`.
    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>);

    /// Hands over the runs of equal steps that it has taken without telling each of them. They lie
    /// before every effect of the last [`Self::advance`].
    fn take_runs(&mut self, take: impl FnMut(&StepRun, &[Level])) {
        let _ = take;
    }

    /// The run ends at `until`: what has begun before and was not done yet is done.
    fn settle(&mut self, until: Time) {
        let _ = until;
    }

    /// Set once a request can never come to its end.
    fn stuck(&self) -> Option<Stuck>;

    /// What a scrape of its metrics would find now, as far as autoscalers go by it.
    fn gauges(&mut self, now: Time) -> Gauges;

    /// What it has counted so far.
    fn metrics(&self) -> EngineMetrics;
}

/// What changes up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// `vllm:num_requests_running`.
    pub num_requests_running: u64,
    /// `vllm:num_requests_waiting`.
    pub num_requests_waiting: u64,
    /// `vllm:kv_cache_usage_perc`, from 0 to 1.
    pub kv_cache_usage_perc: f64,
}

impl Gauges {
    fn new<C: BlockCache>(scheduler: &Scheduler<C>, used: Blocks) -> Self {
        Self {
            num_requests_running: scheduler.running() as u64,
            num_requests_waiting: scheduler.waiting() as u64,
            kv_cache_usage_perc: used.as_f64() / scheduler.kv().blocks().as_f64().max(1.0),
        }
    }
}
