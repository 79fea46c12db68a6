//! How fast a session's work can go at all: alone on an idle replica, with every kept token in
//! the cache. A loaded fleet's task is compared with it (`stretch`).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::admission::Limits;
use super::arrivals::{Arrivals, Next, Sessions};
use super::observer::{About, Observer};
use super::shards::log::Bursts;
use super::workload::{Contexts, SessionPlan};
use super::world::World;
use super::{Progress, Setup, WithEngine, with_engine};
use crate::config::autoscale::Scaling;
use crate::config::router::{RouterKind, Routing};
use crate::config::scenario::{Load, LoadKind};
use crate::engine::Engine;
use crate::engine::config::{EngineConfig, Pool};
use crate::observe::records::{CallRecord, TaskRecord, TurnRecord};
use crate::units::{Span, Time};

/// The times of sessions on one kind of replica, each simulated when first asked for. They do not
/// depend on the number of replicas or the router.
pub struct AloneTimes {
    setup: Arc<Setup>,
    /// By session, where sessions are held and may be asked for again.
    known: Vec<OnceLock<Span>>,
    /// Replicas that play nobody: one for each thread that has asked.
    idle: Mutex<Vec<Box<dyn Player>>>,
}

impl fmt::Debug for AloneTimes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AloneTimes").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl AloneTimes {
    /// Times for the replicas of this setup, remembered for this many sessions.
    #[must_use]
    pub fn new(setup: &Setup, sessions: usize) -> Self {
        let engine = EngineConfig { pool: Pool::Unlimited, ..setup.engine.clone() };
        let load = Load { kind: LoadKind::Trace, ..setup.load.clone() };
        let setup = Setup {
            replicas: 1,
            gateway: None,
            scaling: Scaling::default(),
            router: RouterKind::SessionAffinity,
            routing: Routing::default(),
            events: Vec::new(),
            pools: Vec::new(),
            engine,
            load,
            limits: Limits::default(),
            warmup: Span::ZERO,
            window: None,
            ..setup.clone()
        };
        let known = (0..sessions).map(|_| OnceLock::new()).collect();
        Self { setup: Arc::new(setup), known, idle: Mutex::default() }
    }

    /// The same without what is known of any session.
    #[must_use]
    pub fn afresh(&self) -> Self {
        Self { setup: Arc::clone(&self.setup), known: Vec::new(), idle: Mutex::default() }
    }

    /// Whether the engines take every step by itself; it does not change the times.
    pub fn every_step(&mut self, every_step: bool) {
        Arc::make_mut(&mut self.setup).every_step = every_step;
        self.idle = Mutex::default();
    }

    /// The session's turns alone on an idle replica, less tool time.
    pub fn task_llm(&self, session: u32, plan: &Arc<SessionPlan>, contexts: &Contexts) -> Span {
        let time = || plan.alone.unwrap_or_else(|| self.simulated(plan, contexts));
        match self.known.get(session as usize) {
            Some(known) => *known.get_or_init(time),
            None => time(),
        }
    }

    fn simulated(&self, plan: &Arc<SessionPlan>, contexts: &Contexts) -> Span {
        let idle = self.idle().pop();
        let mut player = idle.unwrap_or_else(|| with_engine(&self.setup, Maker(&self.setup)));
        let (span, is_idle) = player.play(plan, contexts);
        if is_idle {
            self.idle().push(player);
        }
        span
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn Player>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A replica that plays one session after the other, each as the first one.
trait Player: Send {
    /// The session's turns, less tool time; and whether it can play another.
    fn play(&mut self, plan: &Arc<SessionPlan>, contexts: &Contexts) -> (Span, bool);
}

/// Makes one.
struct Maker<'a>(&'a Arc<Setup>);

impl WithEngine for Maker<'_> {
    type Made = Box<dyn Player>;

    fn made<E: Engine + Send + 'static>(
        self,
        engine: impl Fn(&Setup) -> E + Send + Sync + 'static,
    ) -> Box<dyn Player> {
        let setup = Arc::clone(self.0);
        let engine = move || engine(&setup);
        let (sessions, last) = (Sessions::None, Last::default());
        let mut world = World::new(self.0, None, sessions, engine, last, None);
        world.is_alone = true;
        world.burst = Bursts::Unwatched;
        world.arrivals = Arrivals::given();
        Box::new(world)
    }
}

/// Keeps the last task's turns, less tool time.
#[derive(Debug, Default)]
struct Last(Span);

impl Observer for Last {
    fn call(&mut self, _: &CallRecord, _: &About<'_>) {}

    fn turn(&mut self, _: &TurnRecord, _: &About<'_>) {}

    fn task(&mut self, task: &TaskRecord, _: &About<'_>) {
        self.0 = task.task_llm;
    }
}

impl<E: Engine + Send> Player for World<'static, E, Last> {
    fn play(&mut self, plan: &Arc<SessionPlan>, contexts: &Contexts) -> (Span, bool) {
        self.queue.clear();
        self.content.clear();
        self.replicas[0].engine = (self.new_engine)();
        self.observer.0 = Span::ZERO;
        self.arrivals.give(Vec::new(), contexts);
        (self.next, self.arrives) = (Some(Next::alone(Arc::clone(plan))), Time::ZERO);
        World::play(self, &Progress::default(), Time::MAX);
        (self.observer.0, self.stuck.is_none() && self.arrivals.failure.is_none())
    }
}
