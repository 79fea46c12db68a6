//! The world: sessions, router and replicas in one simulated time.
//!
//! One queue, one [`Event`] type, one dispatch. Sessions are played in a closed loop: a call is
//! dispatched when what it waits for has come to an end *in the simulation*, plus the client time
//! that the trace recorded. In an open loop it is dispatched at its recorded time. Everything that
//! happens is a function of the setup, the workload and the seed.

pub mod admission;
mod agenda;
pub mod alone;
mod clients;
pub mod content;
pub mod overflow;
pub mod played;
pub mod population;
mod replicas;
pub mod router;
pub mod session;
pub mod setup;
pub mod workload;
mod world;

use std::sync::atomic::AtomicU64;

use crate::config::api_time::ApiTime;
use crate::config::scenario::{Client, Load, OnOverflow, RouterKind};
use crate::engine::Engine;
use crate::engine::config::EngineConfig;
use crate::engine::fast::FastEngine;
use crate::engine::metrics::EngineMetrics;
use crate::engine::plain::PlainEngine;
use crate::engine::step_time::StepCost;
use crate::observe::records::Records;
use crate::observe::replica::{ReplicaUse, Window};
use crate::units::Span;

use admission::Limits;
use workload::Workload;
use world::World;

/// Everything about a run but its workload.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Replicas behind the router.
    pub replicas: u32,
    /// How calls are routed.
    pub router: RouterKind,
    /// Every replica's engine.
    pub engine: EngineConfig,
    /// Every replica's step time.
    pub cost: StepCost,
    /// Host time of a request outside the engine.
    pub api: ApiTime,
    /// Limits of every replica's API server.
    pub limits: Limits,
    /// What clients do when they are refused.
    pub client: Client,
    /// Who plays what.
    pub load: Load,
    /// Whether calls are dispatched at their recorded times, whatever they wait for.
    pub open_loop: bool,
    /// What becomes of prompts beyond the context.
    pub on_overflow: OnOverflow,
    /// The seed of every random choice.
    pub seed: u64,
    /// Left out of every figure, from the start.
    pub warmup: Span,
    /// Length of what is measured after it; `None` until the last call has ended.
    pub window: Option<Span>,
    /// One session alone, from time 0, with every kept token in the cache: how fast the work can
    /// go at all. Overrides the load.
    pub alone: Option<u32>,
    /// Engines take every step by itself, as the reference does; the results are the same.
    pub every_step: bool,
}

/// How far a run has come, for who watches it from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Calls that have ended.
    pub calls: AtomicU64,
    /// Simulated time, in nanoseconds.
    pub nanos: AtomicU64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Run {
    /// Calls, turns, tasks.
    pub records: Records,
    /// What each replica did inside the window.
    pub replicas: Vec<ReplicaUse>,
    /// The measured window; a run that ends by itself ends it with its last event.
    pub window: Window,
    /// Calls sent for one token because none was recorded.
    pub empty_outputs: u64,
    /// Mean over the window of the tokens in the contexts of open sessions.
    pub live_context_mean: f64,
    /// What each engine counted over the whole run.
    pub engines: Vec<EngineMetrics>,
    /// Why the run stopped before its end, if it did.
    pub stuck: Option<String>,
}

impl Run {
    /// Blocks that lost their cached content, in all engines over the whole run.
    #[must_use]
    pub fn evicted_blocks(&self) -> u64 {
        self.engines.iter().map(|engine| engine.evicted_blocks).sum()
    }
}

/// Plays a workload on a fleet, with the engines that the setup asks for.
pub fn simulate(setup: &Setup, workload: &Workload, progress: &Progress) -> Run {
    if setup.every_step {
        let engine = || PlainEngine::new(setup.engine.clone(), setup.cost.clone());
        run(setup, workload, engine, progress)
    } else {
        let engine = || FastEngine::new(setup.engine.clone(), setup.cost.clone());
        run(setup, workload, engine, progress)
    }
}

/// Plays a workload on a fleet of engines made by `engine`.
pub fn run<E: Engine>(
    setup: &Setup,
    workload: &Workload,
    engine: impl Fn() -> E,
    progress: &Progress,
) -> Run {
    let mut world = World::new(setup, workload, engine);
    world.start_population();
    world.play(progress);
    world.finish()
}
