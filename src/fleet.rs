//! The world: sessions, router and replicas in one simulated time.
//!
//! One queue, one [`Event`] type, one dispatch. Sessions are played in a closed loop: a call is
//! dispatched when what it waits for has come to an end *in the simulation*, plus the client time
//! that the trace recorded. In an open loop it is dispatched at its recorded time. Everything that
//! happens is a function of the setup, the workload and the seed.

pub mod admission;
mod agenda;
pub mod alone;
pub mod arrivals;
mod clients;
pub mod content;
mod faults;
pub mod feed;
mod gate;
mod gate_use;
pub mod observer;
pub mod overflow;
pub mod played;
pub mod pools;
pub mod population;
mod replicas;
pub mod router;
mod routing;
mod scaling;
pub mod session;
pub mod setup;
pub mod shards;
mod tournament;
mod visits;
pub mod workload;
mod world;

pub use gate_use::GatewayUse;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::config::api_time::ApiTime;
use crate::config::autoscale::Scaling;
use crate::config::faults::FleetEvent;
use crate::config::gateway::FrontEnd;
use crate::config::pools::Pool;
use crate::config::router::{RouterKind, Routing};
use crate::config::scenario::{Client, Load, OnOverflow};
use crate::engine::Engine;
use crate::engine::config::EngineConfig;
use crate::engine::fast::FastEngine;
use crate::engine::metrics::EngineMetrics;
use crate::engine::plain::PlainEngine;
use crate::engine::ranks::RankGroup;
use crate::engine::step_time::StepCost;
use crate::observe::burst::Burst;
use crate::observe::members::{ReplicaChange, ScalingUse};
use crate::observe::records::{CutOff, Records};
use crate::observe::replica::{ReplicaUse, Window};
use crate::units::{Span, Time};

use admission::Limits;
use alone::AloneTimes;
use arrivals::{Failure, Sessions};
use observer::Observer;
use shards::Sizes;
use workload::{Counts, Names, Workload};
use world::World;

/// Everything about a run but its workload.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Replicas behind the router, those that are started later by an autoscaler apart.
    pub replicas: u32,
    /// Parts of the fleet with calls and a router of their own, which then route in place of
    /// `router`; none if every replica is there for every call.
    pub pools: Vec<Pool>,
    /// The gateway and its clients. It routes the calls, and `router` does not.
    pub gateway: Option<FrontEnd>,
    /// What makes pods and replicas more and fewer.
    pub scaling: Scaling,
    /// How calls are routed without a gateway.
    pub router: RouterKind,
    /// What its router is set with.
    pub routing: Routing,
    /// What happens to replicas, in order of time.
    pub events: Vec<FleetEvent>,
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
    /// Engines take every step by itself, as the reference does; the results are the same.
    pub every_step: bool,
}

/// How far a run has come, for who watches it from another thread, and stops it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Calls that have ended.
    pub calls: AtomicU64,
    /// Simulated time, in nanoseconds.
    pub nanos: AtomicU64,
    /// Set to end the run where it is.
    pub stop: AtomicBool,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Run<O = Records> {
    /// Who was told of calls, turns and tasks.
    pub records: O,
    /// What the run cut off at its end.
    pub cut_off: CutOff,
    /// What each replica did inside the window.
    pub replicas: Vec<ReplicaUse>,
    /// Replicas of the fleet as it began; behind them are those that an autoscaler started.
    pub replicas_at_start: u32,
    /// What the gateway did inside the window, if there is one.
    pub gateway: Option<GatewayUse>,
    /// What autoscalers did.
    pub scaling: ScalingUse,
    /// What became of replicas that came or went, in order, warm-up included.
    pub changes: Vec<ReplicaChange>,
    /// The measured window; a run that ends by itself ends it with its last event.
    pub window: Window,
    /// What there is in the trace, as far as it was read.
    pub counts: Counts,
    /// What the numbers of models, tenants and profiles mean.
    pub names: Names,
    /// Mean over the window of the tokens in the contexts of open sessions.
    pub live_context_mean: f64,
    /// The busiest minute, if there was a dispatch.
    pub burst: Option<Burst>,
    /// What each engine counted over the whole run, and behind them those whose process ended
    /// before.
    pub engines: Vec<EngineMetrics>,
    /// Most sessions that were open at once, which is what memory follows.
    pub open_sessions_max: u64,
    /// Where the run was stopped from outside, if it was.
    pub interrupted: Option<Time>,
    /// Why the run stopped before its end, if it did.
    pub stuck: Option<String>,
    /// Why sessions stopped coming before the end, if they did.
    pub failure: Option<Failure>,
}

impl<O> Run<O> {
    /// Blocks that lost their cached content, in all engines over the whole run.
    #[must_use]
    pub fn evicted_blocks(&self) -> u64 {
        self.engines.iter().map(|engine| engine.evicted_blocks).sum()
    }
}

impl<A, B> Run<(A, B)> {
    /// A run that told two, as one that told the first; and the second.
    pub fn split(self) -> (Run<A>, B) {
        let (records, other) = self.records;
        let run = Run {
            records,
            cut_off: self.cut_off,
            replicas: self.replicas,
            replicas_at_start: self.replicas_at_start,
            gateway: self.gateway,
            scaling: self.scaling,
            changes: self.changes,
            window: self.window,
            counts: self.counts,
            names: self.names,
            live_context_mean: self.live_context_mean,
            burst: self.burst,
            engines: self.engines,
            open_sessions_max: self.open_sessions_max,
            interrupted: self.interrupted,
            stuck: self.stuck,
            failure: self.failure,
        };
        (run, other)
    }
}

/// Plays sessions on a fleet, with the engines that the setup asks for. `alone` answers an observer
/// who wants to know how long tasks take alone.
pub fn simulate<O: Observer>(
    setup: &Setup,
    sessions: Sessions<'_>,
    observer: O,
    alone: Option<&AloneTimes>,
    progress: &Progress,
) -> Run<O> {
    let world = OneWorld { setup, sessions, observer, alone, progress };
    with_engine(setup, world)
}

/// The same on so many threads at most; the results are the same for any number of them. Replicas
/// that [cannot be simulated apart](shards::why_together) are simulated on one.
pub fn simulate_on<O: Observer + Send>(
    threads: usize,
    setup: &Setup,
    sessions: Sessions<'_>,
    observer: O,
    alone: Option<&AloneTimes>,
    progress: &Progress,
) -> Run<O> {
    let sizes = Sizes::of(threads, setup.replicas);
    simulate_in(threads, &sizes, setup, sessions, observer, alone, progress)
}

/// The same, taken apart like this.
pub fn simulate_in<O: Observer + Send>(
    threads: usize,
    sizes: &Sizes,
    setup: &Setup,
    sessions: Sessions<'_>,
    observer: O,
    alone: Option<&AloneTimes>,
    progress: &Progress,
) -> Run<O> {
    let world = OneWorld { setup, sessions, observer, alone, progress };
    if sizes.shards < 2 || shards::why_together(setup).is_some() {
        return with_engine(setup, world);
    }
    let pool = || rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    // Where there can be no threads there is one.
    let pool = (threads > 1).then(pool).and_then(Result::ok);
    with_engine(setup, Shards { pool, sizes: *sizes, world })
}

/// Who makes something with engines of whatever type.
trait WithEngine {
    type Made;
    fn made<E: Engine + Send + 'static>(
        self,
        engine: impl Fn(&Setup) -> E + Send + Sync + 'static,
    ) -> Self::Made;
}

/// Has something made with the engines that a setup asks for.
fn with_engine<W: WithEngine>(setup: &Setup, with: W) -> W::Made {
    match (setup.every_step, setup.cost.in_lock_step()) {
        (true, false) => with.made(|s| PlainEngine::new(s.engine.clone(), s.cost.clone())),
        (false, false) => with.made(|s| FastEngine::new(s.engine.clone(), s.cost.clone())),
        (true, true) => with.made(|s| RankGroup::new(&s.engine, &s.cost, PlainEngine::new)),
        (false, true) => with.made(|s| RankGroup::new(&s.engine, &s.cost, FastEngine::new)),
    }
}

/// A run in one world.
struct OneWorld<'a, O> {
    setup: &'a Setup,
    sessions: Sessions<'a>,
    observer: O,
    alone: Option<&'a AloneTimes>,
    progress: &'a Progress,
}

impl<O: Observer> WithEngine for OneWorld<'_, O> {
    type Made = Run<O>;

    fn made<E: Engine + Send>(self, engine: impl Fn(&Setup) -> E + Send + Sync) -> Run<O> {
        let Self { setup, sessions, observer, alone, progress } = self;
        let (front, setup) = (setup.gateway.as_ref(), Arc::new(setup.clone()));
        let engine = || engine(&setup);
        play(World::new(&setup, front, sessions, engine, observer, alone), progress)
    }
}

/// The same in several.
struct Shards<'a, O> {
    /// None on one thread.
    pool: Option<rayon::ThreadPool>,
    sizes: Sizes,
    world: OneWorld<'a, O>,
}

impl<O: Observer + Send> WithEngine for Shards<'_, O> {
    type Made = Run<O>;

    fn made<E: Engine + Send>(self, engine: impl Fn(&Setup) -> E + Send + Sync) -> Run<O> {
        let OneWorld { setup, sessions, observer, alone, progress } = self.world;
        let (pool, sizes) = (self.pool.as_ref(), &self.sizes);
        let engine = || engine(setup);
        let fleet = shards::Fleet::new(sizes, setup, sessions, &engine, observer, alone);
        fleet.play(pool, progress)
    }
}

/// Plays a workload on a fleet of engines made by `engine`, and keeps every record.
pub fn run<'a, E: Engine>(
    setup: &'a Setup,
    workload: &'a Workload,
    engine: impl Fn() -> E + Send + 'a,
    progress: &Progress,
) -> Run {
    let sessions = Sessions::Held(workload);
    let (front, setup) = (setup.gateway.as_ref(), Arc::new(setup.clone()));
    play(World::new(&setup, front, sessions, engine, Records::default(), None), progress)
}

fn play<E: Engine, O: Observer>(mut world: World<'_, E, O>, progress: &Progress) -> Run<O> {
    world.start_population();
    world.play(progress, Time::MAX);
    world.finish()
}
