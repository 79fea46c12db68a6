//! One replica of the served model: scheduler, KV cache, step time.
//!
//! An [`Engine`] is told what arrives, is asked when it next does something by itself, and answers
//! with [`Effect`]s. It does no input or output and never sees the event queue, so that another
//! implementation with equal answers can stand in its place; [`plain::PlainEngine`] is the
//! reference that takes one step at a time.

pub mod batch;
pub mod config;
pub mod kv;
pub mod metrics;
pub mod plain;
pub mod request;
pub mod scheduler;
pub mod step_time;

use crate::trace::lineage::Path;
use crate::units::{RequestId, Time, Tokens};
use metrics::EngineMetrics;
use request::{Effect, Request};

/// What an engine does next by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A step ends at this instant, before anything that arrives in it.
    StepEnds(Time),
    /// A step starts at this instant, with everything that has arrived in it.
    StepStarts(Time),
}

/// Why an engine can do nothing more although requests wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The head of the waiting queue, which holds up all others.
    pub head: RequestId,
    /// Requests that wait.
    pub waiting: usize,
}

/// One engine in simulated time.
pub trait Engine {
    /// A request reaches the engine's queue.
    fn submit(&mut self, now: Time, request: Request);

    /// The first `tokens` of `path` are in the cache from here on, as if computed before.
    fn warm(&mut self, path: &Path, tokens: Tokens);

    /// What it does next; `None` if nothing until a request arrives.
    fn due(&self) -> Option<Due>;

    /// Does what is due now, appending what comes of it to `effects`.
    fn advance(&mut self, now: Time, effects: &mut Vec<Effect>);

    /// Set once requests wait that can never be admitted.
    fn stuck(&self) -> Option<Stuck>;

    /// What it has counted so far.
    fn metrics(&self) -> EngineMetrics;
}
