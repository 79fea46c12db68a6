//! How fast a session's work can go at all: alone on an idle replica, with every kept token in
//! the cache. A loaded fleet's task is compared with it (`stretch`).

use std::sync::{Arc, OnceLock};

use super::admission::Limits;
use super::arrivals::Sessions;
use super::workload::{ContextPlan, SessionPlan};
use super::{Progress, Setup, simulate};
use crate::config::autoscale::Scaling;
use crate::config::router::{RouterKind, Routing};
use crate::config::scenario::{Load, LoadKind};
use crate::engine::config::{EngineConfig, Pool};
use crate::observe::records::Records;
use crate::units::Span;

/// The times of sessions on one kind of replica, each simulated when first asked for. They do not
/// depend on the number of replicas or the router.
#[derive(Debug)]
pub struct AloneTimes {
    setup: Setup,
    /// By session, where sessions are held and may be asked for again.
    known: Vec<OnceLock<Span>>,
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
        Self { setup, known: (0..sessions).map(|_| OnceLock::new()).collect() }
    }

    /// The same without what is known of any session.
    #[must_use]
    pub fn afresh(&self) -> Self {
        Self { setup: self.setup.clone(), known: Vec::new() }
    }

    /// Whether the engines take every step by itself; it does not change the times.
    pub fn every_step(&mut self, every_step: bool) {
        self.setup.every_step = every_step;
    }

    /// The session's turns alone on an idle replica, less tool time.
    pub fn task_llm(
        &self,
        session: u32,
        plan: &Arc<SessionPlan>,
        contexts: &[ContextPlan],
    ) -> Span {
        let time = || plan.alone.unwrap_or_else(|| self.simulated(plan, contexts));
        match self.known.get(session as usize) {
            Some(known) => *known.get_or_init(time),
            None => time(),
        }
    }

    fn simulated(&self, plan: &Arc<SessionPlan>, contexts: &[ContextPlan]) -> Span {
        let sessions = Sessions::Alone(plan, contexts);
        let alone = simulate(&self.setup, sessions, Records::default(), None, &Progress::default());
        alone.records.tasks.first().map_or(Span::ZERO, |task| task.task_llm)
    }
}
