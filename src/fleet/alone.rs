//! How fast a session's work can go at all: alone on an idle replica, with every kept token in
//! the cache. A loaded fleet's task is compared with it (`stretch`).

use std::sync::OnceLock;

use super::admission::Limits;
use super::workload::Workload;
use super::{Progress, Setup, simulate};
use crate::engine::config::{EngineConfig, Pool};
use crate::units::Span;

/// The times of the sessions of one workload on one kind of replica, each simulated when first
/// asked for. They do not depend on the number of replicas or the router.
#[derive(Debug)]
pub struct AloneTimes {
    setup: Setup,
    task_llm: Vec<OnceLock<Span>>,
}

impl AloneTimes {
    /// Times for the replicas of this setup.
    #[must_use]
    pub fn new(setup: &Setup, workload: &Workload) -> Self {
        let engine = EngineConfig { pool: Pool::Unlimited, ..setup.engine.clone() };
        let setup = Setup {
            replicas: 1,
            engine,
            limits: Limits::default(),
            warmup: Span::ZERO,
            window: None,
            ..setup.clone()
        };
        Self { setup, task_llm: workload.sessions.iter().map(|_| OnceLock::new()).collect() }
    }

    /// Whether the engines take every step by itself; it does not change the times.
    pub fn every_step(&mut self, every_step: bool) {
        self.setup.every_step = every_step;
    }

    /// The session's turns alone on an idle replica, less tool time.
    pub fn task_llm(&self, workload: &Workload, session: u32) -> Span {
        *self.task_llm[session as usize].get_or_init(|| {
            let setup = Setup { alone: Some(session), ..self.setup.clone() };
            let alone = simulate(&setup, workload, &Progress::default());
            alone.records.tasks.first().map_or(Span::ZERO, |task| task.task_llm)
        })
    }
}
